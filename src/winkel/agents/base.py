"""What an agent is: its methods, the settings that all agents have, ε-greedy choice, schedules."""

import dataclasses
import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    get_args,
    get_origin,
    get_type_hints,
)

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from winkel.errors import LARGEST, InputError, require_integer
from winkel.networks.mlp import Ensemble, FanIn
from winkel.projections import Projection
from winkel.types import Batch, Clock, Decision, Estimates, Observation, OneHot, Update

BY_ENVIRONMENT = math.nan
"""Default of a hyperparameter that depends on the environment; filled in before a run starts."""

Number = float | Float[Array, ""]
"""A hyperparameter: a plain number, or a traced one."""
PerAction = Float[Array, " A"]
"""A number for each action."""


class Range(NamedTuple):
    """The finite numbers that a field accepts: from `low` to `high`, without `low` if `open`.

    It stands in the annotation of the field, `Annotated[Number, Range(0.0)]`.
    """

    low: float = -math.inf
    high: float = math.inf
    open: bool = False

    def __contains__(self, value: Any) -> bool:
        if not isinstance(value, numbers.Real) or isinstance(value, bool | np.bool_):
            return False
        number = float(value)
        inside = self.low < number if self.open else self.low <= number
        return math.isfinite(number) and inside and number <= self.high

    def __str__(self) -> str:
        if self.high < LARGEST:
            return f" in [{self.low:g}, {self.high:g}]"
        return f" {'>' if self.open else '>='} {self.low:g}" if math.isfinite(self.low) else ""


# Types of fields of a `Config`, static, and of a `Hyper`, traced. What several agents have is
# described here once, with its range; all other fields are where an agent defines them.

Count = Annotated[int, Range(1, LARGEST)]
NumAtoms = Annotated[int, Range(2, 1_000_000)]
"""K, the atoms of a return distribution: outputs of a network for one action."""
Hidden = tuple[Count, ...]
"""Widths of the hidden layers of every network."""
HuberWidth = Annotated[float, Range(0.0)]
"""Errors up to this count as squares, larger ones linearly (Huber). 0: all count as squares, in
quantile regression all linearly."""

AdamEpsilon = Annotated[float, Range(0.0, open=True)]
"""ε of Adam is this divided by the batch size."""
ClipNorm = Annotated[float, Range(0.0)]
"""Largest global norm of the gradients, which are scaled down to it; 0 for no clipping."""

Real = Annotated[Number, Range()]
Positive = Annotated[Number, Range(0.0, open=True)]
NonNegative = Annotated[Number, Range(0.0)]
Probability = Annotated[Number, Range(0.0, 1.0)]

LearningRate = Positive
"""Step size α of Adam."""
Discount = Annotated[Number, Range(0.0, 1.0)]
"""Discount factor γ."""
PriorScale = NonNegative
"""Factor of the prior functions' outputs."""
Epsilon = Probability
"""Probability of a random action: `epsilon` at the start, `epsilon_final` at the end. An agent
without `epsilon_decay` ignores `epsilon_final` unless `epsilon_steps` > 0."""
HorizonShare = Positive
"""Share of the horizon over which a schedule decays linearly."""
EpsilonSteps = NonNegative
"""Environment steps over which ε decays linearly; 0: by `epsilon_decay` if the agent has it,
else ε is constant."""
Support = Real
"""Ends of the support of categorical models: `z_min` and `z_max`."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Fields of every agent's `Config`. Defaults: the paper's settings for bsuite (App. B).

    Those of replay are for the training loop; agents read `batch_size` and `n_step` too.
    """

    batch_size: Count = 128
    """Transitions of an update."""
    updates_per_step: Count = 1
    """Updates for each step of the environment, or of all environments of a run in simulators."""
    capacity: Count = 10_000
    """Transitions that replay holds."""
    burn_in: Count = 128
    """Steps before the first update."""
    target_period: Count = 4
    """Updates between copies into the target networks."""
    n_step: Count = 1
    """Rewards that a return sums up before it is bootstrapped."""
    priority_exponent: Annotated[float, Range(0.0, 1.0)] = 0.0
    """α of prioritised replay; 0 draws uniformly."""
    importance_exponent: Annotated[float, Range(0.0, 1.0)] = 0.45
    """Exponent of the importance weights at the start."""
    importance_final: Annotated[float, Range(0.0, 1.0)] = 1.0
    """Exponent of the importance weights at the end of the horizon."""
    adam_epsilon: AdamEpsilon = 1e-3
    clip_norm: ClipNorm = 0.0
    channels: Count = 2
    """The body for images has three blocks, of 16, 32 and 32 times this many channels."""
    spectral: bool = True
    """Whether the body's residual convolutions are divided by their spectral norm."""
    he_slope: Annotated[float, Range(0.0)] = 0.0
    """a: weights of bodies, and of networks on images, start between ± sqrt(6 / ((1 + a²) fan-in)).
    0 is He's bound, √5 is ± 1 / sqrt(fan-in)."""
    compute: Literal["float32", "bfloat16"] = "float32"
    """Precision in which the body computes; its weights are float32 in any case."""

    def __post_init__(self) -> None:
        """Raise unless each field is one of its choices, or in its range."""
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            _check_setting(name, getattr(self, name), hint)


