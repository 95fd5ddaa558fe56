"""The figure of speed: which panels, which points."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from winkel.errors import InputError
from winkel.figures import bench, style


def results(*rows, notes=()):
    """From (agent, setting, size, lanes, atoms, milliseconds)."""
    agents, settings, sizes, lanes, atoms, ms = zip(*rows, strict=True)
    return {
        "agents": np.array(agents), "settings": np.array(settings),
        "experiments": np.array([s.partition("/")[0] for s in settings]),
        "sizes": np.array(sizes), "lanes": np.array(lanes), "atoms": np.array(atoms),
        "fastest": np.array(ms, float) * 0.9, "slowest": np.array(ms, float) * 1.1,
        "milliseconds": np.array(ms, float), "floor": np.array(ms, float) / 3,
        "devices": np.array(["H200"]), "notes": np.array(notes, dtype=str),
    }  # fmt: skip


def points(axes):
    """Measured points by colour: the lines that have markers."""
    return sorted(
        (line.get_xdata().tolist(), line.get_ydata().tolist())
        for line in axes.get_lines()
        if line.get_marker() not in ("", "None")
    )


def titles(figure):
    return [axes.get_title() for axes in figure.axes]


def test_each_panel_shows_its_rows():
    rows = [("pe_dqn", "deep_sea/0", 10, n, 101, 8 / n) for n in (4, 1, 2)]
    rows += [("pe_dqn", "deep_sea/20", 50, n, 101, 16 / n) for n in (1, 2)]
    rows += [("pe_dqn", "deep_sea/0", 10, 2, 51, 3.0)]
    with style.paper_style():
        figure = bench.draw(results(*rows, notes=["a note"]))
    assert titles(figure) == ["(a) lanes", "(b) deep sea", "(c) number of atoms"]
    lanes, sizes, atoms = map(points, figure.axes)
    assert lanes == [([1, 2], [16, 8]), ([1, 2, 4], [8, 4, 2])]
    assert sizes == [([10, 50], [4, 8])]  # 2 lanes: the most that both have
    assert atoms == [([51, 101], [3, 4])]
    text = " ".join(text.get_text() for text in figure.texts)
    assert "(b) 2 lanes, K = 101" in text.replace("\n", " ")
    assert "a note" in text


def test_a_panel_needs_two_points_on_a_line():
    alone = [("pe_dqn", "deep_sea/0", 10, 1, 101, 8.0), ("bdqn", "catch/0", 0, 4, 0, 8.0)]
    assert bench.draw(results(*alone)) is None
    with style.paper_style():
        figure = bench.draw(results(*alone, ("bdqn", "catch/0", 0, 8, 0, 9.0)))
    assert len(figure.axes) == 1
    assert points(figure.axes[0]) == [([4, 8], [8, 9])]


@pytest.mark.parametrize("count", [1, 2, 7])
def test_agents_and_settings_are_told_apart(count):
    agents = ["pe_dqn", "bdqn", "pe_dqn [hidden 8]"]
    rows = [
        (agent, f"catch/{n}", 0, lanes, 0, 1.0 + n + lanes)
        for agent in agents
        for n in range(count)
        for lanes in (1, 1024)
    ]
    with style.paper_style():
        figure = bench.draw(results(*rows))
        FigureCanvasAgg(figure).draw()
    (axes,) = figure.axes
    looks = {
        (line.get_color(), str(line._dash_pattern), line.get_marker(), line.get_markerfacecolor())
        for line in axes.get_lines()
        if line.get_marker() not in ("", "None")
    }
    assert len(looks) == 3 * count
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 3 + (count if count > 1 else 0)


def test_everything_is_on_the_page():
    rows = [("pe_dqn", "deep_sea/0", 10, 2**n, 51, 1.0 + n) for n in range(11)]
    rows += [("pe_dqn", f"deep_sea/{n}", 10 + n, 1, 51, 1.0 + n) for n in range(1, 11)]
    rows += [("pe_dqn", "deep_sea/0", 10, 1, 51 + n, 1.0 + n) for n in range(1, 11)]
    with style.paper_style():
        figure = bench.draw(results(*rows, notes=["out of memory, " * 20] * 9))
        FigureCanvasAgg(figure).draw()
    assert len(figure.axes) == 3
    width, height = figure.get_size_inches() * figure.dpi
    for axes in figure.axes:
        box = axes.get_tightbbox()
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= width
        assert box.y1 <= height


def test_arrays_that_do_not_fit_are_refused():
    good = results(("pe_dqn", "catch/0", 0, 1, 5, 1.0))
    with pytest.raises(InputError, match="rows in lanes"):
        bench.draw(good | {"lanes": np.array([1, 2])})
