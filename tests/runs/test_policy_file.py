"""Policies as files that act without JAX."""

import json
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import winkel
from envs.own import Symbols
from play.made_runs import room_task
from play.rooms import PLAIN
from runs.tiny import learn
from winkel import cli, numpy_policy
from winkel.agents import AGENTS
from winkel.envs.functional import make_jax_task
from winkel.envs.registry import make, make_padded
from winkel.errors import InputError
from winkel.runs.policies import train_command
from winkel.runs.record import RunRecord
from winkel.runs.spec import field_names, make_spec
from winkel.types import Planes

SMALL = {"hidden": (16, 8), "c51_hidden": (16,), "num_atoms": 11, "num_members": 3}
SUPPORT = {"z_min": -2.0, "z_max": 3.0}
MORE = (
    ("pe_dqn_c51_c51", {}),
    ("pe_dqn", {"projections": ("quantile", "expectile"), "hidden": (16,)}),
)
EVERY = pytest.mark.parametrize(
    ("agent", "fields"), [*((name, {}) for name in AGENTS), *MORE], ids=str
)


def untrained(task, agent="pe_dqn", **fields):
    """A run in memory before its first step."""
    known = field_names(agent)
    fields = {name: x for name, x in (SMALL | SUPPORT | fields).items() if name in known}
    spec = make_spec(task, agent, fields, steps=10)
    learner = spec.agent.init(jax.random.key(1), spec.hyper)
    return RunRecord(spec.config, {"return": np.zeros(0)}, spec=spec, learner=learner)


@EVERY
def test_dense_observations_give_the_same_actions_as_in_jax(agent, fields, tmp_path):
    run = untrained(room_task(PLAIN), agent, **fields)
    run.export_policy(tmp_path / "policy.npz")
    policy = numpy_policy.load(tmp_path / "policy.npz")
    batch = np.random.default_rng(0).normal(size=(1000, 3))
    np.testing.assert_array_equal(policy(batch), run.policy()(batch))
    np.testing.assert_allclose(policy.values(batch), run.values(batch), atol=1e-4, rtol=1e-4)
    assert policy(batch[7]) == run.policy()(batch[7])
    assert type(policy(batch[7])) is int


@EVERY
def test_cells_of_a_grid_give_the_same_actions_as_in_jax(agent, fields, tmp_path):
    run = untrained(make("deep_sea:size=6"), agent, **fields)
    run.export_policy(tmp_path / "policy.npz")
    policy = numpy_policy.load(tmp_path / "policy.npz")
    indices = np.arange(37)
    grids = np.eye(37)[:, :36].reshape(37, 6, 6)  # the last one is empty
    singly = [run.policy()(index) for index in indices]
    for batch in (indices, grids):
        np.testing.assert_array_equal(policy(batch), singly)
        np.testing.assert_array_equal(run.policy()(batch), singly)
    assert policy(grids[5]) == policy(5) == singly[5]


@EVERY
def test_planes_give_the_same_actions_as_in_jax(agent, fields, tmp_path):
    env, values = Symbols(), (2, 3) if agent == "pe_dqn" else None
    env.observation = Planes((4, 5, 2), values=values)
    env.observe = lambda state: jnp.zeros((4, 5, 2))
    run = untrained(make_jax_task(env), agent, **fields)
    run.export_policy(tmp_path / "policy.npz")
    policy = numpy_policy.load(tmp_path / "policy.npz")
    batch = np.random.default_rng(0).integers(4, size=(200, 4, 5, 2))  # some beyond the last symbol
    np.testing.assert_array_equal(policy(batch), run.policy()(batch))
    np.testing.assert_allclose(policy.values(batch), run.values(batch), atol=1e-4, rtol=1e-4)
    assert policy(batch[7]) == run.policy()(batch[7])


def test_a_grid_that_was_padded_is_acted_on_without_padding(tmp_path):
    run = untrained(make_padded("deep_sea/1"))
    run.export_policy(tmp_path / "policy.npz")
    policy = numpy_policy.load(tmp_path / "policy.npz")
    side, own = run.agent.spec.observation.shape[0], make("deep_sea/1").env.observation.shape
    assert policy.shape == own < (side, side)
    for row, column in np.ndindex(own):
        assert policy(row * own[1] + column) == run.policy()(row * side + column)


