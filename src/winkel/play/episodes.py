"""Episodes of a trained agent, step by step."""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from winkel.envs.base import Task
from winkel.envs.registry import remake
from winkel.errors import LARGEST_SEED, InputError, require_integer
from winkel.numpy_policy import Policy
from winkel.runs.record import Arrays, RunRecord, encode_observation
from winkel.runs.results import load
from winkel.simulators.base import Notice
from winkel.simulators.pool import TIMEOUT, Pool
from winkel.training.simulated import stack_frames
from winkel.types import Clock, EnvStep, Image, Observation, OneHot, Planes

MAX_STEPS = 10_000
"""Steps after which an episode is cut, by default: a greedy policy may stand still forever."""
RUNNING, ENDED, CUT = 0, 1, 2
"""Values of `state`."""
MAX_NUMBERS = 16
"""Up to so many numbers of an observation are shown as numbers, or in one row of a picture."""


PlayedEnvironment = tuple[Callable[[], np.ndarray], Callable[[int], EnvStep]]
"""`reset` and `step` of one environment, compiled or a simulator, stepped from Python.

Observations are what the agent gets: a stack of frames if the simulator emits frames. If a step
ends an episode, its `obs` is the first of the next one.
"""


@contextlib.contextmanager
def open_environment(
    task: Any, seed: int = 0, notice: Notice = lambda _: None, timeout: float = TIMEOUT
) -> Iterator[PlayedEnvironment]:
    """Start one environment of a task; the seed decides all of its episodes."""
    require_integer("an environment's seed", seed, at_least=0, at_most=LARGEST_SEED)
    if task.compiled:
        yield _open_compiled(task, seed)
    else:
        limited = dataclasses.replace(task, timeout=timeout)
        with limited.pool([seed], notice) as pool:
            yield _open_simulator(pool, task.env.observation)


def _open_compiled(task: Task, seed: int) -> PlayedEnvironment:
    keys = (jax.random.fold_in(jax.random.key(seed), number) for number in itertools.count(1))
    first, following, state = jax.jit(task.env.reset), jax.jit(task.env.step), None

    def reset() -> np.ndarray:
        nonlocal state
        state, obs = first(next(keys), task.params)
        return np.asarray(obs)

    def step(action: int) -> EnvStep:
        nonlocal state
        state, result = following(next(keys), state, action, task.params)
        return jax.device_get(result)

    return reset, step


def _open_simulator(pool: Pool, observation: Observation) -> PlayedEnvironment:
    current: Any = None

    def stack(frames: np.ndarray, begun: bool) -> Array:
        return stack_frames(observation, current, jnp.asarray(frames), jnp.asarray([begun]))

    def reset() -> np.ndarray:
        nonlocal current
        current = stack(pool.reset(), True)
        return np.asarray(current[0])

    def step(action: int) -> EnvStep:
        nonlocal current
        batch = pool.step(np.array([action]))
        if batch.lost[0]:
            raise InputError("the simulator died in the middle of an episode; play again")
        last = np.asarray(stack(batch.next_obs, False)[0])
        current = stack(batch.obs, bool(batch.boundary[0]))
        reward, discount, boundary = batch.reward[0], batch.discount[0], batch.boundary[0]
        return EnvStep(reward, discount, last, np.asarray(current[0]), boundary, {})

    return reset, step


def load_one(path: Path, seed: int | None = None, env: str | None = None) -> RunRecord:
    """Load the run of a seed (the first by default) under a folder; its state is on the device."""
    run = load(path, env).of(seed)
    learner, clock = jax.device_put((run.learner, run.clock))
    return dataclasses.replace(run, learner=learner, clock=clock)


def observe_after(run: RunRecord, env: PlayedEnvironment, steps: int) -> np.ndarray:
    """Return the observation after so many greedy steps from the start of an episode."""
    (reset, step), policy = env, run.policy()
    obs = reset()
    for number in range(1, steps + 1):
        result = step(policy(obs))
        if result.boundary:
            raise InputError(
                f"need fewer than {number} steps, at which the greedy episode ends, got {steps}"
            )
        obs = result.obs
    return obs


