"""Frames as a film: GIF with Pillow, MP4 with ffmpeg where there is one."""

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from winkel.errors import InputError
from winkel.files import ensure_folder, write_atomically

SUFFIXES = (".gif", ".mp4")
GIF_FPS = 50
"""Frames a second that a GIF can have: viewers take shorter times for mistakes."""
MOST_COLOURS = 256


def check_video(path: Path, fps: int) -> None:
    """Raise unless a film of this name can be made here, before the work and not after."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"need a file that ends in {' or '.join(SUFFIXES)}, got {path}")
    if path.is_dir():
        raise InputError(f"need a file to write to, got the folder {path}")
    if fps < 1:
        raise InputError(f"need fps >= 1, got {fps}")
    if path.suffix.lower() == ".gif" and fps > GIF_FPS:
        raise InputError(f"need fps <= {GIF_FPS} for a GIF, got {fps}")
    if path.suffix.lower() == ".mp4":
        find_ffmpeg()
    ensure_folder(path.parent)


def write_video(
    path: Path,
    frames: Iterable[UInt8[np.ndarray, "height width 3"]],
    fps: int,
    palette: UInt8[np.ndarray, "colours 3"],
) -> None:
    """Write a film. A GIF has the colours of the palette alone, and is kept in memory on the way:
    a byte for each pixel of each frame.
    """
    check_video(path, fps)
    if path.suffix.lower() == ".gif":
        _write_gif(path, frames, fps, palette)
    else:
        _write_mp4(path, iter(frames), fps)


def find_ffmpeg() -> str:
    """The program: on the path, or the one that comes with imageio-ffmpeg."""
    found = shutil.which("ffmpeg")
    if found is None and importlib.util.find_spec("imageio_ffmpeg") is not None:
        import imageio_ffmpeg

        found = imageio_ffmpeg.get_ffmpeg_exe()
    if found is None:
        raise InputError(
            "need ffmpeg for an .mp4, found none: write a .gif, or pip install imageio-ffmpeg"
        )
    return found


def _write_gif(path: Path, frames: Iterable[np.ndarray], fps: int, palette: np.ndarray) -> None:
    if not 1 <= len(palette) <= MOST_COLOURS:
        raise InputError(f"need 1 to {MOST_COLOURS} colours, got {len(palette)}")
    colours = Image.new("P", (1, 1))
    colours.putpalette(np.ascontiguousarray(palette).tobytes())
    none = Image.Dither.NONE
    images = [Image.fromarray(f).quantize(palette=colours, dither=none) for f in frames]
    if not images:
        raise InputError("need at least one frame, got none")
    # Times are whole hundredths of a second; rounding the sums keeps the film's length.
    ends = np.round(100 * np.arange(len(images) + 1) / fps)
    write_atomically(
        path,
        lambda file: images[0].save(
            file,
            format="GIF",
            save_all=True,
            append_images=images[1:],
            duration=[int(time) for time in 10 * np.diff(ends)],
            loop=0,
            optimize=False,
        ),
    )


def _write_mp4(path: Path, frames: Iterator[np.ndarray], fps: int) -> None:
    first = next(frames, None)
    if first is None:
        raise InputError("need at least one frame, got none")
    height, width, _ = first.shape
    if height % 2 or width % 2:
        raise InputError(f"need frames of even height and width, got {height} x {width}")
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        made, told = Path(folder) / "video.mp4", Path(folder) / "stderr"
        command = [
            *(find_ffmpeg(), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"),
            *("-s", f"{width}x{height}", "-r", str(fps), "-i", "-", "-pix_fmt", "yuv420p"),
            *("-movflags", "+faststart", str(made)),
        ]
        with told.open("wb") as errors:
            running = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors)
            try:
                _feed(running, first, frames)
            except BaseException:
                running.kill()
                running.wait()
                raise
        if running.returncode != 0 or not made.is_file():
            lines = told.read_text(errors="replace").split("\n")
            reason = next((line for line in reversed(lines) if line.strip()), "it says nothing")
            raise InputError(f"ffmpeg cannot write {path}: {reason.strip()}")
        os.replace(made, path)


def _feed(
    running: "subprocess.Popen[bytes]", first: np.ndarray, frames: Iterator[np.ndarray]
) -> None:
    """All frames, unless it ends before; and wait for its end."""
    assert running.stdin is not None
    try:
        running.stdin.write(np.ascontiguousarray(first).data)
        for frame in frames:
            running.stdin.write(np.ascontiguousarray(frame).data)
        running.stdin.close()
    except BrokenPipeError:
        pass  # its errors say why
    running.wait()
