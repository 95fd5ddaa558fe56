"""Arrays with a leading axis of lanes, on one device or spread over several of one machine.

Each device runs a program of its own for its share of the lanes (`shard_map`): no device waits for
another, and the numbers of a lane are those that it has in a program of that many lanes on one
device.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Int

from winkel.errors import InputError

AXIS = "lanes"


def make_mesh(devices: int) -> Mesh | None:
    """The first devices of this machine; None for one, which needs no mesh."""
    found = jax.local_devices()
    if not 1 <= devices <= len(found):
        raise InputError(
            f"need 1 to {len(found)} devices, which this machine has "
            f"({found[0].device_kind}), got {devices}"
        )
    return None if devices == 1 else Mesh(np.array(found[:devices]), (AXIS,))


def per_lane(function: Callable[..., Any], static: Sequence[str] = (), **options: Any) -> Any:
    """Compile a function of an agent, an environment and one lane's arrays for all lanes.

    The program takes the agent, the environment and arrays of all lanes, and by name what is static
    and the mesh of the devices (None for one device).

    Args:
        function: for one lane.
        static: names of further arguments, for each value of which there is a program.
        options: of `jax.jit`.
    """

    def program(agent: Any, env: Any, *arrays: Any, mesh: Mesh | None = None, **named: Any) -> Any:
        def batched(env: Any, *arrays: Any) -> Any:
            return jax.vmap(lambda *one: function(agent, env, *one, **named))(*arrays)

        if mesh is None:
            return batched(env, *arrays)
        shares = (PartitionSpec(), *(PartitionSpec(AXIS) for _ in arrays))
        return jax.shard_map(
            batched, mesh=mesh, in_specs=shares, out_specs=PartitionSpec(AXIS), check_vma=False
        )(env, *arrays)

    program.__name__ = function.__name__.strip("_")
    return jax.jit(program, static_argnames=("agent", "mesh", *static), **options)


def shard_lanes(tree: Any, mesh: Mesh | None) -> Any:
    """Give each device its share of the lanes."""
    return _put(tree, mesh, PartitionSpec(AXIS))


def replicate(tree: Any, mesh: Mesh | None) -> Any:
    """Give each device a copy."""
    return _put(tree, mesh, PartitionSpec())


def _put(tree: Any, mesh: Mesh | None, spec: PartitionSpec) -> Any:
    return tree if mesh is None else jax.device_put(tree, NamedSharding(mesh, spec))


def resized(tree: Any, num_lanes: int, mesh: Mesh | None) -> Any:
    """Shapes and types of the same arrays with another number of lanes."""
    sharding = None if mesh is None else NamedSharding(mesh, PartitionSpec(AXIS))
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((num_lanes, *x.shape[1:]), x.dtype, sharding=sharding), tree
    )


@jax.jit
def select_lane(tree: Any, lane: Int[Array, ""] | int) -> Any:
    """One of many lanes."""
    return jax.tree.map(lambda x: x[lane], tree)


@jax.jit
def replace_lane(tree: Any, lane: Int[Array, ""] | int, one: Any) -> Any:
    """Many lanes, with another one in its place."""
    return jax.tree.map(lambda stacked, x: stacked.at[lane].set(x), tree, one)


@jax.jit
def choose_lanes(which: Bool[Array, "S"], yes: Any, no: Any) -> Any:
    """Lane by lane, one of two pytrees."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(which.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(choose, yes, no)


@jax.jit
def gather_lanes(trees: list[Any], which: Int[Array, "N"]) -> Any:
    """Select lanes of several pytrees, whose lanes are numbered one after the other."""
    return jax.tree.map(lambda *parts: jnp.concatenate(parts)[which], *trees)
