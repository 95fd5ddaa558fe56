"""Environments whose every number is known, and ones that fail in every way. No JAX here."""

import ctypes
import os
import signal
import subprocess
import sys
import time

import numpy as np

from winkel.simulators import Layout, SimulatorDied, Step


class Walk:
    """A random walk; the action is its step. Even episodes terminate, odd ones are truncated.

    Observations are (place, step of the episode, episode, first draw of the seed).
    """

    layout = Layout((4,), "float32")
    num_actions = 3
    facts = ("steps", "ends")
    probes = ("place",)

    def __init__(self, length=4):
        self.length = length
        self.episode = -1
        self.random = None
        self.drawn = 0
        self.place = 0.0

    def reset(self, seed):
        if seed is not None:
            self.random = np.random.default_rng(seed)
            self.drawn += self.random.integers(2**20)
        self.episode += 1
        self.time = 0
        return self.observe()

    def observe(self):
        return np.array([self.place, self.time, self.episode, self.drawn], np.float32)

    def step(self, action):
        self.place += action - 1 + float(self.random.integers(2))
        self.time += 1
        end = self.time == self.length
        return Step(
            obs=self.observe(),
            reward=self.place / 2,
            discount=0.0 if end and self.episode % 2 == 0 else 1.0,
            boundary=end,
            facts=(1.0, float(end)),
            probes=(self.place,),
        )

    def close(self):
        pass


class Frames(Walk):
    """The same walk as pictures."""

    layout = Layout((8, 9), "uint8", 4)

    def observe(self):
        return np.full((9, 8), self.time + 10 * self.episode, np.uint8).T  # not contiguous


class Slow(Walk):
    """Takes its time to begin."""

    def reset(self, seed):
        time.sleep(0.1)
        return super().reset(seed)


class Inside(Walk):
    """Shows what its process is like."""

    probes = ("process", "jax", "threads", "empty", "main")

    def step(self, action):
        seen = (
            os.getpid() % 2**20,
            "jax" in sys.modules,
            float(os.environ["OMP_NUM_THREADS"]),
            os.listdir() == [],
            not hasattr(sys.modules["__main__"], "__file__"),
        )
        return super().step(action)._replace(probes=tuple(float(s) for s in seen))


class Engine(Walk):
    """Has an engine: a process that ignores SIGTERM."""

    probes = ("process", "engine")

    def __init__(self, stuck="", last_will=os.devnull):
        super().__init__()
        self.stuck = stuck
        self.last_will = last_will
        script = "trap '' TERM; while :; do sleep 1000; done"
        self.engine = subprocess.Popen(["/bin/sh", "-c", script], close_fds=False)

    def step(self, action):
        if self.stuck and action == 2:
            os.write(2, b"stuck\n")
            if self.stuck == "asleep":
                time.sleep(1000)
            sum(range(10**12))  # no signal handler or other thread of Python's can run
        return super().step(action)._replace(probes=(os.getpid(), self.engine.pid))

    def close(self):
        self.engine.kill()
        self.engine.wait()
        with open(self.last_will, "a") as file:
            file.write("closed\n")


class Rich(Walk):
    """Pays finite rewards whose sum is not."""

    def step(self, action):
        return super().step(action)._replace(reward=3e38)


class Fails(Walk):
    """Does something wrong at step 3 of its first episode where the action is 2."""

    def __init__(self, how):
        super().__init__(length=6)
        self.how = how

    def reset(self, seed):
        first = super().reset(seed)
        if self.how == "reset" and self.episode == 1:
            raise RuntimeError("no way back")
        return first

    def step(self, action):
        step = super().step(action)
        if action == 2 and self.time == 3:
            return FAILURES[self.how](step)
        return step

    def close(self):
        if self.how == "close":
            raise RuntimeError("cannot\nclose")
        if self.how == "crash":
            ctypes.string_at(0)


class Sleeps(Walk):
    """Does not wake up from the reset before an episode."""

    def __init__(self, episode):
        super().__init__()
        self.asleep = episode

    def reset(self, seed):
        first = super().reset(seed)
        if self.episode == self.asleep:
            time.sleep(1000)
        return first


def _raise(step):
    return 1 / 0


def _hang(step):
    time.sleep(1000)


def _mute(step):
    raise SimulatorDied("the engine\nis gone.")


FAILURES = {
    "reset": lambda step: step._replace(boundary=True),
    "close": lambda step: step,
    "crash": lambda step: step,
    "raises": _raise,
    "silent": lambda step: next(iter(())),
    "nan": lambda step: step._replace(obs=step.obs * np.nan),
    "infinite": lambda step: step._replace(obs=step.obs.astype(float) + 1e300),
    "shape": lambda step: step._replace(obs=step.obs[:3]),
    "text": lambda step: step._replace(obs=np.array(list("abcd"))),
    "ragged": lambda step: step._replace(obs=[[1, 2], [3]]),
    "nothing": lambda step: step._replace(obs=None),
    "nan reward": lambda step: step._replace(reward=np.float32("nan")),
    "no reward": lambda step: step._replace(reward=None),
    "text reward": lambda step: step._replace(reward="1"),
    "many rewards": lambda step: step._replace(reward=np.ones(2)),
    "large reward": lambda step: step._replace(reward=1e39),
    "discount": lambda step: step._replace(discount=1.5),
    "facts": lambda step: step._replace(facts=(1.0,)),
    "nan fact": lambda step: step._replace(facts=(1.0, np.nan)),
    "large fact": lambda step: step._replace(facts=(1e300, 0.0)),
    "nan probe": lambda step: step._replace(probes=(np.nan,)),
    "hangs": _hang,
    "crashes": lambda step: ctypes.string_at(0),
    "leaves": lambda step: os._exit(3),
    "exits": lambda step: sys.exit(4),
    "killed": lambda step: os.kill(os.getpid(), signal.SIGKILL),
    "mute": _mute,
}


def lenient():
    """Returns what is unusual but means something."""

    class Lenient(Walk):
        layout = Layout((1,), "float32")

        def observe(self):
            return [self.time, np.float64(self.time), np.array(self.time)][self.time % 3]

        def step(self, action):
            step = super().step(action)
            return step._replace(reward=np.array(1), boundary=np.bool_(step.boundary))

    return Lenient()


class TwoKinds:
    """Makes another kind of environment the second time."""

    made = 0

    def __call__(self):
        TwoKinds.made += 1
        return Walk() if TwoKinds.made == 1 else Frames()


def dies_at_birth():
    os.kill(os.getpid(), signal.SIGSEGV)


def born_once(folder):
    """The first process makes it, all others die of it."""
    if os.path.exists(os.path.join(folder, "born")):
        os._exit(7)
    open(os.path.join(folder, "born"), "w").close()
    return Walk()
