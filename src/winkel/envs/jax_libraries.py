"""Environments of libraries in JAX, with the functions that users write for their own.

No library's own reset at the end of an episode is used, and its time limit is not a termination.
Settings after a colon are keyword arguments and parameters of the library.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from winkel.errors import LARGEST, InputError, require_integer, suggest
from winkel.types import Dense, Image, Observation, OneHot, Planes

NAVIX_SYMBOLS = (11, 6, 4)
"""Kinds of things, colours, and directions or states of doors."""


class Library(NamedTuple):
    """An environment of a library."""

    num_actions: int
    reset: Callable[..., Any]
    step: Callable[..., Any]
    observation: Observation


def make_gymnax(name: str, **settings: Any) -> Library:
    """Make one of gymnax: classic control, bsuite, MinAtar."""
    import gymnax

    _check_known(name, gymnax.registered_envs)
    params, others = _set_params(gymnax.make(name)[1], settings)
    env, _ = gymnax.make(name, **others)
    space = env.observation_space(params)
    return _with_params(
        env,
        params,
        show=lambda obs: obs.astype(bool) if name.endswith("-MinAtar") else obs,
        ends=lambda state, terminated: (terminated, env.is_truncated(state, params)),
        form=OneHot((int(space.n),)) if hasattr(space, "n") else None,
    )


def make_craftax(name: str, **settings: Any) -> Library:
    """Make Craftax or Craftax-Classic, of symbols or pixels."""
    from craftax.craftax_env import make_craftax_env_from_name

    games, seen = ("Craftax", "Craftax-Classic"), ("Symbolic", "Pixels")
    _check_known(name, [f"{game}-{how}-v1" for game in games for how in seen])
    env, pixels = make_craftax_env_from_name(name, auto_reset=False), "Pixels" in name
    params, others = _set_params(env.default_params, settings)
    for setting in others:
        raise InputError(f"craftax has no parameter {setting!r}")
    endless, limit = params.replace(max_timesteps=LARGEST), params.max_timesteps
    return _with_params(
        env,
        params,
        show=lambda obs: jnp.round(255 * obs).astype(jnp.uint8)[None] if pixels else obs,
        ends=lambda state, _: (env.is_terminal(state, endless), state.timestep >= limit),
        form=Image(env.observation_space(params).shape, stack=1) if pixels else None,
    )


def make_navix(name: str, **settings: Any) -> Library:
    """Make one of navix: MiniGrid, the whole grid as symbols."""
    import navix

    _check_known(name, navix.registry())
    env = navix.make(name, **settings)

    def reset(key: Any) -> Any:
        timestep = env.reset(key)
        # Pictures of the tiles, which symbols do not need, are larger than all else.
        return (timestep.state.replace(cache=None), timestep.t), timestep.observation

    def step(key: Any, state: Any, action: Any) -> Any:
        before, time = state[0].replace(key=key), state[1] + 1
        after = env.transitions_fn(before, action, env.action_set)
        terminated = env.termination_fn(before, action, after)
        cost = env.penality_coeff * (time / env.max_steps)
        reward = env.reward_fn(before, action, after) - jnp.where(terminated, cost, 0.0)
        return (after, time), env.observation_fn(after), reward, terminated, time >= env.max_steps

    form = _find_form(reset, NAVIX_SYMBOLS)
    return Library(int(env.action_space.n), reset, step, form)


def make_pgx(name: str, max_steps: int = 10_000) -> Library:
    """Make one of pgx's games of one player, some of which never end; an illegal action does."""
    import pgx

    _check_known(name, pgx.available_envs())
    require_integer("max_steps", max_steps, at_least=1)
    env = pgx.make(name)
    if env.num_players != 1:
        raise InputError(f"need a game of one player, got one of {env.num_players}")

    def reset(key: Any) -> Any:
        game = env.init(key)
        return (game, jnp.zeros((), jnp.int32)), game.observation

    def step(key: Any, state: Any, action: Any) -> Any:
        game, time = env.step(state[0], action, key), state[1] + 1
        truncated = game.truncated | (time >= max_steps)
        return (game, time), game.observation, game.rewards[0], game.terminated, truncated

    return Library(int(env.num_actions), reset, step, _find_form(reset))


def make_xminigrid(name: str, **settings: Any) -> Library:
    """Make one of XLand-MiniGrid, what the agent sees of the grid as symbols."""
    import xminigrid
    from xminigrid.core.constants import NUM_COLORS, NUM_TILES

    _check_known(name, xminigrid.registered_environments())
    env, params = xminigrid.make(name, **settings)

    def reset(key: Any) -> Any:
        timestep = env.reset(params, key)
        return timestep, timestep.observation

    def step(key: Any, state: Any, action: Any) -> Any:
        after = env.step(params, state, action)
        return after, after.observation, after.reward, after.discount == 0.0, after.last()

    form = _find_form(reset, (NUM_TILES, NUM_COLORS))
    return Library(int(env.num_actions(params)), reset, step, form)


LIBRARIES: Mapping[str, Callable[..., Library]] = {
    "gymnax": make_gymnax,
    "craftax": make_craftax,
    "navix": make_navix,
    "pgx": make_pgx,
    "xminigrid": make_xminigrid,
}
"""By the first part of a name; each is also the extra that installs the library."""


def _with_params(
    env: Any,
    params: Any,
    show: Callable[[Any], Any],
    ends: Callable[[Any, Any], tuple[Any, Any]],
    form: Observation | None,
) -> Library:
    """Make an environment of gymnax or with its methods.

    `ends` returns `terminated` and `truncated` of a state and of what the library says about it.
    """
    actions = env.action_space(params)
    if not hasattr(actions, "n"):
        raise InputError(f"need discrete actions, got {type(actions).__name__}")

    def reset(key: Any) -> Any:
        obs, state = env.reset_env(key, params)
        return state, show(obs)

    def step(key: Any, state: Any, action: Any) -> Any:
        obs, state, reward, done, _ = env.step_env(key, state, action, params)
        return state, show(obs), reward, *ends(state, done)

    return Library(int(actions.n), reset, step, form or _find_form(reset))


def _check_known(name: str, names: Iterable[str]) -> None:
    if name not in (known := list(names)):
        hint = suggest(name, known, f"there are {', '.join(known[:4])} and others")
        raise InputError(f"unknown environment {name!r}; {hint}")


def _set_params(params: Any, settings: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Set fields of a library's parameters; return these and the other settings."""
    own = settings.keys() & {field.name for field in dataclasses.fields(params)}
    others = {name: value for name, value in settings.items() if name not in own}
    return params.replace(**{name: settings[name] for name in own}), others


def _find_form(reset: Callable[..., Any], values: tuple[int, ...] | None = None) -> Observation:
    """Return the form of a library's observations: planes if they have rows, columns, channels."""
    _, obs = jax.eval_shape(reset, jax.random.key(0))
    if not hasattr(obs, "shape"):
        raise InputError(f"need one array as an observation, got {type(obs).__name__}")
    return Planes(obs.shape, values) if len(obs.shape) == 3 else Dense(obs.shape)
