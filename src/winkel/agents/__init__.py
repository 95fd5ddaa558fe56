"""Agents: one file each. `AGENTS` is the table that command line, sweeps and contract tests read.

CONTRIBUTING.md says how to add one. `VARIANTS` are agents with other
settings that have a name of their own: the paper's ablations.
"""

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

__all__ = ["AGENTS", "VARIANTS", "Agent", "Kind", "Spec"]
