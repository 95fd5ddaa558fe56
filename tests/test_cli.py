import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from terminal_helpers import refused
from winkel import cli
from winkel.errors import InputError
from winkel.projections import PROJECTIONS

HELP = """
import sys
from winkel.__main__ import main
main()
heavy = {"jax", "numpy", "scipy", "matplotlib", "tyro", "rich"} & sys.modules.keys()
assert not heavy, heavy
"""


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_needs_no_import_that_takes_time(argument):
    done = subprocess.run(
        [sys.executable, "-c", HELP, argument], capture_output=True, text=True, check=True
    )
    assert "winkel" in done.stdout


def test_help_names_every_command(capsys):
    cli.main(["--help"])
    printed = capsys.readouterr().out
    folder = Path(cli.__file__).parent / "commands"
    shared = {"__init__", "options", "plan"}
    modules = {path.stem for path in folder.glob("*.py")} - shared
    assert {module for module, _, _ in cli.COMMANDS.values()} == modules
    for name, (module, command, line) in cli.COMMANDS.items():
        assert f"  {name:13} {line}\n" in printed
        assert callable(getattr(import_module(f"winkel.commands.{module}"), command))


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_describes_itself(name, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([*name.split(), "--help"])
    assert stop.value.code == 0
    assert f"usage: winkel {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["tran"], "unknown command 'tran'; did you mean train?"),
        (["--verbose", "train"], "unknown command '--verbose'; see `winkel --help`"),
        ([""], "unknown command ''"),
        ([], "need a command"),
        (["list", "envs", "--loud"], "unknown option --loud; see `winkel list --help`"),
    ],
)
def test_unknown_commands_are_one_line(arguments, shown, capsys):
    assert shown in refused(arguments, capsys)


def test_a_figure_leaves_pictures_and_the_arrays_behind_them(tmp_path, capsys):
    cli.main(["figure", "operator", "--out", str(tmp_path)])
    assert {p.name for p in tmp_path.iterdir()} == {"operator.npz", "operator.png", "operator.pdf"}
    printed = capsys.readouterr().out
    assert "wrote" in printed


def test_lists_name_every_entry(capsys):
    cli.main(["list", "projections"])
    printed = capsys.readouterr().out
    for name in PROJECTIONS:
        assert name in printed
    cli.main(["--version"])
    assert capsys.readouterr().out.startswith("winkel 0")


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["figure", "operator", "--out", "pyproject.toml"], "the file pyproject.toml"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_two(arguments, shown, capsys, monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)
    assert shown in refused(arguments, capsys)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], {}),
        (["--num-atoms", "7"], {"num_atoms": 7}),
        (["--learning-rate", "1e-3"], {"learning_rate": 1e-3}),
        (["--hidden", "64,64"], {"hidden": (64, 64)}),
        (["--hidden=64, 32"], {"hidden": (64, 32)}),
        (["--hidden", "64,"], {"hidden": (64,)}),
        (["--hidden", "64", "32", "--beta", "1"], {"hidden": (64, 32), "beta": 1}),
        (["--priors=quantile", "categorical"], {"priors": ("quantile", "categorical")}),
        (["--priors", "none"], {"priors": ()}),
        (["--priors", "()"], {"priors": ()}),
        (["--priors", "categorical"], {"priors": "categorical"}),
        (["--propagate=True"], {"propagate": True}),
        (["--z-min=-2.5", "--z-max", "-.5"], {"z_min": -2.5, "z_max": -0.5}),
        (["--beta", "1", "--beta", "2"], {"beta": 2}),
        (["--beta="], {"beta": ""}),
    ],
)
def test_fields_of_agents_are_read(arguments, found):
    assert cli.parse_fields(arguments) == found


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--num-atoms", "7", "--beta"], "need a value after --beta"),
        (["--beta", "--num-atoms", "7"], "need a value after --beta"),
        (["-beta", "1"], "need --field value, got '-beta'"),
        (["1", "--beta", "2"], "need --field value, got '1'"),
    ],
)
def test_fields_that_cannot_be_read_are_named(arguments, shown):
    with pytest.raises(InputError, match=shown):
        cli.parse_fields(arguments)


