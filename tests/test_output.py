"""Standard output that cannot be written: one line and a status, and no traceback."""

import contextlib
import os
import sys

import pytest

from process_helpers import PATIENCE, start
from terminal_helpers import last_line
from winkel import cli

FULL = "winkel: error: [Errno 28] No space left on device\n"


@pytest.mark.parametrize(
    "arguments", [["list", "projections"], ["search", "space", "bsuite"], ["--version"], ["--help"]]
)
def test_a_full_device_is_one_line(arguments, capsys):
    """It is noticed when a buffer is written; at its end the process has nothing left to write."""
    with open("/dev/full", "w") as full, contextlib.redirect_stdout(full):
        assert last_line(arguments, 2, capsys) == FULL


def test_a_pipe_that_nobody_reads_ends_a_command_quietly(capsys):
    reads, writes = os.pipe()
    os.close(reads)
    with (
        os.fdopen(writes, "w") as pipe,
        contextlib.redirect_stdout(pipe),
        pytest.raises(SystemExit) as stop,
    ):
        cli.main(["list", "projections"])
    assert stop.value.code == 141
    assert capsys.readouterr().err == ""


def test_a_closed_standard_output_is_one_line(capsys):
    with contextlib.redirect_stdout(None):
        message = last_line(["list", "projections"], 2, capsys)
    assert message == "winkel: error: standard output is closed\n"


def test_a_process_has_nothing_to_add_at_its_end():
    """Python writes what is left in the buffer once more when it exits."""
    shell = f"{sys.executable} -m winkel list projections > /dev/full"
    process = start(["bash", "-c", shell])
    assert process.communicate(timeout=PATIENCE) == ("", FULL)
    assert process.returncode == 2
