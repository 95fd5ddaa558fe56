"""Tasks whose environment is written in JAX outside of winkel, and their names.

    gymnax:Breakout-MinAtar       a library's: gymnax, craftax, navix, pgx or xminigrid
    jax:my_module:MyEnv           a class, a function that makes one, or an object: one with the
                                  methods of `winkel.envs.functional.FunctionalEnvironment`

Each may end in settings, as names of simulators do. Modules in the current folder are found, too.
"""

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from winkel.envs.functional import Functional, check_functional
from winkel.envs.outside import RANDOM_STEPS, OutsideTask, Rewards, check_named, reward_ends
from winkel.errors import InputError
from winkel.extensions import is_target, load_target, skip_current_folder, target_of, wrap_error
from winkel.simulators import names
from winkel.types import Dense, Image, Observation, OneHot, Planes

_FORMS: dict[str, Any] = {form.__name__: form for form in (Dense, OneHot, Image, Planes)}
_PLAIN = (bool, int, float, str, tuple, type(None))


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
