"""Agents: one file each. `AGENTS` is the table that command line, sweeps and contract tests read.

CONTRIBUTING.md says how to add one. `VARIANTS` are agents with other
settings that have a name of their own: the paper's ablations. `PRESETS` are the paper's settings
by benchmark.
"""

import tomllib
from importlib import resources
from typing import Any

from winkel.agents import bdqn, c51, dltv, dqn, ids, pe_dqn, qr_dqn, statistic
from winkel.agents.base import Agent, Kind, Spec

AGENTS: dict[str, Kind] = {
    "bdqn": Kind(bdqn.BDQN, bdqn.Config, bdqn.Hyper),
    "c51": Kind(c51.C51, c51.Config, c51.Hyper),
    "dltv": Kind(dltv.DLTV, dltv.Config, dltv.Hyper),
    "dqn": Kind(dqn.DQN, dqn.Config, dqn.Hyper),
    "ids": Kind(ids.IDS, ids.Config, ids.Hyper),
    "pe_dqn": Kind(pe_dqn.PEDQN, pe_dqn.Config, pe_dqn.Hyper),
    "qr_dqn": Kind(qr_dqn.QRDQN, qr_dqn.Config, qr_dqn.Hyper),
    "statistic": Kind(statistic.Statistic, statistic.Config, statistic.Hyper),
}

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "pe_dqn_qr_qr": ("pe_dqn", {"projections": ("quantile", "quantile")}),
    "pe_dqn_c51_c51": (
        "pe_dqn",
        {"projections": ("categorical", "categorical"), "priors": ("categorical",)},
    ),
    "pe_dqn_ind": ("pe_dqn", {"backup": "independent", "propagate": False}),
    "pe_dqn_no_prior": ("pe_dqn", {"priors": ()}),
    "ids_clip": ("ids", {"noise": "clipped"}),
    "dltv_no_prior": ("dltv", {"prior": False}),
    **{
        f"statistic_{projection}_{moment}": (
            "statistic",
            {"projection": projection, "moment": moment},
        )
        for projection in ("quantile", "categorical")
        for moment in statistic.MOMENTS
    },
}
"""An agent's name, and the fields of its `Config` or `Hyper` that differ."""


def _vizdoom(**more: Any) -> dict[str, dict[str, Any]]:
    """Every agent's fields in `vizdoom.toml`, and more."""
    table = tomllib.loads((resources.files("winkel.agents") / "vizdoom.toml").read_text("utf-8"))
    made = {name: {**table["all"], **fields, **more} for name, fields in table["agents"].items()}
    return {
        name: {field: tuple(x) if isinstance(x, list) else x for field, x in fields.items()}
        for name, fields in made.items()
    }


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "bsuite": {name: {} for name in AGENTS},
    "vizdoom": _vizdoom(),
    "vizdoom-official": _vizdoom(he_slope=5.0**0.5),
}
"""Fields of an agent's `Config` or `Hyper` that differ, by the preset's name and the agent's.

The last is nearer to the authors' program: PE-DQN learns at ten times the table's rate, and weights
start smaller, so that a fresh head gives about a hundredth of what it gives by He et al."""
PRESETS["vizdoom-official"]["pe_dqn"]["learning_rate"] = 6.25e-4

__all__ = ["AGENTS", "PRESETS", "VARIANTS", "Agent", "Kind", "Spec"]
