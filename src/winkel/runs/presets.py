"""Settings by name: the paper's presets, and files such as `winkel search apply` writes."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from winkel.agents import PRESETS, VARIANTS
from winkel.agents.base import check_names
from winkel.errors import InputError
from winkel.files import read_toml, write_text
from winkel.runs.checkpoint import check_types
from winkel.runs.spec import check_field_names

DOOM_PRESET = "vizdoom-official"
"""Default in VizDoom: the settings that learn there (decision 021)."""


def preset_fields(env: str, agent: str, name: str | None) -> dict[str, Any]:
    """Settings of a preset by name; by default `DOOM_PRESET` in VizDoom, and none elsewhere."""
    name = name or (DOOM_PRESET if env.startswith("doom:") else None)
    return {} if name is None else named_preset(name, agent)


def _folder() -> Path:
    return Path(os.environ.get("WINKEL_PRESETS", "presets"))


def named_preset(name: str, agent: str) -> dict[str, Any]:
    """Settings of an agent or variant: a preset of the paper, or a file by its name or path."""
    base, variant = VARIANTS.get(agent, (agent, {}))
    if name in PRESETS:
        check_names(f"an agent of the preset {name}", (base,), PRESETS[name])
        return {**PRESETS[name][base], **variant}
    path = Path(name) if name.endswith(".toml") else _folder() / f"{name}.toml"
    if not path.is_file():
        own = sorted(file.stem for file in _folder().glob("*.toml"))
        listed = ", ".join([*PRESETS, *own])
        raise InputError(f"need a preset from {listed}, or a file such as mine.toml, got {name!r}")
    table = read_toml(path)
    check_types(table, {"agent": str, "fields": dict}, f"the preset {path}")
    owner, fields = table["agent"], table["fields"]
    if owner != agent:
        raise InputError(f"preset {path} is for {owner}, got {agent}")
    try:
        check_field_names(fields, agent)
    except InputError as error:
        raise InputError(f"preset {path}: {error}") from error
    return {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}


def write_preset(name: str, agent: str, fields: Mapping[str, Any], origin: list[str]) -> Path:
    """Write a preset's file; refuses the names of the paper's presets and to overwrite."""
    if name in PRESETS or not name.replace("-", "").replace("_", "").isalnum():
        raise InputError(
            f"need a name of letters, digits, - and _, other than {', '.join(PRESETS)}, "
            f"got {name!r}"
        )
    path = _folder() / f"{name}.toml"
    if path.exists():
        raise InputError(f"{path} exists; choose another --name, or delete it")
    lines = [*(f"# {line}" for line in origin), f'agent = "{agent}"', "", "[fields]"]
    lines += [f"{field} = {json.dumps(value)}" for field, value in fields.items()]
    write_text(path, "\n".join(lines) + "\n")
    return path
