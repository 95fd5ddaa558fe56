"""Write runs as bsuite's own CSV files, for its loader, its scores and its plots."""

from pathlib import Path

import numpy as np

from winkel.analysis.scores import OFFICIAL_IDS, Log, log_of
from winkel.errors import InputError
from winkel.files import write_text
from winkel.runs.record import find_runs, load_run


def export_bsuite(
    runs_root: Path, out: Path, *, overwrite: bool = False
) -> tuple[list[Path], list[Path]]:
    """Write `<out>/<agent>/seed-<n>/bsuite_id_-_<experiment>-<index>.csv` for each official run.

    There is one folder per agent and seed, because bsuite's `load_bsuite` takes a folder for one
    agent's results and would average over seeds. Everything is checked before a file is written.

    Returns:
        The files written, and the folders of runs that were skipped: environments outside bsuite's
        468 ids, and runs in which no episode ended.
    """
    logs: dict[Path, dict[str, np.ndarray]] = {}
    skipped = []
    for folder in find_runs(runs_root):
        run = load_run(folder)
        config, episodes = run.config, run.episodes
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
    return list(logs), skipped


def _csv(log: Log) -> str:
    """Write the shortest digits that read back as the same number, as pandas does."""
    columns = [np.asarray(column).tolist() for column in log.values()]
    lines = [",".join(map(repr, row)) for row in zip(*columns, strict=True)]
    return "\n".join([",".join(log), *lines, ""])
