"""A backend that JAX cannot start is one line, before anything is written."""

import jax
import pytest

from runs.tiny import files, learn
from terminal_helpers import refused
from winkel.errors import InputError
from winkel.training.programs import start_jax

COMPUTING = {
    "train": ["train", "deep_sea/0"],
    "simulator": ["train", "gym:CartPole-v1", "--steps", "10", "--z-min=0", "--z-max=1"],
    "sweep": ["sweep", "deep-sea"],
    "shard": ["sweep", "deep-sea", "--shard", "1/2"],
    "search": ["search", "--agent", "bdqn", "--trials", "4"],
    "rollout": ["rollout", "catch/0"],
    "figure": ["figure", "operator"],
}


RUN = "deep_sea/qr_dqn/size=5/seed-0"


@pytest.fixture(params=[RuntimeError("Unable to initialize\nbackend 'foo'"), AssertionError()])
def missing(request, monkeypatch):
    """As JAX fails without a backend of that name, and without the driver of a GPU."""

    def devices():
        raise request.param

    monkeypatch.setenv("JAX_PLATFORMS", "foo")
    monkeypatch.setattr(jax, "devices", devices)


def test_a_missing_backend_is_named(missing):
    with pytest.raises(InputError, match="cannot start JAX with JAX_PLATFORMS='foo': ") as error:
        start_jax()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", COMPUTING)
def test_without_its_backend_a_command_writes_nothing(missing, tmp_path, capsys, name):
    message = refused([*COMPUTING[name], "--out", tmp_path / "out"], capsys)
    assert "cannot start JAX with JAX_PLATFORMS='foo'" in message
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run."""
    root = tmp_path_factory.mktemp("made")
    learn(root, agent="qr_dqn", episodes=2)
    return root


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("inspect", [f"{{made}}/{RUN}"]),
        ("play", [f"{{made}}/{RUN}"]),
    ],
)
def test_without_its_backend_a_command_changes_nothing(missing, made, capsys, command, arguments):
    before = files(made)
    message = refused([command, *(part.format(made=made) for part in arguments)], capsys)
    assert "cannot start JAX with JAX_PLATFORMS='foo'" in message
    assert files(made) == before


def test_a_python_call_without_its_backend_says_so(missing, tmp_path):
    with pytest.raises(InputError, match="cannot start JAX"):
        learn(tmp_path / "runs")
    assert list(tmp_path.iterdir()) == []
