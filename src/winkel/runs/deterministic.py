"""The same bits each time on a GPU."""

import os

import jax

from winkel.errors import InputError

DETERMINISTIC = "--xla_gpu_deterministic_ops=true"
"""XLA's flag for it."""


def make_deterministic() -> None:
    """Make a GPU compute the same bits each time; a CPU always does.

    XLA reads its flags once, so this must come before JAX starts, else it raises.
    """
    devices = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined]
    try:  # JAX refuses to change this setting once it has started
        jax.config.update("jax_num_cpu_devices", devices + 1)
    except RuntimeError as error:
        raise InputError(
            "need --deterministic before JAX has started, but it has; "
            f"start anew with XLA_FLAGS={DETERMINISTIC}"
        ) from error
    jax.config.update("jax_num_cpu_devices", devices)
    flags = os.environ.get("XLA_FLAGS", "").split()
    if DETERMINISTIC not in flags:
        os.environ["XLA_FLAGS"] = " ".join([*flags, DETERMINISTIC])
