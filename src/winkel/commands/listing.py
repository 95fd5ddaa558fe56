"""`winkel list`: names that commands take."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import tyro

from winkel.agents import AGENTS, PRESETS, VARIANTS
from winkel.commands.terminal import say
from winkel.envs.registry import EXPERIMENTS, FAMILIES, parse
from winkel.figures import FIGURES
from winkel.projections import PROJECTIONS

SIMULATORS = {
    "gym:CartPole-v1": "anything that is registered with Gymnasium",
    "gym:my_module:MyEnv-v0": "the same, once my_module is imported",
    "dm:bsuite/catch/0": "DeepMind's own bsuite",
    "dm:my_module:make": "a function that returns a dm_env.Environment",
    "my_module:make": "one that returns a Gymnasium or dm_env environment",
    "doom:my-way-home/{dense,sparse,very-sparse}": "VizDoom",
}
"""Names of environments outside of JAX, by example."""


@dataclass(frozen=True, kw_only=True)
class List:
    """List the names that commands take."""

    what: tyro.conf.Positional[Literal["envs", "agents", "presets", "projections", "figures"]]
    """Which table."""

    def run(self) -> None:
        """Print one line for each entry."""
        if self.what == "envs":
            _list_environments()
        elif self.what == "agents":
            _list_agents()
        elif self.what == "presets":
            for name, agents in PRESETS.items():
                say(f"{name:20} for {', '.join(agents)}")
        else:
            for name, entry in (PROJECTIONS if self.what == "projections" else FIGURES).items():
                say(f"{name:15} {_summary(entry)}")


def _list_agents() -> None:
    for name, kind in AGENTS.items():
        say(f"{name:12} {_summary(kind.make)}")
        static = {field.name: field.default for field in dataclasses.fields(kind.config)}
        traced = {
            field: "the environment's" if value != value else value
            for field, value in kind.hyper._field_defaults.items()
        }
        for field, default in (static | traced).items():
            shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
            say(f"{'':12}   --{field.replace('_', '-'):20} {shown}")
    for name, (base, fields) in VARIANTS.items():
        changes = ", ".join(f"{field} {value}" for field, value in fields.items())
        say(f"{name:32} {base} with {changes}")


def _summary(entry: Any) -> str:
    return (entry.__doc__ or "").strip().splitlines()[0]


def _list_environments() -> None:
    for name in dict.fromkeys((*EXPERIMENTS, *FAMILIES)):
        experiment, _ = parse(name)
        keys = ", ".join(FAMILIES[experiment.family].defaults)
        ids = f"{name}/0 … {name}/{len(experiment.settings) - 1}"
        say(f"{ids:50} {experiment.num_episodes:6d} episodes  tags {', '.join(experiment.tags)}")
        say(f"{'':50} override {name}:{'key=value'} with {keys}")
    total = sum(len(experiment.settings) for experiment in EXPERIMENTS.values())
    say(f"{len(EXPERIMENTS)} experiments, {total} settings")
    say("and simulators, each with settings :key=value,… or without:")
    for name, meaning in SIMULATORS.items():
        say(f"{name:50} {meaning}")
