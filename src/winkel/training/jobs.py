"""The jobs of a row of lanes, from the plans of their runs."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from winkel.agents.base import Spec
from winkel.training.device import Job
from winkel.training.reports import Plan
from winkel.training.steps import Horizon


def jobs_of(plans: Sequence[Plan], spec: Spec, masked: bool) -> Job:
    """One job for each plan; `masked` where some runs of the program have actions of their own."""
    available = np.array([plan.available or spec.num_actions for plan in plans], np.int32)
    return Job(
        params=_stacked([plan.params for plan in plans]),
        hyper=_stacked([plan.hyper for plan in plans]),
        horizon=Horizon(
            episodes=jnp.array([plan.horizon.episodes for plan in plans], jnp.int32),
            steps=jnp.array([plan.horizon.steps for plan in plans], jnp.int32),
        ),
        key=jax.vmap(_key)(
            np.array([plan.seed for plan in plans], np.uint32),
            np.array([plan.copy for plan in plans], np.uint32),
        ),
        fan_in=jnp.array([plan.fan_in or spec.inputs for plan in plans], float),
        available=jnp.asarray(available) if masked else None,
    )


def _key(seed: Any, copy: Any) -> Any:
    """That of the seed; copies are far from what a run folds into its key itself."""
    key = jax.random.key(seed)
    return jax.lax.select(copy == 0, key, jax.random.fold_in(key, 1_000_000 + copy))


def _stacked(trees: list[Any]) -> Any:
    """On the host first: one transfer for each leaf, not one for each leaf of each tree."""
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *trees)
