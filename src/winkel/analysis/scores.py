"""bsuite's official scores, from logs in bsuite's layout; equal to bsuite 0.3.6. Its CSV files."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from winkel.envs.base import Experiment
from winkel.envs.registry import EXPERIMENTS, TAGS, bsuite_info, family_of
from winkel.errors import InputError
from winkel.files import write_text
from winkel.runs.record import RunRecord, find_runs, load_run

Log = Mapping[str, np.ndarray]
"""Columns over logged episodes."""

Groups = dict[tuple[str, int], dict[str, dict[str, RunRecord]]]
"""Runs by agent and seed, by experiment, and by id."""

OFFICIAL_IDS = {env_id: name for name, found in EXPERIMENTS.items() for env_id in found.ids}
"""The experiment of each of the 468 official ids; no other environment has a score."""

_LOGGED_TENTHS = np.array([10, 12, 14, 17, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100])


def is_logged(episode: np.ndarray) -> np.ndarray:
    """Return whether bsuite logs after an episode, counted from 1: 1, 1.2, 1.4, 1.7, 2 … · 10^k."""
    power = 10 ** np.floor(np.log10(np.maximum(1, episode))).astype(np.int64)
    return (10 * episode[..., None] == _LOGGED_TENTHS * power[..., None]).any(axis=-1)


def log_of(experiment: str, episodes: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return what bsuite's `Logging` would have written: its columns, at logged episodes.

    The last episode is not always logged: the log of a run of 9 999 episodes ends at 9 000.
    """
    info = bsuite_info(experiment, episodes)
    length = np.asarray(episodes["length"], np.int64)
    returned = np.asarray(episodes["return"], np.float64)
    episode = np.arange(1, length.size + 1)
    columns = {
        "steps": np.cumsum(length),
        "episode": episode,
        "total_return": np.cumsum(returned),
        "episode_len": length,
        "episode_return": returned,
        **info,
    }
    logged = is_logged(episode)
    return {name: column[logged] for name, column in columns.items()}


def score_experiment(name: str, logs: Mapping[str, Log]) -> float:
    """Score an experiment in [0, 1] from the logs of its ids, such as 'catch/0'.

    Unfinished and missing runs are scored as bsuite scores them: only the ids with the most
    episodes count towards a regret; deep sea ignores ids without a row in its range of episodes;
    mnist is NaN before its last episode. An experiment without any row is NaN.
    """
    family = family_of(name)
    if not logs:
        return math.nan
    experiment = EXPERIMENTS[name]
    rows = _rows(experiment, logs)
    score = partial(_SCORES[family], limit=experiment.num_episodes)
    if name == family:
        return score(rows)
    variable = "noise_scale" if name.endswith("_noise") else "reward_scale"
    if not (scores := [score(group) for group in _groups(rows, variable)]):
        return math.nan
    mean, deviation = np.mean(scores), np.std(scores)
    return float(0.5 * (np.clip(mean, 0, 1) + np.clip(mean - deviation, 0, 1)))


def score_tags(scores: Mapping[str, float]) -> dict[str, float]:
    """Average the scores of each capability over its experiments; NaN where none has a score."""
    return {
        tag: _mean([score for name, score in scores.items() if tag in EXPERIMENTS[name].tags])
        for tag in TAGS
    }


def score_runs(runs: Iterable[RunRecord]) -> dict[tuple[str, int], dict[str, float]]:
    """Score each agent and seed separately, by experiment.

    Runs in environments that are not official, such as 'deep_sea:size=100', are ignored.
    """
    return {
        key: {
            name: score_experiment(name, {i: log_of(name, run.episodes) for i, run in ids.items()})
            for name, ids in found.items()
        }
        for key, found in sorted(group_runs(runs).items())
    }


