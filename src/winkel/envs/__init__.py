"""Environments as pure JAX functions, and the names under which they are made."""

from winkel.envs.base import Environment, EnvState, Outcome, outcome
from winkel.envs.bsuite.sweep import EXPERIMENTS
from winkel.envs.registry import make, make_batch
from winkel.envs.task import CompiledTask, Task, TaskBatch
from winkel.types import Dense, OneHot

__all__ = [
    "EXPERIMENTS", "CompiledTask", "Dense", "EnvState", "Environment", "OneHot", "Outcome", "Task",
    "TaskBatch", "make", "make_batch", "outcome",
]  # fmt: skip
