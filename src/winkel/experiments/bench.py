"""How fast the loop is: whole, its parts alone, and against the least that memory allows.

Every combination of agent, environment, number of atoms and number of lanes is a program of its
own, timed by chunks of steps that are waited for. Compilation is never part of a time.
"""

import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from winkel.agents.base import Agent
from winkel.envs.registry import Task, make
from winkel.errors import InputError, require_integer
from winkel.experiments.bench_rows import Row
from winkel.runs.machine import out_of_memory, peak_bytes
from winkel.runs.spec import Configured, configure, fields_of
from winkel.training import steps
from winkel.training.compiled import CompiledWorld
from winkel.training.lanes import Lanes, Plan
from winkel.training.steps import Horizon
from winkel.types import Clock, RunState

FEWEST_CHUNKS, MOST_CHUNKS, ENOUGH_SECONDS = 3, 10, 2.0
"""Timed: at least the first many, more until the time is spent."""


class Combination(NamedTuple):
    """What one row measures.

    Attributes:
        task: the environment.
        configured: the agent for it.
        fields: what of it is not at its default, but for the number of atoms.
        lanes: runs side by side.
        shapes: of one lane.
    """

    task: Task
    configured: Configured
    fields: dict[str, Any]
    lanes: int
    shapes: RunState

    @property
    def kept_bytes(self) -> int:
        """Of everything that the lanes keep."""
        return self.lanes * num_bytes(self.shapes)

    @property
    def num_atoms(self) -> int | None:
        """K, of agents that have it."""
        return getattr(self.configured.agent.config, "num_atoms", None)


class Timing(NamedTuple):
    """Seconds of the chunks of one program: the median one, the extremes, how many."""

    median: float
    fastest: float
    slowest: float
    chunks: int


def combinations(
    agents: Sequence[str],
    envs: Sequence[str],
    lanes: Sequence[int],
    atoms: Sequence[int] = (),
    fields: Mapping[str, Any] | None = None,
) -> list[Combination]:
    """All of them, smallest first: what is out of memory comes last, and peaks are a row's own.

    Fields that an agent does not have are not its; so is the number of atoms.
    """
    for name, wanted in (("agents", agents), ("envs", envs), ("lanes", lanes)):
        if not wanted:
            raise InputError(f"need at least one of --{name}, got none")
    for number in lanes:
        require_integer("lanes", number, at_least=1)
    fields = dict(fields or {})
    if atoms and "num_atoms" in fields:
        raise InputError("need --atoms or --num-atoms, got both")
    found = []
    with_atoms = False
    for agent in dict.fromkeys(agents):
        own = fields_of(agent, fields)
        plain = {name: value for name, value in own.items() if name != "num_atoms"}
        counts = list(dict.fromkeys(atoms)) if fields_of(agent, {"num_atoms": 1}) else []
        with_atoms = with_atoms or bool(counts)
        for env in dict.fromkeys(envs):
            task = make(env)
            for changed in [own | {"num_atoms": count} for count in counts] or [own]:
                configured = configure(agent, changed, task)
                world = CompiledWorld(task.env)
                shapes = world.shapes(configured.agent, task.params, configured.hyper)
                found += [
                    Combination(task, configured, plain, number, shapes)
                    for number in dict.fromkeys(lanes)
                ]
    if atoms and not with_atoms:
        raise InputError(f"need an agent that has num_atoms for --atoms, got {', '.join(agents)}")
    return sorted(found, key=lambda combination: combination.kept_bytes)


def measured(wanted: Sequence[Combination], num_steps: int, parts: bool = True) -> Iterator[Row]:
    """A row for each combination, in order; one that fails is a row too."""
    require_integer("steps", num_steps, at_least=1)
    worlds: dict[tuple[str, int], float] = {}
    for combination in wanted:
        yield _row(combination, num_steps, parts, worlds)
        # Programs are not needed again, and what they hold would be in the next one's way.
        jax.clear_caches()
        gc.collect()


