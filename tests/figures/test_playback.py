"""Frames of a film: what is drawn is what was played, and nothing is drawn before it happens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from winkel.errors import InputError
from winkel.figures import canvas, inspect, places, playback, style
from winkel.figures.canvas import Scale, rgb, written

FPS = 4
FULL = {name: rgb(getattr(playback, name)) for name in ("VALUE", "BONUS", "NUMBERS")}
TINTS = {name: rgb(getattr(playback, name), 0.45) for name in ("VALUE", "BONUS")}


def episode(rng, actions=3, length=9, bonus=True, picture=(6, 7), number=1):
    """One episode; values and bonuses from 0.3 to 1."""
    moments = length + 1
    value, extra = rng.uniform(0.3, 1.0, size=(2, moments, actions))
    action = np.argmax(value, axis=1)
    value[-1], extra[-1], action[-1] = np.nan, np.nan, -1
    return {
        "value": value,
        "bonus": extra if bonus else np.full_like(extra, np.nan),
        "action": action,
        "return": np.arange(moments) / 8,
        "episode": np.full(moments, number),
        "step": np.arange(moments),
        "state": np.where(action < 0, 1, 0),
        "shown": np.arange(moments),
        "pictures": rng.integers(0, 256, (moments, *picture), dtype=np.uint8),
    }


def drawn(results, title="an agent"):
    return np.stack(list(playback.frames(results, title, FPS)))


def coloured(frame, colour):
    return (frame == np.array(colour, np.uint8)).all(axis=-1)


def runs_of(mask):
    """Begin and end of each run of True in rows that have any."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
    return list(zip(edges[::2], edges[1::2], strict=True))


def strips(frame):
    """The part below picture and bars."""
    return frame[playback._strip_box(0).top :]


def test_frames_are_even_and_the_last_one_stays_for_a_second(rng):
    frames = drawn(episode(rng))
    assert len(frames) == 9 + FPS == playback.count(episode(rng), FPS)
    assert frames.shape[2:] == (540, 3)
    assert frames.shape[1] % 2 == 0
    assert (frames[-FPS:] == frames[-1]).all()
    assert (frames[:9] != frames[1:10]).any(axis=(1, 2, 3)).all()


@pytest.mark.parametrize("shape", [(6, 7), (42, 42), (6, 7, 3)])
def test_pictures_are_whole_times_larger(rng, shape):
    results = episode(rng, picture=shape)
    times = 214 // max(shape[:2])
    for frame, picture in zip(drawn(results), results["pictures"], strict=False):
        large = np.repeat(np.repeat(picture, times, axis=0), times, axis=1)
        large = large if large.ndim == 3 else np.repeat(large[..., None], 3, axis=2)
        top = playback._HEADER + (216 - large.shape[0]) // 2
        left = playback._MARGIN + (216 - large.shape[1]) // 2
        height, width = large.shape[:2]
        np.testing.assert_array_equal(frame[top : top + height, left : left + width], large)


def test_pictures_that_are_too_large_are_shrunk(rng):
    frame = drawn(episode(rng, length=1, picture=(480, 640)))[0]
    seen = frame[playback._HEADER :, playback._MARGIN :][:216, :216]
    grey = (seen[..., 0] > 75) & (seen[..., 0] < 180)
    assert grey[40:170, 10:200].mean() > 0.9  # noise is averaged
    assert (seen[:25] == 255).all()


def test_cells_of_grids_are_told_apart(rng):
    results = episode(rng, picture=(5, 5)) | {"pictures": np.full((10, 5, 5), 255, np.uint8)}
    marks = [
        coloured(drawn(results | more)[0], rgb("#EEEEEE"))[:, :228].sum()
        for more in ({}, {"cells": np.asarray(True)})
    ]
    assert marks[0] < 20  # of soft edges of text
    assert marks[1] > 4 * 2 * 200


