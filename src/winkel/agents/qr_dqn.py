"""QR-DQN: a quantile model of the return distribution (Dabney et al. 2018).

It learns the quantiles of r + γ Z(s', a') by quantile regression, eq. 11 of the PE-DQN paper.
"""

from dataclasses import dataclass
from typing import NamedTuple

from winkel.agents import base
from winkel.agents.distributional import SingleModel


@dataclass(frozen=True, kw_only=True)
class Config(base.Settings):
    """Static settings. Defaults: as the quantile model of the paper's PE-DQN."""

    double: bool = True
    """The online network chooses the action that the target network evaluates."""
    huber_width: base.HuberWidth = 0.0
    hidden: base.Hidden = (512,)
    num_atoms: base.NumAtoms = 101


class Hyper(NamedTuple):
    """Hyperparameters, traced."""

    learning_rate: base.LearningRate = 5e-4
    gamma: base.Discount = 0.99
    epsilon: base.Epsilon = 1.0
    epsilon_final: base.Epsilon = 0.05
    epsilon_decay: base.HorizonShare = 0.1
    epsilon_steps: base.EpsilonSteps = 0.0


@dataclass(frozen=True)
class QRDQN(SingleModel):
    """One quantile model; actions are ε-greedy."""

    config: Config
    config_type = Config
    hyper_type = Hyper
    model = "quantile"
