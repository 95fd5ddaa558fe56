"""What `winkel bench` has measured, on disk and as the arrays of its figure."""

import dataclasses
import json
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from winkel.envs.registry import parse
from winkel.errors import InputError
from winkel.runs.folder import write_text

BENCH = "bench.json"
FORMAT, VERSION = "winkel-bench", 1
ADAM_TRAFFIC = 7
"""Numbers that a step of Adam moves for each parameter: reads p, g, m, v, writes p, m, v."""
_FLOAT_BYTES = 4

Status = Literal["ok", "failed"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One combination, measured or failed. None stands for what is not known.

    Attributes:
        agent: its name.
        env: id of the environment.
        lanes: runs side by side.
        num_atoms: K, of agents that have it.
        fields: the agent's other fields that are not at their defaults.
        steps: of a chunk.
        status: 'failed' without a time of the whole loop.
        reason: why it failed, or which part did.
        parameters: learned numbers of one lane.
        lane_bytes: everything that one lane keeps from step to step.
        updates_per_second: of all lanes together, in the median chunk.
        ms_step: of the whole loop, in the median chunk.
        ms_fastest: in the fastest chunk.
        ms_slowest: in the slowest.
        chunks: how many were timed.
        compile_seconds: until the first chunk could run, on top of running it.
        peak_bytes: the most that the device held, where it tells, and only if this row raised it.
        environment_ms: a step of the environments alone.
        learning_ms: an update of all lanes alone.
        copy_bytes_per_second: read and written by a copy of a large array, in the same run.
    """

    agent: str
    env: str
    lanes: int
    num_atoms: int | None
    fields: dict[str, Any]
    steps: int
    status: Status
    reason: str | None = None
    parameters: int | None = None
    lane_bytes: int | None = None
    updates_per_second: float | None = None
    ms_step: float | None = None
    ms_fastest: float | None = None
    ms_slowest: float | None = None
    chunks: int | None = None
    compile_seconds: float | None = None
    peak_bytes: int | None = None
    environment_ms: float | None = None
    learning_ms: float | None = None
    copy_bytes_per_second: float | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes two rows the same combination."""
        return self.agent, self.env, self.num_atoms, fields_text(self.fields), self.lanes

    @property
    def ms_update(self) -> float | None:
        """Time of one update of one lane."""
        return None if self.ms_step is None else self.ms_step / self.lanes

    @property
    def parameter_bytes(self) -> int | None:
        """Of the learned numbers of all lanes."""
        return None if self.parameters is None else _FLOAT_BYTES * self.parameters * self.lanes

    @property
    def kept_bytes(self) -> int | None:
        """Of everything that all lanes keep: memory is at least that."""
        return None if self.lane_bytes is None else self.lane_bytes * self.lanes

    @property
    def floor_ms(self) -> float | None:
        """Time of a step in which only Adam moves its numbers, as fast as a copy does."""
        if self.parameter_bytes is None or self.copy_bytes_per_second is None:
            return None
        return 1e3 * ADAM_TRAFFIC * self.parameter_bytes / self.copy_bytes_per_second

    @property
    def floor_ratio(self) -> float | None:
        """How many times the floor a step takes."""
        return None if not self.floor_ms or self.ms_step is None else self.ms_step / self.floor_ms

    @property
    def environment_share(self) -> float | None:
        """Of the environments alone in a step."""
        return _share(self.environment_ms, self.ms_step)

    @property
    def learning_share(self) -> float | None:
        """Of learning alone in a step."""
        return _share(self.learning_ms, self.ms_step)


DERIVED = (
    "ms_update",
    "parameter_bytes",
    "kept_bytes",
    "floor_ms",
    "floor_ratio",
    "environment_share",
    "learning_share",
)
"""Written beside each row for other readers; our own computes them again."""


class Call(NamedTuple):
    """A call that measured.

    Attributes:
        date: when it began, in UTC.
        command: as typed.
        machine: where.
        jax: its version.
        winkel: ours.
    """

    date: str
    command: str
    machine: str
    jax: str
    winkel: str


class Bench(NamedTuple):
    """All rows of a device, and the calls that measured them."""

    device: str
    calls: tuple[Call, ...]
    rows: tuple[Row, ...]


def fields_text(fields: dict[str, Any]) -> str:
    """Such as 'batch_size 2, hidden 8,8'."""

    def say(value: Any) -> str:
        return ",".join(map(say, value)) if isinstance(value, list | tuple) else str(value)

    return ", ".join(f"{name} {say(value)}" for name, value in sorted(fields.items()))


def save(path: Path, bench: Bench) -> None:
    """Write bench.json, never half of it."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "device": bench.device,
        "calls": [call._asdict() for call in bench.calls],
        "rows": [
            dataclasses.asdict(row) | {"derived": {name: getattr(row, name) for name in DERIVED}}
            for row in bench.rows
        ],
    }
    write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def load(path: Path) -> Bench:
    """Read a bench.json; raises InputError unless it is one of this version."""
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"no such file: {path}") from error
    except IsADirectoryError as error:
        raise InputError(f"need a file, got the folder {path}; say {path / BENCH}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error})") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"{path} is not a {BENCH}: it does not say format {FORMAT!r}")
    if document.get("version") != VERSION:
        raise InputError(
            f"{path} has version {document.get('version')!r} of the format, need {VERSION}"
        )
    try:
        return Bench(
            device=_typed(document["device"], str, "device"),
            calls=tuple(_call(call) for call in _typed(document["calls"], list, "calls")),
            rows=tuple(_row(row) for row in _typed(document["rows"], list, "rows")),
        )
    except KeyError as error:
        raise InputError(f"{path} lacks {error.args[0]}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def merged(benches: Sequence[Bench]) -> Bench:
    """One of many; of rows of the same combination the later wins."""
    if not benches:
        raise InputError("need at least one file of rows, got none")
    devices = sorted({bench.device for bench in benches})
    if len(devices) > 1:
        raise InputError(f"need rows of one device, got {' and '.join(devices)}")
    calls = dict.fromkeys(call for bench in benches for call in bench.calls)
    rows = {row.key: row for bench in benches for row in bench.rows}
    return Bench(device=devices[0], calls=tuple(calls), rows=tuple(rows.values()))


def in_order(rows: Sequence[Row]) -> list[Row]:
    """By agent and environment as they first appear, then by fields, K and lanes."""
    agents = list(dict.fromkeys(row.agent for row in rows))
    envs = list(dict.fromkeys(row.env for row in rows))

    def rank(row: Row) -> tuple[Any, ...]:
        text = fields_text(row.fields)
        return agents.index(row.agent), envs.index(row.env), text, row.num_atoms or 0, row.lanes

    return sorted(rows, key=rank)


def name_of(row: Row) -> str:
    """The combination in words."""
    atoms = "" if row.num_atoms is None else f", K = {row.num_atoms}"
    return f"{row.agent}, {row.env}{atoms}, {row.lanes} lane{'s' if row.lanes > 1 else ''}"


def arrays(bench: Bench) -> dict[str, np.ndarray]:
    """What `figures.bench` draws: an entry for each row that has a time.

    Fields are part of an agent's name only where the same agent was measured with others.
    """
    timed = [row for row in in_order(bench.rows) if row.ms_update is not None]
    variants: dict[str, set[str]] = {}
    for row in timed:
        variants.setdefault(row.agent, set()).add(fields_text(row.fields))
    notes = [
        f"{name_of(row)}: {row.reason}" for row in in_order(bench.rows) if row.status == "failed"
    ]
    alike: dict[str, list[str]] = {}
    for agent, texts in variants.items():
        for text in texts if len(texts) == 1 else ():
            alike.setdefault(text, []).append(agent)
    notes += [f"{', '.join(agents)} with {text}" for text, agents in alike.items() if text]

    def name(row: Row) -> str:
        text = fields_text(row.fields)
        return f"{row.agent} [{text}]" if text and len(variants[row.agent]) > 1 else row.agent

    def each(name: str) -> np.ndarray:
        """A time of a step, for one update."""
        found = [(getattr(row, name), row.lanes) for row in timed]
        return np.array([np.nan if ms is None else ms / lanes for ms, lanes in found], dtype=float)

    return {
        "agents": np.array([name(row) for row in timed], dtype=str),
        "settings": np.array([row.env for row in timed], dtype=str),
        "experiments": np.array([_experiment(row.env) for row in timed], dtype=str),
        "sizes": np.array([_sea_size(row.env) for row in timed], dtype=int),
        "lanes": np.array([row.lanes for row in timed], dtype=int),
        "atoms": np.array([row.num_atoms or 0 for row in timed], dtype=int),
        "milliseconds": each("ms_step"),
        "fastest": each("ms_fastest"),
        "slowest": each("ms_slowest"),
        "floor": each("floor_ms"),
        "devices": np.array([bench.device]),
        "notes": np.array(notes, dtype=str),
    }


def _experiment(env: str) -> str:
    return parse(env)[0].name


def _sea_size(env: str) -> int:
    """Of deep sea; 0 of all else."""
    experiment, setting = parse(env)
    return int(setting["size"]) if experiment.family.startswith("deep_sea") else 0


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _typed(value: Any, kind: Any, name: str) -> Any:
    """The value if it has the type, an int where a float is meant as one."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        kind = next(argument for argument in arguments if argument is not type(None))
    elif origin is Literal:
        if value not in arguments:
            raise InputError(f"need {name} from {', '.join(arguments)}, got {value!r:.60}")
        return value
    kind = typing.get_origin(kind) or kind
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise InputError(f"need {kind.__name__} for {name}, got {value!r:.60}")
    return value


def _call(entry: Any) -> Call:
    entry = _typed(entry, dict, "each call")
    return Call(**{name: _typed(entry[name], str, name) for name in Call._fields})


def _row(entry: Any) -> Row:
    entry = _typed(entry, dict, "each row")
    hints = typing.get_type_hints(Row)
    names = [field.name for field in dataclasses.fields(Row)]
    row = Row(**{name: _typed(entry[name], hints[name], name) for name in names})
    parse(row.env)
    timed = all(value is not None and value > 0 for value in (row.ms_step, row.updates_per_second))
    if row.lanes < 1 or timed != (row.status == "ok"):
        raise InputError(f"need lanes >= 1 and a time exactly if ok in the row of {name_of(row)}")
    return row
