"""Pairs of a quantile and a categorical model: Q-values, disagreement, losses with gradients."""

from functools import partial
from typing import Any

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu
from jaxtyping import Array, Float, Int

from winkel.kernels import common
from winkel.kernels.common import Layout, Outputs, floats, padded, power_of_two, read_row, softmax


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
    outputs: Outputs, layout: Layout, scales: Float[Array, "3"], *, with_disagreement: bool = True
) -> tuple[Float[Array, "B A"], Float[Array, "B A"]]:
    """Means of the mixture and, if asked for, w_1 of both models.

    `scales` are the ends of the support and the factor of the priors.
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


def _loss_kernel(layout: Layout, counts: tuple[int, int], *refs: Any) -> None:
    output_refs, successor_refs = refs[: counts[0]], refs[counts[0] : sum(counts)]
    action_ref, affine_ref, support_ref = refs[sum(counts) : sum(counts) + 3]
    gradient_ref, loss_ref, clipped_ref, scratch = refs[sum(counts) + 3 :]
    size = layout.size
    get, count_below = partial(common.get, scratch), partial(common.count_below, scratch, 0, size)
    at = jnp.arange(padded(size))
    inside, place = at < size, at.astype(jnp.float32)
    low, high, prior_scale = (support_ref[i] for i in range(3))
    reward, discount, weight = (affine_ref[i] for i in range(3))
    action = action_ref[0]
    own = partial(read_row, output_refs, layout, prior_scale, action)
    successor = partial(read_row, successor_refs, layout, prior_scale, action_ref[1])
    spacing = (high - low) / (size - 1)
    last = float(size - 1)

    def beyond(places: Array) -> Array:
        return (places < -1e-4 * last) | (places > last + 1e-4 * last)

    # The target's quantile half, sorted, and its categorical half, an even grid.
    free = successor(layout.quantile, 0.0)
    scaled = (reward + discount * free - low) / spacing
    sorted_places = common.sort(jnp.where(inside, scaled, jnp.inf))
    finite = jnp.where(inside, sorted_places, 0.0)
    clipped = jnp.clip(finite, 0.0, last)
    probs, _ = softmax(successor(layout.categorical, -jnp.inf))
    origin = (reward + discount * low - low) / spacing
    grid = origin + discount * place
    grid_clipped = jnp.clip(grid, 0.0, last)
    common.put(
        scratch,
        (0, sorted_places),
        (1, jnp.cumsum(finite)),
        (2, jnp.cumsum(clipped - jnp.floor(clipped))),
        (3, jnp.cumsum(probs)),
        (4, jnp.cumsum(probs * grid)),
        (5, jnp.cumsum(probs * (grid_clipped - jnp.floor(grid_clipped)))),
    )

    def up_to(row: int, count: Array) -> Array:
        return jnp.where(count > 0, get(row, count - 1), 0.0)

    def count_on_grid(bounds: Array, strictly: bool) -> Array:
        """As `count_below`, for the even grid: a division, put right where it has rounded."""
        guess = jnp.clip((bounds - origin) / jnp.maximum(discount, 1e-12), -1.0, float(size))
        count = jnp.clip(jnp.floor(guess).astype(jnp.int32), 0, size)
        for _ in range(2):
            here = origin + discount * count.astype(jnp.float32)
            more = (here < bounds) if strictly else (here <= bounds)
            count = jnp.where(more & (count < size), count + 1, count)
        level = (origin < bounds) if strictly else (origin <= bounds)
        return jnp.where(discount > 0, count, jnp.where(level, size, 0))

    def both(first: Array, second: Array) -> Array:
        return 0.5 * (first + second)

    def sums(rows: tuple[int, int], free_count: Array, grid_count: Array) -> tuple[Array, Array]:
        """Mass of the first atoms of both halves of the target, and what rows of scratch sum up."""
        mass = both(free_count.astype(jnp.float32) / size, up_to(3, grid_count))
        return mass, both(up_to(rows[0], free_count) / size, up_to(rows[1], grid_count))

    # Quantile regression: mass and moment of the target below each output.
    theta = own(layout.quantile, 0.0)
    places = (theta - low) / spacing
    free_count = count_below(places, strictly=False)
    below, moment = sums((1, 4), free_count, count_on_grid(places, strictly=False))
    overshoot = places * below - moment
    mean = both(jnp.sum(finite) / size, jnp.sum(probs * grid))
    levels = (place + 0.5) / size
    quantile_losses = spacing * (overshoot + levels * (mean - places))

    # Π_C: each atom's mass, shared between its two neighbours on the grid by its fraction.
    edge = (at > 0) & inside
    free_count = jnp.where(edge, count_below(place, strictly=True), 0)
    grid_count = jnp.where(edge, count_on_grid(place, strictly=True), 0)
    free_count, grid_count = (jnp.where(inside, n, size) for n in (free_count, grid_count))
    mass_below, share_below = sums((2, 5), free_count, grid_count)
    common.put(scratch, (6, mass_below), (7, share_below))
    after = jnp.minimum(at + 1, size)
    share = get(7, after) - share_below
    share_before = jnp.where(at > 0, share_below - get(7, at - 1), 0.0)
    target = (get(6, after) - mass_below) - share + share_before
    target = jnp.where(inside, jnp.maximum(target, 0.0), 0.0)

    logits = own(layout.categorical, -jnp.inf)
    model, normaliser = softmax(logits)
    surprise = jnp.where(
        target > 0, target * (jnp.log(jnp.maximum(target, 1e-38)) - logits + normaliser), 0.0
    )
    broken = (mean - mean) + theta * 0.0
    gradients = {
        layout.quantile: weight * (below - levels + broken),
        layout.categorical: weight * (model - target),
    }
    for member, values in gradients.items():
        _store_gradient(gradient_ref, member, layout, action, jnp.where(inside, values, 0.0))
    loss_ref[...] = jnp.sum(jnp.where(inside, quantile_losses + surprise, 0.0))
    outside = jnp.where(inside & beyond(finite), 1.0 / size, 0.0)
    clipped_ref[...] = jnp.sum(both(outside, jnp.where(beyond(grid), probs, 0.0)))


def _store_gradient(ref: Any, member: int, layout: Layout, action: Array, values: Array) -> None:
    """Store the gradient of one action, and zeros for all others and for padding."""
    at = jnp.arange(padded(layout.size))
    for index in range(layout.actions):
        row = jnp.where(action == index, values, 0.0)
        where = index * layout.size + at
        gpu.store(ref.at[member, where], row, mask=at < layout.size)
    used, width = layout.actions * layout.size, ref.shape[1]
    if used < width:
        more = jnp.arange(power_of_two(width - used))
        gpu.store(
            ref.at[member, used + more],
            jnp.zeros(more.shape, jnp.float32),
            mask=more < width - used,
        )


def loss_and_gradient(
    outputs: Outputs,
    successor: Outputs,
    actions: tuple[Int[Array, " B"], Int[Array, " B"]],
    affine: tuple[Float[Array, " B"], Float[Array, " B"], Float[Array, " B"]],
    layout: Layout,
    scales: Float[Array, "3"],
) -> tuple[Float[Array, "2 B O"], Float[Array, " B"], Float[Array, " B"]]:
    """Compare both models with the mixture target, the distribution of reward + discount · Z.

    Return the gradient of each example's loss in the outputs, each example's loss, the sum of both
    models', and the mass of its target beyond the support.

    `outputs` are of the online networks for the observations, `successor` of the target networks
    for the next observations, `actions` at both. `affine` are reward, discount, and the factor of
    each example's gradient; `scales` the ends of the support, and the factor of the priors.
    """
    _, batch, width = outputs.products.shape
    number = pl.BlockSpec((None,), lambda example: (example,))
    scratch = (8, padded(layout.size))
    operands = [outputs.operands(), successor.operands()]
    gradient, losses, clipped, _ = common.kernel_call(
        "loss_and_gradient",
        partial(_loss_kernel, layout, (len(operands[0]), len(operands[1]))),
        warps=1,
        grid=(batch,),
        in_specs=[
            *outputs.specs(),
            *successor.specs(),
            pl.BlockSpec((None, 2), lambda example: (example, 0)),
            pl.BlockSpec((None, 3), lambda example: (example, 0)),
            pl.BlockSpec((3,), lambda *_: (0,)),
        ],
        out_specs=[
            pl.BlockSpec((2, None, width), lambda example: (0, example, 0)),
            number,
            number,
            pl.BlockSpec((None, *scratch), lambda example: (example, 0, 0)),
        ],
        out_shape=[floats(2, batch, width), floats(batch), floats(batch), floats(batch, *scratch)],
    )(
        *operands[0],
        *operands[1],
        jnp.stack(actions, axis=1).astype(jnp.int32),
        jnp.stack(affine, axis=1).astype(jnp.float32),
        scales,
    )
    return gradient, losses, clipped
