"""What variants of PE-DQN learn from: replay with traced exponents, and several updates a step."""

# isort: skip_file
# The imports are those of commit aeff97a, which these scripts run on.

from typing import Any

import jax
import jax.numpy as jnp
import variants

from winkel.replay import prioritised
from winkel.training import steps
from winkel.types import Batch

FLOOR = 1e-6
"""Added to a loss before it becomes a priority."""


def install() -> None:
    """Let the loop on the accelerator learn so, where the agent is a variant."""
    original = steps.learn

    def learn(agent: Any, replay: Any, run: Any, hyper: Any, keys: Any) -> Any:
        if not isinstance(agent, variants.Variant):
            return original(agent, replay, run, hyper, keys)
        return learned(agent, replay.streams, run, hyper, keys)

    steps.learn = learn


def learned(agent: Any, streams: Any, run: Any, hyper: Any, keys: Any) -> Any:
    """`steps.learn` with what `Hyper` says of replay, `Config.updates` times."""
    size, update = agent.config.batch_size, None
    number = jnp.arange(size)
    for turn in range(agent.config.updates):
        key_sample, key_update = (jax.random.fold_in(key, turn) for key in keys)
        stored = run.replay
        drawn = prioritised.draw(stored.priorities, size, key_sample)
        recent = (stored.cursor[0] - 1 - number) % streams.slots
        usable = (number < hyper.newest) & (prioritised.leaves(stored.priorities, recent) > 0)
        indices = jnp.where(usable, recent, drawn)
        transitions, decay = streams.at(stored, indices, 1.0)
        drawn_with = prioritised.leaves(stored.priorities, indices)
        batch = batch_of(transitions, drawn_with, indices, decay, hyper)
        learner, update = agent.update(run.learner, batch, run.clock, hyper, key_update)
        worth = (jnp.abs(update.priorities) + FLOOR) ** hyper.alpha
        clock = run.clock._replace(updates=run.clock.updates + 1)
        stored = forgotten(streams.reprioritise(stored, batch, worth), streams.slots, hyper)
        run = run._replace(learner=learner, replay=stored, clock=clock)
    return run, update


def forgotten(stored: Any, slots: int, hyper: Any) -> Any:
    """Nothing is drawn any more that is older than `Hyper.memory` slots of the ring.

    The cursor moves by at most two slots a step, over what is to be forgotten next.
    """
    old = (stored.cursor[0] - jnp.asarray(hyper.memory, jnp.int32) - jnp.arange(2)) % slots
    tree = prioritised.put(stored.priorities, old, jnp.zeros(2))
    return stored._replace(priorities=tree)


def batch_of(transitions: Any, priorities: Any, indices: Any, decay: Any, hyper: Any) -> Any:
    """A batch with importance weights of a constant exponent."""
    weights = prioritised.importance_weights(priorities, hyper.importance)
    return Batch(transitions=transitions, weights=weights, indices=indices, decay=decay)
