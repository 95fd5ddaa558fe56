"""Why bsuite's MNIST is hard: pixels are read as signed bytes, so that bright ones are negative.

A DQN in a few lines, with nothing of winkel's agents in it, guesses 10,000 digits from signed and
from unsigned pixels. Prints the share of right guesses by thousands.

    python benchmarks/mnist_pixels.py --mnist-dir DIR
"""

import argparse
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from winkel.envs.bsuite.mnist_data import load_mnist

GUESSES, BATCH, EPSILON, LEARNING_RATE, BURN_IN = 10_000, 32, 0.05, 1e-3, 128
SIZES = (784, 50, 50, 10)


def main(arguments: list[str] | None = None) -> dict[str, np.ndarray]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist-dir", type=Path)
    data = load_mnist(parser.parse_args(arguments).mnist_dir)
    images = np.ascontiguousarray(data.images.reshape(-1, 784))
    readings = {"signed": images.view(np.int8), "unsigned": images}
    found = {}
    for name, pixels in readings.items():
        right = guessed((pixels / 255).astype(np.float32), np.asarray(data.labels))
        found[name] = right.reshape(10, -1).mean(axis=1)
        print(f"{name:9}", *(f"{share:.2f}" for share in found[name]))
    return found


def guessed(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Which guesses were right. Rewards of 1 and −1 are all that is learned from."""
    rng, optimiser = np.random.default_rng(0), optax.adam(LEARNING_RATE)

    def values(weights, x):
        for matrix, bias in weights[:-1]:
            x = jax.nn.relu(x @ matrix + bias)
        return x @ weights[-1][0] + weights[-1][1]

    @jax.jit
    def updated(weights, moments, x, guesses, rewards):
        def loss(weights):
            return jnp.mean((values(weights, x)[jnp.arange(BATCH), guesses] - rewards) ** 2)

        change, moments = optimiser.update(jax.grad(loss)(weights), moments)
        return optax.apply_updates(weights, change), moments

    act = jax.jit(lambda weights, x: jnp.argmax(values(weights, x)))
    pairs = itertools.pairwise(SIZES)
    weights = [
        (jnp.asarray(rng.normal(size=(n, m)) / n**0.5, jnp.float32), jnp.zeros(m)) for n, m in pairs
    ]
    moments = optimiser.init(weights)
    shown = rng.integers(len(images), size=GUESSES)
    guesses, right = np.zeros(GUESSES, int), np.zeros(GUESSES, bool)
    for i, image in enumerate(shown):
        random = rng.random() < EPSILON
        guesses[i] = rng.integers(10) if random else int(act(weights, images[image]))
        right[i] = guesses[i] == labels[image]
        if i >= BURN_IN:
            batch = rng.integers(i + 1, size=BATCH)
            rewards = np.where(right[batch], 1.0, -1.0).astype(np.float32)
            weights, moments = updated(
                weights, moments, images[shown[batch]], guesses[batch], rewards
            )
    return right


if __name__ == "__main__":
    main()
