"""Logs, scores and CSV files against DeepMind's bsuite 0.3.6."""

import warnings

import matplotlib
import numpy as np
import pandas as pd
import pytest
from bsuite import sweep
from bsuite.environments.catch import Catch
from bsuite.logging import csv_load, csv_logging, logging_utils
from bsuite.utils import wrappers

from winkel.analysis import scores as winkel_scores
from winkel.analysis.scores import (
    export_bsuite,
    is_logged,
    log_of,
    score_experiment,
    score_runs,
    score_tags,
)
from winkel.envs.registry import EXPERIMENTS, FAMILIES, TAGS
from winkel.runs.record import RunRecord, save_run
from winkel.runs.spec import run_folder

with matplotlib.rc_context():  # its import changes the style of every later figure
    from bsuite.experiments import summary_analysis

KINDS = ("solved", "unsolved", "noisy", "partial", "overrun")


@pytest.fixture(autouse=True)
def old_pandas(monkeypatch):
    """bsuite 0.3.6 was written for pandas < 2."""
    monkeypatch.setattr(
        pd.Series, "append", lambda self, other: pd.concat([self, other]), raising=False
    )


def num_episodes(rng, kind, full):
    if kind == "partial":
        return int(rng.choice([rng.integers(1, 100), rng.integers(100, full), full]))
    return int(1.5 * full) if kind == "overrun" else full


def skill(rng, kind, num):
    """The chance to do well in each episode; noisy agents learn, or unlearn, at some episode."""
    if kind in ("solved", "unsolved"):
        return np.full(num, 0.99 if kind == "solved" else 0.0)
    before, after = rng.random(2)
    return np.where(np.arange(num) < rng.integers(1, num + 1), before, after)


def random_episodes(rng, family, kind, full):
    num = num_episodes(rng, kind, full)
    good = rng.random(num) < skill(rng, kind, num)
    most = 990 if kind == "solved" else rng.choice([50, 150, 250, 990])
    upright = np.where(good, rng.integers(0, most, num), 0)
    moves = rng.integers(0, 300, num)
    facts = {
        "missed_tenths": np.where(good, 0, rng.integers(1, 11, num)),
        "wrong": ~good,
        "balanced": np.where(good, 1000, rng.integers(0, 490, num)),
        "upright": upright,
        "moves": moves,
        "bad": ~good,
        "treasure": good,
        "perfect": good,
    }
    returned = {
        "cartpole_swingup": upright - moves / 10 + rng.normal(size=num),
        "discounting_chain": np.where(good, 1.1, 1.0),
    }
    return {
        "return": returned.get(family, rng.normal(size=num)),
        "length": np.where(good, rng.integers(90, 150, num), 1000),
        **{fact: facts[fact] for fact in FAMILIES[family].facts},
    }


def random_suite(seed, kind):
    """Episodes of all 468 ids; of a partial suite, of about four in five."""
    rng = np.random.default_rng(seed)
    return {
        env_id: random_episodes(rng, experiment.family, kind, experiment.num_episodes)
        for experiment in EXPERIMENTS.values()
        for env_id in experiment.ids
        if kind != "partial" or env_id.endswith("/0") or rng.random() < 0.8
    }


def logs_of(suite):
    logs = {name: {} for name in EXPERIMENTS}
    for env_id, episodes in suite.items():
        name = env_id.split("/")[0]
        logs[name][env_id] = log_of(name, episodes)
    return logs


def official(df):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = summary_analysis.bsuite_score(df)
        tags = summary_analysis.ave_score_by_tag(scores, None)
    return (
        dict(zip(scores.bsuite_env, map(float, scores.score), strict=True)),
        dict(zip(tags.tag, map(float, tags.score), strict=True)),
    )


def official_of_logs(logs):
    frames = [
        pd.DataFrame(log).assign(bsuite_id=env_id)
        for found in logs.values()
        for env_id, log in found.items()
    ]
    return official(logging_utils.join_metadata(pd.concat(frames, sort=False)))


