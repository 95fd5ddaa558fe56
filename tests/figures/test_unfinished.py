"""Figures of runs that have not ended."""

import numpy as np
import pytest

from runs.tiny import SEED_0, learn, stop_after
from winkel.cli import main
from winkel.figures import FIGURES
from winkel.runs.results import read_results


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A run that was interrupted after its third chunk, in its eleventh episode."""
    root = tmp_path_factory.mktemp("half")
    with pytest.raises(KeyboardInterrupt):
        learn(root, progress=stop_after(3))
    return root


def test_a_figure_shows_an_unfinished_run_and_says_so(half, tmp_path, capsys):
    arguments = ["--out", str(tmp_path / "out"), "--formats", "png"]
    with pytest.raises(SystemExit) as end:
        main(["figure", "learning-curves", str(half), *arguments])
    assert end.value.code == 2
    with pytest.raises(SystemExit):
        main(["figure", "learning-curves", *arguments, "--unfinished"])
    assert "need a folder of runs: winkel figure learning-curves RUNS" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["figure", "regret", str(half), *arguments, "--unfinished"])
    assert "--returns, got regret" in capsys.readouterr().err
    main(["figure", "learning-curves", str(half), *arguments, "--unfinished"])
    assert f"note: {SEED_0}: unfinished, its first 11 episodes" in capsys.readouterr().out
    assert (tmp_path / "out/learning-curves.png").is_file()


def test_unfinished_runs_are_beside_finished_ones_of_the_same_horizon(half):
    learn(half, seeds=[1])
    arrays = FIGURES["learning-curves"].collect(read_results(half, unfinished=True))
    assert arrays["num_seeds"].tolist() == [[2]]
    assert np.nanmax(arrays["x"]) == 11
    assert not any("left out" in note for note in arrays["notes"])
