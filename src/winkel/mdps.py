"""Finite Markov decision processes with random rewards, and a few examples."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from winkel.errors import InputError, require_integer
from winkel.types import Atoms, normalised

Policy = Float[np.ndarray, "S A"]


@dataclass(frozen=True, kw_only=True, eq=False)
class FiniteMDP:
    """(S, A, R, γ, P) of section 3, in float64. A terminal state leads only to itself."""

    transitions: Float[np.ndarray, "S A S"]
    """P(s' | s, a)."""
    rewards: Atoms  # [S, A, R]
    """The distribution of the reward at each (s, a), independent of s' given (s, a)."""
    gamma: float
    """γ in [0, 1)."""

    def __post_init__(self) -> None:
        p = np.asarray(self.transitions, np.float64)
        if p.ndim != 3 or p.shape[0] != p.shape[2] or 0 in p.shape:
            raise InputError(f"need transitions of shape [S, A, S], got {list(p.shape)}")
        rewards = Atoms.of(*self.rewards)
        if rewards.locations.shape[:-1] != p.shape[:2]:
            raise InputError(
                f"need a reward distribution for each of {list(p.shape[:2])} state-actions, got "
                f"rewards of shape {list(rewards.locations.shape)}"
            )
        if not isinstance(self.gamma, int | float) or not 0.0 <= self.gamma < 1.0:
            raise InputError(f"need 0 <= gamma < 1, got {self.gamma!r}")
        object.__setattr__(self, "transitions", normalised(p, "transition probabilities"))
        object.__setattr__(self, "rewards", rewards)

    @property
    def num_states(self) -> int:
        """S."""
        return self.transitions.shape[0]

    @property
    def num_actions(self) -> int:
        """A."""
        return self.transitions.shape[1]

    @property
    def return_range(self) -> tuple[float, float]:
        """[R_min, R_max]/(1 − γ), which holds every return, over all rewards that can be drawn."""
        held = np.asarray(self.rewards.locations)[np.asarray(self.rewards.probs) > 0]
        return float(held.min()) / (1.0 - self.gamma), float(held.max()) / (1.0 - self.gamma)


def check_policy(mdp: FiniteMDP, policy: Policy) -> Policy:
    """π(a | s) in float64; raises unless it is one for every state of `mdp`."""
    expected = (mdp.num_states, mdp.num_actions)
    if np.shape(policy) != expected:
        raise InputError(f"need a policy of shape {list(expected)}, got {list(np.shape(policy))}")
    return normalised(policy, "action probabilities")


def uniform_policy(mdp: FiniteMDP) -> Policy:
    """Every action equally likely in every state."""
    return np.full((mdp.num_states, mdp.num_actions), 1.0 / mdp.num_actions)


def deep_sea(size: int = 8, gamma: float = 0.99) -> FiniteMDP:
    """Deep sea as a table: descend a triangle, going right costs 0.01/size, the far corner pays 1.

    Action 1 is right. State row (row + 1)/2 + column is the cell (row, column ≤ row); the last
    state is terminal.
    """
    require_integer("size", size, at_least=2)
    cells = size * (size + 1) // 2
    transitions = np.zeros((cells + 1, 2, cells + 1))
    rewards = np.zeros((cells + 1, 2, 1))
    for row in range(size):
        for column in range(row + 1):
            cell = row * (row + 1) // 2 + column
            for action, moved in enumerate((max(column - 1, 0), column + 1)):
                below = cell - column + row + 1 + moved if row + 1 < size else cells
                transitions[cell, action, below] = 1.0
            rewards[cell, 1] = -0.01 / size
    rewards[cells - 1, 1] += 1.0
    transitions[cells, :, cells] = 1.0
    return FiniteMDP(transitions=transitions, rewards=Atoms.of(rewards), gamma=gamma)


def reward_cycle(length: int = 3, gamma: float = 0.8) -> FiniteMDP:
    """States in a ring, one action; rewards −1, 0 or 1 at random, so that returns never end."""
    require_integer("length", length, at_least=1)
    transitions = np.roll(np.eye(length), 1, axis=1)[:, None, :]
    tilt = np.linspace(0.1, 0.4, length)
    probs = np.stack([tilt, np.full(length, 0.5), 0.5 - tilt], axis=-1)[:, None, :]
    locations = np.broadcast_to([-1.0, 0.0, 1.0], probs.shape)
    return FiniteMDP(transitions=transitions, rewards=Atoms.of(locations, probs), gamma=gamma)


def oscillator() -> FiniteMDP:
    """Two states in turn: one pays −1, the other 0 or 1 by a fair coin; γ = 1/2.

    With Π_Q and Π_C of two atoms each on the return range [−2, 2], η_{k+1} = Ω_M T^π η_k alternates
    for ever between two distributions that are 8/15 apart in w̄_1: eq. 8 need not converge for the
    paper's own ensemble. See docs/theory.md.
    """
    rewards = Atoms.of([[[-1.0, 0.0]], [[0.0, 1.0]]], [[[1.0, 0.0]], [[0.5, 0.5]]])
    return FiniteMDP(
        transitions=np.roll(np.eye(2), 1, axis=1)[:, None, :], rewards=rewards, gamma=0.5
    )
