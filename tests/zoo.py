"""Small MDPs and policies to test the theory with. On all of `ZOO`, eq. 8 converges."""

import numpy as np

from winkel.mdps import FiniteMDP, deep_sea, reward_cycle
from winkel.types import Atoms


def always(mdp, action):
    """The policy that takes one action everywhere."""
    policy = np.zeros((mdp.num_states, mdp.num_actions))
    policy[:, action] = 1.0
    return policy


def random_policy(mdp, seed):
    """Action probabilities drawn uniformly from the simplex, state by state."""
    return np.random.default_rng(seed).dirichlet(np.ones(mdp.num_actions), mdp.num_states)


def random_mdp(
    seed,
    num_states=4,
    num_actions=2,
    num_rewards=3,
    num_successors=2,
    gamma=0.7,
):
    """A Garnet-like MDP: few random successors of each (s, a), random rewards in [−1, 1]."""
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


def chain(length=6, slip=0.1, gamma=0.9):
    """Left and right on a line, with slips to the other side; the last state pays 1 and ends.

    State `length` is terminal.
    """
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


def coin_flips():
    """One state that pays 0 or 1 by a fair coin, γ = 1/2: the return is uniform on [0, 2]."""
    return FiniteMDP(transitions=np.ones((1, 1, 1)), rewards=Atoms.of([[[0.0, 1.0]]]), gamma=0.5)


ZOO = {
    "random": lambda: random_mdp(seed=0),
    "chain": chain,
    "deep_sea": deep_sea,
    "reward_cycle": reward_cycle,
    "coin_flips": coin_flips,
}
