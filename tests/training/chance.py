"""Small runs in lanes, and agents of nothing but chance."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from winkel.agents.base import Agent
from winkel.envs.registry import make
from winkel.runs.spec import configure
from winkel.training.compaction import Compaction
from winkel.training.compiled import CompiledWorld
from winkel.training.lanes import Lanes, Report
from winkel.training.programs import Arrays
from winkel.training.steps import Horizon, Plan
from winkel.types import Atoms, Decision, Estimates, Update

TASK = make("deep_sea:size=5")
TINY = {"hidden": (16,), "num_atoms": 5, "batch_size": 8, "burn_in": 8, "capacity": 64}
AGENT, HYPER = configure("pe_dqn", TINY, TASK)
CHUNK, LENGTH, BURN_IN = 16, 5, 8
"""Chunks of 16 steps after 8 end in the middle of episodes of 5."""


class Course(NamedTuple):
    """One run from its first chunk to its last."""

    reports: list[Report]
    states: list[Any]

    @property
    def episodes(self) -> Arrays:
        parts = [report.episodes for report in self.reports if report.episodes]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def plan(seed=0, episodes=24, saved=None, stop=None, steps=None, **hyper):
    limits = {"episodes": episodes, "steps": steps}
    horizon = Horizon(**{name: limit for name, limit in limits.items() if limit is not None})
    changed = HYPER._replace(**hyper)
    return Plan(TASK.params, changed, horizon, seed, stop=stop, saved=saved)


@dataclass(frozen=True)
class Dice(Agent):
    """An agent of nothing but chance, which shows its draws."""

    config: Any = AGENT.config
    spec: Any = AGENT.spec

    def init(self, key, hyper):
        return jax.random.uniform(key)

    def init_actor(self, key):
        return jax.random.uniform(key)

    def act(self, learner, actor, obs, first, clock, hyper, key):
        return Decision(action=jax.random.randint(key, (), 0, 2)), jax.random.uniform(key)

    def update(self, learner, batch, clock, hyper, key):
        draw = jax.random.uniform(key)
        metrics = {"loss": draw, "index": jnp.mean(batch.indices.astype(jnp.float32))}
        return draw, Update(priorities=jnp.zeros(len(batch.indices)), metrics=metrics)

    def estimates(self, learner, obs, hyper):
        zero = jnp.zeros(2)
        atoms = Atoms(locations=jnp.zeros((1, 2, 1)), probs=jnp.ones((1, 2, 1)))
        return Estimates(value=zero, members=atoms, disagreement=zero, bonus=zero)

    def member_names(self):
        return ("chance",)


def make_lanes(plans, num_lanes, agent=AGENT, chunk_steps=CHUNK, **compaction):
    rearrange = Compaction(**compaction).rearrange if compaction else None
    return Lanes(agent, CompiledWorld(TASK.env), plans, num_lanes, chunk_steps, rearrange)


def courses(plans, num_lanes, agent=AGENT, chunk_steps=CHUNK):
    lanes = make_lanes(plans, num_lanes, agent, chunk_steps)
    made = [Course([], []) for _ in plans]
    while reports := lanes.advance():
        for report in reports:
            made[report.run].reports.append(report)
            made[report.run].states.append(lanes.state(report.run))
            if report.finished or report.failure:
                lanes.release(report.run)
    return made


@dataclass(frozen=True)
class Freezer(Dice):
    """Its bonus is frozen after a share `beta_decay` of the horizon; then the loss is −1."""

    frozen: bool = False

    def update(self, learner, batch, clock, hyper, key):
        learner, update = super().update(learner, batch, clock, hyper, key)
        loss = jnp.asarray(-1.0) if self.frozen else update.metrics["loss"]
        return learner, update._replace(metrics={"loss": loss})

    def can_freeze_bonus(self, progress, hyper):
        return progress >= hyper.beta_decay

    def with_frozen_bonus(self):
        return replace(self, frozen=True)
