"""Environments in JAX that are not winkel's own, on the device like winkel's.

    gymnax:Breakout-MinAtar       a library's: gymnax, craftax, navix, pgx or xminigrid
    jax:my_module:MyEnv           a class, a function that makes one, or an object: one with the
                                  methods of `FunctionalEnvironment`

Each may end in settings, as names of simulators do. Modules in the current folder are found, too.
`FunctionalEnvironment` is what the user writes: pure functions of one copy. `Functional` adds what
training needs: lanes, resets, counts of episodes, and the observation before a reset.
"""

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from winkel.envs.base import Environment, outcome
from winkel.envs.outside import RANDOM_STEPS, OutsideTask, Rewards, check_named, reward_ends
from winkel.errors import InputError, require_integer
from winkel.extensions import is_target, load_target, skip_current_folder, target_of, wrap_error
from winkel.simulators import names
from winkel.types import Dense, EnvStep, Image, Observation, OneHot, Planes

_FORMS: dict[str, Any] = {form.__name__: form for form in (Dense, OneHot, Image, Planes)}
_PLAIN = (bool, int, float, str, tuple, type(None))
State = tuple[PyTree, Array]
"""A state of the environment with its observation."""
_NEEDED = {
    "observation": "a shape such as (4,), or a form of winkel.types",
    "num_actions": "a whole number, as actions must be discrete",
    "reset": "a function reset(key) that returns (state, observation)",
    "step": "a function step(key, state, action) that returns (state, observation, reward, "
    "terminated, truncated)",
}


class FunctionalEnvironment(Protocol):
    """One copy of an environment with discrete actions, as pure functions that JAX can trace.

    They may not reset themselves: `step` returns the last observation of an episode. The state is
    any pytree of arrays, whose shapes and types do not change. All that is random comes from `key`.

    Attributes:
        observation: the form of observations, `Dense`, `OneHot`, `Planes` or `Image` of
            `winkel.types`; or a plain shape for numbers.
        num_actions: A; actions are 0 … A − 1.
    """

    observation: Observation | tuple[int, ...]
    num_actions: int

    def reset(self, key: PRNGKeyArray) -> tuple[PyTree, Array]:
        """Return the first state of an episode, and its observation."""

    def step(
        self, key: PRNGKeyArray, state: PyTree, action: Int[Array, ""]
    ) -> tuple[PyTree, Array, Array, Array, Array]:
        """Return state, observation, reward, `terminated` and `truncated`.

        `terminated` is for ends after which nothing can be earned, `truncated` for time limits.
        """


def is_jax(name: str) -> bool:
    """Return whether a name is that of an environment written in JAX outside of winkel."""
    return name.partition(":")[0] in ("jax", *names.JAX_LIBRARIES)


def is_functional(env: Any) -> bool:
    """Return whether something is a `FunctionalEnvironment`, as far as its attributes tell."""
    return hasattr(env, "observation") and hasattr(env, "num_actions")


@dataclass(frozen=True, eq=False)
class Source:
    """Where an environment comes from: `given`, or by its name, imported and made at first use.

    What only the folder of a run names is not imported if the name chooses which code that is.
    """

    name: str
    named: bool = True
    given: Any = None

    @cached_property
    def checked(self) -> tuple[Any, Observation, int]:
        """The environment, the form of its observations, and the number of its actions."""
        with jax.ensure_compile_time_eval():  # the first use may be in a program that is traced
            env = self._make() if self.given is None else self.given
            return env, *check_functional(env, self.name, own=self.name.startswith("jax:"))

    def _make(self) -> Any:
        check_named(self.name, self.named)
        _, name, settings = names.split(self.name)
        library, _, rest = name.partition(":")
        if library == "jax":
            return _make_own(rest, settings, self.name)
        with skip_current_folder():
            if importlib.util.find_spec(library) is None:
                raise InputError(f"{name} needs {library}: pip install 'winkel[{library}]'")
            from winkel.envs.jax_libraries import LIBRARIES

            try:
                return LIBRARIES[library](rest, **settings)
            except Exception as error:
                raise wrap_error(error, f"making {self.name}") from error


