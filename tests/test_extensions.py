"""Agents and projections from outside the package: by module, by class, by entry point."""

import json
import sys
import textwrap

import numpy as np
import pytest

import winkel
from runs.tiny import ENV, OFTEN, TINY, assert_same_records, learn, stop_after
from terminal_helpers import refused
from winkel import cli, extensions
from winkel.errors import InputError
from winkel.projections import find_projection
from winkel.runs.results import read_results
from winkel.runs.spec import find_agent, run_fingerprint

NAME = "boltzmann:Boltzmann"
AGENT = '''
from dataclasses import dataclass
from typing import NamedTuple
import jax
import jax.numpy as jnp
from winkel.agents import Agent, Settings, base
from winkel.agents.dqn import DQN
from winkel.projections import Quantile
from winkel.types import Decision

open("trace", "a").close()

class Hyper(NamedTuple):
    learning_rate: base.LearningRate = 1e-3
    gamma: base.Discount = 0.99
    temperature: base.Positive = 0.1

class NoDefault(NamedTuple):
    gamma: base.Discount

@dataclass(frozen=True)
class Boltzmann(DQN):
    """Draws actions."""
    hyper_type = Hyper
    def act(self, learner, actor, obs, first, clock, hyper, key):
        scores = self.scores(learner, obs, clock, hyper) / hyper.temperature
        return Decision(action=jax.random.categorical(key, scores)), actor

@dataclass(frozen=True)
class Unfinished(Agent):
    config_type, hyper_type = Settings, Hyper
    def init(self, key, hyper):
        return ()

@dataclass(frozen=True)
class Wrong(DQN):
    hyper_type = NoDefault

@dataclass(frozen=True)
class Raises(Boltzmann):
    def update(self, learner, batch, clock, hyper, key):
        return learner, jnp.zeros(3) @ jnp.zeros(4)

@dataclass(frozen=True)
class Grows(Boltzmann):
    def update(self, learner, batch, clock, hyper, key):
        learner, update = super().update(learner, batch, clock, hyper, key)
        return (learner, learner), update

@dataclass(frozen=True)
class Silent(Boltzmann):
    def update(self, learner, batch, clock, hyper, key):
        learner, update = super().update(learner, batch, clock, hyper, key)
        return learner, update._replace(metrics={"td": update.metrics["loss"]})

class Own(Quantile):
    """A projection."""

class Half:
    num_atoms = 3
    def decode(self, theta):
        return theta
'''


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A new process's state, in a folder with the user's module; importing it leaves a trace."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    monkeypatch.setattr(extensions, "_permitted", {})
    (tmp_path / "boltzmann.py").write_text(AGENT)
    yield tmp_path
    sys.modules.pop("boltzmann", None)


def forget():
    """Be a new process, as far as names of code are concerned."""
    extensions._permitted.clear()
    sys.modules.pop("boltzmann", None)


def train_own(out, *more):
    words = f"train deep_sea:size=4 --agent {NAME} --episodes 8 --out {out} --chunk-steps 8"
    tiny = "--hidden 8 --batch-size 8 --burn-in 8 --capacity 64"
    cli.main([*words.split(), *tiny.split(), *more])


def test_an_agent_of_a_module_is_trained_loaded_inspected_and_reported(here, capsys):
    train_own(here / "runs", "--temperature", "0.5")
    folder = here / "runs/deep_sea" / NAME / "size=4/seed-0"
    config = json.loads((folder / "config.json").read_text())
    assert config["algorithm"] == config["agent"] == NAME
    assert config["hyper"]["temperature"] == 0.5
    forget()
    run = winkel.load(folder, code=NAME).of()
    assert run.policy()(0) in (0, 1)
    cli.main(["inspect", str(folder), "--code", NAME, "--formats", "png"])
    forget()
    (here / "trace").unlink()
    cli.main(["report", str(here / "runs"), "--out", str(here / "page")])
    cli.main(["train", "deep_sea:size=4", "--agent", "dqn", "--episodes", "8", "--hidden", "8"])
    assert read_results(here / "runs").agents() == [NAME, "dqn"]
    assert not (here / "trace").exists()


@pytest.mark.parametrize("command", ["inspect", "play"])
def test_a_folder_does_not_choose_the_agent_that_is_imported(here, capsys, command):
    train_own(here / "runs")
    folder = here / "runs/deep_sea" / NAME / "size=4/seed-0"
    forget()
    (here / "trace").unlink()
    message = refused([command, folder], capsys)
    assert f"the run names {NAME!r}, which winkel imports only if you name it" in message
    assert f"--code {NAME}" in message
    with pytest.raises(InputError, match="imports only if you name it"):
        winkel.load(folder)
    assert not (here / "trace").exists()


def test_a_folder_does_not_choose_the_projection_that_is_imported(here):
    out = learn(here / "runs").of().folder
    config = json.loads((out / "config.json").read_text())
    config["config"]["projections"] = ["quantile", "boltzmann:Own"]
    config["fingerprint"] = run_fingerprint(config)
    (out / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="names 'boltzmann:Own', which winkel imports only if"):
        winkel.load(out)
    assert not (here / "trace").exists()


def learn_own(out, agent, **changed):
    settings = {name: value for name, value in TINY.items() if name != "num_atoms"}
    return winkel.train(ENV, agent, out=out, episodes=20, options=OFTEN, **settings, **changed)


