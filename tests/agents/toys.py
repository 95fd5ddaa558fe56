"""Networks whose outputs are written down, and transitions between them, for tests of agents."""

from functools import partial

import jax
import jax.numpy as jnp

from winkel.agents import Spec
from winkel.agents.learning import Learner, init_optimizer
from winkel.networks import MLP
from winkel.networks.mlp import Linear
from winkel.types import Batch, Clock, Dense, Transition

OBS = jnp.ones(1)
"""The one observation."""
SPEC = Spec(Dense((1,)), num_actions=2)
KEY = jax.random.key(0)


def constant(outputs):
    """A network with the same outputs [A, K] for every observation."""
    outputs = jnp.array(outputs, float)
    layer = Linear(weight=jnp.zeros((1, outputs.size)), bias=outputs.ravel())
    return MLP(layers=(layer,), rows=len(outputs))


def constants(values):
    """An ensemble of such networks, from values [M, A]."""
    return jax.vmap(constant)(jnp.array(values, float)[..., None])


def learner_of(params, target=None, prior=None):
    return Learner(
        params=params,
        target_params=params if target is None else target,
        prior=prior,
        opt_state=init_optimizer(params),
    )


def clock_at(progress=0.0, updates=0):
    zero = jnp.array(0)
    return Clock(zero, zero, jnp.array(updates), jnp.array(progress))


def batch_of(reward=0.5, discount=1.0, action=0, masks=None):
    """One transition or, with masks, as many as there are."""
    count = 1 if masks is None else len(masks)
    transitions = Transition(
        obs=jnp.ones((count, 1)),
        action=jnp.full(count, action),
        reward=jnp.full(count, reward),
        discount=jnp.full(count, discount),
        next_obs=jnp.ones((count, 1)),
        boundary=jnp.zeros(count, bool),
        extras=() if masks is None else jnp.array(masks),
    )
    return Batch(transitions, weights=jnp.ones(count), indices=jnp.arange(count))


@partial(jax.jit, static_argnums=0)
def _update(agent, learner, batch, clock, hyper):
    return agent.update(learner, batch, clock, hyper, KEY)


@partial(jax.jit, static_argnums=0)
def _act(agent, learner, clock, hyper):
    return agent.act(learner, (), OBS, jnp.array(False), clock, hyper, KEY)[0]


def update(agent, learner, batch, hyper, progress=0.0):
    return _update(agent, learner, batch, clock_at(progress), hyper)


def act(agent, learner, hyper, progress=0.0):
    """The action for the one observation."""
    return int(_act(agent, learner, clock_at(progress), hyper).action)


def first_gradient(network):
    """The gradient in the biases, from Adam's first moment after one step, a tenth of it."""
    return network.layers[0].bias / 0.1
