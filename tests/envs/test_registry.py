import jax
import numpy as np
import pytest

from winkel import cli, envs
from winkel.envs.base import Environment, Family, outcome
from winkel.envs.registry import FAMILIES, make_padded, parse
from winkel.errors import InputError
from winkel.types import OneHot


def test_ids_give_the_sweeps_settings():
    task = envs.make("deep_sea/20")
    assert task.setting["size"] == 50
    assert task.num_episodes == 10_000
    assert task.env.observation.shape == (50, 50)


def test_any_size_and_any_override():
    sea = envs.make("deep_sea:size=100")
    assert sea.env.observation.shape == (100, 100)
    assert int(sea.params.size) == 100
    noisy = envs.make("catch_noise/3:noise_scale=0.5")
    assert float(noisy.params.noise_scale) == 0.5
    both = envs.make("umbrella_length/4:n_distractor=2,chain_length=7")
    assert both.setting == {"chain_length": 7, "n_distractor": 2}


def test_batches_pad_to_the_largest():
    batch = envs.make_batch("memory_size")
    assert batch.env.observation.shape == (1, 42)
    np.testing.assert_array_equal(batch.params.num_bits[[0, -1]], [1, 40])
    mixed = envs.make_batch(["catch/0", "catch_noise/19", "catch_scale/0"])
    np.testing.assert_allclose(mixed.params.noise_scale, [0.0, 10.0, 0.0])
    np.testing.assert_allclose(mixed.params.reward_scale, [1.0, 1.0, 0.001])


@pytest.mark.parametrize(
    ("task_id", "shown"),
    [
        ("deepsea/3", "did you mean deep_sea"),
        ("cartpool", "did you mean cartpole"),
        ("zzzzzz", "winkel list envs"),
        ("", "unknown environment ''"),
        ("catch/20", "catch/0 … catch/19"),
        ("catch/-1", "catch/0 … catch/19"),
        ("catch/x", "catch/0 … catch/19"),
        ("catch/", "catch/0 … catch/19"),
        ("deep_sea:size", "key=value with keys size, mapping_seed, move_cost"),
        ("deep_sea:sise=3", "got 'sise=3'"),
        ("deep_sea:size=big", "a whole number for size of at most 2147483647, got 'big'"),
        ("deep_sea:size=10.5", "a whole number for size .*, got '10.5'"),
        ("deep_sea:size=99999999999", "a whole number for size .*, got '99999999999'"),
        ("deep_sea:size=1", "size >= 2, got 1"),
        ("deep_sea:move_cost=nan", "a finite number for move_cost"),
        ("catch:reward_scale=1e39", "a finite number for reward_scale .*, got '1e39'"),
        ("deep_sea:size=4,size=5", "need each setting once, got size twice in 'deep_sea:size=4,"),
        ("deep_sea:size=4,", "need overrides of the form key=value .*, got '' in"),
        ("deep_sea/１", "need deep_sea/0 … deep_sea/20, got 'deep_sea/１'"),
        ("deep_sea/00", "need deep_sea/0 … deep_sea/20, got 'deep_sea/00'"),
        ("deep_sea:size=１０", "a whole number for size .*, got '１０'"),
        ("deep_sea:size=1_0", "a whole number for size .*, got '1_0'"),
        ("deep_sea:size= 5", "a whole number for size .*, got ' 5'"),
        ("catch:noise_scale=１", "a finite number for noise_scale .*, got '１'"),
        ("memory_len:memory_length=0", "memory_length >= 1, got 0"),
        ("bandit:mapping_seed=-1", "mapping_seed >= 0, got -1"),
    ],
)
def test_bad_ids_are_refused_with_what_would_be_right(task_id, shown):
    with pytest.raises(InputError, match=shown):
        parse(task_id)


def test_batches_of_different_families_and_of_nothing_are_refused():
    with pytest.raises(InputError, match="catch, deep_sea"):
        envs.make_batch(["deep_sea/0", "catch/0"])
    with pytest.raises(InputError, match="got none"):
        envs.make_batch([])


class Walk(Environment):
    """A walk of `params` steps."""

    observation = OneHot((9,))
    num_actions = 2

    def start(self, draws, episode, params):
        return jax.numpy.zeros((), jax.numpy.int32)

    def transition(self, state, action, draws, params):
        return state + 1, outcome(action, state + 1 == params)

    def observe(self, state, params):
        return state


@pytest.fixture
def walk(monkeypatch):
    """A family without experiments."""
    family = Family(
        name="walk",
        defaults={"length": 3},
        ranges={"length": (1, 8)},
        make_env=lambda _: Walk(),
        make_params=lambda _, setting: np.asarray(setting["length"], np.int32),
        returns=lambda setting, gamma: (0.0, float(setting["length"]), 0.0),
        longest_episode=lambda setting: setting["length"],
    )
    monkeypatch.setitem(FAMILIES, "walk", family)


@pytest.mark.parametrize(("task_id", "length"), [("walk/0", 3), ("walk:length=5", 5)])
def test_a_family_without_experiments_is_one_with_one_setting(walk, task_id, length):
    task = envs.make(task_id)
    assert task.setting == {"length": length}
    assert task.longest_episode == length
    assert task.num_episodes == 1_000
    state, _ = task.env.reset(jax.random.key(0), task.params)
    ends = []
    for _ in range(2 * length):
        state, result = task.env.step(jax.random.key(1), state, 1, task.params)
        ends.append(bool(result.boundary))
    assert ends == 2 * [*[False] * (length - 1), True]


def test_a_family_without_experiments_is_listed_but_not_counted_as_bsuites(walk, capsys):
    cli.main(["list", "envs"])
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "walk/0 1000 episodes tags none" in lines
    assert "override walk:key=value with length" in lines
    assert "23 experiments, 468 settings" in lines


@pytest.mark.parametrize(
    ("task_id", "shown"),
    [
        ("walk/1", "need walk/0 … walk/0, got 'walk/1'"),
        ("walk:length=9", "need length <= 8, got 9"),
        ("wlak/0", "did you mean walk"),
    ],
)
def test_bad_ids_of_a_family_without_experiments_are_refused(walk, task_id, shown):
    with pytest.raises(InputError, match=shown):
        parse(task_id)


def test_only_bsuites_own_ids_are_padded(walk):
    with pytest.raises(InputError, match=r"bsuite's own ids .* got 'walk/0'"):
        make_padded("walk/0")
