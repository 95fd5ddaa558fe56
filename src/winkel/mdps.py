"""Finite Markov decision processes with random rewards, and a small zoo of them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from winkel.errors import InputError, require_integer
from winkel.types import Atoms, normalised

Policy = Float[np.ndarray, "S A"]


@dataclass(frozen=True, kw_only=True, eq=False)
class FiniteMDP:
    """(S, A, R, γ, P) of section 3, in float64. Termination is a state that only leads to itself.

    Attributes:
        transitions: P(s' | s, a).
        rewards: the distribution of the reward at each (s, a), independent of s' given (s, a).
        gamma: γ in [0, 1).
    """

    transitions: Float[np.ndarray, "S A S"]
    rewards: Atoms  # [S, A, R]
    gamma: float

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
    def reward_range(self) -> tuple[float, float]:
        """R_min and R_max over everything that can be drawn."""
        held = np.asarray(self.rewards.locations)[np.asarray(self.rewards.probs) > 0]
        return float(held.min()), float(held.max())

    @property
    def return_range(self) -> tuple[float, float]:
        """[R_min, R_max]/(1 − γ), which holds every return."""
        low, high = self.reward_range
        return low / (1.0 - self.gamma), high / (1.0 - self.gamma)


def check_policy(mdp: FiniteMDP, policy: Policy) -> Policy:
    """π(a | s) in float64; raises unless it is one for every state of `mdp`."""
    expected = (mdp.num_states, mdp.num_actions)
    if np.shape(policy) != expected:
        raise InputError(f"need a policy of shape {list(expected)}, got {list(np.shape(policy))}")
    return normalised(policy, "action probabilities")


def uniform_policy(mdp: FiniteMDP) -> Policy:
    """Every action equally likely in every state."""
    return np.full((mdp.num_states, mdp.num_actions), 1.0 / mdp.num_actions)


def always(mdp: FiniteMDP, action: int) -> Policy:
    """The policy that takes one action everywhere."""
    if require_integer("action", action, at_least=0) >= mdp.num_actions:
        raise InputError(f"need an action in 0 … {mdp.num_actions - 1}, got {action}")
    policy = np.zeros((mdp.num_states, mdp.num_actions))
    policy[:, action] = 1.0
    return policy


def random_policy(mdp: FiniteMDP, seed: int) -> Policy:
    """Action probabilities drawn uniformly from the simplex, state by state."""
    return np.random.default_rng(seed).dirichlet(np.ones(mdp.num_actions), mdp.num_states)


def random_mdp(
    seed: int,
    num_states: int = 4,
    num_actions: int = 2,
    num_rewards: int = 3,
    num_successors: int = 2,
    gamma: float = 0.7,
) -> FiniteMDP:
    """A Garnet-like MDP: few random successors of each (s, a), random rewards in [−1, 1]."""
    for name, value in (
        ("num_states", num_states), ("num_actions", num_actions), ("num_rewards", num_rewards),
        ("num_successors", num_successors),
    ):  # fmt: skip
        require_integer(name, value, at_least=1)
    if num_successors > num_states:
        raise InputError(f"need 1 <= num_successors <= {num_states}, got {num_successors}")
    rng = np.random.default_rng(seed)
    transitions = np.zeros((num_states, num_actions, num_states))
    for s in range(num_states):
        for a in range(num_actions):
            reached = rng.choice(num_states, num_successors, replace=False)
            transitions[s, a, reached] = rng.dirichlet(np.ones(num_successors))
    shape = (num_states, num_actions)
    rewards = Atoms.of(
        rng.uniform(-1.0, 1.0, (*shape, num_rewards)),
        rng.dirichlet(np.ones(num_rewards), shape),
    )
    return FiniteMDP(transitions=transitions, rewards=rewards, gamma=gamma)


def chain(length: int = 6, slip: float = 0.1, gamma: float = 0.9) -> FiniteMDP:
    """Left and right on a line, with slips to the other side; the last state pays 1 and ends.

    State `length` is terminal.
    """
    require_integer("length", length, at_least=1)
    if not 0.0 <= slip <= 1.0:
        raise InputError(f"need a slip probability in [0, 1], got {slip}")
    transitions = np.zeros((length + 1, 2, length + 1))
    rewards = np.zeros((length + 1, 2, 1))
    for s in range(length):
        for a, step in enumerate((-1, 1)):
            transitions[s, a, max(s + step, 0)] += 1.0 - slip
            transitions[s, a, max(s - step, 0)] += slip
    transitions[length - 1] = np.eye(length + 1)[length]
    rewards[length - 1] = 1.0
    transitions[length, :, length] = 1.0
    return FiniteMDP(transitions=transitions, rewards=Atoms.of(rewards), gamma=gamma)


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
            cell = deep_sea_cell(row, column)
            for action, moved in enumerate((max(column - 1, 0), column + 1)):
                below = deep_sea_cell(row + 1, moved) if row + 1 < size else cells
                transitions[cell, action, below] = 1.0
            rewards[cell, 1] = -0.01 / size
    rewards[cells - 1, 1] += 1.0
    transitions[cells, :, cells] = 1.0
    return FiniteMDP(transitions=transitions, rewards=Atoms.of(rewards), gamma=gamma)


def deep_sea_cell(row: int, column: int) -> int:
    """The state of `deep_sea` at a row and a column ≤ row."""
    return row * (row + 1) // 2 + column


def reward_cycle(length: int = 3, gamma: float = 0.8) -> FiniteMDP:
    """States in a ring, one action; rewards −1, 0 or 1 at random, so that returns never end."""
    require_integer("length", length, at_least=1)
    transitions = np.roll(np.eye(length), 1, axis=1)[:, None, :]
    tilt = np.linspace(0.1, 0.4, length)
    probs = np.stack([tilt, np.full(length, 0.5), 0.5 - tilt], axis=-1)[:, None, :]
    locations = np.broadcast_to([-1.0, 0.0, 1.0], probs.shape)
    return FiniteMDP(transitions=transitions, rewards=Atoms.of(locations, probs), gamma=gamma)


def coin_flips() -> FiniteMDP:
    """One state that pays 0 or 1 by a fair coin, γ = 1/2: the return is uniform on [0, 2]."""
    return FiniteMDP(transitions=np.ones((1, 1, 1)), rewards=Atoms.of([[[0.0, 1.0]]]), gamma=0.5)


def oscillator() -> FiniteMDP:
    """Two states in turn: one pays −1, the other 0 or 1 by a fair coin; γ = 1/2.

    With Π_Q and Π_C of two atoms each on the return range [−2, 2], η_{k+1} = Ω_M T^π η_k alternates
    for ever between two distributions that are 8/15 apart in w̄_1: eq. 8 need not converge for the
    paper's own ensemble. See docs/theory.md. Not in the zoo, on which it does converge.
    """
    rewards = Atoms.of([[[-1.0, 0.0]], [[0.0, 1.0]]], [[[1.0, 0.0]], [[0.5, 0.5]]])
    return FiniteMDP(
        transitions=np.roll(np.eye(2), 1, axis=1)[:, None, :], rewards=rewards, gamma=0.5
    )


ZOO: dict[str, Callable[[], FiniteMDP]] = {
    "random": lambda: random_mdp(seed=0),
    "chain": chain,
    "deep_sea": deep_sea,
    "reward_cycle": reward_cycle,
    "coin_flips": coin_flips,
}
