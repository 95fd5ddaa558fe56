"""What winkel computes from the facts of each episode, against what bsuite itself logs."""

import numpy as np
import pytest
from bsuite.environments.bandit import SimpleBandit
from bsuite.environments.cartpole import Cartpole
from bsuite.environments.catch import Catch
from bsuite.environments.deep_sea import DeepSea
from bsuite.environments.discounting_chain import DiscountingChain
from bsuite.environments.memory_chain import MemoryChain
from bsuite.environments.mnist import MNISTBandit
from bsuite.environments.mountain_car import MountainCar
from bsuite.environments.umbrella_chain import UmbrellaChain
from bsuite.experiments.cartpole_swingup.cartpole_swingup import CartpoleSwingup
from bsuite.utils import datasets, wrappers

from winkel.analysis.scores import log_of
from winkel.envs.registry import EXPERIMENTS, FAMILIES, bsuite_info, family_of
from winkel.errors import InputError


class Tap:
    """Notes actions, observations and rewards on their way out, before noise or scale."""

    def __init__(self, env):
        self.env = env

    def reset(self):
        step = self.env.reset()
        self.actions, self.rewards, self.seen = [], [], [step.observation]
        return step

    def step(self, action):
        step = self.env.step(action)
        self.actions.append(action)
        self.rewards.append(step.reward)
        self.seen.append(step.observation)
        return step

    def __getattr__(self, name):
        return getattr(self.env, name)


class Rows(list):
    write = list.append


def deep_sea_facts(tap):
    places = [tuple(np.argwhere(seen)[0]) for seen in tap.seen[:-1]]
    right = [
        action == tap._action_mapping[place]
        for action, place in zip(tap.actions, places, strict=True)
    ]
    return {
        "bad": any(
            row == column and not went for (row, column), went in zip(places, right, strict=True)
        ),
        "treasure": places[-1][1] == len(places) - 1 and right[-1],
    }


def swingup_facts(tap):
    return {
        "upright": sum(reward > 0.5 for reward in tap.rewards),
        "moves": sum(action != 1 for action in tap.actions),
    }


def wrong(tap):
    return {"wrong": int(tap.rewards[-1] < 0)}


def perfect(tap):
    return {"perfect": int(tap.rewards[-1] > 0)}


def none(_):
    return {}


# Small enough that a random agent meets every case.
REPLAYS = {
    "bandit": (
        lambda: SimpleBandit(mapping_seed=0),
        lambda tap: {"missed_tenths": round(10 * (1 - tap.rewards[0]))},
    ),
    "cartpole": (
        lambda: Cartpole(height_threshold=0.99, max_time=0.4, seed=0),
        lambda tap: {"balanced": int(sum(tap.rewards))},
    ),
    "cartpole_swingup": (
        lambda: CartpoleSwingup(
            height_threshold=-0.998, theta_dot_threshold=0.5, max_time=0.3, seed=0
        ),
        swingup_facts,
    ),
    "catch": (lambda: Catch(seed=0), wrong),
    "deep_sea": (lambda: DeepSea(size=4, seed=0, mapping_seed=42), deep_sea_facts),
    "deep_sea_stochastic": (
        lambda: DeepSea(size=4, deterministic=False, seed=0, mapping_seed=42),
        deep_sea_facts,
    ),
    "discounting_chain": (lambda: DiscountingChain(mapping_seed=2), none),
    "memory_len": (lambda: MemoryChain(memory_length=3, seed=0), perfect),
    "memory_size": (lambda: MemoryChain(memory_length=2, num_bits=4, seed=0), perfect),
    "mnist": (lambda: MNISTBandit(seed=0), wrong),
    "mountain_car": (lambda: MountainCar(max_steps=40, seed=0), none),
    "umbrella_distract": (lambda: UmbrellaChain(chain_length=5, n_distractor=2, seed=0), wrong),
    "umbrella_length": (lambda: UmbrellaChain(chain_length=3, n_distractor=20, seed=0), wrong),
}


@pytest.fixture(autouse=True)
def no_download(monkeypatch):
    images, labels = np.zeros((20, 28, 28), np.uint8), np.arange(20) % 10
    monkeypatch.setattr(datasets, "load_mnist", lambda: ((images, labels), (images, labels)))


def perturbed(env, experiment):
    if experiment.endswith("_noise"):
        return wrappers.RewardNoise(env, noise_scale=0.3, seed=0)
    if experiment.endswith("_scale"):
        return wrappers.RewardScale(env, reward_scale=30.0, seed=0)
    return env


def replay(experiment, num):
    """Rows that bsuite logs of a random agent, and winkel's record of the same episodes."""
    make, facts_of = REPLAYS[family_of(experiment)]
    tap, rows, rng = Tap(make()), Rows(), np.random.default_rng(0)
    env = wrappers.Logging(perturbed(tap, experiment), rows)
    episodes = []
    for _ in range(num):
        step, rewards = env.reset(), []
        while not step.last():
            step = env.step(int(rng.integers(env.action_spec().num_values)))
            rewards.append(step.reward)
        episodes.append({"return": sum(rewards), "length": len(rewards), **facts_of(tap)})
    return rows, {name: np.array([e[name] for e in episodes]) for name in episodes[0]}


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_logs_equal_those_of_bsuites_own_environment(experiment):
    rows, episodes = replay(experiment, 200)
    log = log_of(experiment, episodes)
    assert list(log) == list(rows[0])
    assert len(rows) == len(log["episode"])
    for name, column in log.items():
        theirs = np.array([row[name] for row in rows])
        np.testing.assert_allclose(column, theirs, atol=1e-6, rtol=1e-12, err_msg=name)
        if theirs.any():  # bsuite starts some totals of floats at the integer 0
            assert column.dtype == theirs.dtype, name
    for fact in FAMILIES[family_of(experiment)].facts:
        assert len(set(episodes[fact])) > 1, f"{fact} never varied: the test says nothing"


def test_there_are_facts_for_every_family():
    families = {experiment.family for experiment in EXPERIMENTS.values()}
    assert families == set(REPLAYS)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_the_smallest_types_do_not_overflow(experiment):
    """JAX hands over int32, and flags as bool or uint8."""
    facts = FAMILIES[family_of(experiment)].facts
    episodes = {"return": np.ones(300, np.float32), "length": np.ones(300, np.int8)}
    ones = {fact: np.ones(300, np.int8) for fact in facts}
    for name, column in bsuite_info(experiment, episodes | ones).items():
        wide = bsuite_info(
            experiment,
            {key: value.astype(np.float64) for key, value in (episodes | ones).items()},
        )
        np.testing.assert_array_equal(column, wide[name])
        assert column.dtype in (np.float64, np.int64)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_missing_facts_are_named(experiment):
    facts = FAMILIES[family_of(experiment)].facts
    episodes = {name: np.ones(3) for name in ("return", "length", *facts)}
    for name in episodes:
        rest = {key: value for key, value in episodes.items() if key != name}
        with pytest.raises(InputError, match=f"{experiment} lack {name};"):
            bsuite_info(experiment, rest)
    assert all(len(column) == 3 for column in bsuite_info(experiment, episodes).values())
    with pytest.raises(InputError, match="no experiment 'katch'"):
        bsuite_info("katch", episodes)
