"""Arguments of Python calls that cannot be right are named, before anything is written."""

import pathlib

import numpy as np
import pytest

import winkel
from runs.tiny import ENV, learn
from winkel.errors import InputError
from winkel.runs.record import encode_observation
from winkel.runs.spec import Options
from winkel.types import Dense, Image, OneHot

pytestmark = pytest.mark.usefixtures("without_shape_checks")


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({"env": None}, "need a name such as 'deep_sea/0' or a function for env, got None"),
        ({"env": 5}, "for env, got 5"),
        ({"env": pathlib.Path("deep_sea/0")}, "for env, got PosixPath"),
        ({"agent": None}, "need a name such as 'pe_dqn', or a class for agent, got None"),
        ({"out": 5}, "need a folder or None for out, got 5"),
        ({"options": {}}, "need winkel.runs.spec.Options for options, got {}"),
        ({"options": None}, "for options, got None"),
        ({"label": 5}, "need a name or None for label, got 5"),
        ({"preset": 5}, "need a name or None for preset, got 5"),
        ({"progress": None}, "need a function for progress, got None"),
        ({"notice": "print"}, "need a function for notice, got 'print'"),
        ({"seeds": "a"}, "need each seed >= 0, a whole number, got 'a'"),
        ({"seeds": None}, "need seeds >= 1, a whole number, got None"),
        ({"seeds": 1.5}, "need seeds >= 1, a whole number, got 1.5"),
        ({"seeds": []}, "need different seeds, at least one and at most 1000000, got []"),
        ({"seeds": [1, 1]}, "need different seeds"),
        ({"seeds": 10**9}, "need seeds <= 1000000, got 1000000000"),
        ({"seeds": range(10**9)}, "at least one and at most 1000000, got [0, 1, 2, "),
        ({"lanes": 1.5}, "need lanes >= 1, a whole number, got 1.5"),
        ({"episodes": "5"}, "need episodes >= 1, a whole number, got '5'"),
        ({"episodes": 10**12}, "need episodes <= 2147483646, got 1000000000000"),
    ],
)
def test_arguments_of_training_are_checked(tmp_path, changed, shown):
    settings = {"env": ENV, "agent": "dqn", "episodes": 2, "out": tmp_path / "out"} | changed
    with pytest.raises(InputError) as error:
        winkel.train(**settings)
    assert shown in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seconds", ["soon", None, -1, float("nan")])
def test_seconds_between_checkpoints_are_checked(seconds):
    with pytest.raises(InputError, match="need checkpoint_seconds >= 0, got"):
        Options(checkpoint_seconds=seconds)


@pytest.mark.parametrize("label", ["", "a/b", "..", "a\nb", "\udcff", "a" * 256, "ä" * 128])
def test_a_label_that_names_no_folder_is_refused(tmp_path, label):
    with pytest.raises(InputError, match="need label to name a folder") as error:
        learn(tmp_path / "out", label=label)
    assert str(error.value).isprintable()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", [None, 5, ["runs"]])
def test_a_path_to_load_is_checked(path):
    with pytest.raises(InputError, match="need a folder for path, got"):
        winkel.load(path)


@pytest.mark.parametrize(
    ("observation", "given", "shown"),
    [
        (Dense((2,)), [0.0, np.nan], "need finite numbers in an observation, got nan"),
        (Dense((2,)), [0.0, np.inf], "got inf"),
        (Dense((2,)), [0.0, 1e300], "got 1e+300"),
        (Dense((2,)), ["a", "b"], "need an observation of numbers, got <U1"),
        (Dense((2,)), [None, None], "need an observation of numbers, got object"),
        (Dense((2,)), None, "need an observation of shape [2], got []"),
        (Image((1, 2), 1), [[[0, 256]]], "need whole numbers from 0 to 255"),
        (Image((1, 2), 1), [[[0, -1]]], "got -1"),
        (Image((1, 2), 1), [[[0.5, 0]]], "got 0.5"),
        (Image((1, 2), 1), [[[np.nan, 0]]], "got nan"),
        (OneHot((2,)), [np.nan, 0.0], "with at most a single one"),
        (OneHot((2,)), np.nan, "with at most a single one"),
    ],
)
def test_an_observation_of_other_numbers_is_refused(observation, given, shown):
    with pytest.raises(InputError) as error:
        encode_observation(observation, given)
    assert shown in str(error.value)
    assert "\n" not in str(error.value)


def test_policies_refuse_what_is_no_observation():
    training = winkel.train("bandit/0", "dqn", episodes=2, burn_in=2, batch_size=2, hidden=(2,))
    for ask in (training.policy(), training.estimates):
        with pytest.raises(InputError, match="need finite numbers in an observation, got nan"):
            ask([[np.nan]])
