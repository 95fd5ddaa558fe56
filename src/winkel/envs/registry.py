"""Environments by name: 'deep_sea/20', 'deep_sea:size=100', 'catch_noise/3:noise_scale=0.5'."""

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from winkel.envs.base import Environment
from winkel.envs.bsuite.families import FAMILIES
from winkel.envs.bsuite.info import FACTS
from winkel.envs.bsuite.packs import PACKS
from winkel.envs.bsuite.ranges import support
from winkel.envs.bsuite.sweep import EXPERIMENTS, Experiment
from winkel.envs.host import HostTask, remade
from winkel.envs.packed import Packed, PackedParams
from winkel.errors import InputError

_ID = re.compile(r"(?P<name>[^/:]+)(/(?P<index>[^:]*))?(:(?P<overrides>.*))?")


class Packing(NamedTuple):
    """What a setting really is, where it is packed with others.

    Attributes:
        pack: which settings it shares a shape with, a name in `PACKS`.
        inputs: numbers that its observations really have.
        actions: how many it really has; None where all in the pack have as many.
        facts: what it records of an episode.
    """

    pack: str
    inputs: int
    actions: int | None
    facts: tuple[str, ...]


class Task(NamedTuple):
    """An environment with the parameters of one setting.

    Attributes:
        id: the name it was made from.
        env: its functions.
        params: what this setting has; the last argument of `reset` and `step`.
        setting: the same as plain numbers.
        num_episodes: how long bsuite runs it.
        padded: whether it has the shape of its whole experiment.
        packing: what it really is, where it has the shape of a whole pack.
    """

    id: str
    env: Environment
    params: Any
    setting: Mapping[str, int | float]
    num_episodes: int
    padded: bool = False
    packing: Packing | None = None

    @property
    def inputs(self) -> int:
        """Numbers in an observation of the setting, not counting what pads it."""
        return true_inputs(self.id, self.env) if self.packing is None else self.packing.inputs

    @property
    def compiled(self) -> bool:
        """Whether it runs inside the compiled program."""
        return True

    @property
    def range_origin(self) -> str | None:
        """How `return_range` was estimated, or None if it was not."""
        return None

    @property
    def longest_episode(self) -> int:
        """Upper bound on the steps of an episode."""
        return longest_episode(self.id)

    @property
    def num_pairs(self) -> int | None:
        """Number of state-action pairs that episodes can visit, or None if unknown."""
        size = self.setting.get("size")
        return None if size is None else int(size * (size + 1) / 2 * self.env.num_actions)

    def return_range(self, gamma: float) -> tuple[float, float]:
        """Return the range of discounted returns."""
        experiment, setting = parse(self.id)
        return support(experiment.family, setting, gamma)

    def describe(self) -> dict[str, Any]:
        """Return the entries of a run's config from which `remake` makes it again."""
        entries = {"env": self.id, "setting": dict(self.setting), "padded": self.padded}
        if self.packing is None:
            return entries
        inputs = math.prod(self.env.observation.shape)
        packed = {"pack": self.packing.pack, "inputs": inputs, "actions": self.env.num_actions}
        return entries | {"packed": packed}

    @property
    def copy(self) -> int:
        """Which of bsuite's equal settings it is: 3 for cartpole/3, since all cartpoles are equal.

        With the same seed they are to be different runs.
        """
        experiment, _ = parse(self.id)
        if self.id not in experiment.ids:
            return 0
        return experiment.copy_of(experiment.ids.index(self.id))


class TaskBatch(NamedTuple):
    """Settings that share one environment: every array of `params` has a first axis over them."""

    ids: tuple[str, ...]
    env: Environment
    params: Any
    settings: tuple[Mapping[str, int | float], ...]
    num_episodes: tuple[int, ...]


def make(task_id: str, mnist_dir: Path | None = None) -> Task:
    """The environment of one id, in the shape of the original."""
    batch = make_batch([task_id], mnist_dir)
    return Task(
        id=task_id,
        env=batch.env,
        params=jax.tree.map(lambda x: np.asarray(x[0]), batch.params),
        setting=batch.settings[0],
        num_episodes=batch.num_episodes[0],
    )


def make_padded(task_id: str, mnist_dir: Path | None = None) -> Task:
    """The environment of an official id in the one shape that all of its experiment share."""
    experiment, _ = parse(task_id)
    if task_id not in experiment.ids:
        raise InputError(f"need one of bsuite's own ids to pad it with the others, got {task_id!r}")
    batch, at = _experiment(experiment.name, mnist_dir), experiment.ids.index(task_id)
    return Task(
        id=task_id,
        env=batch.env,
        params=jax.tree.map(lambda x: np.asarray(x[at]), batch.params),
        setting=batch.settings[at],
        num_episodes=batch.num_episodes[at],
        padded=True,
    )


@lru_cache(maxsize=4)
def _experiment(name: str, mnist_dir: Path | None) -> TaskBatch:
    return make_batch(name, mnist_dir)


