"""Maps of a maze: what is drawn lies where it is, on one scale, in all panels."""

import matplotlib.image
import numpy as np
import pytest
from matplotlib.collections import LineCollection

from winkel.errors import InputError
from winkel.figures import doom_map, style

ROOM = [[(0, 0), (60, 0)], [(60, 0), (60, 40)], [(60, 40), (0, 40)], [(0, 40), (0, 0)]]


def maze(rng, panels=3, starts=1):
    visits = rng.integers(1, 50, (panels, 4, 6))
    visits[:, 0] = 0  # nobody goes south
    return {
        "segments": np.array(ROOM, float),
        "visits": visits,
        "extent": np.array([0.0, 60.0, 0.0, 40.0]),
        "starts": rng.uniform(5, 35, (starts, 2)),
        "goal": np.array([50.0, 30.0]),
        "titles": np.array([f"{i} M frames" for i in range(panels)]),
        "notes": np.array([], str),
    }


def draw(results):
    with style.paper_style():
        return doom_map.draw(results)


def maps(figure):
    """Axes that have a maze, in their order."""
    return [axes for axes in figure.axes if axes.images]


def _walls(axes):
    return [item for item in axes.collections if isinstance(item, LineCollection)]


@pytest.mark.parametrize(("panels", "columns"), [(1, 1), (2, 2), (4, 4), (5, 3), (6, 3), (8, 4)])
def test_one_panel_for_each_title_in_even_rows(rng, panels, columns):
    results = maze(rng, panels)
    shown = maps(draw(results))
    assert [axes.get_title() for axes in shown] == results["titles"].tolist()
    assert {axes.get_subplotspec().get_gridspec().ncols for axes in shown} == {columns}


def test_cells_show_shares_of_their_panel_on_one_scale(rng):
    results = maze(rng)
    results["visits"][1] *= 1000
    images = [axes.images[-1] for axes in maps(draw(results))]
    for image, visits in zip(images, results["visits"], strict=True):
        shown = image.get_array()
        np.testing.assert_array_equal(shown.mask, visits == 0)
        np.testing.assert_allclose(shown[visits > 0], (visits / visits.sum())[visits > 0])
    limits = {image.get_clim() for image in images}
    most = max(image.get_array().max() for image in images)
    assert limits == {(most / 1000, most)}


def test_a_cell_a_start_and_the_goal_are_drawn_where_they_are(rng):
    results = maze(rng, panels=1, starts=3)
    (axes,) = maps(draw(results))
    image = axes.images[-1]
    for x, y, row, column in ((5, 15, 1, 0), (55, 35, 3, 5), (25, 22, 2, 2)):
        pixel = axes.transData.transform((x, y))
        event = type("Event", (), {"x": pixel[0], "y": pixel[1]})()
        expected = results["visits"][0, row, column] / results["visits"][0].sum()
        assert image.get_cursor_data(event) == pytest.approx(expected)
    starts, goal = (np.column_stack(line.get_data()) for line in axes.lines)
    np.testing.assert_array_equal(starts, results["starts"])
    np.testing.assert_array_equal(goal, [results["goal"]])
    (walls,) = _walls(axes)
    np.testing.assert_array_equal(walls.get_segments(), results["segments"])


def test_floor_is_what_walls_enclose():
    hole = np.array([[(20, 10), (40, 10)], [(40, 10), (30, 30)], [(30, 30), (20, 10)]], float)
    segments = np.concatenate([np.array(ROOM, float), hole])
    x, y = np.array([-5.0, 5.0, 30.0, 55.0, 65.0]), np.array([-5.0, 5.0, 15.0, 35.0, 45.0])
    inside = doom_map.floor(segments, x, y)
    expected = np.zeros((5, 5), bool)
    expected[1:4, 1:4] = True
    expected[2, 2] = False  # in the triangle
    np.testing.assert_array_equal(inside, expected)


@pytest.mark.parametrize(("starts", "label"), [(1, "start"), (17, "one of 17 starts")])
def test_the_legend_counts_starts(rng, starts, label):
    (legend,) = draw(maze(rng, starts=starts)).legends
    assert [text.get_text() for text in legend.get_texts()] == [label, "goal"]


def test_a_panel_without_visits_is_an_empty_maze(rng):
    results = maze(rng)
    results["visits"][0] = 0
    first, *_ = maps(draw(results))
    assert first.images[-1].get_array().mask.all()


def test_draws_the_same_file_each_time(rng, tmp_path):
    results = maze(rng)
    assert all(results[name].ndim == axes for name, axes in doom_map.NEEDS.items())
    with style.paper_style():
        first, second = (
            style.save(doom_map.draw(results), tmp_path / stem, ("png",))[0] for stem in "ab"
        )
    assert first.read_bytes() == second.read_bytes()
    picture = matplotlib.image.imread(first)
    assert 0.01 < (picture[..., :3].min(axis=-1) < 0.8).mean() < 0.7  # neither empty nor a blot


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("titles", np.array(["one"]), "need 3 titles, as visits have panels, got 1"),
        ("visits", np.zeros((3, 4, 6)), "at least one"),
        ("visits", np.full((3, 4, 6), -1), "visits >= 0"),
        ("visits", np.full((3, 4, 6), np.nan), "visits >= 0"),
        ("visits", np.zeros((4, 6)), "need axes"),
        ("segments", np.zeros((2, 3, 2)), "need 2 numbers in segments, got 3"),
        ("goal", np.zeros(3), "need 2 xy in goal"),
        ("extent", np.zeros(3), "need 4 numbers in extent, got 3"),
        ("extent", np.array([0.0, 60.0, 40.0, 0.0]), "left < right, bottom < top"),
        ("starts", np.zeros((1, 3)), "need 2 xy in starts"),
        ("starts", np.zeros((0, 2)), "at least one of starts"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_in_one_line(rng, name, wrong, message):
    with pytest.raises(InputError, match=message) as caught:
        draw(maze(rng) | {name: wrong})
    assert "\n" not in str(caught.value)
