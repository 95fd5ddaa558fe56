"""Predicted return distributions: every line and mark is the distribution that was given."""

import matplotlib.image
import numpy as np
import pytest

from winkel.errors import InputError
from winkel.figures import inspect, style


def prediction(rng, members, actions, atoms=11, *, bonus=True, picture=(5, 5)):
    locations = rng.normal(size=(members, actions, atoms))
    probs = rng.dirichlet(np.ones(atoms), size=(members, actions))
    return {
        "locations": locations,
        "probs": probs,
        "value": (locations * probs).sum(axis=-1).mean(axis=0),
        "disagreement": rng.uniform(size=actions),
        "bonus": rng.uniform(size=actions) if bonus else np.full(actions, np.nan),
        "members": np.array([f"model {index}" for index in range(members)]),
        "observation": rng.uniform(size=picture),
    }


def draw(results):
    with style.paper_style():
        return inspect.draw(results)


def panels(figure):
    return [axes for axes in figure.axes if not axes.images]


def mean_of(line):
    """∫ z dF from the drawn steps, which hold their height to the right of each point."""
    x, height = line.get_data()
    assert line.get_drawstyle() == "steps-post"
    assert (np.diff(x) >= 0).all()
    assert (np.diff(height) >= 0).all()
    assert height[0] == 0
    assert height[-1] == pytest.approx(1)
    return x[0] + np.sum((1 - height[:-1]) * np.diff(x))


def words(axes):
    return " ".join([axes.get_title("left"), *(text.get_text() for text in axes.texts)])


@pytest.mark.parametrize("picture", [(0, 0), (5, 5), (1, 6)])
@pytest.mark.parametrize("members", [1, 2, 4, 5, 20])
@pytest.mark.parametrize("actions", [2, 3, 11])
def test_one_panel_per_action_and_one_for_the_observation(rng, members, actions, picture):
    results = prediction(rng, members, actions, picture=picture)
    figure = draw(results)
    assert len(panels(figure)) == actions
    images = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    assert len(images) == (1 if results["observation"].size else 0)
    for image in images:
        np.testing.assert_array_equal(image, results["observation"])


@pytest.mark.parametrize("members", [1, 2, 4, 20])
def test_the_area_above_each_cdf_is_the_mean(rng, members):
    results = prediction(rng, members, 3)
    means = (results["locations"] * results["probs"]).sum(axis=-1)
    for action, axes in enumerate(panels(draw(results))):
        *lines, value = axes.lines
        assert set(value.get_xdata()) == {results["value"][action]}
        drawn = [mean_of(line) for line in lines]
        np.testing.assert_allclose(drawn[:members], means[:, action])
        if members > inspect.FEW:
            mixture = lines[-1]
            assert mean_of(mixture) == pytest.approx(means[:, action].mean())
            assert mixture.get_linewidth() > 2 * lines[0].get_linewidth()
        else:
            assert len(drawn) == members


def test_the_order_of_atoms_does_not_matter(rng):
    results = prediction(rng, 2, 2)
    order = rng.permutation(11)
    mixed = results | {name: results[name][..., order] for name in ("locations", "probs")}
    for one, other in zip(panels(draw(results)), panels(draw(mixed)), strict=True):
        for line, same in zip(one.lines, other.lines, strict=True):
            np.testing.assert_allclose(line.get_xydata(), same.get_xydata())


def test_marks_below_are_the_atoms_as_high_as_their_masses(rng):
    results = prediction(rng, 2, 2)
    for action, axes in enumerate(panels(draw(results))):
        for member, strip in enumerate(axes.collections):
            ends = np.array(strip.get_segments())  # [K, 2, 2]
            np.testing.assert_array_equal(ends[:, 0, 0], results["locations"][member, action])
            heights = ends[:, 1, 1] - ends[:, 0, 1]
            mass = results["probs"][member, action]
            np.testing.assert_allclose(heights / heights.max(), mass / mass.max())
            assert ends[..., 1].max() < 0 < axes.get_ylim()[1]


def test_titles_hold_the_numbers_and_the_best_actions(rng):
    results = prediction(rng, 2, 3) | {
        "value": np.array([0.5, -0.25, 0.125]), "disagreement": np.array([0.1, 0.2, 0.3]),
        "bonus": np.array([0.0, 0.125, 2.0]),
    }  # fmt: skip
    figure = draw(results)
    assert words(panels(figure)[1]) == "action 1 value −0.25, bonus 0.125\ndisagreement 0.2"
    marks = [axes.get_title("right") for axes in panels(figure)]
    assert marks == ["highest value", "", "largest bonus"]
    for bonus, mark in (([0, 0, 0], "highest value"), ([2, 0, 1], "highest value and bonus")):
        figure = draw(results | {"bonus": np.array(bonus, float)})
        assert [axes.get_title("right") for axes in panels(figure)] == [mark, "", ""]


