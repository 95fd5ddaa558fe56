"""Ctrl-C ends a command with one line and exit status 130, at whatever moment it is pressed."""

import re
import signal
import threading
import time

import pytest

from process_helpers import PATIENCE, start_winkel, wait_for
from winkel.errors import defer_interrupt, stop_at_interrupt

TINY = ["--agent", "dqn", "--hidden", "8", "--batch-size", "8", "--burn-in", "8"]
TRAIN = ["train", "deep_sea:size=5", *TINY, "--episodes", "1000000", "--seeds", "2"]
SWEEP = ["sweep", "deep-sea", "--sizes", "4", "5", "--agents", *TINY[1:], "--episodes", "1000000"]
METRICS = "deep_sea/dqn/size=5/seed-0/metrics.jsonl"

# In code that runs before the command. A process that is not ended at once would sleep long.
PRESS = """
import gc, os, signal, sys, time
def press(*_):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(300)
"""
AT_IMPORT = (
    PRESS
    + """
class Finder:
    def find_spec(self, name, *_):
        if name == {module!r}:
            press()
sys.meta_path.insert(0, Finder())
"""
)
AT_GARBAGE_COLLECTION = (
    PRESS
    + """
def collect(*_):
    if "jax.interpreters" in sys.modules:
        press()
gc.callbacks.append(collect)
"""
)
AT_COMPILATION = (
    PRESS
    + """
import jax
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: press() if event.endswith("backend_compile_duration") else None
)
"""
)
MOMENTS = {
    "parser": AT_IMPORT.format(module="tyro"),
    "imports": AT_IMPORT.format(module="jax.numpy"),
    "garbage collection": AT_GARBAGE_COLLECTION,
    "compilation": AT_COMPILATION,
}


def press_and_end(process, times=1):
    """Press Ctrl-C; return exit status and standard error."""
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    _, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, errors


def assert_one_line(status, errors, moment):
    assert re.fullmatch(r"winkel: interrupted(; go on with --resume)?\n", errors), (moment, errors)
    assert status == 130, (moment, status)


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_at_the_start_is_one_line(tmp_path, moment):
    """A KeyboardInterrupt would be lost in the garbage collection, where JAX has a callback."""
    arguments = [*TRAIN, "--until", "10", "--out", tmp_path]
    process = start_winkel(arguments, before=MOMENTS[moment])
    _, errors = process.communicate(timeout=PATIENCE)
    assert_one_line(process.returncode, errors, moment)


def test_ctrl_c_twice_does_not_wait_for_a_checkpoint(tmp_path):
    slow = "import time, winkel.runs.recorder as r\nr.save_checkpoint = lambda *_: time.sleep(300)"
    process = start_winkel([*TRAIN, "--out", tmp_path], before=slow)
    wait_for((tmp_path / METRICS).exists, process)
    assert_one_line(*press_and_end(process, times=2), "saving")


def test_a_job_in_the_background_ignores_ctrl_c():
    ignore = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    process = start_winkel(["--version"], before=ignore + PRESS.replace("300", "0") + "press()")
    output, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output[:6]) == (0, "winkel")


def scan(arguments, tmp_path, end, step):
    """Press Ctrl-C at many moments after the package is imported, one process for each."""
    moment = 0.0
    while moment < end:
        ready = "print('ready', flush=True)"
        process = start_winkel(
            [str(part).format(out=tmp_path / f"{moment:.2f}") for part in arguments], before=ready
        )
        process.stdout.readline()
        time.sleep(0.05 + moment)
        if process.poll() is not None:
            break
        status, errors = press_and_end(process)
        if errors or status not in (0, -signal.SIGINT):  # it had just ended
            assert_one_line(status, errors, moment)
        moment += step


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        [*TRAIN, "--out", "{out}"],
        [*SWEEP, "--out", "{out}"],
        ["rollout", "catch", "--episodes", "100000", "--out", "{out}"],
        ["search", "--trials", "9", "--envs", "deep_sea:size=4@100000", "--out", "{out}"],
        ["figure", "iteration", "--out", "{out}"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_ctrl_c_at_any_moment_is_one_line(tmp_path, arguments):
    scan(arguments, tmp_path, end=8.0, step=0.1)


# Work that has something to save


@pytest.fixture
def pressed():
    """A handler that notes that it was called."""
    calls = []
    before = signal.signal(signal.SIGINT, lambda *_: calls.append(True))
    yield calls
    signal.signal(signal.SIGINT, before)


def test_deferred_ctrl_c_is_raised_at_the_next_safe_point():
    reached = []

    def work():
        with defer_interrupt() as check_interrupt:
            check_interrupt()
            signal.raise_signal(signal.SIGINT)
            reached.append("work")
            check_interrupt()
            reached.append("more work")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == ["work"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_deferred_ctrl_c_is_raised_at_the_end_at_the_latest():
    reached = []

    def work():
        with defer_interrupt():
            with defer_interrupt():
                signal.raise_signal(signal.SIGINT)
            reached.append("end of the inner block")
        reached.append("end of the outer block")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == ["end of the inner block"]


def test_ctrl_c_twice_does_what_it_did_before(pressed):
    def work():
        with defer_interrupt():
            signal.raise_signal(signal.SIGINT)
            assert pressed == []
            signal.raise_signal(signal.SIGINT)
            assert pressed == [True]

    with pytest.raises(KeyboardInterrupt):
        work()


def test_other_threads_defer_nothing():
    found = []

    def work():
        with defer_interrupt() as check:
            check()
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


def test_iteration_stops_before_the_next_item():
    done = []

    def work():
        for index in stop_at_interrupt(range(5)):
            if index == 2:
                signal.raise_signal(signal.SIGINT)
            done.append(index)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [0, 1, 2]
