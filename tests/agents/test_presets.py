"""Presets against the paper's tables."""

import dataclasses

import jax
import numpy as np
import pytest

from winkel.agents import AGENTS, PRESETS, Spec
from winkel.agents.pe_dqn import PEDQN, Config, Hyper
from winkel.errors import InputError
from winkel.runs.presets import named_preset, preset_fields
from winkel.types import Image

KEY = jax.random.key(0)


def split(name, fields):
    """Fields of the Config and of the Hyper."""
    kind = AGENTS[name]
    static = {field.name for field in dataclasses.fields(kind.config_type)}
    config = {f: v for f, v in fields.items() if f in static}
    return config, {f: v for f, v in fields.items() if f in kind.hyper_type._fields}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_name_fields_of_every_agent(name):
    assert set(PRESETS[name]) == set(AGENTS)
    for agent, fields in PRESETS[name].items():
        config, hyper = split(agent, fields)
        assert set(config) | set(hyper) == set(fields)
        AGENTS[agent].config_type(**config)
        assert AGENTS[agent].hyper_type(**hyper).gamma == fields.get("gamma", 0.99)
        assert named_preset(name, agent) == fields


def test_bsuite_is_the_default():
    assert not any(PRESETS["bsuite"].values())


def test_the_papers_table_for_vizdoom():
    """Hyperparameter settings VizDoom, appendix B, row by row."""
    table = PRESETS["vizdoom"]
    columns = ("bdqn", "dltv", "ids", "pe_dqn")
    rows = {
        "learning_rate": (2.5e-5, 7.5e-5, 2.5e-5, 6.25e-5),
        "prior_scale": (1.0, 3.0, 1.0, 3.0),
        "num_atoms": (None, 101, 101, 101),
        "num_members": (10, None, 10, None),
        "beta": (None, 0.5, 0.1, 5.0),
        "beta_final": (None, None, 0.01, 0.01),
        "huber_width": (1.0, 1.0, 1.0, 1.0),
    }
    for field, values in rows.items():
        assert tuple(table[name].get(field) for name in columns) == values, field
    shared = {
        "epsilon": 1.0, "epsilon_final": 0.01, "epsilon_steps": 500_000, "burn_in": 100_000,
        "gamma": 0.997, "capacity": 1_000_000, "batch_size": 512, "adam_epsilon": 0.005,
        "clip_norm": 10.0, "importance_exponent": 0.45, "n_step": 10, "spectral": True,
    }  # fmt: skip
    for name in table:
        assert {field: table[name][field] for field in shared} == shared
        assert table[name]["target_period"] * 32 == 8_000
        double = getattr(AGENTS[name].config_type(**split(name, table[name])[0]), "double", True)
        assert double
    assert Hyper(**split("pe_dqn", table["pe_dqn"])[1]).beta_decay == pytest.approx(1 / 3)
    assert table["pe_dqn"]["normalise_intrinsic"]
    official, slope = PRESETS["vizdoom-official"], {"he_slope": pytest.approx(5**0.5)}
    rates = {"bdqn": 2.5e-4, "dltv": 7.5e-4, "ids": 2.5e-4, "pe_dqn": 6.25e-4}
    for name, fields in table.items():
        faster = {"learning_rate": rates.get(name, 6.25e-4)}
        faster |= {"c51_learning_rate": 2.5e-4} if name == "ids" else {}
        assert official[name] == {**fields, **slope, **faster}


def test_the_papers_network_for_vizdoom():
    """A torso of 389,600, 2 + 2 heads and a prior of 4096·256 + 256 + 256·5·101 + 5·101 each."""
    config, hyper = split("pe_dqn", PRESETS["vizdoom"]["pe_dqn"])
    agent = PEDQN(Config(**config), Spec(Image((42, 42), 6), 5))
    learner = jax.eval_shape(lambda: agent.init(KEY, Hyper(**hyper)))

    def count(tree):
        return sum(x.size for x in jax.tree.leaves(tree))

    head = 4096 * 256 + 256 + 256 * 5 * 101 + 5 * 101
    assert count(learner.shared.params.torso) == 389_600
    assert count(learner.params) == 4 * head
    assert count(learner.prior) == head


def test_the_slope_of_hes_bound_reaches_body_heads_and_priors(monkeypatch):
    monkeypatch.setattr("winkel.networks.impala.CHANNELS", (2,))
    spec = Spec(Image((8, 8), 1), 2)
    fields = {"hidden": (4,), "num_atoms": 3, "channels": 1, "spectral": False}
    hyper = Hyper(z_min=0.0, z_max=1.0)

    @jax.jit
    def begun():
        agents = [PEDQN(Config(**fields, he_slope=slope), spec) for slope in (0.0, 7.0**0.5)]
        return [agent.init(KEY, hyper) for agent in agents]

    for a, b in zip(*map(jax.tree.leaves, begun()), strict=True):
        np.testing.assert_allclose(a, b * 8**0.5, rtol=1e-4, atol=1e-6)


def test_vizdoom_has_settings_of_its_own_by_default():
    own = preset_fields("doom:my-way-home/dense", "pe_dqn", None)
    assert own == PRESETS["vizdoom-official"]["pe_dqn"] != PRESETS["vizdoom"]["pe_dqn"]
    assert preset_fields("gym:CartPole-v1", "pe_dqn", None) == {}


def test_unknown_agents_are_refused():
    with pytest.raises(InputError, match=r"of the preset vizdoom from pe_dqn, .*, got 'ppo'"):
        named_preset("vizdoom", "ppo")


def test_an_agent_without_an_entry_in_the_preset_is_refused(monkeypatch):
    monkeypatch.delitem(PRESETS["vizdoom"], "dqn")
    with pytest.raises(InputError, match=r"need an agent of the preset vizdoom .*, got 'dqn'"):
        named_preset("vizdoom", "dqn")
