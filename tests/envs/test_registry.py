import numpy as np
import pytest

from winkel import envs
from winkel.envs.registry import make_padded, parse
from winkel.errors import InputError


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


def test_only_bsuites_own_ids_are_padded():
    with pytest.raises(InputError, match=r"bsuite's own ids .* got 'catch:noise_scale=2'"):
        make_padded("catch:noise_scale=2")
