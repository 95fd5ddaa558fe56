"""Fig. 1: two representations fit the same data and differ where there is none."""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from winkel.distributions import quantile
from winkel.errors import InputError
from winkel.projections import Categorical, Projection, Quantile
from winkel.types import Atoms

LEVELS = np.linspace(0.1, 0.9, 9)


@dataclass(frozen=True, kw_only=True)
class ToyConfig:
    """One-dimensional regression onto distributions."""

    num_points: int = 300
    num_atoms: int = 101
    width: int = 64
    depth: int = 2
    learning_rate: float = 1e-3
    steps: int = 1_000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("num_points", "width", "depth", "steps"):
            if getattr(self, name) < 1:
                raise InputError(f"need {name} >= 1, got {getattr(self, name)}")


def toy_data(num_points: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs in two clusters with a gap, noise that grows to the right."""
    rng = np.random.default_rng(seed)
    left = rng.uniform(-1.0, -0.35, num_points // 2)
    right = rng.uniform(0.3, 0.95, num_points - num_points // 2)
    x = np.concatenate([left, right])
    noise = np.where(x < 0, 0.15, 0.3) * rng.normal(size=x.size)
    return x, 0.7 * np.sin(3.5 * x) + noise


def toy(
    config: ToyConfig, progress: Callable[[str, int, int], None] = lambda *_: None
) -> dict[str, np.ndarray]:
    """Train both models; quantile curves at levels 0.1 … 0.9 over x in [−1.5, 1.5].

    `progress` gets the model's name, the steps done and the steps in all.
    """
    x, y = toy_data(config.num_points, config.seed)
    grid = np.linspace(-1.5, 1.5, 241)
    key = jax.random.key(config.seed)
    members: dict[str, Projection] = {
        "categorical": Categorical(num_atoms=config.num_atoms, z_min=-2.0, z_max=2.0),
        "quantile": Quantile(num_atoms=config.num_atoms),
    }
    results = {"x": x, "y": y, "grid": grid, "levels": LEVELS}
    for name, projection in members.items():
        results[name] = np.asarray(
            _fit(config, projection, x, y, grid, key, lambda *at, name=name: progress(name, *at))
        )
    return results


def _fit(
    config: ToyConfig,
    projection: Projection,
    x: np.ndarray,
    y: np.ndarray,
    grid: np.ndarray,
    key: PRNGKeyArray,
    progress: Callable[[int, int], None],
) -> Float[Array, "G L"]:
    network = eqx.nn.MLP(1, config.num_atoms, config.width, config.depth, key=key)
    params, static = eqx.partition(network, eqx.is_array)
    optimiser = optax.adam(config.learning_rate)
    inputs = jnp.asarray(x, jnp.float32)[:, None]
    targets = Atoms(
        locations=jnp.asarray(y, jnp.float32)[:, None], probs=jnp.ones((len(y), 1), jnp.float32)
    )

    def batch_loss(params: eqx.nn.MLP) -> Float[Array, ""]:
        theta = jax.vmap(eqx.combine(params, static))(inputs)
        return jnp.mean(jax.vmap(projection.loss)(theta, targets))

    def step(_: Array, carry: PyTree) -> PyTree:
        params, state = carry
        updates, state = optimiser.update(jax.grad(batch_loss)(params), state)
        return optax.apply_updates(params, updates), state

    @jax.jit
    def advance(carry: PyTree, steps: Array) -> PyTree:
        return jax.lax.fori_loop(0, steps, step, carry)

    carry = (params, optimiser.init(params))
    done = 0
    while done < config.steps:
        chunk = min(max(1, config.steps // 20), config.steps - done)
        carry = jax.block_until_ready(advance(carry, jnp.asarray(chunk)))
        done += chunk
        progress(done, config.steps)
    fitted = eqx.combine(carry[0], static)
    levels = jnp.asarray(LEVELS, jnp.float32)
    return jax.vmap(lambda at: quantile(projection.decode(fitted(at)), levels))(
        jnp.asarray(grid, jnp.float32)[:, None]
    )
