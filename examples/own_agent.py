"""An agent of one's own: DQN that draws each action from a Boltzmann distribution of its values.

    winkel train catch/0 --agent examples.own_agent:Boltzmann --temperature 0.05 --episodes 300

docs/extending.md explains it line by line.
"""

import argparse
from dataclasses import dataclass
from typing import NamedTuple

import jax

import winkel
from winkel.agents import base
from winkel.agents.dqn import DQN
from winkel.types import Decision


class Hyper(NamedTuple):
    """Numbers that are traced: runs that differ in them share one compiled program."""

    learning_rate: base.LearningRate = 1e-3
    gamma: base.Discount = 0.99
    temperature: base.Positive = 0.05
    """Values that differ by this much have probabilities that differ by a factor e."""


@dataclass(frozen=True)
class Boltzmann(DQN):
    """DQN's learner, with actions from a softmax of its values."""

    hyper_type = Hyper

    def act(self, learner, actor, obs, first, clock, hyper, key):
        """Draw an action; the second result is what acting remembers: nothing."""
        scores = self.scores(learner, obs, clock, hyper) / hyper.temperature
        action = jax.random.categorical(key, self.spec.mask_unavailable(scores))
        return Decision(action=action), actor


def main(argv=None):
    """Train it, and print how often it catches the ball."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--temperature", type=float, default=0.05)
    options = parser.parse_args(argv)
    run = winkel.train(
        "catch/0", Boltzmann, episodes=options.episodes, temperature=options.temperature
    )
    caught = run.episodes["return"] > 0
    print(f"caught {caught[-100:].mean():.0%} of the last 100 balls")


if __name__ == "__main__":
    main()
