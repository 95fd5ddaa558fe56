"""A world of two pictures, whose values are known."""

import jax
import jax.numpy as jnp
import numpy as np

from winkel.agents import Spec
from winkel.agents.pe_dqn import PEDQN, Config, Hyper
from winkel.training.steps import start_clock
from winkel.types import Batch, Image, Transition

GAMMA = 0.9
SIDE = 8
VALUES = np.array([[GAMMA, 0.5], [1.0, -1.0]])
FRAMES = np.zeros((3, 1, SIDE, SIDE), np.uint8)
FRAMES[0, ..., : SIDE // 2] = 255
FRAMES[1, ..., SIDE // 2 :] = 255


def every_transition():
    """In picture 0, action 0 leads to picture 1 for nothing and action 1 ends with 0.5.

    In picture 1, action 0 ends with 1 and action 1 with −1. The end is black.
    """
    return Transition(
        obs=jnp.asarray(FRAMES[[0, 0, 1, 1]]),
        action=jnp.array([0, 1, 0, 1]),
        reward=jnp.array([0.0, 0.5, 1.0, -1.0]),
        discount=jnp.array([1.0, 0.0, 0.0, 0.0]),
        next_obs=jnp.asarray(FRAMES[[1, 2, 2, 2]]),
        boundary=jnp.array([False, True, True, True]),
        extras=(),
    )


def test_the_values_of_two_pictures_are_learned(monkeypatch):
    """Within 0.1 after 500 updates with the settings of the large experiment, on two blocks."""
    monkeypatch.setattr("winkel.networks.impala.CHANNELS", (4, 4))
    config = Config(
        hidden=(16,), num_atoms=11, batch_size=4, channels=1, target_period=2, clip_norm=10.0,
        adam_epsilon=5e-3, huber_width=1.0, normalise_intrinsic=True, average_bonus=True,
    )  # fmt: skip
    hyper = Hyper(learning_rate=3e-3, gamma=GAMMA, prior_scale=1.0, z_min=-1.5, z_max=1.5, beta=0.0)
    agent = PEDQN(config, Spec(observation=Image((SIDE, SIDE), 1), num_actions=2))
    batch = Batch(every_transition(), jnp.ones(4), jnp.arange(4))

    @jax.jit
    def learned(key):
        def step(learner, count):
            clock = start_clock()._replace(updates=count)
            return agent.update(learner, batch, clock, hyper, key)[0], None

        learner, _ = jax.lax.scan(step, agent.init(key, hyper), jnp.arange(500))
        return jax.vmap(lambda obs: agent.estimates(learner, obs, hyper).value)(FRAMES[:2])

    np.testing.assert_allclose(learned(jax.random.key(0)), VALUES, atol=0.1)
