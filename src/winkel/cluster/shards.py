"""A sweep in shards: its manifest, the runs of one shard, a script for SLURM, tasks of Ray.

The number of lanes decides how a program rounds. A shard fixes its number of lanes to that of a
plain sweep's whole group, so shards write the same bytes as a plain sweep.
"""

import contextlib
import dataclasses
import json
import os
import shlex
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from winkel.envs.bsuite.mnist import mnist_directory
from winkel.errors import InputError, import_extra, require_integer
from winkel.extensions import permit, permitted
from winkel.files import ensure_folder, hold_runs, read_json, write_text
from winkel.runs.recorder import Status
from winkel.runs.spec import Options, RunSpec, fingerprint, run_folder
from winkel.runs.sweep import Item, Sweep, choose_lanes, group_runs, remaining_groups, run_sweep
from winkel.version import __version__

MANIFEST = "manifest.json"
SHARDS = "shards"
"""Folder beside the runs, with the progress of shards."""
PROGRESS_SECONDS = 1.0
"""Time between two writes of a shard's progress."""
STOPPED = 75
"""Exit status (EX_TEMPFAIL) of a shard that was stopped by a signal and can continue."""
WARNING = 120
"""Seconds between SLURM's signal and the time limit, enough for a chunk and checkpoints."""
POLL_SECONDS, STOP_SECONDS = 0.5, 120.0
"""Time between two updates of the display, and that cancelled tasks have for their checkpoints."""
LOCK_SECONDS = 150.0
"""Time to wait for a shard's lock: a file server frees those of a lost node after about 90 s."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Runs of one shape that run together, in so many lanes; `id` is a hash of both."""

    id: str
    group: str
    """Name of the program, for display."""
    lanes: int
    runs: tuple[Item, ...]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A sweep in shards: each of its runs is in one. Folders are the same on all machines."""

    sweep: Sweep
    options: Options
    shards: tuple[Shard, ...]

    @property
    def id(self) -> str:
        """Hash of the content."""
        return fingerprint(dataclasses.asdict(self))

    @property
    def num_runs(self) -> int:
        """Number of runs in all shards."""
        return sum(len(shard.runs) for shard in self.shards)

    def shard(self, number: int) -> Shard:
        """Return a shard; raise if there is none with this number."""
        if not 0 <= number < len(self.shards):
            raise InputError(f"need a shard from 0 to {len(self.shards) - 1}, got {number}")
        return self.shards[number]

    def to_json(self) -> str:
        """Return the text of the manifest's file."""
        head = {"winkel": __version__, "id": self.id}
        return json.dumps(head | dataclasses.asdict(self), indent=1) + "\n"


def plan_manifest(
    sweep: Sweep,
    options: Options,
    lanes: int | None,
    shard_runs: int | None,
    max_lanes: int | None = None,
) -> Manifest:
    """Split a sweep into shards of at most `shard_runs` runs, by default one run for each lane.

    A shard of fewer runs than lanes would waste lanes, so `shard_runs` also limits the lanes.
    Without `lanes`, a shard has at most `max_lanes`, or as many as a plain sweep on this machine.
    """
    if shard_runs is not None:
        require_integer("shard_runs", shard_runs, at_least=1)
        if lanes is not None and shard_runs < lanes:
            raise InputError(
                f"need --shard-runs >= --lanes, or lanes stay idle, got {shard_runs} and {lanes}"
            )
    shards = []
    for group in group_runs(sweep, options):
        count = choose_lanes(group, max_lanes if lanes is None else lanes)
        if lanes is None and shard_runs is not None:
            count = min(count, shard_runs)
        size = shard_runs or count
        for first in range(0, len(group.runs), size):
            runs = group.runs[first : first + size]
            items = tuple((run.task.id, run.label, run.seed) for run in runs)
            name = _shard_id(runs, count)
            shards.append(Shard(id=name, group=group.name, lanes=count, runs=items))
    return Manifest(sweep=sweep, options=options, shards=tuple(shards))


