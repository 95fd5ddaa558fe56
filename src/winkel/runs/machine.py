"""The machine that a speed was measured on: its name, and what its memory can do."""

import os
import platform
import statistics
import time

import jax
import jax.numpy as jnp

DETERMINISTIC = "--xla_gpu_deterministic_ops=true"
"""XLA's flag for a GPU that gives the same bits each time."""


def device_name() -> str:
    """The accelerator, or the processor and its cores: what times depend on."""
    found = jax.devices()[0]
    if found.platform != "cpu":
        return found.device_kind
    return f"{_processor()}, {_cores()} cores"


def machine_name() -> str:
    """Where a call was made: system, processor, cores."""
    return f"{platform.system()} {platform.machine()}, {_processor()}, {_cores()} cores"


def copy_bandwidth(num_bytes: int | None = None) -> float:
    """Bytes a second that a pass over a large array reads and writes; smaller if it does not fit.

    In place, as Adam's own: memory that is new to the process would be timed with the pages that
    the system has to find for it, eightfold on a CPU.
    """
    on_cpu = jax.default_backend() == "cpu"
    size = num_bytes or (256 * 2**20 if on_cpu else 2**30)
    chain, tries = 4, 7
    copy = jax.jit(lambda x: x + 1.0, donate_argnums=0)
    while True:
        try:
            array = jax.block_until_ready(copy(jnp.zeros(size // 4, jnp.float32)))
            times = []
            for _ in range(tries):
                begin = time.perf_counter()
                for _ in range(chain):
                    array = copy(array)
                jax.block_until_ready(array)
                times.append(time.perf_counter() - begin)
            return 2 * (size // 4 * 4) * chain / statistics.median(times)
        except Exception as error:
            if not out_of_memory(error) or size <= 2**22:
                raise
            size //= 2


def peak_bytes() -> int:
    """The most that the device has held since the program began; 0 where it does not tell."""
    found = jax.local_devices()[0].memory_stats() or {}
    return int(found.get("peak_bytes_in_use", 0))


def out_of_memory(error: Exception) -> bool:
    """Whether that is what is missing."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
