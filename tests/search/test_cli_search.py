"""`winkel search` on the command line: twelve trials, the page, the winner as a preset."""

import re
import subprocess
import sys

import pytest
from optuna.trial import TrialState

from terminal_helpers import refused
from winkel import cli
from winkel.runs.train import train
from winkel.search.problem import FIRST_SEED
from winkel.search.study import Summary, load_study

TINY = [
    *("--batch-size", "16", "--burn-in", "12", "--capacity", "256"),
    *("--chunk-steps", "36", "--lanes", "4"),
]
SEA = ["--envs", "deep_sea:size=6@60"]
MARGIN = 1.25
"""The best trial sees so many times the state-actions that the worst complete one does."""
SIZES = {
    "pe_dqn": ["--num-atoms", "11", "--hidden", "64"],
    "bdqn": ["--num-members", "5", "--hidden", "16"],
}


@pytest.fixture(autouse=True)
def own_presets(monkeypatch, tmp_path, wide):
    monkeypatch.setenv("WINKEL_PRESETS", str(tmp_path / "presets"))


@pytest.fixture(scope="module", params=["bdqn", pytest.param("pe_dqn", marks=pytest.mark.long)])
def study(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("search") / request.param
    agent = ["--agent", request.param, *SIZES[request.param]]
    cli.main(["search", "--trials", "12", *agent, *SEA, *TINY, "--out", str(folder)])
    return folder


@pytest.fixture(scope="module")
def found(study):
    return Summary(load_study(study))


of_bdqn = pytest.mark.parametrize("study", ["bdqn"], indirect=True)


def test_the_best_of_twelve_trials_beats_the_worst_by_the_margin(found):
    assert found.num_trials == len(found.complete) + len(found.pruned) == 12
    assert found.raw[0] >= MARGIN * found.raw[-1]
    assert found.totals[0] == 1.0 > 0.5 > found.totals[-1]
    configurations = [t.params for t in (*found.complete, *found.pruned)]
    assert all(configurations.count(one) == 1 for one in configurations)


@of_bdqn
def test_a_trial_has_the_scores_of_training_alone(found, monkeypatch):
    """The winner trained by itself, with the tuning seed that `winkel train` refuses."""
    monkeypatch.setattr("winkel.runs.spec.MAX_SEED", FIRST_SEED)
    fixed = {"hidden": (16,), "batch_size": 16, "burn_in": 12, "capacity": 256, "num_members": 5}
    fields = fixed | found.complete[0].params
    alone = train("deep_sea:size=6", "bdqn", seeds=[FIRST_SEED], episodes=60, **fields)
    seen = alone.runs[0].episodes["visited"]
    scores = found.complete[0].intermediate_values
    assert [scores[step] for step in range(1, 6)] == [seen[at - 1] for at in (12, 24, 36, 48, 60)]


def test_the_page_shows_the_winner(study, found):
    page = (study / "index.html").read_text()
    best = found.complete[0]
    assert f"Trial {best.number}, final score {found.totals[0]:.3f} of at most 1" in page
    for name, value in best.params.items():
        assert f"{name} = {value}" in page
    assert f"{len(found.pruned)} trial" in page
    assert "Every configuration had the same: deep_sea:size=6 for 60 episodes" in page
    assert 'id="figure-slices"' in page
    assert "PED-ANOVA" in page
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)


def test_a_page_can_be_made_again_elsewhere(study, tmp_path, capsys):
    cli.main(["search", "report", str(study), "-o", str(tmp_path / "page")])
    assert "12 trials" in capsys.readouterr().out
    again = (tmp_path / "page" / "index.html").read_text()
    assert again == (study / "index.html").read_text()


