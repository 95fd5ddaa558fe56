"""What an agent is, and the few functions that all of them are made of."""

import math
from collections.abc import Callable, Mapping
from typing import (
    Any,
    Literal,
    NamedTuple,
    Protocol,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from winkel.errors import InputError, require_integer
from winkel.exploration import falling
from winkel.kernels.descent import FIRST_DECAY, SECOND_DECAY
from winkel.networks import MLP
from winkel.networks.batched import RowGradient
from winkel.networks.torso import FanIn, Lookup
from winkel.types import (
    Atoms,
    Batch,
    Clock,
    Decision,
    Estimates,
    Observation,
    OneHot,
    Update,
)

Number = float | Float[Array, ""]
"""A hyperparameter: a plain number, or a traced one."""


BY_ENVIRONMENT = math.nan
"""Stands for a number that the environment decides, which `winkel.runs.spec` fills in."""


class Spec(NamedTuple):
    """What an agent must know of an environment.

    Attributes:
        observation: what it sees.
        num_actions: A.
        fan_in: numbers that an observation really has, where it is padded; None where it is not.
        available: actions that this setting really has, the first ones, where others of its program
            have more; None where it has all.
    """

    observation: Observation
    num_actions: int
    fan_in: FanIn | None = None
    available: Int[Array, ""] | None = None

    @property
    def inputs(self) -> int:
        """Numbers in an observation as the environment shows it."""
        return math.prod(self.observation.shape)

    @property
    def one_hot(self) -> bool:
        """Whether observations are indices."""
        return isinstance(self.observation, OneHot)

    @property
    def triangle(self) -> bool:
        """Whether only the lower triangle of the indices' grid is ever seen."""
        return isinstance(self.observation, OneHot) and self.observation.triangle


@runtime_checkable
class Agent(Protocol):
    """An algorithm: a frozen dataclass of `config` and `spec` that holds no state.

    Its `Config` is a frozen dataclass of what shapes arrays or programs, its `Hyper` a NamedTuple
    of numbers that are traced, so that lanes which differ in them share one program. Both hold the
    paper's settings for bsuite as defaults. All methods are for one environment and one lane.
    """

    @property
    def config(self) -> Any:
        """Static settings; `batch_size`, `capacity` and `burn_in` are the loop's to read."""
        ...

    @property
    def spec(self) -> Spec:
        """What the agent acts in."""
        ...

    def init(self, key: PRNGKeyArray, hyper: Any) -> PyTree:
        """A learner that has learned nothing."""
        ...

    def init_actor(self, key: PRNGKeyArray) -> PyTree:
        """What acting remembers from step to step in one environment."""
        ...

    def act(
        self,
        learner: Any,
        actor: Any,
        obs: Array,
        first: Bool[Array, ""],
        clock: Clock,
        hyper: Any,
        key: PRNGKeyArray,
    ) -> tuple[Decision, PyTree]:
        """What to do; `first` tells the first step of an episode."""
        ...

    def update(
        self, learner: Any, batch: Batch, clock: Clock, hyper: Any, key: PRNGKeyArray
    ) -> tuple[PyTree, Update]:
        """A learner that has learned from the batch."""
        ...

    def estimates(self, learner: Any, obs: Array, hyper: Any) -> Estimates:
        """What the agent believes about an observation."""
        ...

    def member_names(self) -> tuple[str, ...]:
        """A name for each member of the estimates."""
        ...


@runtime_checkable
class Settling(Protocol):
    """An agent some of whose learning matters no more when part of the horizon is done."""

    def settled(self, progress: float, hyper: Any) -> bool:
        """Whether that is so at this share of the horizon, and stays so."""
        ...

    def at_rest(self) -> Agent:
        """The agent without that learning: it does the same, for less."""
        ...


class Kind(NamedTuple):
    """An agent as a table lists it: what makes it, and what it takes."""

    make: Callable[[Any, Spec], Agent]
    config: type
    hyper: Any


def possible(
    scores: Float[Array, "*M A"], available: Int[Array, ""] | None
) -> Float[Array, "*M A"]:
    """Scores by which to choose, −∞ for actions that a setting does not have."""
    if available is None:
        return scores
    return jnp.where(jnp.arange(scores.shape[-1]) < available, scores, -jnp.inf)


def epsilon(clock: Clock, hyper: Any) -> Float[Array, ""]:
    """ε now: it falls over `epsilon_steps`, or stays `epsilon` where those are 0."""
    ends = hyper.epsilon, hyper.epsilon_final
    return falling(*ends, hyper.epsilon_steps, at=clock.env_steps, otherwise=hyper.epsilon)


def taken(theta: Float[Array, "M A K"], action: Int[Array, ""]) -> Float[Array, "M K"]:
    """Outputs of one action, by a masked sum, whose gradient is cheaper than a scatter."""
    chosen = jnp.arange(theta.shape[1]) == action
    return jnp.sum(jnp.where(chosen[None, :, None], theta, 0.0), axis=1)


def tabulated(network: MLP) -> MLP:
    """The same function of indices as a table, for a network that stays fixed: a prior.

    A look-up costs next to nothing where the network would run with every learned one. Networks of
    dense observations come back as they are.
    """
    first = network.layers[0]
    if not isinstance(first, Lookup):
        return network
    rows = jnp.arange(first.weight.shape[0] + 1)
    outputs = jax.vmap(network.of_row)(rows).reshape(len(rows), -1)
    nothing = outputs[-1]  # of the row that stands for the all-zero observation
    table = Lookup(weight=outputs[:-1] - nothing[None], bias=nothing, side=first.side)
    return MLP(layers=(table,), rows=network.rows)


def init_adam(params: PyTree) -> PyTree:
    """Adam's moments, all zero."""
    return optax.scale_by_adam().init(params)


def adam(
    params: PyTree, gradients: PyTree, state: PyTree, learning_rate: Number, epsilon: float
) -> tuple[PyTree, PyTree]:
    """One step of Adam with a learning rate that may be traced.

    As `optax.scale_by_adam`; the gradient of a table may be given by its rows (`RowGradient`).
    """
    moments = jax.tree.map(_moments, state.mu, state.nu, gradients)
    mu, nu = jax.tree.transpose(jax.tree.structure(state.mu), None, moments)
    count = state.count + 1
    first, second = (1.0 / (1.0 - decay**count) for decay in _DECAYS)

    def moved(p: Array, m: Array, v: Array) -> Array:
        return p - learning_rate * first * m / (jnp.sqrt(second * v) + epsilon)

    return jax.tree.map(moved, params, mu, nu), state._replace(count=count, mu=mu, nu=nu)


_DECAYS = (FIRST_DECAY, SECOND_DECAY)
"""Of Adam's moments."""


def _moments(mu: Array, nu: Array, gradient: Array | RowGradient) -> tuple[Array, Array]:
    """Adam's moments of a gradient g: averages of g and g² that forget by `_DECAYS`.

    On a CPU, where every pass over a large table counts, its rows' gradient is added to them; on a
    GPU it is spread over zeros, which then are one kernel's input.
    """
    if not isinstance(gradient, RowGradient):
        return _average(mu, gradient, 1), _average(nu, gradient, 2)

    def by_rows(mu: Array, nu: Array, gradient: RowGradient) -> tuple[Array, Array]:
        rows, values = gradient.merged(mu.shape[1])
        first, second = (
            RowGradient(rows, (1.0 - decay) * values**order)
            for order, decay in enumerate(_DECAYS, start=1)
        )
        return first.added_to(_DECAYS[0] * mu), second.added_to(_DECAYS[1] * nu)

    def spread(mu: Array, nu: Array, gradient: RowGradient) -> tuple[Array, Array]:
        dense = gradient.added_to(jnp.zeros_like(mu))
        return _average(mu, dense, 1), _average(nu, dense, 2)

    return jax.lax.platform_dependent(mu, nu, gradient, cpu=by_rows, default=spread)


def _average(moment: Array, gradient: Array, order: int) -> Array:
    decay = _DECAYS[order - 1]
    return (1.0 - decay) * gradient**order + decay * moment


def copied_every(period: int, clock: Clock, params: PyTree, target_params: PyTree) -> PyTree:
    """The target network after an update: a copy of the online one at every `period`-th."""
    due = (clock.updates + 1) % period == 0
    return jax.tree.map(lambda new, old: jnp.where(due, new, old), params, target_params)


def mass_outside(target: Atoms, z_min: Number, z_max: Number) -> Float[Array, ""]:
    """Probability of a target beyond the support, which a categorical model cannot represent.

    Rounding at the ends of a support does not count.
    """
    slack = 1e-4 * (z_max - z_min)
    outside = (target.locations < z_min - slack) | (target.locations > z_max + slack)
    return jnp.sum(jnp.where(outside, target.probs, 0.0))


def check_learning(config: Any) -> None:
    """Raise unless the settings that every agent has, and those with few choices, make sense."""
    for name, hint in get_type_hints(type(config)).items():
        if get_origin(hint) is Literal:
            check_names(name, (getattr(config, name),), dict.fromkeys(get_args(hint)))
    for width in config.hidden:
        require_integer("width of each hidden layer", width, at_least=1)
    for name in ("batch_size", "capacity", "burn_in", "target_period", "n_step", "channels"):
        require_integer(name, getattr(config, name), at_least=1)
    for name in ("priority_exponent", "importance_exponent"):
        if not 0.0 <= getattr(config, name) <= 1.0:
            raise InputError(f"need {name} in [0, 1], got {getattr(config, name)}")
    for name in ("clip_norm", "he_slope"):
        if not 0.0 <= getattr(config, name) < math.inf:
            raise InputError(f"need a finite {name} >= 0, got {getattr(config, name)}")
    if not 0.0 < config.adam_epsilon < math.inf:
        raise InputError(f"need a finite adam_epsilon > 0, got {config.adam_epsilon}")


def check_names(what: str, names: tuple[str, ...], table: Mapping[str, Any]) -> None:
    """Raise unless all names are in the table."""
    for name in names:
        if name not in table:
            raise InputError(f"need {what} from {', '.join(table)}, got {name!r}")
