"""Names of simulators: what they mean, and what is wrong with those that mean nothing."""

import pickle

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from winkel.envs.registry import is_simulator
from winkel.errors import InputError
from winkel.simulators.names import call_function, make_bsuite, make_gymnasium, parse
from winkel.simulators.pool import Pool

MEANINGS = {
    "gym:CartPole-v1": (make_gymnasium, "CartPole-v1", {}, 4),
    "gym:ALE/Pong-v5:stack=2": (make_gymnasium, "ALE/Pong-v5", {}, 2),
    "gym:my_module:MyEnv-v0": (make_gymnasium, "my_module:MyEnv-v0", {}, 4),
    "gym:my_module:MyEnv-v0:a=1": (make_gymnasium, "my_module:MyEnv-v0", {"a": 1}, 4),
    "gym:FrozenLake-v1:is_slippery=False,map_name=8x8": (
        make_gymnasium,
        "FrozenLake-v1",
        {"is_slippery": False, "map_name": "8x8"},
        4,
    ),
    "dm:bsuite/catch/0": (make_bsuite, "catch/0"),
    "dm:my.module:make:size=3": (call_function, "my.module:make", {"size": 3}, 4),
    "my_module:make": (call_function, "my_module:make", {}, 4),
    "my.module:make:path=a:b,size=(3, 4),x=0.5": (
        call_function,
        "my.module:make",
        {"path": "a:b", "size": (3, 4), "x": 0.5},
        4,
    ),
    "my_module:make:a=None,b=\"it's\",c='4',d=True,e='x, y'": (
        call_function,
        "my_module:make",
        {"a": None, "b": "it's", "c": "4", "d": True, "e": "x, y"},
        4,
    ),
}


@pytest.mark.parametrize("name", MEANINGS)
def test_names_mean_makers(name):
    canonical, maker = parse(name)
    assert canonical == name
    for same in (maker, pickle.loads(pickle.dumps(maker))):
        assert (same.func, *same.args) == MEANINGS[name]
    assert is_simulator(name)


@pytest.mark.parametrize(
    "name", ["gym:X-v0:b=2,a=true", "gym:X-v0?a=True,b=2", "gym:X-v0: a = True , b=0x2"]
)
def test_spellings_of_one_name(name):
    assert parse(name)[0] == "gym:X-v0:a=True,b=2"


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,5}", fullmatch=True).filter(lambda key: key != "stack"),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda inner: st.tuples(inner, inner),
            max_leaves=4,
        ).filter(lambda value: "inf" not in repr(value)),
        max_size=4,
    )
)
@example({"a": 'it\'s, "so"', "b": "\\", "c": 1})
@example({"a": "１０", "b": "1_0", "c": ("1_0", 2)})
def test_any_settings_are_read_back(settings):
    written = ",".join(f"{key}={value!r}" for key, value in settings.items())
    canonical, maker = parse(f"m:f:{written}" if settings else "m:f")
    assert maker.args == ("m:f", settings, 4)
    again, same = parse(canonical)
    assert (again, same.args) == (canonical, maker.args)


@pytest.mark.parametrize(
    "name", ["deep_sea/0", "deep_sea:size=30", "catch_noise/3:noise_scale=0.5"]
)
def test_environments_of_our_own_are_no_simulators(name):
    assert not is_simulator(name)


def test_numbers_of_settings_may_be_text_in_quotes():
    assert parse("m:f:a=v1_0,b='1_0',c='１'")[1].args[1] == {"a": "v1_0", "b": "1_0", "c": "１"}
    deep = "-" * 100_000 + "1"
    assert parse(f"m:f:a={deep}")[1].args[1] == {"a": deep}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gym:", "need a simulator of the form gym:id, dm:bsuite/id, .* got 'gym:'"),
        ("dm:catch/0", "need a simulator of the form .* got 'dm:catch/0'"),
        ("my module:f", "need a simulator of the form .* got 'my module:f'"),
        ("a:b:c", "need a simulator of the form"),
        ("m:f:=3", "need settings of the form key=value, got '=3' in 'm:f:=3'"),
        ("m:f:a=", "need settings of the form key=value, got 'a='"),
        ("m:f:a=1,b", "need settings of the form key=value, got 'b'"),
        ("m:f:a=1,,b=2", "need settings of the form key=value, got ''"),
        ("m:f:2a=1", "need settings of the form key=value, got '2a=1'"),
        ("m:f:a=1,a=2", "need each setting once, got a twice"),
        ("m:f:a=１０", "need numbers in digits 0 to 9 without _, got 'a=１０' in 'm:f:a=１０'"),
        ("m:f:a=٣", "need numbers in digits 0 to 9"),
        ("m:f:a=1_0", "need numbers in digits 0 to 9 without _, got 'a=1_0'"),
        ("m:f:a=('b_c', 1_0)", "need numbers in digits 0 to 9"),
        ("gym:X-v0:stack=２", "need numbers in digits 0 to 9"),
        ("gym:X-v0:stack=0", "need stack >= 1, a whole number, got 0"),
        ("dm:bsuite/catch/0:rows=3", "need no settings with bsuite's own ids"),
    ],
)
def test_names_that_mean_nothing(name, message):
    with pytest.raises(InputError, match=message):
        parse(name)


MODULE = """
import sys
from simulators.worlds import Walk

def make(length=4):
    if length < 0:
        raise ValueError("too short")
    return Walk(length)

number = 3
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, with modules that nobody else finds."""
    (tmp_path / "found_here.py").write_text(MODULE)
    (tmp_path / "needs_more.py").write_text("import not_there_at_all")
    (tmp_path / "broken_here.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [p for p in __import__("sys").path if p])
    return tmp_path


@pytest.mark.parametrize("num_workers", [0, 1])
def test_modules_of_the_current_folder_are_found(here, num_workers):
    with Pool(parse("found_here:make:length=2")[1], [1], num_workers) as pool:
        pool.reset()
        ends = [bool(pool.step(np.array([1])).boundary[0]) for _ in range(4)]
    assert ends == [False, True, False, True]


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("not_here:make", "no module 'not_here' for 'not_here:make', neither here nor installed"),
        (
            "needs_more:make",
            "importing needs_more raised ModuleNotFoundError: No module named 'not",
        ),
        ("broken_here:make", "importing broken_here raised ZeroDivisionError: division by zero"),
        ("found_here:mak", "module 'found_here' has no function 'mak'; did you mean make"),
        ("found_here:number", "module 'found_here' has no function 'number'"),
        ("found_here:make:length=-1", "called with {'length': -1} raised ValueError: too short"),
        ("found_here:make:width=1", "raised TypeError: make.. got an unexpected keyword argument"),
        ("builtins:dict", "need a gymnasium.Env, .* builtins:dict returned dict"),
    ],
)
def test_makers_that_fail_say_why(here, name, message, num_workers):
    with pytest.raises(InputError, match=message.replace("?", r"\?")) as caught:
        Pool(parse(name)[1], [1], num_workers)
    assert "\n" not in str(caught.value)
