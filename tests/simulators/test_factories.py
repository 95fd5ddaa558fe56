"""Environments as objects of Python: Gymnasium's, and functions that make them."""

import functools

import gymnasium
import numpy as np
import pytest

import winkel
from play.made_runs import OPTIONS, TINY
from play.rooms import PlainRoom, make_plain
from simulators.gym_worlds import Dice
from terminal_helpers import refused
from winkel.errors import InputError
from winkel.simulators.names import Factory, identify

FIELDS = {**TINY, "z_min": 0.0, "z_max": 6.0, "options": OPTIONS}


class Doubled(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 2 * reward


def train(env, steps=20, **changed):
    return winkel.train(env, "c51", steps=steps, **(FIELDS | changed))


def test_an_object_of_gymnasium_is_the_environment_of_its_id():
    assert identify(gymnasium.make("CartPole-v1")) == "gym:CartPole-v1"
    assert identify(gymnasium.make("CartPole-v1", render_mode="rgb_array")) == "gym:CartPole-v1"
    run = train(gymnasium.make("CartPole-v1"), workers=0).of()
    assert run.config["env"] == "gym:CartPole-v1"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Doubled(gymnasium.make("CartPole-v1")),
        lambda: gymnasium.make("CartPole-v1", max_episode_steps=7),
        lambda: gymnasium.make("FrozenLake-v1", is_slippery=False),
        lambda: gymnasium.make("CartPole-v1").unwrapped,
        Dice,
    ],
)
def test_an_object_that_its_id_does_not_make_needs_a_function(make):
    with pytest.raises(InputError, match=r"need a function that makes the environment, winkel\.tr"):
        train(make())
    assert isinstance(identify(lambda: make()), Factory)


@pytest.mark.parametrize("env", [3, None, ["deep_sea/0"], PlainRoom()])
def test_other_objects_are_refused(env):
    with pytest.raises(InputError, match="need a name such as 'deep_sea/0' or a function for env"):
        train(env)


def test_a_function_of_a_module_is_its_name():
    assert identify(make_plain) == "play.rooms:make_plain"
    assert identify(PlainRoom) == "play.rooms:PlainRoom"


def test_other_functions_are_named_after_where_they_are():
    name = f"factory:{__name__}.test_other_functions_are_named_after_where_they_are.locals.lambda"
    assert identify(lambda: make_plain()).name == name
    assert identify(functools.partial(PlainRoom, length=3)).name == "factory:functools.partial"


def test_a_factory_trains_is_loaded_and_goes_on_only_if_it_is_given_again(tmp_path, capsys):
    made = []

    def make():
        made.append(PlainRoom())
        return made[-1]

    run = train(make, out=tmp_path).of()
    name = run.config["env"]
    assert name.startswith("factory:")
    assert name.endswith(".make")
    assert run.task.workers == 0  # a function inside of another one cannot be pickled
    assert made
    returns = run.evaluate(3)
    assert returns.shape == (3,)

    folder, count = run.folder, len(made)
    loaded = winkel.load(folder)
    assert loaded.policy()(np.zeros(3)) in (0, 1)
    asked = "is a function of the Python program that trained in it; pass that function"
    with pytest.raises(InputError, match=asked):
        loaded.evaluate(1)
    for command in (["evaluate", folder], ["play", folder], ["play", folder, "--env", name]):
        assert asked in refused(command, capsys)
    assert asked in refused(["train", name, "--steps", 40], capsys)
    assert len(made) == count
    np.testing.assert_array_equal(winkel.load(folder, env=make).of().evaluate(3), returns)
    with pytest.raises(InputError, match="need the environment of the run, 'factory:"):
        winkel.load(folder, env=lambda: make())

    longer = train(make, steps=20, out=tmp_path, resume=True).of()
    assert longer.config["env"] == name
    np.testing.assert_array_equal(longer.episodes["return"], run.episodes["return"])


def test_a_factory_that_can_be_pickled_runs_in_workers():
    factory = functools.partial(PlainRoom, length=3)
    assert identify(factory).can_travel
    run = train(factory).of()
    assert run.task.workers is None
    assert set(run.episodes["length"]) == {3}
    assert run.evaluate(2).shape == (2,)


def test_one_that_cannot_is_not_sent_to_workers():
    factory = Factory("factory:m.make", lambda: PlainRoom())
    assert not factory.can_travel
    with pytest.raises(InputError, match=r"need workers=0 for factory:.*, got 2"):
        train(lambda: PlainRoom(), workers=2)


def test_what_a_factory_raises_is_one_line():
    def make():
        raise RuntimeError("no engine")

    with pytest.raises(InputError, match=r"called with \{\} raised RuntimeError: no engine"):
        train(make)
