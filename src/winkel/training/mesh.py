"""Lanes over several devices of one machine: each runs its share of them.

A device's share is a program of its own, compiled for as many lanes as it has (`shard_map`): no
device waits for another, kernels need not know of it, and a lane's numbers are those that it has in
a program of that many lanes on one device.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from winkel.errors import InputError

AXIS = "lanes"


def mesh_of(devices: int) -> Mesh | None:
    """The first devices of this machine; None for one, which needs no mesh."""
    found = jax.local_devices()
    if not 1 <= devices <= len(found):
        raise InputError(
            f"need 1 to {len(found)} devices, which this machine has "
            f"({found[0].device_kind}), got {devices}"
        )
    return None if devices == 1 else Mesh(np.array(found[:devices]), (AXIS,))


def everywhere(function: Callable[..., Any], mesh: Mesh | None) -> Callable[..., Any]:
    """A function of the environment and of one lane's arrays, for all lanes on all devices."""

    def batched(env: Any, *arrays: Any) -> Any:
        return jax.vmap(lambda *one: function(env, *one))(*arrays)

    if mesh is None:
        return batched

    def spread(env: Any, *arrays: Any) -> Any:
        shares = (PartitionSpec(), *(PartitionSpec(AXIS) for _ in arrays))
        return jax.shard_map(
            batched, mesh=mesh, in_specs=shares, out_specs=PartitionSpec(AXIS), check_vma=False
        )(env, *arrays)

    return spread


def shared_out(tree: Any, mesh: Mesh | None) -> Any:
    """Arrays over lanes, each device with its share."""
    return _put(tree, mesh, PartitionSpec(AXIS))


def copied(tree: Any, mesh: Mesh | None) -> Any:
    """Arrays that every device has all of."""
    return _put(tree, mesh, PartitionSpec())


def _put(tree: Any, mesh: Mesh | None, spec: PartitionSpec) -> Any:
    return tree if mesh is None else jax.device_put(tree, NamedSharding(mesh, spec))


def described(shape: tuple[int, ...], dtype: Any, mesh: Mesh | None) -> jax.ShapeDtypeStruct:
    """An array over lanes of which only this is known."""
    sharding = None if mesh is None else NamedSharding(mesh, PartitionSpec(AXIS))
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
