"""Count the package's files that `winkel train deep_sea/0` executes up to its last checkpoint.

Run `python tests/golden/count_files.py`. A file counts if one of its functions is called after all
commands are imported; module bodies and class bodies do not count, neither do the mathematics and
the networks (`EXCLUDED`). All threads are traced.
"""

import sys
import tempfile
import threading
from pathlib import Path

import winkel
from winkel import cli

ROOT = Path(winkel.__file__).parent
EXCLUDED = ("types.py", "distributions.py", "projections/", "networks/")
OPTIMIZED = 0x1
"""Flag of the code of functions; module bodies and class bodies lack it."""
COMMAND = ("train", "deep_sea/0", "--episodes", "30", "--checkpoint-seconds", "0")


def executed_files() -> list[str]:
    """Names of the files, relative to the package, sorted."""
    found: set[str] = set()

    def trace(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_flags & OPTIMIZED:
            found.add(code.co_filename)

    with tempfile.TemporaryDirectory() as out:
        threading.setprofile(trace)
        sys.setprofile(trace)
        try:
            cli.main([*COMMAND, "--out", out])
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        assert list(Path(out).rglob("*.ckpt"))
    inside = (Path(name).relative_to(ROOT) for name in found if Path(name).is_relative_to(ROOT))
    return sorted(str(name) for name in inside if not str(name).startswith(EXCLUDED))


if __name__ == "__main__":
    files = executed_files()
    sys.stdout.write("\n".join([*files, f"{len(files)} files", ""]))
