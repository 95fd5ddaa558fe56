"""Run a fixed policy in environments and record every episode."""

import dataclasses
import re
from collections.abc import Callable
from functools import partial
from typing import Any, SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from winkel.envs.base import Environment, check_action
from winkel.envs.outside import SimulatorTask
from winkel.envs.registry import TaskBatch
from winkel.errors import InputError, require_integer
from winkel.runs.spec import MAX_SEED, RunSpec
from winkel.training.programs import require_memory
from winkel.training.simulated import MOST_EVALUATED, greedy_returns, make_seeds

Policy = Callable[[PRNGKeyArray, Array], Int[Array, ""]]
"""An action from a key and an observation."""

CHUNK = 1_000
"""Steps of a compiled program."""
KEY_GREEDY = 2
"""Number of this use of a seed, which makes other environments than training and evaluations."""
ROW_BYTES = 32
"""Of the record of an episode: return, length and some facts."""

_ACTION = re.compile(r"action:(-?[0-9]{1,9})")


def make_policy(name: str, env: Environment) -> Policy:
    """Make the policy of a name: 'random', or 'action:K' for always action K."""
    if name == "random":
        return lambda key, obs: jax.random.randint(key, (), 0, env.num_actions)
    number = _ACTION.fullmatch(name)
    if number is None:
        raise InputError(f"need a policy 'random' or 'action:K', got {name!r}")
    action = int(number[1])
    check_action(action, env.num_actions)
    return lambda key, obs: jnp.asarray(action, jnp.int32)


def rollout(
    batch: TaskBatch,
    policy: Policy,
    num_episodes: int,
    seed: int,
    progress: Callable[[int], None] = lambda _: None,
) -> list[dict[str, np.ndarray]]:
    """Record the first `num_episodes` episodes of every setting: return, length, facts.

    All settings run side by side in one compiled program, a chunk of steps at a time. `progress`
    gets the number of episodes that the slowest setting has ended.
    """
    require_integer("episodes", num_episodes, at_least=1)
    require_integer("seed", seed, at_least=0, at_most=MAX_SEED)
    count = num_episodes * len(batch.ids)
    require_memory(ROW_BYTES * count, f"the records of {count:,} episodes")
    keys = jax.random.split(jax.random.key(seed), len(batch.ids))
    begin = jax.jit(jax.vmap(_begin, in_axes=(None, 0, 0)))
    advance = jax.jit(jax.vmap(partial(_advance, policy), in_axes=(None, 0, 0)))
    lanes = begin(batch.env, batch.params, keys)
    finished: list[list[dict[str, np.ndarray]]] = [[] for _ in batch.ids]
    counts = np.zeros(len(batch.ids), int)
    while counts.min() < num_episodes:
        lanes, (ended, totals) = advance(batch.env, batch.params, lanes)
        ended = np.asarray(ended)
        kinds = {"return": np.float64}
        rows = {n: np.asarray(total, kinds.get(n, np.int64)) for n, total in totals.items()}
        for lane, at in enumerate(ended):
            finished[lane].append({name: values[lane][at] for name, values in rows.items()})
        counts += ended.sum(axis=1)
        progress(min(int(counts.min()), num_episodes))
    return [
        {name: np.concatenate([part[name] for part in parts])[:num_episodes] for name in parts[0]}
        for parts in finished
    ]


def greedy_episodes(
    spec: RunSpec,
    learner: Any,
    episodes: SupportsIndex,
    seed: SupportsIndex,
    notice: Callable[[str], None] = lambda _: None,
) -> np.ndarray:
    """Undiscounted returns of greedy episodes in new environments, which the seed decides."""
    num_episodes = require_integer("episodes", episodes, at_least=1)
    seed = require_integer("seed", seed, at_least=0, at_most=MAX_SEED)
    task, agent = spec.task, spec.agent
    if isinstance(task, SimulatorTask):
        count = min(num_episodes, task.num_envs, MOST_EVALUATED)
        with task.pool(make_seeds(seed, count, (KEY_GREEDY,)), notice) as pool:
            return greedy_returns(agent, learner, spec.hyper, pool, num_episodes)
    available = None if task.available is None else jnp.asarray(task.available)
    agent = dataclasses.replace(agent, spec=agent.spec._replace(available=available))
    learned = jax.device_put(learner)

    def policy(key: PRNGKeyArray, obs: Array) -> Int[Array, ""]:
        value = agent.estimates(learned, obs, spec.hyper).value
        return jnp.argmax(agent.spec.mask_unavailable(value))

    params = jax.tree.map(lambda x: np.asarray(x)[None], task.params)
    batch = TaskBatch((task.id,), task.env, params, (task.setting,))
    return rollout(batch, policy, num_episodes, seed)[0]["return"]


def _begin(env: Environment, params: Any, key: PRNGKeyArray) -> Any:
    """Begin an episode: state, observation, totals of the episode so far, key."""
    key_reset, key_run, key_probe = jax.random.split(key, 3)
    state, obs = env.reset(key_reset, params)
    _, probe = env.step(key_probe, state, jnp.zeros((), jnp.int32), params)
    totals = {"return": jnp.zeros(()), "length": jnp.zeros((), jnp.int32)}
    totals |= {name: jnp.zeros_like(fact) for name, fact in probe.info.items()}
    return state, obs, totals, key_run


def _advance(policy: Policy, env: Environment, params: Any, lane: Any) -> tuple[Any, Any]:
    """Make a chunk of steps; returns at each step whether an episode ended, and its totals."""

    def step(lane: Any, _: None) -> tuple[Any, Any]:
        state, obs, totals, key = lane
        key, key_policy, key_step = jax.random.split(key, 3)
        action = policy(key_policy, obs)
        state, result = env.step(key_step, state, action, params)
        more: dict[str, Any] = {"return": result.reward, "length": 1, **result.info}
        totals = {name: total + more[name] for name, total in totals.items()}
        fresh = jax.tree.map(lambda x: jnp.where(result.boundary, jnp.zeros_like(x), x), totals)
        return (state, result.obs, fresh, key), (result.boundary, totals)

    return jax.lax.scan(step, lane, length=CHUNK)