def test_the_winner_becomes_a_preset_that_training_reads(study, found, tmp_path, capsys):
    agent = found.study.problem.agent
    cli.main(["search", "apply", str(study), "--name", "mine"])
    assert f"--agent {agent} --preset mine" in capsys.readouterr().out
    run = train("deep_sea:size=6", agent, preset="mine", episodes=3).runs[0]
    settings = {**run.config["config"], **run.config["hyper"]}
    for name, value in found.complete[0].params.items():
        assert settings[name] == value
    assert settings["hidden"] == [int(SIZES[agent][-1])]
    message = refused(["search", "apply", study, "--name", "mine"], capsys)
    assert "mine.toml exists" in message
    other = {"pe_dqn": "bdqn", "bdqn": "pe_dqn"}[agent]
    command = ["train", "deep_sea:size=6", "--episodes", "3", "--out", tmp_path / "runs"]
    message = refused([*command, "--agent", other, "--preset", "mine"], capsys)
    assert f"is for {agent}, got {other}" in message
    message = refused([*command, "--agent", agent, "--preset", "nine"], capsys)
    assert "need a preset from bsuite, vizdoom, vizdoom-official, mine, or a file" in message
    for name in ("bsuite", "a/b", ""):
        assert "need a name of" in refused(["search", "apply", study, "--name", name], capsys)


@of_bdqn
def test_a_search_goes_on_for_more_trials(study, capsys):
    agent = ["--agent", "bdqn", *SIZES["bdqn"]]
    command = ["search", *agent, *SEA, *TINY, "--out", str(study)]
    assert "--resume" in refused([*command, "--trials", "12"], capsys)
    before = [t for t in load_study(study).trials() if t.state == TrialState.COMPLETE]
    cli.main([*command, "--resume", "--trials", "12"])
    assert "updates: 0 here" in capsys.readouterr().out
    assert [t for t in load_study(study).trials() if t.state == TrialState.COMPLETE] == before
    message = refused([*command, "--resume", "--trials", "13"], capsys)
    assert "need trials <= 12, the configurations of the space" in message
    message = refused([*command, "--resume", "--agent", "pe_dqn"], capsys)
    assert "unknown option --num-members; did you mean --num-atoms?" in message
    message = refused(
        ["search", *SEA, *TINY, "--out", str(study), "--name", "bdqn", "--resume"], capsys
    )
    assert "agent is 'bdqn' there and 'pe_dqn' here" in message


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        (["--trials", "0"], "need trials >= 1"),
        (["--lanes", "0"], "need lanes >= 1"),
        (["--seeds", "0"], "need seeds >= 1"),
        (["--agent", "pe_dqm"], "unknown agent 'pe_dqm'"),
        (["--space", "mine"], "need a space from bsuite, vizdoom, or a file, got 'mine'"),
        (["--envs", "deep_sea:size=6"], "need ID@EPISODES"),
        (["--envs", "deepsea:size=6@10"], "did you mean deep_sea"),
        (["--storage", "somewhere"], "need a storage such as sqlite:///"),
        (["--learning-rat", "1"], "unknown option --learning-rat; did you mean --learning-rate"),
        (["--out", "pyproject.toml"], "the file pyproject.toml"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, monkeypatch, request, changed, shown):
    monkeypatch.chdir(request.config.rootpath)
    command = ["search", *SEA, *TINY, "--trials", "1", "--out", tmp_path, *changed]
    assert shown in refused(command, capsys)


def test_a_space_is_printed(capsys):
    cli.main(["search", "space", "bsuite"])
    assert "[spaces.pe_dqn]" in capsys.readouterr().out
    assert "from bsuite, vizdoom, or a file, got 'doom'" in refused(
        ["search", "space", "doom"], capsys
    )


WITHOUT_OPTUNA = """
import contextlib, sys
sys.modules["optuna"] = None
from winkel import cli
for words in ("--help", "--trials 1", "report study", "apply study", "space bsuite"):
    with contextlib.suppress(SystemExit):
        cli.main(["search", *words.split()])
"""


def test_without_optuna_there_is_help_and_one_line():
    ended = subprocess.run([sys.executable, "-c", WITHOUT_OPTUNA], capture_output=True, text=True)
    assert ended.stdout.startswith("usage: winkel search")
    lines = ended.stderr.splitlines()
    assert len(lines) == 4
    assert all("error: optuna is missing: pip install 'winkel[search]'" in line for line in lines)
