"""Locks: one holder at a time, however many want to be, and none that is gone."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from process_helpers import wait_for
from winkel.cluster import locks
from winkel.cluster.locks import STALE, Lock
from winkel.errors import InputError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "shards" / "some.lock"


def rewrite(path, **entries):
    path.write_text(json.dumps(locks.read(path)._asdict() | entries))


def held_by_another(path, **entries):
    """The lock of a process that still runs, or of whatever the entries say."""
    lock = Lock(path, "another sweep")
    lock.__enter__()
    lock._stop.set()
    rewrite(path, **entries)


def test_a_lock_is_held_once_and_names_its_holder(path):
    with Lock(path, "winkel sweep"):
        with pytest.raises(InputError) as refused, Lock(path, "another"):
            pass
        for words in ("winkel sweep", os.uname().nodename, str(os.getpid()), "since"):
            assert words in str(refused.value)
        assert "\n" not in str(refused.value)
    assert not path.exists()
    with Lock(path, "another"):
        assert locks.is_held(path)


def test_a_lock_is_released_when_its_block_fails(path):
    with pytest.raises(RuntimeError), Lock(path, "failing"):
        raise RuntimeError
    assert not path.exists()


def test_the_lock_of_a_process_that_was_killed_is_taken_over(path):
    program = (
        "import os, signal, sys; from pathlib import Path; from winkel.cluster.locks import Lock\n"
        "Lock(Path(sys.argv[1]), 'killed').__enter__(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert locks.read(path).what == "killed"
    with Lock(path, "next"):
        assert locks.read(path).what == "next"


def test_a_process_number_that_is_used_again_is_not_the_holder(path):
    held_by_another(path, born="0")
    assert not locks.is_held(path)
    held_by_another(path)
    assert locks.is_held(path)


def test_a_holder_on_another_machine_is_gone_when_it_gives_no_sign_of_life(path):
    held_by_another(path, host="elsewhere", pid=1)
    with pytest.raises(InputError, match="another sweep on elsewhere, process 1"), Lock(path, "me"):
        pass
    os.utime(path, times=(time.time() - 2 * STALE,) * 2)
    with Lock(path, "me"):
        assert locks.read(path).what == "me"


def test_patience_waits_for_the_end_of_another(path):
    held_by_another(path)
    timer = threading.Timer(0.3, path.unlink)
    timer.start()
    with Lock(path, "patient", patience=30.0):
        assert locks.read(path).what == "patient"
    timer.join()


def test_a_holder_who_lost_its_lock_hears_of_it(path, monkeypatch):
    monkeypatch.setattr(locks, "HEARTBEAT", 0.01)
    with Lock(path, "slow") as lock:
        lock.check()
        rewrite(path, token="of another", what="quick")
        wait_for(lambda: lock._lost)
        with pytest.raises(InputError, match="taken over by quick"):
            lock.check()
    assert locks.read(path).what == "quick"


CONTENDER = """
import os, sys
from pathlib import Path
from winkel.cluster.locks import Lock

for _ in range(3):
    with Lock(Path(sys.argv[1]), "contender", patience=60.0):
        os.close(os.open(sys.argv[2], os.O_CREAT | os.O_EXCL))  # fails if somebody else is inside
        os.unlink(sys.argv[2])
"""


def test_of_many_who_find_a_dead_lock_one_at_a_time_has_it(path, tmp_path):
    held_by_another(path, born="0")
    arguments = [sys.executable, "-c", CONTENDER, str(path), str(tmp_path / "inside")]
    contenders = [subprocess.Popen(arguments) for _ in range(4)]
    assert [contender.wait(timeout=120) for contender in contenders] == [0] * 4
    assert not path.exists()


def test_where_nothing_can_be_written_one_line_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"), Lock(tmp_path / "file" / "a.lock", "me"):
        pass
