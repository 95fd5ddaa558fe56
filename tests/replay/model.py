"""Streams of steps as plain lists: what a replay of them holds, slowly and without cleverness."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np

from winkel.types import Transition

GO, TERMINATE, TRUNCATE, LOSE = "go", "terminate", "truncate", "lose"


class World:
    """An environment that makes the given events; no two of its frames are alike.

    Observations are the last `stack` frames, or without a stack a pytree of the newest.
    """

    def __init__(self, number, stack):
        self.stack, self.count = stack, 9_000 * number
        self.begin()

    def frame(self):
        self.count += 1
        return np.array([[self.count // 256, self.count % 256]], np.uint8)

    def begin(self):
        first = self.frame()
        self.frames = deque([first] * (self.stack or 1), maxlen=self.stack or 1)

    def obs(self):
        if self.stack is not None:
            return np.stack(self.frames)
        return {"frame": self.frames[-1], "count": np.int32(self.count)}

    def step(self, event):
        """The transition that the event makes; a lost one is garbage."""
        obs, number = self.obs(), self.count
        self.frames.append(self.frame())
        transition = Transition(
            obs=obs,
            action=np.int32(number % 7),
            reward=np.float32(np.sin(number) * 3),
            discount=np.float32(event != TERMINATE),
            next_obs=self.obs(),
            boundary=np.bool_(event in (TERMINATE, TRUNCATE)),
            extras=(np.array([number % 2 == 0, number % 3 == 0]),),
        )
        if event != GO:
            self.begin()
        return transition


class Line:
    """All slots that one stream has ever written, in order: steps, or None for a last observation.

    Attributes:
        slots: the transitions.
        ended: whether the episode ended with that step, also because the next was lost.
    """

    def __init__(self):
        self.slots, self.ended = [], []

    @property
    def running(self):
        return bool(self.slots) and self.slots[-1] is not None

    def add(self, transition, event):
        if event == LOSE:
            if self.running:
                self.ended[-1] = True
                self._end()
            return
        self.slots.append(transition)
        self.ended.append(bool(transition.boundary))
        if transition.boundary:
            self._end()

    def _end(self):
        self.slots.append(None)
        self.ended.append(False)

    def window(self, start, n):
        """The steps of a sample, None if they are not all there."""
        if self.slots[start] is None:
            return None
        steps = []
        for at in range(start, start + n):
            if at >= len(self.slots):
                return None
            steps.append(self.slots[at])
            if self.ended[at]:
                break
        return steps

    def starts(self, replay):
        """Positions at which a sample can start in a ring of so many slots."""
        written = len(self.slots) + self.running  # what the last step led to has a slot as well
        oldest = written - replay.slots + (replay.stack or 1) - 1  # with all older frames
        stored = range(max(0, oldest), len(self.slots))
        return [p for p in stored if self.window(p, replay.n_step) is not None]

    def sample(self, start, n, gamma):
        """The sample and its decay."""
        steps = self.window(start, n)
        k = len(steps)
        decay = gamma ** (k - 1)
        made = Transition(
            obs=steps[0].obs,
            action=steps[0].action,
            reward=np.float32(sum(gamma**i * float(s.reward) for i, s in enumerate(steps))),
            discount=np.float32(decay * steps[-1].discount),
            next_obs=steps[-1].next_obs,
            boundary=np.bool_(self.ended[start + k - 1]),
            extras=steps[0].extras,
        )
        return made, np.float32(decay)


class Model:
    """Several streams, and the replay's answers about them worked out from these."""

    def __init__(self, replay, seed=0):
        self.replay = replay
        self.worlds = [
            World(seed * replay.num_envs + e, replay.stack) for e in range(replay.num_envs)
        ]
        self.lines = [Line() for _ in self.worlds]

    def step(self, events):
        """One step of each: the transitions to add, and which to keep."""
        made = [world.step(event) for world, event in zip(self.worlds, events, strict=True)]
        for line, transition, event in zip(self.lines, made, events, strict=True):
            line.add(transition, event)
        return together(made), jnp.asarray([event != LOSE for event in events])

    def starts(self):
        """Index in the replay -> (environment, position)."""
        slots = self.replay.slots
        return {
            e * slots + p % slots: (e, p)
            for e, line in enumerate(self.lines)
            for p in line.starts(self.replay)
        }

    def sample(self, environment, position, gamma):
        return self.lines[environment].sample(position, self.replay.n_step, gamma)


def together(transitions):
    """A leading axis over them."""
    return jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *transitions)
