"""Ensembles on a whole batch, with their gradient written out.

Mapping one observation's network over a batch leaves the batch outside of the members, for which
XLA transposes activations and gradients at every layer on a CPU. Here everything is [M, N, ·] from
beginning to end. Where a table has fewer rows than the batch has observations, the networks run
once at every row of it, and the outputs are looked up.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from winkel.networks.mlp import Ensemble, Linear, Lookup, row_of


class RowGradient(eqx.Module):
    """The gradient of a table as a list of its rows; all other rows have gradient 0."""

    rows: Int[Array, " N"]
    """Indices, which may repeat; the number of rows in the table stands for no row."""
    values: Float[Array, "M N H"]
    """What each entry adds to the gradient of its row."""
    height: int = eqx.field(static=True)
    """Rows of the table."""

    def add_to(self, table: Float[Array, "M R H"]) -> Float[Array, "M R H"]:
        """The table with each value added to its row."""
        return table.at[:, self.rows].add(self.values, mode="drop")

    def dense(self) -> Float[Array, "M R H"]:
        """The gradient of the whole table."""
        count, _, width = self.values.shape
        return self.add_to(jnp.zeros((count, self.height, width)))

    def map(self, function: Callable[[Array], Array]) -> "RowGradient":
        """A gradient of the same rows with other values."""
        return RowGradient(self.rows, function(self.values), self.height)

    def merge(self) -> "RowGradient":
        """The same gradient with all that belongs to one row in one entry, zeros in the others."""
        count = len(self.rows)
        place = jnp.zeros(self.height + 1, jnp.int32).at[self.rows].set(jnp.arange(count))
        scattered = RowGradient(place[self.rows], self.values, count)
        return self.map(lambda values: scattered.add_to(jnp.zeros_like(values)))


Residuals = tuple[Int[Array, " B"] | None, list[Float[Array, "M N _"]]]
"""What the backward pass needs of a forward pass: the row of each observation in the first layer's
table, None if that is no table, and the rectified inputs of the layers after the first."""


def forward(ensemble: Ensemble, obs: Array) -> tuple[Float[Array, "M B O"], Residuals]:
    """Outputs of all members for a batch, A · K of them, without padding.

    The networks run at all rows of their tables if those are fewer than the observations.
    """
    first, *rest = ensemble.layers
    rows = row_of(obs, first.side) if isinstance(first, Lookup) else None
    if isinstance(first, Lookup) and first.side is not None:
        rows = jax.lax.optimization_barrier(rows)  # else XLA divides for every number looked up
    hidden: list[Array] = []
    x = _first_layer(first, obs, rows)
    for layer in rest:
        hidden.append(jax.nn.relu(x))
        x = hidden[-1] @ layer.weight + layer.bias[:, None]
    if ensemble.columns is not None:
        x = x[..., : ensemble.rows * ensemble.columns]
    if rows is not None and _runs_at_all_rows(first, rows):
        x = _look_up(x, rows)
    return x, (rows, hidden)


def backward(
    ensemble: Ensemble, residuals: Residuals, obs: Array, gradient: Float[Array, "M B O"]
) -> Ensemble:
    """The gradient in all parameters from that in the outputs, in the ensemble's structure.

    The table of a first layer that is larger than the batch gets a `RowGradient`.
    """
    (first, *rest), (rows, hidden) = ensemble.layers, residuals
    more = ensemble.layers[-1].bias.shape[-1] - gradient.shape[-1]
    gradient = jnp.pad(gradient, ((0, 0), (0, 0), (0, more))) if more else gradient
    if rows is not None and _runs_at_all_rows(first, rows):
        here = jax.nn.one_hot(rows, first.weight.shape[1] + 1)
        gradient = jnp.einsum("bn,mbo->mno", here, gradient, precision="highest")
    leaves: list[Array | RowGradient] = []
    for layer, x in zip(reversed(rest), reversed(hidden), strict=True):
        leaves = [_weight_gradient(x, gradient), jnp.sum(gradient, axis=1), *leaves]
        gradient = jnp.where(x > 0, gradient @ jnp.swapaxes(layer.weight, 1, 2), 0.0)
    in_first: Array | RowGradient
    if rows is None:
        in_first = jnp.einsum("bi,mbh->mih", obs.reshape(len(obs), -1), gradient)
    elif _runs_at_all_rows(first, rows):
        in_first = gradient[:, :-1]
    else:
        in_first = RowGradient(rows, gradient, height=first.weight.shape[1])
    leaves = [in_first, jnp.sum(gradient, axis=1), *leaves]
    return jax.tree.unflatten(jax.tree.structure(ensemble), leaves)


def _runs_at_all_rows(first: Linear | Lookup, rows: Int[Array, " B"]) -> bool:
    """Whether networks run at all rows of their tables, and at no row, instead of on the batch."""
    return first.weight.shape[1] + 1 <= len(rows)


def _first_layer(
    first: Linear | Lookup, obs: Array, rows: Int[Array, " B"] | None
) -> Float[Array, "M N H"]:
    bias = first.bias[:, None]
    if rows is None:
        return jnp.einsum("bi,mih->mbh", obs.reshape(len(obs), -1), first.weight) + bias
    if _runs_at_all_rows(first, rows):
        return jnp.pad(first.weight, ((0, 0), (0, 1), (0, 0))) + bias
    found = _look_up(first.weight, jnp.minimum(rows, first.weight.shape[1] - 1))
    return jnp.where((rows < first.weight.shape[1])[None, :, None], found, 0.0) + bias


def _look_up(table: Float[Array, "M R H"], rows: Int[Array, " N"]) -> Float[Array, "M N H"]:
    """Rows of all members' tables, as one look-up that leaves the members outside."""
    count, height, width = table.shape
    flat = jnp.arange(count)[:, None] * height + rows[None]
    return (
        table.reshape(-1, width).at[flat].get(mode="promise_in_bounds", wrap_negative_indices=False)
    )


def _weight_gradient(
    x: Float[Array, "M N I"], gradient: Float[Array, "M N O"]
) -> Float[Array, "M I O"]:
    """xᵀ · gradient, the narrower of the two transposed."""
    if gradient.shape[-1] < x.shape[-1]:
        return jnp.swapaxes(jnp.swapaxes(gradient, 1, 2) @ x, 1, 2)
    return jnp.swapaxes(x, 1, 2) @ gradient
