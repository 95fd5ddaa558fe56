"""What an environment is, and what is known about it.

An `Environment` is pure functions of (key, state, action, params), for one copy of it. Fields of a
subclass determine the shapes of arrays. `params` holds the numbers of one setting as arrays that
may be traced, so that settings of equal shape share one compiled program under `vmap`. Only
`draw_start` and `draw` use random keys, so that tests can replace what they draw.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from winkel.errors import InputError
from winkel.types import EnvStep, Observation

Setting = Mapping[str, Any]
"""Parameters of an environment as plain numbers."""
Episodes = Mapping[str, np.ndarray]
"""Arrays over episodes: 'return', 'length' and the facts of the family."""
Returns = tuple[float, float, float]
"""Bounds of the discounted return without noise, and the standard deviation of the noise."""
MARGIN = 0.5
"""Fraction of the range of returns that is added at either end: [−0.5, 1.5] for deep sea."""


def outcome(reward: Array, terminated: Bool[Array, ""], **info: Array) -> EnvStep:
    """Make the outcome of a transition, still without observations; only termination ends it."""
    return EnvStep(
        reward=jnp.asarray(reward, jnp.float32),
        discount=1.0 - terminated.astype(jnp.float32),
        next_obs=(),
        obs=(),
        boundary=terminated,
        info={name: fact.astype(jnp.int32) for name, fact in info.items()},
    )


class EnvState(NamedTuple):
    """State of one environment, and how many episodes it has ended."""

    inner: PyTree
    episode: Int[Array, ""]


class Environment(eqx.Module):
    """An environment with discrete actions. Subclasses are final."""

    @property
    @abstractmethod
    def observation(self) -> Observation:
        """Form of observations."""

    @property
    @abstractmethod
    def num_actions(self) -> int:
        """A; actions are 0 … A − 1."""

    def draw_start(self, key: PRNGKeyArray, params: Any) -> PyTree:
        """Draw the random numbers that the start of an episode needs; none by default."""
        return None

    @abstractmethod
    def start(self, draws: PyTree, episode: Int[Array, ""], params: Any) -> PyTree:
        """Return the first state of an episode, after `episode` others."""

    def draw(self, key: PRNGKeyArray, params: Any) -> PyTree:
        """Draw the random numbers that a transition may need; none by default."""
        return None

    @abstractmethod
    def transition(
        self, state: PyTree, action: Int[Array, ""], draws: PyTree, params: Any
    ) -> tuple[PyTree, EnvStep]:
        """Make one transition, deterministic given the draws; `step` fills in observations."""

    @abstractmethod
    def observe(self, state: PyTree, params: Any) -> Array:
        """Return the observation of a state."""

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[EnvState, Array]:
        """Begin a run: return the state and the observation of its first episode."""
        episode = jnp.zeros((), jnp.int32)
        inner = self.start(self.draw_start(key, params), episode, params)
        return EnvState(inner=inner, episode=episode), self.observe(inner, params)

    def step(
        self, key: PRNGKeyArray, state: EnvState, action: Int[Array, ""] | int, params: Any
    ) -> tuple[EnvState, EnvStep]:
        """Make one transition, and begin an episode if one ends; concrete actions are checked."""
        check_action(action, self.num_actions)
        # `fold_in` is several times cheaper than `split` on a CPU, and an unused key costs nothing.
        key_transition, key_start = (jax.random.fold_in(key, use) for use in range(2))
        draws = self.draw(key_transition, params)
        ended, result = self.transition(state.inner, jnp.asarray(action), draws, params)
        episode = state.episode + result.boundary.astype(jnp.int32)
        begun = self.start(self.draw_start(key_start, params), episode, params)
        inner = jax.tree.map(lambda a, b: jnp.where(result.boundary, a, b), begun, ended)
        next_obs = self.observe(ended, params)
        obs = jnp.where(result.boundary, self.observe(begun, params), next_obs)
        return EnvState(inner=inner, episode=episode), result._replace(next_obs=next_obs, obs=obs)


def check_action(action: Any, num_actions: int) -> None:
    """Raise if a concrete action is not one of 0 … num_actions − 1."""
    if not isinstance(action, jax.core.Tracer):
        value = np.asarray(action)
        if value.dtype.kind not in "iu" or ((value < 0) | (value >= num_actions)).any():
            raise InputError(f"need an action in 0 … {num_actions - 1}, got {action}")


@dataclass(frozen=True)
class Experiment:
    """One experiment of bsuite."""

    name: str
    family: str
    """The environment that it perturbs or scales: 'catch' for 'catch_noise'."""
    num_episodes: int
    tags: tuple[str, ...]
    """The capabilities to which its score contributes."""
    settings: Sequence[Setting]
    """What differs from the family's defaults, for each of its environments."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of its environments: 'catch_noise/0' and so on."""
        return tuple(f"{self.name}/{index}" for index in range(len(self.settings)))

    def copy_of(self, task_id: str) -> int:
        """Count equal settings before this one: bsuite repeats settings. 0 for other ids."""
        if task_id not in self.ids:
            return 0
        index = self.ids.index(task_id)
        return self.settings[:index].count(self.settings[index])


