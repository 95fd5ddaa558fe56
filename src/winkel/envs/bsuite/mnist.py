"""Classify a digit of MNIST's training set: one image, one action, ±1."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int8, PRNGKeyArray

from winkel.envs.base import Dense, Environment, Outcome, outcome
from winkel.types import AnyArray

NUM_CLASSES = 10
# Division by a constant is compiled to a product, which is off by an ulp in half of the cases.
PIXELS = np.arange(-128, 128).astype(np.float32) / 255


class DigitState(NamedTuple):
    """Which image is shown, and whether it has been answered."""

    image: Int[Array, ""]
    answered: Bool[Array, ""]


class Mnist(Environment):
    """A contextual bandit. The images belong to the environment, not to a setting of it.

    The original reads its pixels as *signed* bytes, so that values above 127 are negative; `images`
    are those.
    """

    images: Int8[AnyArray, "N 28 28"]
    labels: Int[AnyArray, "N"]

    @property
    def observation(self) -> Dense:
        """Signed pixels over 255, in [−0.502, 0.498]; zeros after the answer."""
        return Dense((28, 28))

    @property
    def num_actions(self) -> int:
        """The digits."""
        return NUM_CLASSES

    def draw_start(self, key: PRNGKeyArray, params: None) -> Int[Array, ""]:
        """An image, with replacement."""
        return jax.random.randint(key, (), 0, len(self.labels))

    def start(self, draws: Int[Array, ""], episode: Int[Array, ""], params: None) -> DigitState:
        """Shown and not yet answered."""
        return DigitState(image=draws.astype(jnp.int32), answered=jnp.zeros((), bool))

    def draw(self, key: PRNGKeyArray, params: None) -> None:
        """Nothing more is random."""

    def transition(
        self, state: DigitState, action: Int[Array, ""], draws: None, params: None
    ) -> tuple[DigitState, Outcome]:
        """Right or wrong, and the end."""
        right = action == jnp.asarray(self.labels)[state.image]
        reward = jnp.where(right, 1.0, -1.0)
        ended = jnp.ones((), bool)
        return state._replace(answered=ended), outcome(reward, ended, wrong=~right)

    def observe(self, state: DigitState, params: None) -> Float[Array, "28 28"]:
        """The image, or nothing."""
        pixels = jnp.asarray(self.images)[state.image].astype(jnp.int32)
        return jnp.where(state.answered, 0.0, jnp.asarray(PIXELS)[pixels + 128])


def signed(images: AnyArray) -> Int8[np.ndarray, "N 28 28"]:
    """Unsigned bytes as the original (mis)reads them."""
    return np.asarray(images, np.uint8).view(np.int8)
