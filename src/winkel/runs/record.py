"""The results of a run, and the folder that keeps it.

`<root>/<experiment>/<agent>/<setting>/seed-<n>` holds `config.json` (written last: a folder with it
is complete), `episodes.npz`, `evaluations.npz`, `snapshots.npz`, `metrics.jsonl` and `checkpoint/`.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from winkel.agents.base import Agent
from winkel.envs.base import Task
from winkel.errors import InputError
from winkel.files import load_all, load_arrays, save_arrays, write_text
from winkel.runs.checkpoint import load_checkpoint
from winkel.runs.spec import RunSpec, check_folder_name
from winkel.types import AnyArray, Clock, Estimates, Image, Observation, OneHot

Arrays = dict[str, np.ndarray]
Policy = Callable[[Any], int]
"""An action from an observation."""

CONFIG, EPISODES, METRICS, CHECKPOINTS = (
    "config.json",
    "episodes.npz",
    "metrics.jsonl",
    "checkpoint",
)
TABLES = {"evaluations": "evaluations.npz", "snapshots": "snapshots.npz"}
_REQUIRED = ("return", "length")


@dataclass(frozen=True, eq=False)
class RunRecord:
    """The results of one run.

    Attributes:
        config: the JSON of its `RunSpec`, and the outcome: `status` is 'finished' or 'failed'.
        episodes: a row for every episode: return, length, env_steps at its end, facts.
        path: the folder that keeps it; None if it is in memory only.
        finished: whether it has ended; if not, it is as its newest checkpoint has it.
        tables: evaluations and snapshots that are in memory; others are read from the folder.
        spec: what was run; None unless the run was trained or loaded with its agent.
        learner: what the agent has learned.
        clock: how far training is.
    """

    config: dict[str, Any]
    episodes: Arrays
    path: Path | None = None
    finished: bool = True
    tables: Mapping[str, Arrays] = field(default_factory=dict)
    spec: RunSpec | None = None
    learner: Any = None
    clock: Clock | None = None

    @property
    def folder(self) -> Path:
        """The folder that keeps it."""
        assert self.path is not None
        return self.path

    @property
    def experiment(self) -> str:
        """Such as 'deep_sea' of 'deep_sea/3' and of 'deep_sea:size=50'."""
        return self.config["env"].replace(":", "/").split("/")[0]

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

    @property
    def hyper(self) -> Any:
        """The agent's hyperparameters."""
        assert self.spec is not None
        return self.spec.hyper

    def policy(self) -> Policy:
        """The greedy policy: a function from an observation to an action."""
        return lambda obs: int(np.argmax(self.estimates(obs).value))

    def estimates(self, obs: Any) -> Estimates:
        """The agent's estimates for an observation as the environment gives it.

        A one-hot observation may be the grid or the index of its one. The observation of a packed
        run may be the setting's own, or padded as the agent saw it.
        """
        spec, num_actions, array = self.agent.spec, self.task.available, np.asarray(obs)
        if self.task.pack and array.size == self.task.inputs and not spec.one_hot:
            array = np.pad(array.ravel(), (0, spec.inputs - array.size))
        found = _estimates(
            self.agent,
            self.learner,
            jnp.asarray(encode_observation(spec.observation, array)),
            self.hyper,
            None if num_actions is None else jnp.asarray(num_actions),
        )
        found = jax.tree.map(np.asarray, found)
        if num_actions is None:
            return found
        return Estimates(
            value=found.value[:num_actions],
            members=jax.tree.map(lambda x: x[:, :num_actions], found.members),
            disagreement=found.disagreement[:num_actions],
            bonus=found.bonus[:num_actions],
        )

    def _table(self, name: str) -> Arrays:
        if name in self.tables or self.path is None:
            return self.tables.get(name, {})
        if not self.finished:
            return read_checkpoint(self.folder, name)[0]
        path = self.folder / TABLES[name]
        return load_all(path) if path.is_file() else {}


