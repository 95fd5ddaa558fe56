"""What makes a run what it is: environment, agent, settings, seed and horizon.

The JSON of a `RunSpec` is `config.json`; the hash of that JSON is the run's fingerprint.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import numbers
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, SupportsIndex

import jax
import numpy as np

from winkel.agents import AGENTS, VARIANTS
from winkel.agents.base import Agent, Spec, check_agent, check_names, check_number
from winkel.envs.base import Task
from winkel.envs.functional import is_functional, make_jax_task
from winkel.envs.outside import make_simulator_task
from winkel.envs.registry import is_outside, is_simulator, make, remake
from winkel.errors import LARGEST_SEED, InputError, require_integer, require_type, suggest
from winkel.extensions import find, permit
from winkel.simulators.names import Factory, identify
from winkel.training.steps import UNLIMITED, Horizon, Plan
from winkel.version import __version__

MAX_SEED = 2**31 - 1
"""Largest seed of runs that are reported. `winkel search` uses the seeds above it."""
MAX_RUNS = 1_000_000
"""Most runs of one call."""

_ENV_ID = re.compile(r"([^/:]+)([/:])(.+)", re.DOTALL)
_FOLDER_NAME = re.compile(r"(?!\.)[^/\\\x00-\x1f\ud800-\udfff]+")
NOT_SETTINGS = ("fingerprint", "versions", "hardware", "status", "reason", "rows", "solved")
"""Entries of a config that may differ between two descriptions of the same run."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to record and schedule runs.

    What agents learn does not depend on it, but for `compact_lanes` and `freeze_bonus`.

    Evaluations and snapshots are made at the end of the first chunk in which they are due.
    """

    evaluate_every: int | None = None
    """Episodes between greedy evaluations (steps if the horizon counts steps); None for none."""
    evaluation_episodes: int = 1
    snapshots: int = 6
    """Snapshots of visits, value, disagreement and bonus at every countable observation."""
    checkpoint_seconds: float = 60.0
    """Least time between checkpoints. It grows so that writing takes at most 5 % of the time. 0 for
    a checkpoint after every chunk, however long that takes. There is always one at the end."""
    chunk_steps: int = 100
    """Steps between two reports to the host."""
    log_every: int = 1
    """Chunks of a run between two lines of its metrics; the last chunk has a line."""
    compact_lanes: int | None = None
    """If no run waits and enough lanes are idle, continue in fewer lanes, a multiple of this
    number, which changes rounding; None to keep all lanes. Programs are compiled meanwhile."""
    freeze_bonus: bool = False
    """Stop learning PE-DQN's bonus once β is 0 (only with GPU kernels); scores stay the same."""
    solved_streak: int | None = None
    """End a run of deep sea after so many episodes in a row with the treasure, counted once all
    linear schedules have ended. The episodes that are left count as rewarded."""

    def __post_init__(self) -> None:
        require_integer("snapshots", self.snapshots, at_least=0)
        optional = ("evaluate_every", "compact_lanes", "solved_streak")
        for name in ("evaluation_episodes", "chunk_steps", "log_every", *optional):
            if name not in optional or getattr(self, name) is not None:
                require_integer(name, getattr(self, name), at_least=1)
        seconds = self.checkpoint_seconds
        if not isinstance(seconds, numbers.Real) or not seconds >= 0:
            raise InputError(f"need checkpoint_seconds >= 0, got {seconds!r}")


DEFAULTS = Options()


