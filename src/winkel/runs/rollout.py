"""Run a fixed policy in environments and record every episode."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from winkel.envs.base import Environment, Task, check_action
from winkel.envs.registry import TaskBatch
from winkel.errors import InputError, require_integer
from winkel.runs.spec import MAX_SEED
from winkel.training.memory import require_memory

Policy = Callable[[PRNGKeyArray, Array], Int[Array, ""]]
"""An action from a key and an observation."""

CHUNK = 1_000
"""Steps of a compiled program."""
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
    check_seed(seed)
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
        rows = {
            name: np.asarray(total, np.float64 if name == "return" else np.int64)
            for name, total in totals.items()
        }
        for lane, at in enumerate(ended):
            finished[lane].append({name: values[lane][at] for name, values in rows.items()})
        counts += ended.sum(axis=1)
        progress(min(int(counts.min()), num_episodes))
    return [
        {name: np.concatenate([part[name] for part in parts])[:num_episodes] for name in parts[0]}
        for parts in finished
    ]


def check_seed(seed: int) -> None:
    """Raise unless a seed is one of runs; JAX would take larger ones for smaller ones, or fail."""
    if not 0 <= seed <= MAX_SEED:
        raise InputError(f"need a seed from 0 to {MAX_SEED}, got {seed}")


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


def frames(task: Task, policy: Policy, seed: int) -> Iterator[tuple[str, str]]:
    """Yield the captions and pictures of one episode: its start, then every step."""
    check_seed(seed)
    env, params = task.env, task.params
    key, key_start = jax.random.split(jax.random.key(seed))
    inner = env.start(env.draw_start(key_start, params), jnp.zeros((), jnp.int32), params)
    yield "start", env.render(inner, params)

    @jax.jit
    def step_once(
        env: Environment, inner: Any, params: Any, key_policy: PRNGKeyArray, key_draw: PRNGKeyArray
    ) -> tuple[Array, Any, Any]:
        action = policy(key_policy, env.observe(inner, params))
        return action, *env.transition(inner, action, env.draw(key_draw, params), params)

    ended, step, total = False, 0, 0.0
    while not ended:
        key, key_policy, key_draw = jax.random.split(key, 3)
        action, inner, result = step_once(env, inner, params, key_policy, key_draw)
        ended, step, total = bool(result.boundary), step + 1, total + float(result.reward)
        caption = f"step {step}  action {int(action)}  reward {float(result.reward):+.3f}"
        yield f"{caption}  return {total:+.3f}", env.render(inner, params)
