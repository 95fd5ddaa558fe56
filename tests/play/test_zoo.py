"""The policies that come with winkel."""

import jax
import numpy as np
import pytest

from terminal_helpers import refused
from winkel import cli
from winkel.play.episodes import open_environment, play, task_of
from winkel.play.zoo import load_zoo, zoo_names

NAMES = ["zoo:acrobot", "zoo:cartpole", "zoo:catch", "zoo:deep_sea", "zoo:maze", "zoo:minatar"]
LIBRARIES = {"zoo:maze": "navix", "zoo:minatar": "gymnax"}


def test_the_list_says_how_good_they_are_and_how_they_were_made(capsys, wide):
    assert zoo_names() == NAMES
    cli.main(["list", "zoo"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    for name, line in zip(NAMES, lines, strict=True):
        about = load_zoo(name).about
        assert (
            f"mean return {about['returns']['mean']:.4g}  winkel train {about['task']['env']}"
            in line
        )
        assert about["returns"]["episodes"] == 100


@pytest.mark.parametrize("name", NAMES)
def test_each_of_them_is_as_good_as_it_says(name):
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name], reason="the library is not installed")
    found = load_zoo(name)
    with jax.numpy_rank_promotion("allow"), open_environment(task_of(found), seed=1) as env:
        played = play(found, env, episodes=3)
    returns = played["return"][played["action"] < 0]
    about = found.about["returns"]
    assert len(returns) == 3
    assert np.mean(returns) >= about["mean"] - 2 * about["std"] - 1e-6


def test_a_film_of_one_is_written_here(tmp_path, monkeypatch, capsys, wide):
    monkeypatch.chdir(tmp_path)
    cli.main(["play", "zoo:catch"])
    assert "episode 1: return 1, length 9" in capsys.readouterr().out
    assert (tmp_path / "play.gif").is_file()


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_that_is_missing_is_named_in_one_line(name, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert f"pip install 'winkel[{LIBRARIES[name]}]'" in refused(["play", name], capsys)


def test_unknown_ones_and_what_only_runs_have_are_refused(capsys):
    message = refused(["play", "zoo:cathc"], capsys)
    assert "no policy 'zoo:cathc'; did you mean zoo:catch" in message
    for option in (("--policy", "exploring"), ("--seed", 1)):
        message = refused(["play", "zoo:catch", *option], capsys)
        assert "need a run for --seed and --policy exploring, got zoo:catch" in message
