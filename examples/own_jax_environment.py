"""An environment of one's own in JAX: a lock, whose combination lies behind many wrong turns.

    python examples/own_jax_environment.py --digits 6 --agent pe_dqn --seeds 4

All seeds train side by side in one compiled program, environment included. From a shell, beside
this file: winkel train jax:own_jax_environment:Lock:digits=6 --episodes 1000 --seeds 4
"""

import argparse
from dataclasses import dataclass

import jax
import jax.numpy as jnp

import winkel
from winkel.types import OneHot


@dataclass(frozen=True)
class Lock:
    """Press the right one of two buttons at each digit; a mistake ends it, treasure is worth 1."""

    digits: int = 6
    num_actions = 2

    @property
    def observation(self):
        return OneHot((self.digits + 1,))

    def reset(self, key):
        digit = jnp.zeros((), jnp.int32)
        return digit, digit

    def step(self, key, digit, action):
        code = jax.random.bernoulli(jax.random.key(0), shape=(self.digits,))
        right = action == code[digit]
        digit = digit + right
        opened = digit == self.digits
        reward = jnp.where(opened, 1.0, -0.01 * right)
        return digit, digit, reward, opened | ~right, False


def main(argv=None):
    """Train an agent that explores, and print how often it opens the lock."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--digits", type=int, default=6)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--agent", default="pe_dqn")
    parser.add_argument("--seeds", type=int, default=4)
    options = vars(parser.parse_args(argv))
    lock, small = Lock(options.pop("digits")), {"hidden": (64,), "batch_size": 32, "num_atoms": 21}
    runs = winkel.train(lock, **options, **small).runs
    opened = [(run.episodes["return"][-100:] > 0).mean() for run in runs]
    print(f"{options['agent']} opened the lock in", *(f"{share:.0%}" for share in opened))


if __name__ == "__main__":
    main()
