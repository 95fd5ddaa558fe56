"""Sweeps: many settings, agents and seeds, in as few compiled programs as their shapes allow."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax

from winkel.envs.registry import Task, make, make_packed, make_padded, parse
from winkel.errors import InputError
from winkel.files import ensure_folder
from winkel.runs.folder import load_run, run_folder, write_text
from winkel.runs.ledger import GroupCost, Outcome
from winkel.runs.recording import Recorder, conclude, is_complete
from winkel.runs.results import SWEEPS
from winkel.runs.session import Options, Planned, Session, Status
from winkel.runs.shapes import shapes_of, world_of
from winkel.runs.spec import Configured, configure, fields_of
from winkel.runs.sweep_settings import Item, Sweep, bsuite_envs, deep_sea_envs
from winkel.runs.train import horizon_of, run_config, stop_of
from winkel.training.lanes import Lanes
from winkel.training.programs import lane_bytes, lanes_that_fit
from winkel.training.steps import Horizon

__all__ = [
    "Group", "Item", "Sweep", "bsuite_envs", "calibrated", "deep_sea_envs", "grouped", "lanes_of",
    "programs", "run_sweep", "write_log",
]  # fmt: skip

PADDED = ("deep_sea", "deep_sea_stochastic", "memory_len", "memory_size", "umbrella_length",
          "umbrella_distract")  # fmt: skip
"""Experiments whose settings differ in shape; in a sweep of bsuite they share one, padded."""
MOST_LANES, LANES_ON_CPU = 256, 8
"""Runs side by side by default, where there is memory for them."""


class Group(NamedTuple):
    """Runs that share one compiled program.

    Attributes:
        agent: who.
        runs: those still to be made.
        total: how many there are with those that had ended before: they keep their lanes, since the
            number of lanes decides how the accelerator rounds.
    """

    agent: str
    runs: list[Planned]
    total: int

    @property
    def name(self) -> str:
        """The agent and where it is."""
        task = self.runs[0].task
        if task.packing is not None:
            return f"{self.agent} in {task.packing.pack}"
        envs = sorted({run.task.id for run in self.runs})
        return f"{self.agent} in {envs[0] if len(envs) == 1 else _family(envs[0])}"


def programs(
    sweep: Sweep,
    out: Path,
    options: Options,
    mnist_dir: Path | None,
    items: Sequence[Item] | None = None,
) -> list[Group]:
    """Runs of a sweep, some or all, by program: the longest first, ended or not."""
    groups: dict[Any, Group] = {}
    tasks: dict[str, Task] = {}
    for item in sweep.items() if items is None else items:
        if item.env not in tasks:
            tasks[item.env] = _maker(sweep, item.env)(item.env, mnist_dir)
        task = tasks[item.env]
        configured = configure(item.agent, fields_of(item.agent, sweep.fields), task)
        horizon = horizon_of(task, sweep.episodes)
        stop = None if sweep.until is None else stop_of(sweep.until, horizon)
        config = run_config(task, configured, item.seed, horizon, stop, options, item.agent)
        folder = run_folder(out, item.env, item.agent, item.seed)
        group = groups.setdefault(_shape(task, configured), Group(item.agent, [], 0))
        recorder = Recorder(config=config, folder=folder)
        group.runs.append(Planned(task, configured, horizon, stop, recorder))
    for group in groups.values():
        group.runs.sort(key=lambda run: -(run.most_steps or 0))
    return [group._replace(total=len(group.runs)) for group in groups.values()]


def grouped(
    sweep: Sweep,
    out: Path,
    options: Options,
    mnist_dir: Path | None,
    resume: bool,
    write: bool = True,
    items: Sequence[Item] | None = None,
) -> tuple[list[Group], Counter[str]]:
    """The runs still to be made, by program, the longest first; and how many had ended how."""
    groups, ended = [], Counter[str]()
    for group in programs(sweep, out, options, mnist_dir, items):
        left = []
        for run in group.runs:
            config, folder = run.recorder.config, run.recorder.folder
            assert folder is not None
            if folder.exists() and not resume:
                raise InputError(f"{folder} exists; go on with --resume, or choose another --out")
            if write:
                conclude(folder, config)
            if is_complete(folder, config):
                ended[load_run(folder).config.get("status", "finished")] += 1
            else:
                left.append(run)
        groups.append(group._replace(runs=left))
    return [group for group in groups if group.runs], ended


def run_sweep(
    groups: list[Group],
    ended: Counter[str],
    out: Path,
    options: Options,
    lanes: int | None = None,
    progress: Callable[[int, list[Status]], None] = lambda *_: None,
    notice: Callable[[str], None] = lambda _: None,
    costs: list[GroupCost] | None = None,
) -> Outcome:
    """All groups, one after the other. A run that fails is counted and stops nothing.

    `costs` gets what each group took, also that of one which is interrupted.
    """
    ensure_folder(out)
    begin = time.perf_counter()
    finished = failed = 0
    costs = [] if costs is None else costs
    for number, group in enumerate(groups):
        session = Session(
            runs=group.runs,
            options=options,
            progress=partial(progress, number),
            notice=notice,
            keep=False,
        )
        count = lanes_of(group, lanes, notice, options.devices)
        if options.ahead and number + 1 < len(groups):
            _prepare(groups[number + 1], lanes, options)
        try:
            trained = session.run(count)
        finally:
            costs.append(GroupCost(group.name, len(group.runs), session.spent()))
        bad = sum(run.config["status"] == "failed" for run in trained)
        failed, finished = failed + bad, finished + len(trained) - bad
    return Outcome(finished, failed, ended.total(), time.perf_counter() - begin, tuple(costs))


def lanes_of(
    group: Group,
    wanted: int | None,
    notice: Callable[[str], None] = lambda _: None,
    devices: int = 1,
) -> int:
    """How many runs of a group go side by side: all, if the devices have room for them.

    A number that is asked for is taken; the notice says if it will not fit.
    """
    default = LANES_ON_CPU if jax.default_backend() == "cpu" else MOST_LANES * devices
    lanes = min(default if wanted is None else wanted, group.total)
    lanes = -(-lanes // devices) * devices
    run = group.runs[0]
    shapes = shapes_of(run.task, run.configured, run.horizon)
    need = lane_bytes(run.configured.agent, shapes, run.task.params)
    fit = lanes_that_fit(need)
    if fit is None or lanes <= (fit := fit * devices):
        return lanes
    if wanted is None:
        return fit
    notice(
        f"{group.name}: {lanes} lanes of about {need / 2**20:,.0f} MiB each may not fit in memory; "
        f"{fit} should"
    )
    return lanes


def _prepare(group: Group, lanes: int | None, options: Options) -> None:
    """Have a group's programs compiled in the background, while another group runs."""

    def prepare() -> None:
        plans = [run.plan() for run in group.runs]
        agent, world = group.runs[0].configured.agent, world_of(group.runs[0].task)
        count = lanes_of(group, lanes, devices=options.devices)
        machine = Lanes(agent, world, plans, count, options.chunk_steps, devices=options.devices)
        machine.prepare()

    threading.Thread(target=prepare, name="preparing", daemon=True).start()


