"""From names and numbers to an agent."""

import json
import math

import numpy as np
import pytest

from winkel.agents import AGENTS, VARIANTS
from winkel.envs.registry import make
from winkel.errors import InputError
from winkel.runs.spec import check_field_names, check_seeds, configure, fingerprint, make_spec

SEA = make("deep_sea:size=4")


def support(task_id, agent="pe_dqn", **fields):
    _, hyper = configure(agent, fields, make(task_id))
    return hyper.z_min, hyper.z_max


def test_a_field_must_be_one_of_the_agents():
    check_field_names({"beta": 2, "num_atoms": 7}, "pe_dqn")
    with pytest.raises(InputError, match="dqn has no field 'beta'"):
        check_field_names({"beta": 2}, "dqn")


def test_seeds_are_a_number_of_them_or_a_list():
    assert check_seeds(np.int64(3)) == check_seeds(np.arange(3)) == [0, 1, 2]
    for seeds in (0, np.int64(-1), [], [1, 1], [-1]):
        with pytest.raises(InputError):
            check_seeds(seeds)


def test_an_unknown_field_lists_what_there_is():
    with pytest.raises(InputError) as error:
        check_field_names(["zzzzz"], "pe_dqn")
    for name in ("num_atoms", "projections", "beta_decay", "z_max"):
        assert name in str(error.value)


@pytest.mark.parametrize("name", [*AGENTS, *VARIANTS])
def test_every_agent_and_variant_is_described_as_json(name):
    spec = make_spec(SEA, name, {})
    again = json.loads(json.dumps(spec.config, allow_nan=False))
    fields = again["config"] | again["hyper"]
    assert configure(name, fields, SEA) == (spec.agent, spec.hyper)
    assert all(isinstance(value, float) for value in again["hyper"].values())
    assert (again["algorithm"], spec.agent.spec.num_actions) == (name, 2)


def test_a_variant_is_the_agent_with_other_fields():
    assert configure("pe_dqn_no_prior", {}, SEA) == configure("pe_dqn", {"priors": ()}, SEA)
    changed = configure("pe_dqn_no_prior", {"priors": "quantile"}, SEA)
    assert changed == configure("pe_dqn", {}, SEA)


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
    ],
)
def test_values_become_the_fields_type(given, kept):
    spec = make_spec(SEA, "pe_dqn", given)
    fields = {**vars(spec.agent.config), **spec.hyper._asdict()}
    (name,) = given
    assert fields[name] == kept
    assert type(fields[name]) is type(kept)
    json.dumps(spec.config)
    hash(spec.agent)


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
    assert not hasattr(configure("dqn", {}, SEA)[1], "z_min")
    with pytest.raises(InputError, match="dqn has no field 'z_min'"):
        configure("dqn", {"z_min": 0.0}, SEA)
