"""Workers are light and alone, are replaced when they die, and never outlive the pool."""

import gc
import itertools
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import winkel
from simulators.processes import folders, gone, is_temporary, living
from simulators.worlds import Engine, Inside, Walk
from winkel.errors import InputError
from winkel.simulators import pool as pools
from winkel.simulators.names import parse
from winkel.simulators.pool import Pool

PATH = os.pathsep.join([str(Path(winkel.__file__).parents[1]), str(Path(__file__).parents[1])])
RIGHT = np.array([1, 1, 1])


def fails(how, **options):
    return Pool(parse(f"simulators.worlds:Fails:how={how}")[1], [1, 2, 3], 2, **options)


def test_a_worker_has_no_jax_one_thread_and_an_empty_folder_of_its_own():
    assert "jax" in sys.modules
    with Pool(Inside, [1, 2, 3], 2) as pool:
        pool.reset()
        probes = pool.step(RIGHT).probes
        assert set(probes[:, 0]) == {pid % 2**20 for pid in pool.pids}
        np.testing.assert_array_equal(probes[:, 1:], [[0, 1, 1, 1]] * 3)
        where = folders(pool.pids)
        assert len(set(where)) == 2
        assert all(is_temporary(folder) for folder in where)
    assert not any(map(os.path.exists, where))


def test_closing_leaves_no_process_and_no_folder_also_with_engines():
    pool = Pool(Engine, [1, 2, 3], 2)
    pool.reset()
    engines = pool.step(RIGHT).probes[:, 1].astype(int)
    pids, where = pool.pids, folders(pool.pids)
    assert set(pids) | set(engines.tolist()) <= set(living(pids))
    assert {fd for pid in engines for fd in os.listdir(f"/proc/{pid}/fd")} <= {"0", "1", "2"}
    pool.close()
    assert gone(pids)
    assert not any(map(os.path.exists, where))
    pool.close()


def test_closing_leaves_no_descriptor_open():
    def opened():
        gc.collect()
        return sorted(os.listdir("/proc/self/fd"))

    before = opened()
    with Pool(Walk, [1, 2], 2) as pool:
        pool.reset()
        os.kill(pool.pids[0], signal.SIGKILL)
        pool.step(np.array([1, 1]))
    assert opened() == before


def test_a_pool_that_is_forgotten_is_closed():
    pool = Pool(Engine, [1], 1)
    pids = pool.pids
    del pool
    gc.collect()
    assert gone(pids)


def test_a_killed_worker_is_named_and_replaced_and_its_transitions_are_marked():
    notices = []
    with Pool(Engine, [1, 2, 3], 2, notice=notices.append) as pool:
        first = pool.reset()
        before = pool.step(RIGHT)
        old, where = pool.pids, folders(pool.pids)
        os.kill(old[1], signal.SIGKILL)
        lost = pool.step(RIGHT)
        assert gone(old[1:])  # its engines are gone as well
        assert not os.path.exists(where[1])
        assert pool.pids[0] == old[0]
        assert pool.pids[1] != old[1]
        np.testing.assert_array_equal(lost.lost, [False, True, True])
        assert lost.obs[0, 1] == 2
        np.testing.assert_array_equal(lost.obs[1:, 1:3], 0)
        np.testing.assert_array_equal(lost.next_obs[1:], lost.obs[1:])
        np.testing.assert_array_equal(lost.reward[1:], 0)
        np.testing.assert_array_equal(lost.discount[1:], 1)
        np.testing.assert_array_equal(lost.boundary, [False, True, True])
        np.testing.assert_array_equal(lost.facts["steps"], [1, 0, 0])
        np.testing.assert_array_equal(lost.probes[1:], 0)
        assert not set(lost.obs[1:, 3]) & set(first[:, 3])  # fresh seeds
        after = pool.step(RIGHT)
        assert not after.lost.any()
        np.testing.assert_array_equal(after.obs[:, 1], [3, 1, 1])
        assert before.probes[0, 1] == after.probes[0, 1]
        assert notices == [
            "worker 1 (environments 1 to 2) died of SIGKILL in a step or the reset after it; its "
            "episodes begin anew (restart 1 of at most 5)"
        ]
        pids = pool.pids
    assert gone(pids)


def test_fresh_seeds_follow_from_the_old_ones():
    def fresh():
        with Pool(Walk, [7, 8], 2) as pool:
            pool.reset()
            seen = []
            for _ in range(2):
                os.kill(pool.pids[0], signal.SIGKILL)
                seen.append(pool.step(np.array([1, 1])).obs[0, 3])
        return seen

    seen = fresh()
    assert fresh() == seen
    assert seen[0] != seen[1]