def make_packed(task_id: str, mnist_dir: Path | None = None) -> Task:
    """The environment of an official id in the one shape that all of its pack share."""
    experiment, setting = parse(task_id)
    if task_id not in experiment.ids:
        raise InputError(f"need one of bsuite's own ids to pack it with others, got {task_id!r}")
    pack = next(pack for pack in PACKS.values() if pack.holds(experiment.name, setting))
    members, joined = _pack(pack.name, mnist_dir)
    which = [member.family for member in members].index(experiment.family)
    own = members[which]
    at = own.ids.index(task_id)
    inner = tuple(
        member.params[at if member is own else 0] for member in members
    )  # placeholders are the first of their family: zeros would be divided by
    packed = isinstance(joined, Packed)
    return Task(
        id=task_id,
        env=joined,
        params=PackedParams(which=np.asarray(which, np.int32), inner=inner)
        if packed
        else own.params[at],
        setting=setting,
        num_episodes=experiment.num_episodes,
        packing=Packing(
            pack=pack.name,
            inputs=true_inputs(task_id, own.env),
            actions=own.env.num_actions if packed else None,
            facts=FACTS[experiment.family],
        ),
    )


class _Member(NamedTuple):
    """The settings of one family in a pack."""

    family: str
    ids: tuple[str, ...]
    env: Environment
    params: list[Any]


@lru_cache(maxsize=8)
def _pack(name: str, mnist_dir: Path | None) -> tuple[list[_Member], Environment]:
    """Each family of a pack, and all of them as one environment."""
    by_family: dict[str, list[str]] = {}
    for task_id in PACKS[name].ids:
        by_family.setdefault(parse(task_id)[0].family, []).append(task_id)
    members = []
    for family, ids in by_family.items():
        env, params = FAMILIES[family].build([parse(i)[1] for i in ids], mnist_dir)
        members.append(_Member(family, tuple(ids), env, params))
    alike = len(members) == 1 or PACKS[name].sizes is not None  # calm and windy seas are one class
    return members, members[0].env if alike else Packed(envs=tuple(m.env for m in members))


def remake(config: Mapping[str, Any], mnist_dir: Path | None = None) -> Task | HostTask:
    """Make the task of a run again from the run's config, without starting a simulator."""
    if "host" in config:
        return remade(config)
    if "packed" in config:
        return make_packed(config["env"], mnist_dir)
    return (make_padded if config.get("padded") else make)(config["env"], mnist_dir)


def longest_episode(task_id: str) -> int:
    """Steps that an episode can have."""
    experiment, setting = parse(task_id)
    return FAMILIES[experiment.family].longest(setting)


def make_batch(task_ids: str | Sequence[str], mnist_dir: Path | None = None) -> TaskBatch:
    """Several ids, or all settings of one experiment, as one environment with stacked parameters.

    Ids must be of one family: catch, catch_noise and catch_scale are; deep_sea and catch are not.
    Shapes that differ (sizes, lengths, distractors, bits) are padded to the largest.
    """
    if isinstance(task_ids, str):
        task_ids = EXPERIMENTS[task_ids].ids if task_ids in EXPERIMENTS else [task_ids]
    ids = tuple(task_ids)
    if not ids:
        raise InputError("need at least one environment, got none")
    parsed = [parse(task_id) for task_id in ids]
    families = sorted({experiment.family for experiment, _ in parsed})
    if len(families) > 1:
        raise InputError(f"need environments of one family in a batch, got {', '.join(families)}")
    settings = [setting for _, setting in parsed]
    env, params = FAMILIES[families[0]].build(settings, mnist_dir)
    return TaskBatch(
        ids=ids,
        env=env,
        params=jax.tree.map(lambda *leaves: np.stack(leaves), *params),
        settings=tuple(settings),
        num_episodes=tuple(experiment.num_episodes for experiment, _ in parsed),
    )


def true_inputs(task_id: str, env: Environment) -> int:
    """Numbers in an observation of the setting, not counting what pads it in a batch."""
    experiment, setting = parse(task_id)
    inputs = FAMILIES[experiment.family].inputs
    return math.prod(env.observation.shape) if inputs is None else inputs(setting)


def parse(task_id: str) -> tuple[Experiment, dict[str, Any]]:
    """The experiment that an id names, and its setting with all defaults filled in."""
    match = _ID.fullmatch(task_id)
    name = match["name"] if match else task_id
    if match is None or name not in EXPERIMENTS:
        near = difflib.get_close_matches(name, EXPERIMENTS, n=3, cutoff=0.4)
        hint = f"; did you mean {', '.join(near)}?" if near else "; see `winkel list envs`"
        raise InputError(f"unknown environment {task_id!r}{hint}")
    experiment = EXPERIMENTS[name]
    family = FAMILIES[experiment.family]
    setting: dict[str, Any] = dict(family.defaults)
    if match["index"] is not None:
        count = len(experiment.settings)
        if not match["index"].isdecimal() or int(match["index"]) >= count:
            raise InputError(f"need {name}/0 … {name}/{count - 1}, got {task_id!r}")
        setting |= experiment.settings[int(match["index"])]
    for override in filter(None, (match["overrides"] or "").split(",")):
        key, equals, text = override.partition("=")
        if not equals or key not in family.defaults:
            raise InputError(
                f"need overrides of the form key=value with keys {', '.join(family.defaults)}, "
                f"got {override!r} in {task_id!r}"
            )
        setting[key] = _number(text, type(family.defaults[key]), key)
    for key, least in family.at_least.items():
        if setting[key] < least:
            raise InputError(f"need {key} >= {least}, got {setting[key]} in {task_id!r}")
    return experiment, setting


def _number(text: str, kind: type, key: str) -> int | float:
    try:
        value = kind(text)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        wanted = "a whole number" if kind is int else "a finite number"
        raise InputError(f"need {wanted} for {key}, got {text!r}")
    return value
