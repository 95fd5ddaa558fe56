"""`winkel bench`, as one types it."""

import jax
import pytest

from terminal_helpers import refused
from winkel import cli
from winkel.commands import bench
from winkel.envs.registry import make
from winkel.runs.spec import configure

pytestmark = pytest.mark.usefixtures("wide", "bandwidth")

TINY = ["--hidden", "8", "--num-atoms", "3", "--batch-size=2", "--burn-in=4", "--capacity", "32"]


@pytest.fixture
def bandwidth(monkeypatch):
    """Known, and not measured."""
    monkeypatch.setattr(bench, "copy_bandwidth", lambda: 5e9)
    monkeypatch.setattr(bench, "ENOUGH_SECONDS", 0.1)


def test_a_row_for_each_number_of_lanes(capsys):
    options = ["--agent", "qr_dqn", "--lanes", "1", "2", "--steps", "4", *TINY]
    cli.main(["bench", "deep_sea:size=4", *options])
    lines = capsys.readouterr().out.splitlines()
    assert "qr_dqn in deep_sea:size=4" in lines[0]
    rows = [line.replace(",", "").split() for line in lines[2:4]]
    for row, lanes in zip(rows, (1, 2), strict=True):
        assert int(row[0]) == lanes
        assert float(row[1]) == pytest.approx(1e3 * lanes / float(row[2]), rel=0.02)
        assert float(row[3]) <= float(row[2]) <= float(row[5])
    assert float(rows[1][8]) == pytest.approx(2 * float(rows[0][8]), rel=0.05)  # the floor
    assert "5.0 GB/s" in lines[4]


def test_parameters_are_those_that_adam_learns():
    """dqn learns one network of 10 + 1 cells, 8 units and 2 actions; targets are not learned."""
    task = make("deep_sea:size=4")
    agent, hyper = configure("dqn", {"hidden": (8,), "batch_size": 2, "capacity": 32}, task)
    learner = jax.eval_shape(lambda: agent.init(jax.random.key(0), hyper))
    learned = sum(leaf.size for leaf in jax.tree.leaves(learner.params))
    assert bench.count_parameters(learner) == learned


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["deep_sea/0", "--agent", "pe_dqm"], "did you mean pe_dqn"),
        (["deep_see/0"], "did you mean deep_sea"),
        (["deep_sea/0", "--lanes", "0"], "need steps and lanes >= 1"),
        (["deep_sea/0", "--steps", "0"], "need steps and lanes >= 1"),
        (["deep_sea/0", "--hiden", "8"], "did you mean --hidden"),
    ],
)
def test_bad_input_is_one_line(arguments, shown, capsys):
    assert shown in refused(["bench", *arguments], capsys)
