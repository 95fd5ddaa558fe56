"""All families of bsuite's environments by name, and DeepMind's `bsuite_info` for each."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from winkel.envs.bsuite import (
    bandit,
    cartpole,
    cartpole_swingup,
    catch,
    deep_sea,
    discounting_chain,
    memory_chain,
    mnist,
    mountain_car,
    umbrella_chain,
)
from winkel.envs.bsuite.family import Episodes, Family
from winkel.envs.bsuite.sweep import EXPERIMENTS
from winkel.errors import InputError

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        family.name: family
        for family in (
            bandit.FAMILY,
            cartpole.FAMILY,
            cartpole_swingup.FAMILY,
            catch.FAMILY,
            deep_sea.DETERMINISTIC,
            deep_sea.STOCHASTIC,
            discounting_chain.FAMILY,
            memory_chain.LENGTH,
            memory_chain.SIZE,
            mnist.FAMILY,
            mountain_car.FAMILY,
            umbrella_chain.DISTRACT,
            umbrella_chain.LENGTH,
        )
    }
)


def family_of(experiment: str) -> str:
    """Return the name of an experiment's family: 'catch' for 'catch_noise'."""
    if experiment not in EXPERIMENTS:
        raise InputError(f"no experiment {experiment!r}; there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[experiment].family


def bsuite_info(experiment: str, episodes: Episodes) -> dict[str, np.ndarray]:
    """Return what DeepMind's environment returns from `bsuite_info()` after each episode.

    Totals since the first episode, in bsuite's order and types: counts of episodes are integers,
    regrets and returns are float64 even if they are whole. 'raw_return' is without the noise and
    the scale that 'return' has.
    """
    family = FAMILIES[family_of(experiment)]
    missing = [name for name in ("return", "length", *family.facts) if name not in episodes]
    if missing:
        raise InputError(
            f"episodes of {experiment} lack {', '.join(missing)}; they hold "
            f"{', '.join(episodes) or 'nothing'}"
        )
    return family.info(episodes)
