"""Episodes of a trained agent, step by step, wherever its world is."""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from winkel.agents.base import Agent
from winkel.envs.host import HostTask
from winkel.envs.registry import Task
from winkel.errors import InputError, require_integer
from winkel.experiments.looks import Look
from winkel.experiments.worlds import World, action_names
from winkel.runs.checkpoint import load_checkpoint
from winkel.runs.folder import CONFIG, find_runs
from winkel.runs.recording import CHECKPOINTS
from winkel.runs.trained import Arrays, Trained, encoded, load
from winkel.types import Clock

Policy = Literal["greedy", "exploring"]
MOST_STEPS = 10_000
"""Of an episode, by default: a greedy policy may stand still for ever."""
RUNNING, ENDED, CUT = 0, 1, 2
"""How an episode stands at a moment."""
_COLUMNS = ("value", "bonus", "action", "return", "episode", "step", "state")


def load_one(
    path: Path, seed: int | None = None, mnist_dir: Path | None = None
) -> tuple[Trained, Path]:
    """The run of a seed (the first by default) under a folder, and its own folder."""
    trained = load(path, mnist_dir).of(seed)
    if (path / CONFIG).is_file() or (path / CHECKPOINTS).is_dir():
        return trained, path
    name = f"seed-{trained.config['seed']}"
    own = path / name
    folder = own if own.is_dir() else next(run for run in find_runs(path) if run.name == name)
    return trained, folder


def clock_of(folder: Path) -> Clock:
    """How far a run is, by its newest checkpoint."""
    arrays = load_checkpoint(folder / CHECKPOINTS).arrays
    return Clock(**{name: jnp.asarray(arrays[f"state/run.clock.{name}"]) for name in Clock._fields})


def seen_after(trained: Trained, world: World, steps: int) -> np.ndarray:
    """The observation after so many greedy steps from the start of an episode."""
    trained, obs = _on_device(trained), world.reset()
    policy = trained.policy()
    for step in range(steps):
        came = world.step(policy(obs))
        if came.boundary:
            raise InputError(
                f"need fewer than {step + 1} steps, at which the greedy episode ends, got {steps}"
            )
        obs = came.obs
    return obs


def play(
    trained: Trained,
    task: Task | HostTask,
    world: World,
    *,
    episodes: int = 1,
    clock: Clock | None = None,
    seed: int = 0,
    every: int = 1,
    most_steps: int = MOST_STEPS,
    progress: Callable[[int], None] = lambda _: None,
) -> Arrays:
    """Episodes as arrays over moments: each observation that was acted on, and each last one.

    Args:
        trained: the run.
        task: what it was made in.
        world: where to play.
        episodes: how many.
        clock: act as the agent does when it learns and is so far; greedily without one.
        seed: of what the agent draws to explore.
        every: pictures are kept of one moment of so many in an episode, and of its last.
        most_steps: of an episode, which is cut there.
        progress: gets the number of steps so far.

    Returns:
        `value` and `bonus` [moments, actions] (NaN at last ones), `action` (-1 at last ones),
        `return` so far, `episode` from 1, `step` from 0, `state` (`RUNNING`, `ENDED` or `CUT`);
        `shown`, the moments that have a picture, and those as `pictures` or `numbers`; `actions`,
        their names, where the world has some.
    """
    for name, count in (("episodes", episodes), ("every", every), ("most_steps", most_steps)):
        require_integer(name, count, at_least=1)
    trained = _on_device(trained)
    chooser = _Chooser(trained, clock, seed)
    film = _Film(_look(trained, task), every)
    obs, made, nothing = world.reset(), 0, np.full(0, np.nan)
    for episode in range(1, episodes + 1):
        total, state, step, seen = 0.0, RUNNING, 0, obs
        chooser.begin()
        while state == RUNNING:
            estimates = trained.estimates(obs)
            value, bonus = np.asarray(estimates.value), np.asarray(estimates.bonus)
            action = chooser(obs, value)
            film.add(obs, value, bonus, action, total, episode, step, state)
            came = world.step(action)
            seen, obs = came.next_obs, came.obs
            total, step, made = total + came.reward, step + 1, made + 1
            state = ENDED if came.boundary else CUT if step >= most_steps else RUNNING
            nothing = np.full_like(value, np.nan)
            progress(made)
        film.add(seen, nothing, nothing, -1, total, episode, step, state)
        if state == CUT and episode < episodes:
            obs = world.reset()
    return film.arrays() | action_names(task)


@dataclasses.dataclass
class _Film:
    """Moments as they come, with pictures of some."""

    look: Look
    every: int
    rows: dict[str, list[Any]] = dataclasses.field(
        default_factory=lambda: {name: [] for name in _COLUMNS}
    )
    shown: list[int] = dataclasses.field(default_factory=list)

    def add(self, obs: np.ndarray, *cells: Any) -> None:
        """A moment: what is seen, and the rest by `_COLUMNS`."""
        moment = dict(zip(_COLUMNS, cells, strict=True))
        if moment["step"] % self.every == 0 or moment["state"] != RUNNING:
            self.shown.append(len(self.rows["step"]))
            self.look.add(obs)
        for name, cell in moment.items():
            self.rows[name].append(cell)

    def arrays(self) -> Arrays:
        """All of it."""
        columns = {name: np.asarray(cells) for name, cells in self.rows.items()}
        return columns | {"shown": np.asarray(self.shown)} | self.look.arrays()


def _look(trained: Trained, task: Task | HostTask) -> Look:
    """With what pads observations left out."""
    size = task.setting.get("size")
    return Look(
        task.env.observation,
        side=None if size is None else int(size),
        inputs=None if trained.packing is None else trained.packing.inputs,
    )


def _on_device(trained: Trained) -> Trained:
    """With what was learned where it is used, once and not at every step."""
    return dataclasses.replace(trained, learner=jax.device_put(trained.learner))


class _Chooser:
    """Chooses actions: those of highest value, or with a clock as the agent explores then."""

    def __init__(self, trained: Trained, clock: Clock | None, seed: int):
        self._trained, self._clock, self._time, self._first = trained, clock, 0, True
        key_actor, self._key = (jax.random.fold_in(jax.random.key(seed), use) for use in (1, 2))
        self._actor = trained.agent.init_actor(key_actor)

    def begin(self) -> None:
        """An episode."""
        self._first = True

    def __call__(self, obs: np.ndarray, value: np.ndarray) -> int:
        if self._clock is None:
            return int(np.argmax(value))
        trained, packing = self._trained, self._trained.packing
        actions = None if packing is None else packing.actions
        self._time += 1
        action, self._actor = _act(
            trained.agent,
            trained.learner,
            self._actor,
            jnp.asarray(encoded(trained.agent.spec.observation, obs)),
            jnp.asarray(self._first),
            self._clock,
            trained.hyper,
            jax.random.fold_in(self._key, self._time),
            None if actions is None else jnp.asarray(actions),
        )
        self._first = False
        return int(action)


@partial(jax.jit, static_argnames="agent")
def _act(
    agent: Agent,
    learner: Any,
    actor: Any,
    obs: Array,
    first: Array,
    clock: Clock,
    hyper: Any,
    key: PRNGKeyArray,
    available: Int[Array, ""] | None,
) -> tuple[Array, Any]:
    spec = agent.spec._replace(available=available)
    agent = dataclasses.replace(agent, spec=spec)  # type: ignore[type-var]
    decision, actor = agent.act(learner, actor, obs, first, clock, hyper, key)
    return decision.action, actor
