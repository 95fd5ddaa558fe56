"""Predicted return distributions: every line and mark is the distribution that was given."""

import numpy as np
import pytest

from winkel.errors import InputError
from winkel.figures import style
from winkel.play import inspection
from winkel.play.inspection import MAX_NAMED


def make_prediction(rng, members, actions, atoms=11, *, bonus=True, picture=(5, 5)):
    locations = rng.normal(size=(members, actions, atoms))
    probs = rng.dirichlet(np.ones(atoms), size=(members, actions))
    return {
        "locations": locations,
        "probs": probs,
        "value": (locations * probs).sum(axis=-1).mean(axis=0),
        "disagreement": rng.uniform(size=actions),
        "bonus": rng.uniform(size=actions) if bonus else np.full(actions, np.nan),
        "members": np.array([f"model {index}" for index in range(members)]),
        "actions": np.array([f"action {index}" for index in range(actions)]),
        "observation": rng.integers(256, size=picture).astype(np.uint8),
    }


def draw(arrays):
    with style.paper_style():
        return inspection.draw(arrays)


def panels(figure):
    return [axes for axes in figure.axes if not axes.images]


def mean_of(line):
    """∫ z dF from the drawn steps, which hold their height to the right of each point."""
    x, height = line.get_data()
    assert line.get_drawstyle() == "steps-post"
    assert (np.diff(x) >= 0).all()
    assert (np.diff(height) >= 0).all()
    assert (height[0], height[-1]) == (0, pytest.approx(1))
    return x[0] + np.sum((1 - height[:-1]) * np.diff(x))


@pytest.mark.parametrize(
    ("members", "actions", "picture"),
    [(1, 2, (5, 5)), (4, 2, (1, 6)), (5, 2, (4, 4, 3)), (5, 11, (5, 5))],
)
def test_one_panel_for_each_action_and_one_for_the_observation(rng, members, actions, picture):
    arrays = make_prediction(rng, members, actions, picture=picture)
    figure = draw(arrays)
    assert len(panels(figure)) == actions
    (image,) = (axes.images[0] for axes in figure.axes if axes.images)
    np.testing.assert_array_equal(image.get_array(), arrays["observation"])
    assert image.get_clim() == (0, 255)


@pytest.mark.parametrize("members", [1, 2, 4, 20])
def test_the_area_above_each_cdf_is_the_mean(rng, members):
    arrays = make_prediction(rng, members, 3)
    order = rng.permutation(11)  # the order of atoms does not matter
    arrays |= {name: arrays[name][..., order] for name in ("locations", "probs")}
    means = (arrays["locations"] * arrays["probs"]).sum(axis=-1)
    for action, axes in enumerate(panels(draw(arrays))):
        *lines, value = axes.lines
        assert set(value.get_xdata()) == {arrays["value"][action]}
        drawn = [mean_of(line) for line in lines]
        np.testing.assert_allclose(drawn[:members], means[:, action])
        if members > MAX_NAMED:
            assert mean_of(lines[-1]) == pytest.approx(means[:, action].mean())  # the mixture
        else:
            assert len(drawn) == members


def test_marks_below_are_the_atoms_as_high_as_their_masses(rng):
    arrays = make_prediction(rng, 2, 2)
    for action, axes in enumerate(panels(draw(arrays))):
        for member, strip in enumerate(axes.collections):
            ends = np.array(strip.get_segments())  # [K, 2, 2]
            np.testing.assert_array_equal(ends[:, 0, 0], arrays["locations"][member, action])
            heights = ends[:, 1, 1] - ends[:, 0, 1]
            mass = arrays["probs"][member, action]
            np.testing.assert_allclose(heights / heights.max(), mass / mass.max())
            assert ends[..., 1].max() < 0 < axes.get_ylim()[1]


def test_titles_hold_the_numbers_and_the_best_actions(rng):
    arrays = make_prediction(rng, 2, 3) | {
        "value": np.array([0.5, -0.25, 0.125]), "disagreement": np.array([0.1, 0.2, 0.3]),
        "bonus": np.array([0.0, 0.125, 2.0]),
    }  # fmt: skip
    axes = panels(draw(arrays))
    assert axes[1].get_title("left") == "action 1"
    assert axes[1].texts[0].get_text() == "value −0.25, bonus 0.125\ndisagreement 0.2"
    assert [a.get_title("right") for a in axes] == ["highest value", "", "largest bonus"]
    for bonus, mark in (([0, 0, 0], "highest value"), ([2, 0, 1], "highest value and bonus")):
        axes = panels(draw(arrays | {"bonus": np.array(bonus, float)}))
        assert [a.get_title("right") for a in axes] == [mark, "", ""]
    nothing = np.full(3, np.nan)
    axes = panels(draw(arrays | {"bonus": nothing, "disagreement": nothing}))
    assert axes[0].texts[0].get_text() == "value 0.5"


@pytest.mark.parametrize("names", [["quantile", "categorical"], ["categorical", "quantile"]])
def test_the_two_projections_have_the_colours_of_all_figures(rng, names):
    axes = panels(draw(make_prediction(rng, 2, 2) | {"members": np.array(names)}))[0]
    colours = {line.get_label(): line.get_color() for line in axes.lines}
    assert colours["quantile"] == style.QUANTILE
    assert colours["categorical"] == style.CATEGORICAL


def test_members_of_one_name_have_a_colour_each(rng):
    axes = panels(draw(make_prediction(rng, 2, 2) | {"members": np.array(["quantile"] * 2)}))[0]
    assert len({line.get_color() for line in axes.lines}) == 3  # with the value's


@pytest.mark.parametrize("name", ["locations", "probs", "value"])
def test_an_agent_that_has_diverged_is_one_line(rng, name):
    arrays = make_prediction(rng, 2, 3)
    arrays[name].flat[0] = np.nan
    with pytest.raises(InputError, match=f"need finite {name}"):
        draw(arrays)
