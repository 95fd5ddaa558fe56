"""What training leaves: records, a policy, and what the agent believes."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from winkel.agents.base import Agent
from winkel.envs.host import remade
from winkel.envs.registry import Packing, remake
from winkel.errors import InputError
from winkel.files import load_all
from winkel.runs.checkpoint import load_checkpoint, unpack
from winkel.runs.folder import CONFIG, find_runs, load_run
from winkel.runs.recording import CHECKPOINTS, EVALUATIONS, SNAPSHOTS
from winkel.runs.shapes import shapes_of
from winkel.runs.spec import configure
from winkel.training.steps import UNLIMITED, Horizon
from winkel.types import AnyArray, Estimates, Image, Observation, OneHot

Arrays = dict[str, np.ndarray]
Policy = Callable[[Any], int]


@dataclass(frozen=True, eq=False)
class Trained:
    """One run: an agent in an environment with one seed.

    Attributes:
        config: all its settings, and how it ended.
        episodes: a row for every episode: return, length, env_steps at its end, facts.
        evaluations: a row for every greedy evaluation.
        snapshots: a row for every look at all countable observations.
        agent: the algorithm.
        hyper: its hyperparameters.
        learner: what it has learned.
        packing: what the setting really is, where it was packed with others.
    """

    config: dict[str, Any]
    episodes: Arrays
    evaluations: Arrays
    snapshots: Arrays
    agent: Agent
    hyper: Any
    learner: Any
    packing: Packing | None = None

    def policy(self) -> Policy:
        """The greedy policy: a function from an observation to an action."""
        return lambda obs: int(np.argmax(self.estimates(obs).value))

    def estimates(self, obs: Any) -> Estimates:
        """What the agent believes about an observation, given as the environment shows it.

        A one-hot observation may be the grid or the index of its one. That of a run which was
        packed with others may be the setting's own, or as padded as the agent saw it.
        """
        observation = self.agent.spec.observation
        array, inputs = np.asarray(obs), self.agent.spec.inputs
        if (
            self.packing is not None
            and not isinstance(observation, OneHot)
            and array.size == self.packing.inputs
            and array.shape != observation.shape
        ):
            array = np.pad(array.ravel(), (0, inputs - array.size))
        encoded_obs = encoded(observation, array)
        available = None if self.packing is None else self.packing.actions
        found = _estimates(
            self.agent,
            self.learner,
            jnp.asarray(encoded_obs),
            self.hyper,
            None if available is None else jnp.asarray(available),
        )
        found = jax.tree.map(np.asarray, found)
        if available is None:
            return found
        there = slice(available)  # those that the setting has
        return Estimates(
            value=found.value[there],
            members=jax.tree.map(lambda x: x[:, there], found.members),
            disagreement=found.disagreement[there],
            bonus=found.bonus[there],
        )


@dataclass(frozen=True, eq=False)
class Training:
    """Several runs of one agent in one environment, in the order of their seeds."""

    runs: tuple[Trained, ...]

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
        """What the agent of a seed, the first by default, believes about an observation."""
        return self.of(seed).estimates(obs)

    def of(self, seed: int | None = None) -> Trained:
        """The run of a seed, the first by default."""
        seeds = [run.config["seed"] for run in self.runs]
        if seed is not None and seed not in seeds:
            raise InputError(f"need a seed from {seeds}, got {seed}")
        return self.runs[0 if seed is None else seeds.index(seed)]

    def _table(self, name: str) -> Arrays:
        parts = []
        for run in self.runs:
            rows: Arrays = getattr(run, name)
            if not rows:
                continue
            count = len(next(iter(rows.values())))
            index = {
                "seed": np.full(count, run.config["seed"]),
                "episode": np.arange(1, count + 1),
            }
            parts.append((index if name == "episodes" else {"seed": index["seed"]}) | rows)
        if not parts:
            return {}
        return {column: np.concatenate([part[column] for part in parts]) for column in parts[0]}


def load(path: str | Path, mnist_dir: Path | None = None) -> Training:
    """Runs from disk: the folder of one run, or one that holds runs of one agent and environment.

    A run that has not ended is loaded as its newest checkpoint has it.
    """
    path = Path(path)
    if (path / CONFIG).is_file() or (path / CHECKPOINTS).is_dir():
        return Training(runs=(load_trained(path, mnist_dir),))
    folders = [seed for seed in sorted(path.glob("seed-*")) if seed.is_dir()] or find_runs(path)
    loaded = (load_trained(folder, mnist_dir) for folder in folders)
    runs = sorted(loaded, key=lambda run: run.config["seed"])
    kinds = sorted({(run.config["env"], run.config["agent"]) for run in runs})
    if len(kinds) > 1:
        raise InputError(
            f"need runs of one agent in one environment under {path}, got "
            f"{', '.join(f'{agent} in {env}' for env, agent in kinds[:4])}"
        )
    return Training(runs=tuple(runs))


def load_trained(folder: Path, mnist_dir: Path | None = None) -> Trained:
    """One run from its folder."""
    saved = load_checkpoint(folder / CHECKPOINTS)
    tables: dict[str, Arrays] = {"episodes": {}, "evaluations": {}, "snapshots": {}, "state": {}}
    for name, array in saved.arrays.items():
        table, _, column = name.partition("/")
        tables.setdefault(table, {})[column] = array
    config = saved.meta.get("run", {})
    if (folder / CONFIG).is_file():
        run = load_run(folder)
        config, tables["episodes"] = run.config, run.episodes
        for table, file in (("evaluations", EVALUATIONS), ("snapshots", SNAPSHOTS)):
            tables[table] = load_all(folder / file) if (folder / file).is_file() else {}
    try:
        task = remade(config) if "host" in config else remake(config, mnist_dir)
        fields = config["config"] | config["hyper"]
        configured = configure(config["algorithm"], fields, task)
        horizon = Horizon(
            **{k: UNLIMITED if v is None else v for k, v in config["horizon"].items()}
        )
    except (KeyError, TypeError) as error:
        raise InputError(f"{folder} was not made by `winkel train`: it lacks {error}") from error
    lane = unpack(tables["state"], shapes_of(task, configured, horizon))
    return Trained(
        config=config,
        episodes=tables["episodes"],
        evaluations=tables["evaluations"],
        snapshots=tables["snapshots"],
        agent=configured.agent,
        hyper=configured.hyper,
        learner=lane.learner,
        packing=task.packing,
    )


def encoded(observation: Observation, obs: Any) -> AnyArray:
    """An observation as the agent's network takes it."""
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
    agent = dataclasses.replace(agent, spec=spec)  # type: ignore[type-var]
    return agent.estimates(learner, obs, hyper)
