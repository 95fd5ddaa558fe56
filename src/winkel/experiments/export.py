"""Runs as bsuite's own CSV files, so that its loader, its scores and its plots read them."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from winkel.errors import InputError
from winkel.experiments.score import OFFICIAL_IDS, Log, log_of
from winkel.runs.folder import find_runs, load_run, write_text


class Exported(NamedTuple):
    """What an export did.

    Attributes:
        written: the CSV files.
        skipped: folders of runs that bsuite has no file for: of environments outside its 468 ids,
            or before the first episode's end.
    """

    written: list[Path]
    skipped: list[Path]


def export_bsuite(runs_root: Path, out: Path, *, overwrite: bool = False) -> Exported:
    """Write `<out>/<agent>/seed-<n>/bsuite_id_-_<experiment>-<index>.csv` for each official run.

    One folder per agent and seed, because bsuite's `load_bsuite` takes a folder for one agent's
    results and would average over seeds. All is checked before anything is written.
    """
    logs: dict[Path, dict[str, np.ndarray]] = {}
    skipped = []
    for folder in find_runs(runs_root):
        config, episodes = load_run(folder)
        env_id = config["env"]
        log = log_of(OFFICIAL_IDS[env_id], episodes) if env_id in OFFICIAL_IDS else {}
        if not log or not log["episode"].size:
            skipped.append(folder)
            continue
        name = f"bsuite_id_-_{env_id.replace('/', '-')}.csv"
        path = out / config["agent"] / f"seed-{config['seed']}" / name
        if path in logs:
            raise InputError(
                f"need one run of {env_id} by {config['agent']} with seed {config['seed']}, "
                f"got another in {folder}"
            )
        if path.exists() and not overwrite:
            raise InputError(f"{path} exists; export to another folder, or overwrite it")
        logs[path] = log
    for path, log in logs.items():
        write_text(path, _csv(log))
    return Exported(written=list(logs), skipped=skipped)


def _csv(log: Log) -> str:
    """Shortest digits that read back as the same number, as pandas writes them."""
    columns = [np.asarray(column).tolist() for column in log.values()]
    lines = [",".join(map(repr, row)) for row in zip(*columns, strict=True)]
    return "\n".join([",".join(log), *lines, ""])
