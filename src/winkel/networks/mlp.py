"""Multi-layer perceptrons on dense observations and on one-hot ones; ensembles of them."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

FanIn = int | Float[Array, ""]
"""Number of inputs of a layer; traced where lanes of different sizes share one shape."""
ALIGNMENT = 8
"""The width of an aligned layer is a multiple of this."""
TRUNCATION_STD = 0.87962566103423978
"""Standard deviation of a standard normal truncated to [−2, 2]."""


def he_truncated_normal(
    key: PRNGKeyArray, shape: tuple[int, int], fan_in: FanIn
) -> Float[Array, "..."]:
    """Weights of standard deviation sqrt(2 / fan_in), none beyond two (He et al. 2015)."""
    scale = jnp.sqrt(2.0 / fan_in) / TRUNCATION_STD
    return scale * jax.random.truncated_normal(key, -2.0, 2.0, shape)


def he_uniform(
    key: PRNGKeyArray, shape: tuple[int, ...], fan_in: int, slope: float = 0.0
) -> Float[Array, "..."]:
    """Weights between ± sqrt(6 / ((1 + a²) fan_in)), for rectifiers of slope a (He et al. 2015).

    Their standard deviation is sqrt(2 / fan_in) for a = 0.
    """
    bound = (6.0 / ((1.0 + slope**2) * fan_in)) ** 0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


class Linear(eqx.Module):
    """x W + b."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, " outputs"]:
        """One example, of any shape."""
        return jnp.ravel(x) @ self.weight + self.bias


class Lookup(eqx.Module):
    """The first layer on a one-hot observation: the weights' row of its index, plus b.

    The same function as the product with the one-hot vector. With a `side`, the indices are cells
    of a square grid of which only the lower triangle can be reached: the table has only rows for
    those cells. The index past the last one, and cells above the diagonal, add no row.
    """

    weight: Float[Array, "rows outputs"]
    bias: Float[Array, " outputs"]
    side: int | None = eqx.field(static=True, default=None)

    def __call__(self, index: Int[Array, ""]) -> Float[Array, " outputs"]:
        """One example; the index after the last stands for the all-zero observation."""
        return self.of_row(row_of(index, self.side))

    def of_row(self, row: Int[Array, ""]) -> Float[Array, " outputs"]:
        """Output for a row of the table; the number of rows stands for no row."""
        found = self.weight.at[row].get(mode="clip")
        return jnp.where(row < self.weight.shape[0], found, 0.0) + self.bias


