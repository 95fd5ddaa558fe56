"""Presets of one's own: a file for each, by hand or from `winkel search apply`."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from winkel.agents import VARIANTS, presets
from winkel.errors import InputError
from winkel.runs.folder import write_text
from winkel.runs.spec import field_name


def presets_folder() -> Path:
    """Where they are: `presets` in the current folder, or what WINKEL_PRESETS says."""
    return Path(os.environ.get("WINKEL_PRESETS", "presets"))


def named_preset(name: str, agent: str) -> dict[str, Any]:
    """Fields of an agent or variant: of the paper's presets, or of a file by its name or path."""
    base, variant = VARIANTS.get(agent, (agent, {}))
    if name in presets.PRESETS:
        return {**presets.preset(name, base), **variant}
    path = Path(name) if name.endswith(".toml") else presets_folder() / f"{name}.toml"
    if not path.is_file():
        own = sorted(file.stem for file in presets_folder().glob("*.toml"))
        listed = ", ".join([*presets.PRESETS, *own])
        raise InputError(f"need a preset from {listed}, or a file such as mine.toml, got {name!r}")
    return read_preset(path, agent)


def read_preset(path: Path, agent: str) -> dict[str, Any]:
    """The fields of a preset's file, which must be for this agent."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the preset {path}: {error}") from error
    owner, fields = table.get("agent"), table.get("fields")
    if not isinstance(owner, str) or not isinstance(fields, dict):
        raise InputError(f"need agent = '…' and a table [fields] in the preset {path}")
    if owner != agent:
        raise InputError(f"preset {path} is for {owner}, got {agent}")
    for field in fields:
        try:
            field_name(agent, field)
        except InputError as error:
            raise InputError(f"preset {path}: {error}") from error
    return {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}


def write_preset(name: str, agent: str, fields: Mapping[str, Any], origin: list[str]) -> Path:
    """Write a preset; refuses names of the paper's, and what is there already."""
    if name in presets.PRESETS or not name.replace("-", "").replace("_", "").isalnum():
        raise InputError(
            f"need a name of letters, digits, - and _, other than {', '.join(presets.PRESETS)}, "
            f"got {name!r}"
        )
    path = presets_folder() / f"{name}.toml"
    if path.exists():
        raise InputError(f"{path} exists; choose another --name, or delete it")
    lines = [*(f"# {line}" for line in origin), f'agent = "{agent}"', "", "[fields]"]
    lines += [f"{field} = {_written(value)}" for field, value in fields.items()]
    write_text(path, "\n".join(lines) + "\n")
    return path


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_written, value))}]"
    return repr(value)
