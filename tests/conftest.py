"""Strictness for all tests: shapes and types are checked, and no rank is promoted silently."""

import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path

# Compilation dominates the tests; the results do not depend on how well it optimises. XLA's older
# code for fusions halves the processor time of compiling an agent's update; one module of LLVM for
# a program, in the order that comes first, saves another sixth. Without any fusion compiling takes
# half of that again, but tests that learn then take minutes.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1 "
    "--xla_cpu_enable_concurrency_optimized_scheduler=false",
)

# The workers and the processes that they start share the programs of this session, which begins
# with none. A worker inherits the folder.
PROGRAMS = None
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    PROGRAMS = tempfile.mkdtemp(prefix="winkel-programs-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = PROGRAMS
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

from jaxtyping import install_import_hook  # noqa: E402

# Before anything imports winkel.
install_import_hook("winkel", "beartype.beartype")

import hypothesis  # noqa: E402
import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

from helpers import unchecked  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
hypothesis.settings.register_profile("winkel", deadline=None, derandomize=True)
hypothesis.settings.load_profile("winkel")
# Jaxprs are many objects and few cycles: by default collections take a tenth of the time.
gc.set_threshold(50_000, 20, 50)
# A job in the background of a shell ignores interrupts, which tests send to themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)


FIRST = ("test_readme.py", "test_kill.py", "test_simulated.py", "test_agents.py", "test_packing.py")
"""Files that take longest: a worker that began one of them last would work on alone."""


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name not in FIRST)


def pytest_unconfigure():
    if PROGRAMS is not None:
        shutil.rmtree(PROGRAMS, ignore_errors=True)


MOST_MAPPINGS = 20_000
"""Of memory, that a process may have before its compiled programs go: each takes some, and Linux
ends a process that compiles beyond its limit of 65,530."""


@pytest.fixture(scope="module", autouse=True)
def _few_mappings():
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPPINGS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="module")
def small_torso():
    """Agents on pictures with the least of a body."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("winkel.networks.impala.CHANNELS", (2,))
        patch.setattr("winkel.networks.impala.SIDE", 2)
        yield


@pytest.fixture
def wide(monkeypatch):
    """A terminal in which no line is wrapped."""
    monkeypatch.setattr("winkel.commands.options.console._width", 200)


@pytest.fixture
def small_heap():
    """What other tests left is not searched: for tests that collect garbage or look for leaks."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def without_shape_checks():
    """Jaxtyping's checks would speak before our own errors."""
    with unchecked():
        yield


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield
