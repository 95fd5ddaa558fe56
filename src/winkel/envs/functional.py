"""Environments in JAX that are not winkel's own, on the device like winkel's.

    gymnax:Breakout-MinAtar       a library's: gymnax, craftax, navix, pgx or xminigrid
    jax:my_module:MyEnv           a class, a function that makes one, or an object

The user writes pure functions of one copy, `reset` and `step`, beside `observation` and
`num_actions` (docs/jax-environments.md): `step` returns the last observation of an episode, states
are pytrees of arrays whose shapes stay, and all that is random comes from the key. `Functional`
adds what training needs: lanes, resets, counts of episodes, and the observation before a reset.
"""

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from winkel.envs import outside
from winkel.envs.base import Environment, outcome
from winkel.errors import LARGEST, InputError, require_integer
from winkel.extensions import is_target, load_target, skip_current_folder, target_of, wrap_error
from winkel.simulators import names
from winkel.simulators.base import Notice
from winkel.types import Dense, EnvStep, Image, Observation, OneHot, Planes

_PLAIN = (bool, int, float, str, tuple, type(None))
State = tuple[PyTree, Array]
"""A state of the environment with its observation."""
Checked = tuple[Any, Observation, int]
"""An environment, the form of its observations, and the number of its actions."""
_NEEDED = {
    "observation": "a shape such as (4,), or a form of winkel.types",
    "num_actions": "a whole number, as actions must be discrete",
    "reset": "a function reset(key) that returns (state, observation)",
    "step": "a function step(key, state, action) that returns (state, observation, reward, "
    "terminated, truncated)",
}


def is_jax(name: str) -> bool:
    """Return whether a name is that of an environment written in JAX outside of winkel."""
    return name.partition(":")[0] in ("jax", *names.JAX_LIBRARIES)


def is_functional(env: Any) -> bool:
    """Return whether something is an environment in JAX, as far as its attributes tell."""
    return hasattr(env, "observation") and hasattr(env, "num_actions")


def _make(name: str, named: bool = True) -> Any:
    """Import and make an environment; raise if only a folder names it and its name chooses code."""
    outside.check_named(name, named)
    _, whole, settings = names.split(name)
    library, _, rest = whole.partition(":")
    if library == "jax":
        if not is_target(rest):
            raise InputError(f"need an environment of the form jax:module:Name, got {name!r}")
        found = load_target(rest, called=False)
        if not callable(found) and not settings:  # an environment already
            return found
        try:
            return found(**settings)
        except Exception as error:
            raise wrap_error(error, f"{rest} called with {settings}") from error
    with skip_current_folder():
        if importlib.util.find_spec(library) is None:
            raise InputError(f"{name} needs {library}: pip install 'winkel[{library}]'")
        from winkel.envs.jax_libraries import LIBRARIES

        try:
            return LIBRARIES[library](rest, **settings)
        except Exception as error:
            raise wrap_error(error, f"making {name}") from error


class Functional(Environment):
    """What the user writes, as training steps it; loaders are compared by identity."""

    form: Observation = eqx.field(static=True)
    actions: int = eqx.field(static=True)
    load: Callable[[], Checked] = eqx.field(static=True)

    @property
    def observation(self) -> Observation:
        return self.form

    @property
    def num_actions(self) -> int:
        return self.actions

    def draw_start(self, key: PRNGKeyArray, params: Any) -> PRNGKeyArray:
        """Return the key: the environment draws by itself."""
        return key

    def start(self, draws: PRNGKeyArray, episode: Int[Array, ""], params: Any) -> State:
        return self._arrays(*self.load()[0].reset(draws))

    draw = draw_start

    def transition(
        self, state: State, action: Int[Array, ""], draws: PRNGKeyArray, params: Any
    ) -> tuple[State, EnvStep]:
        """Step the environment; a truncated episode ends, too, but its discount is 1."""
        found = self.load()[0].step(draws, state[0], action)
        after, obs, reward, terminated, truncated = found
        terminated, truncated = (jnp.asarray(end, bool) for end in (terminated, truncated))
        result = outcome(reward, terminated)
        return self._arrays(after, obs), result._replace(boundary=terminated | truncated)

    def observe(self, state: State, params: Any) -> Array:
        return state[1]

    def _arrays(self, state: PyTree, obs: Any) -> State:
        return jax.tree.map(_typed, state), jnp.asarray(obs, self.form.dtype)


