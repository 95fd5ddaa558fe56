"""VizDoom's MyWayHome: find a vest in a maze of rooms, from pictures alone."""

import operator

import numpy as np
from jaxtyping import UInt8

from winkel.errors import InputError, require_integer
from winkel.simulators.base import Layout, Moved
from winkel.simulators.vizdoom import variants
from winkel.simulators.vizdoom.engine import ACTIONS, Engine
from winkel.simulators.vizdoom.frames import SIDE, Shrink

EPISODE_LENGTH = 2_100
"""Steps until the time is out."""

TIMEOUTS = ("termination", "truncation")

_MAX_SEED = 2**32 - 1


class MyWayHome:
    """One environment: each action presses one of five buttons for one tic; there is no skip.

    Rewards are -0.0001 a step and 1 more for the vest. As the engine has it, the vest's reward
    (0.9999) comes on a step that does not end the episode; the next one does, with -0.0001, and so
    with the frame of the step before, for there is none any more.

    Args:
        variant: a name in `SPAWNS`: where episodes start.
        rendering: a name in `RENDERINGS`.
        timeout: what the end after 2,100 steps is. As a termination (the original experiment's)
            the engine makes it, and the last frame is repeated; as a truncation the engine does
            not know of it, and the last observation is the frame that the step led to.
        stack: how many frames an agent sees.
    """

    num_actions = len(ACTIONS)
    facts = ("goal",)
    probes = ("x", "y", "angle")

    def __init__(
        self,
        variant: str,
        rendering: str = "fast",
        timeout: str = "termination",
        stack: int = 6,
    ):
        if timeout not in TIMEOUTS:
            raise InputError(f"need a timeout of {', '.join(TIMEOUTS)}, got {timeout!r}")
        stack = require_integer("stack", stack, at_least=1)
        self.layout = Layout(shape=(SIDE, SIDE), dtype="uint8", stack=stack)
        self._truncates = timeout == "truncation"
        self._scenario = variants.scenario(variant)
        self._shrink = Shrink(rendering)
        self._engine: Engine | None = None
        self._frame = np.zeros((SIDE, SIDE), np.uint8)
        self._over = True
        self._steps = 0
        self._found = False

    def reset(self, seed: int | None = None) -> UInt8[np.ndarray, "42 42"]:
        """The first frame of a new episode. A seed decides this and all that follow."""
        seed = None if seed is None else operator.index(seed)
        if seed is not None and not 0 <= seed <= _MAX_SEED:
            raise InputError(f"need a seed from 0 to {_MAX_SEED}, got {seed}")
        if self._engine is None or self._engine.dead:
            self._engine = Engine(
                scenario=self._scenario,
                rendering=self._shrink.rendering,
                timeout=0 if self._truncates else EPISODE_LENGTH,
                seed=seed,
            )
        else:
            self._engine.new_episode(seed)
        self._over, self._steps, self._found = False, 0, False
        self._look(self._engine)
        return self._frame

    def step(self, action: int) -> Moved:
        """Press one button for one tic.

        Raises `SimulatorDied` if the engine is gone; a reset starts another.
        """
        if self._engine is None or self._over:
            raise InputError("need reset() before step(): no episode is running")
        if not 0 <= action < self.num_actions:
            raise InputError(f"need an action from 0 to {self.num_actions - 1}, got {action}")
        engine, self._over = self._engine, True  # so it stays if the engine dies
        reward = engine.act(action)
        self._steps += 1
        goal = reward > 0.5
        self._found |= goal
        ended = engine.is_over()
        time_is_out = self._truncates and self._steps >= EPISODE_LENGTH
        self._over = ended or time_is_out
        self._look(engine)
        return Moved(
            obs=self._frame,
            reward=reward,
            discount=0.0 if ended or (time_is_out and self._found) else 1.0,
            boundary=self._over,
            facts=(float(goal),),
            probes=engine.place(),
        )

    def close(self) -> None:
        """End the engine. More than once does no harm."""
        self._over = True
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _look(self, engine: Engine) -> None:
        picture = engine.picture()
        if picture is not None:
            self._frame = self._shrink(picture)
