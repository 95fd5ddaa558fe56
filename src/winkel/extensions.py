"""Code from outside the package: entry points of installed packages, and what the user names.

An agent, a projection or an environment from outside has one of two names:

    boltzmann              an entry point of an installed package, in the group `winkel.agents`
                           or `winkel.projections`; not for environments
    my_module:Boltzmann    a class or function of a module, installed or in the current folder

The folder of a run may be a stranger's. A module that only a folder names is not imported:
`permit` keeps the names that the user has given in this process.
"""

import contextlib
import importlib
import os
import re
import shlex
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from winkel.errors import InputError, suggest

_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")

_permitted: dict[str, Any] = {}
"""What the user has named, by name: an object, or None before it is imported."""


def is_target(name: str) -> bool:
    """Return whether a name has the form module:attribute."""
    return _TARGET.fullmatch(name) is not None


def permit(*named: Any) -> tuple[str, ...]:
    """Note that the user has named some code, and return the names: of classes, module:name."""
    names = tuple(one if isinstance(one, str) else target_of(one) for one in named)
    for name, one in zip(names, named, strict=True):
        if not isinstance(one, str):
            _permitted[name] = one
        elif is_target(name):
            _permitted.setdefault(name, None)
    return names


def permitted() -> tuple[str, ...]:
    """Return what the user has named so far, for other processes of the same command."""
    return tuple(_permitted)


def target_of(made: Any) -> str:
    """Return module:name of a class or function; of the program's own file, the file's name."""
    module = getattr(made, "__module__", None)
    if module == "__main__" and (file := getattr(sys.modules["__main__"], "__file__", None)):
        module = Path(file).stem
    name = f"{module}:{getattr(made, '__qualname__', '')}"
    if not is_target(name):
        raise InputError(
            f"need a class at the top of a module, so that its name can be recorded, got {made!r}"
        )
    return name


def find(group: str, name: str, known: Iterable[str]) -> Any:
    """Return the permitted code or the installed entry point of a name that is not `known`."""
    if is_target(name):
        if name not in _permitted:
            raise InputError(
                f"the run names {name!r}, which winkel imports only if you name it: add --code "
                f"{shlex.quote(name)} (in Python: winkel.load(…, code={name!r}))"
            )
        if _permitted[name] is None:
            _permitted[name] = load_target(name)
        return _permitted[name]
    points = entry_points(group)
    if name in points:
        try:
            return points[name].load()
        except Exception as error:
            raise wrap_error(error, f"loading {name}, {points[name].value}") from error
    hint = suggest(name, [*known, *points], f"see `winkel list {group}`")
    raise InputError(f"unknown {group.removesuffix('s')} {name!r}; {hint}")


def entry_points(group: str) -> dict[str, Any]:
    """Return what installed packages offer; the current folder is not an installation."""
    from importlib import metadata  # it takes time, and few commands need it

    here = Path.cwd()
    return {
        point.name: point
        for point in metadata.entry_points(group=f"winkel.{group}")
        if point.dist is None or Path(str(point.dist.locate_file(""))).resolve() != here
    }


def load_target(target: str, *, called: bool = True) -> Any:
    """Import what module:name names; modules in the current folder are found, too.

    It must be a class or a function if it is to be `called`.
    """
    module_name, _, name = target.partition(":")
    search_current_folder()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise wrap_error(error, f"importing {module_name}") from error
        raise InputError(
            f"no module {module_name!r} for {target!r}, neither here nor installed"
        ) from None
    except Exception as error:
        raise wrap_error(error, f"importing {module_name}") from error
    found = getattr(module, name, None)
    if found is None or (called and not callable(found)):
        known = [n for n in dir(module) if callable(getattr(module, n))]
        hint = suggest(name, known, "need a class or a function")
        raise InputError(f"module {module_name!r} has no function {name!r}; {hint}")
    return found


def search_current_folder() -> None:
    """Let modules in the current folder be imported, as `python -m` does."""
    here = os.getcwd()
    if "" not in sys.path and here not in sys.path:
        sys.path.insert(0, here)


@contextlib.contextmanager
def skip_current_folder() -> Iterator[None]:
    """Let no module in the current folder be taken for an installed one."""
    before, here = sys.path[:], os.getcwd()
    sys.path[:] = [folder for folder in before if folder not in ("", here)]
    try:
        yield
    finally:
        sys.path[:] = before


def wrap_error(error: Exception, where: str) -> InputError:
    """Describe an exception of other code in one line; the traceback becomes a note."""
    if isinstance(error, InputError):
        return InputError(f"{where}: {error}")
    frames = traceback.extract_tb(error.__traceback__)
    users = [one for one in frames if "site-packages" not in one.filename]
    users = [one for one in users if Path(__file__).parent not in Path(one.filename).parents]
    frame = (users or frames)[-1]
    place = f"{os.path.basename(frame.filename)}, line {frame.lineno}"
    text = ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))
    wrapped = InputError(f"{where} raised {text} ({place})")
    wrapped.add_note("".join(traceback.format_exception(error)))
    return wrapped
