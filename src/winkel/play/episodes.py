"""Episodes of a trained agent, step by step."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from winkel.errors import InputError, require_integer
from winkel.play.environment import PlayedEnvironment
from winkel.play.observations import newest_frame, to_arrays
from winkel.runs.record import Arrays, RunRecord, encode_observation
from winkel.runs.train import load
from winkel.types import Clock

MAX_STEPS = 10_000
"""Steps after which an episode is cut, by default: a greedy policy may stand still forever."""
RUNNING, ENDED, CUT = 0, 1, 2
"""Values of `state`."""


def load_one(path: Path, seed: int | None = None, mnist_dir: Path | None = None) -> RunRecord:
    """Load the run of a seed (the first by default) under a folder; its state is on the device."""
    run = load(path, mnist_dir).of(seed)
    learner, clock = jax.device_put((run.learner, run.clock))
    return dataclasses.replace(run, learner=learner, clock=clock)


def observe_after(run: RunRecord, env: PlayedEnvironment, steps: int) -> np.ndarray:
    """Return the observation after so many greedy steps from the start of an episode."""
    obs, policy = env.reset(), run.policy()
    for step in range(steps):
        result = env.step(policy(obs))
        if result.boundary:
            raise InputError(
                f"need fewer than {step + 1} steps, at which the greedy episode ends, got {steps}"
            )
        obs = result.obs
    return obs


def play(
    run: RunRecord,
    env: PlayedEnvironment,
    *,
    episodes: int = 1,
    clock: Clock | None = None,
    seed: int = 0,
    every: int = 1,
    max_steps: int = MAX_STEPS,
    progress: Callable[[int], None] = lambda _: None,
) -> Arrays:
    """Play episodes and return arrays over moments: each observation acted on, and each last one.

    Args:
        run: a run that is loaded with its agent.
        env: an environment of its task.
        episodes: number of episodes.
        clock: explore as the agent does at this time of training; act greedily without one.
        seed: of the random numbers of exploration.
        every: keep a picture of every so many moments of an episode, and of its last.
        max_steps: of an episode, which is cut then.
        progress: called with the number of steps so far.

    Returns:
        `value` and `bonus` [moments, actions] (NaN at last ones), `action` (-1 at last ones),
        `return` so far, `episode` from 1, `step` from 0, `state` (`RUNNING`, `ENDED` or `CUT`);
        `shown`, the moments that have a picture, and those as `pictures` or `numbers`; `actions`,
        their names, if the task has names.
    """
    for name, count in (("episodes", episodes), ("every", every), ("max_steps", max_steps)):
        require_integer(name, count, at_least=1)
    explore = None if clock is None else _explorer(run, clock, seed)
    task, rows = run.task, dict[str, list[Any]]()
    shown: list[int] = []
    kept: list[np.ndarray] = []

    def add(obs: np.ndarray, moment: dict[str, Any]) -> None:
        if moment["step"] % every == 0 or moment["state"] != RUNNING:
            shown.append(len(rows.get("step", ())))
            kept.append(newest_frame(task.env.observation, obs))
        for name, cell in moment.items():
            rows.setdefault(name, []).append(cell)

    obs, played = env.reset(), 0
    for episode in range(1, episodes + 1):
        moment: dict[str, Any] = {"return": 0.0, "episode": episode, "step": 0, "state": RUNNING}
        while moment["state"] == RUNNING:
            estimates = run.estimates(obs)
            action = int(np.argmax(estimates.value))
            if explore is not None:
                action = explore(obs, moment["step"] == 0)
            decided = {"value": estimates.value, "bonus": estimates.bonus, "action": action}
            add(obs, moment | decided)
            result = env.step(action)
            obs, last, played = result.obs, result.next_obs, played + 1
            moment["return"] += float(result.reward)
            moment["step"] += 1
            if result.boundary:
                moment["state"] = ENDED
            elif moment["step"] >= max_steps:
                moment["state"] = CUT
            progress(played)
        nothing = np.full_like(estimates.value, np.nan)
        add(last, moment | {"value": nothing, "bonus": nothing, "action": -1})
        if moment["state"] == CUT and episode < episodes:
            obs = env.reset()
    arrays = {name: np.asarray(cells) for name, cells in rows.items()}
    arrays |= {"actions": np.array(task.action_names)} if task.action_names else {}
    inputs = None if task.pack is None else task.inputs
    pictures = to_arrays(task.env.observation, kept, task.setting.get("size"), inputs)
    return arrays | {"shown": np.asarray(shown)} | pictures


def _explorer(run: RunRecord, clock: Clock, seed: int) -> Callable[[np.ndarray, bool], int]:
    """Return a function that acts as the agent does when it trains, at a fixed time of training."""
    key_actor, key_act = (jax.random.fold_in(jax.random.key(seed), use) for use in (1, 2))
    agent: Any = run.agent
    if run.task.available is not None:
        available = jnp.asarray(run.task.available)
        agent = dataclasses.replace(agent, spec=agent.spec._replace(available=available))
    actor, time = agent.init_actor(key_actor), 0

    @jax.jit
    def act(learner: Any, actor: Any, obs: Array, first: Array, key: PRNGKeyArray) -> Any:
        return agent.act(learner, actor, obs, first, clock, run.hyper, key)

    def explore(obs: np.ndarray, first: bool) -> int:
        nonlocal actor, time
        time += 1
        array = jnp.asarray(encode_observation(agent.spec.observation, obs))
        key = jax.random.fold_in(key_act, time)
        decision, actor = act(run.learner, actor, array, jnp.asarray(first), key)
        return int(decision.action)

    return explore
