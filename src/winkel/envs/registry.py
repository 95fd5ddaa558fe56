"""Environments by name: 'deep_sea/20', 'deep_sea:size=100', 'catch_noise/3:noise_scale=0.5'."""

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from winkel.envs.base import Environment, Episodes, Experiment, Family, Setting, Task
from winkel.envs.bsuite import (
    bandit,
    cartpole,
    catch,
    deep_sea,
    discounting_chain,
    memory_chain,
    mnist,
    mountain_car,
    umbrella_chain,
)
from winkel.envs.functional import is_jax, remake_jax
from winkel.envs.outside import remake_simulator
from winkel.envs.packs import PACKS, Packed, PackedParams, pack_of
from winkel.errors import InputError, suggest

_MODULES = (
    bandit, cartpole, catch, deep_sea, discounting_chain, memory_chain, mnist, mountain_car,
    umbrella_chain,
)  # fmt: skip
FAMILIES: Mapping[str, Family] = {
    family.name: family
    for module in _MODULES
    for family in vars(module).values()
    if isinstance(family, Family)
}
EXPERIMENTS: Mapping[str, Experiment] = {
    experiment.name: experiment for family in FAMILIES.values() for experiment in family.experiments
}
"""The 23 experiments and 468 settings of bsuite 0.3.6, in its order."""
TAGS = (
    "basic", "noise", "scale", "exploration", "credit_assignment", "memory", "generalization",
)  # fmt: skip
"""bsuite's seven capabilities, in the order of its radar chart."""

_GYMNASIUM = re.compile(r"[\w./-]+-v\d+")
_NUMBER = re.compile(r"[-+.0-9eE]+")
_OUTSIDE = re.compile(r"[^:?=]*:(?![^:?=]*=)")  # a colon that is not the one before settings
Members = Mapping[str, tuple[Environment, dict[str, Any]]]
"""By family: one environment that holds several settings, and their parameters by id."""


def is_outside(name: str) -> bool:
    """Return whether a name is that of other code's environment; 'deep_sea:size=30' is not."""
    return _OUTSIDE.match(name) is not None


def is_simulator(name: str) -> bool:
    """Return whether a name is that of a simulator."""
    return is_outside(name) and not is_jax(name)


class TaskBatch(NamedTuple):
    """Settings that share one environment: arrays of `params` have a first axis over them."""

    ids: tuple[str, ...]
    env: Environment
    params: Any
    settings: tuple[Setting, ...]


def make(task_id: str) -> Task:
    """Make the environment of an id in the shape of the original."""
    experiment, setting = parse(task_id)
    env, [params] = FAMILIES[experiment.family].build([setting])
    return _task(task_id, experiment, setting, env=env, params=params)


def make_padded(task_id: str, *, packed: bool = False) -> Task:
    """Make the environment of a bsuite id, padded to the shape of its experiment or its pack."""
    experiment, setting = parse(task_id)
    if experiment.name not in EXPERIMENTS or task_id not in experiment.ids:
        raise InputError(f"need one of bsuite's own ids to pad it with others, got {task_id!r}")
    pack = pack_of(experiment.name, setting) if packed else None
    experiments = tuple(PACKS[pack]) if pack else (experiment.name,)
    env, members = _build(experiments, pack)
    own, by_id = members[experiment.family]
    params, available = by_id[task_id], None
    if isinstance(env, Packed):
        available = own.num_actions
        # Placeholders are the first setting of each family, because zeros would be divided by.
        inner = [found.get(task_id, next(iter(found.values()))) for _, found in members.values()]
        which = np.asarray(list(members).index(experiment.family), np.int32)
        params = PackedParams(which=which, inner=tuple(inner))
    size_of = FAMILIES[experiment.family].inputs
    inputs = math.prod(own.observation.shape) if size_of is None else size_of(setting)
    shape = {"env": env, "params": params, "inputs": inputs, "available": available}
    return _task(task_id, experiment, setting, padded=not packed, pack=pack, **shape)


def remake(config: Mapping[str, Any]) -> Task:
    """Make the task of a run again from the run's config, without starting a simulator."""
    if "host" in config:
        return remake_simulator(config)
    if "jax" in config:
        return remake_jax(config)
    if "packed" in config or config.get("padded"):
        return make_padded(config["env"], packed="packed" in config)
    return make(config["env"])


def make_batch(task_ids: str | Sequence[str]) -> TaskBatch:
    """Make one environment for ids of one family, or a whole experiment, padded to the largest."""
    if isinstance(task_ids, str):
        task_ids = EXPERIMENTS[task_ids].ids if task_ids in EXPERIMENTS else [task_ids]
    ids = tuple(task_ids)
    if not ids:
        raise InputError("need at least one environment, got none")
    experiments, settings = zip(*map(parse, ids), strict=True)
    family, *others = sorted({experiment.family for experiment in experiments})
    if others:
        raise InputError(
            f"need environments of one family in a batch, got {', '.join([family, *others])}"
        )
    env, params = FAMILIES[family].build(settings)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *params)
    return TaskBatch(ids=ids, env=env, params=stacked, settings=settings)


