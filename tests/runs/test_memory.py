"""Memory: what lanes need, what there is, and what is refused before anything is allocated."""

from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from winkel.envs.registry import make
from winkel.errors import InputError
from winkel.runs.spec import Options, configure, make_spec
from winkel.runs.train import check_run, make_lanes
from winkel.training import programs as memory
from winkel.training.compiled import CompiledWorld
from winkel.training.steps import Horizon, Plan

TASK = make("deep_sea:size=3")
TINY = {"hidden": (4,), "num_atoms": 3, "batch_size": 2, "burn_in": 4, "capacity": 16}
AGENT, HYPER = configure("qr_dqn", TINY, TASK)
PLAN = Plan(TASK.params, HYPER, Horizon(), seed=0)
WORLD = CompiledWorld(TASK.env)
SHAPES = WORLD.shapes(AGENT, PLAN)


def need(**fields):
    agent, hyper = configure("qr_dqn", TINY | fields, TASK)
    shapes = WORLD.shapes(agent, PLAN._replace(hyper=hyper))
    return memory.lane_bytes(agent, shapes, TASK.params)


@pytest.fixture
def device(monkeypatch):
    """Make the first device say how much memory it has."""

    def set_limit(limit):
        found = SimpleNamespace(memory_stats=lambda: {"bytes_limit": limit})
        monkeypatch.setattr(jax, "devices", lambda: [found])

    return set_limit


def test_what_a_lane_needs_grows_with_what_it_holds():
    less, more = need(), need(capacity=100_016)
    stored = 5 * 4 + 1  # obs, action, reward, discount, next_obs, boundary
    assert more - less == memory.COPIES * stored * 100_000


def test_what_a_lane_needs_does_not_overflow():
    width = 2**31 - 1
    assert need(hidden=(width, width)) > 4 * 4 * memory.COPIES * width**2
    assert memory.array_bytes(jax.ShapeDtypeStruct((20, 2**31, 2**31), np.float32)) == 80 * 2**62


def test_lanes_without_memory_are_refused_with_both_figures(monkeypatch):
    lane = need() + 100 * memory.STEP_BYTES
    monkeypatch.setattr(memory, "machine_memory", lambda: 3 * lane)
    memory.check_memory(AGENT, SHAPES, TASK.params, num_lanes=3, num_steps=100)
    memory.check_memory(
        AGENT, SHAPES, TASK.params, num_lanes=1, num_steps=100, other_bytes=2 * lane
    )
    for lanes, others in ((4, 0), (1, 2 * lane + 1)):
        with pytest.raises(InputError, match=r"need about \d+ MiB of memory for .*, got \d+ MiB"):
            memory.check_memory(AGENT, SHAPES, TASK.params, lanes, 100, others)
    spec = make_spec(TASK, "qr_dqn", TINY)
    with pytest.raises(InputError, match="need about"):
        check_run(spec, 4)
    with pytest.raises(InputError, match="need about"):
        make_lanes(spec, [PLAN] * 4, 4, Options())


def test_a_device_that_tells_must_have_memory_for_one_lane(device):
    lane = need() + 100 * memory.STEP_BYTES
    device(lane)
    memory.check_memory(AGENT, SHAPES, TASK.params, num_lanes=1000, num_steps=100)
    device(lane - 1)
    with pytest.raises(InputError, match="for a lane with this environment"):
        memory.check_memory(AGENT, SHAPES, TASK.params, num_lanes=1, num_steps=100)


@pytest.mark.parametrize(
    ("group", "files", "limit"),
    [
        ("0::/job/step\n", {"v2/job/memory.max": "5000"}, 5000),
        ("0::/job/step\n", {"v2/job/memory.max": "9", "v2/job/step/memory.max": "max"}, 9),
        ("0::/\n", {"v2/memory.max": "max"}, None),
        ("3:cpu:/a\n4:memory:/a\n", {"v1/a/memory.limit_in_bytes": "7"}, 7),
        ("4:memory:/gone\n", {"v1/memory.limit_in_bytes": "8"}, 8),
        ("4:memory:/\n", {"v1/memory.limit_in_bytes": str(2**63 - 4096)}, None),
    ],
)
def test_containers_and_jobs_have_less_memory_than_the_machine(
    tmp_path, monkeypatch, group, files, limit
):
    whole = memory.machine_memory()
    assert whole > 2**20
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    read = Path.read_text

    def read_text(path):
        return group if path == Path("/proc/self/cgroup") else read(path)

    monkeypatch.setattr(Path, "read_text", read_text)
    names = [name for _, name in memory.CGROUPS]
    folders = [tmp_path / "v2", tmp_path / "v1"]
    monkeypatch.setattr(memory, "CGROUPS", tuple(zip(folders, names, strict=True)))
    found = memory.machine_memory()
    assert found == limit if limit else found >= whole


def test_keys_are_counted_as_numbers():
    assert memory.array_bytes(jax.random.key(0)) == 8
    assert memory.array_bytes(np.zeros((3, 4), np.int16)) == 24
