"""What a newcomer meets: help, names that are nearly right, lists, progress in a log file."""

import re
from functools import partial

import pytest

from terminal_helpers import refused
from winkel import cli
from winkel.agents import AGENTS
from winkel.agents.describe import describe_settings
from winkel.commands import train
from winkel.runs.recorder import Status

OWN_AGENT = '''
from dataclasses import dataclass
from winkel.agents import Settings, dqn

@dataclass(frozen=True, kw_only=True)
class Config(dqn.Config):
    """Static settings."""

    patience: int = 3
    """Steps to wait."""
    colour: str = "blue"

class Patient(dqn.DQN):
    """A DQN that waits."""

    config_type = Config
'''


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_names_values_by_what_they_are(name, capsys):
    with pytest.raises(SystemExit):
        cli.main([*name.split(), "--help"])
    assert not re.search(r"\b(STR|INT|FLOAT|PATH)\b|\{None\}|\|N", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("train", ["ENV", "--episodes N", "--out FOLDER", "--agent NAME"]),
        ("sweep", ["--agents NAME …", "--sizes N …", "--plan FILE", "--cluster {ray}"]),
        ("figure", ["[RUNS]", "--formats {png,pdf,svg} …"]),
    ],
)
def test_help_shows_the_form_of_values(command, shown, capsys):
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    printed = capsys.readouterr().out
    for text in shown:
        assert text in printed


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["tran"], "unknown command 'tran'; did you mean train?"),
        (["Train"], "unknown command 'Train'; did you mean train?"),
        (["train", "catch/0", "--lr", "1"], "unknown option --lr; did you mean --learning-rate?"),
        (["train", "catch/0", "--alpha=1"], "did you mean --learning-rate?"),
        (["train", "catch/0", "--buffer_size", "9"], "did you mean --capacity?"),
        (["train", "catch/0", "--layers", "9"], "did you mean --hidden?"),
        (["train", "catch/0", "--seed", "1"], "did you mean --seeds, --first-seed?"),
        (["train", "catch/0", "--agents", "dqn"], "did you mean --agent"),
        (["train", "catch/0", "--zzz", "1"], "--zzz; see `winkel list agents pe_dqn`"),
        (["sweep", "bsuite", "--agents", "dqn", "--layers", "9"], "did you mean --hidden?"),
        (["search", "--agent", "dqn", "--layers", "9"], "did you mean --hidden?"),
        (["search", "report", "x", "--nam", "y"], "did you mean --study-name"),
        (["report", "runs", "--output=x"], "unknown option --output; did you mean --out?"),
        (["report", "runs", "more"], "unknown argument 'more'; see `winkel report --help`"),
        (["figure", "regret", "--ot", "x"], "unknown option --ot; did you mean --out?"),
        (["sweep", "--hiden", "8"], "need the name of an experiment, got none"),
        (["train", "catch/0", "--agent", "PE-DQN"], "did you mean pe_dqn?"),
        (["train", "catch/0", "--agent", "QRDQN"], "did you mean qr_dqn?"),
        (["train", "CartPole-v1"], "did you mean gym:CartPole-v1?"),
        (["train", "ALE/Pong-v5"], "did you mean gym:ALE/Pong-v5?"),
        (["train", "deep-sea/0"], "did you mean deep_sea/0?"),
        (["train", "Deep_Sea:size=5"], "did you mean deep_sea:size=5?"),
        (["list", "agents", "PE-DQN"], "unknown agent 'PE-DQN'; did you mean pe_dqn?"),
        (["list", "envs", "catch"], "need `winkel list agents NAME`, got envs catch"),
    ],
)
def test_names_that_are_nearly_right_are_suggested(arguments, shown, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shown in refused(arguments, capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["sweep", "deep-sea", "--sizes", "6", "8"], "sizes", (6, 8)),
        (["sweep", "deep-sea", "--sizes", "6,8"], "sizes", (6, 8)),
        (["sweep", "deep-sea", "--sizes=6, 8", "--seeds", "3"], "sizes", (6, 8)),
        (["sweep", "deep-sea", "--agents", "dqn,ids", "c51"], "agents", ("dqn", "ids", "c51")),
        (["figure", "toy", "--formats", "png,pdf"], "formats", ("png", "pdf")),
        (["figure", "toy"], "formats", ("png", "pdf")),
        (["search", "--envs", "catch/0,bandit/0"], "envs", ("catch/0", "bandit/0")),
        (["search", "--envs", "gym:A-v0:a=1,b=2"], "envs", ("gym:A-v0:a=1,b=2",)),
        (["train", "catch/0", "--hidden", "64", "32"], "fields", {"hidden": (64, 32)}),
        (["train", "catch/0", "--hidden", "64,32"], "fields", {"hidden": (64, 32)}),
    ],
)
def test_a_list_is_written_with_spaces_or_with_commas(arguments, field, value):
    command = cli._parse(arguments)
    options = command.keywords if isinstance(command, partial) else vars(command.__self__)
    assert options[field] == value


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["figure", "toy", "--formats", "png,gif"], "need png, pdf, svg, got 'gif'"),
        (["sweep", "deep-sea", "--sizes", "6,x"], "Error parsing --sizes: invalid literal"),
        (["sweep", "deep-sea", "--agents", ""], "unknown agent ''"),
        (["train", "catch/0", "--beta", "1", "2"], "beta >= 0, got (1, 2)"),
    ],
)
def test_a_list_with_a_wrong_entry_is_one_line(arguments, shown, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shown in refused(arguments, capsys)


def test_every_setting_of_every_agent_has_a_meaning():
    for name, agent in AGENTS.items():
        for setting in describe_settings(agent, {}):
            assert all(setting), (name, setting)


def test_the_settings_of_an_agent_are_listed_with_meaning_range_and_default(capsys):
    cli.main(["list", "agents", "ids_clip"])
    printed = capsys.readouterr().out
    assert "--batch-size 128  (a whole number >= 1)\n      Transitions of an update." in printed
    assert "--learning-rate 0.001  (a number > 0)\n      Step size α of Adam." in printed
    assert "--noise clipped  (epsilon or clipped)" in printed
    assert "--hidden 64,64  (a list, each a whole number >= 1)" in printed
    assert "--z-min by the environment  (a number)" in printed


def test_the_settings_of_an_outside_agent_are_listed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "patient_agent.py").write_text(OWN_AGENT)
    cli.main(["list", "agents", "patient_agent:Patient"])
    printed = capsys.readouterr().out
    assert "patient_agent:Patient: A DQN that waits." in printed
    assert "--patience 3  (a whole number)\n      Steps to wait." in printed
    assert "--colour blue  (a name)\n" in printed
    assert "--double true  (true or false)" in printed


