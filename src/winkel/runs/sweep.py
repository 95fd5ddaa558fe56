"""Sweeps: many environments, agents and seeds, in as few programs as their shapes allow."""

import itertools
import json
import threading
import time
import timeit
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
from filelock import FileLock, Timeout

from winkel.envs.registry import EXPERIMENTS, make, make_padded, parse
from winkel.errors import InputError, defer_interrupt, require_integer
from winkel.files import MUTEX_SECONDS, ensure_folder, write_text
from winkel.runs import spec as specs
from winkel.runs.recorder import Status, load_ended
from winkel.runs.spec import Options, RunSpec
from winkel.runs.train import MAX_LANES, Session, check_run, make_lanes, state_shapes
from winkel.training.lanes import Lanes
from winkel.training.programs import device_memory, lane_bytes
from winkel.training.steps import Horizon

PADDED = ("deep_sea", "deep_sea_stochastic", "memory_len", "memory_size", "umbrella_length",
          "umbrella_distract")  # fmt: skip
"""Experiments whose settings differ in shape; in a sweep their own settings are padded to one."""
MAX_LANES_ON_CPU = 8
"""Runs side by side by default on a CPU; `MAX_LANES` on others, if there is memory for them."""
USABLE = 0.9
"""Share of the memory that may be planned with; the rest is lost to fragmentation."""
SWEEPS = "sweeps.jsonl"
"""Log of sweeps in a folder of runs: a line for each call."""


class Group(NamedTuple):
    """Runs to make that share one compiled program, those with the most steps first.

    `total` also counts those that have ended before. It decides the number of lanes, on which
    rounding depends.
    """

    runs: list[RunSpec]
    total: int

    @property
    def name(self) -> str:
        """The agent and its environments."""
        task = self.runs[0].task
        alone = len({run.task.id for run in self.runs}) == 1
        where = task.pack or (task.id if alone else parse(task.id)[0].family)
        return f"{self.runs[0].algorithm} in {where}"


def bsuite_envs(experiments: Sequence[str] | None = None) -> tuple[str, ...]:
    """The ids of some of bsuite's experiments, or of all."""
    names = list(EXPERIMENTS if experiments is None else experiments)
    for name in names:
        if name not in EXPERIMENTS:
            parse(name)  # raises, and suggests
            raise InputError(f"need an experiment such as catch, got {name!r}")
    return tuple(env for name in names for env in EXPERIMENTS[name].ids)


def deep_sea_envs(sizes: Sequence[int]) -> tuple[str, ...]:
    """The ids of deep sea of these sizes."""
    return tuple(f"deep_sea:size={require_integer('size', size, at_least=2)}" for size in sizes)


def group_runs(
    envs: Sequence[str],
    agents: Sequence[str],
    seeds: Sequence[int],
    fields: Mapping[str, Any],
    packed: bool = False,
    label: str | None = None,
    **others: Any,
) -> list[Group]:
    """Group the runs of every agent in every environment with every seed by their program.

    An agent ignores `fields` that it does not have. With `packed`, the settings of several
    experiments are padded to one shape (`PACKS`). `label` names the only agent; `others` are
    arguments of `make_spec`: episodes, until, options.
    """
    for what, names in (("environments", envs), ("agents", agents)):
        if not names or len(set(names)) != len(names):
            raise InputError(f"need different {what}, at least one, got {', '.join(names)}")
    if label is not None and len(agents) > 1:
        raise InputError(f"need one agent for the label {label!r}, got {len(agents)}")
    count = len(envs) * len(agents) * len(seeds)
    require_integer("number of runs", count, at_least=1, at_most=specs.MAX_RUNS)
    seeds = specs.check_seeds(seeds)
    groups: dict[Any, list[RunSpec]] = defaultdict(list)
    tasks = []
    for env in envs:
        experiment, _ = parse(env)
        pads = env in experiment.ids and (packed or experiment.name in PADDED)
        tasks.append(make_padded(env, packed=packed) if pads else make(env))
    for agent in agents:
        known = specs.field_names(agent)
        own = {name: value for name, value in fields.items() if name in known}
        for task, seed in itertools.product(tasks, seeds):
            spec = specs.make_spec(task, agent, own, seed=seed, label=label, **others)
            leaves, structure = jax.tree.flatten((task.params, task.env))
            shapes = tuple((jax.numpy.shape(x), jax.numpy.result_type(x)) for x in leaves)
            groups[agent, spec.agent, structure, shapes].append(spec)
    for runs in groups.values():
        runs.sort(key=lambda run: -(run.max_steps or 0))
    return [Group(runs, len(runs)) for runs in groups.values()]


