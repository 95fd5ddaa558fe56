"""Environments of a user's own that are written in JAX, on the device like winkel's.

`FunctionalEnvironment` is what the user writes: pure functions of one copy. `Functional` adds what
training needs: lanes, resets, counts of episodes, and the observation before a reset.
"""

from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from winkel.envs.base import Environment, outcome
from winkel.errors import InputError, require_integer
from winkel.extensions import wrap_error
from winkel.types import Dense, EnvStep, Image, Observation, OneHot, Planes

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


class Shown(NamedTuple):
    """A state with its observation."""

    state: PyTree
    obs: Array


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

    def start(self, draws: PRNGKeyArray, episode: Int[Array, ""], params: Any) -> Shown:
        """Reset the environment."""
        return self._shown(*self.inside.reset(draws))

    def draw(self, key: PRNGKeyArray, params: Any) -> PRNGKeyArray:
        """Return the key: the environment draws by itself."""
        return key

    def transition(
        self, state: Shown, action: Int[Array, ""], draws: PRNGKeyArray, params: Any
    ) -> tuple[Shown, EnvStep]:
        """Step the environment; a truncated episode ends, too, but its discount is 1."""
        found = self.inside.step(draws, state.state, action)
        after, obs, reward, terminated, truncated = found
        terminated, truncated = (jnp.asarray(end, bool) for end in (terminated, truncated))
        result = outcome(reward, terminated)
        return self._shown(after, obs), result._replace(boundary=terminated | truncated)

    def observe(self, state: Shown, params: Any) -> Array:
        """Return the observation that came with the state."""
        return state.obs

    def _shown(self, state: PyTree, obs: Any) -> Shown:
        return Shown(jax.tree.map(_typed, state), jnp.asarray(obs, self.form.dtype))


def _typed(leaf: Any) -> Array:
    """Return a leaf as an array, numbers of Python with a definite type."""
    array = jnp.asarray(leaf)
    return array if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else array.astype(array.dtype)


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
    return replace(form, dtype=small if small in ("bool", "uint8") else "float32")


def _show(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}" if hasattr(leaf, "dtype") else repr(leaf)