def test_a_run_of_a_class_is_resumed_bit_for_bit(here):
    agent = extensions.load_target(NAME)
    whole = learn_own(here / "whole", agent).of().folder
    with pytest.raises(KeyboardInterrupt):
        learn_own(here / "parts", agent, progress=stop_after(2))
    forget()
    parts = learn_own(here / "parts", NAME, resume=True).of().folder
    assert_same_records(whole, parts)


def test_a_projection_of_a_class_or_a_name_is_a_member_of_pe_dqn(here):
    own = extensions.load_target("boltzmann:Own")
    by_class = learn(here / "a", projections=("categorical", own), priors=()).of()
    by_name = learn(here / "b", projections=("categorical", "boltzmann:Own"), priors=()).of()
    assert by_class.config["config"]["projections"] == ["categorical", "boltzmann:Own"]
    assert_same_records(by_class.folder, by_name.folder)
    built_in = learn(here / "c", projections=("categorical", "quantile"), priors=()).of()
    assert built_in.agent.member_names() == ("categorical", "quantile")


def test_sweeps_compare_it_with_others(here, capsys):
    words = f"sweep deep-sea --sizes 4 --agents dqn {NAME} --episodes 4 --out runs"
    cli.main([*words.split(), *["--hidden", "8", "--batch-size", "8", "--burn-in", "8"]])
    assert read_results(here / "runs").agents() == [NAME, "dqn"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("boltzman:Boltzmann", "no module 'boltzman' for 'boltzman:Boltzmann'"),
        ("boltzmann:Boltzman", "has no function 'Boltzman'; did you mean Boltzmann"),
        ("boltzmann:Unfinished", "lacks estimates, member_names, update"),
        ("boltzmann:Own", "need a subclass of winkel.agents.Agent for boltzmann:Own, got"),
        ("boltzmann:Wrong", "a default for every field, as hyper_type of boltzmann:Wrong"),
        ("boltzmann:Raises", "agent boltzmann:Raises raised TypeError: .* \\(boltzmann.py, line"),
        ("boltzmann:Grows", "input carry learner .* corresponding component .* <class 'tuple'>"),
        ("boltzmann:Silent", r"Silent: need the metric 'loss' of update, got \['td'\]"),
        ("boltzmannn", "unknown agent 'boltzmannn'; see `winkel list agents`"),
    ],
)
def test_mistakes_in_an_agent_are_one_line(here, name, message):
    with pytest.raises(InputError, match=message) as caught:
        winkel.train("deep_sea:size=4", name, episodes=4, **{"hidden": (8,), "burn_in": 8})
    assert "\n" not in str(caught.value)


def test_a_module_that_raises_is_one_line(here):
    (here / "broken.py").write_text("import jax\n1 / 0\n")
    with pytest.raises(InputError, match=r"importing broken raised ZeroDivisionError.*broken.py"):
        winkel.train("deep_sea:size=4", "broken:Agent", episodes=4)


def test_a_projection_without_a_method_is_one_line(here):
    with pytest.raises(InputError, match="projection boltzmann:Half lacks spanning, project, loss"):
        learn(projections=("quantile", "boltzmann:Half"))


def test_a_class_inside_a_function_has_no_name_to_record(here):
    class Inner:
        pass

    with pytest.raises(InputError, match="need a class at the top of a module"):
        winkel.train("deep_sea:size=4", Inner, episodes=4)


@pytest.fixture
def installed(here, tmp_path_factory, monkeypatch):
    """An installed package with entry points."""
    site = tmp_path_factory.mktemp("site")
    (site / "offered.py").write_text(AGENT.replace('open("trace", "a").close()', ""))
    meta = site / "offered-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: offered\nVersion: 1.0\n")
    points = """
        [winkel.agents]
        soft = offered:Boltzmann
        lost = offered:Nowhere
        [winkel.projections]
        own = offered:Own
    """
    (meta / "entry_points.txt").write_text(textwrap.dedent(points))
    monkeypatch.syspath_prepend(str(site))
    yield site
    sys.modules.pop("offered", None)


def test_entry_points_of_installed_packages_have_plain_names(installed, here, capsys):
    run = learn_own(here / "runs", "soft").of()
    assert run.config["algorithm"] == "soft"
    assert np.isfinite(winkel.load(run.folder).of().estimates(0).value).all()
    assert find_projection("own").__name__ == "Own"
    with pytest.raises(InputError, match="loading lost, offered:Nowhere raised AttributeError"):
        find_agent("lost")
    with pytest.raises(InputError, match="unknown agent 'sift'; did you mean soft"):
        find_agent("sift")
    cli.main(["list", "agents"])
    assert "soft" in capsys.readouterr().out
    cli.main(["list", "projections"])
    assert "own             offered:Own, installed" in capsys.readouterr().out


def test_the_current_folder_is_no_installation(installed, monkeypatch):
    monkeypatch.chdir(installed)
    with pytest.raises(InputError, match="unknown agent 'soft'"):
        find_agent("soft")


def test_names_on_the_command_line_are_permitted():
    names = extensions.permit("pe_dqn", NAME, "examples.own_agent:Boltzmann")
    assert names == ("pe_dqn", NAME, "examples.own_agent:Boltzmann")
    assert extensions.permitted() == (NAME, "examples.own_agent:Boltzmann")
