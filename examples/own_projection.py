"""A projection of one's own: a histogram of the target after Gaussian noise (HL-Gauss).

    winkel train deep_sea:size=8 --projections quantile,examples.own_projection:Histogram

docs/extending.md explains it line by line.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import xlogy
from jax.scipy.stats import norm

import winkel
from winkel.types import Atoms


class Histogram(eqx.Module):
    """Probabilities of K bins; an atom of the target is spread over several bins (Imani 2018)."""

    num_atoms: int = eqx.field(static=True)
    z_min: float | jax.Array
    z_max: float | jax.Array

    @classmethod
    def spanning(cls, num_atoms, z_min, z_max):
        """K bins whose centres go from z_min to z_max."""
        return cls(num_atoms, z_min, z_max)

    def decode(self, theta):
        """The distribution that K outputs of a network stand for."""
        centres = jnp.linspace(self.z_min, self.z_max, self.num_atoms)
        return Atoms(locations=centres, probs=jax.nn.softmax(theta))

    def project(self, target):
        """Give each atom a normal distribution, and sum its mass in bins that cover all numbers."""
        centres = jnp.linspace(self.z_min, self.z_max, self.num_atoms)
        width = centres[1] - centres[0]
        edges = jnp.pad(centres[1:] - width / 2, 1, constant_values=(-jnp.inf, jnp.inf))
        below = norm.cdf((edges[:, None] - target.locations[None]) / (0.75 * width))
        return Atoms(locations=centres, probs=jnp.diff(below, axis=0) @ target.probs)

    def loss(self, theta, target):
        """Kullback-Leibler divergence from the projected target; that carries no gradient."""
        probs = jax.lax.stop_gradient(self.project(target).probs)
        return jnp.sum(xlogy(probs, probs) - probs * jax.nn.log_softmax(theta))


def main(argv=("200",)):
    """Train PE-DQN+ with it in a small deep sea, and print how often it found the treasure."""
    episodes, small = int(argv[0]), {"hidden": (64,), "num_atoms": 21}
    members = ("quantile", Histogram)
    run = winkel.train(
        "deep_sea:size=5", "pe_dqn_plus", projections=members, episodes=episodes, **small
    )
    print(f"found the treasure in {run.episodes['treasure'].sum():.0f} of {episodes} episodes")


if __name__ == "__main__":
    main()
