"""Visits: a histogram of places, for runs that are interrupted too."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import winkel
from play.made_runs import OPTIONS, TINY, room_task
from play.rooms import PLAIN
from winkel.envs.registry import make
from winkel.simulators.visits import MAX_CELLS, TENTHS, VISITS, Visits, load_visits, watch_visits
from winkel.training.steps import Horizon

ENDLESS = 2**31 - 1
END = Horizon(episodes=10, steps=10)
finite = st.floats(-1e6, 1e6, allow_subnormal=False, width=32)
places_of_a_step = st.lists(st.tuples(finite, finite), min_size=1, max_size=8).map(np.array)


@given(st.lists(places_of_a_step, min_size=1, max_size=20), st.integers(0, 20))
def test_visits_are_a_histogram_in_cells_that_grow(places, restored_at):
    """A count that is saved and restored on the way equals one that is not."""
    count = Visits(len(places), ENDLESS)
    for steps, there in enumerate(places):
        if steps == restored_at and steps:
            arrays, count = count.arrays(), Visits(len(places), ENDLESS)
            count.restore(arrays)
        count.add(there, steps, 0)
    arrays = count.arrays()
    cell, (left, right, bottom, top) = float(arrays["cell"]), arrays["extent"]
    assert cell == 2.0 ** np.log2(cell).round()
    assert max(arrays["visits"].shape[1:]) <= MAX_CELLS
    assert (right - left, top - bottom) == tuple(np.array(arrays["visits"].shape[:0:-1]) * cell)
    expected = np.zeros_like(arrays["visits"])
    for steps, there in enumerate(places):
        for x, y in there:
            assert left <= x < right
            assert bottom <= y < top
            tenth = int(TENTHS * steps / len(places))
            expected[tenth, int(y // cell - bottom / cell), int(x // cell - left / cell)] += 1
    np.testing.assert_array_equal(arrays["visits"], expected)


def test_cells_are_no_larger_than_they_must_be(rng):
    count = Visits(1000, ENDLESS)
    for steps in range(1000):
        count.add(rng.uniform(0, 10 + 0.3 * steps, (2, 2)), steps, 0)
    assert max(count.arrays()["visits"].shape[1:]) > MAX_CELLS / 2


def test_nothing_counts_after_the_end_and_nan_never_counts():
    count = Visits(max_steps=4, max_episodes=3)
    for steps in range(8):
        count.add(np.array([[1.0, 2.0], [np.nan, 2.0]]), steps, 0)
    assert count.arrays()["visits"].sum() == 4
    count = Visits(ENDLESS, max_episodes=2)
    for steps in range(8):
        count.add(np.array([[1.0, 2.0]]), steps, 1)
    assert count.arrays()["visits"].sum(axis=(1, 2)).tolist() == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0]


def test_an_interrupted_run_leaves_all_its_places(tmp_path):
    """100 steps in two environments, interrupted after 40 or so, then resumed."""
    settings = {"steps": 100, "num_envs": 2, "workers": 0, "options": OPTIONS, "seeds": [0, 1]}
    fields = TINY | {"burn_in": 1000, "z_min": 0.0, "z_max": 6.0, "epsilon": 1.0}

    def interrupt(statuses):
        if statuses[0].env_steps >= 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        winkel.train(PLAIN, "c51", out=tmp_path, progress=interrupt, **settings, **fields)
    folders = sorted(path.parent for path in tmp_path.rglob(VISITS))
    for folder in folders:
        counts = load_visits(folder)["visits"].sum(axis=(1, 2))
        assert counts.tolist() == [10, 10, 10, 10, 0, 0, 0, 0, 0, 0]
    winkel.train(PLAIN, "c51", out=tmp_path, resume=True, **settings, **fields)
    one, other = (load_visits(folder) for folder in folders)
    for found in (one, other):
        assert found["visits"].sum(axis=(1, 2)).tolist() == [10] * TENTHS
        left, right, bottom, top = found["extent"]
        # Places are 10 apart along x from -50, and 20 along y from 0.
        assert -50 - found["cell"] < left < right <= 61 + found["cell"]
        assert bottom == 0 < top <= 221 + found["cell"]
    assert one["visits"].tolist() != other["visits"].tolist()


def test_only_tasks_with_places_are_watched(tmp_path):
    for task, runs in (
        (room_task(), []),
        (make("deep_sea/0"), [(tmp_path, END, False)]),
    ):
        with watch_visits(task, runs, print) as watch:
            assert watch is None


@pytest.mark.parametrize("resumed", [True, False])
def test_damaged_visits_are_reported_and_begun_anew(tmp_path, resumed):
    """A run without a checkpoint begins anew, and does not read what was left of it."""
    (tmp_path / VISITS).write_bytes(b"PK")
    told = []
    with watch_visits(room_task(), [(tmp_path, END, resumed)], told.append) as watch:
        assert watch is not None
    assert len(told) == resumed
    assert all(VISITS in text for text in told)