def play(
    run: RunRecord | Policy,
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

    The agent explores as at the time `clock` of training, with random numbers of `seed`; without a
    clock it acts greedily. Every so many moments of an episode have a picture, and its last.

    Arrays are `value` and `bonus` [moments, actions] (NaN at last ones), `action` (-1 at last
    ones), `return` so far, `episode` from 1, `step` from 0, `state` (`RUNNING`, `ENDED` or `CUT`);
    `shown`, the moments that have a picture, and those as `pictures` or `numbers`; `actions`,
    their names, if the task has names.
    """
    task, explore = task_of(run), None
    if clock is not None and isinstance(run, RunRecord):
        explore = _explorer(run, clock, seed)
    moments: list[dict[str, Any]] = []
    shown: dict[int, np.ndarray] = {}

    def add(obs: np.ndarray, moment: dict[str, Any]) -> None:
        if moment["step"] % every == 0 or moment["state"] != RUNNING:
            shown[len(moments)] = newest_frame(task.env.observation, obs)
        moments.append(moment)

    (reset, step), played = env, 0
    obs = reset()
    for episode in range(1, episodes + 1):
        moment: dict[str, Any] = {"return": 0.0, "episode": episode, "step": 0, "state": RUNNING}
        while moment["state"] == RUNNING:
            estimates: Any = run.estimates(obs) if isinstance(run, RunRecord) else None
            value = estimates.value if estimates else run.values(obs)
            bonus = estimates.bonus if estimates else np.full_like(value, np.nan)
            action = explore(obs, moment["step"] == 0) if explore else int(np.argmax(value))
            add(obs, moment | {"value": value, "bonus": bonus, "action": action})
            result = step(action)
            obs, last, played = result.obs, result.next_obs, played + 1
            moment["return"] += float(result.reward)
            moment["step"] += 1
            if result.boundary:
                moment["state"] = ENDED
            elif moment["step"] >= max_steps:
                moment["state"] = CUT
            progress(played)
        nothing = np.full_like(value, np.nan)
        add(last, moment | {"value": nothing, "bonus": nothing, "action": -1})
        if moment["state"] == CUT and episode < episodes:
            obs = reset()
    arrays = {name: np.asarray([moment[name] for moment in moments]) for name in moments[0]}
    arrays |= {"actions": np.array(task.action_names)} if task.action_names else {}
    return arrays | {"shown": np.asarray([*shown])} | to_arrays(task, [*shown.values()])


def task_of(run: RunRecord | Policy) -> Task:
    """Return the environment that a run or a policy was trained in."""
    return run.task if isinstance(run, RunRecord) else remake(run.about["task"])


def _explorer(run: RunRecord, clock: Clock, seed: int) -> Callable[[np.ndarray, bool], int]:
    """Return a function that acts as the agent does when it trains, at a fixed time of training."""
    key_actor, key_act = (jax.random.fold_in(jax.random.key(seed), use) for use in (1, 2))
    assert run.spec is not None
    agent: Any = run.agent
    hyper, available = run.spec.hyper, run.task.available
    if available is not None:
        spec = agent.spec._replace(available=jnp.asarray(available))
        agent = dataclasses.replace(agent, spec=spec)
    actor, times = agent.init_actor(key_actor), itertools.count(1)

    @jax.jit
    def act(learner: Any, actor: Any, obs: Array, first: Array, key: PRNGKeyArray) -> Any:
        return agent.act(learner, actor, obs, first, clock, hyper, key)

    def explore(obs: np.ndarray, first: bool) -> int:
        nonlocal actor
        array = jnp.asarray(encode_observation(agent.spec.observation, obs))
        key = jax.random.fold_in(key_act, next(times))
        decision, actor = act(run.learner, actor, array, jnp.asarray(first), key)
        return int(decision.action)

    return explore


def newest_frame(observation: Observation, obs: np.ndarray) -> np.ndarray:
    """Copy the newest frame of a stack, or any other observation as it is."""
    return np.array(obs[-1] if isinstance(observation, Image) else obs)


def to_arrays(
    task: Any, kept: Sequence[np.ndarray], max_numbers: int = MAX_NUMBERS
) -> dict[str, np.ndarray]:
    """Convert a task's observations, by `newest_frame`, to what a film shows.

    Returns `pictures`, uint8 [observations, rows, columns] or with a last axis of red, green and
    blue; or, up to `max_numbers` of them, `numbers` [observations, numbers]. What pads a
    setting to the largest of a sweep is left out.
    """
    observation, stacked = task.env.observation, np.stack(kept)
    if isinstance(observation, Image):
        if stacked.ndim == 4 and stacked.shape[-1] != 3:  # channels that are not colours
            stacked = np.round(stacked.mean(axis=-1)).astype(np.uint8)
        return {"pictures": stacked}
    if isinstance(observation, OneHot):
        ones = np.arange(observation.size) == stacked[:, None]
        stacked = ones.reshape(-1, *observation.shape).astype(np.uint8)
    elif isinstance(observation, Planes):
        # One number for each cell: symbols as digits, else the highest channel that is not 0.
        if observation.values is None:
            stacked = (stacked * np.arange(1.0, stacked.shape[-1] + 1)).max(axis=-1)
        else:
            stacked = stacked @ np.cumprod([1.0, *observation.values[:0:-1]])[::-1]
    else:
        if task.pack is not None:
            stacked = stacked.reshape(len(stacked), -1)[:, : task.inputs]
        if stacked[0].size <= max_numbers:
            return {"numbers": stacked.reshape(len(stacked), -1).astype(np.float64)}
    grids = _to_grids(stacked, task.setting.get("size"))
    low, high = float(grids.min()), float(grids.max())
    dark = (grids - low) / (high - low or 1.0)
    return {"pictures": np.round(255 * (1.0 - dark)).astype(np.uint8)}


def _to_grids(stacked: np.ndarray, side: int | None) -> np.ndarray:
    """Give two axes to each observation: its own, else rows that make it nearly square."""
    _, rows, *others = stacked.shape
    flat = stacked.reshape(len(stacked), -1)
    if others and rows > 1:
        grids = flat.reshape(len(stacked), rows, -1)
        return grids[:, :side, :side] if len(others) == 1 else grids
    count = flat.shape[1]
    columns = count if count <= MAX_NUMBERS else math.ceil(math.sqrt(count))
    flat = np.pad(flat, ((0, 0), (0, -count % columns)), constant_values=flat.min())
    return flat.reshape(len(flat), -1, columns)
