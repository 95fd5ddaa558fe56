"""Environments in JAX of a user's own: names, objects, and input that is no environment."""

import sys
from functools import partial

import jax
import numpy as np
import pytest

import winkel
from envs import own
from runs.tiny import TINY
from terminal_helpers import refused
from winkel.agents import AGENTS
from winkel.envs.functional import make_jax_task, remake_jax
from winkel.envs.outside import estimate_range
from winkel.errors import InputError
from winkel.play.episodes import open_environment
from winkel.runs.spec import make_spec
from winkel.runs.train import learner_shapes, state_shapes
from winkel.training.compiled import advance
from winkel.training.steps import make_jobs
from winkel.types import Dense, OneHot, Planes

SMALL = {"steps": 60, **TINY}


def course(task, actions):
    """Results of some actions."""
    key = jax.random.key(0)
    state, _ = task.env.reset(key, ())
    results = []
    for action in actions:
        state, result = task.env.step(key, state, action, ())
        results.append(result)
    return results


def test_an_end_keeps_its_last_observation_and_begins_the_next_episode():
    _, last = course(make_jax_task("jax:envs.own:Walk"), [1, 1])
    assert (last.reward, last.discount, last.boundary) == (1.0, 0.0, True)
    np.testing.assert_array_equal(last.next_obs, [0, 0, 0, 0, 1])
    np.testing.assert_array_equal(last.obs, [0, 0, 1, 0, 0])


def test_a_time_limit_ends_an_episode_without_terminating_it():
    steps = course(make_jax_task("jax:envs.own:Walk:limit=3"), [1, 0, 1])
    assert [bool(step.boundary) for step in steps] == [False, False, True]
    assert all(step.discount == 1.0 for step in steps)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("jax:envs.own:Walk:size=6", Dense((6,))),
        ("jax:envs.own:make_walk?size=0x6", Dense((6,))),
        ("jax:envs.own:WALK", Dense((7,))),
        ("jax:envs.own:Cells", OneHot((5,))),
        ("jax:envs.own:Symbols", Planes((4, 4, 2), (2, 3), "uint8")),
    ],
)
def test_classes_functions_and_objects_are_named(name, form):
    task = make_jax_task(name)
    assert task.env.observation == form
    again = remake_jax(task.describe())
    assert (again.id, again.env.observation, again.env.num_actions) == (
        task.id, form, task.env.num_actions,
    )  # fmt: skip


def test_an_environment_that_is_made_inside_of_a_program_keeps_its_arrays():
    config = make_jax_task("jax:envs.own:Tabled").describe()
    with open_environment(remake_jax(config).named_as("jax:envs.own:Tabled")) as (reset, step):
        reset()
        assert [float(step(1).reward) for _ in range(2)] == [0.0, 1.0]


def test_an_object_is_recorded_by_its_class_and_fields(tmp_path):
    trained = winkel.train(own.Walk(size=6), "dqn", out=tmp_path, **drop("num_atoms"))
    assert trained.runs[0].config["env"] == "jax:envs.own:Walk:limit=9,size=6"
    named = winkel.train("jax:envs.own:Walk:size=6,limit=9", "dqn", **drop("num_atoms"))
    np.testing.assert_array_equal(trained.episodes["return"], named.episodes["return"])


def drop(*names):
    return {name: value for name, value in SMALL.items() if name not in names}


def test_a_class_of_a_script_is_recorded_by_its_file(monkeypatch):
    class Main:
        __file__ = "/somewhere/mine.py"
        __spec__ = None

    monkeypatch.setitem(sys.modules, "__main__", Main)
    walk = type("MyWalk", (own.Walk,), {"__module__": "__main__"})()
    assert make_jax_task(walk).id == "jax:mine:MyWalk:limit=9,size=5"


def test_the_range_of_returns_is_that_of_a_random_policy():
    said = []
    trained = winkel.train("jax:envs.own:Walk", "c51", notice=said.append, **SMALL)
    hyper = trained.runs[0].config["hyper"]
    expected = estimate_range((0.0, 0.0), (0.0, 1.0), hyper["gamma"])
    assert (hyper["z_min"], hyper["z_max"]) == pytest.approx(expected)
    assert "measuring rewards of a random policy in 1,000 steps" in said[0]
    assert "by a random policy's rewards; --z-min and --z-max set it" in said[1]


def test_pictures_are_observed_on_the_device(small_torso):
    trained = winkel.train(own.Pictures(), "dqn", channels=1, **drop("num_atoms"))
    assert trained.runs[0].config["status"] == "finished"


@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_has_a_program_on_planes(agent):
    """Its learner has a body, and the shapes that are known without the environment."""
    config, hyper = AGENTS[agent].config_type.__dataclass_fields__, AGENTS[agent].hyper_type._fields
    small = {"hidden": (8,), "num_members": 3, **TINY, "c51_hidden": (8,)}
    fields = {name: value for name, value in small.items() if name in config}
    fields |= {"z_min": 0.0, "z_max": 1.0} if "z_min" in hyper else {}
    task = make_jax_task("jax:envs.own:Symbols")
    spec = make_spec(task, agent, fields, steps=40)
    whole = state_shapes(spec)
    assert whole.learner.shared.params.torso.filters.weight.shape == (9 * 5, 16)
    assert whole.replay.items.obs.dtype == np.uint8
    known = learner_shapes(spec)
    assert jax.tree.map(str, (known["learner"], known["clock"])) == jax.tree.map(
        str, (whole.learner, whole.clock)
    )
    jobs = make_jobs([spec.plan()], spec.agent.spec, masked=False)
    lanes = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), whole)
    step = partial(advance, spec.agent, task.env, num_steps=1, learning=True)
    after, (_, _, metrics) = jax.eval_shape(step, jobs, lanes)
    assert jax.tree.map(str, after) == jax.tree.map(str, lanes)
    assert metrics["loss"].shape == (1, 1)


