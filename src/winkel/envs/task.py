"""Tasks: an environment with everything that a run must know about it."""

from winkel.envs.host import HostTask
from winkel.envs.registry import Task as CompiledTask

Task = CompiledTask | HostTask
