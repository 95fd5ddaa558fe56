"""Claim: for laws of the agents' size, comparing atoms beats sorting them (decision 010).

    python benchmarks/comparisons.py [--batch 128] [--num-atoms 101]

Times the gradient of the quantile loss and w_1 of twice as many pairs, as the library does them and
with the limit of comparisons set to 0, which makes it sort; both in one run.
"""

import argparse
import time

import jax
import jax.numpy as jnp

from winkel import Atoms, distributions
from winkel.projections import Categorical, Quantile


def milliseconds(function, *arguments, repeats=30):
    compiled = jax.jit(function)
    jax.block_until_ready(compiled(*arguments))
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        times.append(time.perf_counter() - begin)
    return 1e3 * sorted(times)[repeats // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--num-atoms", type=int, default=101)
    options = parser.parse_args()
    batch, k = options.batch, options.num_atoms
    quantile, categorical = Quantile(num_atoms=k), Categorical(num_atoms=k, z_min=-2.0, z_max=2.0)
    keys = jax.random.split(jax.random.key(0), 3)
    theta = jax.random.normal(keys[0], (2 * batch, k))
    target = Atoms(
        locations=jax.random.normal(keys[1], (batch, 2 * k)),
        probs=jnp.full((batch, 2 * k), 0.5 / k),
    )
    first = jax.vmap(quantile.decode)(theta)
    second = jax.vmap(categorical.decode)(jax.random.normal(keys[2], (2 * batch, k)))
    print(f"batch {batch}, K = {k}, {jax.devices()[0].device_kind}, jax {jax.__version__}")
    print(f"{'':28}{'sorted ms':>10}{'library ms':>11}{'ratio':>7}")
    limit = distributions.COMPARISONS
    for name, function, arguments in (
        ("gradient of quantile loss", jax.grad(quantile.loss), (theta[:batch], target)),
        (f"w1 of {2 * batch} pairs", distributions.wasserstein, (first, second)),
    ):
        times = []
        for distributions.COMPARISONS in (0, limit):
            times.append(milliseconds(lambda *a, f=function: jax.vmap(f)(*a), *arguments))
        print(f"{name:28}{times[0]:10.2f}{times[1]:11.2f}{times[0] / times[1]:7.1f}")


if __name__ == "__main__":
    main()
