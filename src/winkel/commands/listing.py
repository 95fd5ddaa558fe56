"""`winkel list`: names that commands take."""

import textwrap
from typing import Any, Literal

import tyro

from winkel.agents import AGENTS, PRESETS, VARIANTS
from winkel.agents.describe import describe_settings
from winkel.commands.options import say, write_option
from winkel.envs.registry import EXPERIMENTS, FAMILIES, parse
from winkel.errors import InputError
from winkel.extensions import entry_points
from winkel.figures import FIGURES
from winkel.play.zoo import load_zoo, zoo_names
from winkel.projections import PROJECTIONS
from winkel.runs.spec import find_agent

OTHERS = {
    "{gymnax,craftax,navix,pgx,xminigrid}:NAME": "an environment in JAX of that library",
    "jax:my_module:MyEnv": "one of yours: a class, an object or a function",
    "gym:CartPole-v1": "anything that is registered with Gymnasium",
    "gym:my_module:MyEnv-v0": "the same, once my_module is imported",
    "dm:bsuite/catch/0": "DeepMind's own bsuite",
    "dm:my_module:make": "a function that returns a dm_env.Environment",
    "my_module:make": "one that returns a Gymnasium or dm_env environment",
    "doom:my-way-home/{dense,sparse,very-sparse}": "VizDoom",
}
"""Names of environments that are not winkel's own, by example."""


def list_names(
    what: tyro.conf.Positional[
        Literal["envs", "agents", "presets", "projections", "figures", "zoo"]
    ],
    name: tyro.conf.Positional[str | None] = None,
) -> None:
    """List the names that commands take.

    Args:
        what: Which table.
        name: An agent: print all of its settings with meaning, range and default.
    """
    if name is not None and what != "agents":
        raise InputError(f"need `winkel list agents NAME`, got {what} {name}")
    if name is not None:
        _list_settings(name)
    elif what == "envs":
        _list_environments()
    elif what == "agents":
        _list_agents()
    elif what == "presets":
        for preset, agents in PRESETS.items():
            say(f"{preset:20} for {', '.join(agents)}")
    elif what == "zoo":
        for policy in zoo_names():
            about = load_zoo(policy).about
            say(f"{policy:20} mean return {about['returns']['mean']:.4g}  {about['command']}")
    else:
        for key, entry in (PROJECTIONS if what == "projections" else FIGURES).items():
            say(f"{key:15} {_summary(entry)}")
        for key, point in entry_points(what).items() if what == "projections" else ():
            say(f"{key:15} {point.value}, installed")


def _list_agents() -> None:
    for name, kind in AGENTS.items():
        say(f"{name:32} {_summary(kind)}")
    for name, point in entry_points("agents").items():
        say(f"{name:32} {point.value}, installed")
    for name, (base, fields) in VARIANTS.items():
        changes = ", ".join(f"{field} {value}" for field, value in fields.items())
        say(f"{name:32} {base} with {changes}")
    say("`winkel list agents NAME` describes all settings of an agent")


def _list_settings(agent: str) -> None:
    kind, changed = find_agent(agent)
    say(f"{agent}: {_summary(kind)}")
    for name, default, accepts, meaning in describe_settings(kind, changed):
        say(f"  {write_option(name)} {default}  ({accepts})")
        indent = " " * 6
        say(textwrap.fill(meaning, 80, initial_indent=indent, subsequent_indent=indent))


def _summary(entry: Any) -> str:
    return (entry.__doc__ or "").strip().splitlines()[0]


def _list_environments() -> None:
    for name in dict.fromkeys((*EXPERIMENTS, *FAMILIES)):
        experiment, _ = parse(name)
        keys = ", ".join(FAMILIES[experiment.family].defaults)
        ids = " … ".join(dict.fromkeys((experiment.ids[0], experiment.ids[-1])))
        tags = ", ".join(experiment.tags) or "none"
        say(f"{ids:50} {experiment.num_episodes:6d} episodes  tags {tags}")
        say(f"{'':50} override {name}:{'key=value'} with {keys}")
    total = sum(len(experiment.settings) for experiment in EXPERIMENTS.values())
    say(f"{len(EXPERIMENTS)} experiments, {total} settings")
    say("and others, each with settings :key=value,… or without:")
    for name, meaning in OTHERS.items():
        say(f"{name:50} {meaning}")
