"""Ensembles of networks with one hidden layer: the forward pass, and Adam's step on the gradient.

Everything is for one lane: weights `[M, …]`, one batch. `jax.vmap` adds the lanes. Products are in
tf32, as XLA's are on the same chip; the large ones are left to XLA.

Adam reads weights, both moments and gradients and writes all but the last: seven passes over the
parameters, at the speed of memory. Target networks are written only when they are due. The first
layer's gradient is a sum over a batch that is short against its rows; the kernel that computes a
tile of it applies it at once, and it is never stored.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu
from jaxtyping import Array, Float, Int, Int8

from winkel.kernels.common import SMALLEST, floats, kernel_call, member, power_of_two, tile, whole

FIRST_DECAY, SECOND_DECAY = 0.9, 0.999
"""Decay of Adam's moments, as in optax."""


class Weights(NamedTuple):
    """An ensemble with one hidden layer of H units and O outputs.

    The first layer is a table of rows where observations are indices; index I is the all-zero one.
    """

    first: Float[Array, "M I H"]
    first_bias: Float[Array, "M H"]
    last: Float[Array, "M H O"]
    last_bias: Float[Array, "M O"]


Hidden = tuple[Float[Array, "M B H"], Int8[Array, "M H B"] | None]
"""Hidden activations of a batch, and whether each is not 0, with the batch last."""


