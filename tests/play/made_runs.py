"""Runs in small simulators that need no training."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from play.rooms import PLAIN, ROOM, SIDE, STACK, Room
from winkel.envs.functional import is_jax, remake_jax
from winkel.envs.outside import SimulatorTask
from winkel.envs.registry import is_simulator
from winkel.envs.registry import make as make_task
from winkel.runs.checkpoint import pack
from winkel.runs.recorder import Recorder
from winkel.runs.spec import Options, make_spec
from winkel.runs.train import learner_shapes, state_shapes
from winkel.simulators.names import parse
from winkel.types import Dense, Image, RunState

TINY = {"hidden": (8,), "batch_size": 4, "burn_in": 16, "capacity": 64, "num_atoms": 5}
OPTIONS = Options(chunk_steps=10, checkpoint_seconds=1e9, snapshots=0)


JAX = {"observation": {"form": "Dense", "shape": [3]}, "actions": 2}


def room_task(name=ROOM):
    """The task of a room, without starting the simulator."""
    shown = Dense((3,)) if name == PLAIN else Image((SIDE, SIDE), STACK)
    _, maker = parse(name)
    env = SimpleNamespace(observation=shown, num_actions=Room.num_actions)
    return SimulatorTask(id=name, env=env, maker=maker, facts=(), probes=Room.probes, num_envs=2)


def made_run(out, env, agent="dltv", seed=0, **fields):
    """The folder of a run that has ended, with random numbers for what it learned."""
    if is_simulator(env):
        task = room_task(env)
    else:
        task = remake_jax({"env": env, "jax": JAX}) if is_jax(env) else make_task(env)
    fields = TINY | {"channels": 1} | fields
    spec = make_spec(task, agent, fields, seed=seed, steps=100, options=OPTIONS)
    rng = np.random.default_rng(seed)

    def filled(leaf):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jnp.broadcast_to(jax.random.key(seed), leaf.shape)
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            return rng.normal(size=leaf.shape).astype(leaf.dtype)
        return np.zeros(leaf.shape, leaf.dtype)

    if is_jax(env):  # without the environment, a run has no more than what is learned
        known = learner_shapes(spec)
        shapes = RunState(**known, actor=(), obs=(), first=(), replay=(), key=())
    else:
        shapes = state_shapes(spec)
    lane = jax.tree.map(filled, shapes)
    clock = lane.clock._replace(env_steps=np.int32(100), progress=np.float32(1.0))
    lane = lane._replace(clock=clock)
    folder = spec.folder(out)
    recorder = Recorder(spec, folder)
    recorder.add("episodes", {"return": np.zeros(1), "length": np.ones(1, int)})
    recorder.checkpoint(pack(lane), {"status": "finished"})
    recorder.finish({"status": "finished"})
    return folder
