"""Figures draw from arrays alone, in every format, and the same way each time."""

import matplotlib.image
import numpy as np
import pytest

from winkel.experiments.operator import operator
from winkel.figures import FIGURES, style


def toy_results():
    x = np.linspace(-1, 1, 20)
    curves = np.linspace(-1, 1, 9)[None] + np.linspace(0, 1, 30)[:, None]
    return {
        "x": x, "y": x, "grid": np.linspace(-1.5, 1.5, 30), "levels": np.linspace(0.1, 0.9, 9),
        "categorical": curves, "quantile": -curves,
    }  # fmt: skip


def iteration_results():
    cells = np.tril(np.ones((4, 4)))
    cells[np.triu_indices(4, 1)] = np.nan
    trace = 0.5 ** np.arange(10)
    return {
        "steps": trace, "to_truth": trace + 0.1, "residual_bound": np.asarray(0.3),
        "oscillation": np.full(10, 0.5), "visited": cells, "local_error": 0.1 * cells,
        "bonus": cells, "true_error": 0.5 * cells,
    }  # fmt: skip


RESULTS = {"toy": toy_results, "operator": operator, "iteration": iteration_results}


def draw(name, stem, formats):
    results = RESULTS[name]()
    with style.paper_style():
        return style.save(FIGURES[name].draw(results), stem, formats)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_draws_in_every_format(name, tmp_path):
    assert set(FIGURES[name].NEEDS) <= set(RESULTS[name]())
    png, pdf, svg = draw(name, tmp_path / name, ("png", "pdf", "svg"))
    picture = matplotlib.image.imread(png)
    assert picture.shape[1] > 1_000
    assert 0.01 < (picture[..., :3].min(axis=-1) < 0.9).mean() < 0.6  # neither empty nor a blot
    assert pdf.read_bytes().startswith(b"%PDF")
    assert b"<svg" in svg.read_bytes()[:500]


@pytest.mark.parametrize("name", FIGURES)
def test_equal_results_make_equal_files(name, tmp_path):
    first, second = (draw(name, tmp_path / stem, ("png", "pdf")) for stem in "ab")
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
