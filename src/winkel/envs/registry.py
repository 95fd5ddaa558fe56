"""Environments by name: 'deep_sea/20', 'deep_sea:size=100', 'catch_noise/3:noise_scale=0.5'."""

import difflib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from winkel.envs.base import Environment
from winkel.envs.bsuite.families import FAMILIES
from winkel.envs.bsuite.family import Family
from winkel.envs.bsuite.packs import PACKS
from winkel.envs.bsuite.sweep import EXPERIMENTS, Experiment
from winkel.envs.packed import Packed, PackedParams
from winkel.envs.simulator_task import remake_simulator
from winkel.envs.task import CompiledTask, Packing, Task, TaskBatch
from winkel.errors import InputError

_ID = re.compile(r"(?P<name>[^/:]+)(/(?P<index>[^:]*))?(:(?P<overrides>.*))?")
_SIMULATOR = re.compile(r"[^:?=]*:(?![^:?=]*=)")  # a colon that is not the one before settings


def is_simulator(name: str) -> bool:
    """Return whether a name is that of a simulator; 'deep_sea:size=30' is not."""
    return _SIMULATOR.match(name) is not None


def make(task_id: str, mnist_dir: Path | None = None) -> CompiledTask:
    """Make the environment of an id in the shape of the original."""
    experiment, setting = parse(task_id)
    env, [params] = FAMILIES[experiment.family].build([setting], mnist_dir)
    return _task(task_id, experiment, setting, env, params)


def make_padded(task_id: str, mnist_dir: Path | None = None) -> CompiledTask:
    """Make the environment of a bsuite id, padded to the shape of its experiment."""
    experiment, setting = _parse_official(task_id)
    [member] = _members(experiment.ids, mnist_dir)
    params = member.params[experiment.ids.index(task_id)]
    return _task(task_id, experiment, setting, member.env, params, padded=True)


def make_packed(task_id: str, mnist_dir: Path | None = None) -> CompiledTask:
    """Make the environment of a bsuite id, padded to the shape of its pack."""
    experiment, setting = _parse_official(task_id)
    pack = next(pack for pack in PACKS.values() if pack.holds(experiment.name, setting))
    members, env = _pack(pack.name, mnist_dir)
    which = [member.family.name for member in members].index(experiment.family)
    own = members[which]
    params = own.params[own.ids.index(task_id)]
    packing = Packing(
        pack=pack.name,
        inputs=own.family.num_inputs(setting, own.env),
        actions=own.env.num_actions if isinstance(env, Packed) else None,
        facts=own.family.facts,
    )
    if isinstance(env, Packed):
        # Placeholders are the first setting of each family, because zeros would be divided by.
        inner = tuple(params if member is own else member.params[0] for member in members)
        params = PackedParams(which=np.asarray(which, np.int32), inner=inner)
    return _task(task_id, experiment, setting, env, params, packing=packing)


def remake(config: Mapping[str, Any], mnist_dir: Path | None = None) -> Task:
    """Make the task of a run again from the run's config, without starting a simulator."""
    if "host" in config:
        return remake_simulator(config)
    if "packed" in config:
        return make_packed(config["env"], mnist_dir)
    return (make_padded if config.get("padded") else make)(config["env"], mnist_dir)


def make_batch(task_ids: str | Sequence[str], mnist_dir: Path | None = None) -> TaskBatch:
    """Make one environment with stacked parameters for several ids or a whole experiment.

    All ids must be of one family: catch, catch_noise and catch_scale are; deep_sea and catch are
    not. Shapes that differ (sizes, lengths, distractors, bits) are padded to the largest.
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


class _Member(NamedTuple):
    """Settings of one family, in one shape that holds all of them."""

    family: Family
    ids: tuple[str, ...]
    env: Environment
    params: list[Any]


@lru_cache(maxsize=8)
def _pack(name: str, mnist_dir: Path | None) -> tuple[tuple[_Member, ...], Environment]:
    """Build the families of a pack, and one environment that holds all of them."""
    members = _members(PACKS[name].ids, mnist_dir)
    envs = tuple(member.env for member in members)
    equal = all(eqx.tree_equal(env, envs[0]) for env in envs[1:])  # as in both deep seas
    return members, envs[0] if equal else Packed(envs=envs)


@lru_cache(maxsize=8)
def _members(ids: tuple[str, ...], mnist_dir: Path | None) -> tuple[_Member, ...]:
    """Build settings family by family, in the order in which families first occur."""
    by_family: dict[str, dict[str, Any]] = {}
    for task_id in ids:
        experiment, setting = parse(task_id)
        by_family.setdefault(experiment.family, {})[task_id] = setting
    return tuple(
        _Member(FAMILIES[name], tuple(own), *FAMILIES[name].build([*own.values()], mnist_dir))
        for name, own in by_family.items()
    )


def _task(
    task_id: str,
    experiment: Experiment,
    setting: Mapping[str, Any],
    env: Environment,
    params: Any,
    *,
    padded: bool = False,
    packing: Packing | None = None,
) -> CompiledTask:
    family = FAMILIES[experiment.family]
    return CompiledTask(
        id=task_id,
        env=env,
        params=params,
        family=family,
        setting=setting,
        padded=padded,
        packing=packing,
        facts=family.facts,
        copy=experiment.copy_of(task_id),
        num_episodes=experiment.num_episodes,
        longest_episode=family.longest_episode(setting),
        num_pairs=None if family.num_pairs is None else family.num_pairs(setting),
    )


def _parse_official(task_id: str) -> tuple[Experiment, dict[str, Any]]:
    experiment, setting = parse(task_id)
    if task_id not in experiment.ids:
        raise InputError(f"need one of bsuite's own ids to pad it with others, got {task_id!r}")
    return experiment, setting


def parse(task_id: str) -> tuple[Experiment, dict[str, Any]]:
    """Return the experiment that an id names, and its setting with all defaults."""
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
