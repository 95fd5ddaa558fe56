"""The pytrees that travel between modules, and the forms of observations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree
from numpy.typing import ArrayLike

from winkel.errors import InputError, require_integer

AnyArray = jax.Array | np.ndarray

MASS_TOLERANCE = 1e-5
"""How far from one the sum of given probabilities may be: the rounding of float32 input."""


class Atoms(NamedTuple):
    """A finite mixture of Diracs, Σ_n probs[n] δ_{locations[n]}; leading axes are a batch.

    Locations may repeat and stand in any order. Atoms of zero mass are padding, which no result
    depends on as long as it is finite and within the range of the others (far outside, it takes
    part in rounding). The constructor checks nothing, so that traced values, gradients and
    tangents fit in; `Atoms.of` checks.
    """

    locations: Float[AnyArray, "*batch N"]
    probs: Float[AnyArray, "*batch N"]

    @classmethod
    def of(cls, locations: ArrayLike, probs: ArrayLike | None = None) -> "Atoms":
        """Checked atoms from plain numbers, equally likely where `probs` is not given.

        Probabilities that sum to one up to rounding are made to do so. The arrays are NumPy's, in
        float64: JAX takes them at the precision it is set to, and the exact operators of
        `winkel.operators` lose nothing.
        """
        z = np.asarray(locations, dtype=np.float64)
        if z.ndim == 0 or z.size == 0:
            raise InputError(f"need at least one location, got an array of shape {z.shape}")
        if not np.isfinite(z).all():
            raise InputError(f"need finite locations, got {z[~np.isfinite(z)][0]} in {z}")
        if probs is None:
            return cls(locations=z, probs=np.full(z.shape, 1.0 / z.shape[-1]))
        p = np.asarray(probs, dtype=np.float64)
        if p.shape != z.shape:
            raise InputError(
                f"need one probability for each location, got shapes {p.shape} and {z.shape}"
            )
        return cls(locations=z, probs=normalised(p, "probabilities"))


def normalised(probs: ArrayLike, what: str) -> Float[np.ndarray, "*batch N"]:
    """Probability vectors (last axis) in float64; raises unless they are that up to rounding."""
    probs = np.asarray(probs, np.float64)
    if not np.isfinite(probs).all():
        raise InputError(f"need finite {what}, got {probs[~np.isfinite(probs)][0]} in {probs}")
    if (probs < 0).any():
        raise InputError(f"need non-negative {what}, got {probs.min()} in {probs}")
    total = probs.sum(axis=-1)
    worst = np.unravel_index(np.argmax(np.abs(total - 1.0)), total.shape)
    if abs(total[worst] - 1.0) > MASS_TOLERANCE:
        where = f" in row {tuple(int(i) for i in worst)}" if worst else ""
        raise InputError(
            f"need {what} that sum to one, got a sum of {total[worst]:.6g}{where}: {probs[worst]}"
        )
    return probs / total[..., None]


@dataclass(frozen=True)
class Dense:
    """Observations are float32 arrays of this shape."""

    shape: tuple[int, ...]

    dtype: ClassVar[str] = "float32"


@dataclass(frozen=True)
class OneHot:
    """Observations are indices into a grid that is zero but for a one there.

    The index `size` stands for the all-zero grid, which some environments show at the end.
    """

    shape: tuple[int, ...]
    triangle: bool = False
    """Whether the grid is square and only cells on or below its diagonal occur."""

    dtype: ClassVar[str] = "int32"

    @property
    def size(self) -> int:
        """Number of cells."""
        return int(np.prod(self.shape))


@dataclass(frozen=True)
class Image:
    """Observations are the last frames of a picture, uint8 arrays `[stack, *frame]`, oldest first.

    At the start of an episode all of them are its first frame.
    """

    frame: tuple[int, ...]
    """Shape of one, (H, W) or (H, W, C)."""
    stack: int

    dtype: ClassVar[str] = "uint8"

    def __post_init__(self) -> None:
        if len(self.frame) not in (2, 3):
            raise InputError(f"need frames of shape (H, W) or (H, W, C), got {self.frame}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an observation."""
        return (self.stack, *self.frame)


