"""Functions by name: 'module:function', from the current folder as well."""

import difflib
import importlib
import os
import sys
import traceback
from typing import Any

from winkel.errors import InputError


def search_here() -> None:
    """Let modules of the current folder be found, as `python -m` does."""
    here = os.getcwd()
    if "" not in sys.path and here not in sys.path:
        sys.path.insert(0, here)


def load(target: str) -> Any:
    """The callable that 'module:function' names."""
    module_name, _, name = target.partition(":")
    search_here()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise raised(error, f"importing {module_name}") from error
        raise InputError(
            f"no module {module_name!r} for {target!r}, neither here nor installed"
        ) from None
    except Exception as error:
        raise raised(error, f"importing {module_name}") from error
    function = getattr(module, name, None)
    if not callable(function):
        names = [n for n in dir(module) if callable(getattr(module, n))]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise InputError(f"module {module_name!r} has no function {name!r}{hint}")
    return function


def raised(error: Exception, where: str) -> InputError:
    """One line for an exception in somebody else's code, the whole traceback as a note."""
    said = " ".join(str(error).split())
    line = f"{type(error).__name__}: {said}" if said else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    at = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    failure = InputError(f"{where} raised {line}{at}")
    failure.add_note("".join(traceback.format_exception(error)))
    return failure
