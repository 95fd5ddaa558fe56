"""The backward pass of a network with one hidden layer, and Adam's step.

Adam must read weights, both moments and gradients and write all but the last: seven passes over the
parameters, at the speed of memory. Target networks are written when they are due and not else. The
first layer's gradient is a sum over a batch that is short against its rows; the kernel that makes a
tile of it applies it at once, and it never goes through memory.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu
from jaxtyping import Array, Float, Int, Int8

from winkel.kernels import tiles
from winkel.kernels.mlp import Hidden, Weights
from winkel.kernels.tiles import SMALLEST, member, power_of_two, span, tile, whole

FIRST_DECAY, SECOND_DECAY = 0.9, 0.999
"""Adam's, as in optax."""


class State(NamedTuple):
    """Weights with what goes along with them: Adam's moments and the target network."""

    weights: Weights
    mean: Weights
    square: Weights
    target: Weights


class Step(NamedTuple):
    """What one step of Adam needs, beside gradients.

    Attributes:
        rate: the learning rate.
        steps: made before this one.
        due: whether the target network becomes a copy of the result.
        epsilon: Adam's.
    """

    rate: Float[Array, ""]
    steps: Int[Array, ""]
    due: Array
    epsilon: float


def descend(
    state: State,
    obs: Array,
    activations: Hidden,
    slopes: Float[Array, "M B O"],
    step: Step,
    *,
    interpret: bool = False,
) -> State:
    """The state after one step of Adam.

    `slopes` is the gradient of the loss in the outputs, `activations` what `mlp.hidden` says of
    `obs`, with what is active. Biases are small and left to XLA.
    """
    assert activations.active is not None
    scales = _scales(step)
    below = jnp.einsum("mbo,mho->mhb", slopes, state.weights.last)
    gradient = jnp.einsum("mbh,mbo->mho", activations.values, slopes)
    last = _descend_all([x.last for x in state], gradient, scales, step.epsilon, interpret)
    first, first_slope = _descend_first(
        [x.first for x in state], activations.active, obs, below, scales, step.epsilon, interpret
    )  # fmt: skip
    first_bias = _descend_bias([x.first_bias for x in state], first_slope, scales, step.epsilon)
    last_slope = jnp.sum(slopes, axis=1)
    last_bias = _descend_bias([x.last_bias for x in state], last_slope, scales, step.epsilon)
    return State(*(Weights(*x) for x in zip(first, first_bias, last, last_bias, strict=True)))


def _scales(step: Step) -> Float[Array, " 4"]:
    """Learning rate, the corrections of both moments, and whether the target is due."""
    count = jnp.asarray(step.steps + 1, jnp.float32)
    return jnp.stack(
        [
            jnp.asarray(step.rate, jnp.float32),
            1.0 / (1.0 - FIRST_DECAY**count),
            1.0 / (1.0 - SECOND_DECAY**count),
            jnp.asarray(step.due, jnp.float32),
        ]
    )


def _adam(
    parts: Sequence[Array], gradient: Array, scales: Sequence[Any], epsilon: float
) -> tuple[Array, Array, Array]:
    """Weights and both moments after a step."""
    value, mean, square = parts
    rate, mean_scale, square_scale = scales
    mean = FIRST_DECAY * mean + (1.0 - FIRST_DECAY) * gradient
    square = SECOND_DECAY * square + (1.0 - SECOND_DECAY) * gradient * gradient
    value = value - rate * (mean * mean_scale) / (jnp.sqrt(square * square_scale) + epsilon)
    return value, mean, square


def _descend_bias(
    arrays: list[Array], gradient: Array, scales: Float[Array, " 4"], epsilon: float
) -> tuple[Array, ...]:
    *parts, target = arrays
    value, mean, square = _adam(parts, gradient, list(scales[:3]), epsilon)
    return value, mean, square, jnp.where(scales[3] != 0, value, target)


def _stepped(
    parts: list[Array],
    gradient: Array,
    refs: Any,
    at: Any,
    inside: Array,
    scales_ref: Any,
    epsilon: float,
) -> None:
    """Write what Adam makes of weights and moments and, where it is due, the target's copy."""
    made = _adam(parts, gradient, [scales_ref[i] for i in range(3)], epsilon)
    for ref, new in zip(refs[:3], made, strict=True):
        gpu.store(ref.at[at], new, mask=inside)
    gpu.store(refs[3].at[at], made[0], mask=inside & (scales_ref[3] != 0))


def _all_kernel(length: int, epsilon: float, *refs: Any) -> None:
    gradient_ref, scales_ref = refs[:2]
    flat_refs = refs[6:10]
    at = span(pl.program_id(1) * length, length)
    inside = at < gradient_ref.shape[0]

    def read(ref: Any) -> Array:
        return gpu.load(ref.at[at], mask=inside, other=0.0)

    parts = [read(ref) for ref in flat_refs[:3]]
    _stepped(parts, read(gradient_ref), flat_refs, at, inside, scales_ref, epsilon)


