"""The paper's settings by benchmark: fields of an agent's `Config` or `Hyper` that differ.

The defaults are those for bsuite. Those for VizDoom are of appendix B, with what it leaves open:

- heads have one hidden layer of 256, as in Schmidt and Schmied (2021), and do not duel: what the
  members of an ensemble share is the body, and each gives the outputs of every action;
- the priorities' exponent, of which the paper says nothing, is 1/2, as in Rainbow;
- β, which the text decays to 0, ends at the table's 0.01;
- 8,000 frames between target copies are 250 updates of 32 environments each;
- IDS has one prior scale in the table: the ensemble's, the model of noise has none; its noise is
  clipped, as the paper changes that for bsuite;
- the normalised bonus is an average (`average_bonus`), without which its sum would leave the
  support that it has, twice the values';
- plain agents, which the paper does not run, get the learning rate of PE-DQN.
"""

from collections.abc import Mapping
from typing import Any

from winkel.errors import InputError

_DOOM: Mapping[str, Any] = {
    "hidden": (256,),
    "batch_size": 512,
    "capacity": 1_000_000,
    "burn_in": 100_000,
    "target_period": 250,
    "n_step": 10,
    "priority_exponent": 0.5,
    "importance_exponent": 0.45,
    "adam_epsilon": 5e-3,
    "clip_norm": 10.0,
    "channels": 2,
    "spectral": True,
    "gamma": 0.997,
    "epsilon": 1.0,
    "epsilon_final": 0.01,
    "epsilon_steps": 500_000.0,
}
"""What all agents share, the lower half of the table."""
_SUPPORT: Mapping[str, Any] = {"num_atoms": 101, "z_min": -2.0, "z_max": 2.0}

_BY_AGENT: Mapping[str, Mapping[str, Any]] = {
    "pe_dqn": {
        **_SUPPORT,
        "huber_width": 1.0,
        "learning_rate": 6.25e-5,
        "prior_scale": 3.0,
        "beta": 5.0,
        "beta_final": 0.01,
        "normalise_intrinsic": True,
        "average_bonus": True,
    },
    "bdqn": {
        "huber_width": 1.0,
        "double": True,
        "learning_rate": 2.5e-5,
        "prior_scale": 1.0,
        "num_members": 10,
    },
    "ids": {
        **_SUPPORT,
        "huber_width": 1.0,
        "double": True,
        "noise": "clipped",
        "c51_hidden": (256,),
        "learning_rate": 2.5e-5,
        "c51_learning_rate": 2.5e-5,
        "prior_scale": 1.0,
        "c51_prior_scale": 0.0,
        "num_members": 10,
        "beta": 0.1,
        "beta_final": 0.01,
    },
    "dltv": {
        "huber_width": 1.0,
        "learning_rate": 7.5e-5,
        "prior_scale": 3.0,
        "num_atoms": 101,
        "beta": 0.5,
    },
    "qr_dqn": {"huber_width": 1.0, "double": True, "learning_rate": 6.25e-5, "num_atoms": 101},
    "c51": {**_SUPPORT, "double": True, "learning_rate": 6.25e-5},
    "dqn": {"huber_width": 1.0, "double": True, "learning_rate": 6.25e-5},
    "statistic": {**_SUPPORT, "learning_rate": 6.25e-5},
}
_VIZDOOM = {name: {**_DOOM, **fields} for name, fields in _BY_AGENT.items()}

PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "bsuite": {name: {} for name in _VIZDOOM},
    "vizdoom": _VIZDOOM,
    "vizdoom-official": {
        **{name: {**fields, "he_slope": 5.0**0.5} for name, fields in _VIZDOOM.items()},
        "pe_dqn": {**_VIZDOOM["pe_dqn"], "he_slope": 5.0**0.5, "learning_rate": 6.25e-4},
    },
}
"""By the preset's name and the agent's. The last is nearer to the authors' program: PE-DQN learns
at ten times the table's rate, and weights start smaller, so that a fresh head gives about a
hundredth of what it gives by He et al."""


def preset(name: str, agent: str) -> dict[str, Any]:
    """The fields of an agent from the table; raises for an agent that is not in it."""
    if agent not in PRESETS[name]:
        known = ", ".join(PRESETS[name])
        raise InputError(f"need an agent that {name} has settings for ({known}), got {agent!r}")
    return dict(PRESETS[name][agent])