def assert_same(ours, theirs):
    assert sorted(ours) == sorted(theirs)
    names = sorted(ours)
    np.testing.assert_allclose(
        [ours[name] for name in names],
        [theirs[name] for name in names],
        atol=1e-9,
        rtol=0,
        err_msg=str(names),
    )


@pytest.mark.filterwarnings("error::RuntimeWarning:winkel")
@pytest.mark.parametrize(
    ("seed", "kind"), [(0, kind) for kind in KINDS] + [(1, "noisy"), (1, "partial"), (2, "partial")]
)
def test_all_scores_equal_the_official_ones(seed, kind):
    logs = logs_of(random_suite(seed, kind))
    scores = {name: score_experiment(name, found) for name, found in logs.items()}
    tags = score_tags(scores)
    theirs, their_tags = official_of_logs(logs)
    assert len(scores) == 23
    assert len(tags) == 7
    assert_same(scores, theirs)
    assert_same(tags, their_tags)
    if kind == "solved":
        assert all(score > 0.5 for score in scores.values())
    if kind == "unsolved":
        assert all(score < 0.5 for score in scores.values())
    if kind == "noisy":
        assert sum(0.01 < score < 0.99 for score in scores.values()) >= 20
    if kind == "partial":
        assert not np.isnan(list(tags.values())).any()


@pytest.mark.filterwarnings("error::RuntimeWarning:winkel")
@pytest.mark.parametrize("stopped", [1, 99, 120, 999, 9_999])
def test_suites_stopped_early_equal_the_official_ones(stopped):
    """Below 100 episodes the stochastic deep sea has no row that counts, and bsuite fails."""
    suite = {
        env_id: {fact: array[:stopped] for fact, array in episodes.items()}
        for env_id, episodes in random_suite(3, "noisy").items()
        if int(env_id.split("/")[1]) % 5 == 0
    }
    logs = logs_of(suite)
    scores = {name: score_experiment(name, found) for name, found in logs.items()}
    tags = score_tags(scores)
    assert np.isnan([scores["mnist"], scores["mnist_noise"], scores["mnist_scale"]]).all()
    if stopped < 100:
        assert np.isnan(scores.pop("deep_sea_stochastic"))
        unscored = {"deep_sea_stochastic": logs.pop("deep_sea_stochastic")}
        with pytest.raises(ValueError, match="cannot set a frame"):
            official_of_logs(unscored)
    theirs, their_tags = official_of_logs(logs)
    assert_same(scores, theirs)
    assert_same(tags, their_tags)


@pytest.mark.filterwarnings("error::RuntimeWarning:winkel")
@pytest.mark.parametrize("seed", range(2))
def test_logs_by_another_rule_are_scored_as_bsuite_does(seed, monkeypatch):
    """Random rows, also past the end: mnist then takes differences across runs, as bsuite does."""
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(winkel_scores, "is_logged", lambda episode: rng.random(episode.size) < 0.01)
    logs = logs_of(random_suite(seed, "overrun"))
    scores = {name: score_experiment(name, found) for name, found in logs.items()}
    theirs, _ = official_of_logs(logs)
    assert_same(scores, theirs)
    assert np.isnan(scores["bandit"])  # no row at the limit


@pytest.mark.filterwarnings("error::RuntimeWarning:winkel")
@pytest.mark.parametrize("at", ["first", "last", "all"])
@pytest.mark.parametrize(
    ("name", "total"), [("cartpole", "raw_return"), ("cartpole_swingup", "total_return")]
)
def test_logs_with_nan_are_scored_as_bsuite_does(name, total, at):
    """A maximum of pandas ignores NaN; swing-up's mean over ids is NumPy's, which does not."""
    suite = random_suite(5, "solved")
    logs = {i: log_of(name, e) for i, e in suite.items() if i.split("/")[0] == name}
    rows = {"first": slice(0, 1), "last": slice(-1, None), "all": slice(None)}[at]
    damaged = logs[f"{name}/0"]
    for column in ("best_episode", total):
        damaged[column] = damaged[column].astype(float)
        damaged[column][rows] = np.nan
    found = score_experiment(name, logs)
    np.testing.assert_allclose(found, official_of_logs({name: logs})[0][name], atol=1e-9, rtol=0)
    assert np.isnan(found) == (name == "cartpole_swingup" and at != "first")


