"""PE-DQN's update on a GPU: the same as in `pe_dqn`, by kernels that keep nothing but parameters.

For the paper's agent (a quantile and a categorical model, the mixture's target, a propagated bonus)
on networks with one hidden layer. What else there is, `pe_dqn` does in plain JAX on every platform;
`tests/agents/test_fused.py` holds the two against each other.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from winkel.agents import base
from winkel.agents.base import Spec
from winkel.exploration import linear_decay
from winkel.kernels import descent, laws, mlp
from winkel.kernels.judge import Judgement, judge
from winkel.kernels.teach import Lesson, teach
from winkel.networks import Ensemble
from winkel.networks.torso import row_of
from winkel.types import Batch, Clock, Update

WIDEST = 128
"""Most numbers in a dense observation; more would not fit beside the weights."""


def supports(config: Any, spec: Spec) -> bool:
    """Whether the kernels know this configuration."""
    batch = config.batch_size
    return (
        sorted(config.projections) == ["categorical", "quantile"]
        and config.backup == "mixture"
        and config.propagate
        and config.intrinsic_reward == "prior"
        and config.distance == "exact"
        and config.huber_width == 0.0
        and len(config.hidden) == 1
        and 16 <= batch <= 256
        and batch & (batch - 1) == 0
        and (spec.one_hot or spec.inputs <= WIDEST)
    )


def judge_one(
    config: Any,
    spec: Spec,
    learner: Any,
    obs: Array,
    hyper: Any,
    resting: bool = False,
    interpret: bool = False,
) -> tuple[Float[Array, " A"], Float[Array, " A"]]:
    """Values and bonuses of one observation; at rest, zeros for the bonuses."""
    lane = _Lane(config, spec, hyper, interpret)
    obs = lane.flat(obs)
    value, bonus = weights_of(learner.params.value), weights_of(learner.params.bonus)
    said = laws.Said(
        mlp.row_products(value, obs)[:, None], value.last_bias, lane.prior(learner.prior, obs)
    )
    judged = lane.judge(said, lane.ends, apart=not resting)
    if resting:
        return judged.value[0], jnp.zeros_like(judged.value[0])
    ahead = laws.Said(mlp.row_products(bonus, obs)[:, None], bonus.last_bias)
    bonuses = lane.judge(ahead, lane.bonus_ends, apart=False).value + judged.distance
    return judged.value[0], bonuses[0]


def update(
    config: Any,
    spec: Spec,
    learner: Any,
    batch: Batch,
    clock: Clock,
    hyper: Any,
    resting: bool = False,
    interpret: bool = False,
) -> tuple[Any, Update]:
    """One step on the sum of all models' losses (Algorithm 1, lines 13–24).

    At rest the bonus stays as it is, and everything else is as it would be: where β is 0, values
    are learned, and actions chosen, without it.
    """
    lane = _Lane(config, spec, hyper, interpret)
    transitions = batch.transitions
    obs, next_obs = lane.flat(transitions.obs), lane.flat(transitions.next_obs)
    value = weights_of(learner.params.value)

    next_prior = lane.prior(learner.prior, next_obs)
    judged = lane.judge(lane.said(value, next_obs, next_prior), lane.ends, apart=not resting)
    greedy = jnp.argmax(base.possible(judged.value, spec.available), axis=-1)

    hidden = mlp.hidden(value, obs, active=True, interpret=interpret)
    lesson = lane.teach(
        laws.Said(
            mlp.products(hidden.values, value), value.last_bias, lane.prior(learner.prior, obs)
        ),
        lane.said(weights_of(learner.target_params.value), next_obs, next_prior),
        (jnp.asarray(transitions.action), greedy),
        (transitions.reward, _discount(batch, hyper, episodic=True), _shares(batch)),
        lane.ends,
    )
    lessons, activations, names = [lesson], [hidden], ["value"]
    if not resting:
        hidden, lesson = _bonus_lesson(lane, learner, batch, clock, judged)
        lessons, activations, names = [*lessons, lesson], [*activations, hidden], [*names, "bonus"]

    due = jnp.asarray((clock.updates + 1) % config.target_period == 0)
    slopes = [lesson.slopes for lesson in lessons]
    learner = lane.descend(learner, obs, names, activations, slopes, due)
    losses = sum((lesson.losses for lesson in lessons[1:]), start=lessons[0].losses)
    metrics = {
        "loss": jnp.mean(batch.weights * losses),
        "beta": _beta(clock, hyper),
        "clipped": jnp.mean(lessons[0].clipped),
    }
    return learner, Update(priorities=losses, metrics=metrics)


def _bonus_lesson(
    lane: "_Lane", learner: Any, batch: Batch, clock: Clock, judged: Judgement
) -> tuple[mlp.Hidden, Lesson]:
    """What the bonus learns: the sum of disagreement along the exploring actions."""
    transitions, hyper = batch.transitions, lane.hyper
    obs, next_obs = lane.flat(transitions.obs), lane.flat(transitions.next_obs)
    bonus = weights_of(learner.params.bonus)
    ahead = lane.judge(lane.said(bonus, next_obs), lane.bonus_ends, apart=False)
    scores = judged.value + _beta(clock, hyper) * (ahead.value + judged.distance)
    exploring = jnp.argmax(base.possible(scores, lane.spec.available), axis=-1)
    apart = jnp.take_along_axis(judged.distance, exploring[:, None], axis=1)[:, 0]
    discount = _discount(batch, hyper, episodic=lane.config.episodic_bonus)
    hidden = mlp.hidden(bonus, obs, active=True, interpret=lane.interpret)
    lesson = lane.teach(
        laws.Said(mlp.products(hidden.values, bonus), bonus.last_bias),
        lane.said(weights_of(learner.target_params.bonus), next_obs),
        (jnp.asarray(transitions.action), exploring),
        (discount * apart, discount, _shares(batch)),
        lane.bonus_ends,
    )
    return hidden, lesson


def _beta(clock: Clock, hyper: Any) -> Float[Array, ""]:
    return linear_decay(hyper.beta, hyper.beta_final, hyper.beta_decay, clock.progress)


def _discount(batch: Batch, hyper: Any, episodic: bool) -> Float[Array, " B"]:
    gamma = jnp.full(len(batch.weights), hyper.gamma, jnp.float32)
    return gamma * batch.transitions.discount if episodic else gamma


def _shares(batch: Batch) -> Float[Array, " B"]:
    return batch.weights / len(batch.weights)


def weights_of(ensemble: Ensemble) -> mlp.Weights:
    """The matrices of networks with one hidden layer."""
    first, last = ensemble.members.layers
    return mlp.Weights(
        first=first.weight, first_bias=first.bias, last=last.weight, last_bias=last.bias
    )


def with_weights(ensemble: Ensemble, weights: mlp.Weights) -> Ensemble:
    """The ensemble with other matrices."""
    return jax.tree.unflatten(jax.tree.structure(ensemble), list(weights))


@dataclasses.dataclass(frozen=True)
class _Lane:
    """The kernels with what all calls of one update share."""

    config: Any
    spec: Spec
    hyper: Any
    interpret: bool

    @property
    def shape(self) -> laws.Shape:
        names = self.config.projections
        return laws.Shape(
            pair=laws.Pair(names.index("quantile"), names.index("categorical")),
            actions=self.spec.num_actions,
            size=self.config.num_atoms,
            carriers=self.config.carriers,
        )

    @property
    def ends(self) -> tuple[Array, Array]:
        return jnp.asarray(self.hyper.z_min), jnp.asarray(self.hyper.z_max)

    @property
    def bonus_ends(self) -> tuple[Array, Array]:
        low, high = self.ends
        return jnp.zeros_like(low), 2.0 * (high - low)

    def flat(self, obs: Array) -> Array:
        """Rows of the first layer's table, or the numbers of each observation."""
        if not self.spec.one_hot:
            return obs.reshape(*obs.shape[: obs.ndim - len(self.spec.observation.shape)], -1)
        return row_of(obs, self.spec.inputs, self.spec.triangle)

    def products(self, weights: mlp.Weights, obs: Array) -> Float[Array, "M B O"]:
        return mlp.products(mlp.hidden(weights, obs, interpret=self.interpret).values, weights)

    def said(
        self, weights: mlp.Weights, obs: Array, prior: Float[Array, "P B O"] | None = None
    ) -> laws.Said:
        return laws.Said(self.products(weights, obs), weights.last_bias, prior)

    def prior(self, prior: Ensemble | None, obs: Array) -> Float[Array, "P B O"] | None:
        """Outputs of the priors for a batch or, as a batch of one, for one observation."""
        if prior is None:
            return None
        if self.spec.one_hot:
            table = jax.vmap(lambda layer: jax.vmap(layer.of_row)(jnp.atleast_1d(obs)))
            return table(prior.members.layers[0])
        weights = weights_of(prior)
        made = (
            mlp.row_products(weights, obs)[:, None]
            if obs.ndim == 1
            else self.products(weights, obs)
        )
        return made + weights.last_bias[:, None]

    def judge(self, said: laws.Said, ends: tuple[Array, Array], apart: bool = True) -> Judgement:
        scale = self.hyper.prior_scale
        return judge(said, self.shape, ends, scale, apart=apart, interpret=self.interpret)

    def teach(
        self,
        said: laws.Said,
        successor: laws.Said,
        actions: tuple[Array, Array],
        affine: tuple[Array, Array, Array],
        ends: tuple[Array, Array],
    ) -> Lesson:
        scale = self.hyper.prior_scale
        return teach(
            said, successor, actions, affine, self.shape, ends, scale, interpret=self.interpret
        )

    def descend(
        self,
        learner: Any,
        obs: Array,
        names: list[str],
        activations: list[mlp.Hidden],
        slopes: list[Array],
        due: Array,
    ) -> Any:
        """Adam's step on ensembles, and the copy into the target networks where it is due."""
        adam = learner.opt_state
        step = descent.Step(
            rate=jnp.asarray(self.hyper.learning_rate),
            steps=adam.count,
            due=due,
            epsilon=1e-3 / self.config.batch_size,
        )
        trees = [learner.params, adam.mu, adam.nu, learner.target_params]
        for name, active, slope in zip(names, activations, slopes, strict=True):
            ensembles = [getattr(tree, name) for tree in trees]
            state = descent.State(*(weights_of(ensemble) for ensemble in ensembles))
            state = descent.descend(state, obs, active, slope, step, interpret=self.interpret)
            trees = [
                tree._replace(**{name: with_weights(ensemble, weights)})
                for tree, ensemble, weights in zip(trees, ensembles, state, strict=True)
            ]
        params, mean, square, target = trees
        count = optax.safe_increment(adam.count)
        return learner._replace(
            params=params,
            target_params=target,
            opt_state=adam._replace(count=count, mu=mean, nu=square),
        )
