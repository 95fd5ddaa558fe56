"""Checkpoints: state and records of a run in one file of arrays and JSON. Loading runs no code.

Every config and every table that is read from a run's folder is checked here, too.
"""

import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from winkel.envs.registry import is_outside, parse
from winkel.errors import InputError
from winkel.files import Arrays, write_atomically
from winkel.runs.spec import NOT_SETTINGS, check_folder_name, run_fingerprint

FORMAT = 2
"""Version of the files; those of another version are refused."""
KEPT = 2
"""Number of checkpoints that are kept."""

_CHECKPOINT = re.compile(r"\d{12}\.ckpt")
_TEMPORARY = re.compile(r"\.\d{12}\.ckpt\..+")
_PLAIN_KEY = re.compile(r"^\['([A-Za-z_]\w*)'\]$")

REQUIRED = {"env": str, "agent": str, "seed": int, "fingerprint": str}
OPTIONAL: dict[str, Any] = {
    **dict.fromkeys(("algorithm", "status", "reason", "hardware"), str),
    **dict.fromkeys(("config", "hyper", "horizon", "options", "setting"), dict),
    **dict.fromkeys(("versions", "host", "jax", "packed", "rows"), dict),
    "until": int | None,
    "solved": int,
    "padded": bool,
}
"""Types of a config's entries."""
META_TYPES = {"run": dict, "lanes": int, "log_position": int}
"""Types of what a checkpoint says beside its arrays."""


def pack(tree: PyTree) -> dict[str, np.ndarray]:
    """Return the leaves of a pytree as arrays, named by path: 'learner.params.value[0].weight'.

    Random keys become their data. NumPy arrays are not copied.
    """
    named, _ = _named_leaves(tree)
    bare = [jax.random.key_data(leaf) if _is_key(leaf) else leaf for leaf in named.values()]
    return dict(zip(named, map(np.asarray, jax.device_get(bare)), strict=True))


def unpack(arrays: Arrays, like: PyTree) -> PyTree:
    """Undo `pack`, in the structure, shapes and dtypes of `like`, with NumPy arrays."""
    named, structure = _named_leaves(like)
    for name in arrays.keys() - named.keys():
        raise InputError(f"need no {name} in the state, got {_shown(arrays[name])}")
    return structure.unflatten(_restore(name, arrays.get(name), named[name]) for name in named)


def save_checkpoint(folder: Path, arrays: Arrays, meta: Mapping[str, Any]) -> Path:
    """Write the next checkpoint, then delete all but the newest `KEPT`.

    Only one process may write to a folder, because half-written files are deleted.
    """
    text = json.dumps({**meta, "format": FORMAT}, indent=2, sort_keys=True)
    present = _files(folder, _CHECKPOINT)
    number = int(present[-1].stem) + 1 if present else 1
    path = folder / f"{number:012d}.ckpt"
    write_atomically(path, lambda file: _write(file, text, arrays))
    try:
        for old in (*_files(folder, _TEMPORARY), *[*present, path][:-KEPT]):
            old.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot delete {error.filename}: {error.strerror}") from error
    return path


def has_checkpoint(folder: Path) -> bool:
    """Whether there is a checkpoint, readable or not."""
    return bool(_files(folder, _CHECKPOINT))


def load_checkpoint(
    folder: Path, only: str | tuple[str, ...] = ""
) -> tuple[dict[str, np.ndarray], dict[str, Any], dict[Path, str]]:
    """Read the newest checkpoint that is not damaged; every byte is checked.

    With `only`, read and check just the arrays whose names begin so: a replay buffer may be
    gigabytes. Return the arrays, `meta`, and what is wrong with each newer file.
    """
    damaged: dict[Path, str] = {}
    for path in reversed(_files(folder, _CHECKPOINT)):
        try:
            return *_read(path, only), damaged
        except InputError:
            raise
        except Exception as error:  # whatever reading other bytes than were written may raise
            damaged[path] = f"{path.name} cannot be read: {error!r}"
    got = "; ".join(damaged.values()) or "none"
    raise InputError(f"need a readable checkpoint in {folder}, got {got}")


