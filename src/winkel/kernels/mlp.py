"""The forward pass of an ensemble of networks with one hidden layer.

Everything is for one lane: weights `[M, …]`, one batch. `jax.vmap` adds the lanes. Products are in
tf32, as XLA's are on the same chip; the large ones are left to XLA.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu
from jaxtyping import Array, Float, Int8

from winkel.kernels import common
from winkel.kernels.common import SMALLEST, member, power_of_two, span, tile, whole


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
    values, *more = common.kernel_call(
        "hidden",
        partial(_hidden_kernel, height, width),
        warps=4,
        grid=(members, pl.cdiv(units, width), batch // height),
        in_specs=[whole(*obs.shape), member(inputs, units), member(units)],
        out_specs=[member(batch, units), member(units, batch)][: 1 + active],
        out_shape=[
            common.floats(members, batch, units),
            jax.ShapeDtypeStruct((members, units, batch), jnp.int8),
        ][: 1 + active],
    )(obs, weights.first, weights.first_bias)
    return values, more[0] if active else None


def _hidden_kernel(
    height: int, width: int, obs_ref: Any, first_ref: Any, bias_ref: Any, out_ref: Any, *more: Any
) -> None:
    batch, inputs = obs_ref.shape
    num_units = bias_ref.shape[0]
    rows = span(pl.program_id(2) * height, height)
    columns = jnp.arange(power_of_two(inputs, SMALLEST))
    units = span(pl.program_id(1) * width, width)
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