@pytest.mark.parametrize("actions", [2, 5, 18])
def test_bars_are_as_long_as_their_numbers_and_the_chosen_ones_are_full(rng, actions):
    """The scales of both begin at 0, and end at the largest number of the film."""
    results = episode(rng, actions)
    frames = drawn(results)
    row = min(44, 198 / actions)
    for name, key in (("VALUE", "value"), ("BONUS", "bonus")):
        most = np.nanmax(results[key])
        longest = 0
        for moment, frame in enumerate(frames[:9]):
            for action in range(actions):
                y = round(playback._HEADER + 18 + action * row + row / 2)
                colour = (FULL if action == results["action"][moment] else TINTS)[name]
                line = coloured(frame[y, 262:], colour)
                length = sum(end - begin for begin, end in runs_of(line))
                expected = results[key][moment, action] / most * 81
                assert abs(length - expected) <= 1.5, (name, moment, action)
                longest = max(longest, length)
        assert longest >= 80


def test_negative_numbers_go_to_the_left_of_zero(rng):
    results = episode(rng, actions=2)
    results["value"][:9] = [[-1.0, 1.0]] * 9
    results["action"][:9] = 1
    frame = drawn(results)[0]
    rows = [round(playback._HEADER + 18 + 44 * (a + 0.5)) for a in (0, 1)]
    ((begin, end),) = runs_of(coloured(frame, TINTS["VALUE"])[rows[0]])
    ((begin_of_other, end_of_other),) = runs_of(coloured(frame, FULL["VALUE"])[rows[1]])
    assert end <= begin_of_other
    assert abs((end - begin) - (end_of_other - begin_of_other)) <= 1


def test_lines_go_on_step_by_step(rng):
    """Nothing is drawn to the right of now, and what was drawn stays."""
    frames = drawn(episode(rng))
    box = playback._strip_box(0)
    for name, place in (("VALUE", 0), ("BONUS", 1)):
        own = playback._strip_box(place)
        ends, before = [], 0
        for frame in frames[:9]:
            part = frame[own.top : own.top + own.height, own.left : own.left + own.width]
            mask = coloured(part, FULL[name])
            ends.append(np.flatnonzero(mask.any(axis=0)).max())
            assert mask.sum() > before
            before = mask[:, : ends[-1] - 6].sum()
        steps = np.diff(ends)
        assert (np.abs(steps - (box.width - 5) / 9) <= 1.5).all()


def test_a_line_is_as_high_as_its_numbers():
    values = np.array([0.0, 1.0, np.nan, 0.5])
    image, points = canvas.line(values, 100, 46, "#000000")
    assert image.size == (100, 46)
    np.testing.assert_allclose(points[:, 1], [43, 3, np.nan, 23])
    np.testing.assert_allclose(points[:, 0], [2, 2 + 95 / 3, 2 + 190 / 3, 97])
    dark = np.asarray(image)[..., 0] < 128
    for x, y in points[[0, 1, 3]]:
        near = dark[max(0, int(y) - 1) : int(y) + 3, max(0, int(x) - 1) : int(x) + 3]
        assert near.any()


def test_without_a_bonus_there_is_room_for_values(rng):
    with_bonus, without = (drawn(episode(rng, bonus=bonus)) for bonus in (True, False))
    assert not coloured(without, FULL["BONUS"]).any()
    assert coloured(with_bonus, FULL["BONUS"]).any()
    assert without.shape[1] < with_bonus.shape[1]
    assert without.shape[1] % 2 == 0


def test_scales_stay_while_episodes_pass(rng):
    one, other = episode(rng), episode(rng, number=2, length=5)
    both = {name: np.concatenate([one[name], other[name]]) for name in one}
    both["shown"] = np.arange(len(both["step"]))
    frames = drawn(both)
    assert len(frames) == 9 + 5 + 2 * FPS
    begun = strips(frames[9 + FPS])
    line = coloured(begun, FULL["VALUE"])[: playback._STRIP, playback._strip_box(0).left :]
    assert np.flatnonzero(line.any(axis=0)).max() < 8  # the second line has just begun


