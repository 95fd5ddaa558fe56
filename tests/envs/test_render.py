import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winkel import envs
from winkel.envs.bsuite.mnist import Mnist
from winkel.runs.rollout import frames, make_policy

ZERO = jnp.zeros((), jnp.int32)


def picture(task_id, **changes):
    task = envs.make(task_id)
    inner = task.env.start(task.env.draw_start(jax.random.key(0), task.params), ZERO, task.params)
    return task.env.render(inner._replace(**changes), task.params)


def test_deep_sea_shows_the_diver_and_the_treasure():
    shown = picture("deep_sea:size=4", row=np.int32(2), column=np.int32(1))
    assert shown == "·   \n··  \n·o· \n···$"
    assert "o" not in picture("deep_sea:size=4", row=np.int32(4))


def test_catch_shows_ball_and_paddle():
    lines = picture("catch/0", ball_x=np.int32(0), ball_y=np.int32(3)).splitlines()
    assert len(lines) == 10
    assert lines[3] == "o····"
    assert lines[9] == "··=··"
    assert "@" in picture("catch/0", ball_x=np.int32(2), ball_y=np.int32(9))


@pytest.mark.parametrize(
    ("task_id", "word"),
    [
        ("memory_size/2", "bit"),
        ("umbrella_length/5", "umbrella"),
        ("discounting_chain/0", "undecided"),
    ],
)
def test_chains_show_how_far_they_are(task_id, word):
    assert word in picture(task_id)
    assert picture(task_id).startswith("[>")


def test_other_states_are_shown_as_numbers_or_shades():
    assert len(picture("cartpole/0").split()) == 6
    digits = Mnist(images=np.full((1, 28, 28), -1, np.int8), labels=np.zeros(1, int))
    lines = digits.render(digits.start(ZERO, ZERO, None), None).splitlines()
    assert len(lines) == 28
    assert set(lines[0]) == {"@"}  # byte 255, the brightest, is −1 when signed


@pytest.mark.parametrize(
    "task_id", ["umbrella_distract/0", "deep_sea_stochastic/0", "memory_size/3"]
)
def test_every_kind_of_environment_can_be_shown(task_id):
    task = envs.make(task_id)
    shown = list(frames(task, make_policy("random", task.env), seed=0))
    assert len(shown) > 3


def test_frames_run_from_start_to_end():
    task = envs.make("catch/0")
    shown = list(frames(task, make_policy("action:1", task.env), seed=3))
    assert len(shown) == 10
    assert shown[0][0] == "start"
    assert shown[-1][0].startswith("step 9  action 1")