def num_bytes(shapes: Any) -> int:
    """Of all arrays of a pytree, or of their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def num_parameters(learner: Any) -> int:
    """Numbers that are learned: Adam keeps two moments of each, whatever else a learner holds."""
    moments = 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(learner):
        within = any(getattr(entry, "name", None) == "opt_state" for entry in path)
        if within and jnp.issubdtype(leaf.dtype, jnp.floating):
            moments += leaf.size
    return moments // 2


@partial(jax.jit, static_argnames=("agent", "num_steps"))
def learn_alone(
    agent: Agent, hypers: Any, runs: RunState, num_steps: int
) -> tuple[Any, Clock, Float[Array, "S T"]]:
    """Learners, clocks and losses after updates from replays that stay as they are."""

    def update(hyper: Any, run: RunState) -> tuple[RunState, Any]:
        key = jax.random.fold_in(run.key, run.clock.updates)
        run, update = steps.learn(agent, run, hyper, key)
        return run, update.metrics["loss"]

    def lane(hyper: Any, run: RunState) -> tuple[RunState, Any]:
        return jax.lax.scan(lambda run, _: update(hyper, run), run, length=num_steps)

    run, losses = jax.vmap(lane)(hypers, runs)
    return run.learner, run.clock, losses


class World(NamedTuple):
    """An environment under way; every field is a result, so that no part of a step is idle."""

    state: Any
    obs: Any
    next_obs: Any
    total: Float[Array, "*S"]
    discount: Float[Array, "*S"]


@jax.jit
def step_alone(env: Any, params: Any, keys: Key[Array, "S"], actions: Int[Array, "S T"]) -> World:
    """Environments after the given actions."""

    def lane(params: Any, key: Any, actions: Int[Array, " T"]) -> World:
        state, obs = env.reset(jax.random.fold_in(key, 0), params)

        def step(world: World, now: Any) -> tuple[World, None]:
            index, action = now
            key_world = jax.random.fold_in(jax.random.fold_in(key, index + 1), 1)
            state, result = env.step(key_world, world.state, action, params)
            return World(
                state=state,
                obs=result.obs,
                next_obs=result.next_obs,
                total=world.total + result.reward,
                discount=result.discount,
            ), None

        start = World(state, obs, obs, total=jnp.zeros(()), discount=jnp.ones(()))
        return jax.lax.scan(step, start, (jnp.arange(actions.shape[0]), actions))[0]

    return jax.vmap(lane)(params, keys, actions)


def _row(
    combination: Combination,
    num_steps: int,
    parts: bool,
    worlds: dict[tuple[str, int], float],
) -> Row:
    known: dict[str, Any] = {
        "agent": combination.configured.name,
        "env": combination.task.id,
        "lanes": combination.lanes,
        "num_atoms": combination.num_atoms,
        "fields": {name: _plain(value) for name, value in combination.fields.items()},
        "steps": num_steps,
        "parameters": num_parameters(combination.shapes.learner),
        "lane_bytes": num_bytes(combination.shapes),
    }
    try:
        _check_fits(combination)
        lanes, found = _whole(combination, num_steps)
    except Exception as error:
        return Row(status="failed", reason=_reason(error), **known)
    known |= found
    reasons = []
    if parts:
        for name, measure in (
            ("learning", lambda: _learning(lanes, num_steps)),
            ("environment", lambda: _environment(lanes, combination, num_steps, worlds)),
        ):
            try:
                known[f"{name}_ms"] = 1e3 * measure() / num_steps
            except Exception as error:
                reasons.append(f"{name} alone: {_reason(error)}")
    return Row(status="ok", reason="; ".join(reasons) or None, **known)


def _check_fits(combination: Combination) -> None:
    """Refuse what a machine without an accelerator would be killed for."""
    if jax.default_backend() != "cpu":
        return
    least = 2 * combination.kept_bytes  # before a chunk and after it
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if least > memory:
        raise MemoryError(f"needs at least {least / 1e9:.1f} GB of {memory / 1e9:.1f}")


def _whole(combination: Combination, num_steps: int) -> tuple[Lanes, dict[str, Any]]:
    """The loop as training runs it, once to compile it and again to time it."""
    configured, task = combination.configured, combination.task
    world = CompiledWorld(task.env)
    plans = [
        Plan(task.params, configured.hyper, Horizon(), seed=seed)
        for seed in range(combination.lanes)
    ]
    peak_before = peak_bytes()

    def refuse(_: str) -> None:
        kept = combination.kept_bytes / 1e9
        raise MemoryError(f"{combination.lanes} lanes, of which only the state is {kept:.3g} GB")

    def started() -> tuple[Lanes, float]:
        lanes = Lanes(configured.agent, world, plans, combination.lanes, chunk_steps=num_steps)
        lanes.notice = refuse  # training would go on in fewer lanes
        begin = time.perf_counter()
        _advance(lanes)
        return lanes, time.perf_counter() - begin

    first = started()[1]
    lanes, again = started()
    timing = _timed(lambda: _advance(lanes))
    peak = peak_bytes()
    return lanes, {
        "updates_per_second": num_steps * combination.lanes / timing.median,
        "ms_step": 1e3 * timing.median / num_steps,
        "ms_fastest": 1e3 * timing.fastest / num_steps,
        "ms_slowest": 1e3 * timing.slowest / num_steps,
        "chunks": timing.chunks,
        "compile_seconds": max(first - again, 0.0),
        "peak_bytes": peak if peak > peak_before else None,
    }


def _advance(lanes: Lanes) -> None:
    for report in lanes.advance():
        if report.failure is not None:
            raise FloatingPointError(report.failure)
    jax.block_until_ready(lanes.rows[0].lanes)


def _learning(lanes: Lanes, num_steps: int) -> float:
    """Seconds of as many updates as a chunk has steps, from what the loop has stored."""
    jobs, states = lanes.rows[0].state

    def chunk() -> None:
        jax.block_until_ready(learn_alone(lanes.agent, jobs.hyper, states, num_steps))

    chunk()
    return _timed(chunk).median


def _environment(
    lanes: Lanes,
    combination: Combination,
    num_steps: int,
    known: dict[tuple[str, int], float],
) -> float:
    """Seconds of a chunk of steps under random actions; agents share it."""
    task, number = combination.task, combination.lanes
    if (task.id, number) not in known:
        random = np.random.default_rng(0)
        actions = jnp.asarray(
            random.integers(task.env.num_actions, size=(number, num_steps)), jnp.int32
        )

        jobs, env = lanes.rows[0].jobs, jax.tree.map(jnp.asarray, task.env)

        def chunk() -> None:
            jax.block_until_ready(step_alone(env, jobs.params, jobs.key, actions))

        chunk()
        known[task.id, number] = _timed(chunk).median
    return known[task.id, number]


def _timed(chunk: Callable[[], None]) -> Timing:
    times: list[float] = []
    while len(times) < FEWEST_CHUNKS or (
        len(times) < MOST_CHUNKS and math.fsum(times) < ENOUGH_SECONDS
    ):
        begin = time.perf_counter()
        chunk()
        times.append(time.perf_counter() - begin)
    return Timing(statistics.median(times), min(times), max(times), len(times))


def _reason(error: Exception) -> str:
    """One line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    if out_of_memory(error):
        text = f"out of memory: {text.removeprefix('RESOURCE_EXHAUSTED:').strip()}"
    elif not isinstance(error, FloatingPointError | InputError):
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= 160 else f"{text[:159]}…"


def _plain(value: Any) -> Any:
    """As JSON gives it back."""
    return [_plain(entry) for entry in value] if isinstance(value, tuple | list) else value