@dataclass(frozen=True, kw_only=True, eq=False)
class RunSpec:
    """One run: everything that decides what it computes. Its `hyper` are plain numbers."""

    task: Task
    algorithm: str
    """Name of the agent or variant."""
    agent: Agent
    hyper: Any
    seed: int
    horizon: Horizon
    until: int | None
    """Number of episodes to stop after; schedules use the horizon."""
    label: str
    """The agent's name in folders and figures."""
    options: Options

    @property
    def end(self) -> Horizon:
        """Where the run stops."""
        return self.horizon if self.until is None else self.horizon._replace(episodes=self.until)

    @property
    def max_steps(self) -> int | None:
        """Upper bound on environment steps, or None if unknown."""
        longest, end = self.task.longest_episode, self.end
        return None if longest is None else min(int(end.episodes) * longest, int(end.steps))

    @property
    def schedules_end(self) -> int:
        """Number of episodes after which no linear schedule of the agent changes.

        Those of `*_decay` and `epsilon_steps`. DLTV's β and importance weights change until the
        horizon ends and do not count.
        """
        shares = [value for name, value in self.hyper._asdict().items() if name.endswith("_decay")]
        steps = getattr(self.hyper, "epsilon_steps", 0.0)
        by_share = max([0.0, *shares]) * int(self.horizon.episodes)
        return math.ceil(max(by_share, steps / (self.task.longest_episode or 1)))

    @property
    def record_bytes(self) -> int:
        """Memory of snapshots, 16 bytes for each state-action, and of an evaluation's returns."""
        seen, options = self.agent.spec, self.options
        chunks = (self.max_steps or UNLIMITED) // options.chunk_steps
        cells = seen.inputs * seen.num_actions if seen.one_hot else 0
        evaluated = 0 if options.evaluate_every is None else options.evaluation_episodes
        return 16 * cells * min(options.snapshots, chunks + 1) + 24 * evaluated

    @cached_property
    def config(self) -> dict[str, Any]:
        """The spec as JSON, with its fingerprint, versions and hardware."""
        names = ["evaluate_every", "evaluation_episodes", "snapshots", "chunk_steps"]
        if self.options.solved_streak:
            names.append("solved_streak")
        settings = self.task.describe() | {
            "agent": self.label,
            "seed": self.seed,
            "algorithm": self.algorithm,
            "config": dataclasses.asdict(self.agent.config),
            "hyper": self.hyper._asdict(),
            "horizon": {
                name: None if count == UNLIMITED else int(count)
                for name, count in self.horizon._asdict().items()
            },
            "until": self.until,
            "options": {name: getattr(self.options, name) for name in names},
        }
        settings = json.loads(json.dumps(settings))
        return settings | {
            "fingerprint": fingerprint(settings),
            "versions": versions(),
            "hardware": jax.devices()[0].device_kind,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "RunSpec":
        """The run that a config describes; raises `KeyError` if an entry is missing."""
        return make_spec(
            remake(config),
            config["algorithm"],
            config["config"] | config["hyper"],
            seed=config["seed"],
            **config["horizon"],
            until=config["until"],
            options=Options(**config["options"]),
            label=config["agent"],
        )

    def folder(self, root: Path) -> Path:
        """Where the run is kept."""
        return run_folder(root, self.task.id, self.label, self.seed)

    def plan(self) -> Plan:
        """The inputs of the training loop, from the beginning of the run."""
        return Plan(
            params=self.task.params,
            hyper=self.hyper,
            horizon=self.horizon,
            seed=self.seed,
            copy=self.task.copy,
            fan_in=self.task.inputs,
            stop=None if self.until is None else self.end,
            available=self.task.available,
            facts=None if self.task.pack is None else self.task.facts,
            most_steps=self.max_steps,
        )


def make_spec(
    task: Task,
    agent: str,
    fields: Mapping[str, Any],
    *,
    seed: int = 0,
    episodes: int | None = None,
    steps: int | None = None,
    until: int | None = None,
    options: Options = DEFAULTS,
    label: str | None = None,
) -> RunSpec:
    """One run of an agent or variant, with some fields of its `Config` or `Hyper` replaced.

    It ends after so many episodes or steps; after bsuite's own number of episodes by default.
    """
    if episodes is None and steps is None:
        episodes = task.num_episodes
        if episodes is None:
            raise InputError(f"need episodes or steps, the horizon, for {task.id}, got neither")
    for name, count in (("episodes", episodes), ("steps", steps), ("until", until)):
        if count is not None:
            require_integer(name, count, at_least=1, at_most=UNLIMITED - 1)
    if until is not None and until > (episodes or UNLIMITED):
        raise InputError(f"need until <= {episodes}, the horizon, got {until}")
    if options.solved_streak and ("treasure" not in task.facts or episodes is None):
        raise InputError(f"need episodes of deep sea for a solved_streak, got {task.id}")
    configured, hyper = configure(agent, fields, task)
    label = agent if label is None else label
    check_folder_name("label", label)
    return RunSpec(
        task=task,
        algorithm=agent,
        agent=configured,
        hyper=hyper,
        seed=seed,
        horizon=Horizon(episodes=episodes or UNLIMITED, steps=steps or UNLIMITED),
        until=until,
        label=label,
        options=options,
    )


def configure(name: str, fields: Mapping[str, Any], task: Task) -> tuple[Agent, Any]:
    """The agent of a name with some fields replaced, and its hyperparameters as plain numbers.

    Where it is not given, the categorical support is the environment's range of returns.
    """
    kind, variant = find_agent(name)
    check_field_names(fields, name)
    fields = {**variant, **fields}
    hints = typing.get_type_hints(kind.config_type)
    static = {f: convert(f, v, hints[f]) for f, v in fields.items() if f in hints}
    traced = {f: check_number(kind, f, v) for f, v in fields.items() if f not in hints}
    config, hyper = kind.config_type(**static), kind.hyper_type(**traced)
    if "z_min" in hyper._fields:
        if math.isnan(hyper.z_min) or math.isnan(hyper.z_max):
            low, high = task.return_range(hyper.gamma)
            hyper = hyper._replace(
                z_min=low if math.isnan(hyper.z_min) else hyper.z_min,
                z_max=high if math.isnan(hyper.z_max) else hyper.z_max,
            )
        if not hyper.z_min < hyper.z_max:
            raise InputError(f"need z_min < z_max, got [{hyper.z_min:g}, {hyper.z_max:g}]")
    return kind(config, Spec(task.env.observation, task.env.num_actions)), hyper


def make_task(env: Any, notice: Callable[[str], None] = lambda _: None, **options: Any) -> Task:
    """Make the task of what `winkel.train` takes as `env`; `options` are of simulators."""
    options = {name: value for name, value in options.items() if value is not None}
    own = isinstance(env, str) and not is_outside(env)
    if not own and not is_functional(env):
        env = identify(env)
        if isinstance(env, Factory) or is_simulator(env):
            return make_simulator_task(env, notice=notice, **options)
    for name in options:
        raise InputError(f"need {name} with a simulator such as gym:CartPole-v1, got {env}")
    return make(env) if own else make_jax_task(env, notice)


def name_agent(agent: Any, fields: dict[str, Any]) -> str:
    """The name of an agent; code that it and its projections name may be imported from now on."""
    require_type("agent", agent, str | type, "a name such as 'pe_dqn', or a class")
    if isinstance(fields.get("projections"), list | tuple):
        fields["projections"] = permit(*fields["projections"])
    return agent if isinstance(agent, str) and ":" not in agent else permit(agent)[0]


def find_agent(name: str) -> tuple[type[Agent], dict[str, Any]]:
    """Return the class of an agent or variant, and the fields that the variant sets.

    Beside the tables there are entry points and the user's own classes (`winkel.extensions`).
    """
    base, fields = VARIANTS.get(name, (name, {}))
    if base in AGENTS:
        return AGENTS[base], fields
    agent = find("agents", base, [*AGENTS, *VARIANTS])
    check_agent(name, agent)
    return agent, fields


def field_names(agent: str) -> list[str]:
    """Names of all fields of an agent's `Config` and `Hyper`."""
    kind, _ = find_agent(agent)
    return [*typing.get_type_hints(kind.config_type), *kind.hyper_type._fields]


def check_field_names(fields: Iterable[str], agent: str) -> None:
    """Raise unless each field is one of the agent's."""
    known = field_names(agent)
    for field in fields:
        if field not in known:
            hint = suggest(field, known, f"known are {', '.join(known)}")
            raise InputError(f"{agent} has no field {field!r}; {hint}")


def convert(field: str, value: Any, hint: Any) -> Any:
    """Convert to the annotated type; lists and single entries become tuples."""
    if isinstance(hint, types.UnionType):  # an optional one
        hint = next(kind for kind in typing.get_args(hint) if kind is not types.NoneType)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        check_names(field, (value,), arguments)
        return value
    if origin is tuple:
        entries = value if isinstance(value, tuple | list) else (value,)
        return tuple(convert(f"each of {field}", entry, arguments[0]) for entry in entries)
    kind, wanted = {
        bool: (bool, "true or false"),
        int: (numbers.Integral, "a whole number"),
        float: (numbers.Real, "a number"),
        str: (str, "a name"),
    }[hint]
    if not isinstance(value, kind) or (isinstance(value, bool) and hint is not bool):
        raise InputError(f"need {wanted} for {field}, got {value!r}")
    return hint(value)


def check_seeds(seeds: SupportsIndex | Iterable[SupportsIndex]) -> list[int]:
    """Seeds 0, 1, … of a number, or those given; raises unless they are different and in range."""
    if not isinstance(seeds, Iterable) or getattr(seeds, "ndim", 1) == 0:
        return list(range(require_integer("seeds", seeds, at_least=1, at_most=MAX_RUNS)))
    some = itertools.islice(seeds, MAX_RUNS + 1)
    chosen = [require_integer("each seed", seed, 0, at_most=LARGEST_SEED) for seed in some]
    if chosen and max(chosen) > MAX_SEED:
        raise InputError(
            f"need each seed <= {MAX_SEED} (those above are for tuning), got {max(chosen)}"
        )
    if not 1 <= len(set(chosen)) == len(chosen) <= MAX_RUNS:
        wanted = f"need different seeds, at least one and at most {MAX_RUNS}"
        raise InputError(f"{wanted}, got {str(chosen[:20])[:60]}")
    return chosen


def experiment_of(env_id: str) -> str:
    """Such as 'deep_sea' of 'deep_sea/3' and of 'deep_sea:size=50'."""
    return re.split("[/:]", env_id)[0]


def run_folder(root: Path, env_id: str, agent: str, seed: int) -> Path:
    """Where a run belongs: `<root>/<experiment>/<agent>/<setting>/seed-<n>`.

    The setting of 'catch_noise/3' is '3', of 'deep_sea:size=100' 'size=100', of
    'doom:my-way-home/sparse' 'my-way-home+sparse'.
    """
    parts = _ENV_ID.fullmatch(env_id)
    if parts is None:
        raise InputError(f"need an environment's id such as 'catch_noise/3', got {env_id!r}")
    experiment, separator, setting = parts.groups()
    if separator == ":":
        setting = setting.replace("/", "+")
    for what, name in (("experiment", experiment), ("agent", agent), ("setting", setting)):
        check_folder_name(what, name)
    return root / experiment / agent / setting / f"seed-{seed}"


def check_folder_name(what: str, name: str) -> None:
    """Raise unless a name can be that of a folder."""
    if not _FOLDER_NAME.fullmatch(name) or len(name.encode()) > 255:
        raise InputError(
            f"need {what} to name a folder (UTF-8, no slash, no dot in front, 1 to 255 bytes), "
            f"got {name!r:.80}"
        )


def fingerprint(settings: Mapping[str, Any]) -> str:
    """A short hash of settings, independent of the order of their fields."""
    canonical = json.dumps(settings, sort_keys=True, separators=(",", ":"), default=list)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def run_fingerprint(config: Mapping[str, Any]) -> str:
    """The hash of all entries of a run's config that are settings."""
    return fingerprint({name: x for name, x in config.items() if name not in NOT_SETTINGS})


def versions() -> dict[str, str]:
    """Versions that a result depends on."""
    return {"winkel": __version__, "jax": jax.__version__, "numpy": np.__version__}