def test_planes_of_a_policy_must_be_symbols():
    trained = winkel.train("jax:envs.own:Symbols", "dqn", **drop("num_atoms"))
    with pytest.raises(InputError, match="need whole numbers from 0 to 255 in an observation"):
        trained.policy()(np.full((4, 4, 2), 0.5))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("jax:envs.own", "need an environment of the form jax:module:Name, got 'jax:envs.own'"),
        ("jax:no_such:Env", "no module 'no_such' for 'no_such:Env', neither here nor installed"),
        ("jax:envs.own:Wlak", "module 'envs.own' has no function 'Wlak'; did you mean Walk"),
        ("jax:envs.own:NUMBER", "need observation in jax:envs.own:NUMBER, a shape such as"),
        ("jax:envs.own:Walk:length=3", "envs.own:Walk called with {'length': 3} raised TypeError"),
        ("jax:envs.own:NoStep", "need step in jax:envs.own:NoStep, a function step(key, state, a"),
        ("jax:envs.own:Continuous", "need num_actions of jax:envs.own:Continuous, a whole number"),
        ("jax:envs.own:Grows", "got the observation as bool[5] after a reset and float32[6] after"),
        ("jax:envs.own:Changes", "got state['place'] as int32[] after a reset and float32[] after"),
        ("jax:envs.own:Four", "need a function step(key, state, action) that returns (state,"),
        ("jax:envs.own:Chance", "need a pure reset in jax:envs.own:Chance, got two results for"),
        ("jax:envs.own:Counts", "need a pure step in jax:envs.own:Counts, got two results for"),
        (
            "jax:envs.own:Keeps",
            "need a pure reset in jax:envs.own:Keeps, got one that keeps arrays",
        ),
        ("jax:envs.own:Raises", "reset of jax:envs.own:Raises raised RuntimeError: no board"),
        ("jax:envs.own:Misshapen", "need observations of jax:envs.own:Misshapen as [4], got"),
        ("jax:envs.own:Worded", "need observation of jax:envs.own:Worded, a shape such as (4,)"),
    ],
)
@pytest.mark.usefixtures("small_heap")
def test_what_is_no_environment_is_one_line(name, message, capsys, tmp_path):
    said = refused(["train", name, "--out", tmp_path / "runs", "--steps", "9"], capsys)
    assert message in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "pgx:minatar-freewya",
            "unknown environment 'minatar-freewya'; did you mean minatar-freew",
        ),
        ("pgx:tic_tac_toe", "need a game of one player, got one of 2"),
        ("pgx:2048:max_steps=0", "need max_steps >= 1"),
        ("pgx:2048:limit=3", "making pgx:2048:limit=3 raised TypeError"),
        ("gymnax:Pendulum-v1", "need discrete actions, got Box"),
        ("gymnax:CartPole-v1:lenght=3", "making gymnax:CartPole-v1:lenght=3 raised TypeError"),
        ("craftax:Craftax-Symbolic-v1:size=3", "craftax has no parameter 'size'"),
        ("navix:Navix-DoorKey-7x7-v0", "unknown environment 'Navix-DoorKey-7x7-v0'; did you mean"),
        ("xminigrid:MiniGrid-Empty", "unknown environment 'MiniGrid-Empty'; did you mean MiniGrid"),
    ],
)
def test_what_a_library_does_not_have_is_one_line(name, message, capsys):
    pytest.importorskip(name.partition(":")[0], reason="the library is not installed")
    with jax.numpy_rank_promotion("allow"):
        assert message in refused(["train", name, "--steps", "9"], capsys)


def test_options_of_simulators_are_refused(capsys):
    said = refused(["train", "jax:envs.own:Walk", "--steps", "9", "--num-envs", "2"], capsys)
    assert "need num_envs with a simulator such as gym:CartPole-v1" in said


def test_an_object_without_a_method_is_refused():
    with pytest.raises(InputError, match=r"need step in jax:envs.own:NoStep, a function step"):
        winkel.train(own.NoStep(), steps=9)


def test_a_run_is_loaded_with_the_object_that_it_was_trained_in(tmp_path):
    walk = own.Walk(size=6)
    winkel.train(walk, "dqn", out=tmp_path, **drop("num_atoms"))
    with open_environment(winkel.load(tmp_path, env=walk).of().task) as (reset, _step):
        assert reset().shape == (6,)
    with pytest.raises(InputError, match=r"need the environment of the run, .*size=6', got .*=5'"):
        winkel.load(tmp_path, env=own.Walk())


@pytest.mark.parametrize("library", ["gymnax", "craftax", "navix", "pgx", "xminigrid"])
def test_a_library_that_is_missing_is_named(library, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=rf"pip install 'winkel\[{library}\]'"):
        make_jax_task(f"{library}:Any-v0")
