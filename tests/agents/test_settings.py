"""Settings that are refused, by agent, each with a line that names the value and what is right."""

import pytest

from winkel.agents import AGENTS
from winkel.errors import InputError

REFUSED = [
    # Fields that all agents have.
    ("dqn", {"batch_size": 0}, "batch_size >= 1, a whole number, got 0"),
    ("pe_dqn", {"capacity": 0}, "capacity >= 1, a whole number, got 0"),
    ("pe_dqn", {"target_period": 0}, "target_period >= 1, a whole number, got 0"),
    ("dqn", {"n_step": 0}, "n_step >= 1, a whole number, got 0"),
    ("bdqn", {"channels": 0}, "channels >= 1, a whole number, got 0"),
    ("dqn", {"priority_exponent": 1.5}, r"priority_exponent in \[0, 1\], got 1.5"),
    ("c51", {"importance_exponent": -0.1}, r"importance_exponent in \[0, 1\], got -0.1"),
    ("dqn", {"clip_norm": -1.0}, "clip_norm >= 0, got -1"),
    ("ids", {"clip_norm": float("nan")}, "clip_norm >= 0, got nan"),
    ("dqn", {"he_slope": -1.0}, "he_slope >= 0, got -1"),
    ("dltv", {"adam_epsilon": 0.0}, "adam_epsilon > 0, got 0"),
    ("dqn", {"compute": "float16"}, "compute from float32, bfloat16, got 'float16'"),
    # Fields of several agents.
    *((name, {"hidden": (64, 0)}, "each of hidden >= 1, a whole number, got 0") for name in AGENTS),
    *(
        (name, {"huber_width": width}, f"huber_width >= 0, got {width}")
        for name in ("pe_dqn", "bdqn", "ids", "dltv", "dqn", "qr_dqn")
        for width in (-0.5, float("inf"), float("nan"))
    ),
    *(
        (name, {"num_atoms": 1}, "num_atoms >= 2, a whole number, got 1")
        for name in ("pe_dqn", "ids", "dltv", "c51", "qr_dqn", "statistic")
    ),
    *(
        (name, {"num_members": 0}, "num_members >= 1, a whole number, got 0")
        for name in ("bdqn", "ids")
    ),
    # Fields of one.
    (
        "pe_dqn",
        {"projections": ("quantile", "quantil")},
        "unknown projection 'quantil'; did",
    ),
    ("pe_dqn", {"priors": ("gaussian",)}, "got 'gaussian'"),
    ("pe_dqn", {"projections": ("quantile",)}, "projections >= 2, a whole number, got 1"),
    ("pe_dqn", {"projections": ()}, "projections >= 2, a whole number, got 0"),
    (
        "pe_dqn",
        {"projections": ("expectile", "categorical"), "num_atoms": 100},
        "odd num_atoms.*got 100",
    ),
    ("pe_dqn", {"backup": "none"}, "backup from mixture, independent, got 'none'"),
    ("ids", {"noise": "none"}, "noise from epsilon, clipped, got 'none'"),
    ("ids", {"unbiased": True, "num_members": 1}, "num_members if unbiased >= 2, .*, got 1"),
    ("ids", {"c51_hidden": (0,)}, "each of c51_hidden >= 1, a whole number, got 0"),
    ("statistic", {"projection": "none"}, "unknown projection 'none'; see"),
    ("statistic", {"moment": "fifth"}, "moment from mean, .*, got 'fifth'"),
]


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(("name", "settings", "message"), REFUSED, ids=str)
def test_impossible_settings_are_refused(name, settings, message):
    with pytest.raises(InputError, match=message):
        AGENTS[name].config_type(**settings)
