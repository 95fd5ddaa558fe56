"""Maps of deep sea: each half cell shows its action's number, wherever that action leads."""

import numpy as np
import pytest

from winkel.figures import heatmaps, style


def arrays(rng, times, size, bonus=True):
    shape = (times, size, size, 2)
    return {
        "episode": 10 * np.arange(times),
        "visits": rng.integers(0, 40, shape),
        "disagreement": rng.uniform(0.0, 3.0, shape),
        "bonus": rng.uniform(0.0, 0.2, shape) if bonus else np.full(shape, np.nan),
        "right": rng.integers(0, 2, (size, size)),
    }


def draw(results):
    with style.paper_style():
        return heatmaps.draw(results)


def panels(figure):
    """The images in rows, as they stand."""
    images = [axes.images[0] for axes in figure.axes if axes.images]
    columns = images[0].axes.get_subplotspec().get_gridspec().ncols
    return [images[start : start + columns] for start in range(0, len(images), columns)]


@pytest.mark.parametrize(("times", "columns", "size"), [(1, 1, 1), (6, 6, 4), (9, 6, 50)])
def test_one_row_per_quantity_and_at_most_six_columns(rng, times, columns, size):
    figure = draw(arrays(rng, times, size))
    assert [len(row) for row in panels(figure)] == [columns] * 3


def test_half_cells_hold_the_numbers_of_left_and_right(rng):
    size = 6
    results = arrays(rng, 2, size)
    rows = panels(draw(results))
    quantities = [1 / (1 + results["visits"]), results["disagreement"], results["bonus"]]
    for row, quantity in zip(rows, quantities, strict=True):
        for image, cells in zip(row, quantity, strict=True):
            shown = image.get_array()
            assert shown.shape == (size, 2 * size)
            for y, x in np.ndindex(size, size):
                right = results["right"][y, x]
                if x > y:
                    assert shown.mask[y, 2 * x : 2 * x + 2].all()
                else:
                    assert shown[y, 2 * x] == cells[y, x, 1 - right]
                    assert shown[y, 2 * x + 1] == cells[y, x, right]


def test_first_and_last_snapshot_are_shown_in_even_steps(rng):
    figure = draw(arrays(rng, 11, 4))
    titles = [image.axes.get_title() for image in panels(figure)[0]]
    assert titles == [f"episode {episode}" for episode in (0, 20, 40, 60, 80, 100)]


def test_a_row_has_one_scale_at_all_times_and_rows_have_their_own(rng):
    results = arrays(rng, 3, 4)
    results["disagreement"] *= np.array([5.0, 1.0, 0.2])[:, None, None, None]
    rows = panels(draw(results))
    limits = [{image.get_clim() for image in row} for row in rows]
    assert [len(row) for row in limits] == [1, 1, 1]
    assert limits[1] == {(0.0, results["disagreement"][:, np.tri(4, dtype=bool)].max())}
    assert len(set.union(*limits)) == 3


def test_unreachable_cells_change_nothing(rng, tmp_path):
    results = arrays(rng, 2, 4)
    changed = {name: array.copy() for name, array in results.items()}
    for name in ("visits", "disagreement", "bonus"):
        changed[name][:, *np.triu_indices(4, 1)] = 1_000
    with style.paper_style():
        one, other = (
            style.save(heatmaps.draw(given), tmp_path / stem, ("png",))[0].read_bytes()
            for given, stem in ((results, "a"), (changed, "b"))
        )
    assert one == other


def test_an_agent_without_bonus_has_no_row_for_it(rng):
    rows = panels(draw(arrays(rng, 2, 4, bonus=False)))
    assert len(rows) == 2


def test_a_quantity_that_is_zero_negative_or_infinite_still_draws(rng):
    results = arrays(rng, 2, 4)
    draw(results | {"bonus": np.zeros_like(results["bonus"])}).canvas.draw()
    draw(results | {"bonus": -results["bonus"]}).canvas.draw()
    draw(results | {"bonus": np.where(results["bonus"] > 0.1, np.inf, 0.1)}).canvas.draw()
