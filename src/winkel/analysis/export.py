"""Write runs as bsuite's own CSV files, for its loader, its scores and its plots."""

from pathlib import Path

import numpy as np

from winkel.analysis.scores import OFFICIAL_IDS, Log, group_runs, log_of
from winkel.errors import InputError
from winkel.files import write_text
from winkel.runs.record import RunRecord, find_runs, load_run


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
    ended: list[RunRecord] = []
    skipped: list[RunRecord] = []
    for run in map(load_run, find_runs(runs_root)):
        official = run.config["env"] in OFFICIAL_IDS and len(run.episodes["return"])
        (ended if official else skipped).append(run)
    logs: dict[Path, dict[str, np.ndarray]] = {}
    for (agent, seed), experiments in group_runs(ended).items():
        for name, ids in experiments.items():
            for env_id, run in ids.items():
                file = f"bsuite_id_-_{env_id.replace('/', '-')}.csv"
                logs[out / agent / f"seed-{seed}" / file] = log_of(name, run.episodes)
    for path in logs:
        if path.exists() and not overwrite:
            raise InputError(f"{path} exists; export to another folder, or overwrite it")
    for path, log in logs.items():
        write_text(path, _csv(log))
    return list(logs), [run.folder for run in skipped]


def _csv(log: Log) -> str:
    """Write the shortest digits that read back as the same number, as pandas does."""
    columns = [np.asarray(column).tolist() for column in log.values()]
    lines = [",".join(map(repr, row)) for row in zip(*columns, strict=True)]
    return "\n".join([",".join(log), *lines, ""])
