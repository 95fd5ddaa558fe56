"""From names and numbers to an agent."""

import json
import math

import numpy as np
import pytest

from winkel.agents import AGENTS, VARIANTS
from winkel.envs.registry import make
from winkel.errors import InputError
from winkel.runs.configure import configure, field_name, parse_fields
from winkel.runs.spec import Horizon, Options, fingerprint, make_spec

SEA = make("deep_sea:size=4")


def describe(configured):
    config = make_spec(SEA, configured, 0, Horizon(), None, Options()).config
    return {name: config[name] for name in ("config", "hyper")}


def support(task_id, agent="pe_dqn", **fields):
    hyper = configure(agent, fields, make(task_id)).hyper
    return hyper.z_min, hyper.z_max


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], {}),
        (["--num-atoms", "7"], {"num_atoms": 7}),
        (["--num_atoms", "7"], {"num_atoms": 7}),
        (["--num-atoms=7"], {"num_atoms": 7}),
        (["--num_atoms=7"], {"num_atoms": 7}),
        (["--hyper.beta", "2"], {"beta": 2}),
        (["--config.num-atoms=7"], {"num_atoms": 7}),
        (["--config.num_atoms", "7"], {"num_atoms": 7}),
        (["--learning-rate", "1e-3"], {"learning_rate": 1e-3}),
        (["--learning-rate=.5"], {"learning_rate": 0.5}),
        (["--hidden", "64,64"], {"hidden": (64, 64)}),
        (["--hidden=64, 32"], {"hidden": (64, 32)}),
        (["--hidden", "64,"], {"hidden": (64,)}),
        (["--hidden", "64"], {"hidden": 64}),
        (["--projections", "quantile,quantile"], {"projections": ("quantile", "quantile")}),
        (["--priors", "none"], {"priors": ()}),
        (["--priors", "()"], {"priors": ()}),
        (["--priors", "categorical"], {"priors": "categorical"}),
        (["--propagate", "false"], {"propagate": False}),
        (["--propagate=True"], {"propagate": True}),
        (["--z-min", "-2"], {"z_min": -2}),
        (["--z-min=-2.5", "--z-max", "-.5"], {"z_min": -2.5, "z_max": -0.5}),
        (["--backup", "independent"], {"backup": "independent"}),
        (["--beta", "1", "--beta", "2"], {"beta": 2}),
        (["--beta", "1", "--num-atoms=7"], {"beta": 1, "num_atoms": 7}),
    ],
)
def test_fields_are_read_from_the_command_line(arguments, found):
    assert parse_fields(["pe_dqn"], arguments) == found
    configure("pe_dqn", found, SEA)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--beta"], "need a value after --beta"),
        (["--num-atoms", "7", "--beta"], "need a value after --beta"),
        (["--beta", "--num-atoms", "7"], "need a value after --beta"),
        (["beta", "1"], "need --field value, got 'beta'"),
        (["-beta", "1"], "need --field value, got '-beta'"),
        (["--beta", "1", "2"], "need --field value, got '2'"),
        (["--betta", "1"], "pe_dqn has no field 'betta'; did you mean beta"),
        (["--", "1"], "''"),
    ],
)
def test_bad_arguments_are_named(arguments, shown):
    with pytest.raises(InputError, match=shown):
        parse_fields(["pe_dqn"], arguments)


@pytest.mark.parametrize("value", ["", ","])
def test_a_value_may_not_be_empty(value):
    with pytest.raises(InputError, match="beta"):
        configure("pe_dqn", parse_fields(["pe_dqn"], [f"--beta={value}"]), SEA)


def test_an_unknown_field_lists_what_there_is():
    with pytest.raises(InputError) as error:
        field_name("pe_dqn", "zzzzz")
    for name in ("num_atoms", "projections", "beta_decay", "z_max"):
        assert name in str(error.value)


@pytest.mark.parametrize("name", [*AGENTS, *VARIANTS])
def test_every_agent_and_variant_is_described_as_json(name):
    configured = configure(name, {}, SEA)
    described = describe(configured)
    again = json.loads(json.dumps(described, allow_nan=False))
    fields = again["config"] | again["hyper"]
    assert configure(name, fields, SEA) == configured
    assert all(isinstance(value, float) for value in again["hyper"].values())
    assert configured.agent.spec.num_actions == 2


