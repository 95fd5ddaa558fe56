"""The command line. Every user error is one line on stderr and exit status 2."""

import os
import sys
from typing import Annotated

import tyro

from winkel import __version__
from winkel.commands.bsuite import Export, Score
from winkel.commands.data import Data
from winkel.commands.demo import Demo
from winkel.commands.figure import Figure
from winkel.commands.listing import List
from winkel.commands.rollout import Rollout
from winkel.commands.terminal import say
from winkel.errors import InputError

Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Rollout, tyro.conf.subcommand("rollout")]
    | Annotated[Score, tyro.conf.subcommand("score")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Figure, tyro.conf.subcommand("figure")]
    | Annotated[Data, tyro.conf.subcommand("data")]
    | Annotated[List, tyro.conf.subcommand("list")]
)

_HELP = "Deep exploration with distributional reinforcement learning. --version tells the version."


def main(argv: list[str] | None = None) -> None:
    """Entry point of the `winkel` command. WINKEL_DEBUG=1 shows the traceback of a user error."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments == ["--version"]:
        say(f"winkel {__version__}")
        return
    command = tyro.cli(Command, prog="winkel", description=_HELP, args=arguments)
    try:
        command.run()
    except InputError as error:
        if os.environ.get("WINKEL_DEBUG"):
            raise
        print(f"winkel: error: {error}", file=sys.stderr)  # noqa: T201
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
