"""Sweeps: many settings, agents and seeds, in as few compiled programs as their shapes allow."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax

from winkel.envs.bsuite.sweep import EXPERIMENTS
from winkel.envs.registry import Task, make, make_packed, make_padded, parse
from winkel.errors import InputError, require_integer
from winkel.experiments.config import Configured, configure, fields_of
from winkel.experiments.ledger import GroupCost, Outcome
from winkel.experiments.recording import Recorder, conclude, is_complete
from winkel.experiments.results import SWEEPS
from winkel.experiments.session import Options, Planned, Session, Status
from winkel.experiments.train import checked_seeds, horizon_of, run_config, stop_of
from winkel.io.results import ensure_folder
from winkel.io.runs import load_run, run_folder, write_text
from winkel.training.lanes import Lanes
from winkel.training.programs import lane_bytes, lanes_that_fit
from winkel.training.steps import Horizon

PADDED = ("deep_sea", "deep_sea_stochastic", "memory_len", "memory_size", "umbrella_length",
          "umbrella_distract")  # fmt: skip
"""Experiments whose settings differ in shape; in a sweep of bsuite they share one, padded."""
MOST_LANES, LANES_ON_CPU = 256, 8
"""Runs side by side by default, where there is memory for them."""


class Item(NamedTuple):
    """One run of a sweep."""

    env: str
    agent: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What to run.

    Attributes:
        envs: ids of environments.
        agents: names of agents or variants.
        seeds: which.
        episodes: horizon of each run; None for bsuite's own.
        until: stop each run after so many episodes, although schedules go by the horizon.
        padded: settings of one experiment share one shape and one program.
        packed: settings of several experiments do, as `PACKS` has them together.
        fields: settings that differ from the agents' own, for those that have them.
    """

    envs: tuple[str, ...]
    agents: tuple[str, ...]
    seeds: tuple[int, ...]
    episodes: int | None = None
    until: int | None = None
    padded: bool = False
    packed: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked_seeds(self.seeds)
        for what, names in (("environments", self.envs), ("agents", self.agents)):
            if not names or len(set(names)) != len(names):
                raise InputError(f"need different {what}, at least one, got {', '.join(names)}")

    def items(self) -> list[Item]:
        """All runs."""
        return [
            Item(env=env, agent=agent, seed=seed)
            for agent in self.agents
            for env in self.envs
            for seed in self.seeds
        ]


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


def bsuite_envs(experiments: Sequence[str] | None = None) -> tuple[str, ...]:
    """The ids of some of bsuite's experiments, or of all."""
    names = list(EXPERIMENTS) if experiments is None else list(experiments)
    for name in names:
        if name not in EXPERIMENTS:
            parse(name)  # raises, and suggests
            raise InputError(f"need an experiment such as catch, got {name!r}")
    return tuple(env for name in names for env in EXPERIMENTS[name].ids)


def deep_sea_envs(sizes: Sequence[int]) -> tuple[str, ...]:
    """Deep seas of these sizes."""
    return tuple(f"deep_sea:size={require_integer('size', size, at_least=2)}" for size in sizes)


def grouped(
    sweep: Sweep,
    out: Path,
    options: Options,
    mnist_dir: Path | None,
    resume: bool,
    write: bool = True,
) -> tuple[list[Group], Counter[str]]:
    """The runs still to be made, by program, the longest first; and how many had ended how."""
    groups: dict[Any, Group] = {}
    ended: Counter[str] = Counter()
    tasks: dict[str, Task] = {}
    for item in sweep.items():
        if item.env not in tasks:
            tasks[item.env] = _maker(sweep, item.env)(item.env, mnist_dir)
        task = tasks[item.env]
        configured = configure(item.agent, fields_of(item.agent, sweep.fields), task)
        horizon = horizon_of(task, sweep.episodes)
        stop = None if sweep.until is None else stop_of(sweep.until, horizon)
        config = run_config(task, configured, item.seed, horizon, stop, options, item.agent)
        folder = run_folder(out, item.env, item.agent, item.seed)
        if folder.exists() and not resume:
            raise InputError(f"{folder} exists; go on with --resume, or choose another --out")
        if write:
            conclude(folder, config)
        key = _shape(task, configured)
        group = groups.get(key, Group(agent=item.agent, runs=[], total=0))
        groups[key] = group._replace(total=group.total + 1)
        if is_complete(folder, config):
            ended[load_run(folder).config.get("status", "finished")] += 1
            continue
        recorder = Recorder(config=config, folder=folder)
        group.runs.append(Planned(task, configured, horizon, stop, recorder))
    for group in groups.values():
        group.runs.sort(key=lambda run: -(run.most_steps or 0))
    return [group for group in groups.values() if group.runs], ended


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
        count = lanes_of(group, lanes, notice)
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
    group: Group, wanted: int | None, notice: Callable[[str], None] = lambda _: None
) -> int:
    """How many runs of a group go side by side: all, if the device has room for them.

    A number that is asked for is taken; the notice says if it will not fit.
    """
    default = LANES_ON_CPU if jax.default_backend() == "cpu" else MOST_LANES
    lanes = min(default if wanted is None else wanted, group.total)
    run = group.runs[0]
    need = lane_bytes(run.configured.agent, run.task.env, run.task.params, run.configured.hyper)
    fit = lanes_that_fit(need)
    if fit is None or lanes <= fit:
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
        agent, env = group.runs[0].configured.agent, group.runs[0].task.env
        Lanes(agent, env, plans, lanes_of(group, lanes), options.chunk_steps).prepare()

    threading.Thread(target=prepare, name="preparing", daemon=True).start()


def calibrated(group: Group, lanes: int | None, options: Options) -> tuple[float, float]:
    """Updates a second of a group's program, from one chunk, and seconds of its compilation."""
    count = lanes_of(group, lanes)
    runs = group.runs[:count]
    plans = [run.plan()._replace(horizon=Horizon(), stop=None) for run in runs]
    agent, env = runs[0].configured.agent, runs[0].task.env
    machine = Lanes(agent, env, plans, count, options.chunk_steps)
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