def split_groups(groups: Sequence[Group], most_lanes: int) -> list[tuple[int, list[RunSpec]]]:
    """Parts of at most a run for each lane, with their groups' indices, the most steps first."""
    parts = []
    for index, group in enumerate(groups):
        size = min(most_lanes, group.total)
        starts = range(0, len(group.runs), size)
        parts += [(index, group.runs[start : start + size]) for start in starts]
    return sorted(parts, key=lambda part: -_steps(part[1]))


def take_shard(groups: Sequence[Group], number: int, count: int, most_lanes: int) -> list[Group]:
    """The runs of shard `number` of 1 to `count`: each part goes to the shard with least to do.

    A shard's groups keep their `total`, and so the lanes, on which rounding depends.
    """
    steps, taken = [0] * count, defaultdict[int, list[RunSpec]](list)
    for index, runs in split_groups(groups, most_lanes):
        least = steps.index(min(steps))
        steps[least] += _steps(runs)
        if least + 1 == number:
            taken[index] += runs
    return [groups[index]._replace(runs=runs) for index, runs in taken.items()]


def _steps(runs: Sequence[RunSpec]) -> int:
    return sum(run.max_steps or 1 for run in runs)


def remaining_groups(
    all_groups: Sequence[Group], out: Path, resume: bool, write: bool = True
) -> tuple[list[Group], Counter[str]]:
    """Leave out the runs that have ended, and count them by their status.

    Unless `write` is false, this writes the records of runs that were killed at their very end.
    """
    groups, ended = [], Counter[str]()
    for group in all_groups:
        left = []
        for run in group.runs:
            if (record := load_ended(run, out, resume, write)) is None:
                left.append(run)
            else:
                ended[record.config.get("status", "finished")] += 1
        if left:
            groups.append(group._replace(runs=left))
    return groups, ended


