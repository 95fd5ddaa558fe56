"""The results of a run, and the folder that keeps it.

`<root>/<experiment>/<agent>/<setting>/seed-<n>` holds `config.json` (written last: a folder with it
is complete), `episodes.npz`, `evaluations.npz`, `snapshots.npz`, `metrics.jsonl` and `checkpoint/`.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from winkel.agents.base import Agent
from winkel.envs.base import Task
from winkel.errors import InputError
from winkel.files import load_arrays, read_json, save_arrays, write_text
from winkel.runs import checkpoint as checkpoints
from winkel.runs.policies import greedy_episodes, save_policy
from winkel.runs.spec import RunSpec, experiment_of, run_fingerprint
from winkel.types import AnyArray, Clock, Estimates, Observation, OneHot

Arrays = dict[str, np.ndarray]
Policy = Callable[[Any], Any]
"""An action from an observation, an array of actions from a batch of observations."""
RECENT = 50
"""The last episodes of each run, whose mean return `repr` and a `Status` show."""
SHOWN = 10
"""Seeds that `repr` shows."""

CONFIG, METRICS, CHECKPOINT_FOLDER = "config.json", "metrics.jsonl", "checkpoint"


@dataclass(frozen=True, eq=False)
class RunRecord:
    """The results of one run."""

    config: dict[str, Any]
    """The JSON of its `RunSpec`, and the outcome: `status` is 'finished' or 'failed'."""
    episodes: Arrays
    """A row for every episode: return, length, env_steps at its end, facts."""
    path: Path | None = None
    """The folder that keeps it; None if it is in memory only."""
    finished: bool = True
    """Whether it has ended; if not, it is as its newest checkpoint has it."""
    tables: Mapping[str, Arrays] = field(default_factory=dict)
    """Evaluations and snapshots that are in memory; others are read from the folder."""
    spec: RunSpec | None = None
    """What was run; None unless the run was trained or loaded with its agent."""
    learner: Any = None
    clock: Clock | None = None
    """How far training is."""

    def __repr__(self) -> str:
        return _describe("RunRecord", f"seed {self.config['seed']}", (self,))

    @property
    def folder(self) -> Path:
        """The folder that keeps it."""
        assert self.path is not None
        return self.path

    @property
    def experiment(self) -> str:
        """Such as 'deep_sea' of 'deep_sea/3' and of 'deep_sea:size=50'."""
        return experiment_of(self.config["env"])

    @property
    def evaluations(self) -> Arrays:
        """A row for every greedy evaluation; empty without any."""
        return self._table("evaluations")

    @property
    def snapshots(self) -> Arrays:
        """Rows of visits, value, disagreement and bonus at every countable observation."""
        return self._table("snapshots")

    @property
    def task(self) -> Task:
        """The environment."""
        assert self.spec is not None
        return self.spec.task

    @property
    def agent(self) -> Agent:
        """The algorithm."""
        assert self.spec is not None
        return self.spec.agent

    def policy(self) -> Policy:
        """The greedy policy: an action from an observation, or an array of them from a batch."""

        def act(obs: Any) -> Any:
            actions = self.values(obs).argmax(axis=-1)
            return int(actions) if actions.ndim == 0 else actions

        return act

    def values(self, obs: Any) -> np.ndarray:
        """Values `[A]` of all actions for an observation, or `[N, A]` for a batch of them."""
        array = np.asarray(obs)
        if not self._is_batch(array):
            return np.asarray(self.estimates(array).value)
        if not len(array):
            return np.zeros((0, self.task.available or self.agent.spec.num_actions), np.float32)
        assert self.spec is not None
        batch = jnp.asarray(np.stack([self._encode(one) for one in array]))
        values = _values(self.agent, self.learner, batch, self.spec.hyper)
        return np.asarray(values)[:, : self.task.available]

    def evaluate(
        self,
        episodes: SupportsIndex = 100,
        seed: SupportsIndex = 0,
        notice: Callable[[str], None] = lambda _: None,
    ) -> np.ndarray:
        """Returns of so many greedy episodes, in new environments that the seed decides."""
        assert self.spec is not None
        return greedy_episodes(self.spec, self.learner, episodes, seed, notice)

    def export_policy(self, path: str | Path, returns: np.ndarray | None = None) -> None:
        """Save the greedy policy for `winkel.numpy_policy`, and how `returns` of it were."""
        save_policy(Path(path), self, returns)

    def estimates(self, obs: Any) -> Estimates:
        """The agent's estimates for an observation: in a packed run padded or the setting's own.

        A one-hot observation may be the grid or the index of its one.
        """
        assert self.spec is not None
        count = self.task.available
        available = None if count is None else jnp.asarray(count)
        seen = jnp.asarray(self._encode(obs))
        found = _estimates(self.agent, self.learner, seen, self.spec.hyper, available)
        found = jax.tree.map(np.asarray, found)
        members = jax.tree.map(lambda x: x[:, :count], found.members)
        rest = {name: x[:count] for name, x in found._asdict().items() if name != "members"}
        return Estimates(members=members, **rest)

    def _is_batch(self, array: np.ndarray) -> bool:
        """Whether an array has one axis more than an observation, or than an index."""
        spec = self.agent.spec
        if spec.one_hot and array.ndim < 2:
            return array.ndim == 1 and array.dtype.kind in "iu"
        if self.task.pack and not spec.one_hot:  # each may be the setting's own, of any shape
            sizes = self.task.inputs, spec.inputs
            return array.size not in sizes and array[:1].size in sizes
        return array.ndim == len(spec.observation.shape) + 1

    def _encode(self, obs: Any) -> AnyArray:
        spec, array = self.agent.spec, np.asarray(obs)
        if self.task.pack and array.size == self.task.inputs and not spec.one_hot:
            array = np.pad(array.ravel(), (0, spec.inputs - array.size))
        return encode_observation(spec.observation, array)

    def _table(self, name: str) -> Arrays:
        if name in self.tables or self.path is None:
            return self.tables.get(name, {})
        path, table = self.path / f"{name}.npz", dict[str, np.ndarray]()
        if not self.finished:
            table = load_run_checkpoint(self.path, only=f"{name}/")[0].get(name, {})
        elif name in self.config.get("rows", {}) or path.is_file():
            table = load_arrays(path)
        checkpoints.check_table(name, table, self.config, self.path)
        return table


@dataclass(frozen=True, eq=False)
class Training:
    """Several runs of one agent in one environment, in the order of their seeds."""

    runs: tuple[RunRecord, ...]

    def __repr__(self) -> str:
        seeds = ", ".join(str(run.config["seed"]) for run in self.runs[:SHOWN])
        more = ", …" if len(self.runs) > SHOWN else ""
        return _describe("Training", f"seeds {seeds}{more}", self.runs)

    @property
    def episodes(self) -> Arrays:
        """All episodes of all seeds as one table: seed, episode, and the columns of each run."""
        return self._table("episodes")

    @property
    def evaluations(self) -> Arrays:
        """All greedy evaluations of all seeds as one table."""
        return self._table("evaluations")

    def policy(self, seed: int | None = None) -> Policy:
        """The greedy policy of a seed, the first by default."""
        return self.of(seed).policy()

    def estimates(self, obs: Any, seed: int | None = None) -> Estimates:
        """As `RunRecord.estimates`, of a seed, the first by default."""
        return self.of(seed).estimates(obs)

    def evaluate(self, episodes: SupportsIndex = 100, seed: SupportsIndex = 0) -> np.ndarray:
        """Returns `[runs, episodes]` of greedy episodes of every run."""
        return np.stack([run.evaluate(episodes, seed) for run in self.runs])

    def of(self, seed: int | None = None) -> RunRecord:
        """The run of a seed, the first by default."""
        seeds = [run.config["seed"] for run in self.runs]
        if seed is not None and seed not in seeds:
            raise InputError(f"need a seed from {seeds}, got {seed}")
        return self.runs[0 if seed is None else seeds.index(seed)]

    def _table(self, name: str) -> Arrays:
        parts: list[Arrays] = []
        for run in self.runs:
            if rows := getattr(run, name):
                count = len(next(iter(rows.values())))
                index = {"seed": np.full(count, run.config["seed"])}
                if name == "episodes":
                    index["episode"] = np.arange(1, count + 1)
                parts.append(index | rows)
        columns = parts[0] if parts else {}
        return {column: np.concatenate([part[column] for part in parts]) for column in columns}


def _describe(kind: str, seeds: str, runs: Sequence[RunRecord]) -> str:
    config, returns = runs[0].config, [run.episodes["return"] for run in runs]
    recent = np.concatenate([some[-RECENT:] for some in returns])
    mean = f", mean return {recent.mean():.4g} of the last {RECENT}" if len(recent) else ""
    folders = [str(run.path) for run in runs if run.path is not None]
    return (
        f"<{kind}: {config['agent']} in {config['env']}, {seeds}, {sum(map(len, returns))} "
        f"episodes{mean}, {os.path.commonpath(folders) if folders else 'in memory'}>"
    )


def encode_observation(observation: Observation, obs: Any) -> AnyArray:
    """Convert an observation to what the agent's network takes; raise if it cannot be one."""
    array = np.asarray(obs)
    if not isinstance(observation, OneHot):
        if array.shape != observation.shape:
            raise InputError(
                f"need an observation of shape {list(observation.shape)}, got {list(array.shape)}"
            )
        if array.dtype.kind not in "fiub":
            raise InputError(f"need an observation of numbers, got {array.dtype}")
        with np.errstate(over="ignore", invalid="ignore"):
            converted = array.astype(observation.dtype)
        exact = observation.dtype != "float32"
        wrong = converted != array if exact else ~np.isfinite(converted)
        if wrong.any():
            kinds = {"float32": "finite numbers", "bool": "0 and 1"}
            wanted = kinds.get(observation.dtype, "whole numbers from 0 to 255")
            raise InputError(f"need {wanted} in an observation, got {array[wrong][0]}")
        return converted
    if array.ndim == 0 and np.issubdtype(array.dtype, np.integer):
        if not 0 <= array <= observation.size:
            raise InputError(f"need an index in 0 … {observation.size}, got {array}")
        return array.astype(np.int32)
    flat = array.ravel()
    if array.shape != observation.shape or not np.isin(flat, (0, 1)).all() or flat.sum() > 1:
        raise InputError(
            f"need an index or a grid of shape {list(observation.shape)} with at most a single "
            f"one, got an array of shape {list(array.shape)}"
        )
    return np.asarray(np.argmax(flat) if flat.any() else observation.size, np.int32)


