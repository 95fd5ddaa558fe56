"""A sweep as a manifest: shards, each of which can be run anywhere, at any time, by itself.

The number of lanes decides how a program rounds; nothing else in a run's company does. A shard says
how many it has, which is what a plain sweep would give its group; so its records are the same bits.
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from winkel.errors import InputError, require_integer
from winkel.runs.folder import write_text
from winkel.runs.planned import Options, Planned
from winkel.runs.spec import fingerprint
from winkel.runs.sweep import Item, Sweep, lanes_of, programs
from winkel.version import __version__

MANIFEST = "manifest.json"
FORMAT = 1


class Shard(NamedTuple):
    """Runs of one shape, made together.

    Attributes:
        id: hash of what its runs are and of how many go side by side.
        group: name of the program, for people.
        lanes: runs side by side, idle ones included.
        runs: which.
    """

    id: str
    group: str
    lanes: int
    runs: tuple[Item, ...]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A sweep in shards.

    Attributes:
        sweep: what is run.
        options: how.
        shards: all runs, each in one of them.
        deterministic: whether a GPU must give the same bits each time.
        mnist_dir: where MNIST's files are, on every machine.
    """

    sweep: Sweep
    options: Options
    shards: tuple[Shard, ...]
    deterministic: bool = False
    mnist_dir: str | None = None

    @property
    def id(self) -> str:
        """Hash of everything in it."""
        return fingerprint(_content(self))

    @property
    def num_runs(self) -> int:
        """In all shards."""
        return sum(len(shard.runs) for shard in self.shards)

    def shard(self, number: int) -> Shard:
        """By its number."""
        if not 0 <= require_integer("the shard's number", number, at_least=0) < len(self.shards):
            raise InputError(f"need a shard from 0 to {len(self.shards) - 1}, got {number}")
        return self.shards[number]

    def write(self, path: Path) -> None:
        """As JSON that a person can read."""
        head = {"format": FORMAT, "winkel": __version__, "id": self.id}
        write_text(path, json.dumps(head | _content(self), indent=1) + "\n")


def planned(
    sweep: Sweep,
    options: Options,
    lanes: int | None,
    shard_runs: int | None,
    deterministic: bool = False,
    mnist_dir: Path | None = None,
    most: int | None = None,
) -> Manifest:
    """Cut a sweep into shards of at most `shard_runs` runs; by default of as many as go abreast.

    A shard of fewer runs than lanes would keep lanes idle, so lanes are at most so many. Where they
    are not given they are at most `most`, or what a plain sweep on this machine would have.
    """
    if shard_runs is not None:
        require_integer("shard_runs", shard_runs, at_least=1)
        if lanes is not None and shard_runs < lanes:
            raise InputError(
                f"need --shard-runs >= --lanes, or lanes stay idle, got {shard_runs} and {lanes}"
            )
    shards = []
    for group in programs(sweep, Path(), options, mnist_dir):
        abreast = lanes_of(group, most if lanes is None else lanes, devices=options.devices)
        if lanes is None and shard_runs is not None:
            abreast = min(abreast, -(-shard_runs // options.devices) * options.devices)
        size = shard_runs or abreast
        for first in range(0, len(group.runs), size):
            runs = group.runs[first : first + size]
            items = tuple(item_of(run) for run in runs)
            shards.append(Shard(identity(runs, abreast), group.name, abreast, items))
    directory = None if mnist_dir is None else str(mnist_dir.absolute())
    return Manifest(
        sweep=sweep,
        options=options,
        shards=tuple(shards),
        deterministic=deterministic,
        mnist_dir=directory,
    )


def item_of(run: Planned) -> Item:
    """Which run of a sweep this is."""
    config = run.recorder.config
    return Item(env=config["env"], agent=config["agent"], seed=config["seed"])


def identity(runs: Sequence[Planned], lanes: int) -> str:
    """Hash of what some runs are, whatever their order, and of how many go side by side."""
    prints = sorted(run.recorder.config["fingerprint"] for run in runs)
    return fingerprint({"runs": prints, "lanes": lanes})


def read(path: Path) -> Manifest:
    """A manifest of this version of winkel, unchanged since it was written."""
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"no such file: {path}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error})") from error
    if not isinstance(data, dict) or "format" not in data:
        raise InputError(f"{path} is no manifest; `winkel sweep … --plan-only` writes one")
    for key, ours in (("format", FORMAT), ("winkel", __version__)):
        if data.get(key) != ours:
            raise InputError(
                f"{path} has {key} {data.get(key)!r}, this winkel is {ours!r}; "
                "use the version that wrote it, or plan anew"
            )
    try:
        manifest = _from_content(data)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error!r}); plan anew") from error
    if manifest.id != data.get("id"):
        raise InputError(
            f"{path} was changed: its content has id {manifest.id}, it says {data.get('id')}; "
            "plan anew"
        )
    return manifest


def _content(manifest: Manifest) -> dict[str, Any]:
    content = {
        "sweep": dataclasses.asdict(manifest.sweep),
        "options": dataclasses.asdict(manifest.options),
        "deterministic": manifest.deterministic,
        "mnist_dir": manifest.mnist_dir,
        "shards": [shard._asdict() for shard in manifest.shards],
    }
    return json.loads(json.dumps(content, default=dict))


def _from_content(data: dict[str, Any]) -> Manifest:
    sweep = {name: _tuples(value) for name, value in data["sweep"].items()}
    return Manifest(
        sweep=Sweep(**sweep),
        options=Options(**data["options"]),
        shards=tuple(
            Shard(**(shard | {"runs": tuple(Item(*run) for run in shard["runs"])}))
            for shard in data["shards"]
        ),
        deterministic=data["deterministic"],
        mnist_dir=data["mnist_dir"],
    )


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _tuples(entry) for name, entry in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