class Spec(NamedTuple):
    """What an agent must know of an environment."""

    observation: Observation
    num_actions: int
    fan_in: FanIn | None = None
    """Numbers in an observation before padding; None if it is not padded."""
    available: Int[Array, ""] | None = None
    """Number of actions that this setting has, the first ones, if other settings in the same
    program have more; None if it has all."""

    @property
    def inputs(self) -> int:
        """Numbers in an observation, with padding."""
        return math.prod(self.observation.shape)

    @property
    def one_hot(self) -> bool:
        """Whether observations are indices."""
        return isinstance(self.observation, OneHot)

    @property
    def triangle(self) -> bool:
        """Whether only the lower triangle of the indices' grid can be reached."""
        return isinstance(self.observation, OneHot) and self.observation.triangle

    @property
    def available_actions(self) -> Bool[Array, " A"] | None:
        """Which actions this setting has; None if all."""
        return None if self.available is None else jnp.arange(self.num_actions) < self.available

    def mask_unavailable(self, scores: Float[Array, "*M A"]) -> Float[Array, "*M A"]:
        """Scores with −∞ for actions that this setting does not have."""
        there = self.available_actions
        return scores if there is None else jnp.where(there, scores, -jnp.inf)


class ValueNetworks(NamedTuple):
    """Networks whose outputs `[M, A, K]` give the values: the mean of all members' means."""

    networks: Ensemble
    projections: tuple[Projection | None, ...]
    """Of each member; None if its one output is the value."""
    prior: Ensemble | None = None
    prior_scale: Number = 0.0
    prior_members: tuple[int, ...] | None = None
    """Members with a prior; None for all."""


@dataclass(frozen=True)
class Agent(ABC):
    """An algorithm: functions of one environment and one lane, without state.

    Its `Config` is a frozen dataclass of what shapes arrays or programs, its `Hyper` a NamedTuple
    of numbers that are traced, so that lanes which differ in them share one program. `act`
    maximises `scores`, ε-greedily; an agent redefines one of them if it explores in another way.
    """

    config: Any
    """Static settings; the training loop reads the fields of `Settings` about replay."""
    spec: Spec

    config_type: ClassVar[type]
    """The class of its `Config`."""
    hyper_type: ClassVar[Any]
    """The class of its `Hyper`."""

    @abstractmethod
    def init(self, key: PRNGKeyArray, hyper: Any) -> PyTree:
        """Create an untrained learner."""

    def init_actor(self, key: PRNGKeyArray) -> PyTree:
        """Create the state of `act` in one environment, which it keeps from step to step."""
        return ()

    def scores(self, learner: Any, obs: Array, clock: Clock, hyper: Any) -> PerAction:
        """Score all actions for one observation, by default by their values."""
        return self.estimates(learner, obs, hyper).value

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
        """Choose an action: argmax_a score(a), or with probability ε a random one.

        `first` is true at the first step of an episode.
        """
        scores = self.scores(learner, obs, clock, hyper)
        action = epsilon_greedy(key, scores, epsilon_schedule(clock, hyper), self.spec)
        return Decision(action=action), actor

    @abstractmethod
    def update(
        self, learner: Any, batch: Batch, clock: Clock, hyper: Any, key: PRNGKeyArray
    ) -> tuple[PyTree, Update]:
        """Learn from a batch: return the learner after it, metrics and a priority per transition.

        Losses are weighted with `batch.weights`. The factor of a successor's value is γ times
        `transitions.discount`, which is 0 at the end of an episode and γ^(k−1) for k steps. The
        metric `loss` is required: runs stop when it is no longer finite. Priorities are not
        negative; replay raises them to `priority_exponent`.
        """

    def schedules(self, clock: Clock, hyper: Any) -> dict[str, Float[Array, ""]]:
        """Values of schedules that the agent's update adds to its metrics; by default ε."""
        return {"epsilon": epsilon_schedule(clock, hyper)} if hasattr(hyper, "epsilon") else {}

    @abstractmethod
    def estimates(self, learner: Any, obs: Array, hyper: Any) -> Estimates:
        """Predict for one observation what plots and evaluation need."""

    @abstractmethod
    def member_names(self) -> tuple[str, ...]:
        """A name for each member of the estimates."""

    def value_networks(self, learner: Any, hyper: Any) -> ValueNetworks:
        """Networks that give the values of `estimates`, for policy files; not every agent's do."""
        raise InputError(f"need an agent with value_networks for a policy file, got {self!r:.60}")

    def can_freeze_bonus(self, progress: float, hyper: Any) -> bool:
        """Whether a learned bonus has no effect from this share of the horizon on."""
        return False

    def with_frozen_bonus(self) -> "Agent":
        """The same agent without learning its bonus: equal actions and values, less work."""
        return self


