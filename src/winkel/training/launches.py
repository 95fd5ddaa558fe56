"""Programs that a host calls for every move: on NVIDIA's GPUs, one launch for all their kernels.

An update on pictures is some hundred kernels, each of them short, and to launch them one by one
takes the host longer than the GPU takes to run them. XLA can record them as a CUDA graph, whose
independent branches then run side by side, but leaves convolutions out unless it is told not to.
"""

import os
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax

GRAPHS: dict[str, str] = {
    "xla_gpu_enable_command_buffer": (
        "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,CONVOLUTION"
    ),
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
}
"""XLA's own list of what it records, and convolutions."""


class Program:
    """A function as `jax.jit` compiles it, recorded if that is `wanted` when it is first called."""

    def __init__(self, function: Callable[..., Any], **how: Any):
        self.__doc__ = function.__doc__
        self._function, self._how = function, how

    @cached_property
    def _compiled(self) -> Any:
        options = GRAPHS if wanted() else None
        return jax.jit(self._function, **self._how, compiler_options=options)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the function returns, not waited for."""
        return self._compiled(*arguments, **named)

    def _cache_size(self) -> int:
        return int(self._compiled._cache_size())


def wanted() -> bool:
    """Whether programs are recorded: on NVIDIA's GPUs, where nothing speaks against it.

    Users who set XLA's flags about command buffers decide for themselves. Recorded convolutions
    that come from JAX's persistent cache fail, so that with the cache there is no recording.
    """
    return (
        jax.default_backend() == "gpu"
        and "cuda" in jax.devices()[0].client.platform_version.lower()
        and "command_buffer" not in os.environ.get("XLA_FLAGS", "")
        and not getattr(jax.config, "jax_compilation_cache_dir", None)
        and known()
    )


def known() -> bool:
    """Whether this XLA has the options, whose names may change with its versions."""
    try:
        jax.jit(lambda: 0, compiler_options=GRAPHS).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
