"""VizDoom's MyWayHome, dense, sparse and very sparse, with the paper's observations."""

from winkel.simulators.vizdoom.my_way_home import DoomMaker, MyWayHome, make_doom_maker

__all__ = ["DoomMaker", "MyWayHome", "make_doom_maker"]
