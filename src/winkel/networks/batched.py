"""Ensembles on a whole batch, with their gradient written out.

Mapping one observation's network over a batch leaves the batch outside of the members, for which
XLA transposes activations and gradients at every layer on a CPU. Here everything is [M, N, ·] from
beginning to end. Where a table has fewer rows than the batch has observations, the networks run
once at every row, and what follows is looked up.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from winkel.networks.ensemble import Ensemble
from winkel.networks.torso import MLP, Linear, Lookup, row_of


class RowGradient(NamedTuple):
    """The gradient of a table by the rows that a batch touches; all others have none.

    Attributes:
        rows: which; the number of rows in the table stands for none.
        values: what each adds to the gradient of its row.
    """

    rows: Int[Array, " N"]
    values: Float[Array, "M N H"]

    def added_to(self, table: Float[Array, "M R H"]) -> Float[Array, "M R H"]:
        """The table with each value added to its row."""
        return table.at[:, self.rows].add(self.values, mode="drop")

    def merged(self, height: int) -> "RowGradient":
        """The same gradient of a table of so many rows, all that is added to a row in one place."""
        count = len(self.rows)
        place = jnp.zeros(height + 1, jnp.int32).at[self.rows].set(jnp.arange(count))
        scattered = RowGradient(place[self.rows], self.values)
        return RowGradient(self.rows, scattered.added_to(jnp.zeros_like(self.values)))


class Pass(NamedTuple):
    """What a forward pass leaves for the backward one, for N inputs.

    Attributes:
        rows: row of each observation in the first layer's table, None if that is no table.
        hidden: rectified inputs of the layers after the first.
        outputs: of the last layer.
    """

    rows: Int[Array, " B"] | None
    hidden: tuple[Float[Array, "M N H"], ...]
    outputs: Float[Array, "M N O"]


def run(ensemble: Ensemble, obs: Array) -> Pass:
    """All members on a batch of observations, or at all rows of their tables if those are fewer."""
    first, *rest = ensemble.members.layers
    rows = _rows_of(first, obs) if isinstance(first, Lookup) else None
    hidden: list[Array] = []
    x = _first(first, obs, rows)
    for layer in rest:
        hidden.append(jax.nn.relu(x))
        x = hidden[-1] @ layer.weight + layer.bias[:, None]
    return Pass(rows, tuple(hidden), x)


def outputs(ensemble: Ensemble, done: Pass) -> Float[Array, "M B O"]:
    """A pass's outputs for each observation of the batch, A · K of them."""
    found = done.outputs[..., : _width(ensemble.members, done)]
    if done.rows is None or not _everywhere(ensemble.members.layers[0], done.rows):
        return found
    return _picked(found, done.rows)


def gradient(ensemble: Ensemble, done: Pass, obs: Array, slopes: Float[Array, "M B O"]) -> Ensemble:
    """Σ_b ∂(slopes_b · outputs_b) / ∂ parameters, in the ensemble's structure.

    The table of a first layer that is larger than the batch gets a `RowGradient`.
    """
    first, *rest = ensemble.members.layers
    more = done.outputs.shape[-1] - slopes.shape[-1]
    slopes = jnp.pad(slopes, ((0, 0), (0, 0), (0, more))) if more else slopes
    if done.rows is not None and _everywhere(first, done.rows):
        here = jax.nn.one_hot(done.rows, first.weight.shape[1] + 1)
        slopes = jnp.einsum("bn,mbo->mno", here, slopes, precision="highest")
    leaves: list[Array | RowGradient] = []
    for layer, x in zip(reversed(rest), reversed(done.hidden), strict=True):
        leaves = [_products(x, slopes), jnp.sum(slopes, axis=1), *leaves]
        slopes = jnp.where(x > 0, slopes @ jnp.swapaxes(layer.weight, 1, 2), 0.0)
    leaves = [_of_first(first, done.rows, obs, slopes), jnp.sum(slopes, axis=1), *leaves]
    return jax.tree.unflatten(jax.tree.structure(ensemble), leaves)


def _everywhere(first: Linear | Lookup, rows: Int[Array, " B"]) -> bool:
    """Whether networks run at all rows of their tables, and at none, instead of on the batch."""
    return first.weight.shape[1] + 1 <= len(rows)


def _rows_of(first: Lookup, obs: Int[Array, " B"]) -> Int[Array, " B"]:
    """Rows of observations, computed once: XLA would divide for every number that is looked up."""
    side = first.side
    if side is None:
        return obs
    return jax.lax.optimization_barrier(row_of(obs, side**2, triangle=True))


def _first(
    first: Linear | Lookup, obs: Array, rows: Int[Array, " B"] | None
) -> Float[Array, "M N H"]:
    """The first layer, at all rows of its table and at none, or on the batch."""
    bias = first.bias[:, None]
    if rows is None:
        return jnp.einsum("bi,mih->mbh", obs.reshape(len(obs), -1), first.weight) + bias
    if _everywhere(first, rows):
        return jnp.pad(first.weight, ((0, 0), (0, 1), (0, 0))) + bias
    found = _picked(first.weight, jnp.minimum(rows, first.weight.shape[1] - 1))
    return jnp.where((rows < first.weight.shape[1])[None, :, None], found, 0.0) + bias


def _of_first(
    first: Linear | Lookup,
    rows: Int[Array, " B"] | None,
    obs: Array,
    slopes: Float[Array, "M N H"],
) -> Array | RowGradient:
    """The gradient of the first layer's weights."""
    if rows is None:
        return jnp.einsum("bi,mbh->mih", obs.reshape(len(obs), -1), slopes)
    return slopes[:, :-1] if _everywhere(first, rows) else RowGradient(rows, slopes)


def _picked(table: Float[Array, "M R H"], rows: Int[Array, " N"]) -> Float[Array, "M N H"]:
    """Rows of all members' tables, as one look-up that leaves the members outside."""
    count, height, width = table.shape
    flat = jnp.arange(count)[:, None] * height + rows[None]
    return (
        table.reshape(-1, width).at[flat].get(mode="promise_in_bounds", wrap_negative_indices=False)
    )


def _products(x: Float[Array, "M N I"], slopes: Float[Array, "M N O"]) -> Float[Array, "M I O"]:
    """xᵀ · slopes, the narrower of the two transposed."""
    if slopes.shape[-1] < x.shape[-1]:
        return jnp.swapaxes(jnp.swapaxes(slopes, 1, 2) @ x, 1, 2)
    return jnp.swapaxes(x, 1, 2) @ slopes


def _width(members: MLP, done: Pass) -> int:
    """Outputs that count: A · K without the last layer's padding."""
    if members.columns is None:
        return done.outputs.shape[-1]
    return members.rows * members.columns
