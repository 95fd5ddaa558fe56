"""Computed figures: their data show what the captions claim, and they draw from arrays alone."""

import matplotlib.image
import numpy as np
import pytest

from winkel.figures import COMPUTED, FIGURES, iteration, operator, style, toy


def test_the_two_models_agree_at_the_data_and_differ_away_from_them():
    """Expected with seed 0: mean gaps of 0.04 and 0.43."""
    results = toy.compute()
    gap = np.abs(results["categorical"] - results["quantile"]).mean(axis=1)
    near = np.abs(results["grid"][:, None] - results["x"][None]).min(axis=1) < 0.05
    assert gap[near].mean() < 0.08
    assert gap[~near].mean() > 0.25
    for name in ("categorical", "quantile"):
        fitted = np.interp(results["x"], results["grid"], results[name][:, 4])
        below = (results["y"] <= fitted).mean()
        assert 0.42 < below < 0.58  # the median halves the data


def test_the_five_stages_of_the_operator():
    stages = operator.compute()
    for stage in ("eta", "target", "quantile", "categorical", "mixture"):
        np.testing.assert_allclose(stages[f"{stage}_probs"].sum(), 1.0, atol=1e-9)
    np.testing.assert_allclose(
        stages["target_locations"], 0.6 + 0.7 * stages["eta_locations"], atol=1e-6
    )
    np.testing.assert_allclose(stages["quantile_probs"], 1 / 11)
    np.testing.assert_allclose(np.diff(stages["categorical_locations"]), 4 / 10)
    assert len(stages["mixture_probs"]) == 22


def test_value_iteration_settles_within_its_bound_and_the_oscillator_does_not():
    results = iteration.convergence()
    assert results["steps"][-1] < 1e-9
    assert 0 < results["to_truth"][-1] < results["residual_bound"]
    np.testing.assert_allclose(results["oscillation"][-1], 8 / 15, atol=1e-9)


def test_the_bonus_shows_what_the_one_step_error_misses():
    maps = iteration.propagation(size=6, num_atoms=31)
    visited = maps["visited"] == 1.0
    assert maps["local_error"][visited].max() < 1e-8
    assert maps["true_error"][0, 0] > 0.05
    assert maps["bonus"][0, 0] > maps["true_error"][0, 0]
    # Everywhere, up to what the quantile projection can expand.
    reached = ~np.isnan(maps["bonus"])
    assert (maps["bonus"][reached] >= maps["true_error"][reached] - 0.02).all()
    assert np.isnan(maps["bonus"][0, 1:]).all()


def toy_arrays():
    x = np.linspace(-1, 1, 20)
    curves = np.linspace(-1, 1, 9)[None] + np.linspace(0, 1, 30)[:, None]
    return {
        "x": x, "y": x, "grid": np.linspace(-1.5, 1.5, 30), "levels": np.linspace(0.1, 0.9, 9),
        "categorical": curves, "quantile": -curves,
    }  # fmt: skip


def iteration_arrays():
    cells = np.tril(np.ones((4, 4)))
    cells[np.triu_indices(4, 1)] = np.nan
    trace = 0.5 ** np.arange(10)
    return {
        "steps": trace, "to_truth": trace + 0.1, "residual_bound": np.asarray(0.3),
        "oscillation": np.full(10, 0.5), "visited": cells, "local_error": 0.1 * cells,
        "bonus": cells, "true_error": 0.5 * cells,
    }  # fmt: skip


ARRAYS = {"toy": toy_arrays, "operator": operator.compute, "iteration": iteration_arrays}


def draw(name, arrays, stem, formats):
    with style.paper_style():
        return style.save(FIGURES[name].draw(arrays), stem, formats)


@pytest.mark.parametrize("name", COMPUTED)
def test_figures_draw_in_every_format_and_equal_data_make_equal_files(name, tmp_path):
    first, second = (
        draw(name, ARRAYS[name](), tmp_path / stem, ("png", "pdf", "svg")) for stem in "ab"
    )
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    picture = matplotlib.image.imread(first[0])
    assert 0.01 < (picture[..., :3].min(axis=-1) < 0.9).mean() < 0.6  # neither empty nor full
