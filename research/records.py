"""Records of deep-sea runs: one `.npz` with what happened beside one `.json` with what was asked.

    python research/records.py results/research-log/*.json    # a table of every setting

`load` gives a list of runs: the fields of the JSON's settings and of their runs, with `treasure`
(one bool for each training episode), `seen` (state-actions seen, at `seen_at` episodes) and the
greedy evaluations `greedy`, made after `greedy_at` episodes.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ARRAYS = ("treasure", "seen", "seen_at", "greedy", "greedy_at")
OF_A_RUN = ("seed", "stopped", "began", "ended")
POINTS = 100
"""At most so many points of a curve of coverage are kept."""


def save(path: Path, runs: Sequence[dict[str, Any]], about: dict[str, Any]) -> None:
    """Writes `path`.npz and `path`.json."""
    settings: dict[str, dict[str, Any]] = {}
    columns: dict[str, Any] = defaultdict(list)
    for run in runs:
        known = {k: v for k, v in run.items() if k not in (*ARRAYS, *OF_A_RUN)}
        setting = settings.setdefault(json.dumps(known, sort_keys=True), known)
        numbers = {"episodes": len(run["treasure"])} | {k: run[k] for k in OF_A_RUN}
        setting.setdefault("runs", []).append({"row": len(columns["treasure"])} | numbers)
        at = looked_at(numbers["episodes"])
        columns["treasure"].append(np.packbits(np.asarray(run["treasure"], bool)))
        columns["seen"].append(np.asarray(run["seen"], np.uint16)[at - 1])
        columns["greedy"].append(np.packbits(np.asarray(run["greedy"], bool)))
        columns["greedy_at"].append(np.asarray(run["greedy_at"], np.uint16))
    flat = {name: np.concatenate(parts) for name, parts in columns.items()}
    counts = {f"{name}_count": [len(p) for p in parts] for name, parts in columns.items()}
    np.savez_compressed(path.with_suffix(".npz"), **flat, **counts)
    lines = ",\n".join(json.dumps(setting) for setting in settings.values())
    head = json.dumps(about)[:-1]
    path.with_suffix(".json").write_text(f'{head}, "settings": [\n{lines}\n]}}\n')


def load(path: str | Path) -> list[dict[str, Any]]:
    """All runs of a file, in the order of its settings."""
    path = Path(path)
    settings = json.loads(path.with_suffix(".json").read_text())["settings"]
    with np.load(path.with_suffix(".npz")) as stored:
        columns = {
            name: np.split(stored[name], np.cumsum(stored[f"{name}_count"])[:-1])
            for name in ("treasure", "seen", "greedy", "greedy_at")
        }
    runs = []
    for setting in settings:
        for run in setting.pop("runs"):
            row, episodes = run.pop("row"), run["episodes"]
            looks = len(columns["greedy_at"][row])
            arrays = {
                "treasure": np.unpackbits(columns["treasure"][row], count=episodes).astype(bool),
                "seen": columns["seen"][row],
                "seen_at": looked_at(episodes),
                "greedy": np.unpackbits(columns["greedy"][row], count=looks).astype(bool),
                "greedy_at": columns["greedy_at"][row],
            }
            runs.append(setting | run | arrays)
    return runs


def looked_at(episodes: int) -> np.ndarray:
    """Episodes, counted from 1, at which a curve of coverage is kept."""
    return np.unique(np.linspace(1, episodes, min(POINTS, episodes)).astype(int))


def figures(run: dict[str, Any]) -> dict[str, float]:
    """First goal, regret by training and by greedy episodes, success since then and at the end.

    What comes after an early stop counts as rewarded. The greedy regret is the sum of episodes
    since the evaluation before, over the evaluations that failed.
    """
    treasure = np.asarray(run["treasure"], bool)
    since = np.diff(np.asarray(run["greedy_at"], int), prepend=0)
    return {
        "first": float(treasure.argmax() + 1) if treasure.any() else np.inf,
        "bad": float((~treasure).sum()),
        "greedy": float(since[~np.asarray(run["greedy"], bool)].sum()),
        "after": float(treasure[treasure.argmax() :].mean()) if treasure.any() else 0.0,
        "last": float(treasure[-100:].mean()) if len(treasure) else 0.0,
    }


def table(runs: Iterable[dict[str, Any]]) -> list[str]:
    """A line for each setting: medians, quartiles of the regret, mean success after the first.

    Regrets of settings with runs that were `cut` (ended by hand) are lower bounds.
    """
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        groups[run["group"], run["size"], run["name"]].append(run)
    lines = [
        f"{'group':10}{'N':>4} {'setting':58}{'solved':>7}{'first':>7}{'regret':>8}"
        f"{'quartiles':>14}{'/N':>6}{'greedy':>8}{'episodes':>9}{'cut':>5}{'after':>6}"
    ]
    for (group, size, name), some in groups.items():
        each = [figures(run) for run in some]
        bad = np.array([f["bad"] for f in each])
        low, middle, high = np.percentile(bad, [25, 50, 75])
        solved = sum(
            run["stopped"] == "solved" or f["last"] >= 0.9
            for run, f in zip(some, each, strict=True)
        )
        first, greedy = (np.median([f[key] for f in each]) for key in ("first", "greedy"))
        lines.append(
            f"{group:10}{size:4} {name:58}{solved:4}/{len(some):<2}{first:7.0f}{middle:8.0f}"
            f"{f'[{low:.0f}, {high:.0f}]':>14}{middle / size:6.1f}{greedy:8.0f}"
            f"{max(len(run['treasure']) for run in some):9}"
            f"{sum(run['stopped'] in ('open', 'cancelled') for run in some):5}"
            f"{np.mean([f['after'] for f in each]):6.2f}"
        )
    return lines


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        sys.stdout.write("\n".join(table(load(argument))) + "\n")