STEPPING = "in a step or the reset after it"


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ("killed", f"died of SIGKILL {STEPPING}"),
        ("leaves", f"ended by itself with status 3 {STEPPING}"),
        ("exits", f"ended by itself with status 4 {STEPPING}"),
        ("crashes", f"died of SIGSEGV {STEPPING} (<lambda> in worlds.py, line LINE)"),
        ("mute", "lost a simulator, the engine is gone"),
    ],
)
def test_every_way_to_go_is_one_line(how, named, capfd):
    notices = []
    began = time.monotonic()
    with fails(how, notice=notices.append) as pool:
        pool.reset()
        lost = [pool.step(np.array([2, 1, 1])).lost.tolist() for _ in range(4)]
    assert time.monotonic() - began < 10.0
    none = [False] * 3
    assert lost == [none, none, [True, False, False], none]
    assert [re.sub(r"line \d+", "line LINE", line) for line in notices] == [
        f"worker 0 (environment 0) {named}; its episodes begin anew (restart 1 of at most 5)"
    ]
    assert capfd.readouterr().err == ""


def test_a_simulator_that_dies_in_this_process_is_made_again():
    notices = []
    maker = parse("simulators.worlds:Fails:how=mute")[1]
    with Pool(maker, [1], 0, notice=notices.append) as pool:
        pool.reset()
        lost = [bool(pool.step(np.array([2])).lost[0]) for _ in range(4)]
    assert lost == [False, False, True, False]
    assert notices[0].startswith("this process lost a simulator, the engine is gone")


def test_a_worker_is_not_replaced_without_end(monkeypatch):
    monkeypatch.setattr(pools, "MAX_RESTARTS", 2)
    notices = []
    pool = fails("leaves", notice=notices.append)
    pool.reset()
    pids = pool.pids
    for _ in range(8):
        pool.step(np.array([2, 1, 1]))
    assert len(notices) == 2
    with pytest.raises(InputError) as caught:
        pool.step(np.array([2, 1, 1]))
    assert str(caught.value) == (
        f"worker 0 (environment 0) ended by itself with status 3 {STEPPING}, after 2 restarts, the "
        "most that are allowed"
    )
    assert gone(pids)


def test_a_worker_that_cannot_be_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(pools, "MAX_RESTARTS", 2)
    notices = []
    maker = parse(f"simulators.worlds:born_once:folder={tmp_path}")[1]
    with Pool(maker, [1], 1, notice=notices.append) as pool:
        pool.reset()
        os.kill(pool.pids[0], signal.SIGKILL)
        making = "ended by itself with status 7 while it made its environments"
        with pytest.raises(InputError, match=f"{making}, after 2 restarts"):
            pool.step(np.array([1]))
    assert [n.partition(";")[0] for n in notices] == [
        f"worker 0 (environment 0) died of SIGKILL {STEPPING}",
        f"worker 0 (environment 0) {making}",
    ]


def test_an_environment_that_crashes_when_it_is_made_is_one_line(capfd):
    with pytest.raises(InputError) as caught:
        Pool(parse("simulators.worlds:dies_at_birth")[1], [1], 1, name="mine")
    message = str(caught.value)
    assert message.startswith("mine: a worker died of SIGSEGV while it made its environments")
    assert "(dies_at_birth in worlds.py, line " in message
    assert "\n" not in message
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("number", [0, 1])
def test_an_environment_that_hangs_in_reset_is_one_line_in_time(number, monkeypatch):
    """It is not started again: the same would happen."""
    monkeypatch.setattr("winkel.simulators.workers.CLOSE_TIMEOUT", 0.1)
    notices = []
    maker = parse(f"simulators.worlds:Sleeps:episode={number}")[1]
    pool = Pool(maker, [1, 2], 2, name="mine", notice=notices.append)
    pool._timeout = 0.3
    pids = pool.pids
    for _ in range(number):
        pool.reset()
    began = time.monotonic()
    with pytest.raises(InputError) as caught:
        pool.reset()
    assert time.monotonic() - began < 2.0
    assert str(caught.value) == (
        "mine: worker 0 (environment 0) did not answer for 0.3 s in a reset and was killed "
        "(--timeout SECONDS allows more)"
    )
    assert notices == []
    assert gone(pids)


def test_workers_that_hang_in_a_step_are_given_up_together():
    notices = []
    maker = parse("simulators.worlds:Fails:how=hangs")[1]
    with Pool(maker, range(3), 3, timeout=4.0, notice=notices.append) as pool:
        pool.reset()
        lost, began = [], time.monotonic()
        for actions in ([2, 2, 2], [2, 1, 2], [2, 1, 2], [1, 1, 1]):
            lost.append(pool.step(np.array(actions)).lost.tolist())
    assert lost == [[False] * 3, [False] * 3, [True, False, True], [False] * 3]
    assert time.monotonic() - began < 7.9  # less than two times the timeout
    assert notices == [
        f"worker {number} (environment {number}) did not answer for 4 s {STEPPING} and was killed "
        "(--timeout SECONDS allows more); its episodes begin anew (restart 1 of at most 5)"
        for number in (0, 2)
    ]


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan")])
def test_a_timeout_must_be_positive(timeout):
    with pytest.raises(InputError, match=f"need timeout > 0, in seconds, got {timeout}"):
        Pool(Walk, [1], 1, timeout=timeout)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_environments_that_raise_in_close_are_one_notice(num_workers, capfd):
    notices = []
    maker = parse("simulators.worlds:Fails:how=close")[1]
    with Pool(maker, [1, 2, 3], num_workers, name="mine", notice=notices.append) as pool:
        pool.reset()
    (line,) = notices
    assert line.startswith("mine: environment ")
    assert " in its close raised RuntimeError: cannot close (worlds.py, line " in line
    assert line.endswith("), and 2 more did so")
    assert capfd.readouterr().err == ""


