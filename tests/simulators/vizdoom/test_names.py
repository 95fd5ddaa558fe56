"""Names of doom environments, and the makers that they mean."""

import importlib.util
import pickle

import pytest

from winkel.errors import InputError
from winkel.simulators.names import parse
from winkel.simulators.vizdoom import NAMES, MyWayHome


def test_every_name_has_a_maker_that_travels():
    assert tuple(f"doom:my-way-home/{v}" for v in ("dense", "sparse", "very-sparse")) == NAMES
    for name in NAMES:
        maker = pickle.loads(pickle.dumps(parse(name)[1]))
        simulator = maker()
        assert isinstance(simulator, MyWayHome)
        assert simulator.layout == ((42, 42), "uint8", 6)
        assert (simulator.num_actions, simulator.facts) == (5, ("goal",))
        assert simulator.probes == ("x", "y", "angle")


def test_options_are_read():
    canonical, maker = parse("doom:my-way-home/sparse?rendering=paper,timeout=truncation, stack=4")
    assert canonical == "doom:my-way-home/sparse:rendering=paper,stack=4,timeout=truncation"
    assert maker.settings == maker().settings == ("sparse", "paper", "truncation", 4)
    assert maker().layout.stack == 4
    other = parse("doom:my-way-home/dense:stack=2,rendering=paper")[1]
    assert other.settings == MyWayHome("dense", rendering="paper", stack=2).settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("doom:my-way-home", "very-sparse, got 'doom:my-way-home'"),
        ("doom:my-way-home/Sparse", "got 'doom:my-way-home/Sparse'"),
        ("doom:", "got 'doom:'"),
        ("doom:my-way-home/dense?rendering=slow", "a rendering of paper, fast, got 'slow'"),
        ("doom:my-way-home/dense?timeout=never", "termination, truncation, got 'never'"),
        ("doom:my-way-home/dense?stack=0", "need stack >= 1, a whole number, got 0"),
        ("doom:my-way-home/dense?stack=x", "got 'x'"),
        ("doom:my-way-home/dense?skip=4", "rendering, timeout, stack with .* got 'skip'"),
        ("doom:my-way-home/dense?stack", "got 'doom:my-way-home/dense.stack'"),
        ("doom:my-way-home/dense?stack=2,stack=3", "stack twice"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text, message, without_shape_checks):
    with pytest.raises(InputError, match=message) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_without_vizdoom_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install winkel\[doom\]"):
        parse(NAMES[0])
