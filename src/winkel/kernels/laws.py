"""Laws of a quantile and a categorical model: how far they are apart, and what they should learn.

One program of one warp for each law. Quantiles are sorted in registers, by a network of
comparisons; everything that follows is prefix sums, index arithmetic on the categories' even grid,
and binary search. Locations are measured in steps of that grid, from its lower end.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu
from jaxtyping import Array, Float, Int

from winkel.kernels import tiles
from winkel.kernels.tiles import power_of_two


class Pair(NamedTuple):
    """Which member of an ensemble of two is which."""

    quantile: int
    categorical: int


class Said(NamedTuple):
    """What the networks of a pair say of a batch, as they are computed.

    O is at least A · K: the outputs of the first action come first.

    Attributes:
        products: of the last layer, without its bias.
        bias: of the last layer.
        prior: outputs of the members' priors, of those that carry one.
    """

    products: Float[Array, "2 B O"]
    bias: Float[Array, "2 O"]
    prior: Float[Array, "P B O"] | None = None


class Shape(NamedTuple):
    """What is known of a pair before anything runs.

    Attributes:
        pair: which member is which.
        actions: A.
        size: K.
        carriers: members with a prior.
    """

    pair: Pair
    actions: int
    size: int
    carriers: tuple[int, ...] = ()


class Judgement(NamedTuple):
    """Of every action of every example.

    Attributes:
        value: mean of the mixture.
        distance: w_1 of the two models, 0 where not asked for.
    """

    value: Float[Array, "B A"]
    distance: Float[Array, "B A"]


class Lesson(NamedTuple):
    """What a pair of models should learn from a batch.

    Attributes:
        slopes: gradient of each example's loss in both models' outputs.
        losses: of each example, of both models together.
        clipped: mass of each target beyond the support.
    """

    slopes: Float[Array, "2 B O"]
    losses: Float[Array, " B"]
    clipped: Float[Array, " B"]


class _Shelf(NamedTuple):
    """Rows of memory through which a program's threads hand each other vectors."""

    ref: Any
    interpret: bool

    def put(self, *rows: tuple[int, Array]) -> None:
        """Store vectors, for all threads to see."""
        for row, values in rows:
            gpu.store(self.ref.at[row, jnp.arange(len(values))], values)
        if not self.interpret:
            gpu.debug_barrier()

    def get(self, row: int, index: Array) -> Array:
        """One entry for each thread; indices below 0 count as 0."""
        return gpu.load(self.ref.at[row, jnp.maximum(index, 0)])

    def count_below(self, row: int, size: int, bounds: Array, strictly: bool) -> Array:
        """How many of the `size` increasing numbers of a row are below each bound."""
        found = jnp.zeros_like(bounds, jnp.int32)
        step = power_of_two(size + 1) // 2
        while step:
            probe = self.get(row, found + (step - 1))
            below = probe < bounds if strictly else probe <= bounds
            found = jnp.where(below & (found + step <= size), found + step, found)
            step //= 2
        return found


def _slots(size: int) -> int:
    """Length of vectors, with room for one more than `size`."""
    return power_of_two(size + 1)