@partial(jax.jit, static_argnames="agent")
def _estimates(
    agent: Agent, learner: Any, obs: Array, hyper: Any, available: Int[Array, ""] | None
) -> Estimates:
    agent = dataclasses.replace(agent, spec=agent.spec._replace(available=available))
    return agent.estimates(learner, obs, hyper)


@partial(jax.jit, static_argnames="agent")
def _values(agent: Agent, learner: Any, batch: Array, hyper: Any) -> Float[Array, "N A"]:
    """Values of a batch, computed in parts of bounded size."""
    return jax.lax.map(lambda x: agent.estimates(learner, x, hyper).value, batch, batch_size=256)


def find_runs(root: Path) -> list[Path]:
    """The folders of all complete runs under a root, sorted by name."""
    if not root.is_dir():
        raise InputError(f"no such folder: {root}")
    found = sorted(path.parent for path in root.glob(f"*/*/*/seed-*/{CONFIG}"))
    if not found:
        raise InputError(
            f"no runs in {root}; need <experiment>/<agent>/<setting>/seed-<n>/{CONFIG}"
        )
    return found


def save_run(folder: Path, record: RunRecord) -> dict[str, Any]:
    """Save a run that has ended, and return its config as it was written.

    The config of an older run is deleted first, this run's is written last.
    """
    tables = {**record.tables, "episodes": record.episodes}
    rows = {name: len(next(iter(table.values()))) for name, table in tables.items() if table}
    config = json.loads(json.dumps(record.config | {"rows": rows}))
    config["fingerprint"] = run_fingerprint(config)
    checkpoints.check_config(config, folder)
    for name, table in tables.items():
        checkpoints.check_table(name, table, config, folder)
    try:
        (folder / CONFIG).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot replace {folder / CONFIG}: {error.strerror}") from error
    for name in rows:
        save_arrays(folder / f"{name}.npz", tables[name])
    write_text(folder / CONFIG, json.dumps(config, indent=2) + "\n")
    return config