def row_of(index: Int[Array, "*batch"], side: int | None) -> Int[Array, "*batch"]:
    """Row of an index in a table of this `side`; the number of rows for an index without one."""
    if side is None:
        return index
    down, right = index // side, index % side
    kept = (index < side**2) & (right <= down)
    return jnp.where(kept, down * (down + 1) // 2 + right, side * (side + 1) // 2)


class MLP(eqx.Module):
    """Layers with rectifiers between them, from an observation to `A` rows of outputs.

    The last layer may be wider than its outputs, by columns that stay zero: matrix products are
    faster where sides are multiples of eight. Weights with a first axis of members are an ensemble.
    """

    layers: tuple[Linear | Lookup, ...]
    rows: int = eqx.field(static=True)
    columns: int | None = eqx.field(static=True, default=None)

    @classmethod
    def init(
        cls,
        key: PRNGKeyArray,
        *,
        inputs: int,
        hidden: tuple[int, ...],
        outputs: tuple[int, int],
        one_hot: bool = False,
        fan_in: FanIn | None = None,
        triangle: bool = False,
        aligned: bool = False,
        he_slope: float | None = None,
    ) -> "MLP":
        """Draw He's truncated normal weights, or uniform ones of slope `he_slope`; biases are 0.

        `inputs` are numbers of a dense observation, or indices of a `one_hot` one, of which with
        `triangle` only the lower triangle of a square grid can be reached; `fan_in` are those
        without padding. `outputs` are actions and atoms, in an `aligned` last layer padded to a
        multiple of eight.
        """
        sizes = (inputs, *hidden, outputs[0] * outputs[1])
        keys = jax.random.split(key, len(sizes) - 1)
        layers: list[Linear | Lookup] = []
        for depth, (k, before, after) in enumerate(zip(keys, sizes[:-1], sizes[1:], strict=True)):
            first = depth == 0
            side = math.isqrt(inputs) if first and one_hot and triangle else None
            rows = before if side is None else side * (side + 1) // 2
            scale = fan_in if first and fan_in is not None else before
            if he_slope is None:
                weight = he_truncated_normal(k, (rows, after), scale)
            else:
                weight = he_uniform(k, (rows, after), before, he_slope)
            bias = jnp.zeros(after)
            layers.append(Lookup(weight, bias, side) if first and one_hot else Linear(weight, bias))
        if aligned and hidden:
            last, more = layers[-1], -sizes[-1] % ALIGNMENT
            weight = jnp.pad(last.weight, ((0, 0), (0, more)))
            layers[-1] = Linear(weight, jnp.pad(last.bias, (0, more)))
        return cls(layers=tuple(layers), rows=outputs[0], columns=outputs[1])

    def __call__(self, obs: Array) -> Float[Array, "*M A K"]:
        """Outputs for one observation, of any shape if dense; those of all members if stacked."""
        if self._stacked:
            return jax.vmap(lambda member: member(obs))(self)
        return self._rest(self.layers[0](obs))

    @property
    def _stacked(self) -> bool:
        return self.layers[0].bias.ndim > 1

    def tabulate(self) -> "MLP":
        """The same function of indices as a single table, for a network that stays fixed: a prior.

        A look-up costs next to nothing. Networks of dense observations are returned as they are.
        """
        first = self.layers[0]
        if not isinstance(first, Lookup):
            return self
        if self._stacked:
            return jax.vmap(MLP.tabulate)(self)
        rows = jnp.arange(first.weight.shape[0] + 1)
        outputs = jax.vmap(lambda row: self._rest(first.of_row(row)))(rows).reshape(len(rows), -1)
        nothing = outputs[-1]  # of the row that stands for the all-zero observation
        table = Lookup(weight=outputs[:-1] - nothing[None], bias=nothing, side=first.side)
        return MLP(layers=(table,), rows=self.rows)

    def _rest(self, x: Float[Array, " H"]) -> Float[Array, "A K"]:
        """All layers but the first, and the outputs as rows without padding."""
        for layer in self.layers[1:]:
            x = layer(jax.nn.relu(x))
        if self.columns is not None:
            x = x[: self.rows * self.columns]
        return x.reshape(self.rows, -1)


Ensemble = MLP
"""M networks of one shape, their weights stacked, so that all run as one batched product."""


def add_prior(
    outputs: Float[Array, "*M A K"],
    prior: Callable[[Array], Array] | None,
    obs: Array,
    scale: Float[Array, ""] | float,
    members: tuple[int, ...] | None = None,
) -> Float[Array, "*M A K"]:
    """Outputs plus the scaled outputs of prior networks: of all members, or of the given ones.

    A randomized prior function (Osband et al. 2018) is a fixed random network of the same
    architecture; it is added to the logits of a categorical model, before the softmax. Members
    without a prior have no network for it.
    """
    if prior is None:
        return outputs
    added = scale * jax.lax.stop_gradient(prior(obs))
    if members is None or members == tuple(range(outputs.shape[0])):
        return outputs + added
    return outputs.at[jnp.array(members)].add(added)


def select_action(theta: Float[Array, "*M A K"], action: Int[Array, ""]) -> Float[Array, "*M K"]:
    """Outputs of one action, by a masked sum, whose gradient is cheaper than a scatter."""
    chosen = jnp.arange(theta.shape[-2]) == action
    chosen = chosen.reshape(*(1,) * (theta.ndim - 2), -1, 1)
    return jnp.sum(jnp.where(chosen, theta, 0.0), axis=-2)
