"""Multi-layer perceptrons on dense observations and on indices of one-hot ones."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

FanIn = int | Float[Array, ""]
"""Numbers that a layer really gets; traced where lanes of different sizes share one shape."""
ALIGNED = 8
"""Width of an aligned layer is a multiple of this."""
TRUNCATION_STD = 0.87962566103423978
"""Standard deviation of a standard normal truncated to [−2, 2]."""


def he_truncated_normal(
    key: PRNGKeyArray, shape: tuple[int, int], fan_in: FanIn
) -> Float[Array, "..."]:
    """Weights of standard deviation sqrt(2 / fan_in), none beyond two (He et al. 2015)."""
    scale = jnp.sqrt(2.0 / fan_in) / TRUNCATION_STD
    return scale * jax.random.truncated_normal(key, -2.0, 2.0, shape)


class Linear(eqx.Module):
    """x W + b, the bias starting at 0."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    @classmethod
    def init(
        cls, key: PRNGKeyArray, inputs: int, outputs: int, fan_in: FanIn | None = None
    ) -> "Linear":
        """He's truncated normal weights; `fan_in` is less than `inputs` where those are padded."""
        weight = he_truncated_normal(key, (inputs, outputs), inputs if fan_in is None else fan_in)
        return cls(weight=weight, bias=jnp.zeros(outputs))

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """One example."""
        return x @ self.weight + self.bias


class Lookup(eqx.Module):
    """The first layer on a one-hot observation: the row of its index, and nothing for no index.

    The same function as the product with the one-hot vector, initialised with the same fan-in.
    Where only the lower triangle of a square grid with the given side is ever seen, no other rows
    are kept; cells above the diagonal then count as no index.
    """

    weight: Float[Array, "rows outputs"]
    bias: Float[Array, " outputs"]
    side: int | None = eqx.field(static=True, default=None)

    @classmethod
    def init(
        cls,
        key: PRNGKeyArray,
        inputs: int,
        outputs: int,
        fan_in: FanIn | None = None,
        *,
        triangle: bool = False,
    ) -> "Lookup":
        """He's truncated normal weights with the fan-in of the dense product."""
        side = math.isqrt(inputs) if triangle else None
        rows = inputs if side is None else side * (side + 1) // 2
        weight = he_truncated_normal(key, (rows, outputs), inputs if fan_in is None else fan_in)
        return cls(weight=weight, bias=jnp.zeros(outputs), side=side)

    def __call__(self, index: Int[Array, ""]) -> Float[Array, " outputs"]:
        """One example; the index `inputs` stands for the all-zero observation."""
        side = self.side
        if side is None:
            return self.of_row(index)
        return self.of_row(row_of(index, side**2, triangle=True))

    def of_row(self, row: Int[Array, ""]) -> Float[Array, " outputs"]:
        """As for an index whose row is known."""
        found = self.weight.at[row].get(mode="clip")
        return jnp.where(row < self.weight.shape[0], found, 0.0) + self.bias


def row_of(index: Int[Array, "*batch"], cells: int, triangle: bool) -> Int[Array, "*batch"]:
    """The row of a table that holds an index; the number of rows for those that have none."""
    if not triangle:
        return index
    side = math.isqrt(cells)
    down, right = index // side, index % side
    kept = (index < cells) & (right <= down)
    return jnp.where(kept, down * (down + 1) // 2 + right, side * (side + 1) // 2)


class MLP(eqx.Module):
    """Layers with rectifiers between them, from an observation to `A` rows of outputs.

    The last layer may be wider than its outputs, by columns that stay zero: matrix products are
    faster where sides are multiples of eight.
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
        one_hot: bool,
        hidden: tuple[int, ...],
        outputs: tuple[int, int],
        fan_in: FanIn | None = None,
        triangle: bool = False,
        aligned: bool = False,
    ) -> "MLP":
        """A network of fresh weights; `outputs` is (rows, columns), actions and atoms.

        `fan_in` is the true number of inputs where observations are padded; `triangle` tells that
        only the lower triangle of a square grid of indices is ever seen; `aligned` asks for a last
        layer whose width is a multiple of eight.
        """
        sizes = (inputs, *hidden, outputs[0] * outputs[1])
        keys = jax.random.split(key, len(sizes) - 1)
        layers: list[Linear | Lookup] = []
        for depth, k in enumerate(keys):
            ends = sizes[depth], sizes[depth + 1]
            first_fan_in = fan_in if depth == 0 else None
            if one_hot and depth == 0:
                layers.append(Lookup.init(k, *ends, first_fan_in, triangle=triangle))
            else:
                layers.append(Linear.init(k, *ends, first_fan_in))
        if aligned and hidden:
            layers[-1] = _padded(layers[-1])
        return cls(layers=tuple(layers), rows=outputs[0], columns=outputs[1])

    def __call__(self, obs: Array) -> Float[Array, "A K"]:
        """Outputs for one observation, of any shape if dense."""
        first = self.layers[0]
        return self._rest(first(obs) if isinstance(first, Lookup) else first(jnp.ravel(obs)))

    def of_row(self, row: Int[Array, ""]) -> Float[Array, "A K"]:
        """Outputs for a row of the first layer's table."""
        first = self.layers[0]
        assert isinstance(first, Lookup)
        return self._rest(first.of_row(row))

    def _rest(self, x: Float[Array, " H"]) -> Float[Array, "A K"]:
        for layer in self.layers[1:]:
            x = layer(jax.nn.relu(x))
        if self.columns is not None:
            x = x[: self.rows * self.columns]
        return x.reshape(self.rows, -1)


def _padded(layer: Linear | Lookup) -> Linear:
    outputs = layer.weight.shape[1]
    more = -outputs % ALIGNED
    return Linear(
        weight=jnp.pad(layer.weight, ((0, 0), (0, more))), bias=jnp.pad(layer.bias, (0, more))
    )
