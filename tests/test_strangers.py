"""Run folders of strangers: nothing that a folder says decides which code runs."""

import contextlib
import io
import json
import os
import sys
import zipfile

import jax
import numpy as np
import pytest

import winkel
from play.made_runs import JAX, made_run
from play.rooms import PLAIN
from terminal_helpers import refused
from winkel import cli
from winkel.envs.functional import remake_jax
from winkel.errors import InputError
from winkel.play.episodes import open_environment
from winkel.runs.results import read_results
from winkel.runs.spec import run_fingerprint
from winkel.simulators.names import chooses_code
from winkel.simulators.visits import VISITS, load_visits

pytestmark = pytest.mark.usefixtures("small_torso", "wide")

NAMES = (
    "os:system:command='touch {trace}'",
    "dm:os:system:command='touch {trace}'",
    "gym:stranger:Any-v0",
    "stranger:make",
    "jax:stranger:make",
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, in which the stranger's modules lie: importing one leaves a trace."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    monkeypatch.delitem(sys.modules, "stranger", raising=False)
    code = f"open({str(tmp_path / 'trace')!r}, 'w').close()\ndef make(): return 3\n"
    for module in ("stranger", "gymnasium", "gymnax", "vizdoom", "bsuite"):
        (tmp_path / f"{module}.py").write_text(code)
    return tmp_path


@pytest.fixture(params=NAMES)
def stranger(request, here):
    """The name of an environment that leaves a trace, and the folder of a run that names it."""
    name = request.param.format(trace=here / "trace")
    return name, made_run(here / "runs", name, "c51", z_min=0.0, z_max=1.0)


@contextlib.contextmanager
def changed_config(folder):
    """The config of a run, which is written again with the fingerprint of what it then says."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    yield config
    path.write_text(json.dumps(config | {"fingerprint": run_fingerprint(config)}))


@pytest.mark.parametrize("command", ["play", "inspect"])
def test_code_that_a_folder_names_is_not_run(stranger, here, capsys, command):
    name, folder = stranger
    files = sorted(folder.rglob("*"))
    message = refused([command, folder], capsys)
    assert f"the run names the environment {name!r}, which winkel starts only if you na" in message
    assert "add --env " in message
    assert not (here / "trace").exists()
    assert sorted(folder.rglob("*")) == files


def test_a_folder_is_loaded_and_reported_without_what_it_names(stranger, here):
    _, folder = stranger
    run = winkel.load(folder).of()
    nothing = np.zeros(run.task.env.observation.shape)
    assert run.estimates(nothing).value.shape == (2,)
    assert run.policy()(nothing) in (0, 1)
    with (
        pytest.raises(InputError, match="which winkel starts only if you name it"),
        open_environment(run.task) as (reset, _step),
    ):
        reset()
    cli.main(["report", str(here / "runs"), "--out", str(here / "page")])
    assert not (here / "trace").exists()


def test_a_range_of_returns_that_is_missing_starts_nothing(here):
    name = f"os:system:command='touch {here}/trace'"
    folder = made_run(here / "runs", name, "c51", z_min=0.0, z_max=1.0)
    with changed_config(folder) as config:
        del config["hyper"]["z_min"]
    with pytest.raises(InputError, match="need z_min and z_max"):
        winkel.load(folder)
    assert not (here / "trace").exists()


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("shape", []),
        ("shape", [1.5]),
        ("shape", [2**20, 2**20]),
        ("shape", 3),
        ("dtype", "float64"),
        ("dtype", "uint8"),
        ("stack", 2),
        ("actions", 0),
        ("actions", 2**40),
        ("actions", "two"),
        ("num_envs", -1),
        ("facts", [1]),
        ("probes", None),
    ],
)
def test_impossible_shapes_in_a_folder_are_one_line(here, entry, value):
    folder = made_run(here / "runs", PLAIN, "dltv")
    with changed_config(folder) as config:
        config["host"][entry] = value
    with pytest.raises(InputError) as caught:
        winkel.load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("command", ["play", "inspect"])
def test_code_that_the_user_names_is_run(stranger, here, capsys, command):
    name, folder = stranger
    refused([command, folder, "--env", name], capsys)  # it is no environment
    assert (here / "trace").exists()


@pytest.mark.parametrize("command", ["play", "inspect"])
def test_another_environment_than_the_run_s_own_is_refused(here, capsys, command):
    folder = made_run(here / "runs", PLAIN, "dltv")
    message = refused([command, folder, "--env", "stranger:make"], capsys)
    assert f"need the environment of the run, {PLAIN!r}, got 'stranger:make'" in message
    other = made_run(here / "runs", "deep_sea:size=5", "dltv")
    with pytest.raises(InputError, match="need the environment of the run, 'deep_sea:size=5', got"):
        winkel.load(other, env="deep_sea:size=6")
    assert not (here / "trace").exists()


def test_an_environment_may_be_named_in_another_spelling(here):
    name = "stranger:make:a=1,b=True"
    folder = made_run(here / "runs", name, "dltv")
    assert not winkel.load(folder).of().task.named
    assert winkel.load(folder, env="stranger:make?b=true,a=0x1").of().task.named
    assert winkel.load(made_run(here / "runs", "deep_sea:size=5"), env="deep_sea:size=5").runs


def test_modules_beside_a_folder_are_not_taken_for_installed_ones(here):
    """Gymnasium's own environments are started, but not with the stranger's gymnasium.py."""
    folder = made_run(here / "runs", "gym:CartPole-v1", "dltv")
    with winkel.load(folder).of().task.pool([0], print) as pool:
        assert pool.reset().shape == (1, 4)
    assert not (here / "trace").exists()


def test_a_library_beside_a_folder_is_not_taken_for_an_installed_one(here, monkeypatch, capsys):
    monkeypatch.syspath_prepend(here)
    folder = made_run(here / "runs", "gymnax:Any-v0", "dltv")
    assert winkel.load(folder).policy()(np.zeros(3)) in (0, 1)
    message = refused(["play", folder], capsys)
    assert "pip install 'winkel[gymnax]'" in message or "unknown environment" in message
    with pytest.raises(InputError, match="which winkel starts only if you name it"):
        remake_jax({"env": "gymnax:Any-v0:size=3", "jax": JAX}).env.reset(jax.random.key(0), ())
    assert not (here / "trace").exists()


@pytest.mark.parametrize(
    ("form", "actions"),
    [
        ({"form": "Sparse", "shape": [3]}, 2),
        ({"form": "Dense"}, 2),
        ({"form": "Dense", "shape": 3}, 2),
        ({"form": "Dense", "shape": [1.5]}, 2),
        ({"form": "Dense", "shape": [3]}, 0),
        ({"form": "Dense", "shape": [3]}, "two"),
        ({"form": "Planes", "shape": [4, 4, 2], "values": [3]}, 2),
        ({"form": "Planes", "shape": [4, 4, 2], "dtype": "float64"}, 2),
        ([], 2),
    ],
)
def test_impossible_shapes_of_jax_in_a_folder_are_one_line(form, actions):
    with pytest.raises(InputError, match="need the shapes of jax:a:B in its config, got") as caught:
        remake_jax({"env": "jax:a:B", "jax": {"observation": form, "actions": actions}})
    assert "\n" not in str(caught.value)


def test_an_environment_that_has_changed_since_its_run_is_refused(here, capsys):
    (here / "walks.py").write_text("from envs.own import Walk\n")
    folder = made_run(here / "runs", "jax:walks:Walk", "dltv")
    message = refused(["play", folder, "--env", "jax:walks:Walk"], capsys)
    assert "need Dense(shape=(3,)) and 2 actions as in the run, got Dense(shape=(5,))" in message


@pytest.mark.parametrize(
    ("name", "chooses"),
    [
        ("doom:my-way-home/sparse:stack=4", False),
        ("dm:bsuite/catch/0", False),
        ("gym:CartPole-v1", False),
        ("gym:ALE/Pong-v5:stack=2", False),
        ("gym:CartPole-v1:max_episode_steps=3", True),
        ("gym:CartPole-v1?wrapper=x,stack=2", True),
        ("gym:my_module:MyEnv-v0", True),
        ("dm:my_module:make", True),
        ("my_module:make", True),
        ("jax:my_module:MyEnv", True),
        ("gymnax:Breakout-MinAtar", False),
        ("gymnax:DeepSea-bsuite:size=4", True),
        ("navix:my_module:MyEnv", True),
    ],
)
def test_names_that_choose_code(name, chooses):
    assert chooses_code(name) == chooses


class Payload:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


def test_nothing_in_a_folder_is_unpickled(here):
    folder = made_run(here / "runs", PLAIN, "dltv")
    objects = np.array([Payload(here / "trace")], dtype=object)
    (checkpoint,) = (folder / "checkpoint").iterdir()
    with zipfile.ZipFile(checkpoint) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    dtypes = json.loads(members["dtypes.json"])
    pickled = io.BytesIO()
    np.save(pickled, objects)
    for dtype in ("object", "float32"):
        with zipfile.ZipFile(checkpoint, "w") as archive:
            for name, content in members.items():
                if name == "dtypes.json":
                    content = json.dumps(dict.fromkeys(dtypes, dtype)).encode()
                elif name.endswith(".npy"):
                    content = pickled.getvalue()
                archive.writestr(name, content)
        with pytest.raises(InputError, match="need a readable checkpoint"):
            winkel.load(folder)
    np.savez(folder / VISITS, visits=objects, extent=objects, cell=objects, episodes=objects)
    with pytest.raises(InputError, match="not a readable"):
        load_visits(folder)
    np.savez(folder / "evaluations.npz", returns=objects)
    with changed_config(folder) as config:
        config["rows"]["evaluations"] = 1
    with pytest.raises(InputError, match="not a readable"):
        read_results(here / "runs").records[0].evaluations  # noqa: B018
    np.savez(folder / "episodes.npz", **{"return": objects, "length": objects})
    with pytest.raises(InputError, match="not a readable"):
        read_results(here / "runs")
    assert not (here / "trace").exists()