def read_manifest(path: Path) -> Manifest:
    """Read a manifest; raise unless this version of winkel wrote it and nobody changed it."""
    data = read_json(path)
    if not isinstance(data, dict) or not {"winkel", "id"} <= data.keys():
        raise InputError(f"{path} is no manifest; `winkel sweep … --manifest-only` writes one")
    version, written_id = data.pop("winkel"), data.pop("id")
    if version != __version__:
        raise InputError(
            f"{path} was written by winkel {version}, this is {__version__}; "
            "use that version, or plan again"
        )
    if fingerprint(data) != written_id:
        raise InputError(f"{path} was changed after it was written; plan again")
    data = _tuples(data)
    try:
        made = {"sweep": Sweep(**data["sweep"]), "options": Options(**data["options"])}
        shards = tuple(Shard(**shard) for shard in data["shards"])
        return Manifest(**data | made | {"shards": shards})
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is no manifest: {error!r}; plan again") from error


def run_shard(
    manifest: Manifest,
    number: int,
    out: Path,
    progress: Callable[[list[Status]], None] = lambda _: None,
    notice: Callable[[str], None] = lambda _: None,
    wait: float = 1.0,
) -> dict[str, Any]:
    """Run what is left of a shard: skip ended runs, continue begun ones from their checkpoints.

    Wait so many seconds for another process that writes one of them. Return what `run_sweep` does.
    """
    shard, sweep = manifest.shard(number), manifest.sweep
    folders = [run_folder(out, *run) for run in shard.runs]
    with hold_runs(out, folders, f"winkel shard {number}", wait):
        found = group_runs(sweep, manifest.options, shard.runs)
        if len(found) != 1 or _shard_id(found[0].runs, shard.lanes) != shard.id:
            raise InputError(
                f"shard {number} has other runs here than where it was planned; "
                "use the same winkel on all machines, or plan again"
            )
        groups, ended = remaining_groups(found, out, resume=True)
        groups = [group._replace(total=max(group.total, shard.lanes)) for group in groups]
        written = -PROGRESS_SECONDS

        def show(_: int, statuses: list[Status]) -> None:
            nonlocal written
            ended = all(status.state != "running" for status in statuses)
            if ended or time.monotonic() - written >= PROGRESS_SECONDS:
                written = time.monotonic()
                write_text(out / SHARDS / f"{shard.id}.json", json.dumps(statuses) + "\n")
            progress(statuses)

        envs, agents, seeds = (tuple(dict.fromkeys(x)) for x in zip(*shard.runs, strict=True))
        part = dataclasses.replace(sweep, envs=envs, agents=agents, seeds=seeds)
        return run_sweep(part, groups, out, shard.lanes, ended.total(), show, notice)


def write_script(script: Path, manifest: Manifest, path: Path, cpus: float, gpus: float) -> None:
    """Write a job array of SLURM, to read and edit; logs are written beside the manifest."""
    for name, count in (("--cpus-per-shard", cpus), ("--gpus-per-shard", gpus)):
        if count != int(count):
            raise InputError(f"need {name} to be a whole number for SLURM, got {count:g}")
    out = path.absolute().parent
    template = (resources.files("winkel.cluster") / "array.sbatch").read_text("utf-8")
    text = jinja2.Template(template, trim_blocks=True, keep_trailing_newline=True).render(
        runs=manifest.num_runs,
        shards=len(manifest.shards),
        last=len(manifest.shards) - 1,
        script=shlex.quote(script.name),
        cpus=max(int(cpus), 1),
        gpus=int(gpus),
        logs=out / SHARDS / "slurm-%A_%a.log",
        warning=WARNING,
        manifest=shlex.quote(str(path.absolute())),
        python=shlex.quote(sys.executable),
        stopped=STOPPED,
        code="".join(f"--code {shlex.quote(name)} " for name in permitted()),
    )
    ensure_folder(out / SHARDS)  # SLURM does not create it
    write_text(script, text)
    script.chmod(0o755)


def read_progress(out: Path, shard: Shard) -> list[Status]:
    """Read the last written status of a shard's runs; empty before the first."""
    path = out / SHARDS / f"{shard.id}.json"
    return [Status(*row) for row in json.loads(path.read_bytes())] if path.exists() else []


def _shard_id(runs: Sequence[RunSpec], lanes: int) -> str:
    """Hash runs, in any order, and their number of lanes."""
    prints = sorted(run.config["fingerprint"] for run in runs)
    return fingerprint({"runs": prints, "lanes": lanes})


def _tuples(value: Any) -> Any:
    """Turn JSON's lists into tuples."""
    if isinstance(value, dict):
        return {name: _tuples(entry) for name, entry in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


# Ray: shards are tasks, which are tried again when their worker or node is lost


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
    variables = {"env_vars": _environment(gpus)}
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
