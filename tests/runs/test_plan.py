"""Plans: what is missing is made, in order, in time; nothing is made twice."""

import re
import shutil

import pytest

from process_helpers import finish, start_winkel, wait_for
from runs.tiny import files
from winkel.cli import main
from winkel.commands import plan as plans
from winkel.commands.plan import read_budget, read_plan
from winkel.errors import InputError
from winkel.runs.compact import find_compact, read_compact

PLAN = """
[[piece]]
name = "first"
kind = "deep-sea"
agents = ["pe_dqn"]
sizes = [4]
seeds = 2
episodes = 60
hidden = 8
num_atoms = 5
batch_size = 4
burn_in = 8
capacity = 32
checkpoint_seconds = 0
minutes = 1

[[piece]]
name = "second"
kind = "deep-sea"
agents = ["bdqn"]
label = "two members"
num_members = 2
sizes = [4]
seeds = 2
episodes = 20
hidden = 8
batch_size = 4
burn_in = 8
capacity = 32
"""


def write_plan(folder, text=PLAN):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.toml").write_text(text)
    return folder / "plan.toml"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A plan that was made in one go."""
    root = tmp_path_factory.mktemp("whole")
    main(["sweep", "--plan", str(write_plan(root / "results")), "--out", str(root / "runs")])
    return root


def test_all_pieces_are_made_once(whole, tmp_path, capsys):
    paths = [
        path.relative_to(whole / "results").as_posix() for path in find_compact(whole / "results")
    ]
    assert paths == ["deep_sea/pe_dqn/size=4.npz", "deep_sea/two members/size=4.npz"]
    shutil.copytree(whole / "results", tmp_path / "results")  # the runs stay behind
    before = files(tmp_path)
    plan = str(tmp_path / "results/plan.toml")
    main(["sweep", "--plan", plan, "--out", str(tmp_path / "runs")])
    assert "all pieces are done" in capsys.readouterr().out
    assert files(tmp_path) == before
    main(["sweep", "--plan", plan, "--dry-run"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1:] == [["first", "2", "2", "1"], ["second", "2", "2"]]


def test_a_killed_plan_continues_on_a_copy(whole, tmp_path):
    """Killed in the middle of the first piece; the copy ends with the same records, bit for bit."""
    here, there = tmp_path / "here", tmp_path / "there"
    plan = write_plan(here / "results")
    process = start_winkel(["sweep", "--plan", plan, "--out", here / "runs"])
    checkpoints = lambda: list((here / "runs").glob("*/*/*/seed-0/checkpoint/000000000002.ckpt"))  # noqa: E731
    wait_for(checkpoints, process)
    process.kill()
    process.communicate()
    assert not find_compact(here / "results")
    shutil.copytree(here, there)
    output = finish(
        start_winkel(["sweep", "--plan", there / "results/plan.toml", "--out", there / "runs"])
    )
    assert "all pieces are done" in output
    ours, theirs = find_compact(there / "results"), find_compact(whole / "results")
    assert len(ours) == len(theirs) == 2
    for one, other in zip(ours, theirs, strict=True):
        assert one.read_bytes() == other.read_bytes()


def run_out_of_time(command, monkeypatch):
    """Run a plan whose budget is spent after the first chunk."""
    with monkeypatch.context() as patched:
        patched.setattr(plans, "LEAST_BUDGET", float("-inf"))
        patched.setattr(plans, "read_budget", lambda _: 0.0)
        main(command)


def test_a_spent_budget_saves_runs_and_continues(whole, tmp_path, monkeypatch, capsys):
    plan = str(write_plan(tmp_path / "results"))
    command = ["sweep", "--plan", plan, "--out", str(tmp_path / "runs"), "--budget", "2m"]
    run_out_of_time(command, monkeypatch)
    assert "the budget is spent in first; the same command goes on" in capsys.readouterr().out
    assert not find_compact(tmp_path / "results")
    main(command)
    for one, other in zip(
        *map(find_compact, (tmp_path / "results", whole / "results")), strict=True
    ):
        assert [r.config for r in read_compact(one)] == [r.config for r in read_compact(other)]
        assert one.read_bytes() == other.read_bytes()


def test_a_setting_is_recorded_once_all_of_its_seeds_have_ended(whole, tmp_path, monkeypatch):
    """The first seeds to end are mostly the solved ones, whose median would be too low."""
    shutil.copytree(whole / "runs", tmp_path / "runs")
    shutil.rmtree(tmp_path / "runs/deep_sea/pe_dqn/size=4/seed-1")
    plan = str(write_plan(tmp_path / "results"))
    command = ["sweep", "--plan", plan, "--out", str(tmp_path / "runs")]
    run_out_of_time([*command, "--budget", "2m"], monkeypatch)
    assert not find_compact(tmp_path / "results")
    main(command)
    ours, theirs = find_compact(tmp_path / "results"), find_compact(whole / "results")
    assert [path.read_bytes() for path in ours] == [path.read_bytes() for path in theirs]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            '"pe_dqn"',
            '"pe_dqm"',
            "piece 'first' of .*: unknown agent 'pe_dqm'",
        ),
        ('"deep-sea"', '"deep"', "unknown kind 'deep' in piece 1 of"),
        ("hidden = 8", "hiden = 8", "piece 'first' of .*: unknown option --hiden"),
        ("sizes = [4]", "sizes = [1]", "piece 'first' of .*: need size >= 2"),
        ('name = "second"', 'name = "first"', "need a name of its own for piece 2"),
        ("[[piece]]", "[[peace]]", r"need tables \[\[piece\]\] in"),
        ("minutes = 1", "minutes = ", "is not TOML"),
        ("seeds = 2", 'seeds = "2"', "piece 'first' of .*: need a whole number"),
    ],
)
def test_a_plan_that_cannot_run_is_one_line(tmp_path, capsys, old, new, words):
    count = -1 if old == "[[piece]]" else 1
    plan = write_plan(tmp_path, PLAN.replace(old, new, count))
    with pytest.raises(SystemExit) as ended:
        main(["sweep", "--plan", str(plan), "--out", str(tmp_path / "runs")])
    errors = capsys.readouterr().err
    assert ended.value.code == 2
    assert errors.count("\n") == 1
    assert re.search(words, errors), errors
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--plan", "x.toml"], "cannot read x.toml"),
        (["--plan", "PLAN", "--sizes", "4"], "need --sizes in the pieces of"),
        (["deep-sea", "--plan", "PLAN"], "need --plan alone, got deep-sea"),
        (["deep-sea", "--budget", "25m"], "need --budget with --plan"),
        (["--plan", "PLAN", "--budget", "10s"], "need a budget of at least 1m, got 10s"),
        (["--plan", "PLAN", "--budget", "soon"], "need a budget such as 25m"),
        ([], "need the name of an experiment"),
    ],
)
def test_options_that_exclude_each_other(tmp_path, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    plan = str(write_plan(tmp_path))
    with pytest.raises(SystemExit):
        main(["sweep", *[plan if word == "PLAN" else word for word in arguments]])
    assert words in capsys.readouterr().err


def test_budgets():
    assert read_budget("25m") == 1500
    assert read_budget("1.5h") == 5400
    assert read_budget(None) == float("inf")


def test_the_plan_of_the_record_can_be_read():
    from pathlib import Path

    pieces = read_plan(
        Path(__file__).parents[2] / "results/plan.toml", ("deep-sea", "bsuite", "statistics")
    )
    assert [piece.name for piece in pieces][:2] == ["deep sea 10", "deep sea 20"]
    with pytest.raises(InputError, match="unknown kind"):
        read_plan(Path(__file__).parents[2] / "results/plan.toml", ("bsuite",))