@defer_interrupt()
def run_sweep(
    sweep: Mapping[str, Any],
    groups: list[Group],
    out: Path,
    lanes: int | None = None,
    before: int = 0,
    progress: Callable[[int, list[Status]], None] = lambda *_: None,
    notice: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run all groups, one after the other. A run that fails is counted and stops nothing.

    Returns, as JSON, how many `runs` are finished, failed, or had ended `before`; what it took, by
    group and in all; and the updates made, by experiment. The folder's log of sweeps gets the same,
    and `sweep`, which says what the runs are.
    """
    ensure_folder(out)
    begin, ending = time.perf_counter(), "failed"
    costs: list[dict[str, Any]] = []
    counts, updates = Counter[str](), Counter[str]()
    try:
        for number, group in enumerate(groups):
            began = time.perf_counter()
            session = Session(
                specs=group.runs, out=out, num_lanes=choose_lanes(group, lanes),
                ended=lambda record: counts.update([record.config["status"]]),
                progress=partial(progress, number), notice=notice,
            )  # fmt: skip
            if jax.default_backend() != "cpu" and number + 1 < len(groups):
                compile_next = partial(_prepare, groups[number + 1], lanes)
                threading.Thread(target=compile_next, name="compiling", daemon=True).start()
            try:
                session.run()
            finally:
                made = Counter[str]()
                for recorder in session.recorders:
                    name = specs.experiment_of(recorder.status.env)
                    made[name] += recorder.status.updates - recorder.updates_before
                updates += made
                costs.append(_cost(group, session, time.perf_counter() - began, made.total()))
        ending = "ended"
    except KeyboardInterrupt:
        ending = "interrupted"
        raise
    finally:
        outcome = {
            "runs": {name: counts[name] for name in ("finished", "failed")} | {"before": before},
            "seconds": round(time.perf_counter() - begin, 1),
            "programs": sum(cost["programs"] for cost in costs),
            "compiling": round(sum(cost["compiling"] for cost in costs), 1),
            "updates": dict(updates.most_common()),
            "groups": costs,
        }
        if groups:
            _write_log(out, sweep, outcome | {"status": ending})
    return outcome


def _cost(group: Group, session: Session, seconds: float, updates: int) -> dict[str, Any]:
    """What a group took: seconds in all and of these for what, lanes at first, programs."""
    return {
        "group": group.name,
        "runs": len(session.specs),
        "lanes": session.num_lanes,
        "seconds": round(seconds, 1),
        "device": round(session.programs.running, 1),
        "compiling": round(session.programs.compiling, 1),
        "saving": round(session.saving, 1),
        "programs": session.programs.count,
        "updates": updates,
        "updates_per_second": round(updates / seconds, 1),
    }


def _write_log(out: Path, sweep: Mapping[str, Any], outcome: dict[str, Any]) -> None:
    machine = {"device": jax.devices()[0].device_kind, "jax": jax.__version__}
    row = {**sweep, **outcome, **machine}
    path = out / SWEEPS
    lock = out / f".{SWEEPS}.lock"
    try:
        held = FileLock(lock).acquire(timeout=MUTEX_SECONDS)  # shards may end at the same time
    except Timeout as error:
        raise InputError(f"{lock} is held by another process") from error
    with held:
        before = path.read_text() if path.is_file() else ""
        write_text(path, before + json.dumps(row) + "\n")


def most_lanes(wanted: int | None, accelerated: bool) -> int:
    """How many runs may go side by side, memory permitting."""
    return wanted or (MAX_LANES if accelerated else MAX_LANES_ON_CPU)


def choose_lanes(group: Group, wanted: int | None) -> int:
    """How many runs of a group go side by side: `most_lanes`, or fewer if memory does not suffice.

    A number that is asked for is used; if memory does not suffice, `Lanes` continues with fewer.
    """
    run = group.runs[0]
    lanes = min(most_lanes(wanted, jax.default_backend() != "cpu"), group.total)
    if wanted is None and (limit := device_memory()) is not None:
        need = lane_bytes(run.agent, state_shapes(run), run.task.params)
        lanes = min(lanes, max(int(USABLE * limit) // need, 1))
    check_run(run, lanes)
    return lanes


def measure_speed(group: Group, lanes: int | None) -> tuple[float, float, int]:
    """Time one chunk of a group: updates a second, seconds of its compilation, and its lanes."""
    machine = _plain_lanes(group, lanes, horizon=Horizon(), stop=None)
    first, second = (timeit.timeit(machine.advance, number=1) for _ in range(2))
    running = min(machine.num_lanes, len(group.runs))
    updates = machine.chunk_steps * running * group.runs[0].agent.config.updates_per_step
    return updates / second, max(first - second, 0.0), machine.num_lanes


def _prepare(group: Group, lanes: int | None) -> None:
    _plain_lanes(group, lanes).prepare()


def _plain_lanes(group: Group, lanes: int | None, **changes: Any) -> Lanes:
    """Lanes for a group that are not compacted."""
    run, options = group.runs[0], group.runs[0].options
    plans = [run.plan()._replace(**changes) for run in group.runs]
    plain = Options(chunk_steps=options.chunk_steps)
    return make_lanes(run, plans, choose_lanes(group, lanes), plain)
