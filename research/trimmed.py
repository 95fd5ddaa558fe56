"""`winkel.kernels.judge` with one change: levels at both ends may be left out of the distance."""

# isort: skip_file
# The imports are those of commit aeff97a, which these scripts run on.

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array

from winkel.kernels import tiles
from winkel.kernels.judge import Judgement
from winkel.kernels.laws import (
    Reader,
    Said,
    Shape,
    Shelf,
    given,
    given_specs,
    slots,
    softmax,
    sorted_values,
)


def _kernel(shape: Shape, apart: bool, interpret: bool, *refs: Any) -> None:
    *said_refs, scales_ref, value_ref, distance_ref, shelf_ref = refs
    pair, size = shape.pair, shape.size
    low, high, prior_scale, trim = (scales_ref[i] for i in range(4))
    reader = Reader(said_refs, shape, pl.program_id(1) * size, prior_scale)
    at = jnp.arange(slots(size))
    inside = at < size
    spacing = (high - low) / (size - 1)
    theta = reader.row(pair.quantile, 0.0)
    probs, _ = softmax(reader.row(pair.categorical, -jnp.inf))
    mean = jnp.sum(theta) / size + low + spacing * jnp.sum(probs * at)
    value_ref[...] = 0.5 * mean
    if not apart:
        distance_ref[...] = jnp.zeros(())
        return
    shelf = Shelf(shelf_ref, interpret)
    places = sorted_values(jnp.where(inside, (theta - low) / spacing, jnp.inf))
    mass, moment = jnp.cumsum(probs), jnp.cumsum(probs * at)
    shelf.put((0, mass), (1, moment))
    begin = at.astype(jnp.float32) / size
    reached = shelf.count_below(0, size, begin, strictly=True)
    before = jnp.where(reached > 0, shelf.get(0, reached - 1), 0.0)
    moment_before = jnp.where(reached > 0, shelf.get(1, reached - 1), 0.0)
    place_reached = jnp.minimum(reached, size - 1).astype(jnp.float32)
    integral = moment_before + place_reached * (begin - before)
    shelf.put((2, integral))
    end = begin + 1.0 / size
    width_integral = shelf.get(2, jnp.minimum(at + 1, slots(size) - 1)) - integral
    bounded = jnp.clip(places, -1.0, float(size))
    index = jnp.floor(bounded).astype(jnp.int32)
    crossed = jnp.where(index >= 0, shelf.get(0, jnp.minimum(index, size - 1)), 0.0)
    moment_crossed = jnp.where(index >= 0, shelf.get(1, jnp.minimum(index, size - 1)), 0.0)
    level = jnp.clip(crossed, begin, end)
    integral_at = jnp.where(
        crossed <= begin, integral,
        jnp.where(crossed >= end, integral + width_integral, moment_crossed),
    )  # fmt: skip
    finite = jnp.where(inside, places, 0.0)
    cost = finite * (2.0 * level - begin - end) + width_integral - 2.0 * (integral_at - integral)
    kept = inside & (begin >= trim - 1e-6) & (end <= 1.0 - trim + 1e-6)
    distance_ref[...] = spacing * jnp.sum(jnp.where(kept, cost, 0.0)) / (1.0 - 2.0 * trim)


def judge(
    said: Said,
    shape: Shape,
    ends: tuple[Array, Array],
    prior_scale: Array | float = 0.0,
    trim: Array | float = 0.0,
    *,
    apart: bool = True,
    interpret: bool = False,
) -> Judgement:
    """Mean and w_1 of every action, w_1 averaged over the levels from `trim` to 1 − `trim`."""
    batch = said.products.shape[1]
    scales = jnp.stack([jnp.asarray(x, jnp.float32) for x in (*ends, prior_scale, trim)])
    number = pl.BlockSpec((None, None), lambda example, action: (example, action))
    result = jax.ShapeDtypeStruct((batch, shape.actions), jnp.float32)
    shelf = (3, slots(shape.size)) if apart else (1, 1)
    value, distance, _ = pl.pallas_call(
        partial(_kernel, shape, apart, interpret),
        grid=(batch, shape.actions),
        in_specs=[*given_specs(said), pl.BlockSpec((4,), lambda *_: (0,))],
        out_specs=[
            number,
            number,
            pl.BlockSpec((None, None, *shelf), lambda example, action: (example, action, 0, 0)),
        ],
        out_shape=[
            result,
            result,
            jax.ShapeDtypeStruct((batch, shape.actions, *shelf), jnp.float32),
        ],
        compiler_params=tiles.params(1),
        interpret=interpret,
        name="judge",
    )(*given(said), scales)
    return Judgement(value=value, distance=distance)
