"""Shards of a sweep as tasks of Ray, which are tried again when their worker or node is lost."""

import contextlib
import os
import signal
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from winkel.envs.bsuite.mnist import mnist_directory
from winkel.errors import InputError, import_extra
from winkel.extensions import permit, permitted
from winkel.files import ensure_folder
from winkel.version import __version__

SHARDS = "shards"
"""Folder beside the runs, in which shards write their progress."""
POLL_SECONDS = 0.5
"""Time between two updates of the display."""
STOP_SECONDS = 120.0
"""Time that cancelled tasks have to write checkpoints."""
SHARED_SECONDS = 10.0
"""Time after which a file of the driver is visible on all nodes, if the folder is shared."""

RunShard = Callable[[int], dict[str, int]]
"""Runs the shard of a number, and counts its runs by how they ended."""


class NotSharedError(InputError):
    """A node does not see the folder of the runs."""


@contextlib.contextmanager
def connect(address: str | None) -> Iterator[Any]:
    """Connect to a Ray cluster; without an address, start one on this machine and end it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if address not in (None, "auto"):
        _check_answers(str(address))
    ray = import_extra("ray", "cluster")
    options = {"address": address or "local", "log_to_driver": False, "logging_level": "ERROR"}
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**options | ({"include_dashboard": False} if address is None else {}))
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        where = "on this machine" if address is None else f"at {address}"
        raise InputError(f"cannot use a Ray cluster {where}: {_one_line(error)}") from error
    signal.signal(signal.SIGTERM, terminate)  # ray.init sets its own
    try:
        yield ray
    finally:
        ray.shutdown()


def run_on_ray(
    ray: Any,
    run_shard: RunShard,
    count: int,
    out: Path,
    cpus: float = 1.0,
    gpus: float = 0.0,
    retries: int = 10,
    show: Callable[[int, list[int]], None] = lambda *_: None,
    notice: Callable[[str], None] = lambda _: None,
) -> Counter[str]:
    """Run shards 1 to `count`; count the runs that finished, failed, or had ended before.

    The folder `out` must be shared by all nodes. `show` gets the number of runs in ended shards and
    the numbers of the other shards. A shard that cannot run does not stop the others; raise at the
    end. On Ctrl-C cancel all tasks: Ray raises KeyboardInterrupt in them, and they write
    checkpoints.
    """
    token = out.absolute() / SHARDS / f"{uuid.uuid4().hex}.driver"
    ensure_folder(token.parent)
    token.touch()
    variables = {"env_vars": _environment(gpus)}
    options = {"max_retries": retries, "num_cpus": cpus, "num_gpus": gpus}
    task = ray.remote(runtime_env=variables, **options)(_run)
    start = partial(task.remote, run_shard, token, __version__, permitted())
    unfinished = {start(number): number for number in range(1, count + 1)}
    counts: Counter[str] = Counter()
    problems: dict[int, str] = {}
    try:
        while unfinished:
            refs = list(unfinished)
            done, _ = ray.wait(refs, num_returns=len(refs), timeout=POLL_SECONDS)
            for ref in done:
                number = unfinished.pop(ref)
                try:
                    counts.update(ray.get(ref))
                except ray.exceptions.RayError as error:
                    cause = getattr(error, "cause", None) or error
                    if isinstance(cause, NotSharedError):  # then no other shard can run
                        raise InputError(str(cause)) from None
                    problems[number] = _one_line(cause)
                    notice(f"shard {number}: {problems[number]}")
            show(counts.total(), list(unfinished.values()))
    finally:
        for ref in unfinished:
            ray.cancel(ref)
        if unfinished:
            ray.wait(list(unfinished), num_returns=len(unfinished), timeout=STOP_SECONDS)
        token.unlink(missing_ok=True)
    if problems:
        number, reason = next(iter(problems.items()))
        raise InputError(f"{len(problems)} of {count} shards did not end; shard {number}: {reason}")
    return counts


def _run(
    run_shard: RunShard, token: Path, version: str, code: tuple[str, ...], number: int
) -> dict[str, int]:
    """Run one shard in a worker, with code that the user has named; count its runs."""
    if version != __version__:
        raise InputError(f"need winkel {version} on {socket.gethostname()}, got {__version__}")
    permit(*code)
    deadline = time.monotonic() + SHARED_SECONDS
    while not token.exists():
        if time.monotonic() > deadline:
            raise NotSharedError(
                f"{token.parents[1]} on {socket.gethostname()} lacks the driver's file; "
                "need a folder that all nodes share"
            )
        time.sleep(0.2)
    return run_shard(number)


def _environment(gpus: float) -> dict[str, str]:
    """Environment variables of workers, set before JAX starts there."""
    variables = {}
    if "WINKEL_MNIST" in os.environ:
        variables["WINKEL_MNIST"] = str(mnist_directory())
    if not gpus:
        variables["JAX_PLATFORMS"] = "cpu"
    elif gpus < 1:  # all shards on a GPU together get 0.9 of its memory
        variables["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{0.9 * gpus:.3f}"
    return variables


def _one_line(error: BaseException) -> str:
    """Shorten an error to its first line, or a foreign one's traceback to its last."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0] if isinstance(error, InputError) else lines[-1]


def _check_answers(address: str) -> None:
    """Raise unless something listens at the address: Ray itself would try for minutes."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or "/" in host:
        raise InputError(f"need --address HOST:PORT of a Ray cluster, or auto, got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=5.0).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"no Ray cluster answers at {address}: {reason}") from error