def calibrated(group: Group, lanes: int | None, options: Options) -> tuple[float, float]:
    """Updates a second of a group's program, from one chunk, and seconds of its compilation."""
    count = lanes_of(group, lanes, devices=options.devices)
    runs = group.runs[:count]
    plans = [run.plan()._replace(horizon=Horizon(), stop=None) for run in runs]
    agent, world = runs[0].configured.agent, world_of(runs[0].task)
    machine = Lanes(agent, world, plans, count, options.chunk_steps, devices=options.devices)
    begin = time.perf_counter()
    machine.advance()
    first = time.perf_counter() - begin
    begin = time.perf_counter()
    machine.advance()
    second = time.perf_counter() - begin
    return options.chunk_steps * len(plans) / second, max(first - second, 0.0)


def write_log(out: Path, sweep: Sweep, outcome: Outcome, status: str = "ended") -> None:
    """Remember the call, for the provenance of a report."""
    path = out / SWEEPS
    row = {
        "agents": list(sweep.agents),
        "settings": len(sweep.envs),
        "seeds": list(sweep.seeds),
        "episodes": sweep.episodes,
        "until": sweep.until,
        "packed": sweep.packed,
        **outcome.row(),
        "status": status,
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
    }
    before = path.read_text() if path.is_file() else ""
    write_text(path, before + json.dumps(row) + "\n")


def _shape(task: Task, configured: Configured) -> tuple[Any, ...]:
    leaves, structure = jax.tree.flatten((task.params, task.env))
    shapes = tuple((jax.numpy.shape(leaf), jax.numpy.result_type(leaf)) for leaf in leaves)
    together = _family(task.id) if task.packing is None else task.packing.pack
    return configured.name, configured.agent, structure, shapes, together


def _family(env: str) -> str:
    family = parse(env)[0].family
    return "deep_sea" if family.startswith("deep_sea") else family


def _maker(sweep: Sweep, env: str) -> Callable[[str, Path | None], Task]:
    experiment, _ = parse(env)
    if sweep.packed and env in experiment.ids:
        return make_packed
    return make_padded if sweep.padded and experiment.name in PADDED else make
