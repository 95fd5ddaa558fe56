"""From a loss to a learner that has taken a step: gradients, clipping, Adam, target networks."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from winkel.agents import base
from winkel.agents.base import Number
from winkel.agents.images import Seen, Shared, with_torso
from winkel.agents.settings import Settings
from winkel.networks.batched import RowGradient
from winkel.types import Clock

Learner = TypeVar("Learner", bound=Any)
"""A NamedTuple of `params`, `target_params` and `opt_state` that are of one structure."""


class Lesson(NamedTuple):
    """What a loss says of a batch.

    Attributes:
        total: the loss.
        losses: of each transition.
        gradients: in the parameters.
        slopes: the gradient in the features of `obs`, None where there is no body.
    """

    total: Float[Array, ""]
    losses: Float[Array, " B"]
    gradients: PyTree
    slopes: Float[Array, "B F"] | None


class Rule(NamedTuple):
    """How to go down a gradient."""

    learning_rate: Number
    epsilon: float
    target_period: int
    clip_norm: float = 0.0

    @classmethod
    def of(cls, settings: Settings, learning_rate: Number, batch_size: int) -> "Rule":
        """As the settings have it."""
        return cls(
            learning_rate=learning_rate,
            epsilon=settings.adam_epsilon / batch_size,
            target_period=settings.target_period,
            clip_norm=settings.clip_norm,
        )


def differentiated(
    loss: Callable[[Any, Array], tuple[Array, Array]], params: PyTree, seen: Seen
) -> Lesson:
    """The gradient of a loss of parameters and of what they see at `obs`, both parts of it."""
    obs = seen.transitions.obs
    if seen.shared is None:
        (total, losses), gradients = jax.value_and_grad(loss, has_aux=True)(params, obs)
        return Lesson(total, losses, gradients, slopes=None)
    both = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
    (total, losses), (gradients, slopes) = both(params, obs)
    return Lesson(total, losses, gradients, slopes)


def descended(learner: Learner, seen: Seen, lesson: Lesson, clock: Clock, rule: Rule) -> Learner:
    """The learner after a step of Adam on its networks and, in `learner.shared`, on the body."""
    torso = pulled(seen, lesson.slopes)
    gradients, torso = clipped(
        (lesson.gradients, torso), (learner.params, of_torso(seen)), rule.clip_norm
    )
    learner = stepped(learner, gradients, clock, rule)
    return learner._replace(shared=body_stepped(seen.shared, torso, clock, rule))


def pulled(seen: Seen, slopes: Float[Array, "B F"] | None) -> PyTree:
    """The torso's gradient, None where there is no body."""
    return None if seen.pull is None or slopes is None else seen.pull(slopes)[0]


def summed(*slopes: Float[Array, "B F"] | None) -> Float[Array, "B F"] | None:
    """What several losses say of the features; None where there is no body."""
    there = [x for x in slopes if x is not None]
    return sum(there[1:], there[0]) if there else None


def of_torso(seen: Seen) -> PyTree:
    """The torso, None where there is no body."""
    return None if seen.shared is None else seen.shared.body.torso


def stepped(learner: Learner, gradients: PyTree, clock: Clock, rule: Rule) -> Learner:
    """A step of Adam, and where it is due the copy into the target network."""
    params, opt_state = base.adam(
        learner.params, gradients, learner.opt_state, rule.learning_rate, rule.epsilon
    )
    target_params = base.copied_every(rule.target_period, clock, params, learner.target_params)
    return learner._replace(params=params, target_params=target_params, opt_state=opt_state)


def body_stepped(
    shared: Shared | None, gradients: PyTree, clock: Clock, rule: Rule
) -> Shared | None:
    """The same for a body, whose spectra are copied with it."""
    if shared is None:
        return None
    torso, opt_state = base.adam(
        shared.body.torso, gradients, shared.opt_state, rule.learning_rate, rule.epsilon
    )
    body = with_torso(shared.body, torso)
    target_body = base.copied_every(rule.target_period, clock, body, shared.target_body)
    return Shared(body=body, target_body=target_body, opt_state=opt_state)


def clipped(gradients: PyTree, params: PyTree, most: float) -> PyTree:
    """Gradients of parameters, shortened together to a global norm of `most` where it is more.

    0 leaves them as they are. The gradient of a table may be given by its rows.
    """
    if not most:
        return gradients
    scale = jnp.minimum(1.0, most / jnp.maximum(global_norm(gradients, params), 1e-12))

    def scaled(_: Array, gradient: Array | RowGradient) -> Array | RowGradient:
        if isinstance(gradient, RowGradient):
            return gradient._replace(values=scale * gradient.values)
        return scale * gradient

    return jax.tree.map(scaled, params, gradients)


def global_norm(gradients: PyTree, params: PyTree) -> Float[Array, ""]:
    """The length of all gradients as one vector."""

    def vector(param: Array, gradient: Array | RowGradient) -> Float[Array, " N"]:
        if not isinstance(gradient, RowGradient):
            return gradient.ravel()
        rows, values = gradient.merged(param.shape[1])
        there = (rows < param.shape[1])[None, :, None]
        return jnp.where(there, values, 0.0).ravel()

    vectors = jax.tree.leaves(jax.tree.map(vector, params, gradients))
    return jnp.linalg.norm(jnp.concatenate(vectors))