@dataclass(frozen=True)
class Planes:
    """Observations are small pictures `[H, W, C]`: numbers, or symbols that are counted from 0."""

    shape: tuple[int, ...]
    values: tuple[int, ...] | None = None
    """How many symbols each channel has; None if channels are numbers. A network sees symbols as
    one-hot vectors, and one beyond the last as zeros."""
    dtype: str = "float32"
    """Type in which they are stored: 'bool', 'uint8' or 'float32'."""

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or min(self.shape[:2]) < 3 or self.shape[2] < 1:
            raise InputError(f"need planes of shape (H, W, C) from (3, 3, 1), got {self.shape}")
        for count in self.values or ():
            require_integer("each number of symbols", count, at_least=1, at_most=256)
        if self.values is not None and len(self.values) != self.shape[2]:
            raise InputError(
                f"need numbers of symbols for {self.shape[2]} channels, got {self.values}"
            )
        if self.dtype not in ("bool", "uint8", "float32"):
            raise InputError(f"need planes of bool, uint8 or float32, got {self.dtype!r}")

    @property
    def channels(self) -> int:
        """Channels that a network sees."""
        return self.shape[2] if self.values is None else sum(self.values)


Observation = Dense | OneHot | Image | Planes


class EnvStep(NamedTuple):
    """What one step of an environment shows; a reset is part of the step and never a transition."""

    reward: Float[Array, "*batch"]
    discount: Float[Array, "*batch"]
    """0 only on termination, 1 else; γ is the agent's."""
    next_obs: PyTree
    """The observation that the transition ends in, before any reset."""
    obs: PyTree
    """What to act on next: the same, or the first observation of a new episode."""
    boundary: Bool[Array, "*batch"]
    """Whether the episode ended here, by termination or truncation."""
    info: Mapping[str, Array]
    """Facts that add up over an episode (mistakes, bad episodes), never running totals."""


class Decision(NamedTuple):
    """The action that an agent selected, one of 0 … A − 1."""

    action: Int[Array, "*batch"]
    extras: PyTree = ()
    """Any pytree of fixed shape, stored with the transition for the learner (bootstrap masks)."""


class Transition(NamedTuple):
    """What replay stores. `obs` was acted on; other fields are as in `EnvStep` and `Decision`."""

    obs: PyTree
    action: Int[Array, "*batch"]
    reward: Float[Array, "*batch"]
    discount: Float[Array, "*batch"]
    next_obs: PyTree
    boundary: Bool[Array, "*batch"]
    extras: PyTree


class Batch(NamedTuple):
    """Transitions drawn from replay, a first axis over them, and where in the replay they lie."""

    transitions: Transition
    weights: Float[Array, "B"]
    """Importance of each in the loss, 1 where draws are uniform."""
    indices: Int[Array, "B"]
    gamma_power: Float[Array, "B"] | float = 1.0
    """γ^(k−1) for a sample of k steps, also if it ended by termination."""


class Update(NamedTuple):
    """What one update of a learner returns beside the learner."""

    priorities: Float[Array, "B"]
    """Loss of each transition of the batch, without importance weights; not negative."""
    metrics: Mapping[str, Float[Array, ""]]
    """Scalars; 'loss' among them."""


class Clock(NamedTuple):
    """How far a run is. The loop owns it; every schedule is a function of it."""

    env_steps: Int[Array, "*batch"]
    episodes: Int[Array, "*batch"]
    updates: Int[Array, "*batch"]
    progress: Float[Array, "*batch"]
    """Share of the run's horizon that is done, whether that counts episodes or steps."""


class RunState(NamedTuple):
    """The state of a run: what a checkpoint holds beside the run's records.

    A run in simulators has an axis of environments in `actor`, `obs` and `first`. Its simulators
    are not part of the state: the last four fields are empty.
    """

    learner: PyTree
    actor: PyTree
    """What acting remembers from step to step."""
    obs: PyTree
    """What to act on next."""
    first: Bool[Array, "*batch"]
    """Whether that is the first step of an episode."""
    replay: PyTree
    clock: Clock
    key: Key[Array, "*batch"]
    """The source of all random numbers of the steps."""
    env_state: PyTree = ()
    tally: PyTree = ()
    """Return, length and facts of the episode so far."""
    visits: PyTree = ()
    """How often each action was selected at each observation, if those are countable."""
    visited: PyTree = ()
    """How many of these counts are not 0."""


class Estimates(NamedTuple):
    """What an agent predicts at an observation, for evaluation and pictures."""

    value: Float[Array, "A"]
    """Q of every action, what the greedy policy maximises."""
    members: Atoms
    """Return distributions of the M members."""
    disagreement: Float[Array, "A"]
    """How far the members are apart, in the agent's own measure; NaN without one."""
    bonus: Float[Array, "A"]
    """What the agent adds to the value, before its factor β; for IDS the information gain, for
    `statistic` the statistic; NaN without one."""
