"""Small simulators, and runs in them that need no training."""

import jax
import jax.numpy as jnp
import numpy as np

from winkel.envs.registry import make as make_task
from winkel.envs.simulator_task import EnvShape, SimulatorTask
from winkel.runs.checkpoint import pack
from winkel.runs.recorder import Recorder
from winkel.runs.spec import Options, make_spec
from winkel.runs.worlds import state_shapes
from winkel.simulators import Layout, Step
from winkel.simulators.names import parse
from winkel.types import Dense, Image

SIDE, LENGTH, STACK = 12, 6, 3
ROOM, PLAIN = "play.rooms:make", "play.rooms:make_plain"
TINY = {"hidden": (8,), "batch_size": 4, "burn_in": 16, "capacity": 64, "num_atoms": 5}
OPTIONS = Options(chunk_steps=10, checkpoint_seconds=1e9, snapshots=0)


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


def room_task(name=ROOM):
    """The task of a room, without starting the simulator."""
    shown = Dense((3,)) if name == PLAIN else Image((SIDE, SIDE), STACK)
    _, maker = parse(name)
    env = EnvShape(shown, Room.num_actions)
    return SimulatorTask(id=name, env=env, maker=maker, facts=(), probes=Room.probes, num_envs=2)


def made_run(out, env, agent="dltv", seed=0, **fields):
    """The folder of a run that has ended, with random numbers for what it learned."""
    task = room_task(env) if env.startswith("play.") else make_task(env)
    fields = TINY | {"channels": 1} | fields
    spec = make_spec(task, agent, fields, seed=seed, steps=100, options=OPTIONS)
    rng = np.random.default_rng(seed)

    def filled(leaf):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jnp.broadcast_to(jax.random.key(seed), leaf.shape)
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            return rng.normal(size=leaf.shape).astype(leaf.dtype)
        return np.zeros(leaf.shape, leaf.dtype)

    lane = jax.tree.map(filled, state_shapes(spec))
    clock = lane.clock._replace(env_steps=np.int32(100), progress=np.float32(1.0))
    lane = lane._replace(clock=clock)
    folder = spec.folder(out)
    recorder = Recorder(spec, folder)
    recorder.add("episodes", {"return": np.zeros(1), "length": np.ones(1, int)})
    recorder.checkpoint(pack(lane), {"status": "finished"})
    recorder.finish({"status": "finished"})
    return folder
