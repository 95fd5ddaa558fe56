"""What the state of a run looks like, wherever its world is."""

from typing import Any

import jax

from winkel.envs.host import HostTask
from winkel.envs.registry import Task
from winkel.runs.spec import Configured
from winkel.training.device import lane_shapes
from winkel.training.host import host_lane_shapes
from winkel.training.steps import Horizon


def shapes_of(task: Task | HostTask, configured: Configured, horizon: Horizon) -> Any:
    """Shapes and types of a run's lane, without computing it."""
    agent, hyper = configured.agent, configured.hyper
    if isinstance(task, HostTask):
        shape, dtype = task.shows
        return host_lane_shapes(agent, hyper, jax.ShapeDtypeStruct((task.num_envs, *shape), dtype))
    return lane_shapes(agent, task.env, task.params, hyper, horizon)
