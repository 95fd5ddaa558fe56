"""One writer for each run folder: the second is refused and names the first."""

import os
import signal
import subprocess
import sys

import pytest

from runs.tiny import SEED_0, files, learn
from winkel.errors import InputError
from winkel.files import WRITERS, hold_runs

WRITER = rf"winkel train on {os.uname().nodename}, process {os.getpid()}, since 2\d{{3}}-"


@pytest.mark.parametrize("resume", [False, True])
def test_a_second_training_in_a_folder_is_refused_and_names_the_first(tmp_path, resume):
    with hold_runs(tmp_path, [tmp_path / SEED_0], "winkel train"):
        before = files(tmp_path)
        with pytest.raises(InputError, match=f"{SEED_0} is being written by {WRITER}") as error:
            learn(tmp_path, seeds=2, resume=resume)
        assert files(tmp_path) == before
    assert "\n" not in str(error.value)


def test_other_runs_of_a_folder_may_be_written_at_the_same_time(tmp_path):
    with (
        hold_runs(tmp_path, [tmp_path / "a", tmp_path / "b"], "one"),
        hold_runs(tmp_path, [tmp_path / "c"], "two", wait=0.0),
        pytest.raises(InputError, match="b is being written by one"),
        hold_runs(tmp_path, [tmp_path / "d", tmp_path / "b"], "three", wait=0.0),
    ):
        pass
    assert [path.name for path in (tmp_path / WRITERS).iterdir()] == ["mutex"]


def test_the_runs_of_a_killed_process_are_free(tmp_path):
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from winkel.files import hold_runs\n"
        "root = Path(sys.argv[1])\n"
        "with hold_runs(root, [root / 'a'], 'dead'): os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert any((tmp_path / WRITERS).glob("*.json"))
    with hold_runs(tmp_path, [tmp_path / "a"], "alive", wait=0.0):
        pass
    assert not any((tmp_path / WRITERS).glob("*.json"))


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    root = tmp_path / "file"
    with (
        pytest.raises(InputError, match="need a folder to write to"),
        hold_runs(root, [root / "a"], ""),
    ):
        pass