def _typed(leaf: Any) -> Array:
    """Return a leaf as an array, numbers of Python with a definite type."""
    array = jnp.asarray(leaf)
    return array if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else array.astype(array.dtype)


@dataclass(frozen=True, eq=False, kw_only=True)
class JaxTask(outside.OutsideTask):
    """An environment in JAX of other code, which runs inside the compiled program."""

    def named_as(self, env: Any) -> "JaxTask":
        name, make = _maker_of(env)
        load = _loader(name, make, (self.env.form, self.env.actions))
        inside = dataclasses.replace(self.env, load=load)
        return dataclasses.replace(self, named=True, id=name, env=inside)

    def measure_rewards(self) -> outside.Rewards:
        found = jax.device_get(_random_steps(self.env, jax.random.key(0)))
        return outside.reward_ends(*(np.asarray(array) for array in found))

    def describe(self) -> dict[str, Any]:
        form = self.env.observation
        entry = {"form": type(form).__name__, **dataclasses.asdict(form)}
        return super().describe() | {"jax": {"observation": entry, "actions": self.env.num_actions}}


def make_jax_task(env: Any, notice: Notice = lambda _: None) -> JaxTask:
    """Make the task of a name, or of an environment itself; raise unless it is one."""
    name, make = _maker_of(env)
    _, form, actions = (load := _loader(name, make))()
    env = Functional(form=form, actions=actions, load=load)
    return JaxTask(id=name, env=env, facts=(), notice=notice)


def remake_jax(config: Mapping[str, Any]) -> JaxTask:
    """Make the task of a run again from its config, without importing the environment."""
    name, entry = config["env"], config["jax"]
    try:
        entries = entry["observation"].items()
        form: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in entries
        }
        kinds: dict[str, Any] = {kind.__name__: kind for kind in (Dense, OneHot, Image, Planes)}
        made, actions = kinds[form.pop("form")](**form), entry["actions"]
        if not all(type(n) is int and 0 < n <= LARGEST for n in (*made.shape, actions)):
            raise TypeError
    except (AttributeError, LookupError, TypeError, InputError):
        raise outside.wrong_shapes(name, entry) from None
    load = _loader(name, partial(_make, name, named=False), (made, actions))
    env = Functional(form=made, actions=actions, load=load)
    return JaxTask(id=name, env=env, facts=(), named=False)


def _maker_of(env: Any) -> tuple[str, Callable[[], Any]]:
    """Return name and maker; an environment itself is named by class and plain fields."""
    if isinstance(env, str):
        name = names.split(env)[0]
        return name, partial(_make, name)
    fields = dataclasses.fields(env) if dataclasses.is_dataclass(env) else ()
    values = {field.name: getattr(env, field.name) for field in fields if field.init}
    plain = {name: value for name, value in values.items() if isinstance(value, _PLAIN)}
    return names.join(f"jax:{target_of(type(env))}", plain), lambda: env


def _loader(
    name: str, make: Callable[[], Any], expected: tuple[Observation, int] | None = None
) -> Callable[[], Checked]:
    """Return a function that makes and checks an environment once; `expected` is of its run."""

    @cache
    def load() -> Checked:
        with jax.ensure_compile_time_eval():  # the first call may be in a program that is traced
            env = make()
            found = check_functional(env, name, own=name.startswith("jax:"))
        if expected not in (None, found):
            wanted, got = (f"{form} and {actions} actions" for form, actions in (expected, found))
            raise InputError(f"need {wanted} as in the run, got {got} in {name}")
        return env, *found

    return load


@jax.jit
def _random_steps(env: Functional, key: PRNGKeyArray) -> tuple[Array, Array]:
    """Rewards of a random policy, and whether an episode was terminated with each."""
    key_reset, key_action, key_step = (jax.random.fold_in(key, use) for use in range(3))

    def step(state: Any, number: Int[Array, ""]) -> tuple[Any, tuple[Array, Array]]:
        action = jax.random.randint(jax.random.fold_in(key_action, number), (), 0, env.num_actions)
        state, result = env.step(jax.random.fold_in(key_step, number), state, action, ())
        return state, (result.reward, result.discount == 0.0)

    state, _ = env.reset(key_reset, ())
    return jax.lax.scan(step, state, jnp.arange(outside.RANDOM_STEPS))[1]


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
    if not isinstance(form, Observation):
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