@dataclass(frozen=True, kw_only=True)
class Family:
    """One kind of environment with all of its settings."""

    name: str
    experiments: tuple[Experiment, ...] = ()
    """Those of bsuite that use it, such as catch and catch_noise; without any it is its own."""
    defaults: Mapping[str, int | float]
    """Every setting with its default, whose type is the type of the setting."""
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Smallest and largest value of whole numbers."""
    make_env: Callable[[Sequence[Setting]], Environment]
    """Makes an environment whose shapes hold all given settings."""
    make_params: Callable[[Any, Setting], Any] = lambda env, setting: None
    """Makes the parameters of a setting for that environment."""
    returns: Callable[[Setting, float], Returns]
    """Bounds of the discounted return under any policy, for a discount factor."""
    longest_episode: Callable[[Setting], int]
    """Upper bound on the number of steps of an episode."""
    inputs: Callable[[Setting], int] | None = None
    """Size of an observation, if it depends on the setting."""
    num_pairs: Callable[[Setting], int | None] = lambda setting: None
    """Number of state-action pairs that episodes can visit, if it is known."""
    facts: tuple[str, ...] = ()
    """Names in `EnvStep.info`: integers, so that their sums over episodes are exact."""
    info: Callable[[Episodes], dict[str, np.ndarray]] = lambda episodes: {}
    """DeepMind's `bsuite_info()` after each of several episodes."""

    def build(self, settings: Sequence[Setting]) -> tuple[Environment, list[Any]]:
        """Make one environment for all given settings, and the parameters of each."""
        env = self.make_env(settings)
        return env, [self.make_params(env, setting) for setting in settings]

    def return_range(self, setting: Setting, gamma: float) -> tuple[float, float]:
        """Return the ends of a categorical support: bounds, a margin, three widths of noise."""
        least, most, noise_std = self.returns(setting, gamma)
        margin = MARGIN * (most - least)
        scale, noise = setting.get("reward_scale", 1.0), 3.0 * noise_std
        low, high = sorted((scale * (least - margin), scale * (most + margin)))
        return low - noise, high + noise


@dataclass(frozen=True, eq=False, kw_only=True)
class Task:
    """One setting of an environment with everything that a run must know about it."""

    id: str
    env: Any
    """Form of observations and number of actions; of a compiled environment its functions."""
    facts: tuple[str, ...]
    """Names of numbers that add up over an episode."""
    returns: Callable[[float], tuple[float, float]] | None = None
    """Range of discounted returns for a discount factor, or None if unknown."""
    params: Any = ()
    """Last argument of `env.reset` and `env.step`; empty for simulators."""
    setting: Setting = field(default_factory=dict)
    """The parameters as plain numbers; empty for simulators."""
    padded: bool = False
    """Whether it is padded to the shape of its experiment."""
    pack: str | None = None
    """Name of the pack to whose shape it is padded, or None (`winkel.envs.packs`)."""
    inputs: int | None = None
    """Size of its own observations, if they may be padded, else None."""
    available: int | None = None
    """Number of its own actions, if others of its pack may have more, else None."""
    copy: int = 0
    """Number of equal settings before it in bsuite, whose runs must differ: 3 for cartpole/3."""
    num_episodes: int | None = None
    """How many episodes bsuite runs, or None; the next two are those of `Family`."""
    longest_episode: int | None = None
    num_pairs: int | None = None
    probes: tuple[str, ...] = ()
    """Names of numbers that a simulator reports at every step."""

    compiled: ClassVar[bool] = True
    """Whether it runs inside the compiled program."""

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of all actions, or none."""
        return ()

    def return_range(self, gamma: float) -> tuple[float, float]:
        """Return the range of discounted returns; raise `InputError` if it is unknown."""
        if self.returns is None:
            raise InputError(
                f"need z_min and z_max, the range of returns in {self.id}, got neither"
            )
        return self.returns(gamma)

    def describe(self) -> dict[str, Any]:
        """Return the entries of a run's config from which `registry.remake` makes it again."""
        entries = {"env": self.id, "setting": dict(self.setting), "padded": self.padded}
        if self.pack is None:
            return entries
        inputs, actions = math.prod(self.env.observation.shape), self.env.num_actions
        return entries | {"packed": {"pack": self.pack, "inputs": inputs, "actions": actions}}
