"""Properties of the scores; tests/parity/test_bsuite_scores.py compares with bsuite's own."""

import numpy as np
import pytest

from winkel.analysis.scores import (
    is_logged,
    log_of,
    note_incomplete,
    score_experiment,
    score_runs,
    score_tags,
)
from winkel.errors import InputError
from winkel.runs.record import RunRecord

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning:winkel")


def catch(num, wrong):
    always = np.full(num, wrong)
    return {"return": 1.0 - 2 * always, "length": np.full(num, 9), "wrong": always}


def sea(num, solved_from):
    """Bad episodes until some episode, none from then on."""
    bad = np.arange(1, num + 1) < solved_from
    return {"return": np.zeros(num), "length": np.full(num, 10), "bad": bad, "treasure": ~bad}


def test_logged_episodes():
    logged = np.flatnonzero(is_logged(np.arange(121)))
    assert logged.tolist() == [*range(1, 11), 12, 14, 17, 20, 25, *range(30, 101, 10), 120]


def test_a_log_has_totals_at_logged_episodes(rng):
    wrong = rng.integers(0, 2, 1_000)
    returned = rng.normal(size=1_000)
    log = log_of("catch_noise", {"return": returned, "length": np.full(1_000, 9), "wrong": wrong})
    assert list(log) == [
        "steps", "episode", "total_return", "episode_len", "episode_return", "total_regret",
    ]  # fmt: skip
    at = log["episode"].tolist().index(170)
    np.testing.assert_allclose(log["total_return"][at], returned[:170].sum())
    assert log["steps"][at] == 9 * 170
    assert log["episode_return"][at] == returned[169]
    assert log["total_regret"][at] == 2 * wrong[:170].sum()
    assert log["steps"].dtype == log["episode"].dtype == log["episode_len"].dtype == np.int64
    assert log["total_regret"].dtype == log["total_return"].dtype == np.float64


def test_a_log_ends_at_the_last_logged_episode():
    assert log_of("catch", catch(9_999, 0))["episode"][-1] == 9_000
    assert log_of("catch", catch(0, 0))["episode"].size == 0


def test_catch_goes_from_chance_to_perfect():
    for wrong, expected in ((0.0, 1.0), (1.0, 0.0)):
        logs = {"catch/0": log_of("catch", catch(10_000, wrong))}
        assert score_experiment("catch", logs) == expected


def test_only_the_runs_that_got_furthest_count():
    perfect, hopeless = log_of("catch", catch(100, 0)), log_of("catch", catch(90, 1))
    assert score_experiment("catch", {"catch/0": perfect, "catch/1": hopeless}) == 1.0


def test_a_score_over_scales_pays_for_their_spread():
    """One of five scales is hopeless: mean 0.8, standard deviation 0.4."""
    logs = {
        f"catch_scale/{n}": log_of("catch_scale", catch(100, int(n < 4))) for n in range(0, 20, 2)
    }
    np.testing.assert_allclose(score_experiment("catch_scale", logs), (0.8 + 0.4) / 2)


@pytest.mark.parametrize(
    ("solved_from", "expected"), [(1, 1.0), (900, 1.0), (901, 0.0), (10_001, 0.0)]
)
def test_a_small_sea_must_be_solved_before_dithering_would(solved_from, expected):
    """Size 10 has until episode 1 124: 899 bad ones of 1 000 are few enough, 900 are not."""
    logs = {"deep_sea/0": log_of("deep_sea", sea(10_000, solved_from))}
    assert score_experiment("deep_sea", logs) == expected


def test_a_stochastic_sea_counts_from_episode_100():
    lucky, none = log_of("deep_sea_stochastic", sea(99, 1)), {}
    assert np.isnan(score_experiment("deep_sea_stochastic", {"deep_sea_stochastic/0": lucky}))
    assert np.isnan(score_experiment("deep_sea_stochastic", none))
    solved = log_of("deep_sea_stochastic", sea(100, 1))
    logs = {"deep_sea_stochastic/0": lucky, "deep_sea_stochastic/1": solved}
    assert score_experiment("deep_sea_stochastic", logs) == 1.0


def test_mnist_has_no_score_before_its_end():
    short, full = (log_of("mnist", catch(num, 0)) for num in (9_999, 10_000))
    assert np.isnan(score_experiment("mnist", {"mnist/0": short}))
    assert score_experiment("mnist", {"mnist/0": short, "mnist/1": full}) == 1.0


def test_tags_are_means_over_the_experiments_that_have_a_score():
    tags = score_tags({"catch": 0.5, "bandit": 1.0, "mnist": np.nan, "deep_sea": 0.2})
    assert tags["basic"] == 0.75
    assert tags["credit_assignment"] == 0.5
    assert tags["exploration"] == 0.2
    assert np.isnan(tags["generalization"])
    assert np.isnan(tags["memory"])
    assert len(tags) == 7


def run(env, agent, seed, episodes):
    return RunRecord(config={"env": env, "agent": agent, "seed": seed}, episodes=episodes)


def test_agents_and_seeds_are_scored_on_their_own():
    runs = [
        run("catch/0", "b", 0, catch(10, 1)),
        run("catch/0", "a", 1, catch(10, 1)),
        run("catch/0", "a", 0, catch(10, 0)),
        run("deep_sea/3", "a", 0, sea(50, 1)),
        run("deep_sea:size=100", "a", 0, sea(50, 1)),
    ]
    assert score_runs(iter(runs)) == {
        ("a", 0): {"catch": 1.0, "deep_sea": 1.0},
        ("a", 1): {"catch": 0.0},
        ("b", 0): {"catch": 0.0},
    }


def test_what_scores_lack_is_told():
    whole = [run(f"catch/{i}", "a", 0, catch(10_000, 0)) for i in range(20)]
    runs = [*whole, run("catch/0", "b", 2, catch(10, 1)), run("deep_sea:size=5", "b", 2, {})]
    assert note_incomplete(runs) == [
        "a has 20 of 468 settings, in 1 of 23 experiments; 0 of 20 runs are shorter than bsuite's",
        "b has 1 of 468 settings, in 1 of 23 experiments; 1 of 1 runs are shorter than bsuite's",
    ]


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda: score_experiment("katch", {}), "no experiment 'katch'"),
        (lambda: score_experiment("catch", {"catch/20": {}}), "got 'catch/20'"),
        (lambda: log_of("catch", {"return": np.zeros(1)}), "lack length, wrong; they hold return"),
        (lambda: score_runs([run("catch/0", "a", 0, catch(10, 0))] * 2), "one run of catch/0 by a"),
    ],
)
def test_unusable_input_is_refused(make, shown):
    with pytest.raises(InputError, match=shown):
        make()