def load_run(folder: Path, unfinished: bool = False) -> RunRecord:
    """Load a run without its agent.

    With `unfinished`, a run that has not ended is loaded as its newest checkpoint has it.
    """
    finished = (folder / CONFIG).is_file()
    if finished:
        config, episodes = read_json(folder / CONFIG), load_arrays(folder / "episodes.npz")
        checkpoints.check_config(config, folder)
    elif unfinished:
        tables, meta, _ = load_run_checkpoint(folder, only="episodes/")
        episodes, config = tables.get("episodes", {}), meta["run"]
    else:
        raise InputError(f"{folder} holds no complete run: no {CONFIG}")
    checkpoints.check_table("episodes", episodes, config, folder)
    return RunRecord(config, episodes, folder, finished=finished)


def load_run_checkpoint(
    folder: Path, only: str | tuple[str, ...] = ""
) -> tuple[dict[str, Arrays], dict[str, Any], dict[Path, str]]:
    """Read a run's newest checkpoint as `load_checkpoint` does; its arrays are split by table."""
    arrays, meta, damaged = checkpoints.load_checkpoint(folder / CHECKPOINT_FOLDER, only)
    checkpoints.check_types(meta, checkpoints.META_TYPES, str(folder / CHECKPOINT_FOLDER))
    checkpoints.check_config(meta["run"], folder / CHECKPOINT_FOLDER)
    return split_tables(arrays), meta, damaged


def split_tables(arrays: Arrays) -> dict[str, Arrays]:
    """Arrays by table: 'episodes/return' is `return` of `episodes`."""
    tables: dict[str, Arrays] = {}
    for name, array in arrays.items():
        table, _, column = name.partition("/")
        tables.setdefault(table, {})[column] = array
    return tables