def _descend_all(
    matrices: list[Array],
    gradient: Array,
    scales: Array,
    epsilon: float,
    interpret: bool,
    length: int = 2048,
    warps: int = 4,
) -> list[Array]:
    """Adam's step on matrices whose gradient is there."""
    members = gradient.shape[0]
    shape = gradient.shape
    flat = [x.reshape(members, -1) for x in (gradient, *matrices)]
    size = flat[0].shape[1]
    changed = pl.pallas_call(
        partial(_all_kernel, length, epsilon),
        grid=(members, pl.cdiv(size, length)),
        in_specs=[member(size), whole(4), *[member(size)] * 4],
        out_specs=[member(size)] * 4,
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in flat[1:]],
        input_output_aliases={2 + i: i for i in range(4)},
        compiler_params=tiles.params(warps),
        interpret=interpret,
        name="descend_all",
    )(flat[0], scales, *flat[1:])
    return [x.reshape(shape) for x in changed]


def _first_kernel(
    rows_a_tile: int, turns: int, units_a_tile: int, epsilon: float, *refs: Any
) -> None:
    """Some inputs' weights to some hidden units, whose slopes stay where they are."""
    obs_ref, active_ref, slope_ref, scales_ref = refs[:4]
    matrices, bias_slope_ref = refs[8:12], refs[12]
    num_units, batch = slope_ref.shape
    num_inputs = matrices[0].shape[0]
    examples = jnp.arange(batch)
    units = span(pl.program_id(1) * units_a_tile, units_a_tile)
    group = pl.program_id(2)
    slopes = tile(slope_ref, units, examples, num_units, batch)
    active = gpu.load(
        active_ref.at[units[:, None], examples[None, :]],
        mask=jnp.broadcast_to((units < num_units)[:, None], slopes.shape),
        other=0,
    )
    slopes = jnp.where(active != 0, slopes, 0.0)
    group_sums = jnp.sum(slopes, axis=1)
    gpu.store(bias_slope_ref.at[units], group_sums, mask=(units < num_units) & (group == 0))
    one_hot = len(obs_ref.shape) == 1
    index: Any = gpu.load(obs_ref.at[examples]) if one_hot else None

    def rows_of(number: Any) -> Array:
        return span((group * turns + number) * rows_a_tile, rows_a_tile)

    def read(number: Any) -> list[Array]:
        rows = rows_of(number)
        return [tile(ref, rows, units, num_inputs, num_units) for ref in matrices[:3]]

    def write(number: Any, parts: list[Array], gradient: Array) -> None:
        rows = rows_of(number)
        at = (rows[:, None], units[None, :])
        inside = (at[0] < num_inputs) & (at[1] < num_units)
        _stepped(parts, gradient, matrices, at, inside, scales_ref, epsilon)

    def turn(number: Any, parts: list[Array]) -> list[Array]:
        """Read the next tile, then work on this one."""
        ahead = read(number + 1)
        rows = rows_of(number)
        if one_hot:
            x = jnp.where(rows[:, None] == index[None, :], 1.0, 0.0)
        else:
            x = tile(obs_ref, rows, examples, num_inputs, batch)
        write(number, parts, gpu.dot(x, slopes, trans_b=True))
        return ahead

    jax.lax.fori_loop(0, turns, turn, read(0))


def _descend_first(
    matrices: list[Array],
    active: Int8[Array, "M H B"],
    obs: Array,
    slopes: Float[Array, "M H B"],
    scales: Array,
    epsilon: float,
    interpret: bool,
    rows: int = 32,
    units: int = 64,
    turns: int = 8,
) -> tuple[list[Array], Float[Array, "M H"]]:
    """Adam's step on the first layer, and the gradient in its bias.

    `slopes` is the gradient in what comes out of the hidden units.
    """
    members, num_inputs, num_units = matrices[0].shape
    batch = slopes.shape[2]
    matrix = member(num_inputs, num_units)
    rows = min(rows, power_of_two(num_inputs, SMALLEST))
    units = min(units, power_of_two(num_units, SMALLEST))
    turns = min(turns, pl.cdiv(num_inputs, rows))
    turned = obs if obs.ndim == 1 else obs.T
    *changed, bias_slope = pl.pallas_call(
        partial(_first_kernel, rows, turns, units, epsilon),
        grid=(members, pl.cdiv(num_units, units), pl.cdiv(num_inputs, rows * turns)),
        in_specs=[
            whole(*turned.shape),
            member(num_units, batch),
            member(num_units, batch),
            whole(4),
            *[matrix] * 4,
        ],
        out_specs=[*[matrix] * 4, member(num_units)],
        out_shape=[
            *(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in matrices),
            jax.ShapeDtypeStruct((members, num_units), jnp.float32),
        ],
        input_output_aliases={4 + i: i for i in range(4)},
        compiler_params=tiles.params(4),
        interpret=interpret,
        name="descend_first",
    )(turned, active, slopes, scales, *matrices)
    return changed, bias_slope
