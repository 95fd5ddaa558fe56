"""Classify a digit of MNIST's training set: one image, one action, ±1."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int8, PRNGKeyArray

from winkel.envs.base import Environment, Experiment, Family, Setting, outcome
from winkel.envs.bsuite.common import perturbed, regret_of_wrong, reward_once
from winkel.envs.bsuite.mnist_data import load_mnist
from winkel.types import AnyArray, Dense, EnvStep

NUM_CLASSES = 10
# A table, because XLA compiles division by a constant to a product, which rounds differently.
PIXELS = np.arange(-128, 128).astype(np.float32) / 255


class DigitState(NamedTuple):
    """Index of the image, and whether the agent has answered."""

    image: Int[Array, ""]
    answered: Bool[Array, ""]


class Mnist(Environment):
    """A contextual bandit. All settings share the images, which are leaves of the environment.

    The original reads pixels as *signed* bytes, so that values above 127 are negative. `images`
    are signed, too.
    """

    images: Int8[AnyArray, "N 28 28"]
    labels: Int[AnyArray, "N"]

    observation = Dense((28, 28))
    """Signed pixels over 255, in [−0.502, 0.498]; zeros after the answer."""
    num_actions = NUM_CLASSES
    """The digits."""

    def draw_start(self, key: PRNGKeyArray, params: None) -> Int[Array, ""]:
        return jax.random.randint(key, (), 0, len(self.labels))

    def start(self, draws: Int[Array, ""], episode: Int[Array, ""], params: None) -> DigitState:
        return DigitState(image=draws.astype(jnp.int32), answered=jnp.zeros((), bool))

    def transition(
        self, state: DigitState, action: Int[Array, ""], draws: None, params: None
    ) -> tuple[DigitState, EnvStep]:
        """Pay 1 for the label and −1 for another digit, and end."""
        right = action == jnp.asarray(self.labels)[state.image]
        reward = jnp.where(right, 1.0, -1.0)
        ended = jnp.ones((), bool)
        return state._replace(answered=ended), outcome(reward, ended, wrong=~right)

    def observe(self, state: DigitState, params: None) -> Float[Array, "28 28"]:
        """Return the image, or zeros after the answer."""
        pixels = jnp.asarray(self.images)[state.image].astype(jnp.int32)
        return jnp.where(state.answered, 0.0, jnp.asarray(PIXELS)[pixels + 128])


def signed(images: AnyArray) -> Int8[np.ndarray, "N 28 28"]:
    """Read unsigned bytes as signed ones, as the original does."""
    return np.asarray(images, np.uint8).view(np.int8)


def _make_env(settings: Sequence[Setting]) -> Mnist:
    images, labels = load_mnist()
    return Mnist(images=signed(images), labels=labels.astype(np.int32))


_TAGS = ("basic", "generalization")
FAMILY = perturbed(
    Family(
        name="mnist",
        experiments=(Experiment("mnist", "mnist", 10_000, _TAGS, [{}] * 20),),
        defaults={},
        make_env=_make_env,
        returns=reward_once(-1.0, 1.0),
        longest_episode=lambda _: 1,
        facts=("wrong",),
        info=regret_of_wrong,
    ),
    "generalization",
)