def test_the_end_is_told_and_shows_no_bars(rng):
    results = episode(rng)
    ended, cut = (drawn(results | {"state": results["state"] * state})[-1] for state in (1, 2))
    panel = slice(playback._HEADER, playback._HEADER + 216), slice(240, 540)
    for frame in (ended, cut):
        assert not coloured(frame[panel], FULL["VALUE"]).any()
        assert (frame[panel] < 100).any()
    assert (ended[panel] != cut[panel]).any()


def test_few_numbers_are_bars_around_zero(rng):
    results = episode(rng)
    del results["pictures"]
    results["numbers"] = np.tile([0.5, -2.0, 0.0, 3.0], (10, 1))
    results["numbers"][3] = [1.0, 2.0, 0.0, -3.0]
    frames = drawn(results)
    lengths = []
    for frame in (frames[0], frames[3]):
        seen = coloured(frame[playback._HEADER + 18 :, :228], FULL["NUMBERS"])
        lengths.append([seen[22 + 44 * i].sum() for i in range(4)])
    first, later = np.array(lengths)
    assert abs(first[0] - later[0] / 2) <= 1
    assert abs(first[1] - later[1]) <= 1
    assert first[2] == later[2] <= 1
    assert abs(first[3] - later[3]) <= 1


def test_the_return_and_the_title_are_written(rng):
    results = episode(rng)
    other = results | {"return": results["return"] + 1}
    one, two = drawn(results), drawn(other)
    assert (one[0, :46, 420:] != two[0, :46, 420:]).any()
    np.testing.assert_array_equal(one[0, 46:], two[0, 46:])
    long = drawn(results, title="w" * 200)[0]
    assert (long[:26, 530:] == 255).all()
    assert (long[4:24, 460:528] < 100).any()


def test_actions_have_their_names_where_they_are_known(rng):
    results = episode(rng, length=1)
    numbered = drawn(results)[0]
    ink, chosen = [], results["action"][0]
    for others in ([str(i) for i in range(3)], ["up", "down", "wait"], ["w" * 99] * 3):
        frame = drawn(results | {"actions": np.array(others)})[0]
        np.testing.assert_array_equal(frame[:, :240], numbered[:, :240])
        top = playback._HEADER + 18 + 44 * chosen
        ink.append((frame[top : top + 40, 240:310] < 60).all(axis=-1).sum())
    assert 0 < ink[0] < ink[1] < ink[2]
    with pytest.raises(InputError, match="need 3 names in actions, got 2"):
        drawn(results | {"actions": np.array(["up", "down"])})


@pytest.mark.parametrize("shape", [(42, 42), (40, 40, 3)])
def test_a_film_has_few_colours_its_own_among_them(rng, shape):
    results = episode(rng, picture=shape)
    colours = playback.palette(results)
    assert len(colours) <= 256
    known = {tuple(colour) for colour in colours.tolist()}
    assert {*FULL.values(), *TINTS.values(), (255, 255, 255), rgb(style.INK)} <= known
    table = Image.new("P", (1, 1))
    table.putpalette(colours.tobytes())
    frame = drawn(results)[2]
    made = Image.fromarray(frame).quantize(palette=table, dither=Image.Dither.NONE).convert("RGB")
    off = np.abs(np.asarray(made).astype(int) - frame)
    assert off[coloured(frame, (255, 255, 255))].max() == 0
    assert off.mean() < (2 if len(shape) == 2 else 8)


