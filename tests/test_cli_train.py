"""`winkel train` and `winkel inspect`, as one types them."""

import contextlib
import re
import resource
import shutil

import numpy as np
import pytest

import winkel
from terminal_helpers import refused
from winkel import cli
from winkel.envs.registry import make
from winkel.play.inspection import find_observation

pytestmark = pytest.mark.usefixtures("wide")

# Chunks of 16 steps after 8 end in the middle of episodes of 5; 20 episodes are 6 chunks.
SEED_0 = "deep_sea/pe_dqn/size=5/seed-0"
TINY = ["--hidden", "16", "--num-atoms", "5", "--batch-size=8", "--burn-in=8", "--capacity", "64"]
TRAIN = ["train", "deep_sea:size=5", *TINY, "--chunk-steps", "16", "--episodes", "20"]
ONE_LANE = ["--seeds", "2", "--lanes", "1"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    cli.main([*TRAIN, *ONE_LANE, "--out", str(root)])
    return root


def row_of(printed, seed):
    """The cells of a seed's row in the summary."""
    table = printed[printed.index("Summary") :]
    rows = [re.split("  +", line.strip()) for line in table.splitlines()]
    (row,) = [row for row in rows if row[0] == str(seed)]
    return row


def test_a_run_is_summed_up(tmp_path, capsys):
    cli.main([*TRAIN, *ONE_LANE, "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    for seed, run in enumerate(winkel.load(tmp_path).runs):
        returns, found = run.episodes["return"], np.flatnonzero(run.episodes["treasure"])
        assert row_of(printed, seed) == [
            str(seed),
            "20",
            "100",
            f"{returns.mean():.3f}",
            f"{returns[-50:].mean():.3f}",
            f"episode {found[0] + 1}" if len(found) else "never",
            str(run.episodes["bad"].sum()),
            "finished",
        ]
        assert f"run: {tmp_path / SEED_0[:-1]}{seed}" in printed


def test_fields_and_options_reach_the_run(tmp_path, capsys):
    options = ["--first-seed", "3", "--label", "mine", "--until", "4", "--evaluate-every", "2"]
    fields = ["--beta", "2", "--z-min=-2", "--z_max", "3"]
    cli.main([*TRAIN, *options, *fields, "--out", str(tmp_path)])
    config = winkel.load(tmp_path / "deep_sea/mine/size=5/seed-3").of(3).config
    assert config["hyper"]["beta"] == 2.0
    assert (config["hyper"]["z_min"], config["hyper"]["z_max"]) == (-2.0, 3.0)
    assert (config["until"], config["options"]["evaluate_every"]) == (4, 2)
    assert config["config"]["hidden"] == [16]
    assert row_of(capsys.readouterr().out, 3)[1:3] == ["4", "20"]


def test_a_finished_run_is_shown_again(runs, capsys):
    capsys.readouterr()
    cli.main([*TRAIN, *ONE_LANE, "--out", str(runs), "--resume"])
    assert row_of(capsys.readouterr().out, 1)[-1] == "finished"


def test_a_run_that_fails_says_so(tmp_path, capsys):
    cli.main([*TRAIN, "--learning-rate", "1e38", "--out", str(tmp_path), "--allow-failures"])
    printed = capsys.readouterr().out
    assert "seed 0 stopped: the loss was nan at update 2" in printed
    assert row_of(printed, 0)[-1] == "failed"


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        (["--agent", "pe_dqm"], "unknown agent 'pe_dqm'; did you mean pe_dqn"),
        (["--num-atom", "5"], "unknown option --num-atom; did you mean --num-atoms"),
        (["--num-atoms", "five"], "need a whole number for num_atoms, got 'five'"),
        (["--gamma", "2"], "got 2"),
        (["--beta", "-2"], "beta >= 0, got -2"),
        (["--beta"], "need a value after --beta"),
        (["--seeds", "0"], "got 0"),
        (["--first-seed", "-1"], "-1"),
        (["--episodes", "0"], "got 0"),
        (["--lanes", "0"], "got 0"),
        (["--chunk-steps", "0"], "got 0"),
        (["--label", "a/b"], "'a/b'"),
        (["--out", "pyproject.toml"], "the file pyproject.toml"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, monkeypatch, request, changed, shown):
    monkeypatch.chdir(request.config.rootpath)
    assert shown in refused([*TRAIN, "--out", tmp_path, *changed], capsys)
    assert list(tmp_path.rglob("*.npz")) == []


@pytest.mark.parametrize(
    ("env", "shown"),
    [("deepsea:size=5", "did you mean deep_sea"), ("deep_sea/99", "deep_sea/0 … deep_sea/20")],
)
def test_unknown_environments_are_one_line(tmp_path, capsys, env, shown):
    message = refused(["train", env, "--out", tmp_path], capsys)
    assert shown in message
    assert repr(env) in message


def test_a_run_is_not_overwritten(runs, capsys):
    message = refused([*TRAIN, "--out", runs], capsys)
    assert f"{runs / SEED_0} exists" in message


def test_another_run_is_not_resumed(runs, capsys):
    message = refused([*TRAIN, "--beta", "1", "--resume", "--out", runs], capsys)
    assert "hyper.beta is 5.0 there and 1.0 here" in message


@contextlib.contextmanager
def disk_of(size):
    """No file may be larger."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_one_line(tmp_path, capsys):
    with disk_of(1000):
        message = refused([*TRAIN, "--out", tmp_path], capsys)
    assert "cannot write" in message
    assert "File too large" in message


@pytest.mark.parametrize("options", [["--seed", "1"], []])
def test_beliefs_are_drawn(runs, tmp_path, capsys, options):
    capsys.readouterr()
    cli.main(["inspect", str(runs), "--out", str(tmp_path), "--formats", "png", *options])
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}.{ending}" for name in ("inspect", "heatmaps") for ending in ("npz", "png")
    }
    for name in ("inspect", "heatmaps"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    estimates = winkel.load(runs).estimates(0, seed=1 if options else 0)
    printed = capsys.readouterr().out
    for action in range(2):
        assert (
            f"action {action}: value {estimates.value[action]:.3f}, disagreement "
            f"{estimates.disagreement[action]:.3f}, bonus {estimates.bonus[action]:.3f}"
        ) in printed


def test_any_cell_can_be_looked_at(runs, tmp_path):
    arguments = ["inspect", str(runs / SEED_0), "--at", "1,2", "--out", str(tmp_path)]
    cli.main([*arguments, "--formats", "png"])
    arrays = np.load(tmp_path / "inspect.npz")
    np.testing.assert_array_equal(arrays["value"], winkel.load(runs).estimates(7).value)
    assert np.argmin(arrays["observation"]) == 7  # the dark cell
    task = make("deep_sea:size=5")
    for at, cell in (("0", 0), ("7", 7), ("4,4", 24), ("24", 24)):
        assert find_observation(task, at) == cell


def test_pictures_lie_beside_the_run_by_default(runs, tmp_path):
    shutil.copytree(runs / SEED_0, tmp_path / "run")
    cli.main(["inspect", str(tmp_path / "run"), "--formats", "png"])
    assert (tmp_path / "run" / "inspect.png").is_file()
    assert (tmp_path / "run" / "heatmaps.png").is_file()


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--at", "25"], "within 25, got 25"),
        (["--at", "5,0"], "within 5 x 5, got 5,0"),
        (["--at", "0,5"], "within 5 x 5, got 0,5"),
        (["--at", "1,2,3"], "within 5 x 5, got 1,2,3"),
        (["--at", "-1"], "got '-1'"),
        (["--at=-1"], "got '-1'"),
        (["--at", "end"], "got 'end'"),
        (["--at", ""], "got ''"),
        (["--seed", "7"], "need a seed from [0, 1], got 7"),
        (["--sead", "7"], "unknown option --sead; did you mean --seed?"),
    ],
)
def test_what_cannot_be_inspected_is_one_line(runs, tmp_path, capsys, options, shown):
    assert shown in refused(["inspect", runs, "--out", tmp_path / "out", *options], capsys)
    assert list(tmp_path.rglob("*.png")) == []


def test_where_there_is_no_run_there_is_nothing_to_inspect(tmp_path, capsys):
    assert str(tmp_path) in refused(["inspect", tmp_path], capsys)
    absent = tmp_path / "absent"
    assert f"no such folder: {absent}" in refused(["inspect", absent], capsys)
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_an_agent_cannot_be_inspected(tmp_path, capsys):
    cli.main(["rollout", "catch/0", "--episodes", "5", "--out", str(tmp_path)])
    message = refused(["inspect", tmp_path / "catch/random/0/seed-0"], capsys)
    assert "was not made by `winkel train`" in message