def test_an_environment_that_crashes_in_close_is_one_notice(capfd):
    notices = []
    with Pool(parse("simulators.worlds:Fails:how=crash")[1], [1], 1, notice=notices.append) as pool:
        pool.reset()
    (line,) = notices
    assert line.startswith("closing environments crashed (close in worlds.py, line ")
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("small_heap")
def test_too_few_file_descriptors_are_one_line_and_leave_nothing(tmp_path, monkeypatch):
    """Every limit from none left to enough: the pool either works or says why it does not."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    refused = []
    for spare in itertools.count():
        gc.collect()
        opened = sorted(map(int, os.listdir("/proc/self/fd")))
        limit = next(n for n in itertools.count() if n - sum(fd < n for fd in opened) == spare)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            with Pool(Walk, [1, 2], 2) as pool:
                pool.reset()
            break
        except InputError as error:
            refused.append(str(error))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert sorted(map(int, os.listdir("/proc/self/fd"))) == opened
    assert len(refused) > 5
    assert set(refused) == {
        "cannot start worker processes: Too many open files; need a higher limit (ulimit -n) or "
        "fewer --workers"
    }
    assert list(tmp_path.iterdir()) == []
    assert workers_of_this_process() == []


def workers_of_this_process():
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [pid for pid in children if b"simulators.worker_main" in command(pid)]


def command(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_worker_without_a_shell_is_one_line(monkeypatch, capfd):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="starting a worker raised FileNotFoundError"):
        Pool(Walk, [1], 1)
    assert capfd.readouterr().err == ""


def test_a_worker_killed_between_two_resets_is_replaced():
    with Pool(Walk, [1, 2], 2) as pool:
        pool.reset()
        os.kill(pool.pids[0], signal.SIGKILL)
        np.testing.assert_array_equal(pool.reset()[:, 1:3], [[0, 0], [0, 1]])
        assert not pool.step(np.array([1, 1])).lost.any()


SCRIPT = """
import numpy as np, sys, time
from simulators.worlds import Engine
from functools import partial
from winkel.simulators.names import call_function
from winkel.simulators.pool import Pool
settings = {"stuck": sys.argv[1], "last_will": sys.argv[2]}
pool = Pool(partial(call_function, "simulators.worlds:Engine", settings, 4), range(3), 2)
pool.reset()
pool.step(np.ones(3, int))
print(*pool.pids, flush=True)
pool.step_async(np.full(3, 2))
"""


def start(script, stuck="", last_will=os.devnull):
    process = subprocess.Popen(
        [sys.executable, "-c", script, stuck, str(last_will)],
        env=os.environ | {"PYTHONPATH": PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process, [int(pid) for pid in process.stdout.readline().split()]


@pytest.mark.parametrize("stuck", ["", "asleep", "busy"])
def test_workers_end_with_a_parent_that_is_killed(stuck, tmp_path):
    process, pids = start(SCRIPT + "time.sleep(1000)", stuck, tmp_path / "will")
    try:
        for _ in pids if stuck else ():
            assert process.stderr.readline() == "stuck\n"
        where = folders(pids)
        assert len(living(pids)) >= len(pids) + 3
    finally:
        process.kill()
    assert gone(pids, within=2.0)
    assert not any(map(os.path.exists, where))
    process.communicate()
    if not stuck:
        assert (tmp_path / "will").read_text() == "closed\n" * 3


def test_engines_end_although_parent_and_workers_are_killed_at_once():
    process, pids = start(SCRIPT + "time.sleep(1000)")
    process.kill()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert gone(pids, within=2.0)
    process.communicate()


@pytest.mark.parametrize(
    ("end", "status"),
    [("", 0), ("pool.step_wait(); raise SystemExit(5)", 5), ("1 / 0", 1), ("pool.close()", 0)],
)
def test_a_script_that_ends_leaves_nothing_and_says_nothing(end, status):
    process, pids = start(SCRIPT + end)
    _, printed = process.communicate(timeout=10)
    assert gone(pids)
    assert process.returncode == status
    lines = printed.splitlines()
    assert lines[-1:] == (["ZeroDivisionError: division by zero"] if end == "1 / 0" else [])


def test_ending_is_fast_although_a_worker_is_stuck(monkeypatch):
    monkeypatch.setattr("winkel.simulators.workers.CLOSE_TIMEOUT", 0.2)
    pool = Pool(parse("simulators.worlds:Engine:stuck=asleep")[1], [1, 2], 2)
    pool.reset()
    pool.step_async(np.array([2, 2]))
    pids, start_time = pool.pids, time.monotonic()
    pool.close()
    assert time.monotonic() - start_time < 2.0
    assert gone(pids)
