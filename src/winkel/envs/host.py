"""Old names of `simulator_task`, kept until no module uses them."""

from typing import Any

from winkel.envs.simulator_task import UNKNOWN as UNKNOWN
from winkel.envs.simulator_task import Rewards as Rewards
from winkel.envs.simulator_task import SimulatorTask, make_simulator_task, remake_simulator
from winkel.envs.task import EnvShape as HostEnv
from winkel.simulators.names import is_name as is_name

__all__ = ["UNKNOWN", "HostEnv", "HostTask", "Rewards", "is_name", "make_host", "remade"]

HostTask = SimulatorTask
remade = remake_simulator


def make_host(name: str, *, look: bool = True, **options: Any) -> SimulatorTask:
    """Make a task under the old name of an option."""
    return make_simulator_task(name, measure_rewards=look, **options)