def hidden(weights: Weights, obs: Array, *, active: bool = False) -> Hidden:
    """relu(x W + b) of a batch: indices [B], or dense observations [B, I].

    Which are `active` is computed only if asked for, else None.
    """
    members, inputs, units = weights.first.shape
    if obs.ndim == 1:
        rows = weights.first.at[:, obs].get(mode="clip")
        found = jnp.where((obs < inputs)[None, :, None], rows, 0.0)
        values = jax.nn.relu(found + weights.first_bias[:, None, :])
        turned = (jnp.swapaxes(values, 1, 2) > 0).astype(jnp.int8) if active else None
        return values, turned
    batch = obs.shape[0]
    height, width = min(batch, 128), min(power_of_two(units, SMALLEST), 64)
    values, *more = kernel_call(
        "hidden",
        partial(_hidden_kernel, height, width),
        warps=4,
        grid=(members, pl.cdiv(units, width), batch // height),
        in_specs=[whole(*obs.shape), member(inputs, units), member(units)],
        out_specs=[member(batch, units), member(units, batch)][: 1 + active],
        out_shape=[
            floats(members, batch, units),
            jax.ShapeDtypeStruct((members, units, batch), jnp.int8),
        ][: 1 + active],
    )(obs, weights.first, weights.first_bias)
    return values, more[0] if active else None


def _hidden_kernel(
    height: int, width: int, obs_ref: Any, first_ref: Any, bias_ref: Any, out_ref: Any, *more: Any
) -> None:
    batch, inputs = obs_ref.shape
    num_units = bias_ref.shape[0]
    rows = pl.program_id(2) * height + jnp.arange(height)
    columns = jnp.arange(power_of_two(inputs, SMALLEST))
    units = pl.program_id(1) * width + jnp.arange(width)
    x = tile(obs_ref, rows, columns, batch, inputs)
    product = gpu.dot(x, tile(first_ref, columns, units, inputs, num_units))
    bias = gpu.load(bias_ref.at[units], mask=units < num_units, other=0.0)
    made = jnp.maximum(product + bias[None, :], 0.0)
    inside = jnp.broadcast_to((units < num_units)[None, :], made.shape)
    gpu.store(out_ref.at[rows[:, None], units[None, :]], made, mask=inside)
    for active_ref in more:
        active = (made > 0).astype(jnp.int8).T
        gpu.store(active_ref.at[units[:, None], rows[None, :]], active, mask=inside.T)


def products(activations: Float[Array, "M B H"], weights: Weights) -> Float[Array, "M B O"]:
    """Outputs of the last layer, without its bias."""
    return jnp.einsum("mbh,mho->mbo", activations, weights.last)


def row_products(weights: Weights, obs: Array) -> Float[Array, "M O"]:
    """As `products`, for one observation: an index, or a dense one [I].

    As sums: for matrix products XLA would transpose the matrices in memory.
    """
    if obs.ndim == 0:
        inputs = weights.first.shape[1]
        rows = weights.first.at[:, obs].get(mode="clip")
        found = jnp.where(obs < inputs, rows, 0.0)
    else:
        found = jnp.sum(obs[None, :, None] * weights.first, axis=1)
    active = jax.nn.relu(found + weights.first_bias)
    return jnp.sum(active[:, :, None] * weights.last, axis=1)


State = Sequence[Weights]
"""Weights, Adam's first and second moments of them, and the target network."""


def adam_step(
    state: State,
    obs: Array,
    activations: Hidden,
    gradient: Float[Array, "M B O"],
    scales: Float[Array, " 4"],
    epsilon: float,
) -> State:
    """The state after one step of Adam. Biases are small and left to XLA.

    `obs` are rows of the first layer's table [B], or dense observations [B, I], and `activations`
    the result of `hidden` for them, with `active`. `gradient` is that of the loss in the
    outputs, `scales` the result of `step_scales`.
    """
    values, active = activations
    assert active is not None
    in_hidden = jnp.einsum("mbo,mho->mhb", gradient, state[0].last)
    in_last = jnp.einsum("mbh,mbo->mho", values, gradient)
    last = _step_dense([x.last for x in state], in_last, scales, epsilon)
    first, in_first_bias = _step_first(
        [x.first for x in state], active, obs, in_hidden, scales, epsilon
    )
    first_bias = _step_bias([x.first_bias for x in state], in_first_bias, scales, epsilon)
    in_last_bias = jnp.sum(gradient, axis=1)
    last_bias = _step_bias([x.last_bias for x in state], in_last_bias, scales, epsilon)
    return [Weights(*x) for x in zip(first, first_bias, last, last_bias, strict=True)]


def step_scales(rate: Array, steps: Int[Array, ""], due: Array) -> Float[Array, " 4"]:
    """Learning rate, bias corrections after `steps` earlier steps, whether the target is due."""
    count = jnp.asarray(steps + 1, jnp.float32)
    return jnp.stack(
        [
            jnp.asarray(rate, jnp.float32),
            1.0 / (1.0 - FIRST_DECAY**count),
            1.0 / (1.0 - SECOND_DECAY**count),
            jnp.asarray(due, jnp.float32),
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


def _step_bias(
    arrays: list[Array], gradient: Array, scales: Float[Array, " 4"], epsilon: float
) -> tuple[Array, ...]:
    *parts, target = arrays
    value, mean, square = _adam(parts, gradient, list(scales[:3]), epsilon)
    return value, mean, square, jnp.where(scales[3] != 0, value, target)


def _store_step(
    parts: list[Array],
    gradient: Array,
    refs: Any,
    at: Any,
    inside: Array,
    scales_ref: Any,
    epsilon: float,
) -> None:
    """Store weights and moments after a step and, if it is due, the copy for the target."""
    made = _adam(parts, gradient, [scales_ref[i] for i in range(3)], epsilon)
    for ref, new in zip(refs[:3], made, strict=True):
        gpu.store(ref.at[at], new, mask=inside)
    gpu.store(refs[3].at[at], made[0], mask=inside & (scales_ref[3] != 0))


def _dense_kernel(length: int, epsilon: float, *refs: Any) -> None:
    gradient_ref, scales_ref = refs[:2]
    flat_refs = refs[6:10]
    at = pl.program_id(1) * length + jnp.arange(length)
    inside = at < gradient_ref.shape[0]

    def read(ref: Any) -> Array:
        return gpu.load(ref.at[at], mask=inside, other=0.0)

    parts = [read(ref) for ref in flat_refs[:3]]
    _store_step(parts, read(gradient_ref), flat_refs, at, inside, scales_ref, epsilon)


def _step_dense(
    matrices: list[Array], gradient: Array, scales: Array, epsilon: float
) -> list[Array]:
    """Adam's step on matrices whose gradient has been computed."""
    members, length = gradient.shape[0], 2048
    flat = [x.reshape(members, -1) for x in (gradient, *matrices)]
    size = flat[0].shape[1]
    changed = kernel_call(
        "adam_dense",
        partial(_dense_kernel, length, epsilon),
        warps=4,
        grid=(members, pl.cdiv(size, length)),
        in_specs=[member(size), whole(4), *[member(size)] * 4],
        out_specs=[member(size)] * 4,
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in flat[1:]],
        input_output_aliases={2 + i: i for i in range(4)},
    )(flat[0], scales, *flat[1:])
    return [x.reshape(gradient.shape) for x in changed]


def _first_kernel(
    rows_a_tile: int, turns: int, units_a_tile: int, epsilon: float, *refs: Any
) -> None:
    """Weights of some inputs to some hidden units, whose gradients stay in registers."""
    obs_ref, active_ref, gradient_ref, scales_ref = refs[:4]
    matrices, bias_gradient_ref = refs[8:12], refs[12]
    num_units, batch = gradient_ref.shape
    num_inputs = matrices[0].shape[0]
    examples = jnp.arange(batch)
    units = pl.program_id(1) * units_a_tile + jnp.arange(units_a_tile)
    group = pl.program_id(2)
    in_hidden = tile(gradient_ref, units, examples, num_units, batch)
    active = gpu.load(
        active_ref.at[units[:, None], examples[None, :]],
        mask=jnp.broadcast_to((units < num_units)[:, None], in_hidden.shape),
        other=0,
    )
    in_hidden = jnp.where(active != 0, in_hidden, 0.0)
    group_sums = jnp.sum(in_hidden, axis=1)
    gpu.store(bias_gradient_ref.at[units], group_sums, mask=(units < num_units) & (group == 0))
    one_hot = len(obs_ref.shape) == 1
    index: Any = gpu.load(obs_ref.at[examples]) if one_hot else None

    def rows_of(number: Any) -> Array:
        return (group * turns + number) * rows_a_tile + jnp.arange(rows_a_tile)

    def read(number: Any) -> list[Array]:
        rows = rows_of(number)
        return [tile(ref, rows, units, num_inputs, num_units) for ref in matrices[:3]]

    def turn(number: Any, parts: list[Array]) -> list[Array]:
        """Read the next tile, then compute this one."""
        next_parts = read(number + 1)
        rows = rows_of(number)
        if one_hot:
            x = jnp.where(rows[:, None] == index[None, :], 1.0, 0.0)
        else:
            x = tile(obs_ref, rows, examples, num_inputs, batch)
        at = (rows[:, None], units[None, :])
        inside = (at[0] < num_inputs) & (at[1] < num_units)
        gradient = gpu.dot(x, in_hidden, trans_b=True)
        _store_step(parts, gradient, matrices, at, inside, scales_ref, epsilon)
        return next_parts

    jax.lax.fori_loop(0, turns, turn, read(0))


def _step_first(
    matrices: list[Array],
    active: Int8[Array, "M H B"],
    obs: Array,
    gradient: Float[Array, "M H B"],
    scales: Array,
    epsilon: float,
) -> tuple[list[Array], Float[Array, "M H"]]:
    """Adam's step on the first layer, and the gradient in its bias.

    `gradient` is that in the hidden activations.
    """
    members, num_inputs, num_units = matrices[0].shape
    batch = gradient.shape[2]
    matrix = member(num_inputs, num_units)
    rows = min(32, power_of_two(num_inputs, SMALLEST))
    units = min(64, power_of_two(num_units, SMALLEST))
    turns = min(8, pl.cdiv(num_inputs, rows))
    turned = obs if obs.ndim == 1 else obs.T
    *changed, bias_gradient = kernel_call(
        "adam_first",
        partial(_first_kernel, rows, turns, units, epsilon),
        warps=4,
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
            floats(members, num_units),
        ],
        input_output_aliases={4 + i: i for i in range(4)},
    )(turned, active, gradient, scales, *matrices)
    return changed, bias_gradient
