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
from winkel.networks import MLP
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
"""Stands for a number that the environment decides, which `experiments.config` fills in."""


class Spec(NamedTuple):
    """What an agent must know of an environment.

    Attributes:
        observation: what it sees.
        num_actions: A.
        fan_in: numbers that an observation really has, where it is padded; None where it is not.
    """

    observation: Observation
    num_actions: int
    fan_in: FanIn | None = None

    @property
    def inputs(self) -> int:
        """Numbers in an observation as the environment shows it."""
        return math.prod(self.observation.shape)

    @property
    def one_hot(self) -> bool:
        """Whether observations are indices."""
        return isinstance(self.observation, OneHot)


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


class Kind(NamedTuple):
    """An agent as a table lists it: what makes it, and what it takes."""

    make: Callable[[Any, Spec], Agent]
    config: type
    hyper: Any


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
    indices = jnp.arange(first.weight.shape[0] + 1)
    outputs = jax.vmap(network)(indices).reshape(len(indices), -1)
    nothing = outputs[-1]  # of the index that stands for the all-zero observation
    table = Lookup(weight=outputs[:-1] - nothing[None], bias=nothing)
    return MLP(layers=(table,), rows=network.rows)


def init_adam(params: PyTree) -> PyTree:
    """Adam's moments, all zero."""
    return optax.scale_by_adam().init(params)


def adam(
    params: PyTree, gradients: PyTree, state: PyTree, learning_rate: Number, epsilon: float
) -> tuple[PyTree, PyTree]:
    """One step of Adam with a learning rate that may be traced."""
    directions, state = optax.scale_by_adam(eps=epsilon).update(gradients, state)
    return jax.tree.map(lambda p, d: p - learning_rate * d, params, directions), state


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
    for name in ("batch_size", "capacity", "burn_in", "target_period"):
        require_integer(name, getattr(config, name), at_least=1)


def check_names(what: str, names: tuple[str, ...], table: Mapping[str, Any]) -> None:
    """Raise unless all names are in the table."""
    for name in names:
        if name not in table:
            raise InputError(f"need {what} from {', '.join(table)}, got {name!r}")
