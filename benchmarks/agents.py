"""Claims: closed forms make PE-DQN several times faster than its textbook losses; BDQN+P with 20
members is ten times faster than bsuite's own JAX agent, step for step, learning included.

    python benchmarks/agents.py [--env deep_sea/0] [--steps 500] [--only pe_dqn|bdqn]
                                [--hidden 50 50]

One lane, one update a step, all in one process. The textbook PE-DQN differs in its losses alone,
which compare every output with every atom of the target. bsuite's agent needs `pip install
winkel[bench]`. Both BDQN+Ps update 20 members on the same 128 transitions at every step, with Adam
and with target networks that are copied every fourth; ours has hidden layers of 64 and bsuite's of
50, and `--hidden` gives ours others.
"""

import argparse
import time

import equinox as eqx
import jax
import jax.numpy as jnp

from winkel.envs.registry import make
from winkel.projections import PROJECTIONS, Categorical, Quantile
from winkel.runs.spec import configure
from winkel.training.compiled import CompiledWorld
from winkel.training.lanes import Lanes, Plan
from winkel.training.steps import Horizon


class TextbookQuantile(eqx.Module):
    inner: Quantile

    @classmethod
    def spanning(cls, num_atoms, z_min, z_max):
        return cls(inner=Quantile.spanning(num_atoms, z_min, z_max))

    def decode(self, theta):
        return self.inner.decode(theta)

    def loss(self, theta, target):
        u = jax.lax.stop_gradient(target.locations)[None] - theta[:, None]
        tilt = jax.lax.stop_gradient(jnp.abs(self.inner.levels[:, None] - (u <= 0)))
        return jnp.sum(target.probs[None] * tilt * jnp.abs(u))


class TextbookCategorical(eqx.Module):
    inner: Categorical

    @classmethod
    def spanning(cls, num_atoms, z_min, z_max):
        return cls(inner=Categorical.spanning(num_atoms, z_min, z_max))

    def decode(self, theta):
        return self.inner.decode(theta)

    def loss(self, theta, target):
        support = self.inner.support
        z = jnp.clip(target.locations, support[0], support[-1])
        hats = jnp.clip(1.0 - jnp.abs(z[None] - support[:, None]) / (support[1] - support[0]), 0.0)
        probs = jax.lax.stop_gradient(jnp.sum(hats * target.probs[None], axis=1))
        return -jnp.sum(probs * jax.nn.log_softmax(theta))


TEXTBOOK = {
    "projections": ("textbook_quantile", "textbook_categorical"),
    "priors": ("textbook_quantile",),
}


def ours(env, agent, steps, **fields):
    """Steps, each with an update, in a second: the best of five chunks."""
    task = make(env)
    configured = configure(agent, fields, task)
    plan = Plan(task.params, configured.hyper, Horizon(episodes=10_000), seed=0)
    world, chunk_steps = CompiledWorld(task.env), max(steps // 5, 1)
    lanes = Lanes(configured.agent, world, [plan], num_lanes=1, chunk_steps=chunk_steps)
    lanes.advance()
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        lanes.advance()
        times.append(time.perf_counter() - begin)
    return lanes.chunk_steps / min(times)


def theirs(env_id, steps):
    """The same of bsuite's bootstrapped DQN with its 20 members."""
    import bsuite

    try:
        from bsuite.baselines.jax.boot_dqn import agent as boot_dqn
    except ImportError as error:
        raise SystemExit(f"need pip install 'winkel[bench]' for bsuite's agent: {error}") from None

    env = bsuite.load_from_id(env_id)
    agent = boot_dqn.default_agent(env.observation_spec(), env.action_spec(), seed=0)

    def run(count):
        now = env.reset()
        for _ in range(count):
            now = env.reset() if now.last() else now
            action = agent.select_action(now)
            following = env.step(action)
            agent.update(now, action, following)
            now = following

    run(200)
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        run(steps // 5)
        times.append(time.perf_counter() - begin)
    return steps // 5 / min(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="deep_sea/0")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--only", choices=("pe_dqn", "bdqn"))
    parser.add_argument("--hidden", type=int, nargs="+", default=(64, 64), help="of our BDQN+P")
    options = parser.parse_args()
    PROJECTIONS["textbook_quantile"] = TextbookQuantile
    PROJECTIONS["textbook_categorical"] = TextbookCategorical
    print(f"{options.env}, one lane, {jax.default_backend()}, updates a second")
    if options.only != "bdqn":
        fast = ours(options.env, "pe_dqn", options.steps)
        slow = ours(options.env, "pe_dqn", options.steps // 5, **TEXTBOOK)
        print(
            f"PE-DQN          winkel {fast:8.1f}   textbook {slow:8.1f}   ratio {fast / slow:.1f}"
        )
    if options.only != "pe_dqn":
        fast = ours(options.env, "bdqn", 4 * options.steps, hidden=tuple(options.hidden))
        slow = theirs(options.env, options.steps)
        print(
            f"BDQN+P, M = 20  winkel {fast:8.1f}   bsuite   {slow:8.1f}   ratio {fast / slow:.1f}"
        )


if __name__ == "__main__":
    main()
