"""Ctrl-C: a command ends with one line and exit status 130, whatever it is doing.

KeyboardInterrupt is lost or aborts the process in a callback of JAX, and waits while a program is
compiled. A command therefore leaves Ctrl-C to a thread that ends the process at once. Work that has
something to save defers Ctrl-C to its safe points.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator

SHOW_CURSOR = b"\x1b[?25h\n"
"""Undoes what a progress bar has done to a terminal."""

_exit_message = ("interrupted", 130)
_ending = threading.Lock()


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
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_wait, args=(reader,), name="interrupts", daemon=True).start()


def set_exit_message(text: str, status: int = 130) -> None:
    """Set the line and the exit status with which Ctrl-C ends this process."""
    global _exit_message
    _exit_message = text, status


def end_process() -> None:
    """Print the line and end: a regular exit would abort if JAX's threads are at work."""
    _ending.acquire()  # the main thread may come here while the other thread does
    text, status = _exit_message
    with contextlib.suppress(OSError):
        if os.isatty(1):
            os.write(1, SHOW_CURSOR)
        os.write(2, f"winkel: {text}\n".encode())
    os._exit(status)


def _wait(reader: int) -> None:
    """Wait for Ctrl-C, or for the second one if the first is deferred."""
    pressed = 0
    while True:
        pressed += os.read(reader, 1)[0] == signal.SIGINT
        handler = signal.getsignal(signal.SIGINT)
        if pressed > (isinstance(handler, Deferred) and handler.saves):
            end_process()