class Functional(Environment):
    """A `FunctionalEnvironment` as training steps it.

    Its `source` has it, with form and number of actions, and may import it at its first use.
    Sources are compared by identity.
    """

    form: Observation = eqx.field(static=True)
    actions: int = eqx.field(static=True)
    source: Any = eqx.field(static=True)

    @property
    def inside(self) -> Any:
        """The `FunctionalEnvironment`; raise if it has changed since the run."""
        env, form, actions = self.source.checked
        if (form, actions) != (self.form, self.actions):
            raise InputError(
                f"need {self.form} and {self.actions} actions as in the run, got {form} and "
                f"{actions} in {self.source.name}"
            )
        return env

    @property
    def observation(self) -> Observation:
        """Form of observations."""
        return self.form

    @property
    def num_actions(self) -> int:
        """A; actions are 0 … A − 1."""
        return self.actions

    def draw_start(self, key: PRNGKeyArray, params: Any) -> PRNGKeyArray:
        """Return the key: the environment draws by itself."""
        return key

    def start(self, draws: PRNGKeyArray, episode: Int[Array, ""], params: Any) -> State:
        """Reset the environment."""
        return self._arrays(*self.inside.reset(draws))

    def draw(self, key: PRNGKeyArray, params: Any) -> PRNGKeyArray:
        """Return the key: the environment draws by itself."""
        return key

    def transition(
        self, state: State, action: Int[Array, ""], draws: PRNGKeyArray, params: Any
    ) -> tuple[State, EnvStep]:
        """Step the environment; a truncated episode ends, too, but its discount is 1."""
        found = self.inside.step(draws, state[0], action)
        after, obs, reward, terminated, truncated = found
        terminated, truncated = (jnp.asarray(end, bool) for end in (terminated, truncated))
        result = outcome(reward, terminated)
        return self._arrays(after, obs), result._replace(boundary=terminated | truncated)

    def observe(self, state: State, params: Any) -> Array:
        """Return the observation that came with the state."""
        return state[1]

    def _arrays(self, state: PyTree, obs: Any) -> State:
        return jax.tree.map(_typed, state), jnp.asarray(obs, self.form.dtype)


def _typed(leaf: Any) -> Array:
    """Return a leaf as an array, numbers of Python with a definite type."""
    array = jnp.asarray(leaf)
    return array if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else array.astype(array.dtype)


@dataclass(frozen=True, eq=False, kw_only=True)
class JaxTask(OutsideTask):
    """An environment in JAX of other code, which runs inside the compiled program."""

    def named_as(self, env: Any) -> "JaxTask":
        """Return the task that the user names with a name or with the environment itself."""
        source = _source_of(env)
        inside = dataclasses.replace(self.env, source=source)
        return dataclasses.replace(self, named=True, id=source.name, env=inside)

    def measure_rewards(self) -> Rewards:
        """Return the rewards of a random policy."""
        found = jax.device_get(_random_steps(self.env, jax.random.key(0)))
        return reward_ends(*(np.asarray(array) for array in found))

    def describe(self) -> dict[str, Any]:
        """Return the entries of a run's config from which `registry.remake` makes it again."""
        form = self.env.observation
        entry = {"form": type(form).__name__, **dataclasses.asdict(form)}
        return super().describe() | {"jax": {"observation": entry, "actions": self.env.num_actions}}


def make_jax_task(env: Any, notice: Callable[[str], None] = lambda _: None) -> JaxTask:
    """Make the task of a name, or of an environment itself; raise unless it is one."""
    source = _source_of(env)
    _, form, actions = source.checked
    return _task(source, form, actions, notice=notice)


def remake_jax(config: Mapping[str, Any]) -> JaxTask:
    """Make the task of a run again from the run's config, without importing the environment.

    The config is of a folder, which may be a stranger's: see `Source`.
    """
    entry = config["jax"]
    try:
        form: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in entry["observation"].items()
        }
        made, actions = _FORMS[form.pop("form")](**form), entry["actions"]
        sides = (*made.shape, actions)
        if not all(type(side) is int and 0 < side < 2**31 for side in sides):
            raise TypeError
    except (AttributeError, LookupError, TypeError, InputError):
        raise InputError(
            f"need the shapes of {config['env']} in its config, got {entry!r:.120}"
        ) from None
    return _task(Source(config["env"], named=False), made, actions, named=False)


def _task(source: Source, form: Observation, actions: int, **options: Any) -> JaxTask:
    env = Functional(form=form, actions=actions, source=source)
    return JaxTask(id=source.name, env=env, facts=(), **options)


def _make_own(target: str, settings: dict[str, Any], name: str) -> Any:
    """Import what 'module:Name' names, and call it unless it is an environment already."""
    if not is_target(target):
        raise InputError(f"need an environment of the form jax:module:Name, got {name!r}")
    found = load_target(target, called=False)
    if not callable(found) and not settings:
        return found
    try:
        return found(**settings)
    except Exception as error:
        raise wrap_error(error, f"{target} called with {settings}") from error


def _source_of(env: Any) -> Source:
    """Return where an environment comes from; one itself is named by class and plain fields."""
    if isinstance(env, str):
        return Source(names.split(env)[0])
    fields = dataclasses.fields(env) if dataclasses.is_dataclass(env) else ()
    values = {field.name: getattr(env, field.name) for field in fields if field.init}
    plain = {name: value for name, value in values.items() if isinstance(value, _PLAIN)}
    return Source(names.join(f"jax:{target_of(type(env))}", plain), given=env)


