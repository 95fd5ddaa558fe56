"""How each family of bsuite's environments is built from plain settings, one or many at once.

A family's `build` takes settings and returns one environment, whose shapes hold all of them, and
the parameters of each.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from winkel.envs.base import Environment
from winkel.envs.bsuite import cartpole, catch, discounting_chain, mountain_car
from winkel.envs.bsuite.bandit import Bandit, bandit_params
from winkel.envs.bsuite.cartpole import Cartpole, CartpoleParams
from winkel.envs.bsuite.cartpole_swingup import CartpoleSwingup, SwingupParams
from winkel.envs.bsuite.catch import Catch
from winkel.envs.bsuite.deep_sea import DeepSea, deep_sea_params
from winkel.envs.bsuite.discounting_chain import DiscountingChain, discounting_chain_params
from winkel.envs.bsuite.memory_chain import MemoryChain, memory_params
from winkel.envs.bsuite.mnist import Mnist, signed
from winkel.envs.bsuite.mountain_car import MountainCar
from winkel.envs.bsuite.umbrella_chain import UmbrellaChain, seed_zero_stream, umbrella_params
from winkel.envs.wrappers import PerturbedParams, PerturbedReward
from winkel.io.mnist import load_mnist

Settings = Sequence[Mapping[str, Any]]
Built = tuple[Environment, list[Any]]

_PERTURBATION = {"reward_scale": 1.0, "noise_scale": 0.0}


class Family(NamedTuple):
    """Parameters with their defaults, the smallest values that make sense, and how to build.

    `longest` tells how many steps an episode of a setting can have, `inputs` how many numbers an
    observation of it has, where that depends on it.
    """

    defaults: Mapping[str, int | float]
    build: Callable[[Settings, Path | None], Built]
    longest: Callable[[Mapping[str, Any]], int]
    at_least: Mapping[str, int | float] = {}
    inputs: Callable[[Mapping[str, Any]], int] | None = None


def _perturbed(
    environment: Callable[[Path | None], Environment], params: Callable[[Mapping[str, Any]], Any]
) -> Callable[[Settings, Path | None], Built]:
    def build(settings: Settings, mnist_dir: Path | None) -> Built:
        return PerturbedReward(env=environment(mnist_dir)), [
            PerturbedParams(
                inner=params(setting),
                reward_scale=np.asarray(setting["reward_scale"], np.float32),
                noise_scale=np.asarray(setting["noise_scale"], np.float32),
            )
            for setting in settings
        ]

    return build


def _mnist(mnist_dir: Path | None) -> Mnist:
    data = load_mnist(mnist_dir)
    return Mnist(images=signed(data.images), labels=data.labels.astype(np.int32))


def _cartpole_params(setting: Mapping[str, Any]) -> CartpoleParams:
    return CartpoleParams(
        height_threshold=np.asarray(setting["height_threshold"], np.float32),
        x_threshold=np.asarray(setting["x_threshold"], np.float32),
    )


def _build_swingup(settings: Settings, mnist_dir: Path | None) -> Built:
    return CartpoleSwingup(), [
        SwingupParams(
            height_threshold=np.asarray(setting["height_threshold"], np.float32),
            x_reward_threshold=np.asarray(setting["x_reward_threshold"], np.float32),
        )
        for setting in settings
    ]


def _build_deep_sea(*, stochastic: bool) -> Callable[[Settings, Path | None], Built]:
    def build(settings: Settings, mnist_dir: Path | None) -> Built:
        max_size = max(setting["size"] for setting in settings)
        return DeepSea(max_size=max_size), [
            deep_sea_params(max_size=max_size, stochastic=stochastic, **setting)
            for setting in settings
        ]

    return build


def _build_discounting_chain(settings: Settings, mnist_dir: Path | None) -> Built:
    return DiscountingChain(), [discounting_chain_params(**setting) for setting in settings]


def _build_memory(settings: Settings, mnist_dir: Path | None) -> Built:
    max_length = max(setting["memory_length"] for setting in settings)
    max_bits = max(setting["num_bits"] for setting in settings)
    return MemoryChain(max_length=max_length, max_bits=max_bits), [
        memory_params(max_length, max_bits, setting["memory_length"], setting["num_bits"])
        for setting in settings
    ]


def _build_umbrella(*, replay: bool) -> Callable[[Settings, Path | None], Built]:
    def build(settings: Settings, mnist_dir: Path | None) -> Built:
        max_length = max(setting["chain_length"] for setting in settings)
        max_distractors = max(setting["n_distractor"] for setting in settings)
        env = UmbrellaChain(
            max_length=max_length,
            max_distractors=max_distractors,
            stream=seed_zero_stream(max_length, max_distractors) if replay else None,
        )
        return env, [
            umbrella_params(max_length, setting["chain_length"], setting["n_distractor"])
            for setting in settings
        ]

    return build


def _cells(setting: Mapping[str, Any]) -> int:
    return setting["size"] ** 2


def _memory_inputs(setting: Mapping[str, Any]) -> int:
    return setting["num_bits"] + 2


def _umbrella_inputs(setting: Mapping[str, Any]) -> int:
    return setting["n_distractor"] + 3


def _steps(count: int) -> Callable[[Mapping[str, Any]], int]:
    return lambda setting: count


def _sea_steps(setting: Mapping[str, Any]) -> int:
    return setting["size"]


def _memory_steps(setting: Mapping[str, Any]) -> int:
    return setting["memory_length"] + 1


def _umbrella_steps(setting: Mapping[str, Any]) -> int:
    return setting["chain_length"]


_LEAST_SEA = {"size": 2, "mapping_seed": 0}
_SEA = {"size": 10, "mapping_seed": 42, "move_cost": 0.01}
_LEAST_CHAIN = {"chain_length": 1, "n_distractor": 0}
_LEAST_MEMORY = {"memory_length": 1, "num_bits": 1}

FAMILIES: Mapping[str, Family] = {
    "bandit": Family(
        {"mapping_seed": 0, **_PERTURBATION},
        _perturbed(lambda _: Bandit(), lambda s: bandit_params(s["mapping_seed"])),
        _steps(1),
        {"mapping_seed": 0},
    ),
    "cartpole": Family(
        {"height_threshold": 0.8, "x_threshold": 3.0, **_PERTURBATION},
        _perturbed(lambda _: Cartpole(), _cartpole_params),
        _steps(cartpole.NUM_STEPS),
    ),
    "cartpole_swingup": Family(
        {"height_threshold": 0.5, "x_reward_threshold": 1.0},
        _build_swingup,
        _steps(cartpole.NUM_STEPS),
    ),
    "catch": Family(
        {**_PERTURBATION}, _perturbed(lambda _: Catch(), lambda _: None), _steps(catch.ROWS - 1)
    ),
    "deep_sea": Family(_SEA, _build_deep_sea(stochastic=False), _sea_steps, _LEAST_SEA, _cells),
    "deep_sea_stochastic": Family(
        _SEA, _build_deep_sea(stochastic=True), _sea_steps, _LEAST_SEA, _cells
    ),
    "discounting_chain": Family(
        {"mapping_seed": 0},
        _build_discounting_chain,
        _steps(discounting_chain.NUM_STEPS),
        {"mapping_seed": 0},
    ),
    "memory_len": Family(
        {"memory_length": 1, "num_bits": 1},
        _build_memory,
        _memory_steps,
        _LEAST_MEMORY,
        _memory_inputs,
    ),
    "memory_size": Family(
        {"memory_length": 2, "num_bits": 1},
        _build_memory,
        _memory_steps,
        _LEAST_MEMORY,
        _memory_inputs,
    ),
    "mnist": Family({**_PERTURBATION}, _perturbed(_mnist, lambda _: None), _steps(1)),
    "mountain_car": Family(
        {**_PERTURBATION},
        _perturbed(lambda _: MountainCar(), lambda _: None),
        _steps(mountain_car.NUM_STEPS),
    ),
    "umbrella_distract": Family(
        {"chain_length": 20, "n_distractor": 1},
        _build_umbrella(replay=True),
        _umbrella_steps,
        _LEAST_CHAIN,
        _umbrella_inputs,
    ),
    "umbrella_length": Family(
        {"chain_length": 1, "n_distractor": 20},
        _build_umbrella(replay=False),
        _umbrella_steps,
        _LEAST_CHAIN,
        _umbrella_inputs,
    ),
}