def encode_observation(observation: Observation, obs: Any) -> AnyArray:
    """Convert an observation to what the agent's network takes; raise if it cannot be one."""
    array = np.asarray(obs)
    if not isinstance(observation, OneHot):
        if array.shape != observation.shape:
            raise InputError(
                f"need an observation of shape {list(observation.shape)}, got {list(array.shape)}"
            )
        return array.astype(np.uint8 if isinstance(observation, Image) else np.float32)
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
    spec = agent.spec._replace(available=available)
    agent = dataclasses.replace(agent, spec=spec)
    return agent.estimates(learner, obs, hyper)


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


def save_run(folder: Path, record: RunRecord) -> None:
    """Save a run that has ended. The config of an older run goes first, this run's comes last."""
    _check_config(record.config, f"the config of {folder}")
    _check_episodes(record.episodes, f"the episodes of {folder}")
    try:
        text = json.dumps(record.config, indent=2) + "\n"
    except (TypeError, ValueError) as error:
        raise InputError(f"cannot write the config of {folder} as JSON: {error}") from error
    if folder.is_dir():
        (folder / CONFIG).unlink(missing_ok=True)
    for name, rows in record.tables.items():
        if rows:
            save_arrays(folder / TABLES[name], rows)
    save_arrays(folder / EPISODES, record.episodes)
    write_text(folder / CONFIG, text)


def load_run(folder: Path) -> RunRecord:
    """Load a run that has ended, without its agent."""
    path = folder / CONFIG
    try:
        config = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"{folder} holds no complete run: no {CONFIG}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error})") from error
    _check_config(config, str(path))
    load_arrays(folder / EPISODES, _REQUIRED)
    episodes = load_all(folder / EPISODES)
    _check_episodes(episodes, str(folder / EPISODES))
    return RunRecord(config, episodes, folder)


def load_unfinished(folder: Path) -> RunRecord:
    """Load a run that has not ended, as its newest checkpoint has it, without its agent."""
    episodes, config = read_checkpoint(folder, "episodes")
    _check_config(config, f"the config of {folder}")
    _check_episodes(episodes, f"the episodes of {folder}")
    return RunRecord(config, episodes, folder, finished=False)


def read_checkpoint(folder: Path, table: str) -> tuple[Arrays, dict[str, Any]]:
    """Read one table of a run's newest checkpoint, and the run's config."""
    saved = load_checkpoint(folder / CHECKPOINTS, only=f"{table}/")
    return split_tables(saved.arrays).get(table, {}), saved.meta.get("run", {})


def split_tables(arrays: Arrays) -> dict[str, Arrays]:
    """The arrays of a checkpoint by table: 'episodes/return' is `return` of `episodes`."""
    tables: dict[str, Arrays] = {}
    for name, array in arrays.items():
        table, _, column = name.partition("/")
        tables.setdefault(table, {})[column] = array
    return tables


def _check_config(config: object, where: str) -> None:
    if not isinstance(config, dict):
        raise InputError(f"{where} must be an object with env, agent and seed, got {config!r:.80}")
    for key, kind, right in (
        ("env", str, "an id such as 'catch/0'"),
        ("agent", str, "a name"),
        ("seed", int, "a whole number"),
    ):
        if key not in config:
            raise InputError(f"{where} lacks {key}; it holds {', '.join(config) or 'nothing'}")
        if not isinstance(config[key], kind) or isinstance(config[key], bool):
            raise InputError(f"{where} needs {key} to be {right}, got {config[key]!r:.80}")
    check_folder_name("agent", config["agent"])


def _check_episodes(episodes: Arrays, where: str) -> None:
    missing = [name for name in _REQUIRED if name not in episodes]
    if missing:
        raise InputError(f"{where} lack {', '.join(missing)}")
    shapes = {name: array.shape for name, array in episodes.items()}
    if len(set(shapes.values())) != 1 or any(len(shape) != 1 for shape in shapes.values()):
        shown = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        raise InputError(f"{where} must be equally long arrays over episodes, got {shown}")