@jax.jit
def _random_steps(env: Functional, key: PRNGKeyArray) -> tuple[Array, Array]:
    """Rewards of a random policy, and whether an episode was terminated with each."""
    key_reset, key_action, key_step = (jax.random.fold_in(key, use) for use in range(3))

    def step(state: Any, number: Int[Array, ""]) -> tuple[Any, tuple[Array, Array]]:
        action = jax.random.randint(jax.random.fold_in(key_action, number), (), 0, env.num_actions)
        state, result = env.step(jax.random.fold_in(key_step, number), state, action, ())
        return state, (result.reward, result.discount == 0.0)

    state, _ = env.reset(key_reset, ())
    return jax.lax.scan(step, state, jnp.arange(RANDOM_STEPS))[1]


def check_functional(env: Any, name: str, *, own: bool = True) -> tuple[Observation, int]:
    """Return form of observations and number of actions; raise unless it is an environment.

    It is traced, not run. Of a user's `own`, it is also checked that tracing it again gives the
    same program: a number that does not come from the key would be the same at every step.
    """
    for attribute, meaning in _NEEDED.items():
        if not hasattr(env, attribute):
            raise InputError(f"need {attribute} in {name}, {meaning}, got none")
    actions = env.num_actions
    if hasattr(actions, "shape") or not isinstance(actions, int):
        raise InputError(f"need num_actions of {name}, {_NEEDED['num_actions']}, got {actions!r}")
    require_integer(f"num_actions of {name}", actions, at_least=1)
    key, action = jax.random.key(0), jnp.zeros((), jnp.int32)
    state, obs = _trace(env, "reset", 2, name, key)
    after, next_obs, *scalars = _trace(env, "step", 5, name, key, state, action)
    named, structure = jax.tree_util.tree_flatten_with_path((state, obs))
    leaves, other = jax.tree.flatten((after, next_obs))
    if str(structure) != str(other):
        raise InputError(f"need one structure of states in {name}, got another after a step")
    for (path, before), leaf in zip(named, leaves, strict=True):
        if (before.shape, before.dtype) != (leaf.shape, leaf.dtype):
            part = "the observation" if path[0].idx else f"state{jax.tree_util.keystr(path[1:])}"
            raise InputError(
                f"need shapes of {name} that stay, got {part} as {_show(before)} after a reset "
                f"and {_show(leaf)} after a step"
            )
    for what, scalar in zip(("reward", "terminated", "truncated"), scalars, strict=True):
        if getattr(scalar, "shape", None) != ():
            raise InputError(f"need one number as {what} of {name}, got {_show(scalar)}")
    if own:
        _check_pure(env, "reset", name, key)
        _check_pure(env, "step", name, key, state, action)
    return _form(env.observation, obs, name), actions


def _trace(env: Any, method: str, count: int, name: str, *arguments: Any) -> tuple[Any, ...]:
    """Return shapes of what a method returns."""
    try:
        found = jax.eval_shape(lambda *given: getattr(env, method)(*given), *arguments)
    except Exception as error:
        raise wrap_error(error, f"{method} of {name}") from error
    if not isinstance(found, tuple) or len(found) != count:
        raise InputError(f"need {_NEEDED[method]} in {name}, got {jax.tree.map(_show, found)}")
    return found


def _check_pure(env: Any, method: str, name: str, *arguments: Any) -> None:
    def program() -> str:
        return jax.jit(lambda *given: getattr(env, method)(*given)).lower(*arguments).as_text()

    found = "two results for one key"
    try:
        with jax.checking_leaks():
            if program() == program():
                return
    except Exception:
        found = "one that keeps arrays elsewhere"
    raise InputError(
        f"need a pure {method} in {name}, got {found}; draw random numbers with jax.random from "
        "the key, and keep what changes in the state"
    )


def _form(observation: Any, obs: Any, name: str) -> Observation:
    """Return the form of observations; planes are stored in the type in which they come."""
    form = observation
    if isinstance(form, tuple | list) and all(type(side) is int for side in form):
        form = Dense(tuple(form))
    if not isinstance(form, Dense | OneHot | Image | Planes):
        raise InputError(f"need observation of {name}, {_NEEDED['observation']}, got {form!r:.80}")
    shape = () if isinstance(form, OneHot) else form.shape
    if getattr(obs, "shape", None) != shape:
        raise InputError(f"need observations of {name} as {list(shape)}, got {_show(obs)}")
    if not isinstance(form, Planes):
        return form
    small = "uint8" if form.values is not None else str(obs.dtype)
    return dataclasses.replace(form, dtype=small if small in ("bool", "uint8") else "float32")


def _show(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}" if hasattr(leaf, "dtype") else repr(leaf)
