"""VizDoom's MyWayHome, dense, sparse and very sparse, as the paper's agents see it."""

from winkel.simulators.vizdoom.names import parse_doom
from winkel.simulators.vizdoom.simulator import MyWayHome

__all__ = ["MyWayHome", "parse_doom"]
