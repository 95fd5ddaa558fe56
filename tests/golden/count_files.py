"""Count the package's files that `winkel train deep_sea/0` executes up to its last checkpoint.

Run `python tests/golden/count_files.py`. A file counts if one of its functions is called after all
commands are imported; bodies of modules and classes do not count, neither do the mathematics and
the networks (`EXCLUDED`). All threads are traced.
"""

import sys
import tempfile
import threading
from importlib import import_module
from pathlib import Path

import winkel
from winkel import cli

ROOT = Path(winkel.__file__).parent
EXCLUDED = ("types.py", "distributions.py", "projections/", "networks/")
OPTIMIZED = 0x1
"""Flag of the code of functions; bodies of modules and classes lack it."""
COMMAND = ("train", "deep_sea/0", "--episodes", "30", "--checkpoint-seconds", "0")


def executed_files() -> list[str]:
    """Names of the files, relative to the package, sorted."""
    called: set[str] = set()
    counted: set[str] = set()

    def trace(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_flags & OPTIMIZED:
            called.add(code.co_filename)
        elif event == "return" and code.co_name == "save_checkpoint":
            counted.update(called)

    for module, *_ in cli.COMMANDS.values():
        import_module(f"winkel.commands.{module}")
    with tempfile.TemporaryDirectory() as out:
        threading.setprofile(trace)
        sys.setprofile(trace)
        try:
            cli.main([*COMMAND, "--out", out])
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    inside = (Path(name).relative_to(ROOT) for name in counted if Path(name).is_relative_to(ROOT))
    return sorted(str(name) for name in inside if not str(name).startswith(EXCLUDED))


if __name__ == "__main__":
    files = executed_files()
    sys.stdout.write("\n".join([*files, f"{len(files)} files", ""]))