def test_a_variant_is_the_agent_with_other_fields():
    variant = configure("pe_dqn_no_prior", {}, SEA)
    assert variant.name == "pe_dqn_no_prior"
    assert variant.agent == configure("pe_dqn", {"priors": ()}, SEA).agent
    changed = configure("pe_dqn_no_prior", {"priors": "quantile"}, SEA)
    assert changed.agent == configure("pe_dqn", {}, SEA).agent


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"hidden": [8, 8]}, (8, 8)),
        ({"hidden": 8}, (8,)),
        ({"hidden": ()}, ()),
        ({"hidden": (np.int64(8),)}, (8,)),
        ({"num_atoms": np.int64(7)}, 7),
        ({"huber_width": 1}, 1.0),
        ({"huber_width": np.float32(1)}, 1.0),
        ({"beta": 3}, 3.0),
        ({"beta": np.float64(3)}, 3.0),
        ({"beta": np.float32(3)}, 3.0),
        ({"learning-rate": 0.5}, 0.5),
        ({"hyper.beta": 0.5}, 0.5),
    ],
)
def test_values_become_the_fields_type(given, kept):
    configured = configure("pe_dqn", given, SEA)
    fields = {**vars(configured.agent.config), **configured.hyper._asdict()}
    (name,) = (field_name("pe_dqn", name) for name in given)
    assert fields[name] == kept
    assert type(fields[name]) is type(kept)
    json.dumps(describe(configured))
    hash(configured.agent)


def test_a_fingerprint_does_not_depend_on_the_order_of_fields():
    settings = {"a": 1, "b": {"x": [1, 2], "y": None}, "c": 0.5}
    turned = {"c": 0.5, "b": {"y": None, "x": (1, 2)}, "a": 1}
    assert fingerprint(settings) == fingerprint(turned)
    assert len(fingerprint(settings)) == 16
    for other in ({"a": 2}, {"b": {"x": [2, 1], "y": None}}, {"c": None}, {"d": 1}):
        assert fingerprint(settings | other) != fingerprint(settings)


def test_the_support_is_the_environments_range_of_returns():
    """Half of the width is added at either end, and the reward's scale multiplies it."""
    assert support("deep_sea:size=4") == (-0.5, 1.5)
    assert support("catch/0") == (-2.0, 2.0)
    low, high = support("catch_scale/0")
    assert (low, high) == pytest.approx((-0.002, 0.002))
    assert support("catch_noise/0")[1] > 2.0
    assert support("cartpole/0", gamma=0.5) == pytest.approx((-1.0, 3.0))
    assert support("cartpole/0", gamma=1.0) == (-500.0, 1500.0)
    assert all(math.isfinite(end) for end in support("memory_len/0"))


def test_the_support_can_be_chosen():
    assert support("deep_sea:size=4", z_min=-3) == (-3.0, 1.5)
    assert support("deep_sea:size=4", z_max=7.5) == (-0.5, 7.5)
    assert support("deep_sea:size=4", z_min=2.0, z_max=3.0) == (2.0, 3.0)


@pytest.mark.parametrize(
    ("ends", "shown"),
    [
        ({"z_min": 2.0}, r"z_min < z_max, got \[2, 1.5\]"),
        ({"z_min": 1.0, "z_max": 1.0}, r"\[1, 1\]"),
        ({"z_min": 3.0, "z_max": -3.0}, r"\[3, -3\]"),
        ({"z_max": -1.0}, r"\[-0.5, -1\]"),
        ({"z_max": math.inf}, "inf"),
        ({"z_min": math.nan}, "nan"),
    ],
)
def test_a_support_the_wrong_way_round_is_refused(ends, shown):
    with pytest.raises(InputError, match=shown):
        configure("pe_dqn", ends, SEA)


def test_agents_without_a_support_get_none():
    assert not hasattr(configure("dqn", {}, SEA).hyper, "z_min")
    with pytest.raises(InputError, match="dqn has no field 'z_min'"):
        configure("dqn", {"z_min": 0.0}, SEA)