def _write(file: IO[bytes], meta: str, arrays: Arrays) -> None:
    """Write an uncompressed .npz file whose bytes depend on the arguments alone."""
    arrays = {name: arrays[name] for name in sorted(arrays)}
    dtypes = {name: array.dtype.name for name, array in arrays.items()}
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo("meta.json"), meta)
        archive.writestr(zipfile.ZipInfo("dtypes.json"), json.dumps(dtypes, indent=2))
        for name, array in arrays.items():
            array = np.asarray(array, order="C")
            if array.dtype.isbuiltin == 2:  # bfloat16 and others that .npy cannot name
                array = array.view(f"u{array.dtype.itemsize}")
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)


def _read(path: Path, only: str | tuple[str, ...]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    with np.load(path, allow_pickle=False) as file:
        meta = json.loads(file["meta.json"])
        if meta["format"] != FORMAT:
            raise InputError(
                f"{path} was made by another version of winkel: its format is {meta['format']!r}, "
                f"this version reads {FORMAT}"
            )
        dtypes = json.loads(file["dtypes.json"])
        names = [name for name in dtypes if name.startswith(only)]
        return {name: file[name].view(dtypes[name]) for name in names}, meta


def _files(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if pattern.fullmatch(path.name))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror}") from error


def _named_leaves(tree: PyTree) -> tuple[dict[str, Any], jax.tree_util.PyTreeDef]:
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    return {
        "".join(_PLAIN_KEY.sub(r".\1", str(key)) for key in path).removeprefix("."): leaf
        for path, leaf in leaves
    }, structure


def _restore(name: str, array: np.ndarray | None, leaf: Any) -> Any:
    """Return the leaf that was packed as an array; raise if its shape or dtype differ."""
    packed = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
    if array is None or (array.shape, array.dtype) != (packed.shape, packed.dtype):
        found = "nothing" if array is None else _shown(array)
        raise InputError(f"need {name}, {_shown(packed)}, in the state, got {found}")
    if _is_key(leaf):
        implementation = jax.random.key_impl(jnp.empty((), leaf.dtype))
        return jax.random.wrap_key_data(jnp.asarray(array), impl=implementation)
    return array


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _shown(array: Any) -> str:
    return f"shape {list(array.shape)} of {array.dtype}"


def check_types(
    entries: Any, kinds: Mapping[str, Any], where: str, optional: Mapping[str, Any] | None = None
) -> None:
    """Raise unless entries are a table with values of these types; true is no integer."""
    if not isinstance(entries, dict):
        raise InputError(f"need a table as {where}, got {entries!r:.60}")
    present = {name: kind for name, kind in (optional or {}).items() if name in entries}
    for name, kind in {**kinds, **present}.items():
        value = entries.get(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            wanted = getattr(kind, "__name__", kind)
            raise InputError(f"need {name} in {where} as {wanted}, got {value!r:.60}")


def check_config(config: Any, where: Path) -> None:
    """Raise unless a config has the right types and nobody has changed its settings.

    The setting of an environment of winkel's own must be the one that its id names.
    """
    check_types(config, REQUIRED, f"the config of {where}", OPTIONAL)
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


def check_table(name: str, table: Arrays, config: Mapping[str, Any], where: Path) -> None:
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


def check_same_run(wanted: Mapping[str, Any], found: Mapping[str, Any], where: str) -> None:
    """Raise, naming the first difference, unless both are the same run of the same version."""
    if wanted.get("fingerprint") == found.get("fingerprint"):
        ours, theirs = (config.get("versions", {}).get("winkel") for config in (wanted, found))
        if ours != theirs:
            raise InputError(
                f"{where} was made by winkel {theirs}, this is {ours}; "
                "use that version, or choose another folder"
            )
        return
    key, theirs, ours = first_difference(wanted, found, NOT_SETTINGS)
    raise InputError(
        f"{where} is of another run: {key} is {theirs!r:.60} there and {ours!r:.60} here; "
        "choose another folder"
    )


def first_difference(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], ignored: Sequence[str] = ()
) -> tuple[str, Any, Any]:
    """The first entry in which two descriptions differ: its name, their value and ours."""
    for key in sorted((ours.keys() | theirs.keys()) - set(ignored)):
        here, there = ours.get(key, "missing"), theirs.get(key, "missing")
        if here != there and isinstance(here, dict) and isinstance(there, dict):
            inner, there, here = first_difference(here, there)
            return f"{key}.{inner}", there, here
        if here != there:
            return key, there, here
    return "fingerprint", theirs.get("fingerprint"), ours.get("fingerprint")
