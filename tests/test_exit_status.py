"""Commands whose runs failed, now or in an earlier call, count them in a line and exit with 1."""

import contextlib
import io
import types
from collections import Counter

from cluster.shards import SMALL
from terminal_helpers import last_line
from winkel import cli
from winkel.commands import sweep

SEA = ["--episodes", "8", "--lanes", "2", *SMALL]
SWEEP = ["sweep", "deep-sea", "--sizes", "4", "--agents", "dqn", "--seeds", "3", *SEA]
DIVERGES = ["--learning-rate", "1e38"]


def check_failures(arguments, resume, capsys, counted):
    """A command exits with 1, also if the runs had failed before, unless failures are allowed."""
    line = last_line(arguments, 1, capsys)
    assert line.startswith(f"winkel: {counted} failed; the first: ")
    assert "in deep_sea:size=4, seed 0: the loss was" in line
    assert last_line([*arguments, *resume], 1, capsys) == line
    cli.main([*map(str, arguments), *resume, "--allow-failures"])
    assert capsys.readouterr().err == line


def test_failed_runs_of_training_are_counted(tmp_path, capsys):
    arguments = ["train", "deep_sea:size=4", "--agent", "dqn", "--seeds", "2", *SEA, *DIVERGES]
    check_failures([*arguments, "--out", tmp_path], ["--resume"], capsys, "2 of 2 runs")


def test_a_run_whose_returns_overflow_has_failed(tmp_path, capsys):
    """Also where the loss stays finite: here nothing is learned."""
    world = ["train", "simulators.worlds:Rich", "--agent", "dqn", "--workers", "0", *SMALL]
    limits = ["--episodes", "4", "--burn-in", "1000", "--capacity", "2000"]
    line = last_line([*world, *limits, "--out", tmp_path], 1, capsys)
    assert line.endswith("Rich, seed 0: the return of an episode was inf\n")


def test_failed_runs_of_a_sweep_are_counted(tmp_path, capsys):
    """Only one of the two agents has priors."""
    agents = ["--agents", "dqn", "bdqn", "--num-members", "2", "--prior-scale", "1e38"]
    arguments = [*SWEEP, *agents, "--seeds", "2", "--out", tmp_path]
    check_failures(arguments, ["--resume"], capsys, "2 of 4 runs")


def test_failed_runs_of_a_shard_are_counted(tmp_path, capsys):
    shard = [*SWEEP, *DIVERGES, "--out", tmp_path, "--shard", "1/2"]
    check_failures(shard, ["--resume"], capsys, "2 of 2 runs")


def test_failed_runs_on_ray_are_counted(tmp_path, capsys, monkeypatch):
    """The shards run here, in place of Ray's workers."""
    nodes = [{"Alive": True, "Resources": {"CPU": 1}}]
    ray = types.SimpleNamespace(cluster_resources=dict, nodes=lambda: nodes)

    def run_here(ray, shard, count, *others, **callbacks):
        with contextlib.redirect_stderr(io.StringIO()):  # workers have their own
            return sum(map(Counter, map(shard, range(1, count + 1))), Counter())

    monkeypatch.setattr(sweep, "connect", lambda _: contextlib.nullcontext(ray))
    monkeypatch.setattr(sweep, "run_on_ray", run_here)
    arguments = [*SWEEP, *DIVERGES, "--out", tmp_path, "--cluster", "ray"]
    check_failures(arguments, ["--resume"], capsys, "3 of 3 runs")
