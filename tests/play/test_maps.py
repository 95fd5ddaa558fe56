"""Maps of visits: shares of steps where they were made, within walls if there are any."""

import dataclasses

import numpy as np
import pytest

from play.made_runs import OPTIONS, TINY, room_task
from winkel.errors import InputError
from winkel.figures import style
from winkel.play import maps
from winkel.play.maps import map_arrays
from winkel.runs.record import RunRecord
from winkel.runs.spec import make_spec
from winkel.simulators.visits import VISITS, Visits
from winkel.simulators.vizdoom import MyWayHome

ROOM = np.array(
    [[(0, 0), (60, 0)], [(60, 0), (60, 40)], [(60, 40), (0, 40)], [(0, 40), (0, 0)]], float
)


def make_arrays(rng, panels=3, starts=0):
    visits = rng.integers(1, 50, (panels, 4, 6))
    visits[:, 0] = 0
    level = {"walls": ROOM, "starts": rng.uniform(5, 35, (starts, 2)), "goal": np.array([50, 20.0])}
    return {
        "visits": visits,
        "extent": np.array([0.0, 60.0, 0.0, 40.0]),
        "titles": np.array([f"part {i}" for i in range(panels)]),
    } | (level if starts else {})


def draw(arrays):
    with style.paper_style():
        return maps.draw(arrays)


@pytest.mark.parametrize("panels", [1, 3, 5])
@pytest.mark.parametrize("starts", [0, 1, 17])
def test_cells_have_the_share_of_their_panel_on_one_scale(rng, panels, starts):
    arrays = make_arrays(rng, panels, starts)
    figure = draw(arrays)
    shown = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in shown] == arrays["titles"].tolist()
    images = [axes.images[0] for axes in shown]
    for image, visits in zip(images, arrays["visits"], strict=True):
        np.testing.assert_array_equal(image.get_array().mask, visits == 0)
        np.testing.assert_allclose(image.get_array(), visits / visits.sum())
        assert (image.get_extent(), image.origin) == ([0, 60, 0, 40], "lower")
    most = (arrays["visits"] / arrays["visits"].sum(axis=(1, 2), keepdims=True)).max()
    assert {image.get_clim() for image in images} == {(most / 1000, most)}
    if starts:
        drawn, goal = (line.get_xydata() for line in shown[0].lines)
        np.testing.assert_array_equal(drawn, arrays["starts"])
        np.testing.assert_array_equal(goal, [arrays["goal"]])
        np.testing.assert_array_equal(shown[0].collections[0].get_segments(), ROOM)
        names = [text.get_text() for text in figure.legends[0].get_texts()]
        assert names == ["start" if starts == 1 else "one of 17 starts", "goal"]


def test_a_panel_without_visits_is_empty(rng):
    arrays = make_arrays(rng, starts=1)
    arrays["visits"][0] = 0
    assert draw(arrays).axes[0].images[0].get_array().mask.all()


def save_visits(folder):
    """Visits of the first six tenths of a run."""
    count = Visits(100, 2**31 - 1, cell=16.0)
    for steps in range(0, 60, 10):
        count.add(np.array([[240.0, -176.0], [300.0, -150.0]]), steps, 0)
    np.savez(folder / VISITS, **count.arrays())


def doom_task(variant):
    return dataclasses.replace(room_task(), maker=MyWayHome(variant))


def arrays_of(folder, task):
    """The arrays of a run of which only these are known."""
    fields = TINY | {"channels": 1, "z_min": 0.0, "z_max": 1.0}
    spec = make_spec(task, "c51", fields, steps=100, options=OPTIONS)
    return map_arrays(RunRecord({}, {}, folder, spec=spec))


def test_a_map_of_vizdoom_has_walls_starts_and_the_goal(tmp_path, monkeypatch):
    assert arrays_of(tmp_path, doom_task("dense")) is None
    save_visits(tmp_path)
    for variant, starts in (("dense", 17), ("sparse", 1), ("very-sparse", 1)):
        arrays = arrays_of(tmp_path, doom_task(variant))
        assert arrays["starts"].shape == (starts, 2)
        assert arrays["walls"].shape[1:] == (2, 2)
    assert arrays["titles"].tolist() == [f"{n}–{n + 20} % of training" for n in (0, 20, 40)]
    assert arrays["visits"].sum(axis=(1, 2)).tolist() == [4, 4, 4]

    def missing(self):
        raise InputError("need vizdoom")

    monkeypatch.setattr(MyWayHome, "floor_plan", missing)
    assert "walls" not in arrays_of(tmp_path, doom_task("dense"))
