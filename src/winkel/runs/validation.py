"""What a run folder must hold. Every config and every table of a run is checked here."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from winkel.envs.registry import is_outside, parse
from winkel.errors import InputError
from winkel.runs.spec import check_folder_name, run_fingerprint

REQUIRED = ("env", "agent", "seed", "fingerprint")
KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("env", "agent", "fingerprint", "algorithm"), (str,)),
    **dict.fromkeys(("status", "reason", "hardware"), (str,)),
    **dict.fromkeys(("config", "hyper", "horizon", "options", "setting"), (dict,)),
    **dict.fromkeys(("versions", "host", "jax", "packed", "rows"), (dict,)),
    "seed": (int,),
    "until": (int, NoneType),
    "padded": (bool,),
}
"""Types of a config's entries."""

CHECKPOINT_KINDS = {"run": dict, "lanes": int, "log_position": int}
"""Types of what a checkpoint says beside its arrays."""


def check_meta(meta: Mapping[str, Any], where: Path) -> None:
    """Raise unless a checkpoint has these entries, and an unchanged config of its run."""
    for name, kind in CHECKPOINT_KINDS.items():
        value = meta.get(name)
        if type(value) is not kind:
            raise InputError(f"need {name} in {where} as {kind.__name__}, got {value!r:.60}")
    check_config(meta["run"], where)


def check_config(config: Any, where: Path) -> None:
    """Raise unless a config has the right types and nobody has changed its settings.

    The setting of an environment of winkel's own must be the one that its id names.
    """
    if not isinstance(config, dict):
        raise InputError(f"need an object as the config of {where}, got {config!r:.60}")
    for name, kinds in KINDS.items():
        value = config.get(name)
        if (name in config or name in REQUIRED) and type(value) not in kinds:
            wanted = " or ".join("null" if kind is NoneType else kind.__name__ for kind in kinds)
            raise InputError(f"need {name} in the config of {where} as {wanted}, got {value!r:.60}")
    try:
        json.dumps(config, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"need UTF-8 in the config of {where}, got {error.object!r:.60}") from None
    check_folder_name("agent", config["agent"])
    found = run_fingerprint(config)
    if found != config["fingerprint"]:
        raise InputError(
            f"the config of {where} was changed: it has the fingerprint {config['fingerprint']}, "
            f"its settings have {found}"
        )
    if not is_outside(config["env"]):
        _, setting = parse(config["env"])
        if config.get("setting", setting) != setting:
            raise InputError(
                f"need the setting {setting} of {config['env']} in the config of {where}, "
                f"got {config['setting']!r:.60}"
            )


def check_table(
    name: str, table: Mapping[str, np.ndarray], config: Mapping[str, Any], where: Path
) -> None:
    """Raise unless the columns are numbers and as long as the run says."""
    shown = ", ".join(f"{column} {list(x.shape)} of {x.dtype}" for column, x in table.items())
    lengths = {x.shape[0] if x.ndim else None for x in table.values()}
    numeric = all(x.dtype.kind in "biuf" for x in table.values())
    if len(lengths) > 1 or None in lengths or not numeric:
        raise InputError(f"need equally many numbers in all {name} of {where}, got {shown}")
    flat = all(x.ndim == 1 for x in table.values())
    if name == "episodes" and not ({"return", "length"} <= table.keys() and flat):
        raise InputError(
            f"need return and length, one axis each, in {name} of {where}, got {shown}"
        )
    rows, count = next(iter(lengths), 0), config.get("rows", {}).get(name)
    if count is not None and rows != count:
        raise InputError(f"need the {count} {name} that the run has made in {where}, got {rows}")
