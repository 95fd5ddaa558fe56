"""Shards as tasks of a Ray cluster: retried wherever there is room, until each has ended.

The driver's token lies in the results folder while it wants its shards to run. A worker that does
not find it has another folder of that name, which is told; one that misses it later stops with
checkpoints.
"""

import contextlib
import importlib
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from winkel.cluster import locks
from winkel.cluster.manifest import MANIFEST, Manifest, read
from winkel.cluster.progress import SHARDS, lock_path, told
from winkel.cluster.shard import Stopped, run_shard, stopping_at_signals
from winkel.errors import InputError
from winkel.runs.machine import DETERMINISTIC
from winkel.runs.status import Status

LOOK, PATIENCE = 0.5, 120.0
"""Seconds between two looks at all shards, and that they have to stop in."""
ANSWERS = 5.0
"""Seconds within which a cluster answers."""
_HTTP2, _SETTINGS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0\0\0\4\0\0\0\0\0"
"""How two who speak gRPC begin; the fourth byte of a frame is its kind."""
WAITS_FOR_TOKEN = 10.0
"""Seconds after which a file that another machine has written is there, if it ever is."""
MEMORY = 0.9
"""Share of a GPU's memory for the shards on it, together."""


class Ended(NamedTuple):
    """What a task says of its shard; `stopped` if there is more to do."""

    finished: int
    failed: int
    found: int
    stopped: bool


class NotSharedError(InputError):
    """The results folder of a worker is not the driver's."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a shard takes, and how often it is tried again when its worker or node is lost."""

    cpus: float = 1.0
    gpus: float = 0.0
    retries: int = 10

    def __post_init__(self) -> None:
        if self.cpus < 0 or self.gpus < 0 or self.retries < 0:
            raise InputError(
                "need CPUs, GPUs and retries of a shard >= 0, "
                f"got {self.cpus:g}, {self.gpus:g} and {self.retries}"
            )
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise InputError(f"need a part of one GPU or whole ones, got {self.gpus:g}")


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Ray, connected to a cluster; to one on this machine alone, without an address."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if address not in (None, "auto"):
        _check_reachable(str(address))
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise InputError("need Ray for --cluster ray: pip install 'winkel[cluster]'") from error
    owned = not ray.is_initialized()
    if owned:
        try:
            ray.init(
                address="local" if address is None else address,
                log_to_driver=False,
                logging_level="ERROR",
                **({"include_dashboard": False} if address is None else {}),
            )
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            where = "on this machine" if address is None else f"at {address}"
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise InputError(f"cannot use a Ray cluster {where}: {reason}") from error
    try:
        yield ray
    finally:
        if owned:
            ray.shutdown()


def run_on_ray(
    ray: Any,
    manifest: Manifest,
    out: Path,
    resources: Resources,
    show: Callable[[dict[int, Ended], dict[int, list[Status]]], None] = lambda *_: None,
    notice: Callable[[str], None] = lambda _: None,
) -> dict[int, Ended]:
    """All shards of a manifest that lies in the results folder, as tasks; what became of each.

    Shards that cannot be run stop no others, and are an error at the end; but a folder that is not
    shared stops all. Ctrl-C lets the workers checkpoint and is raised when they have.
    """
    out = out.absolute()
    token = out / SHARDS / f"token-{uuid.uuid4().hex}"
    token.parent.mkdir(parents=True, exist_ok=True)
    token.write_text(f"{socket.gethostname()}\n")
    task = ray.remote(
        max_retries=resources.retries,
        num_cpus=resources.cpus,
        num_gpus=resources.gpus,
        runtime_env={"env_vars": _environment(manifest, resources)},
    )(_run)
    ended: dict[int, Ended] = {}
    problems: dict[int, str] = {}
    waiting = {
        task.options(name=f"shard {number}").remote(
            str(out), manifest.id, number, token.name
        ): number
        for number in range(len(manifest.shards))
    }
    try:
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=LOOK)
            for ref in done:
                number = waiting.pop(ref)
                try:
                    ended[number] = ray.get(ref)
                except ray.exceptions.RayError as error:
                    problems[number] = _reason(error)
                    if isinstance(error, NotSharedError):
                        raise NotSharedError(problems[number]) from None
                    notice(f"shard {number}: {problems[number]}")
            show(ended, {k: told(out, manifest.shards[k]) for k in waiting.values()})
    finally:
        token.unlink(missing_ok=True)
        if waiting:
            _stop(ray, manifest, out, waiting)
    if problems:
        number, reason = next(iter(problems.items()))
        raise InputError(
            f"{len(problems)} of {len(manifest.shards)} shards did not end; "
            f"shard {number}: {reason}"
        )
    return ended


