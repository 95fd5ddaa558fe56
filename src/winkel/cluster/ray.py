"""Run shards as tasks of a Ray cluster, which retries those whose worker or node is lost."""

import contextlib
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from winkel.cluster.shards import MANIFEST, Manifest, read_manifest, read_progress, run_shard
from winkel.envs.bsuite.mnist import mnist_directory
from winkel.errors import InputError, import_extra
from winkel.extensions import permit, permitted
from winkel.runs.recorder import Status
from winkel.training.programs import DETERMINISTIC

POLL_SECONDS, STOP_SECONDS = 0.5, 120.0
"""Time between two updates of the display, and that cancelled tasks have for their checkpoints."""
LOCK_SECONDS = 150.0
"""Time to wait for a shard's lock: a file server frees those of a lost node after about 90 s."""


@contextlib.contextmanager
def connect(address: str | None) -> Iterator[Any]:
    """Connect to a Ray cluster; without an address, start one on this machine and end it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if address not in (None, "auto"):
        _check_answers(str(address))
    ray = import_extra("ray", "cluster")
    options = {"address": address or "local", "log_to_driver": False, "logging_level": "ERROR"}
    try:
        ray.init(**options | ({"include_dashboard": False} if address is None else {}))
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        where = "on this machine" if address is None else f"at {address}"
        raise InputError(f"cannot use a Ray cluster {where}: {_one_line(error)}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def run_on_ray(
    ray: Any,
    manifest: Manifest,
    out: Path,
    cpus: float = 1.0,
    gpus: float = 0.0,
    retries: int = 10,
    show: Callable[[list[Status], int, str], None] = lambda *_: None,
    notice: Callable[[str], None] = lambda _: None,
) -> Counter[str]:
    """Run all shards of a manifest; count the runs that finished, failed, or had ended before.

    The folder `out` must be shared by all nodes. `show` gets the status of the runs of other
    shards, the number of runs in ended ones, and a title. A shard that cannot run does not stop the
    others; raise at the end. On Ctrl-C cancel all tasks: Ray raises KeyboardInterrupt in them, and
    they write checkpoints.
    """
    out = out.absolute()
    variables = {"env_vars": _environment(manifest, gpus)}
    options = {"max_retries": retries, "num_cpus": cpus, "num_gpus": gpus}
    task = ray.remote(runtime_env=variables, **options)(_run)
    shards, code = manifest.shards, permitted()
    waiting = {task.remote(str(out), manifest.id, n, code): n for n in range(len(shards))}
    counts: dict[int, dict[str, int]] = {}
    problems: dict[int, str] = {}
    try:
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=POLL_SECONDS)
            for ref in done:
                number = waiting.pop(ref)
                try:
                    counts[number] = ray.get(ref)
                except ray.exceptions.RayError as error:
                    cause = getattr(error, "cause", None) or error
                    if isinstance(cause, FileNotFoundError):  # then no other shard can run
                        raise InputError(str(cause)) from None
                    problems[number] = _one_line(cause)
                    notice(f"shard {number}: {problems[number]}")
            running = [one for n in waiting.values() for one in read_progress(out, shards[n])]
            over = sum(len(shards[number].runs) for number in counts)
            show(running, over, f"{len(counts)}/{len(shards)} shards")
    finally:
        for ref in waiting:
            ray.cancel(ref)
        if waiting:
            ray.wait(list(waiting), num_returns=len(waiting), timeout=STOP_SECONDS)
    if problems:
        number, reason = next(iter(problems.items()))
        raise InputError(
            f"{len(problems)} of {len(shards)} shards did not end; shard {number}: {reason}"
        )
    return sum(map(Counter, counts.values()), Counter[str]())


def _run(out: str, manifest_id: str, number: int, code: tuple[str, ...]) -> dict[str, int]:
    """Run one shard in a worker, with code that the user has named; count its runs."""
    permit(*code)
    path = Path(out) / MANIFEST
    deadline = time.monotonic() + 10.0  # until then the driver's file is visible in a shared folder
    while not path.exists() or read_manifest(path).id != manifest_id:
        if time.monotonic() > deadline:
            raise FileNotFoundError(
                f"{out} on {socket.gethostname()} does not have the manifest of this sweep; "
                "need a folder that all nodes share"
            )
        time.sleep(0.2)
    return run_shard(read_manifest(path), number, Path(out), wait=LOCK_SECONDS)["runs"]


def _environment(manifest: Manifest, gpus: float) -> dict[str, str]:
    """Environment variables of workers, set before JAX starts there."""
    variables = {}
    if "WINKEL_MNIST" in os.environ:
        variables["WINKEL_MNIST"] = str(mnist_directory())
    if not gpus:
        variables["JAX_PLATFORMS"] = "cpu"
    elif gpus < 1:  # all shards on a GPU together get 0.9 of its memory
        variables["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{0.9 * gpus:.3f}"
    if manifest.deterministic:
        flags = os.environ.get("XLA_FLAGS", "").split()
        variables["XLA_FLAGS"] = " ".join(dict.fromkeys([*flags, DETERMINISTIC]))
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