def test_the_list_of_agents_has_one_line_for_each(capsys):
    cli.main(["list", "agents"])
    lines = capsys.readouterr().out.splitlines()
    assert all(any(line.startswith(f"{name} ") for line in lines) for name in AGENTS)
    assert not any("--" in line for line in lines)


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""
    now = [0.0]
    monkeypatch.setattr(train.time, "monotonic", lambda: now[0])
    return now


def test_progress_without_a_terminal_is_a_line_now_and_then(clock, capsys):
    with train.Display("dqn in catch/0") as display:
        assert capsys.readouterr().out == "dqn in catch/0: compiling\n"
        for second in range(1, 201):
            clock[0] = float(second)
            share = min(second / 64, 0.5)
            updates, episodes = 30 * second, 2 * second
            runs = [
                Status("catch/0", "dqn", seed, share, updates, episodes, updates, recent)
                for seed, recent in enumerate((0.25, 0.75))
            ]
            display.show(runs)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "dqn in catch/0: 2%, 4 episodes, return (last 50) 0.500"
    assert lines[1] == (
        "dqn in catch/0: 17%, 44 episodes, return (last 50) 0.500, 60 updates/s, 0:00:53 left"
    )
    seconds = [int(line.split(", ")[1].split()[0]) // 4 for line in lines]
    assert seconds == [1, 11, 21, 31, 91, 151]


def test_the_speed_counts_the_updates_of_runs_that_have_ended(clock, capsys):
    with train.Display("2 runs", total=2) as display:
        for second in range(101):
            clock[0] = float(second)
            done = min(second, 50), max(second - 50, 0)
            runs = [Status("catch/0", "dqn", i, x / 50, updates=x) for i, x in enumerate(done)]
            display.show([runs[second > 50]], int(second > 50), "catch")
    assert all("1 updates/s" in line for line in capsys.readouterr().out.splitlines()[2:])