def test_the_module_alone_acts_without_winkel(tmp_path):
    run = untrained(room_task(PLAIN))
    run.export_policy(tmp_path / "policy.npz")
    shutil.copy(numpy_policy.__file__, tmp_path)
    code = (
        "import sys; sys.path.insert(0, '.'); import numpy_policy; "
        "action = numpy_policy.load('policy.npz')([0.5, -1, 2]); "
        "print(action, sorted({'jax', 'winkel', 'scipy'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{run.policy()([0.5, -1, 2])} []\n"


def test_a_file_tells_what_made_it(tmp_path):
    task = room_task(PLAIN)
    run = untrained(task, "c51", learning_rate=0.25, double=False)
    run.export_policy(tmp_path / "policy.npz", np.array([1.0, 2.0]))
    about = numpy_policy.load(tmp_path / "policy.npz").about
    assert about["returns"] == {"mean": 1.5, "std": 0.5, "episodes": 2}
    command = about["command"]
    assert command == (
        "winkel train play.rooms:make_plain --agent c51 --steps 10 --num-envs 2 --double False "
        "--hidden 16,8 --num-atoms 11 --learning-rate 0.25 --z-min -2.0 --z-max 3.0"
    )
    fields = cli.parse_fields(command.split()[9:])
    again = make_spec(task, "c51", fields, steps=10)
    assert again.config["fingerprint"] == run.spec.config["fingerprint"]
    assert train_command(again) == command


def test_images_are_not_supported(tmp_path):
    with pytest.raises(
        InputError, match=r"need observations of numbers for a policy file, .* has images"
    ):
        untrained(room_task(), channels=1).export_policy(tmp_path / "policy.npz")
    with pytest.raises(InputError, match=r"need a file name that ends in \.npz, got .*policy.txt"):
        untrained(room_task(PLAIN)).export_policy(tmp_path / "policy.txt")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("obs", [np.zeros(4), np.zeros((2, 4)), np.zeros((2, 2, 3)), "up", None])
def test_a_wrong_observation_is_named(obs, tmp_path):
    run = untrained(room_task(PLAIN))
    run.export_policy(tmp_path / "policy.npz")
    with pytest.raises(ValueError, match=r"need numbers of shape \[3\], or a batch of such observ"):
        numpy_policy.load(tmp_path / "policy.npz")(obs)
    with pytest.raises(InputError, match=r"need an observation of (shape \[3\]|numbers)"):
        run.policy()(obs)


def test_damaged_files_are_one_line(tmp_path):
    path = tmp_path / "policy.npz"
    run = untrained(room_task(PLAIN))
    run.export_policy(path)
    with np.load(path) as file:
        arrays = dict(file)
    about = json.loads(str(arrays.pop("about")))
    faults = [
        ({"about": np.array("{")}, {}),
        ({}, {"format": 2}),
        ({}, {"num_actions": 3}),
        ({}, {"shape": [4]}),
        ({}, {"members": 1}),
        ({"network_weight_0": np.zeros((2, 2))}, {}),
    ]
    for changed, told in faults:
        text = np.array(json.dumps(about | told))
        np.savez(path, **({"about": text} | arrays | changed))
        with pytest.raises(ValueError, match="is not a policy file of winkel"):
            numpy_policy.load(path)
    path.write_bytes(b"PK\3\4 no")
    with pytest.raises(ValueError, match="is not a policy file of winkel"):
        numpy_policy.load(path)


def test_the_command_writes_a_file_with_the_returns(tmp_path, capsys):
    folder = learn(tmp_path).runs[0].path
    path = tmp_path / "policy.npz"
    cli.main(["evaluate", str(folder), "--policy", str(path), "--episodes", "3"])
    printed = capsys.readouterr().out
    assert "seed 0: mean return " in printed
    assert f"wrote {path}\n" in printed
    policy = numpy_policy.load(path)
    assert policy.about["returns"]["episodes"] == 3
    assert policy(7) == winkel.load(folder).policy()(7)