def test_actions_have_their_names_where_they_are_known(rng):
    results = prediction(rng, 2, 3)
    figure = draw(results | {"actions": np.array(["up", "down", "wait"])})
    assert [axes.get_title("left") for axes in panels(figure)] == ["up", "down", "wait"]
    with pytest.raises(InputError, match="need 3 names in actions, got 2"):
        draw(results | {"actions": np.array(["up", "down"])})


def test_without_a_bonus_none_is_mentioned(rng):
    figure = draw(prediction(rng, 2, 3, bonus=False))
    marks = [axes.get_title("right") for axes in panels(figure)]
    assert sorted(marks) == ["", "", "highest value"]
    assert not any("bonus" in words(axes) or "nan" in words(axes) for axes in panels(figure))


def test_projections_keep_their_colours_and_names_are_in_the_legend(rng):
    results = prediction(rng, 3, 2) | {"members": np.array(["other", "categorical", "quantile"])}
    figure = draw(results)
    *lines, _ = panels(figure)[0].lines
    colours = [line.get_color() for line in lines]
    assert colours[1:] == [style.CATEGORICAL, style.QUANTILE]
    assert len(set(colours)) == 3
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["other", "categorical", "quantile", "value"]


@pytest.mark.parametrize("names", [["quantile"] * 4, ["categorical", "quantile"] * 2])
def test_equal_names_have_colours_of_their_own(rng, names):
    *lines, _ = panels(draw(prediction(rng, 4, 2) | {"members": np.array(names)}))[0].lines
    assert len({line.get_color() for line in lines}) == 4


def test_names_are_optional(rng):
    results = prediction(rng, 2, 2)
    del results["members"]
    labels = [text.get_text() for text in draw(results).legends[0].get_texts()]
    assert labels == ["member 1", "member 2", "value"]


@pytest.mark.parametrize("outlier", [-1e6, 1e6])
def test_far_atoms_of_negligible_mass_do_not_stretch_the_axis(rng, outlier):
    results = prediction(rng, 2, 3)
    results["locations"][0, 1, 4] = outlier
    results["probs"][0, 1] = np.where(np.arange(11) == 4, 1e-4, (1 - 1e-4) / 10)
    first, *others = panels(draw(results))
    low, high = first.get_xlim()
    assert -10 < low < results["value"].min() < results["value"].max() < high < 10
    assert all(axes.get_xlim() == (low, high) for axes in others)
    results["probs"][0, 1] = np.where(np.arange(11) == 4, 0.1, 0.09)
    assert np.abs(panels(draw(results))[0].get_xlim()).max() > 1e6


def test_a_certain_return_has_an_axis_too(rng):
    results = prediction(rng, 1, 2) | {"locations": np.zeros((1, 2, 11)), "value": np.zeros(2)}
    low, high = panels(draw(results))[0].get_xlim()
    assert low < 0 < high


def test_draws_the_same_file_each_time(rng, tmp_path):
    results = prediction(rng, 2, 3)
    assert {*inspect.NEEDS, "members"} == set(results)
    assert all(results[name].ndim == axes for name, axes in inspect.NEEDS.items())
    with style.paper_style():
        first, second = (
            style.save(inspect.draw(results), tmp_path / stem, ("png",))[0] for stem in "ab"
        )
    assert first.read_bytes() == second.read_bytes()
    picture = matplotlib.image.imread(first)
    assert 0.01 < (picture[..., :3].min(axis=-1) < 0.9).mean() < 0.6  # neither empty nor a blot


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("locations", np.zeros((2, 11)), "members, actions, atoms"),
        ("locations", np.zeros((2, 0, 11)), "members, actions, atoms"),
        ("locations", np.full((2, 3, 11), np.inf), "finite locations"),
        ("probs", np.full((2, 3, 10), 0.1), r"need shape \[2, 3, 11\] for probs"),
        ("probs", np.full((2, 3, 11), 0.1), "sum to one"),
        ("value", np.zeros(4), r"need shape \[3\] for value"),
        ("value", np.full(3, np.nan), "finite value"),
        ("disagreement", np.zeros(2), "for disagreement"),
        ("bonus", np.zeros((3, 1)), "for bonus"),
        ("observation", np.zeros(5), "two axes for observation"),
        ("members", np.array(["one"]), "need 2 names"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_in_one_line(rng, name, wrong, message):
    with pytest.raises(InputError, match=message) as caught:
        draw(prediction(rng, 2, 3) | {name: wrong})
    assert "\n" not in str(caught.value)
