"""The command line. Every user error is one line on stderr and exit status 2.

Only the module of the command that was called is imported.
"""

import contextlib
import io
import itertools
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial, wraps
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from winkel.errors import InputError, set_exit_message, suggest
from winkel.extensions import permit
from winkel.version import __version__

COMMANDS: dict[str, tuple[str, str, str]] = {
    "train": ("train", "train_agent", "Train an agent in an environment."),
    "sweep": ("sweep", "SweepCommand", "Run an experiment of the paper: many agents and seeds."),
    "search": ("search", "search", "Search for hyperparameters."),
    "search report": ("search", "search_report", "Write the page of a search."),
    "search apply": ("search", "search_apply", "Save the winner of a search as a preset."),
    "search space": ("search", "search_space", "Print a space to search in."),
    "report": ("figure", "report", "Write a page of results and of the paper's claims."),
    "inspect": ("play", "inspect_run", "Draw what a trained agent predicts, and where it was."),
    "play": ("play", "play_agent", "Film a trained agent."),
    "evaluate": ("evaluate", "evaluate", "Print the returns of greedy episodes."),
    "rollout": ("evaluate", "run_policy", "Run a fixed policy in an environment."),
    "score": ("bsuite", "score", "Print bsuite's official scores of runs."),
    "export": ("bsuite", "export", "Write runs in the layout of other tools."),
    "figure": ("figure", "figure", "Make a figure of runs, or one of the paper."),
    "data": ("bsuite", "fetch_data", "Fetch a data set that environments need."),
    "list": ("listing", "list_names", "List the names that commands take."),
}
"""By name: the module in `winkel.commands`, the function there (or class with `run`), and help."""
HELP = """usage: winkel COMMAND …

Deep exploration with distributional reinforcement learning.

{}

`winkel COMMAND --help` describes a command, `winkel --version` shows the version.
"""


def main(argv: list[str] | None = None) -> None:
    """Run a command. WINKEL_DEBUG=1 shows the traceback of a user error."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        if sys.stdout is None:
            raise InputError("standard output is closed")
        if arguments == ["--version"]:
            sys.stdout.write(f"winkel {__version__}\n")
        elif arguments in (["--help"], ["-h"]):
            lines = [f"  {name:13} {text}" for name, (_, _, text) in COMMANDS.items()]
            sys.stdout.write(HELP.format("\n".join(lines)))
        else:
            _parse(arguments)()
        sys.stdout.flush()
    except (InputError, OSError) as error:  # an OSError is about what is outside of winkel
        if os.environ.get("WINKEL_DEBUG"):
            raise
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except OSError:  # nothing can be written; Python flushes once more when it exits
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # nobody reads standard output any more
            raise SystemExit(128 + signal.SIGPIPE) from None
        sys.stderr.write(f"winkel: error: {' '.join(str(error).split())}\n")
        raise SystemExit(2) from None


def _parse(arguments: list[str]) -> Callable[[], None]:
    """Make the command of the first argument from the others, which may name code to import.

    Unknown options are fields of an agent, for commands with an option `fields`.
    """
    if not arguments:
        raise InputError("need a command; see `winkel --help`")
    name, *rest = arguments
    if rest and f"{name} {rest[0]}" in COMMANDS:
        name, rest = f"{name} {rest[0]}", rest[1:]
    for text in rest:
        value = _parse_value(text.rpartition("=")[2])
        if isinstance(value, int | float) and not text.isascii():  # Python reads other digits, too
            raise InputError(f"need the digits 0 to 9, got {text!r}")
    if name not in COMMANDS:
        hint = suggest(name, COMMANDS, "see `winkel --help`")
        raise InputError(f"unknown command {name!r}; {hint}")
    if code := [word for text in rest for word in re.split("[=,]", text) if ":" in word]:
        permit(*code)
    module, attribute, _ = COMMANDS[name]
    command = getattr(import_module(f"winkel.commands.{module}"), attribute)
    options, unknown = _read(command, name, rest)
    if "resume" in options:
        set_exit_message("interrupted; go on with --resume")
    if "fields" in options:
        options["fields"] = parse_fields(unknown)
    elif unknown:
        from winkel.commands.options import unknown_option

        hint = f"see `winkel {name} --help`"
        if not unknown[0].startswith("--"):
            raise InputError(f"unknown argument {unknown[0]!r}; {hint}")
        raise unknown_option(unknown[0].removeprefix("--").partition("=")[0], options, hint)
    return command(**options).run if isinstance(command, type) else partial(command, **options)


def _read(command: Any, name: str, arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Read a command's options, and the arguments that it does not know; errors are one line."""
    import tyro

    from winkel.commands.options import REGISTRY

    options = command
    if not isinstance(command, type):  # a function, which tyro would call
        options = wraps(command)(lambda **found: SimpleNamespace(**found))
        options.__doc__ = re.sub(r"\n {12}", " ", command.__doc__)  # tyro would keep these breaks
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            found, unknown = tyro.cli(
                options,
                prog=f"winkel {name}",
                args=arguments,
                return_unknown_args=True,
                config=(tyro.conf.DisallowNone,),
                registry=REGISTRY,
            )
            return vars(found), unknown
    except SystemExit as end:
        if not end.code:  # --help
            raise
    # In tyro's frame: a title, then a paragraph that says what is wrong, then what may help.
    lines = [line.strip(" │╭╰╮╯─") for line in errors.getvalue().splitlines()]
    groups = itertools.groupby(lines, lambda line: bool(line.strip("-")))
    paragraphs = [[*group] for is_text, group in groups if is_text]
    said = " ".join(paragraphs[0][1:] or paragraphs[1])
    raise InputError(f"{said.rstrip('.')}; see `winkel {name} --help`")


def parse_fields(arguments: Sequence[str]) -> dict[str, Any]:
    """Read `--field value`, `--field=value` and lists, `--field a b` or `--field a,b`.

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
        words = [text] if equals else []
        while rest and not rest[0].startswith("--"):
            words.append(rest.pop(0))
        if not words:
            raise InputError(f"need a value after {argument}")
        value = _parse_value(words[0] if len(words) == 1 else ",".join(words))
        found[field.removeprefix("--").replace("-", "_")] = value
    return found


def _parse_value(text: str) -> Any:
    """A number, true or false, a tuple if there are commas, else the text."""
    if "," in text:
        return tuple(_parse_value(part.strip()) for part in text.split(",") if part.strip())
    known = {"()": (), "none": (), "true": True, "false": False}
    if text.lower() in known:
        return known[text.lower()]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text