def _sorted(values: Array) -> Array:
    """In increasing order, by Batcher's bitonic network; the length is a power of two."""
    length = len(values)
    block = 2
    while block <= length:
        step = block // 2
        while step:
            pairs = values.reshape(length // (2 * step), 2, step)
            row = jax.lax.broadcasted_iota(jnp.int32, pairs.shape, 0)
            second = jax.lax.broadcasted_iota(jnp.int32, pairs.shape, 1)
            falling = ((row * (2 * step)) & block) // block
            low = jnp.broadcast_to(jnp.min(pairs, axis=1)[:, None, :], pairs.shape)
            high = jnp.broadcast_to(jnp.max(pairs, axis=1)[:, None, :], pairs.shape)
            values = jnp.where(second == falling, low, high).reshape(length)
            step //= 2
        block *= 2
    return values


def _softmax(logits: Array) -> tuple[Array, Array]:
    """Probabilities, and the logarithm of their normaliser; padding is −∞."""
    highest = jnp.max(logits)
    weights = jnp.exp(logits - highest)
    total = jnp.sum(weights)
    return weights / total, highest + jnp.log(total)


class _Reader(NamedTuple):
    """Outputs of one example and one action."""

    refs: Any
    shape: Shape
    start: Any
    prior_scale: Any

    def row(self, member: int, other: float) -> Array:
        """Of one member, with its prior."""
        at = jnp.arange(_slots(self.shape.size))
        inside = at < self.shape.size
        products_ref, bias_ref, *prior_refs = self.refs

        def load(ref: Any, index: int, other: float) -> Array:
            return gpu.load(ref.at[index, self.start + at], mask=inside, other=other)

        made = load(products_ref, member, other) + load(bias_ref, member, 0.0)
        if prior_refs and member in self.shape.carriers:
            carrier = self.shape.carriers.index(member)
            made = made + self.prior_scale * load(prior_refs[0], carrier, 0.0)
        return made


def _given(said: Said) -> list[Array]:
    return [said.products, said.bias] + ([] if said.prior is None else [said.prior])


def _given_specs(said: Said) -> list[pl.BlockSpec]:
    """All members' outputs of one example."""

    def rows(array: Array) -> pl.BlockSpec:
        members, _, outputs = array.shape
        return pl.BlockSpec((members, None, outputs), lambda example, *_: (0, example, 0))

    bias = pl.BlockSpec(said.bias.shape, lambda *_: (0, 0))
    return [rows(said.products), bias] + ([] if said.prior is None else [rows(said.prior)])


def _judge_kernel(shape: Shape, apart: bool, interpret: bool, *refs: Any) -> None:
    *said_refs, scales_ref, value_ref, distance_ref, shelf_ref = refs
    pair, size = shape.pair, shape.size
    low, high, prior_scale = (scales_ref[i] for i in range(3))
    reader = _Reader(said_refs, shape, pl.program_id(1) * size, prior_scale)
    at = jnp.arange(_slots(size))
    inside = at < size
    spacing = (high - low) / (size - 1)
    theta = reader.row(pair.quantile, 0.0)
    probs, _ = _softmax(reader.row(pair.categorical, -jnp.inf))
    mean = jnp.sum(theta) / size + low + spacing * jnp.sum(probs * at)
    value_ref[...] = 0.5 * mean
    if not apart:
        distance_ref[...] = jnp.zeros(())
        return
    shelf = _Shelf(shelf_ref, interpret)
    places = _sorted(jnp.where(inside, (theta - low) / spacing, jnp.inf))
    mass, moment = jnp.cumsum(probs), jnp.cumsum(probs * at)
    shelf.put((0, mass), (1, moment))
    # ∫ G⁻¹ up to each level i/K, where quantile i begins.
    begin = at.astype(jnp.float32) / size
    reached = shelf.count_below(0, size, begin, strictly=True)
    before = jnp.where(reached > 0, shelf.get(0, reached - 1), 0.0)
    moment_before = jnp.where(reached > 0, shelf.get(1, reached - 1), 0.0)
    place_reached = jnp.minimum(reached, size - 1).astype(jnp.float32)
    integral = moment_before + place_reached * (begin - before)
    shelf.put((2, integral))
    end = begin + 1.0 / size
    width_integral = shelf.get(2, jnp.minimum(at + 1, _slots(size) - 1)) - integral
    # Where quantile i crosses G, if it does between its levels.
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
    distance_ref[...] = spacing * jnp.sum(jnp.where(inside, cost, 0.0))


def judge(
    said: Said,
    shape: Shape,
    ends: tuple[Array, Array],
    prior_scale: Array | float = 0.0,
    *,
    apart: bool = True,
    interpret: bool = False,
) -> Judgement:
    """Mean and, if asked for, w_1 of every action; the categories span `ends`.

    w_1 = Σ_i ∫ |θ_(i) − G⁻¹(τ)| dτ over the levels from (i − 1)/K to i/K of the i-th quantile; on
    each, G⁻¹ crosses θ_(i) at most once, at the level G(θ_(i)).
    """
    batch = said.products.shape[1]
    scales = jnp.stack([*ends, jnp.asarray(prior_scale, jnp.float32)]).astype(jnp.float32)
    number = pl.BlockSpec((None, None), lambda example, action: (example, action))
    result = jax.ShapeDtypeStruct((batch, shape.actions), jnp.float32)
    shelf = (3, _slots(shape.size)) if apart else (1, 1)
    value, distance, _ = pl.pallas_call(
        partial(_judge_kernel, shape, apart, interpret),
        grid=(batch, shape.actions),
        in_specs=[*_given_specs(said), pl.BlockSpec((3,), lambda *_: (0,))],
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
    )(*_given(said), scales)
    return Judgement(value=value, distance=distance)


class _Half(NamedTuple):
    """Atoms of a target up to some point: their mass, first moment and fractions of a step."""

    mass: Array
    moment: Array
    fraction: Array


def _teach_kernel(shape: Shape, counts: tuple[int, int], interpret: bool, *refs: Any) -> None:
    said_refs, successor_refs = refs[: counts[0]], refs[counts[0] : sum(counts)]
    action_ref, affine_ref, ends_ref = refs[sum(counts) : sum(counts) + 3]
    slopes_ref, loss_ref, clipped_ref, shelf_ref = refs[sum(counts) + 3 :]
    pair, size = shape.pair, shape.size
    shelf = _Shelf(shelf_ref, interpret)
    at = jnp.arange(_slots(size))
    inside, place = at < size, at.astype(jnp.float32)
    low, high, prior_scale = (ends_ref[i] for i in range(3))
    reward, discount, weight = (affine_ref[i] for i in range(3))
    action = action_ref[0]
    reader = _Reader(said_refs, shape, action * size, prior_scale)
    successor = _Reader(successor_refs, shape, action_ref[1] * size, prior_scale)
    spacing = (high - low) / (size - 1)
    last = float(size - 1)

    def beyond(places: Array) -> Array:
        return (places < -1e-4 * last) | (places > last + 1e-4 * last)

    # The target's quantile half, sorted, and its categorical half, an even grid.
    free = successor.row(pair.quantile, 0.0)
    scaled = (reward + discount * free - low) / spacing
    sorted_places = _sorted(jnp.where(inside, scaled, jnp.inf))
    finite = jnp.where(inside, sorted_places, 0.0)
    clipped = jnp.clip(finite, 0.0, last)
    probs, _ = _softmax(successor.row(pair.categorical, -jnp.inf))
    origin = (reward + discount * low - low) / spacing
    grid = origin + discount * place
    grid_clipped = jnp.clip(grid, 0.0, last)
    shelf.put(
        (0, sorted_places),
        (1, jnp.cumsum(finite)),
        (2, jnp.cumsum(clipped - jnp.floor(clipped))),
        (3, jnp.cumsum(probs)),
        (4, jnp.cumsum(probs * grid)),
        (5, jnp.cumsum(probs * (grid_clipped - jnp.floor(grid_clipped)))),
    )

    def up_to(row: int, count: Array) -> Array:
        return jnp.where(count > 0, shelf.get(row, count - 1), 0.0)

    def quantile_half(count: Array) -> _Half:
        return _Half(
            mass=count.astype(jnp.float32) / size,
            moment=up_to(1, count) / size,
            fraction=up_to(2, count) / size,
        )

    def categorical_half(count: Array) -> _Half:
        return _Half(mass=up_to(3, count), moment=up_to(4, count), fraction=up_to(5, count))

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

    # Quantile regression: mass and moment of the target below each output.
    theta = reader.row(pair.quantile, 0.0)
    places = (theta - low) / spacing
    free_half = quantile_half(shelf.count_below(0, size, places, strictly=False))
    grid_half = categorical_half(count_on_grid(places, strictly=False))
    below = both(free_half.mass, grid_half.mass)
    overshoot = places * below - both(free_half.moment, grid_half.moment)
    mean = both(jnp.sum(finite) / size, jnp.sum(probs * grid))
    levels = (place + 0.5) / size
    quantile_losses = spacing * (overshoot + levels * (mean - places))

    # Π_C: each atom's mass, shared between its two neighbours on the grid by its fraction.
    edge = (at > 0) & inside
    free_count = jnp.where(edge, shelf.count_below(0, size, place, strictly=True), 0)
    grid_count = jnp.where(edge, count_on_grid(place, strictly=True), 0)
    free_edge = quantile_half(jnp.where(inside, free_count, size))
    grid_edge = categorical_half(jnp.where(inside, grid_count, size))
    mass_below = both(free_edge.mass, grid_edge.mass)
    share_below = both(free_edge.fraction, grid_edge.fraction)
    shelf.put((6, mass_below), (7, share_below))
    after = jnp.minimum(at + 1, size)
    share = shelf.get(7, after) - share_below
    share_before = jnp.where(at > 0, share_below - shelf.get(7, at - 1), 0.0)
    target = (shelf.get(6, after) - mass_below) - share + share_before
    target = jnp.where(inside, jnp.maximum(target, 0.0), 0.0)

    logits = reader.row(pair.categorical, -jnp.inf)
    model, normaliser = _softmax(logits)
    surprise = jnp.where(
        target > 0, target * (jnp.log(jnp.maximum(target, 1e-38)) - logits + normaliser), 0.0
    )
    broken = (mean - mean) + theta * 0.0
    slopes = {
        pair.quantile: weight * (below - levels + broken),
        pair.categorical: weight * (model - target),
    }
    for member, values in slopes.items():
        _place(slopes_ref, member, shape, action, jnp.where(inside, values, 0.0))
    loss_ref[...] = jnp.sum(jnp.where(inside, quantile_losses + surprise, 0.0))
    outside = jnp.where(inside & beyond(finite), 1.0 / size, 0.0)
    clipped_ref[...] = jnp.sum(both(outside, jnp.where(beyond(grid), probs, 0.0)))


def _place(ref: Any, member: int, shape: Shape, action: Array, values: Array) -> None:
    """One action's slopes, and zeros for all others and for what fills a row up."""
    at = jnp.arange(_slots(shape.size))
    for index in range(shape.actions):
        row = jnp.where(action == index, values, 0.0)
        where = index * shape.size + at
        gpu.store(ref.at[member, where], row, mask=at < shape.size)
    used, width = shape.actions * shape.size, ref.shape[1]
    if used < width:
        more = jnp.arange(power_of_two(width - used))
        gpu.store(
            ref.at[member, used + more],
            jnp.zeros(more.shape, jnp.float32),
            mask=more < width - used,
        )


def teach(
    said: Said,
    successor: Said,
    actions: tuple[Int[Array, " B"], Int[Array, " B"]],
    affine: tuple[Float[Array, " B"], Float[Array, " B"], Float[Array, " B"]],
    shape: Shape,
    ends: tuple[Array, Array],
    prior_scale: Array | float = 0.0,
    *,
    interpret: bool = False,
) -> Lesson:
    """Losses of both models against the mixture target reward + discount · Z, and their gradients.

    `successor` is what the target networks say of the next observations. `actions` are those taken
    and those that follow; `affine` is reward, discount and what scales each example's gradient.
    """
    _, batch, outputs = said.products.shape
    scales = jnp.stack([*ends, jnp.asarray(prior_scale, jnp.float32)]).astype(jnp.float32)
    number = pl.BlockSpec((None,), lambda example: (example,))
    result = jax.ShapeDtypeStruct((batch,), jnp.float32)
    shelf = (8, _slots(shape.size))
    given = [_given(said), _given(successor)]
    slopes, losses, clipped, _ = pl.pallas_call(
        partial(_teach_kernel, shape, (len(given[0]), len(given[1])), interpret),
        grid=(batch,),
        in_specs=[
            *_given_specs(said),
            *_given_specs(successor),
            pl.BlockSpec((None, 2), lambda example: (example, 0)),
            pl.BlockSpec((None, 3), lambda example: (example, 0)),
            pl.BlockSpec((3,), lambda *_: (0,)),
        ],
        out_specs=[
            pl.BlockSpec((2, None, outputs), lambda example: (0, example, 0)),
            number,
            number,
            pl.BlockSpec((None, *shelf), lambda example: (example, 0, 0)),
        ],
        out_shape=[
            jax.ShapeDtypeStruct((2, batch, outputs), jnp.float32),
            result,
            result,
            jax.ShapeDtypeStruct((batch, *shelf), jnp.float32),
        ],
        compiler_params=tiles.params(1),
        interpret=interpret,
        name="teach",
    )(
        *given[0],
        *given[1],
        jnp.stack(actions, axis=1).astype(jnp.int32),
        jnp.stack(affine, axis=1).astype(jnp.float32),
        scales,
    )
    return Lesson(slopes=slopes, losses=losses, clipped=clipped)
