"""Programs: how many are compiled, when, and with which options."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from helpers import compilations
from winkel.envs.registry import make
from winkel.runs.spec import configure
from winkel.training.compiled import CompiledWorld
from winkel.training.lanes import Lanes
from winkel.training.programs import CUDA_GRAPHS, cuda_graphs, knows_cuda_graphs
from winkel.training.steps import Horizon, Plan

TASK = make("deep_sea:size=3")
TINY = {"hidden": (4,), "num_atoms": 3, "batch_size": 2, "burn_in": 4, "capacity": 16}
AGENT, HYPER = configure("qr_dqn", TINY, TASK)


def make_lanes(num_runs, num_lanes, chunk_steps):
    plans = [Plan(TASK.params, HYPER, Horizon(episodes=30), seed) for seed in range(num_runs)]
    return Lanes(AGENT, CompiledWorld(TASK.env), plans, num_lanes, chunk_steps)


def test_programs_are_counted():
    lanes = make_lanes(1, 5, 6)
    lanes.advance()
    assert lanes.programs.count == 3  # the beginning, burn-in, learning
    assert lanes.programs.compiling > 0
    lanes.advance()
    assert lanes.programs.count == 3
    again = make_lanes(1, 5, 6)
    again.advance()
    assert (again.programs.count, again.programs.compiling) == (0, 0.0)
    assert again.programs.running > 0


def test_what_is_prepared_is_not_compiled_again():
    chunk = 9  # a program of its own
    with compilations() as prepared:
        for future in make_lanes(3, 3, chunk).prepare():
            future.result()
    assert [name for name, _ in prepared].count("advance") == 2  # burn-in, learning
    lanes = make_lanes(3, 3, chunk)
    lanes._fill()
    with compilations() as found:
        lanes.advance()
    assert found == []
    lanes.chunk_steps = 10
    with compilations() as found:
        lanes.advance()
    assert "advance" in {name for name, _ in found}


@pytest.fixture
def cuda(monkeypatch):
    """As if the first device were NVIDIA's, and programs were not cached on disk."""
    client = SimpleNamespace(platform_version="cuda 13000")
    folder = jax.config.jax_compilation_cache_dir
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(client=client)])
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    jax.config.update("jax_compilation_cache_dir", folder)


def test_cuda_graphs_are_for_nvidia(cuda, monkeypatch):
    assert cuda_graphs() == CUDA_GRAPHS
    amd = SimpleNamespace(platform_version="rocm 70000")
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(client=amd)])
    assert cuda_graphs() is None


def test_no_cuda_graphs_on_a_cpu():
    assert cuda_graphs() is None


def test_users_who_set_flags_decide_for_themselves(cuda, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_deterministic_ops=true")
    assert cuda_graphs() is not None
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_enable_command_buffer=")
    assert cuda_graphs() is None


def test_no_cuda_graphs_with_a_persistent_cache(cuda, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    assert cuda_graphs() is None


def test_results_with_the_options_are_the_same():
    """Other platforms pass over options of GPUs."""
    double = jax.jit(lambda x: 2 * x, compiler_options=CUDA_GRAPHS)
    np.testing.assert_array_equal(double(np.arange(3)), [0, 2, 4])


def test_no_cuda_graphs_by_an_xla_without_them(cuda, monkeypatch):
    assert knows_cuda_graphs()
    monkeypatch.setitem(CUDA_GRAPHS, "xla_gpu_enable_command_buffer", "FUSION,CONVOLUTIONS")
    assert not knows_cuda_graphs()
    assert cuda_graphs() is None
