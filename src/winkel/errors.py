"""What ends a command early: bad input, which is one line, and Ctrl-C.

At Ctrl-C a command ends with one line and exit status 130, whatever it is doing. KeyboardInterrupt
is lost or aborts the process in a callback of JAX, and waits while a program is compiled. A command
therefore leaves Ctrl-C to a thread that ends the process at once. Work that has something to save
defers Ctrl-C to its safe points.
"""

import contextlib
import difflib
import importlib
import operator
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

LARGEST = 2**31 - 1
"""The largest number of things: JAX counts them with 32 bits."""
LARGEST_SEED = 2**32 - 1
"""The largest seed of environments: those of NumPy's legacy generator have 32 bits."""
SYNONYMS = {
    "learning_rate": ("lr", "alpha", "step_size"),
    "gamma": ("discount",),
    "capacity": ("buffer_size", "replay_size", "memory_size"),
    "burn_in": ("learning_starts", "warmup"),
    "target_period": ("target_update",),
    "clip_norm": ("max_grad_norm",),
    "hidden": ("layers", "hidden_sizes", "units"),
    "num_atoms": ("quantiles",),
    "num_members": ("ensemble_size",),
    "steps": ("timesteps", "total_timesteps", "horizon"),
    "episodes": ("horizon",),
    "seeds": ("seed",),
    "first_seed": ("seed",),
    "figure": ("plot",),
}
"""Names that other libraries use, by winkel's name."""
SHOW_CURSOR = b"\x1b[?25h\n"
"""Undoes what a progress bar has done to a terminal."""

_exit_message = "interrupted"
_ending = threading.Lock()


class InputError(ValueError):
    """Bad input. The message shows the value and says what would be right.

    The command line prints it as one line and exits with a non-zero status.
    """


class MissingDataError(InputError):
    """A data set that an environment needs is not on this machine."""


def require_integer(name: str, value: Any, at_least: int, at_most: int = LARGEST) -> int:
    """The value as an int; raises unless it is of an integer type, ≥ at_least and ≤ at_most."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or number < at_least:
        raise InputError(f"need {name} >= {at_least}, a whole number, got {value!r}")
    if number > at_most:
        raise InputError(f"need {name} <= {at_most}, got {number}")
    return number


def require_type(name: str, value: Any, kind: Any, wanted: str) -> None:
    """Raise unless a value is of a type or of one of several; `wanted` says it in words."""
    if not isinstance(value, kind):
        raise InputError(f"need {wanted} for {name}, got {value!r:.80}")


def import_extra(package: str, extra: str) -> Any:
    """Import a package that is installed with one of winkel's extras."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise InputError(f"{package} is missing: pip install 'winkel[{extra}]'") from error


def suggest(
    name: str, known: Iterable[str], otherwise: str, write: Callable[[str], str] = str
) -> str:
    """Name what an unknown name may have meant, for the end of a message.

    Case, - and _ do not matter. `write` writes a known name as the user must.
    """
    plain = _plain(name)
    names = {one: [_plain(word) for word in (one, *SYNONYMS.get(one, ()))] for one in known}
    near = [one for one, words in names.items() if plain in words]
    if not near:
        by_spelling = {_plain(one): one for one in names}
        matches = difflib.get_close_matches(plain, by_spelling, n=3, cutoff=0.5)
        near = [by_spelling[spelling] for spelling in matches]
    return f"did you mean {', '.join(map(write, near))}?" if near else otherwise


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


class Deferred:
    """A handler that notes Ctrl-C; pressed twice, it calls the handler before it.

    `saves` is true from the first safe point on: before it, there is nothing to save.
    """

    saves = False

    def __init__(self, before: Callable[..., object]) -> None:
        self._before, self._pressed = before, False

    def __call__(self, *arguments: object) -> None:
        """Handle the signal."""
        if self._pressed:
            self._before(*arguments)
        self._pressed = True

    def check(self) -> None:
        """Raise at a safe point if Ctrl-C was pressed."""
        self.saves = True
        if self._pressed:
            raise KeyboardInterrupt


@contextlib.contextmanager
def defer_interrupt() -> Iterator[Callable[[], None]]:
    """Defer Ctrl-C: KeyboardInterrupt is raised where the yielded function is called next.

    That is the end of the block at the latest. Ctrl-C that is pressed twice is not deferred.
    """
    before = signal.getsignal(signal.SIGINT)
    if isinstance(before, Deferred):
        yield before.check
        return
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield lambda: None
        return
    deferred = Deferred(before)
    signal.signal(signal.SIGINT, deferred)
    try:
        yield deferred.check
    finally:
        signal.signal(signal.SIGINT, before)
    deferred.check()


def stop_at_interrupt(indices: Iterable[int]) -> Iterator[int]:
    """Defer Ctrl-C until the next of some indices is asked for."""
    with defer_interrupt() as check_interrupt:
        for index in indices:
            check_interrupt()
            yield index


def end_at_interrupt() -> None:
    """End this process at Ctrl-C from now on, unless it ignores Ctrl-C as jobs of a shell do."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, lambda *_: None)
        threading.Thread(target=_wait, args=(reader,), name="interrupts", daemon=True).start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def set_exit_message(text: str) -> None:
    """Set the line with which Ctrl-C ends this process."""
    global _exit_message
    _exit_message = text


def end_process() -> None:
    """Print the line and end: a regular exit would abort if JAX's threads are at work."""
    _ending.acquire()  # the main thread may come here while the other thread does
    with contextlib.suppress(OSError):
        if os.isatty(1):
            os.write(1, SHOW_CURSOR)
        os.write(2, f"winkel: {_exit_message}\n".encode())
    os._exit(130)


def _wait(reader: int) -> None:
    """Wait for Ctrl-C, or for the second one if the first is deferred."""
    pressed = 0
    while True:
        pressed += os.read(reader, 1)[0] == signal.SIGINT
        handler = signal.getsignal(signal.SIGINT)
        if pressed > (isinstance(handler, Deferred) and handler.saves):
            end_process()
