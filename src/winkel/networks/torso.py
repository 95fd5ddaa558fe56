"""Multi-layer perceptrons on dense observations and on indices of one-hot ones."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

FanIn = int | Float[Array, ""]
"""Numbers that a layer really gets; traced where lanes of different sizes share one shape."""
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
    """

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    @classmethod
    def init(
        cls, key: PRNGKeyArray, inputs: int, outputs: int, fan_in: FanIn | None = None
    ) -> "Lookup":
        """He's truncated normal weights with the fan-in of the dense product."""
        weight = he_truncated_normal(key, (inputs, outputs), inputs if fan_in is None else fan_in)
        return cls(weight=weight, bias=jnp.zeros(outputs))

    def __call__(self, index: Int[Array, ""]) -> Float[Array, " outputs"]:
        """One example; the index `inputs` stands for the all-zero observation."""
        row = self.weight.at[index].get(mode="clip")
        return jnp.where(index < self.weight.shape[0], row, 0.0) + self.bias


class MLP(eqx.Module):
    """Layers with rectifiers between them, from an observation to `A` rows of outputs."""

    layers: tuple[Linear | Lookup, ...]
    rows: int = eqx.field(static=True)

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
    ) -> "MLP":
        """A network of fresh weights; `outputs` is (rows, columns), actions and atoms.

        `fan_in` is the true number of inputs where observations are padded.
        """
        sizes = (inputs, *hidden, outputs[0] * outputs[1])
        keys = jax.random.split(key, len(sizes) - 1)
        kinds = [Lookup if one_hot and depth == 0 else Linear for depth in range(len(keys))]
        return cls(
            layers=tuple(
                kind.init(k, sizes[depth], sizes[depth + 1], fan_in if depth == 0 else None)
                for depth, (kind, k) in enumerate(zip(kinds, keys, strict=True))
            ),
            rows=outputs[0],
        )

    def __call__(self, obs: Array) -> Float[Array, "A K"]:
        """Outputs for one observation, of any shape if dense."""
        first, *rest = self.layers
        x = first(obs) if isinstance(first, Lookup) else first(jnp.ravel(obs))
        for layer in rest:
            x = layer(jax.nn.relu(x))
        return x.reshape(self.rows, -1)
