"""Settings of XLA that must be made before its backend starts."""

import os

from jax._src import xla_bridge

from winkel.errors import InputError
from winkel.runs.machine import DETERMINISTIC


def make_deterministic() -> None:
    """Have a GPU give the same bits each time; a CPU does so anyway.

    Raises where the backend is running already: it reads its settings once.
    """
    if xla_bridge.backends_are_initialized():
        raise InputError(
            "need --deterministic before JAX has started, but it has; "
            f"start anew with XLA_FLAGS={DETERMINISTIC}"
        )
    flags = os.environ.get("XLA_FLAGS", "").split()
    if DETERMINISTIC not in flags:
        os.environ["XLA_FLAGS"] = " ".join([*flags, DETERMINISTIC])
