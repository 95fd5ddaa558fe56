"""Processes that tests start, wait for and stop."""

import subprocess
import sys
import time

PATIENCE = 300.0
"""Seconds after which nothing more is to be expected, on a busy machine either."""


def start(command, environment=None, **options):
    """A process whose output can be read in the end."""
    return subprocess.Popen(
        [str(part) for part in command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def start_winkel(arguments, environment=None, before="", **options):
    """A process of the command line, which may run some code before."""
    program = f"{before}\nfrom winkel.__main__ import main\nmain()"
    return start([sys.executable, "-c", program, *arguments], environment, **options)


def finish(process):
    """What a process printed, once it has ended well."""
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return output


def wait_for(condition, *processes, poll=0.001):
    """What a condition gives when it holds at last, while all these processes run."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        for process in processes:
            assert process.poll() is None, f"ended before: {process.communicate()}"
        assert time.monotonic() < deadline, "waited for too long"
        time.sleep(poll)
    return found
