"""Agents: one file each. `AGENTS` is the table that command line, sweeps and contract tests read.

CONTRIBUTING.md says how to add one, `examples/own_agent.py` how to use one from outside. `VARIANTS`
are agents with other settings that have a name of their own: the paper's ablations. `PRESETS` are
the paper's settings by benchmark.
"""

import tomllib
from importlib import resources
from typing import Any

from winkel.agents import bdqn, c51, dltv, dqn, hyper_agent, ids, pe_dqn, qr_dqn, rnd, statistic
from winkel.agents.base import Agent, Settings, Spec

AGENTS: dict[str, type[Agent]] = {
    "bdqn": bdqn.BDQN,
    "c51": c51.C51,
    "dltv": dltv.DLTV,
    "dqn": dqn.DQN,
    "hyper_agent": hyper_agent.HyperAgent,
    "ids": ids.IDS,
    "pe_dqn": pe_dqn.PEDQN,
    "qr_dqn": qr_dqn.QRDQN,
    "rnd": rnd.RND,
    "statistic": statistic.Statistic,
}

PE_DQN_PLUS: dict[str, Any] = {
    "learning_rate": 2e-3,
    "updates_per_step": 2,
    "capacity": 60_000,
    "priority_exponent": 0.6,
    "importance_final": 0.45,
    "beta": 1.0,
    "beta_final": 1.0,
    "bonus_discount": 0.98,
    "bonus_floor": True,
    "bonus_support": 1.0,
    "unit_prior": True,
    "prior_scale": 1.0,
}
"""PE-DQN with one setting for all sizes of deep sea and no schedule (docs/research/deep-sea.md)."""

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "pe_dqn_plus": ("pe_dqn", PE_DQN_PLUS),
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
        f"statistic_{name}_{moment}": ("statistic", {"projection": name, "moment": moment})
        for name in ("quantile", "categorical")
        for moment in statistic.MOMENTS
    },
}
"""An agent's name, and the fields of its `Config` or `Hyper` that differ."""


def _vizdoom(rate: int = 1, **more: Any) -> dict[str, dict[str, Any]]:
    """Every agent's fields in `vizdoom.toml`, and more; learning rates times `rate`."""
    table = tomllib.loads((resources.files("winkel.agents") / "vizdoom.toml").read_text("utf-8"))

    def read(field: str, value: Any) -> Any:
        if field.endswith("learning_rate"):
            return round(rate * value, 9)
        return tuple(value) if isinstance(value, list) else value

    return {
        name: {field: read(field, value) for field, value in (table["all"] | own | more).items()}
        for name, own in table["agents"].items()
    }


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "bsuite": {name: {} for name in AGENTS},
    "vizdoom": _vizdoom(),
    "vizdoom-official": _vizdoom(rate=10, he_slope=5.0**0.5),
}
"""Fields of an agent's `Config` or `Hyper` that differ, by the preset's name and the agent's.

The last is nearer to the authors' program: all agents learn at ten times the table's rate, and
weights start smaller, so that a fresh head gives about a hundredth of what it gives by He et al."""


__all__ = ["AGENTS", "PRESETS", "VARIANTS", "Agent", "Settings", "Spec"]
