"""Programs that are recorded on NVIDIA's GPUs, and how it is settled whether they are."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winkel.training import launches
from winkel.training.launches import GRAPHS, Program, known, wanted


@pytest.fixture
def cuda(monkeypatch):
    """As if the first device were NVIDIA's."""
    client = SimpleNamespace(platform_version="cuda 13000")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(client=client)])
    monkeypatch.delenv("XLA_FLAGS", raising=False)


def test_recording_is_for_nvidia(cuda, monkeypatch):
    assert wanted()
    amd = SimpleNamespace(platform_version="rocm 70000")
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(client=amd)])
    assert not wanted()


def test_no_recording_on_a_cpu():
    assert not wanted()


def test_users_who_set_flags_decide_for_themselves(cuda, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_deterministic_ops=true")
    assert wanted()
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_enable_command_buffer=")
    assert not wanted()


def test_no_recording_with_a_persistent_cache(cuda, tmp_path):
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    try:
        assert not wanted()
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.parametrize("recorded", [False, True])
def test_the_result_is_the_same(recorded, monkeypatch):
    """Other platforms pass over options of GPUs."""
    monkeypatch.setattr(launches, "wanted", lambda: recorded)
    program = Program(lambda x, *, times: times * x, static_argnames="times")
    assert program._cache_size() == 0
    np.testing.assert_array_equal(program(jnp.arange(3), times=2), [0, 2, 4])
    np.testing.assert_array_equal(program(jnp.arange(3), times=2), [0, 2, 4])
    assert program._cache_size() == 1


def test_xla_knows_the_options():
    assert known()


def test_no_recording_by_an_xla_without_them(cuda, monkeypatch):
    monkeypatch.setitem(GRAPHS, "xla_gpu_enable_command_buffer", "FUSION,CONVOLUTIONS")
    assert not known()
    assert not wanted()