@pytest.mark.parametrize(("episode", "expected"), [(1_123, 1.0), (1_124, 0.0)])
def test_deep_sea_allows_100_episodes_more_than_dithering(episode, expected):
    """bsuite's logging rule hides it: no episode from 2^size to 2^size + 100 is ever logged."""
    columns = log_of("deep_sea", random_episodes(np.random.default_rng(0), "deep_sea", "noisy", 1))
    log = dict.fromkeys(columns, np.array([1_000, episode]))
    logs = {"deep_sea": {"deep_sea/0": log | {"total_bad_episodes": np.array([950, 950])}}}
    assert score_experiment("deep_sea", logs["deep_sea"]) == expected
    assert official_of_logs(logs)[0]["deep_sea"] == expected


def test_the_logging_rule():
    episode = np.arange(20_001)
    theirs = [wrappers._logarithmic_logging(n) for n in episode]
    np.testing.assert_array_equal(is_logged(episode), theirs)


def test_the_logging_rule_up_to_a_million():
    """Near what either might log; elsewhere the first two digits say no."""
    hundreds = np.arange(200, 10_001) * 100
    episode = np.concatenate([hundreds - 1, hundreds, hundreds + 1])
    theirs = [wrappers._logarithmic_logging(n) for n in episode]
    np.testing.assert_array_equal(is_logged(episode), theirs)


def test_tags_and_settings_are_bsuites():
    assert set(TAGS) == summary_analysis.ALL_TAGS
    assert sorted(sweep.SWEEP) == sorted(i for e in EXPERIMENTS.values() for i in e.ids)


def test_bsuite_reads_exported_runs_and_scores_them_the_same(tmp_path):
    suite = random_suite(4, "partial")
    runs = [
        RunRecord(config={"env": env_id, "agent": "a", "seed": 7}, episodes=episodes)
        for env_id, episodes in suite.items()
    ]
    for run in runs:
        save_run(run_folder(tmp_path / "runs", run.config["env"], "a", 7), run)
    written, _ = export_bsuite(tmp_path / "runs", tmp_path / "csv")
    assert len(written) == len(suite)
    frame, _ = csv_load.load_bsuite(str(tmp_path / "csv" / "a" / "seed-7"))
    assert set(frame.bsuite_id) == set(suite)
    theirs, _ = official(frame)
    assert_same(score_runs(runs)["a", 7], theirs)


def test_an_exported_file_is_the_one_that_bsuite_writes(tmp_path):
    """Byte for byte, on catch: others differ in the last digits of sums of floats."""
    logger = csv_logging.Logger("catch/3", str(tmp_path / "theirs"))
    env = wrappers.Logging(Catch(seed=0), logger)
    rng = np.random.default_rng(0)
    rewards = []
    for _ in range(150):
        step = env.reset()
        while not step.last():
            step = env.step(int(rng.integers(3)))
        rewards.append(step.reward)
    episodes = {
        "return": np.array(rewards),
        "length": np.full(150, 9),
        "wrong": np.array(rewards) < 0,
    }
    config = {"env": "catch/3", "agent": "a", "seed": 0}
    save_run(run_folder(tmp_path, "catch/3", "a", 0), RunRecord(config=config, episodes=episodes))
    (path,), _ = export_bsuite(tmp_path, tmp_path / "ours")
    assert path.read_bytes() == (tmp_path / "theirs" / path.name).read_bytes()
