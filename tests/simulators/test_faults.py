"""An environment that is wrong is named in one line, with the step and the value."""

import numpy as np
import pytest

from simulators.worlds import Fails, Frames
from winkel.errors import InputError
from winkel.simulators.base import Layout
from winkel.simulators.names import parse
from winkel.simulators.pool import Pool

WHERE = "environment 1 in step 3 of episode 1"
MESSAGES = {
    "raises": f"{WHERE} raised ZeroDivisionError: division by zero (worlds.py, line ",
    "silent": f"{WHERE} raised StopIteration (worlds.py, line ",
    "reset": "environment 1 in step 0 of episode 2 raised RuntimeError: no way back (worlds.py",
    "nan": f"{WHERE}: need a finite observation, got array([nan, nan, nan, nan], dtype=float32)",
    "infinite": f"{WHERE}: need a finite observation, got array([1.e+300, ",
    "shape": f"{WHERE}: need an observation of shape (4,), got (3,)",
    "text": f"{WHERE}: need an observation of real numbers, got array(['a', 'b', 'c', 'd'],",
    "ragged": f"{WHERE} raised ValueError: ",
    "nothing": f"{WHERE}: need an observation of real numbers, got None",
    "nan reward": f"{WHERE}: need a finite reward, got nan",
    "no reward": f"{WHERE}: need a reward that is a number, got None",
    "text reward": f"{WHERE}: need a reward that is a number, got '1'",
    "many rewards": f"{WHERE}: need a reward that is a number, got array([1., 1.])",
    "large reward": f"{WHERE}: need a finite reward, got 1e+39",
    "discount": f"{WHERE}: need a discount from 0 to 1, got 1.5",
    "facts": f"{WHERE}: need facts ('steps', 'ends'), got (1.0,)",
    "nan fact": f"{WHERE}: need a finite fact, got nan",
    "large fact": f"{WHERE}: need a finite fact, got 1e+300",
    "nan probe": f"{WHERE}: need a finite probe, got nan",
}


def failure(how, num_workers):
    pool = Pool(parse(f"simulators.worlds:Fails:how={how}")[1], [1, 2], num_workers)
    pool.reset()
    for _ in range(2):
        pool.step(np.array([1, 2]))
    with pytest.raises(InputError) as caught:
        pool.step(np.array([1, 2]))
    with pytest.raises(InputError, match="closed"):
        pool.reset()
    return caught.value


@pytest.mark.parametrize("how", MESSAGES)
def test_what_is_wrong_is_named(how):
    error = failure(how, num_workers=0)
    assert str(error).startswith(MESSAGES[how])
    assert "\n" not in str(error)


@pytest.mark.parametrize("how", ["raises", "nan reward"])
def test_workers_tell_it_in_the_same_words(how):
    alone, told = failure(how, num_workers=0), failure(how, num_workers=2)
    assert str(told) == str(alone)
    if how == "raises":
        assert "return 1 / 0" in told.__notes__[0]  # the whole traceback


def test_frames_must_be_bytes():
    class Floats(Frames):
        def observe(self):
            return super().observe().astype(np.float32)

    with (
        Pool(Floats, [1], 0) as pool,
        pytest.raises(InputError, match="environment 0 in its reset: need frames of uint8, got f"),
    ):
        pool.reset()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"layout": Layout((2,), "float64")}, "need observations of float32 or uint8, got 'float"),
        ({"layout": Layout((), "float32")}, r"at least one number, got shape \(\)"),
        ({"layout": Layout((3, 0), "float32")}, r"at least one number, got shape \(3, 0\)"),
        ({"layout": Layout((3,), "float32", 2)}, "need uint8 frames to stack, got stack 2"),
        ({"layout": Layout((8, 8), "uint8", 0)}, "need stack >= 1, a whole number, got 0"),
        ({"num_actions": 0}, "need num_actions >= 1, a whole number, got 0"),
    ],
)
def test_environments_that_cannot_be_run(changed, message):
    odd = type("Odd", (Fails,), changed)
    with pytest.raises(InputError, match=message):
        Pool(lambda: odd("raises"), [1], 0)