# Exploration


def epsilon_greedy(
    key: PRNGKeyArray, scores: PerAction, epsilon: Number, spec: Spec
) -> Int[Array, ""]:
    """The available action of the highest score, or with probability ε any of those available."""
    key_explore, key_action = (jax.random.fold_in(key, use) for use in range(2))
    count = len(scores) if spec.available is None else spec.available
    anything = jax.random.randint(key_action, (), 0, count)
    greedy = jnp.argmax(spec.mask_unavailable(scores))
    return jnp.where(jax.random.uniform(key_explore) < epsilon, anything, greedy)


def linear_schedule(
    start: Number, end: Number, duration: Number, at: Number | Int[Array, ""]
) -> Float[Array, ""]:
    """Linear from `start` at 0 to `end` at `duration`, constant afterwards.

    `at` and `duration` have the same unit: shares of the horizon, episodes or steps.
    """
    done = jnp.clip(jnp.asarray(at, float) / duration, 0.0, 1.0)
    return start + (end - start) * done


def epsilon_schedule(clock: Clock, hyper: Any) -> Float[Array, ""]:
    """ε now: linear from `epsilon` to `epsilon_final` over `epsilon_steps` environment steps.

    With `epsilon_steps` 0, linear over the share `epsilon_decay` of the horizon, or constant for
    an agent without that field.
    """
    start, end = hyper.epsilon, hyper.epsilon_final
    steps = jnp.asarray(hyper.epsilon_steps, float)
    otherwise = start
    if hasattr(hyper, "epsilon_decay"):
        otherwise = linear_schedule(start, end, hyper.epsilon_decay, clock.progress)
    by_steps = linear_schedule(start, end, jnp.maximum(steps, 1.0), clock.env_steps)
    return jnp.where(steps > 0, by_steps, otherwise)


# Checks of classes and fields


def check_agent(name: str, agent: Any) -> None:
    """Raise unless a class from outside the package is an agent with settings."""
    if not (isinstance(agent, type) and issubclass(agent, Agent)):
        raise InputError(f"need a subclass of winkel.agents.Agent for {name}, got {agent!r:.80}")
    missing = sorted(agent.__abstractmethods__)
    missing += [field for field in ("config_type", "hyper_type") if not hasattr(agent, field)]
    if missing:
        raise InputError(f"agent {name} lacks {', '.join(missing)}")
    config, hyper = agent.config_type, agent.hyper_type
    if not (isinstance(config, type) and issubclass(config, Settings)):
        raise InputError(
            f"need a subclass of winkel.agents.Settings as config_type of {name}, got {config!r}"
        )
    fields = getattr(hyper, "_fields", ())
    if not fields or set(fields) != set(hyper._field_defaults) or "gamma" not in fields:
        raise InputError(
            f"need a NamedTuple with gamma, and a default for every field, as hyper_type of "
            f"{name}, got {hyper!r} with {', '.join(fields) or 'no fields'}"
        )
    if doubled := {field.name for field in dataclasses.fields(config)} & {*fields}:
        raise InputError(f"need each field of {name} once, got {', '.join(sorted(doubled))} twice")


def check_number(agent: type[Agent], field: str, value: Any) -> float:
    """Return a hyperparameter as a float; raise unless it is a number in its field's range."""
    hints = get_type_hints(agent.hyper_type, include_extras=True)
    _check_setting(field, value, hints[field])
    return float(value)


def check_names(what: str, names: Iterable[str], table: Iterable[str]) -> None:
    """Raise unless all names are in the table."""
    for name in names:
        if name not in table:
            raise InputError(f"need {what} from {', '.join(table)}, got {name!r}")


def _check_setting(name: str, value: Any, hint: Any) -> None:
    if get_origin(hint) is Literal:
        check_names(name, (value,), get_args(hint))
    elif get_origin(hint) is tuple:
        for entry in value:
            _check_setting(f"each of {name}", entry, get_args(hint)[0])
    elif get_origin(hint) is Annotated:
        kind, bounds = get_args(hint)
        if kind is int:
            require_integer(name, value, at_least=bounds.low, at_most=bounds.high)
        elif value not in bounds:
            raise InputError(f"need a finite {name}{bounds}, got {value!r}")