def note_incomplete(runs: Iterable[RunRecord]) -> list[str]:
    """Note agents with fewer settings or episodes than bsuite's, which scores assume."""
    by_agent: dict[str, list[RunRecord]] = defaultdict(list)
    for run in runs:
        if run.config["env"] in OFFICIAL_IDS:
            by_agent[run.config["agent"]].append(run)
    notes = []
    for agent, found in by_agent.items():
        ids, names = {run.config["env"] for run in found}, {run.experiment for run in found}
        short = sum(
            len(run.episodes["return"]) < EXPERIMENTS[run.experiment].num_episodes for run in found
        )
        if short or len(ids) < len(OFFICIAL_IDS):
            notes.append(
                f"{agent} has {len(ids)} of {len(OFFICIAL_IDS)} settings, in {len(names)} of "
                f"{len(EXPERIMENTS)} experiments; {short} of {len(found)} runs are shorter than "
                "bsuite's"
            )
    return notes


def group_runs(runs: Iterable[RunRecord]) -> Groups:
    """Group official runs by agent and seed, then by experiment in bsuite's order, then by id."""
    groups: Groups = {}
    order = list(EXPERIMENTS)
    official = [run for run in runs if run.config["env"] in OFFICIAL_IDS]
    for run in sorted(official, key=lambda run: order.index(OFFICIAL_IDS[run.config["env"]])):
        env_id, agent, seed = (run.config[key] for key in ("env", "agent", "seed"))
        found = groups.setdefault((agent, seed), {}).setdefault(OFFICIAL_IDS[env_id], {})
        if env_id in found:
            raise InputError(
                f"need one run of {env_id} by {agent} with seed {seed}, got two: "
                f"{found[env_id].path}, {run.path}"
            )
        found[env_id] = run
    return groups


def _rows(experiment: Experiment, logs: Mapping[str, Log]) -> Log:
    """Concatenate all logs; each row also has the number of its id and the id's setting."""
    parts: list[dict[str, np.ndarray]] = []
    for env_id, log in logs.items():
        if env_id not in experiment.ids:
            raise InputError(f"need ids {experiment.ids[0]} … {experiment.ids[-1]}, got {env_id!r}")
        number, shape = experiment.ids.index(env_id), log["episode"].shape
        constants = {"id": number, **experiment.settings[number]}
        parts.append({**log, **{key: np.full(shape, value) for key, value in constants.items()}})
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _where(rows: Log, mask: np.ndarray) -> Log:
    return {key: column[mask] for key, column in rows.items()}


def _groups(rows: Log, key: str) -> Iterator[Log]:
    for value in np.unique(rows[key]):
        yield _where(rows, rows[key] == value)


def _mean(values: ArrayLike) -> float:
    """Average as pandas does: ignore NaN; the mean of nothing is NaN."""
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    return float(known.mean()) if known.size else math.nan


def _regret(rows: Log, limit: int, total: str, ideal: float | None = None) -> float:
    """Mean regret per episode at the last episode that any run has, or at the limit.

    Runs without a row at that episode are ignored. `total` names a column of total regrets or, with
    `ideal`, one of total returns; `ideal` is then the return per episode of the best policy.
    """
    last = rows["episode"] == min(rows["episode"].max(initial=0), limit)
    if not last.any():
        return math.nan
    at_last = _where(rows, last)
    regret = at_last[total] if ideal is None else ideal * at_last["episode"] - at_last[total]
    return _mean(regret) / float(at_last["episode"][0])


def _by_regret(
    rows: Log, limit: int, baseline: float, total: str, ideal: float | None = None
) -> float:
    return float(np.clip((baseline - _regret(rows, limit, total, ideal)) / baseline, 0, 1))


