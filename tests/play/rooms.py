"""Small simulators. No JAX here, which would slow down their processes."""

import numpy as np

from winkel.simulators import Layout, Step

SIDE, LENGTH, STACK = 12, 6, 3
ROOM, PLAIN = "play.rooms:make", "play.rooms:make_plain"


class Room:
    """Action 0 goes to the east and pays 1, action 1 to the north; both end at the walls.

    Frames tell where one is and when, and so do the probes. Episodes begin where the seed says.
    """

    layout = Layout((SIDE, SIDE), "uint8", STACK)
    num_actions = 2
    facts = ()
    probes = ("y", "angle", "x")

    def __init__(self, length=LENGTH):
        self.random, self.length = None, length

    def reset(self, seed):
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.column, self.row = self.random.integers(4, size=2)
        self.time = 0
        return self.observe()

    def observe(self):
        frame = np.full((SIDE, SIDE), 10 * self.time, np.uint8)
        frame[self.row, self.column] = 255
        return frame

    def step(self, action):
        self.time += 1
        self.column = min(self.column + (action == 0), SIDE - 1)
        self.row = min(self.row + (action == 1), SIDE - 1)
        return Step(
            obs=self.observe(),
            reward=float(action == 0),
            discount=1.0,
            boundary=self.time == self.length,
            probes=self.place(),
        )

    def place(self):
        return 20.0 * self.row, 0.0, 10.0 * self.column - 50.0

    def close(self):
        pass


class PlainRoom(Room):
    """The same without pictures: place and time as numbers."""

    layout = Layout((3,), "float32")

    def observe(self):
        return np.array([self.column, self.row, self.time], np.float32)


def make(length=LENGTH):
    return Room(length)


def make_plain():
    return PlainRoom()


class NamedRoom:
    """Makes a room whose actions have names."""

    action_names = ("east", "north")

    def __call__(self):
        return Room()
