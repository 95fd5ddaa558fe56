"""Films: every moment of the record, for as long as asked, or one line that says why not."""

import itertools

import numpy as np
import pytest
from PIL import Image

from winkel.errors import InputError
from winkel.play.film import HOLD, WIDTH, Film, check_film, write_film


def make_record(rng, actions=3, length=5, *, bonus=True, numbers=False, episodes=1):
    """Episodes of random values; the action of the highest value is taken."""
    moments = (length + 1) * episodes
    step = np.tile(np.arange(length + 1), episodes)
    value, extra = rng.uniform(0.3, 1.0, size=(2, moments, actions))
    action = np.where(step == length, -1, np.argmax(value, axis=1))
    value[action < 0] = extra[action < 0] = np.nan
    frames = rng.integers(0, 256, (moments, 6, 7), dtype=np.uint8)
    return {
        "value": value,
        "bonus": extra if bonus else np.full_like(extra, np.nan),
        "action": action,
        "return": step / 8,
        "episode": np.repeat(np.arange(1, episodes + 1), length + 1),
        "step": step,
        "state": (action < 0).astype(int),
        "shown": np.arange(moments),
        **({"numbers": frames[:, 0].astype(float)} if numbers else {"pictures": frames}),
    }


def texts(drawn):
    """All that is written in a figure, but for the empty and the hidden."""
    found = list(drawn.figure.texts)
    for axes in drawn.figure.axes:
        if axes.get_visible():
            found += [*axes.texts, axes.title, *axes.get_yticklabels()]
            found += [axes.title.__class__(text=axes.get_title(loc)) for loc in ("left", "right")]
    return [text.get_text() for text in found if text.get_text()]


@pytest.mark.parametrize(("fps", "episodes"), [(35, 1), (7, 2), (50, 1)])
def test_a_gif_has_all_frames_and_its_length(rng, tmp_path, fps, episodes):
    record = make_record(rng, episodes=episodes)
    write_film(tmp_path / "a.gif", record, "an agent", fps)
    with Image.open(tmp_path / "a.gif") as found:
        assert found.n_frames == 6 * episodes
        assert found.width == WIDTH
        seconds = 0.0
        for index in range(found.n_frames):
            found.seek(index)
            seconds += found.info["duration"] / 1000
        assert found.info["loop"] == 0
    assert seconds == pytest.approx(episodes * (5 / fps + round(HOLD * fps) / fps), abs=0.0051)


@pytest.mark.parametrize("numbers", [False, True])
def test_frames_show_the_numbers_of_their_moment(rng, numbers):
    record = make_record(rng, numbers=numbers) | {"actions": np.array(["up", "down", "wait"])}
    drawn = Film(record, "an agent")
    frames = [drawn.draw(index) for index in range(6)]
    assert all(frame.shape == (426, WIDTH, 3) for frame in frames)
    assert all((one != other).any() for one, other in itertools.pairwise(frames))
    for index in (3, 0):
        drawn.draw(index)
        written = texts(drawn)
        assert f"an agent\nstep {index}, return" in written[0]
        assert {"up", "down", "wait"} <= set(written)
        for name in ("value", "bonus"):
            for number in record[name][index]:
                assert f"{number:.3g}" in written
        assert written.count(f"{record['value'][index].max():.3g}") >= 2  # its bar, and the line
        if numbers:
            assert all(f"{number:.4g}" in written for number in record["numbers"][index])
        bold = [label.get_text() for axes in drawn.figure.axes for label in axes.get_yticklabels()
                if label.get_fontweight() == "bold" and label.get_text()]  # fmt: skip
        assert bold == [record["actions"][record["action"][index]]]


def test_bars_and_lines_are_the_record(rng):
    record = make_record(rng)
    drawn = Film(record, "an agent")
    drawn.draw(3)
    bars = [axes.containers[0] for axes in drawn.figure.axes if axes.containers]
    for name, container in zip(("value", "bonus"), bars, strict=True):
        np.testing.assert_allclose([bar.get_width() for bar in container], record[name][3])
        chosen = record["action"][3]
        assert [bar.get_alpha() == 1.0 for bar in container] == [i == chosen for i in range(3)]
    lines = [axes.lines for axes in drawn.figure.axes if len(axes.lines) == 2]
    taken = record["bonus"][np.arange(4), record["action"][:4]]
    for (line, point), expected in zip(
        lines, (record["value"].max(axis=1)[:4], taken), strict=True
    ):
        np.testing.assert_allclose(line.get_xydata(), np.column_stack([np.arange(4), expected]))
        np.testing.assert_allclose(point.get_xydata(), [[3, expected[3]]])


@pytest.mark.parametrize(("state", "words"), [(1, "the episode has ended"), (2, "cut here")])
def test_the_end_is_written_and_has_no_bars(rng, state, words):
    record = make_record(rng)
    drawn = Film(record | {"state": record["state"] * state}, "an agent")
    drawn.draw(5)
    assert words in texts(drawn)[0]
    assert not any(axes.get_visible() for axes in drawn.figure.axes if axes.containers)
    drawn.draw(0)
    assert words not in texts(drawn)[0]


def test_agents_without_a_bonus_have_none_drawn(rng):
    drawn = Film(make_record(rng, bonus=False), "an agent")
    assert drawn.draw(0).shape[0] == 426 - 70
    assert "bonus" not in " ".join(texts(drawn))


def test_many_actions_and_constant_values_can_be_drawn(rng):
    record = make_record(rng, actions=18)
    record["value"][:5] = 2.0
    assert Film(record, "w" * 200).draw(2).shape[1] == WIDTH


def test_an_interruption_leaves_nothing(tmp_path, rng):
    def interrupt(frames):
        yield 0
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_film(tmp_path / "a.gif", make_record(rng), "an agent", 7, interrupt)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "fps", "message"),
    [
        ("a.avi", 35, r"ends in \.gif, got .*a\.avi"),
        ("a.gif", 0, "--fps >= 1, a whole number, got 0"),
        ("a.gif", 51, "--fps <= 50, got 51"),
        ("folder.gif", 35, "got the folder"),
        ("file.txt/a.gif", 35, "file.txt"),
    ],
)
def test_what_cannot_be_written_is_known_before(tmp_path, name, fps, message):
    (tmp_path / "folder.gif").mkdir()
    (tmp_path / "file.txt").touch()
    with pytest.raises(InputError, match=message):
        check_film(tmp_path / name, fps)