def test_numbers_have_a_palette_too(rng):
    results = episode(rng)
    del results["pictures"]
    assert 20 < len(playback.palette(results)) < 60


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("value", None, "need value to draw"),
        ("pictures", None, "pictures or numbers"),
        ("pictures", np.zeros((3, 4, 4), np.uint8), "at 10 moments, got 3"),
    ],
)
def test_arrays_that_do_not_fit_are_one_line(rng, name, wrong, message):
    results = episode(rng)
    results = {key: value for key, value in results.items() if key != name}
    results |= {} if wrong is None else {name: wrong}
    with pytest.raises(InputError, match=message):
        drawn(results)


@given(st.floats(-1e9, 1e9) | st.floats(-1e-6, 1e-6))
def test_numbers_are_short_and_nearly_right(number):
    text = written(number)
    assert len(text) <= 8 or abs(number) < 1e-9
    assert float(text.replace("−", "-")) == pytest.approx(number, rel=5.1e-3, abs=1e-320)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.booleans())
def test_scales_hold_all_numbers_and_zero_where_it_is_near(numbers, zero):
    scale = Scale.of(np.array([*numbers, np.nan]), zero=zero)
    low, high = min(numbers), max(numbers)
    assert scale.low < scale.high
    assert scale.low <= low <= high <= scale.high
    if zero and min(abs(low), abs(high)) <= high - low:
        assert scale.low <= 0 <= scale.high
    shares = scale.share(np.array(numbers))
    assert ((shares >= 0) & (shares <= 1)).all()


def test_nothing_has_a_scale_too():
    assert Scale.of(np.array([np.nan])) == (-1.0, 1.0)
    assert written(np.nan) == ""


def test_a_frame_beside_distributions_has_its_own_gray_levels(rng):
    """And numbers are black where they are highest."""
    atoms = {"locations": rng.normal(size=(1, 2, 5)), "probs": np.full((1, 2, 5), 0.2)}
    believed = dict.fromkeys(("value", "disagreement", "bonus"), np.zeros(2))
    frame = rng.integers(60, 90, (6, 6), dtype=np.uint8)
    for picture, colours, limits in (
        (frame, "gray", (0, 255)),
        (frame.astype(float), "Greys", (frame.min(), frame.max())),
    ):
        with style.paper_style():
            figure = inspect.draw(atoms | believed | {"observation": picture})
        (image,) = (axes.images[0] for axes in figure.axes if axes.images)
        assert image.get_cmap().name == colours
        assert image.get_clim() == limits


def been(rng, panels):
    visits = rng.integers(1, 50, (panels, 4, 6))
    visits[:, 0] = 0
    return {
        "visits": visits,
        "extent": np.array([-60.0, 0.0, 0.0, 40.0]),
        "titles": np.array([f"part {i}" for i in range(panels)]),
        "notes": np.array([], str),
    }


@pytest.mark.parametrize("panels", [1, 3, 5])
def test_places_are_shares_of_their_panel_on_one_scale(rng, panels):
    results = been(rng, panels)
    with style.paper_style():
        figure = places.draw(results)
    shown = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in shown] == results["titles"].tolist()
    for axes, visits in zip(shown, results["visits"], strict=True):
        image = axes.images[0]
        np.testing.assert_array_equal(image.get_array().mask, visits == 0)
        share = (visits / visits.sum())[visits > 0]
        np.testing.assert_allclose(image.get_array().compressed(), share)
        assert image.get_extent() == [-60, 0, 0, 40]
        assert image.origin == "lower"
    assert len({axes.images[0].get_clim() for axes in shown}) == 1
    assert {name for name in places.NEEDS} < set(results)


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("titles", np.array(["one"]), "need 3 titles"),
        ("visits", np.zeros((3, 4, 6)), "at least one"),
        ("visits", np.full((3, 4, 6), -1), "visits >= 0"),
        ("extent", np.array([0.0, 0.0, 0.0, 1.0]), "left < right"),
    ],
)
def test_places_that_do_not_fit_are_one_line(rng, name, wrong, message):
    with pytest.raises(InputError, match=message):
        places.draw(been(rng, 3) | {name: wrong})
