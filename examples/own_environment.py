"""An environment of one's own: a lock that opens to one long combination, and no hint before.

    python -m examples.own_environment --digits 8 --agent pe_dqn

Any function that returns a Gymnasium environment is named 'module:function', with its arguments
behind it, here `examples.own_environment:make:digits=8`.
"""

import argparse

import gymnasium
import numpy as np

import winkel


class Lock(gymnasium.Env):
    """Press the right one of two buttons at every digit; the first mistake ends the episode.

    Going on costs a little and the treasure inside is worth 1, so that an agent which does not
    explore learns to make its mistake at once.
    """

    def __init__(self, digits=10, combination=0):
        self.code = np.random.default_rng(combination).integers(2, size=digits)
        self.observation_space = gymnasium.spaces.Discrete(digits + 1)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.digit = 0
        return self.digit, {}

    def step(self, action):
        right = bool(action == self.code[self.digit])
        self.digit += right
        opened = self.digit == len(self.code)
        reward = 1.0 if opened else -0.01 * right
        return self.digit, reward, opened or not right, False, {}


def make(digits=10, combination=0):
    return Lock(digits, combination)


def main(argv=None):
    """Train an agent that explores, and print how often it opens the lock."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--digits", type=int, default=8)
    parser.add_argument("--episodes", type=int, default=2500)
    parser.add_argument("--agent", default="pe_dqn")
    options = parser.parse_args(argv)
    run = winkel.train(
        f"examples.own_environment:make:digits={options.digits}",
        options.agent,
        episodes=options.episodes,
        workers=0,  # such an environment is faster than a message to another process
        hidden=(64,),
        batch_size=32,
        **({"num_atoms": 21, "z_min": -0.5, "z_max": 1.5} if options.agent == "pe_dqn" else {}),
    )
    opened = run.episodes["return"] > 0
    print(f"{options.agent} opened the lock in {opened[-100:].mean():.0%} of the last 100 episodes")


if __name__ == "__main__":
    main()