def _run(out: str, manifest_id: str, number: int, token: str) -> Ended:
    """The task: one shard, in a worker."""
    folder, go = Path(out), Path(out) / SHARDS / token
    give_up = time.monotonic() + WAITS_FOR_TOKEN
    while not go.exists():
        if time.monotonic() > give_up:
            raise NotSharedError(
                f"{out} on {socket.gethostname()} is not the folder that the sweep was started "
                "with; need one that all nodes share"
            )
        time.sleep(0.2)
    manifest = read(folder / MANIFEST)
    if manifest.id != manifest_id:
        raise InputError(f"{folder / MANIFEST} is another than when the sweep began")
    looked = time.monotonic()

    def look(*_: Any) -> None:
        nonlocal looked
        if time.monotonic() - looked > LOOK:
            looked = time.monotonic()
            if not go.exists():
                raise Stopped("the driver has stopped")

    try:
        with stopping_at_signals():
            outcome = run_shard(
                manifest, number, folder, progress=look, patience=locks.STALE + 30.0
            )
    except Stopped:
        return Ended(0, 0, 0, stopped=True)
    return Ended(*outcome[:3], stopped=False)


def _stop(ray: Any, manifest: Manifest, out: Path, waiting: dict[Any, int]) -> None:
    """Take back shards that have not begun; wait for the others, which miss the token."""
    for ref, number in waiting.items():
        if not locks.is_held(lock_path(out, manifest.shards[number])):
            with contextlib.suppress(ray.exceptions.RayError):
                ray.cancel(ref, force=False, recursive=False)
    ray.wait(list(waiting), num_returns=len(waiting), timeout=PATIENCE)


def _environment(manifest: Manifest, resources: Resources) -> dict[str, str]:
    """Of the workers, set before JAX starts in them."""
    chosen = {}
    if not resources.gpus:
        chosen["JAX_PLATFORMS"] = "cpu"
    elif resources.gpus < 1:
        chosen["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{MEMORY * resources.gpus:.3f}"
    if manifest.deterministic:
        flags = os.environ.get("XLA_FLAGS", "").split()
        chosen["XLA_FLAGS"] = " ".join(dict.fromkeys([*flags, DETERMINISTIC]))
    return chosen


def _reason(error: Exception) -> str:
    """What a task ended with, in a line."""
    cause = getattr(error, "cause", None) or error
    text = str(cause).strip() or type(cause).__name__
    return text.splitlines()[0] if isinstance(cause, InputError) else text.splitlines()[-1]


def _check_reachable(address: str) -> None:
    """Raise unless a server of gRPC, as Ray's is, answers: Ray itself would try for minutes."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or "/" in host:
        raise InputError(f"need --address HOST:PORT of a Ray cluster, or auto, got {address!r}")
    try:
        with socket.create_connection((host, int(port)), timeout=ANSWERS) as line:
            line.sendall(_HTTP2 + _SETTINGS)
            answer = line.recv(len(_SETTINGS))
    except TimeoutError:
        answer = b""
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"no Ray cluster answers at {address}: {reason}") from error
    if answer[3:4] != _SETTINGS[3:4]:
        raise InputError(f"no Ray cluster answers at {address}, though something listens there")
