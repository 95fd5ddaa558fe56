"""Any policy on any environment: every episode of many copies, recorded."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from winkel.envs.base import Environment, EnvState, check_action
from winkel.envs.task import CompiledTask, TaskBatch
from winkel.errors import InputError

Policy = Callable[[PRNGKeyArray, Array], Int[Array, ""]]
"""An action from a key and an observation."""

CHUNK = 1_000


def make_policy(name: str, env: Environment) -> Policy:
    """'random', or 'action:K' for always K."""
    if name == "random":
        return lambda key, obs: jax.random.randint(key, (), 0, env.num_actions)
    kind, _, number = name.partition(":")
    if kind != "action" or not number.lstrip("-").isdecimal():
        raise InputError(f"need a policy 'random' or 'action:K', got {name!r}")
    action = int(number)
    check_action(action, env.num_actions)
    return lambda key, obs: jnp.asarray(action, jnp.int32)


class Tally(NamedTuple):
    """What has added up in the episode so far."""

    total: Float[Array, ""]
    length: Int[Array, ""]
    facts: dict[str, Array]


class Lane(NamedTuple):
    """One copy of an environment under way; many of them with a first axis."""

    state: EnvState
    obs: Array
    tally: Tally
    key: PRNGKeyArray


def rollout(
    batch: TaskBatch,
    policy: Policy,
    num_episodes: int,
    seed: int,
    progress: Callable[[int], None] = lambda _: None,
) -> list[dict[str, np.ndarray]]:
    """Records of the first `num_episodes` episodes of every setting: return, length, facts.

    All settings run side by side in one compiled program, a chunk of steps at a time; `progress`
    gets the number of episodes that the slowest of them has ended.
    """
    if num_episodes < 1:
        raise InputError(f"need at least one episode, got {num_episodes}")
    env = batch.env
    keys = jax.random.split(jax.random.key(seed), len(batch.ids))

    @jax.jit
    def begin(env: Environment, params: Any, keys: Key[Array, "S"]) -> Lane:
        return jax.vmap(lambda p, k: _begin(env, p, k))(params, keys)

    @jax.jit
    def advance(env: Environment, params: Any, lanes: Lane) -> tuple[Lane, Any]:
        return jax.vmap(lambda p, lane: _advance(env, policy, p, lane))(params, lanes)

    lanes = begin(env, batch.params, keys)
    finished: list[list[dict[str, np.ndarray]]] = [[] for _ in batch.ids]
    counts = np.zeros(len(batch.ids), int)
    while counts.min() < num_episodes:
        lanes, (ended, tallies) = advance(env, batch.params, lanes)
        ended = np.asarray(ended)
        records = {
            "return": np.asarray(tallies.total, np.float64),
            "length": np.asarray(tallies.length, np.int64),
            **{name: np.asarray(fact, np.int64) for name, fact in tallies.facts.items()},
        }
        for lane, at in enumerate(ended):
            finished[lane].append({name: values[lane][at] for name, values in records.items()})
        counts += ended.sum(axis=1)
        progress(min(int(counts.min()), num_episodes))
    return [
        {name: np.concatenate([part[name] for part in parts])[:num_episodes] for name in parts[0]}
        for parts in finished
    ]


def _begin(env: Environment, params: Any, key: PRNGKeyArray) -> Lane:
    key_reset, key_run, key_probe = jax.random.split(key, 3)
    state, obs = env.reset(key_reset, params)
    _, probe = env.step(key_probe, state, jnp.zeros((), jnp.int32), params)
    facts = {name: jnp.zeros_like(fact) for name, fact in probe.info.items()}
    tally = Tally(total=jnp.zeros(()), length=jnp.zeros((), jnp.int32), facts=facts)
    return Lane(state=state, obs=obs, tally=tally, key=key_run)


def _advance(env: Environment, policy: Policy, params: Any, lane: Lane) -> tuple[Lane, Any]:
    def step(lane: Lane, _: None) -> tuple[Lane, Any]:
        key, key_policy, key_step = jax.random.split(lane.key, 3)
        action = policy(key_policy, lane.obs)
        state, result = env.step(key_step, lane.state, action, params)
        tally = Tally(
            total=lane.tally.total + result.reward,
            length=lane.tally.length + 1,
            facts={name: lane.tally.facts[name] + fact for name, fact in result.info.items()},
        )
        fresh = jax.tree.map(lambda x: jnp.where(result.boundary, jnp.zeros_like(x), x), tally)
        return Lane(state=state, obs=result.obs, tally=fresh, key=key), (result.boundary, tally)

    return jax.lax.scan(step, lane, length=CHUNK)


def frames(task: CompiledTask, policy: Policy, seed: int) -> Iterator[tuple[str, str]]:
    """One episode as (caption, picture) pairs: its start, then every step before any reset."""
    env, params = task.env, task.params
    key, key_start = jax.random.split(jax.random.key(seed))
    inner = env.start(env.draw_start(key_start, params), jnp.zeros((), jnp.int32), params)
    yield "start", env.render(inner, params)

    @jax.jit
    def step_once(
        env: Environment,
        inner: Any,
        params: Any,
        key_policy: PRNGKeyArray,
        key_draw: PRNGKeyArray,
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
