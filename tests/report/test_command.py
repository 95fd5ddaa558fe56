"""`winkel report`: its arguments, what it refuses, and settings that it shows."""

import json
from pathlib import Path

import numpy as np
import pytest

from report.synthetic import deep_sea, save
from winkel import cli
from winkel.agents import AGENTS
from winkel.commands.bsuite import score
from winkel.commands.figure import report
from winkel.errors import InputError
from winkel.report.page import write_report
from winkel.report.tables import changes
from winkel.runs.results import read_results


def test_the_command(tmp_path, capsys):
    deep_sea(tmp_path / "runs", "pe_dqn", 5, [2, 3])
    report(runs=tmp_path / "runs", out=tmp_path / "out")
    said = capsys.readouterr().out
    assert f"wrote {tmp_path / 'out' / 'index.html'}" in said.replace("\n", "")
    assert "claims: none of the paper can be judged on these runs" in said
    deep_sea(tmp_path / "runs", "bdqn", 5, [4, 5])
    report(runs=tmp_path / "runs", out=tmp_path / "out")
    assert " untested" in capsys.readouterr().out


def test_runs_of_a_simulator_have_a_table_on_the_terminal(tmp_path, capsys):
    for seed, returns in enumerate((100.0, 110.0, 120.0)):
        episodes = {"return": np.full(60, returns), "length": np.full(60, 20)}
        save(tmp_path / "runs", "gym:CartPole-v1", "dqn", seed, episodes)
    report(runs=tmp_path / "runs", out=tmp_path / "out")
    said = capsys.readouterr().out
    assert "gym:CartPole-v1" in said
    cells = next(line for line in said.splitlines() if " dqn " in line).split("  ")
    assert [cell.strip() for cell in cells if cell.strip()] == [
        "dqn", "3", "60", "1,200", "110 ± 25",
    ]  # fmt: skip
    with pytest.raises(InputError, match=r"need runs of bsuite's .*; `winkel report .*` shows"):
        score(runs=tmp_path / "runs")


def test_the_command_line():
    short = cli._parse(["report", "a", "-o", "b"])
    assert short.keywords == {"runs": Path("a"), "out": Path("b")}
    assert cli._parse(["report", "a"]).keywords["out"] == Path("report")


def test_changed_fields(tmp_path):
    config = {"projections": ["quantile", "quantile"], "num_atoms": 101, "double": 3}
    deep_sea(tmp_path, "mine", 5, [1, 2], algorithm="pe_dqn_qr_qr", config=config)
    found = changes("pe_dqn", read_results(tmp_path).records)
    assert found["projections"] == ["quantile,quantile"]
    assert ("num_atoms" in found) == (AGENTS["pe_dqn"].config_type().num_atoms != 101)


def test_bad_input(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        write_report(tmp_path / "none", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no finished runs"):
        write_report(tmp_path / "empty", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    deep_sea(tmp_path / "runs", "pe_dqn", 5, [2])
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="got the file"):
        write_report(tmp_path / "runs", tmp_path / "file")


def test_a_damaged_run_is_on_the_page(tmp_path):
    deep_sea(tmp_path / "runs", "pe_dqn", 5, [2, 3])
    config = tmp_path / "runs" / "deep_sea" / "pe_dqn" / "size=5" / "seed-1" / "config.json"
    config.write_text("{")
    path, *_ = write_report(tmp_path / "runs", tmp_path / "out")
    assert "seed-1: " in path.read_text()
    assert "is not JSON" in path.read_text()
    loaded = json.loads((config.parents[1] / "seed-0" / "config.json").read_text())
    assert loaded["seed"] == 0
