"""Films: the frames that were given, for as long as asked, or one line that says why not."""

import stat

import numpy as np
import pytest
from PIL import Image

from winkel.errors import InputError
from winkel.io import video
from winkel.io.video import check_video, find_ffmpeg, write_video

GREYS = np.repeat(np.arange(0, 256, 4, dtype=np.uint8)[:, None], 3, axis=1)


def frames_of(count, rng, height=10, width=12):
    levels = rng.integers(0, 64, (count, height, width, 1)) * 4
    return np.repeat(levels.astype(np.uint8), 3, axis=-1)


@pytest.mark.parametrize(("fps", "count"), [(35, 9), (10, 1), (50, 20), (3, 4)])
def test_a_gif_has_all_frames_and_its_length(tmp_path, rng, fps, count):
    frames = frames_of(count, rng)
    write_video(tmp_path / "a.gif", iter(frames), fps, GREYS)
    seconds = 0.0
    with Image.open(tmp_path / "a.gif") as film:
        assert film.n_frames == count
        for index, frame in enumerate(frames):
            film.seek(index)
            np.testing.assert_array_equal(np.asarray(film.convert("RGB")), frame)
            seconds += film.info.get("duration", 0) / 1000
        assert film.info.get("loop", 0) == 0
    if count > 1:
        assert seconds == pytest.approx(count / fps, abs=0.0051)


def test_a_frame_that_stays_takes_no_room(tmp_path, rng):
    frames = frames_of(2, rng)
    write_video(tmp_path / "a.gif", [frames[0], *[frames[1]] * 30], 10, GREYS)
    with Image.open(tmp_path / "a.gif") as film:
        assert film.n_frames == 2
        film.seek(1)
        assert film.info["duration"] == 3000


FAKE = """#!/bin/sh
for last; do :; done
echo "$@" > {folder}/arguments
{body}
"""


def fake_ffmpeg(folder, monkeypatch, body):
    """A program of that name, which is the only one there is."""
    program = folder / "bin" / "ffmpeg"
    program.parent.mkdir()
    program.write_text(FAKE.format(folder=folder, body=body))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


def test_ffmpeg_gets_all_frames_as_they_are(tmp_path, rng, monkeypatch):
    fake_ffmpeg(tmp_path, monkeypatch, 'cat > "$last"')
    frames = frames_of(5, rng)
    write_video(tmp_path / "a.mp4", iter(frames), 7, GREYS)
    assert (tmp_path / "a.mp4").read_bytes() == frames.tobytes()
    words = (tmp_path / "arguments").read_text().split()
    assert words[words.index("-s") + 1] == "12x10"
    assert words[words.index("-r") + 1] == "7"
    assert {path.name for path in tmp_path.iterdir()} == {"bin", "arguments", "a.mp4"}


@pytest.mark.parametrize("body", ["echo no such codec >&2; exit 1", "cat > /dev/null"])
def test_a_failing_ffmpeg_is_one_line(tmp_path, rng, monkeypatch, body):
    """Whether it leaves at once, in the middle of much to read, or makes nothing."""
    fake_ffmpeg(tmp_path, monkeypatch, body)
    told = "no such codec" if "codec" in body else "says nothing"
    with pytest.raises(InputError, match=rf"ffmpeg cannot write .*a\.mp4: .*{told}"):
        write_video(tmp_path / "a.mp4", frames_of(40, rng, 100, 100), 7, GREYS)
    assert {path.name for path in tmp_path.iterdir()} == {"bin", "arguments"}


def test_frames_that_fail_leave_nothing(tmp_path, rng, monkeypatch):
    fake_ffmpeg(tmp_path, monkeypatch, 'cat > "$last"')

    def failing():
        yield frames_of(1, rng)[0]
        raise KeyboardInterrupt

    for name in ("a.mp4", "a.gif"):
        with pytest.raises(KeyboardInterrupt):
            write_video(tmp_path / name, failing(), 7, GREYS)
        assert not (tmp_path / name).exists()


def no_ffmpeg(monkeypatch, folder):
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(video.importlib.util, "find_spec", lambda name: None)


def test_without_ffmpeg_there_are_gifs(tmp_path, rng, monkeypatch):
    no_ffmpeg(monkeypatch, tmp_path)
    with pytest.raises(InputError, match=r"need ffmpeg for an \.mp4, found none: write a \.gif"):
        check_video(tmp_path / "a.mp4", 35)
    write_video(tmp_path / "a.gif", frames_of(2, rng), 35, GREYS)


def test_the_ffmpeg_of_a_package_will_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "imageio_ffmpeg.py").write_text("def get_ffmpeg_exe():\n    return '/its/own'\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_ffmpeg() == "/its/own"


@pytest.mark.parametrize(
    ("name", "fps", "message"),
    [
        ("a.avi", 35, r"ends in \.gif or \.mp4, got .*a\.avi"),
        ("a", 35, r"\.gif or \.mp4"),
        ("a.gif", 0, "fps >= 1, got 0"),
        ("a.gif", 51, "fps <= 50 for a GIF, got 51"),
        ("folder.gif", 35, "got the folder"),
        ("file.txt/a.gif", 35, "file.txt"),
    ],
)
def test_what_cannot_be_written_is_known_before(tmp_path, name, fps, message):
    (tmp_path / "folder.gif").mkdir()
    (tmp_path / "file.txt").touch()
    with pytest.raises(InputError, match=message):
        check_video(tmp_path / name, fps)


def test_films_need_frames_of_even_sides_and_colours(tmp_path, rng, monkeypatch):
    fake_ffmpeg(tmp_path, monkeypatch, 'cat > "$last"')
    with pytest.raises(InputError, match="at least one frame"):
        write_video(tmp_path / "a.gif", [], 35, GREYS)
    with pytest.raises(InputError, match="at least one frame"):
        write_video(tmp_path / "a.mp4", [], 35, GREYS)
    with pytest.raises(InputError, match="even height and width, got 9 x 12"):
        write_video(tmp_path / "a.mp4", frames_of(1, rng, height=9), 35, GREYS)
    with pytest.raises(InputError, match="1 to 256 colours, got 0"):
        write_video(tmp_path / "a.gif", frames_of(1, rng), 35, GREYS[:0])
