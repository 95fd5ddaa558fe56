"""However an engine, its owner or its keeper ends, no process, file or shared memory is left."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile

import numpy as np
import pytest

from winkel.errors import InputError
from winkel.simulators.base import SimulatorDied
from winkel.simulators.pool import Pool
from winkel.simulators.vizdoom import MyWayHome, find_program

OWNER = """
import sys
from winkel.simulators.vizdoom import MyWayHome

simulator = MyWayHome("sparse")
simulator.reset(0)
print("ready", flush=True)
sys.stdin.read()
"""
POOL = """
import sys
from winkel.simulators.pool import Pool
from winkel.simulators.vizdoom import MyWayHome

pool = Pool(MyWayHome("sparse"), seeds=range(3), num_workers=2)
pool.reset()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def simulator():
    one = MyWayHome("sparse")
    one.reset(0)
    yield one
    one.close()


@pytest.fixture
def started(tmp_path):
    """A function that runs a program until it says that it is ready."""
    processes = []

    def start(program):
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=tmp_path,
            text=True,
        )
        processes.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            pipe.close()
    assert list(tmp_path.iterdir()) == []


def step_often(simulator):
    for _ in range(100):
        simulator.step(2)


def only(found):
    (one,) = found
    return one


def test_nothing_is_left_after_close(simulator, engines_of, assert_nothing_left):
    traces = engines_of(os.getpid())
    assert len(traces) == 1
    simulator.close()
    assert_nothing_left(traces, seconds=0.0)


@pytest.mark.parametrize("victim", ["engine", "keeper"])
def test_a_killed_engine_is_told_and_a_reset_starts_another(
    simulator, engines_of, assert_nothing_left, victim
):
    traces = engines_of(os.getpid())
    simulator.step(2)
    os.kill(getattr(only(traces), victim), signal.SIGKILL)
    with pytest.raises(SimulatorDied, match="engine died"):
        step_often(simulator)
    assert_nothing_left(traces)
    with pytest.raises(InputError, match="reset"):
        simulator.step(2)
    simulator.reset(None)
    assert simulator.step(2).reward == pytest.approx(-0.0001)
    assert len(engines_of(os.getpid())) == 1


def test_an_engine_killed_between_episodes_is_told_by_reset(simulator, engines_of):
    os.kill(only(engines_of(os.getpid())).engine, signal.SIGKILL)
    with pytest.raises(SimulatorDied):
        simulator.reset(None)
    simulator.reset(3)
    simulator.step(0)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_an_engine_ends_with_its_owner(started, engines_of, assert_nothing_left, how):
    process = started(OWNER)
    traces = engines_of(process.pid)
    assert len(traces) == 1
    process.send_signal(how)
    process.wait()
    assert_nothing_left(traces)


def test_an_engine_ends_with_its_keeper(started, engines_of, ended):
    process = started(OWNER)
    trace = only(engines_of(process.pid))
    process.send_signal(signal.SIGSTOP)  # so that it cannot do anything about it
    os.kill(trace.keeper, signal.SIGKILL)
    assert ended(trace.engine)
    process.kill()
    process.wait()
    for path in trace.files:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_an_owner_that_forgets_to_close_leaves_nothing(started, engines_of, assert_nothing_left):
    process = started(OWNER)
    traces = engines_of(process.pid)
    process.stdin.close()
    assert process.wait() == 0
    assert_nothing_left(traces)


def test_interrupting_everything_leaves_the_end_to_the_owner(
    simulator, engines_of, assert_nothing_left
):
    traces = engines_of(os.getpid())
    for pid in (only(traces).engine, only(traces).keeper):
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
    step_often(simulator)
    simulator.close()
    assert_nothing_left(traces)


def test_engines_end_with_the_parent_of_their_pool(started, engines_of, assert_nothing_left):
    process = started(POOL)
    traces = engines_of(process.pid)
    assert len(traces) == 3
    process.kill()
    process.wait()
    assert_nothing_left(traces, seconds=6.0)


@pytest.mark.parametrize("victim", ["engine", "worker"])
def test_a_pool_goes_on_after_a_death(engines_of, assert_nothing_left, victim):
    maker = MyWayHome("sparse")
    with Pool(maker, seeds=[4, 5, 6], num_workers=2) as pool:
        pool.reset()
        # The first worker has one environment, the second two.
        of_first = engines_of(pool.pids[0])
        assert len(of_first) == 1
        before = engines_of(os.getpid())
        assert len(before) == 3
        pid = of_first[0].engine if victim == "engine" else pool.pids[0]
        os.kill(pid, signal.SIGKILL)
        forward = np.full(3, 2)
        lost = np.zeros(3, int)
        for _ in range(30):
            moves = pool.step(forward)
            lost += moves.lost
        np.testing.assert_array_equal(lost, [1, 0, 0])
        np.testing.assert_allclose(moves.reward, -0.0001)
        assert (moves.probes[:, 0] > 240).all()
        assert_nothing_left(of_first)
        after = engines_of(os.getpid())
        assert len(after) == 3
    assert_nothing_left([*before, *after])


def test_programs_that_cannot_run_are_refused(tmp_path):
    (tmp_path / "vizdoom").touch()
    for package in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InputError, match=r"chmod \+x"):
            find_program(package)


def test_a_folder_that_nothing_runs_from_is_refused_and_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "statvfs", lambda _: type("Flags", (), {"f_flag": os.ST_NOEXEC})())
    with pytest.raises(InputError, match="set TMPDIR"):
        MyWayHome("sparse").reset(0)
    assert list(tmp_path.iterdir()) == []
