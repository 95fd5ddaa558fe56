"""The command line. Every user error is one line on stderr and exit status 2."""

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from winkel.commands.bench import BenchCommand
from winkel.commands.bsuite import Export, Score
from winkel.commands.data import Data
from winkel.commands.demo import Demo
from winkel.commands.figure import Figure
from winkel.commands.inspect import Inspect
from winkel.commands.listing import List
from winkel.commands.output import checked_output, warn
from winkel.commands.play import Play
from winkel.commands.report import Report
from winkel.commands.rollout import Rollout
from winkel.commands.search import SearchCommand
from winkel.commands.shard import ShardCommand
from winkel.commands.sweep import SweepCommand
from winkel.commands.terminal import say
from winkel.commands.train import Train
from winkel.errors import InputError
from winkel.version import __version__

Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[SweepCommand, tyro.conf.subcommand("sweep")]
    | Annotated[ShardCommand, tyro.conf.subcommand("shard")]
    | Annotated[SearchCommand, tyro.conf.subcommand("search")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[Play, tyro.conf.subcommand("play")]
    | Annotated[Rollout, tyro.conf.subcommand("rollout")]
    | Annotated[Score, tyro.conf.subcommand("score")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Figure, tyro.conf.subcommand("figure")]
    | Annotated[BenchCommand, tyro.conf.subcommand("bench")]
    | Annotated[Data, tyro.conf.subcommand("data")]
    | Annotated[List, tyro.conf.subcommand("list")]
)

_HELP = "Deep exploration with distributional reinforcement learning. --version shows the version."


@checked_output()
def main(argv: list[str] | None = None) -> None:
    """Entry point of the `winkel` command. WINKEL_DEBUG=1 shows the traceback of a user error.

    Unknown options are fields of an agent; commands that take them have an attribute `fields`.
    """
    arguments = sys.argv[1:] if argv is None else argv
    if arguments == ["--version"]:
        say(f"winkel {__version__}")
        return
    command, rest = tyro.cli(
        Command, prog="winkel", description=_HELP, args=arguments, return_unknown_args=True
    )
    try:
        if hasattr(command, "fields"):
            command = dataclasses.replace(command, fields=parse_fields(rest))  # type: ignore[arg-type]
        elif rest:
            raise InputError(f"unknown argument {rest[0]!r}; see `winkel {arguments[0]} --help`")
        command.run()
    except InputError as error:
        if os.environ.get("WINKEL_DEBUG"):
            raise
        warn(f"error: {error}")
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        if hasattr(command, "resume"):
            warn("interrupted; go on with --resume")
        raise SystemExit(130) from None


def parse_fields(arguments: Sequence[str]) -> dict[str, Any]:
    """Read `--field value` and `--field=value`; `--num-atoms` is the field `num_atoms`.

    tyro cannot read these: which fields there are depends on the option `--agent`, and values must
    give the same errors as the arguments of `winkel.train`.
    """
    found: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        field, equals, text = argument.partition("=")
        if not argument.startswith("--"):
            raise InputError(f"need --field value, got {argument!r}")
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise InputError(f"need a value after {argument}")
            text = rest.pop(0)
        found[field.removeprefix("--").replace("-", "_")] = _parse_value(text)
    return found


def _parse_value(text: str) -> Any:
    """A number, true or false, a tuple if there are commas, else the text."""
    if "," in text:
        return tuple(_parse_value(part.strip()) for part in text.split(",") if part.strip())
    known = {"()": (), "none": (), "true": True, "false": False}
    if text.lower() in known:
        return known[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
