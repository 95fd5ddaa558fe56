"""Policies: episodes with a fixed or a learned one, and its file for `winkel.numpy_policy`."""

import dataclasses
import json
import math
import re
import shlex
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any, SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from winkel.envs.base import Environment, check_action
from winkel.envs.outside import OutsideTask, SimulatorTask
from winkel.envs.registry import TaskBatch, make
from winkel.errors import InputError, require_integer
from winkel.files import save_arrays
from winkel.networks import Ensemble
from winkel.numpy_policy import FORMAT
from winkel.projections import Categorical, Expectile, Quantile
from winkel.runs.spec import MAX_SEED, RunSpec, configure
from winkel.training.programs import require_memory
from winkel.training.simulated import MOST_EVALUATED, greedy_returns, make_seeds
from winkel.training.steps import UNLIMITED
from winkel.types import Image, Planes

Policy = Callable[[PRNGKeyArray, Array], Int[Array, ""]]
"""An action from a key and an observation."""

CHUNK = 1_000
"""Steps of a compiled program."""
KEY_GREEDY = 2
"""Number of this use of a seed, which makes other environments than training and evaluations."""
ROW_BYTES = 32
"""Bytes of the record of an episode: return, length and some facts."""

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
        lanes, results = advance(batch.env, batch.params, lanes)
        ended, totals = jax.device_get(results)
        for lane, at in enumerate(ended):
            finished[lane].append({name: values[lane][at] for name, values in totals.items()})
        counts += ended.sum(axis=1)
        progress(min(int(counts.min()), num_episodes))

    def join(name: str, parts: list[dict[str, np.ndarray]]) -> np.ndarray:
        values = np.concatenate([part[name] for part in parts])[:num_episodes]
        return values.astype(np.float64 if name == "return" else np.int64)

    return [{name: join(name, parts) for name in parts[0]} for parts in finished]


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
    return state, obs, totals | jax.tree.map(jnp.zeros_like, dict(probe.info)), key_run


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


def save_policy(path: Path, run: Any, returns: np.ndarray | None = None) -> None:
    """Save the policy of a run that is loaded with its agent, and returns of greedy episodes.

    Observations of one cell in a grid give a table of values, whatever the agent; other numbers
    give the networks of the values, on planes with their torso. Padding to other settings is left
    out.
    """
    if path.suffix != ".npz":
        raise InputError(f"need a file name that ends in .npz, got {path}")
    spec: RunSpec = run.spec
    seen = spec.agent.spec.observation
    if isinstance(seen, Image):
        raise InputError(
            f"need observations of numbers for a policy file, {run.task.id} has images"
        )
    task = make(run.task.id) if run.task.padded or run.task.pack else run.task
    about: dict[str, Any] = {
        "format": FORMAT,
        "one_hot": spec.agent.spec.one_hot,
        "shape": list(task.env.observation.shape),
        "num_actions": task.env.num_actions,
        "agent": spec.label,
        "seed": spec.seed,
        "command": train_command(spec),
        "task": task.describe(),
    }
    if returns is not None:
        mean, std = float(returns.mean()), float(returns.std())
        about["returns"] = {"mean": mean, "std": std, "episodes": len(returns)}
    if about["one_hot"]:
        size = math.prod(seen.shape)
        cells = np.arange(size).reshape(seen.shape)[tuple(map(slice, about["shape"]))]
        arrays = {"table": run.values(np.append(cells, size))}
    else:
        values = spec.agent.value_networks(run.learner, spec.hyper)
        about["members"] = [_describe(projection) for projection in values.projections]
        about["prior_members"] = []
        arrays = {}
        if isinstance(seen, Planes):
            filters, about["symbols"] = run.learner.shared.params.torso.filters, seen.values
            arrays = {
                "torso_weight": np.asarray(filters.weight),
                "torso_bias": np.asarray(filters.bias),
            }
        arrays |= _layers("network", values.networks, about)
        if values.prior is not None:
            arrays |= _layers("prior", values.prior, about, float(values.prior_scale))
            prior_members, every = values.prior_members, range(len(values.projections))
            about["prior_members"] = list(every if prior_members is None else prior_members)
    save_arrays(path, arrays | {"about": np.array(json.dumps(about))})


def _layers(
    name: str, network: Ensemble, about: dict[str, Any], scale: float = 1.0
) -> dict[str, np.ndarray]:
    """Return weights and biases of all members, without padding; the last ones are scaled."""
    arrays: dict[str, np.ndarray] = {}
    for depth, layer in enumerate(network.layers):
        weight, bias = np.asarray(layer.weight), np.asarray(layer.bias)
        if depth == 0 and "symbols" not in about:
            weight = weight[:, : math.prod(about["shape"])]
        if depth == len(network.layers) - 1:
            width = about["num_actions"] * (network.columns or bias.shape[-1] // network.rows)
            weight, bias = (np.float32(scale) * x[..., :width] for x in (weight, bias))
        arrays |= {f"{name}_weight_{depth}": weight, f"{name}_bias_{depth}": bias}
    return arrays


def _describe(projection: Any) -> dict[str, Any]:
    """Say how the mean of a member's distribution follows from its outputs."""
    if isinstance(projection, Categorical):
        return {"kind": "categorical", "support": [projection.z_min, projection.z_max]}
    kinds = {Quantile: "mean", NoneType: "mean", Expectile: "expectile"}
    if type(projection) in kinds:
        return {"kind": kinds[type(projection)]}
    raise InputError(f"need a projection of winkel for a policy file, got {projection!r:.60}")


def train_command(spec: RunSpec) -> str:
    """Return the command that makes a run, with all fields that are not the agent's defaults."""
    task, settings = spec.task, asdict(spec.agent.config) | spec.hyper._asdict()
    support = {z: settings[z] for z in ("z_min", "z_max") if z in settings}
    support = support if isinstance(task, OutsideTask) else {}
    agent, hyper = configure(spec.algorithm, support, task)
    defaults = asdict(agent.config) | hyper._asdict()
    options = {name: n for name, n in spec.horizon._asdict().items() if n != UNLIMITED}
    more = {"until": spec.until, "first_seed": spec.seed, "num_envs": getattr(task, "num_envs", 1)}
    usual = {"until": None, "first_seed": 0, "num_envs": 1} | defaults
    options |= {name: x for name, x in (more | settings).items() if x != usual[name]} | support
    words = ["winkel", "train", task.id, "--agent", spec.algorithm]
    for name, value in options.items():
        text = ",".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)
        words += [f"--{name.replace('_', '-')}", text]
    return shlex.join(words)
