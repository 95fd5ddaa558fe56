"""PE-DQN: deep exploration by the disagreement of a diverse projection ensemble.

Zanger, Böhmer and Spaan (2024), section 4 and Algorithm 1. The members' models of the return
distribution share one mixture target; how far they are apart in w_1 is an intrinsic reward, whose
discounted sum along the exploring policy a second ensemble learns: the bonus of eq. 13.
"""

import dataclasses
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from winkel.agents import base, fused, images
from winkel.agents.base import Spec
from winkel.agents.descent import Rule, descended, differentiated
from winkel.agents.intrinsic import Moments
from winkel.agents.projection_ensemble import Beliefs, Config, Hyper, Learner, Models, Params
from winkel.agents.settings import Settings
from winkel.exploration import epsilon_greedy, linear_decay
from winkel.networks import Ensemble
from winkel.types import Batch, Clock, Decision, Estimates, Image, Update


@dataclass(frozen=True)
class PEDQN:
    """A projection ensemble whose propagated disagreement is the bonus of optimistic choice."""

    config: Config
    spec: Spec
    resting: bool = False
    """Whether the bonus is no longer learned, with the kernels only; see `at_rest`."""

    @property
    def models(self) -> Models:
        """What the networks' outputs mean."""
        return Models(self.config, self.spec)

    def init(self, key: PRNGKeyArray, hyper: Hyper) -> Learner:
        """Independent networks; the target networks start as copies."""
        key_value, key_bonus, key_prior, key_body = (
            jax.random.fold_in(key, use) for use in range(4)
        )
        members, carriers = len(self.config.projections), len(self.config.carriers)
        params = Params(
            value=self._networks(key_value, members),
            bonus=self._networks(key_bonus, members) if self.config.propagate else None,
        )
        return Learner(
            params=params,
            target_params=params,
            prior=self._priors(key_prior, carriers) if carriers else None,
            opt_state=base.init_adam(params),
            shared=images.init(key_body, self.spec, self.config),
            intrinsic=Moments.empty() if self.config.normalise_intrinsic else None,
        )

    def init_actor(self, key: PRNGKeyArray) -> tuple[()]:
        """Nothing to remember."""
        return ()

    def act(
        self,
        learner: Learner,
        actor: tuple[()],
        obs: Array,
        first: Bool[Array, ""],
        clock: Clock,
        hyper: Hyper,
        key: PRNGKeyArray,
    ) -> tuple[Decision, tuple[()]]:
        """Optimistic choice, eq. 13, or with probability ε any."""
        if self._has_kernels():
            value, bonus = fused.judge_one(
                self.config, self.spec, learner, obs, hyper, self.resting
            )
        else:
            beliefs = self._believed(learner, obs, hyper)
            value, bonus = beliefs.value, beliefs.bonus
        available = self.spec.available
        score = base.possible(value, available) + self._beta(clock, hyper) * bonus
        action = epsilon_greedy(key, score, base.epsilon(clock, hyper), available)
        return Decision(action=action), actor

    def update(
        self, learner: Learner, batch: Batch, clock: Clock, hyper: Hyper, key: PRNGKeyArray
    ) -> tuple[Learner, Update]:
        """One step on the sum of all models' losses (Algorithm 1, lines 13–24)."""
        if self._has_kernels():
            return fused.update(self.config, self.spec, learner, batch, clock, hyper, self.resting)
        beta = self._beta(clock, hyper)
        seen = images.see(learner.shared, batch.transitions)
        decay = jnp.broadcast_to(jnp.asarray(batch.decay), batch.weights.shape)
        targets = jax.vmap(lambda *of: self.models.targets(learner, of[0], beta, hyper, *of[1:]))(
            seen.transitions, seen.later, decay
        )

        def loss(params: Params, obs: Array) -> tuple[Float[Array, ""], Float[Array, " B"]]:
            losses = jax.vmap(lambda t, y: self.models.loss(params, learner.prior, t, y, hyper))(
                seen.transitions._replace(obs=obs), targets
            )
            return jnp.mean(batch.weights * losses), losses

        lesson = differentiated(loss, learner.params, seen)
        rule = Rule.of(self.config, hyper.learning_rate, self.config.batch_size)
        learner = descended(learner, seen, lesson, clock, rule)
        if learner.intrinsic is not None:
            moments = learner.intrinsic.with_batch(targets.disagreement)
            learner = learner._replace(intrinsic=moments)
        metrics = {"loss": lesson.total, "beta": beta, "clipped": jnp.mean(targets.clipped)}
        return learner, Update(priorities=lesson.losses, metrics=metrics)

    def estimates(self, learner: Learner, obs: Array, hyper: Hyper) -> Estimates:
        """Members, their disagreement w_avg, and the bonus b_φ."""
        beliefs = self._believed(learner, obs, hyper)
        return Estimates(
            value=beliefs.value,
            members=jax.tree.map(lambda *leaves: jnp.stack(leaves), *beliefs.members),
            disagreement=beliefs.disagreement,
            bonus=beliefs.bonus,
        )

    def member_names(self) -> tuple[str, ...]:
        """The projections."""
        return self.config.projections

    def settled(self, progress: float, hyper: Hyper) -> bool:
        """Whether β is 0 from now on: what is done depends on the values alone."""
        return self._has_kernels() and bool(
            hyper.beta_final == 0.0 and progress >= hyper.beta_decay
        )

    def at_rest(self) -> "PEDQN":
        """The same agent for when it has settled: the bonus stays as it is."""
        return dataclasses.replace(self, resting=True)

    def _networks(self, key: PRNGKeyArray, count: int) -> Ensemble:
        return images.networks(
            key,
            count,
            self.spec,
            self.config,
            self.config.hidden,
            (self.spec.num_actions, self.config.num_atoms),
            aligned=self._knows_kernels(),
        )

    def _priors(self, key: PRNGKeyArray, count: int) -> Ensemble:
        networks = self._networks(key, count)
        return Ensemble(members=jax.vmap(base.tabulated)(networks.members))

    def _knows_kernels(self) -> bool:
        config = self.config
        return (
            config.kernels
            and fused.supports(config, self.spec)
            and not isinstance(self.spec.observation, Image)
            and config.adam_epsilon == Settings.adam_epsilon
            and not config.clip_norm
            and not config.normalise_intrinsic
            and not config.average_bonus
            and (config.n_step == 1 or config.episodic_bonus)
        )

    def _has_kernels(self) -> bool:
        return self._knows_kernels() and jax.default_backend() == "gpu"

    def _beta(self, clock: Clock, hyper: Hyper) -> Float[Array, ""]:
        return linear_decay(hyper.beta, hyper.beta_final, hyper.beta_decay, clock.progress)

    def _believed(self, learner: Learner, obs: Array, hyper: Hyper) -> Beliefs:
        """What the online networks say about an observation as it comes."""
        seen = images.features(learner.shared, obs)
        return self.models.beliefs(learner.params, learner.prior, seen, hyper, learner.intrinsic)
