"""Several networks of one shape as one, with fixed random priors where asked for."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from winkel.networks.torso import MLP, FanIn


class Ensemble(eqx.Module):
    """M networks, their weights stacked, so that all run as one batched product."""

    members: MLP

    @classmethod
    def init(
        cls,
        key: PRNGKeyArray,
        count: int,
        *,
        inputs: int,
        one_hot: bool,
        hidden: tuple[int, ...],
        outputs: tuple[int, int],
        fan_in: FanIn | None = None,
        triangle: bool = False,
        aligned: bool = False,
    ) -> "Ensemble":
        """`count` independent networks."""

        def member(k: PRNGKeyArray) -> MLP:
            return MLP.init(
                k,
                inputs=inputs,
                one_hot=one_hot,
                hidden=hidden,
                outputs=outputs,
                fan_in=fan_in,
                triangle=triangle,
                aligned=aligned,
            )

        return cls(members=jax.vmap(member)(jax.random.split(key, count)))

    def __call__(self, obs: Array) -> Float[Array, "M A K"]:
        """Outputs of every member for one observation."""
        return jax.vmap(lambda member: member(obs))(self.members)


def with_prior(
    outputs: Float[Array, "M A K"],
    prior: Float[Array, "P A K"] | None,
    scale: Float[Array, ""] | float,
    carriers: tuple[int, ...],
) -> Float[Array, "M A K"]:
    """Outputs with the scaled prior networks' added for the members that carry one.

    A randomized prior function (Osband et al. 2018) is a fixed random network of the same
    architecture; it is added to the logits of a categorical model, before the softmax. Members
    without a prior have no network for it, so that it costs nothing.
    """
    if prior is None:
        return outputs
    if carriers == tuple(range(outputs.shape[0])):
        return outputs + scale * jax.lax.stop_gradient(prior)
    return outputs.at[jnp.array(carriers)].add(scale * jax.lax.stop_gradient(prior))
