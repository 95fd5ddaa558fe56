"""Environments as pure JAX functions, and the names under which they are made."""

from winkel.envs.base import Environment, EnvState, Task, outcome
from winkel.envs.registry import EXPERIMENTS, TaskBatch, make, make_batch
from winkel.types import Dense, OneHot

__all__ = [
    "EXPERIMENTS", "Dense", "EnvState", "Environment", "OneHot", "Task", "TaskBatch",
    "make", "make_batch", "outcome",
]  # fmt: skip
