"""Claims: closed forms make PE-DQN ten times faster than its textbook losses on a CPU; BDQN+P with
20 members is ten times faster than bsuite's own JAX agent, step for step, learning included.

    python benchmarks/agents.py [--env deep_sea/0] [--steps 500] [--only pe_dqn bdqn] [--hidden 50]

Prints updates a second of every agent, one lane, one update a step. The textbook PE-DQN differs in
its losses alone, which compare every output with every atom of the target. bsuite's agent needs
`pip install winkel[bench]`. Both BDQN+Ps update 20 members on the same 128 transitions at every
step with Adam, and copy target networks every fourth; `--hidden 50 50` gives ours bsuite's layers.
"""

import argparse

import jax
import jax.numpy as jnp

from training import time_chunks
from winkel.agents import AGENTS
from winkel.envs.registry import make
from winkel.projections import PROJECTIONS, Categorical, Quantile
from winkel.runs.spec import configure
from winkel.training.compiled import CompiledWorld
from winkel.training.lanes import Lanes
from winkel.training.steps import Horizon, Plan


class TextbookQuantile(Quantile):
    def loss(self, theta, target):
        u = jax.lax.stop_gradient(target.locations)[None] - theta[:, None]
        weight = jax.lax.stop_gradient(jnp.abs(self.levels[:, None] - (u <= 0)))
        return jnp.sum(target.probs[None] * weight * jnp.abs(u))


class TextbookCategorical(Categorical):
    def loss(self, theta, target):
        z = jnp.clip(target.locations, self.support[0], self.support[-1])
        spacing = self.support[1] - self.support[0]
        hats = jnp.clip(1.0 - jnp.abs(z[None] - self.support[:, None]) / spacing, 0.0)
        probs = jax.lax.stop_gradient(jnp.sum(hats * target.probs[None], axis=1))
        return -jnp.sum(probs * jax.nn.log_softmax(theta))


def our_rate(env, agent, steps, **fields):
    task, steps = make(env), max(steps // 5, 1)
    made, hyper = configure(agent, fields, task)
    plan = Plan(task.params, hyper, Horizon(episodes=10_000), seed=0)
    lanes = Lanes(made, CompiledWorld(task.env), [plan], num_lanes=1, chunk_steps=steps)
    return steps / min(time_chunks(lanes.advance))


def bsuite_rate(env_id, steps):
    try:
        import bsuite
        from bsuite.baselines.jax.boot_dqn import agent as boot_dqn
    except ImportError:  # bsuite and haiku are in the extra `bench`
        return float("nan")
    env, steps = bsuite.load_from_id(env_id), max(steps // 5, 1)
    agent = boot_dqn.default_agent(env.observation_spec(), env.action_spec(), seed=0)

    def chunk():
        now = env.reset()
        for _ in range(steps):
            now = env.reset() if now.last() else now
            action = agent.select_action(now)
            following = env.step(action)
            agent.update(now, action, following)
            now = following

    return steps / min(time_chunks(chunk))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="deep_sea/0")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--only", nargs="+", choices=AGENTS, default=list(AGENTS))
    parser.add_argument("--hidden", type=int, nargs="+", default=(64, 64), help="of our BDQN+P")
    options = parser.parse_args()
    PROJECTIONS.update(plain_quantile=TextbookQuantile, plain_categorical=TextbookCategorical)
    plain = {"projections": ("plain_quantile", "plain_categorical"), "priors": ("plain_quantile",)}
    print(f"{options.env}, one lane, {jax.default_backend()}, updates a second")
    for agent in options.only:
        fields = {"hidden": tuple(options.hidden)} if agent == "bdqn" else {}
        rate = our_rate(options.env, agent, options.steps * (4 if fields else 1), **fields)
        print(f"{agent:10} {rate:8.1f}", end="", flush=True)
        if agent == "pe_dqn":
            slow = our_rate(options.env, agent, options.steps // 5, **plain)
            print(f"   textbook losses {slow:8.1f}   ratio {rate / slow:.1f}", end="")
        if agent == "bdqn":
            slow = bsuite_rate(options.env, options.steps)
            print(f"   bsuite's agent  {slow:8.1f}   ratio {rate / slow:.1f}", end="")
        print(flush=True)


if __name__ == "__main__":
    main()