def _by_accuracy(rows: Log, limit: int) -> float:
    """Half for regret, half for the accuracy over the last tenth, which needs finished runs.

    Rows past the limit also count towards the accuracy.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.diff(rows["total_regret"]) / np.diff(rows["episode"])
    accuracy = _mean(1 - slope[rows["episode"][1:] > 0.9 * limit] / 2)
    return 0.5 * (_by_regret(rows, limit, 1.8, "total_regret") + accuracy)


def _by_good_episode(rows: Log, limit: int, good: float, total: str, ideal: float) -> float:
    """Half for regret, half for the share of runs with a good episode."""
    rows = _where(rows, rows["episode"] <= limit)
    best = [np.fmax.reduce(group["best_episode"]) for group in _groups(rows, "id")]  # ignores NaN
    found = _mean(np.greater(best, good))
    return 0.5 * (_by_regret(rows, limit, ideal, total, ideal) + found)


def _swingup(rows: Log, limit: int) -> float:
    """Use `total_return`, unlike cartpole; it equals the raw return, as there is no noise.

    One id without a score leaves the experiment without one: bsuite averages these with NumPy.
    """
    groups = _groups(rows, "id")
    scores = [_by_good_episode(group, limit, 100.0, "total_return", 700.0) for group in groups]
    return float(np.mean(scores)) if scores else math.nan


def _share_below(
    rows: Log, limit: int, threshold: float, total: str, ideal: float | None = None
) -> float:
    """The share of ids, each at its own last episode, whose regret is below a threshold."""
    groups = _groups(rows, "id")
    return _mean([_regret(group, limit, total, ideal) < threshold for group in groups])


def _deep_sea(rows: Log, limit: int, first: int, threshold: float) -> float:
    """The share of sizes solved faster than by random actions: within 2^size + 100 episodes.

    A size is solved at the first logged episode at which the share of bad episodes so far is below
    the threshold.
    """
    rows = _where(rows, (rows["episode"] >= first) & (rows["episode"] <= limit))
    beaten = []
    for group in _groups(rows, "size"):
        episode = group["episode"]
        solved = group["total_bad_episodes"] / episode < threshold
        at = episode[solved].min() if solved.any() else episode.max()
        beats = bool(solved.any() and at < 2.0 ** group["size"][0] + 100)
        beaten += [beats] * int(np.sum(episode == at))
    return _mean(beaten)


_memory = partial(_share_below, threshold=0.75 * 0.5, total="total_perfect", ideal=1.0)
_umbrella = partial(_share_below, threshold=0.5, total="total_regret")

_SCORES: Mapping[str, Callable[..., float]] = {
    "bandit": partial(_by_regret, baseline=0.5, total="total_regret"),
    "cartpole": partial(_by_good_episode, good=500.0, total="raw_return", ideal=1000.0),
    "cartpole_swingup": _swingup,
    "catch": partial(_by_regret, baseline=1.6, total="total_regret"),
    "deep_sea": partial(_deep_sea, first=1, threshold=0.9),
    "deep_sea_stochastic": partial(_deep_sea, first=100, threshold=0.8),
    "discounting_chain": partial(_by_regret, baseline=0.1, total="total_return", ideal=1.1),
    "memory_len": _memory,
    "memory_size": _memory,
    "mnist": _by_accuracy,
    "mountain_car": partial(_by_regret, baseline=1000.0, total="raw_return", ideal=-100.0),
    "umbrella_distract": _umbrella,
    "umbrella_length": _umbrella,
}


def export_bsuite(runs_root: Path, out: Path) -> tuple[list[Path], list[Path]]:
    """Write `<out>/<agent>/seed-<n>/bsuite_id_-_<experiment>-<index>.csv` for each official run.

    bsuite's `load_bsuite` averages over the seeds in a folder, so each has its own. Everything is
    checked before a file is written. Returns the files written, and the folders of runs that were
    skipped: environments outside bsuite's 468 ids, and runs in which no episode ended.
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
        if path.exists():
            raise InputError(f"{path} exists; delete it, or export to another folder")
    for path, log in logs.items():  # with as many digits as pandas writes
        rows = zip(*(column.tolist() for column in log.values()), strict=True)
        write_text(
            path, "\n".join([",".join(log), *(",".join(map(repr, row)) for row in rows), ""])
        )
    return list(logs), [run.folder for run in skipped]
