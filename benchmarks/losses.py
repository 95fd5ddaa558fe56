"""Claim: the losses' closed forms beat their pairwise definitions, forward and backward.

Times value and gradient of both losses of PE-DQN for a batch of mixture targets (two members of K
atoms each, so N = 2K), against the textbook versions that build a K × N tensor, in the same run.

    python benchmarks/losses.py [--batch 128] [--num-atoms 101]
"""

import argparse
import time

import jax
import jax.numpy as jnp

from winkel import Atoms
from winkel.projections import Categorical, Quantile


def pairwise_quantile(theta, target, levels):
    u = target.locations[None] - theta[:, None]
    tilt = jax.lax.stop_gradient(jnp.abs(levels[:, None] - (u <= 0)))
    return jnp.sum(target.probs[None] * tilt * jnp.abs(u))


def pairwise_categorical(theta, target, support):
    spacing = support[1] - support[0]
    z = jnp.clip(target.locations, support[0], support[-1])
    hats = jnp.clip(1.0 - jnp.abs(z[None] - support[:, None]) / spacing, 0.0)
    return -jnp.sum(jnp.sum(hats * target.probs[None], axis=1) * jax.nn.log_softmax(theta))


def seconds(function, *arguments, repeats=20):
    compiled = jax.jit(function)
    jax.block_until_ready(compiled(*arguments))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        times.append(time.perf_counter() - start)
    return sorted(times)[repeats // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--num-atoms", type=int, default=101)
    options = parser.parse_args()
    k = options.num_atoms
    quantile, categorical = Quantile(num_atoms=k), Categorical(num_atoms=k, z_min=-2.0, z_max=2.0)
    key_theta, key_target = jax.random.split(jax.random.key(0))
    theta = jax.random.normal(key_theta, (options.batch, k))
    targets = Atoms(
        locations=jax.random.normal(key_target, (options.batch, 2 * k)),
        probs=jnp.full((options.batch, 2 * k), 0.5 / k),
    )

    def batched(loss):
        return jax.vmap(jax.value_and_grad(loss))

    cases = {
        "quantile": (quantile.loss, lambda t, a: pairwise_quantile(t, a, quantile.levels)),
        "categorical": (
            categorical.loss,
            lambda t, a: pairwise_categorical(t, a, categorical.support),
        ),
    }
    print(f"{jax.devices()[0].device_kind}, batch {options.batch}, K = {k}, N = {2 * k}")
    for name, (ours, plain) in cases.items():
        fast, slow = (seconds(batched(loss), theta, targets) for loss in (ours, plain))
        print(
            f"{name:12} closed form {1e3 * fast:8.3f} ms   pairwise {1e3 * slow:8.3f} ms   "
            f"ratio {slow / fast:6.1f}"
        )


if __name__ == "__main__":
    main()
