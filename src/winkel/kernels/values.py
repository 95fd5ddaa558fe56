"""Q-values of a pair of a quantile and a categorical model, and their disagreement."""

from functools import partial
from typing import Any

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from winkel.kernels import common
from winkel.kernels.common import Layout, Outputs, floats, padded, read_row, softmax


def _values_kernel(layout: Layout, with_disagreement: bool, *refs: Any) -> None:
    *output_refs, scales_ref, value_ref, distance_ref, scratch = refs
    size = layout.size
    low, high, prior_scale = (scales_ref[i] for i in range(3))
    row = partial(read_row, output_refs, layout, prior_scale, pl.program_id(1))
    at = jnp.arange(padded(size))
    inside = at < size
    spacing = (high - low) / (size - 1)
    theta = row(layout.quantile, 0.0)
    probs, _ = softmax(row(layout.categorical, -jnp.inf))
    mean = jnp.sum(theta) / size + low + spacing * jnp.sum(probs * at)
    value_ref[...] = 0.5 * mean
    if not with_disagreement:
        distance_ref[...] = jnp.zeros(())
        return
    get = partial(common.get, scratch)
    places = common.sort(jnp.where(inside, (theta - low) / spacing, jnp.inf))
    mass, moment = jnp.cumsum(probs), jnp.cumsum(probs * at)
    common.put(scratch, (0, mass), (1, moment))
    # ∫ G⁻¹ up to each level i/K, where quantile i begins.
    begin = at.astype(jnp.float32) / size
    reached = common.count_below(scratch, 0, size, begin, strictly=True)
    before = jnp.where(reached > 0, get(0, reached - 1), 0.0)
    moment_before = jnp.where(reached > 0, get(1, reached - 1), 0.0)
    place_reached = jnp.minimum(reached, size - 1).astype(jnp.float32)
    integral = moment_before + place_reached * (begin - before)
    common.put(scratch, (2, integral))
    end = begin + 1.0 / size
    width_integral = get(2, jnp.minimum(at + 1, padded(size) - 1)) - integral
    # Where quantile i crosses G, if it does between its levels.
    bounded = jnp.clip(places, -1.0, float(size))
    index = jnp.floor(bounded).astype(jnp.int32)
    crossed = jnp.where(index >= 0, get(0, jnp.minimum(index, size - 1)), 0.0)
    moment_crossed = jnp.where(index >= 0, get(1, jnp.minimum(index, size - 1)), 0.0)
    level = jnp.clip(crossed, begin, end)
    integral_at = jnp.where(
        crossed <= begin, integral,
        jnp.where(crossed >= end, integral + width_integral, moment_crossed),
    )  # fmt: skip
    finite = jnp.where(inside, places, 0.0)
    cost = finite * (2.0 * level - begin - end) + width_integral - 2.0 * (integral_at - integral)
    distance_ref[...] = spacing * jnp.sum(jnp.where(inside, cost, 0.0))


def q_values_and_disagreement(
    outputs: Outputs,
    layout: Layout,
    scales: Float[Array, "3"],
    *,
    with_disagreement: bool = True,
) -> tuple[Float[Array, "B A"], Float[Array, "B A"]]:
    """Means of the mixture and, if asked for, w_1 of both models.

    `scales` are the ends of the categories and the factor of the priors.
    w_1 = Σ_i ∫ |θ_(i) − G⁻¹(τ)| dτ over the levels from (i − 1)/K to i/K of the i-th quantile; on
    each, G⁻¹ crosses θ_(i) at most once, at the level G(θ_(i)).
    """
    batch = outputs.products.shape[1]
    number = pl.BlockSpec((None, None), lambda example, action: (example, action))
    result = floats(batch, layout.actions)
    scratch = (3, padded(layout.size)) if with_disagreement else (1, 1)
    q_values, disagreement, _ = common.kernel_call(
        "q_values_and_disagreement",
        partial(_values_kernel, layout, with_disagreement),
        warps=1,
        grid=(batch, layout.actions),
        in_specs=[*outputs.specs(), pl.BlockSpec((3,), lambda *_: (0,))],
        out_specs=[
            number,
            number,
            pl.BlockSpec((None, None, *scratch), lambda example, action: (example, action, 0, 0)),
        ],
        out_shape=[result, result, floats(batch, layout.actions, *scratch)],
    )(*outputs.operands(), scales)
    return q_values, disagreement