def test_unknown_names_list_the_known_ones(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["figure", "nonsense"])
    assert stop.value.code == 2
    printed = capsys.readouterr().err
    assert "nonsense" in printed
    assert "operator" in printed


def test_a_rollout_is_kept_scored_and_exported(tmp_path, capsys):
    runs, out = tmp_path / "runs", tmp_path / "csv"
    cli.main(["rollout", "catch", "--episodes", "30", "--out", str(runs)])
    cli.main(["rollout", "deep_sea:size=6", "--episodes", "12", "--out", str(runs)])
    capsys.readouterr()
    cli.main(["score", str(runs)])
    printed = capsys.readouterr().out
    assert "random, seed 0" in printed
    assert re.search(r"catch +[\d.]+\n", printed)
    assert "note: random has 20 of 468 settings" in printed
    assert "20 of 20 runs are shorter than bsuite's" in printed
    assert "tag basic" in printed
    assert "tag memory" not in printed
    cli.main(["export", "bsuite", str(runs), str(out)])
    printed = capsys.readouterr().out
    assert "wrote 20 files" in printed
    assert "skipped" in printed
    assert (out / "random" / "seed-0" / "bsuite_id_-_catch-0.csv").read_text().startswith("steps,")


def test_runs_outside_of_bsuite_are_neither_scored_nor_exported(tmp_path, capsys):
    runs, out = tmp_path / "runs", tmp_path / "csv"
    cli.main(["rollout", "deep_sea:size=6", "--episodes", "12", "--out", str(runs)])
    for command in (["score", runs], ["export", "bsuite", runs, out]):
        assert "need runs of bsuite's 468 settings, such as catch/0" in refused(command, capsys)
    assert not out.exists()


def test_a_rollout_never_replaces_another(tmp_path, capsys):
    arguments = ["rollout", "catch/0", "--episodes", "5", "--out", str(tmp_path)]
    cli.main(arguments)
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    assert "choose another --out or --seed" in capsys.readouterr().err
    assert kept == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_the_list_of_environments_is_complete(capsys):
    cli.main(["list", "envs"])
    printed = capsys.readouterr().out
    assert "23 experiments, 468 settings" in printed
    assert "deep_sea/0 … deep_sea/20" in printed


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["rollout", "deepsea/3"], "did you mean deep_sea"),
        (["rollout", "catch/20"], "catch/0 … catch/19"),
        (["rollout", "catch/0", "--policy", "action:3"], "0 … 2, got 3"),
        (["rollout", "catch/0", "--policy", "greedy"], "'greedy'"),
        (["rollout", "catch/0", "--episodes", "0"], "got 0"),
        (["rollout", "mnist/0"], "/nowhere"),
        (["score", "/nowhere"], "/nowhere"),
        (["export", "bsuite", "/nowhere", "out"], "/nowhere"),
    ],
)
def test_bad_environments_and_runs_are_one_line(arguments, shown, capsys, monkeypatch):
    monkeypatch.setenv("WINKEL_MNIST", "/nowhere")
    assert shown in refused(arguments, capsys)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "catch/0", "--seeds", "x"], "Error parsing --seeds: invalid literal for int()"),
        (["train", "catch/0", "--seeds", "１０"], "need the digits 0 to 9, got '１０'"),
        (["train", "catch/0", "--gamma=０.5"], "need the digits 0 to 9, got '--gamma=０.5'"),
        (["train"], "Missing from winkel train: ENV An id: deep_sea/0"),
        (["sweep", "foo"], "need bsuite, deep-sea, statistics first, then options, got 'foo'"),
        (["tran"], "unknown command 'tran'; did you mean train?"),
    ],
)
def test_arguments_that_cannot_be_read_are_one_line(arguments, said, capsys):
    message = refused(arguments, capsys)
    assert message.startswith(f"winkel: error: {said}")
    assert message.count("\n") == 1