def family_of(experiment: str) -> str:
    """Return the name of an experiment's family: 'catch' for 'catch_noise'."""
    if experiment not in EXPERIMENTS:
        raise InputError(f"no experiment {experiment!r}; there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[experiment].family


def bsuite_info(experiment: str, episodes: Episodes) -> dict[str, np.ndarray]:
    """Return what DeepMind's environment returns from `bsuite_info()` after each episode.

    Counts of episodes are integers, regrets and returns are float64 even if they are whole.
    'raw_return' is without the noise and the scale that 'return' has.
    """
    family = FAMILIES[family_of(experiment)]
    missing = [name for name in ("return", "length", *family.facts) if name not in episodes]
    if missing:
        raise InputError(
            f"episodes of {experiment} lack {', '.join(missing)}; they hold "
            f"{', '.join(episodes) or 'nothing'}"
        )
    return family.info(episodes)


@lru_cache(maxsize=8)
def _build(experiments: tuple[str, ...], pack: str | None) -> tuple[Environment, Members]:
    """Build the settings of experiments (those in a pack, if given), and an environment for all."""
    by_family: dict[str, dict[str, Any]] = {}
    for task_id in [task_id for name in experiments for task_id in EXPERIMENTS[name].ids]:
        experiment, setting = parse(task_id)
        if pack is None or pack_of(experiment.name, setting) == pack:
            by_family.setdefault(experiment.family, {})[task_id] = setting
    members = {}
    for family, settings in by_family.items():
        env, params = FAMILIES[family].build([*settings.values()])
        members[family] = env, dict(zip(settings, params, strict=True))
    first, *others = (env for env, _ in members.values())
    equal = all(eqx.tree_equal(env, first) for env in others)  # as in both deep seas
    return first if equal else Packed(envs=(first, *others)), members


def _task(task_id: str, experiment: Experiment, setting: Setting, **shape: Any) -> Task:
    family = FAMILIES[experiment.family]
    return Task(
        id=task_id,
        setting=setting,
        facts=family.facts,
        returns=partial(family.return_range, setting),
        copy=experiment.copy_of(task_id),
        num_episodes=experiment.num_episodes,
        longest_episode=family.longest_episode(setting),
        num_pairs=family.num_pairs(setting),
        **shape,
    )


def parse(task_id: str) -> tuple[Experiment, dict[str, Any]]:
    """Return the experiment that an id names, and its setting with all defaults."""
    whole, colon, overrides = task_id.partition(":")
    name, slash, index = whole.partition("/")
    if name not in (named := {*EXPERIMENTS, *FAMILIES}):
        known = [f"gym:{name}"] if _GYMNASIUM.fullmatch(task_id) else named
        hint = suggest(
            name, known, "see `winkel list envs`", lambda near: near + task_id.removeprefix(name)
        )
        raise InputError(f"unknown environment {task_id!r}; {hint}")
    experiment = EXPERIMENTS.get(name) or Experiment(name, name, 1_000, (), [{}])  # not of bsuite
    family = FAMILIES[experiment.family]
    setting: dict[str, Any] = dict(family.defaults)
    if slash:
        last = len(experiment.settings) - 1
        if index not in map(str, range(last + 1)):
            raise InputError(f"need {name}/0 … {name}/{last}, got {task_id!r}")
        setting |= experiment.settings[int(index)]
    given: dict[str, Any] = {}
    for override in overrides.split(",") if colon else ():
        key, equals, text = override.partition("=")
        if not equals or key not in family.defaults:
            raise InputError(
                f"need overrides of the form key=value with keys {', '.join(family.defaults)}, "
                f"got {override!r} in {task_id!r}"
            )
        if key in given:
            raise InputError(f"need each setting once, got {key} twice in {task_id!r}")
        given[key] = _number(text, type(family.defaults[key]), key)
    setting |= given
    for key, (least, most) in family.ranges.items():
        if not least <= setting[key] <= most:
            bound = f">= {least}" if setting[key] < least else f"<= {most}"
            raise InputError(f"need {key} {bound}, got {setting[key]} in {task_id!r}")
    return experiment, setting


def _number(text: str, kind: type, key: str) -> int | float:
    """Read a number in ASCII, without the underscores and spaces that Python allows."""
    value = float("nan")
    with contextlib.suppress(ValueError):
        value = kind(text) if _NUMBER.fullmatch(text) else value
    largest = 2**31 - 1 if kind is int else float(np.finfo(np.float32).max)
    if not abs(value) <= largest:
        wanted = "a whole number" if kind is int else "a finite number"
        raise InputError(f"need {wanted} for {key} of at most {largest:.10g}, got {text!r}")
    return value
