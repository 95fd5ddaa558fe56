"""Runs on disk: what one agent did in one environment with one seed, episode by episode."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from winkel.errors import InputError
from winkel.files import load_all, load_arrays, save_arrays, write_atomically

CONFIG, EPISODES = "config.json", "episodes.npz"
_REQUIRED = ("return", "length")
_ENV_ID = re.compile(r"([^/:]+)([/:])(.+)", re.DOTALL)
_FOLDER_NAME = re.compile(r"(?!\.)[^/\\\x00-\x1f]+")


class Run(NamedTuple):
    """One run.

    Attributes:
        config: at least 'env' (an id such as 'catch_noise/3'), 'agent' and 'seed'; all as JSON.
        episodes: arrays over episodes, at least 'return' and 'length', all equally long.
    """

    config: dict[str, Any]
    episodes: dict[str, np.ndarray]


def run_folder(root: Path, env_id: str, agent: str, seed: int) -> Path:
    """Where a run belongs: `<root>/<experiment>/<agent>/<setting>/seed-<n>`.

    'catch_noise/3' is setting '3' of 'catch_noise', 'deep_sea:size=100' is setting 'size=100' of
    'deep_sea', 'doom:my-way-home/sparse' is setting 'my-way-home+sparse' of 'doom'.
    """
    parts = _ENV_ID.fullmatch(env_id)
    if parts is None:
        raise InputError(
            f"need an environment's id such as 'catch_noise/3' or 'deep_sea:size=100', "
            f"got {env_id!r}"
        )
    experiment, separator, setting = parts.groups()
    if separator == ":":
        setting = setting.replace("/", "+")
    for what, name in (("experiment", experiment), ("agent", agent), ("setting", setting)):
        _check_folder_name(what, name)
    if seed < 0:
        raise InputError(f"need seed >= 0, got {seed}")
    return root / experiment / agent / setting / f"seed-{seed}"


def save_run(folder: Path, run: Run) -> None:
    """Save a run. The config comes last: a folder that holds one is complete.

    For the same reason the config of an older run in the folder goes first.
    """
    check_run(run, str(folder))
    try:
        text = json.dumps(run.config, indent=2) + "\n"
    except (TypeError, ValueError) as error:
        raise InputError(f"cannot write the config of {folder} as JSON: {error}") from error
    if folder.is_dir():
        (folder / CONFIG).unlink(missing_ok=True)
    save_arrays(folder / EPISODES, run.episodes)
    write_text(folder / CONFIG, text)


def check_run(run: Run, where: str) -> None:
    """Raise unless it has what every run has."""
    _check_config(run.config, f"the config of {where}")
    _check_episodes(run.episodes, f"the episodes of {where}")


def write_text(path: Path, text: str) -> None:
    """Write a text file, never half of it."""

    def write(file: IO[bytes]) -> None:
        file.write(text.encode())

    write_atomically(path, write)


def load_run(folder: Path) -> Run:
    """Load a run, with all arrays that its episodes have."""
    path = folder / CONFIG
    try:
        config = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"{folder} holds no complete run: no {CONFIG}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error})") from error
    _check_config(config, str(path))
    path = folder / EPISODES
    load_arrays(path, _REQUIRED)
    episodes = load_all(path)
    _check_episodes(episodes, str(path))
    return Run(config=config, episodes=episodes)


def find_runs(root: Path) -> list[Path]:
    """The folders of all complete runs under a root, sorted by name."""
    if not root.is_dir():
        raise InputError(f"no such folder: {root}")
    found = sorted(path.parent for path in root.glob(f"*/*/*/seed-*/{CONFIG}"))
    if not found:
        raise InputError(
            f"no runs in {root}; need <experiment>/<agent>/<setting>/seed-<n>/{CONFIG}"
        )
    return found


def _check_folder_name(what: str, name: str) -> None:
    if not _FOLDER_NAME.fullmatch(name):
        raise InputError(
            f"need {what} to name a folder (no slash, no dot in front, not empty), got {name!r}"
        )


def _check_config(config: object, where: str) -> None:
    if not isinstance(config, dict):
        raise InputError(f"{where} must be an object with env, agent and seed, got {config!r:.80}")
    for key, kind, right in (
        ("env", str, "an id such as 'catch/0'"),
        ("agent", str, "a name"),
        ("seed", int, "a whole number"),
    ):
        if key not in config:
            raise InputError(f"{where} lacks {key}; it holds {', '.join(config) or 'nothing'}")
        if not isinstance(config[key], kind) or isinstance(config[key], bool):
            raise InputError(f"{where} needs {key} to be {right}, got {config[key]!r:.80}")
    _check_folder_name("agent", config["agent"])


def _check_episodes(episodes: Mapping[str, np.ndarray], where: str) -> None:
    missing = [name for name in _REQUIRED if name not in episodes]
    if missing:
        raise InputError(f"{where} lack {', '.join(missing)}")
    shapes = {name: array.shape for name, array in episodes.items()}
    if len(set(shapes.values())) != 1 or any(len(shape) != 1 for shape in shapes.values()):
        shown = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        raise InputError(f"{where} must be equally long arrays over episodes, got {shown}")
