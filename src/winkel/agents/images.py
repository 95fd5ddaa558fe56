"""One body under all of an agent's networks, where it sees images.

On images, value members, bonus members and priors are heads on the features of one body, as in the
paper (App. B). The losses of all of them, of values and of bonuses, flow into it; priors see the
features without a gradient. On other observations there is no body, and networks see those.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from winkel.agents import base
from winkel.agents.base import Spec
from winkel.agents.settings import Settings
from winkel.networks import MLP, Body, Ensemble
from winkel.networks.body import head
from winkel.networks.impala import Impala, num_features
from winkel.types import Image, Transition


class Shared(NamedTuple):
    """A body as it is learned, with a target of its own as networks have."""

    body: Body
    target_body: Body
    opt_state: PyTree


class Seen(NamedTuple):
    """A batch as networks see it.

    Attributes:
        transitions: with features instead of observations where there is a body, the online one's.
        later: the target body's features of `next_obs`; None without a body.
        shared: the body, its spectra a step further; None without one.
        pull: the gradient of the torso from that in the features of `obs`; None without a body.
    """

    transitions: Transition
    later: Float[Array, "B F"] | None
    shared: Shared | None
    pull: Callable[[Array], tuple[Impala]] | None


def init(key: PRNGKeyArray, spec: Spec, settings: Settings) -> Shared | None:
    """A fresh body where observations are images."""
    if not isinstance(spec.observation, Image):
        return None
    body = Body.init(
        key,
        spec.observation,
        multiplier=settings.channels,
        normalise=settings.spectral,
        dtype=settings.compute,
        slope=settings.he_slope,
    )
    return Shared(body=body, target_body=body, opt_state=base.init_adam(body.torso))


def network(
    key: PRNGKeyArray,
    spec: Spec,
    settings: Settings,
    hidden: tuple[int, ...],
    outputs: tuple[int, int],
    aligned: bool = False,
) -> MLP:
    """A network of observations, or a head on the features of images."""
    if isinstance(spec.observation, Image):
        return head(key, num_features(settings.channels), hidden, outputs, settings.he_slope)
    return MLP.init(
        key,
        inputs=spec.inputs,
        one_hot=spec.one_hot,
        hidden=hidden,
        outputs=outputs,
        fan_in=spec.fan_in,
        triangle=spec.triangle,
        aligned=aligned,
    )


def networks(
    key: PRNGKeyArray,
    count: int,
    spec: Spec,
    settings: Settings,
    hidden: tuple[int, ...],
    outputs: tuple[int, int],
    aligned: bool = False,
) -> Ensemble:
    """`count` independent networks."""
    keys = jax.random.split(key, count)
    make = jax.vmap(lambda k: network(k, spec, settings, hidden, outputs, aligned))
    return Ensemble(members=make(keys))


def features(shared: Shared | None, obs: Array) -> Array:
    """What networks see of one observation: features of an image, else the observation."""
    return obs if shared is None else shared.body(obs[None])[0]


def see(shared: Shared | None, transitions: Transition, ahead: bool = True) -> Seen:
    """A batch through the body: once at `obs`, once at `next_obs`, once more by the target body.

    Only the first has a gradient. Where nobody asks the online networks about `next_obs`, which
    `ahead` tells, there is no second.
    """
    if shared is None:
        return Seen(transitions=transitions, later=None, shared=None, pull=None)
    body = shared.body.sharpened()
    obs, pull = jax.vjp(lambda torso: with_torso(body, torso)(transitions.obs), body.torso)
    later = shared.target_body(transitions.next_obs)
    next_obs = body(transitions.next_obs) if ahead else later
    return Seen(
        transitions=transitions._replace(obs=obs, next_obs=next_obs),
        later=later,
        shared=shared._replace(body=body),
        pull=pull,
    )


def with_torso(body: Body, torso: Impala) -> Body:
    """The body with another torso."""
    return eqx.tree_at(lambda b: b.torso, body, torso)
