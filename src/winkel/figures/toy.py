"""Fig. 1: a categorical and a quantile model of the same data differ where there is none."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree
from matplotlib.figure import Figure

from winkel.distributions import quantile
from winkel.figures import style
from winkel.files import Arrays
from winkel.projections import Categorical, Projection, Quantile
from winkel.types import Atoms

LEVELS = np.linspace(0.1, 0.9, 9)

_NUM_POINTS, _NUM_ATOMS = 300, 101
_WIDTH, _DEPTH = 64, 2  # of both networks
_LEARNING_RATE, _STEPS = 1e-3, 1_000


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """Train both models; quantile curves at levels 0.1 … 0.9 over x in [−1.5, 1.5]."""
    x, y = _sample_data(seed)
    grid = np.linspace(-1.5, 1.5, 241)
    results = {"x": x, "y": y, "grid": grid, "levels": LEVELS}
    for name, kind in (("categorical", Categorical), ("quantile", Quantile)):
        predict = _fit(kind.spanning(_NUM_ATOMS, -2.0, 2.0), x, y, seed)
        results[name] = np.asarray(predict(jnp.asarray(grid, jnp.float32)[:, None]))
    return results


def _sample_data(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs in two clusters with a gap; the noise is larger on the right."""
    rng = np.random.default_rng(seed)
    left = rng.uniform(-1.0, -0.35, _NUM_POINTS // 2)
    right = rng.uniform(0.3, 0.95, _NUM_POINTS - _NUM_POINTS // 2)
    x = np.concatenate([left, right])
    noise = np.where(x < 0, 0.15, 0.3) * rng.normal(size=x.size)
    return x, 0.7 * np.sin(3.5 * x) + noise


def _fit(
    projection: Projection, x: np.ndarray, y: np.ndarray, seed: int
) -> Callable[[Float[Array, "G 1"]], Float[Array, "G L"]]:
    """Train a network by the projection's loss; return its quantiles as a function of inputs."""
    network = eqx.nn.MLP(1, _NUM_ATOMS, _WIDTH, _DEPTH, key=jax.random.key(seed))
    params, static = eqx.partition(network, eqx.is_array)
    optimizer = optax.adam(_LEARNING_RATE)
    inputs, locations = (jnp.asarray(values, jnp.float32)[:, None] for values in (x, y))
    targets = Atoms(locations=locations, probs=jnp.ones_like(locations))

    def batch_loss(params: eqx.nn.MLP) -> Float[Array, ""]:
        theta = jax.vmap(eqx.combine(params, static))(inputs)
        return jnp.mean(jax.vmap(projection.loss)(theta, targets))

    def step(_: Array, carry: PyTree) -> PyTree:
        params, state = carry
        updates, state = optimizer.update(jax.grad(batch_loss)(params), state)
        return optax.apply_updates(params, updates), state

    params, _ = jax.lax.fori_loop(0, _STEPS, step, (params, optimizer.init(params)))
    fitted = eqx.combine(params, static)
    levels = jnp.asarray(LEVELS, jnp.float32)
    return jax.vmap(lambda at: quantile(projection.decode(fitted(at)), levels))


def draw(results: Arrays) -> Figure:
    """Draw quantile curves, with bands between symmetric levels and the median in bold."""
    figure = style.new_figure(height=2.3, width=4.6)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    levels, grid = results["levels"], results["grid"]
    middle = len(levels) // 2
    for axes, letter, name in zip(panels, "ab", ("categorical", "quantile"), strict=True):
        curves, colour = results[name], style.PROJECTIONS[name]  # [G, L]
        for low, high in zip(curves.T[:middle], curves.T[::-1], strict=False):
            axes.fill_between(grid, low, high, color=colour, alpha=0.09, linewidth=0)
        for index, curve in enumerate(curves.T):
            weight = 1.3 if index == middle else 0.6
            axes.plot(grid, curve, color=colour, linewidth=weight, solid_joinstyle="round")
        data = {"color": style.INK, "markersize": 1.6, "alpha": 0.55, "mew": 0}
        axes.plot(results["x"], results["y"], "o", **data)
        axes.set_title(f"({letter}) {name} projection", pad=4)
        axes.set(xlabel="$x$", xlim=(grid[0], grid[-1]), xticks=[-1, 0, 1])
    panels[0].set_ylabel("$y$")
    reach = 1.4 * np.abs(results["y"]).max()
    panels[0].set_ylim(-reach, reach)
    return figure
