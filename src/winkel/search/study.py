"""A study in Optuna's storage, shared by several processes: trials, scores, what to try next.

A process records Optuna's heartbeat of the trials that it runs. A trial without one for
`GRACE_SECONDS` is of a process that died: Optuna fails it and queues its configuration again.
"""

import itertools
import os
import random
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from jaxtyping import Float
from optuna.distributions import BaseDistribution
from optuna.exceptions import DuplicatedStudyError, StorageInternalError, UpdateFinishedTrialError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from winkel.errors import InputError
from winkel.files import ensure_folder
from winkel.runs.checkpoint import first_difference
from winkel.search.problem import FIRST_SEED, MILESTONES, Problem

Scores = Float[np.ndarray, "trials environments"]
HEARTBEAT_SECONDS, GRACE_SECONDS = 15, 60
DESCRIPTION = "winkel"
"""Attribute of a study: what it searches for."""
REASON, DISCARDED = "reason", "discarded"
"""Attributes of a trial: why it failed; true if it repeats another or is one too many."""
PATIENCE = 30
"""Suggestions of tried configurations before an untried one is drawn uniformly."""


def is_counted(trial: FrozenTrial) -> bool:
    """Whether a trial counts: not if it was discarded, or requeued after its process ended."""
    return trial.state != TrialState.FAIL or REASON in trial.user_attrs


def calibrate(scores: Float[np.ndarray, " trials"]) -> Float[np.ndarray, " trials"]:
    """½ exp(ln 2 (f − μ) / (sup f − μ)): 1 for the best, ½ for an average configuration.

    Half the paper's formula, whose values are 2 and 1 where its text says 1 and 0.5, and ln 2 in
    place of 0.693; the ranking is the same. If all scores are equal, each is average: ½.
    """
    best, mean = np.max(scores, initial=-np.inf), np.mean(scores) if len(scores) else 0.0
    if np.all(scores == best) or not best > mean:  # the mean of equal numbers may be rounded
        return np.full(len(scores), 0.5)
    return 0.5 * np.exp2((scores - mean) / (best - mean))


def raw_scores(complete: Sequence[FrozenTrial], environments: int) -> Scores:
    """Return scores at T: Optuna's step is the number of milestones so far."""
    steps = range(MILESTONES, MILESTONES * environments + 1, MILESTONES)
    rows = [[trial.intermediate_values[step] for step in steps] for trial in complete]
    return np.array(rows, float).reshape(len(complete), environments)


def calibrated_scores(complete: Sequence[FrozenTrial], environments: int) -> Scores:
    """Calibrate scores at T in each environment."""
    columns = raw_scores(complete, environments).T
    return np.stack([calibrate(column) for column in columns], axis=1)


def final_scores(trials: Sequence[FrozenTrial], environments: int) -> dict[int, float]:
    """Sum the calibrated scores of each complete trial; by number."""
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    totals = calibrated_scores(complete, environments).sum(axis=1)
    return {trial.number: float(total) for trial, total in zip(complete, totals, strict=True)}


def suggest(problem: Problem, trials: Sequence[FrozenTrial], count: int) -> list[dict[str, Any]]:
    """Suggest configurations that were not tried, by Optuna's TPE on the calibrated scores of now.

    Every complete trial changes the calibrated scores of all trials. Optuna stores one value of a
    trial for good, so TPE samples from a copy of the study in memory with values computed again. It
    takes running trials as bad ones, which spreads a batch.
    """
    parameters: dict[str, BaseDistribution] = dict(problem.parameters)
    sampler = optuna.samplers.TPESampler(seed=len(trials))
    uniform = optuna.samplers.RandomSampler(seed=len(trials))
    copy = optuna.create_study(direction="maximize", sampler=sampler)
    counted = [t for t in trials if is_counted(t) and set(t.params) == set(parameters)]
    totals = final_scores(counted, len(problem.environments))
    for trial in counted:
        if trial.state != TrialState.FAIL:
            taken = create_trial(
                state=trial.state if trial.state.is_finished() else TrialState.RUNNING,
                value=totals.get(trial.number, trial.value),
                params=trial.params,
                distributions=parameters,
                intermediate_values=trial.intermediate_values,
            )
            copy.add_trial(taken)
    tried = [trial.params for trial in counted]
    for _ in range(count):
        copy.sampler = sampler
        for attempt in itertools.count(1):
            params = copy.ask(parameters).params
            if params not in tried:
                break
            if attempt == PATIENCE:
                copy.sampler = uniform
        tried.append(params)
    return tried[len(tried) - count :]


@dataclass
class Study:
    """An Optuna study, its storage (and where that is), and what it searches for."""

    where: str
    study: optuna.Study
    storage: RDBStorage
    problem: Problem

    def trials(self) -> list[FrozenTrial]:
        """Read all trials."""
        return self.study.get_trials(deepcopy=False)

    def begin_trials(self, room: int, num_trials: int) -> list[Trial]:
        """Begin up to `room` trials, at most `num_trials` counted in the study.

        Take trials from the queue; if it is empty, first queue suggestions. Two processes may do so
        at the same time; of too many trials, or two with one configuration, discard the later.
        """
        begun: list[Trial] = []
        while len(begun) < room:
            trials = self.trials()
            queued = sum(trial.state == TrialState.WAITING for trial in trials)
            missing = min(room - len(begun), num_trials - sum(map(is_counted, trials)))
            asked = [self._take() for _ in range(min(room - len(begun), queued))]
            for params in suggest(self.problem, trials, 0 if queued else missing):
                self.queue(params)
                asked.append(self._take())
            if not asked:
                break
            trials = self.trials()
            for trial in asked:
                earlier = [t for t in trials if t.number < trial.number and is_counted(t)]
                repeated = any(t.params == trial.params for t in earlier)
                if repeated or not trial.params or len(earlier) >= num_trials:
                    trial.set_user_attr(DISCARDED, True)
                    trials[trial.number] = self.study.tell(trial, state=TrialState.FAIL)
                else:
                    begun.append(trial)
        return begun

    def queue(self, params: dict[str, Any]) -> None:
        """Queue a configuration for the process that asks next."""
        parts: dict[str, BaseDistribution] = {**self.problem.parameters}
        trial = create_trial(state=TrialState.WAITING, params=params, distributions=parts)
        self.study.add_trial(trial)

    def _take(self) -> Trial:
        """Take a trial from the queue; if it has just become empty, one without parameters."""
        trial = self.study.ask()
        self.record_heartbeat(trial.number)
        return trial

    def end(self, trial: Trial, state: TrialState, value: float | None = None) -> None:
        """End a trial; raise `UpdateFinishedTrialError` if another process had ended it."""
        if self.study.tell(trial, value, state, skip_if_finished=True).state != state:
            raise UpdateFinishedTrialError

    def requeue(self, trial: Trial) -> None:
        """End a trial that this process cannot finish, and queue its configuration again."""
        ended = self.study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
        if ended.state == TrialState.FAIL:
            RetryHeartbeatStaleTrialCallback()(self.study, ended)

    def wait_for_others(self, check_interrupt: Callable[[], None] = lambda: None) -> bool:
        """Wait until a trial is queued, or until all running trials prove to be alive.

        Return whether a trial is queued. Call `check_interrupt` every second.
        """
        for trial in self.trials():
            if trial.state == TrialState.RUNNING:
                self.record_heartbeat(trial.number)  # without a first one it never becomes stale
        deadline = time.monotonic() + GRACE_SECONDS + HEARTBEAT_SECONDS
        while True:
            fail_stale_trials(self.study)
            states = {trial.state for trial in self.trials()}
            if TrialState.WAITING in states:
                return True
            if TrialState.RUNNING not in states or time.monotonic() > deadline:
                return False
            check_interrupt()
            time.sleep(1.0)

    def record_heartbeat(self, number: int) -> None:
        """Tell other processes that a trial is running."""
        study = self.storage.get_study_id_from_name(self.study.study_name)
        trial = self.storage.get_trial_id_from_study_id_trial_number(study, number)
        self.storage.record_heartbeat(trial)

    @contextmanager
    def heartbeats(self, numbers: Collection[int]) -> Iterator[None]:
        """Record heartbeats of trials, which may change, and requeue trials without one."""
        stop = threading.Event()

        def record() -> None:
            while not stop.wait(HEARTBEAT_SECONDS):
                with suppress(SQLAlchemyError, StorageInternalError):
                    for number in list(numbers):
                        self.record_heartbeat(number)
                    fail_stale_trials(self.study)

        thread = threading.Thread(target=record, name="heartbeats", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


class Summary:
    """A study at the time of reading.

    `complete` are trials that trained in all environments, the best first, with their scores at T
    by environment, `raw` and `calibrated`, and their final scores, `totals`. `num_trials` counts
    them and those that are pruned, failed or unfinished; the process of `requeued` trials ended.
    """

    def __init__(self, study: Study) -> None:
        with storage_errors(study.where):
            trials = study.trials()
        counted = list(filter(is_counted, trials))
        complete, self.pruned, self.failed = (
            [trial for trial in counted if trial.state == state]
            for state in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
        )
        count = len(study.problem.environments)
        calibrated = calibrated_scores(complete, count)
        order = np.argsort(-calibrated.sum(axis=1), kind="stable")
        self.study, self.num_trials = study, len(counted)
        self.complete = [complete[i] for i in order]
        self.raw, self.calibrated = raw_scores(self.complete, count), calibrated[order]
        self.totals = self.calibrated.sum(axis=1)
        self.unfinished = sum(not trial.state.is_finished() for trial in counted)
        self.requeued = sum(not is_counted(t) and DISCARDED not in t.user_attrs for t in trials)
        self.updates = sum(trial.user_attrs.get("updates", 0) for trial in trials)

    def budget(self) -> str:
        """Describe what every configuration was given."""
        environments = ", ".join(
            f"{entry.id} for {entry.episodes or entry.steps:,} "
            f"{'episodes' if entry.episodes else 'steps'} ({entry.score})"
            for entry in self.study.problem.environments
        )
        seeds = self.study.problem.seeds
        last = f" to {FIRST_SEED + seeds - 1}" if seeds > 1 else ""
        return f"{environments}; {seeds} seed{'s' * (seeds > 1)} ({FIRST_SEED}{last})"

    def importance(self) -> dict[str, float]:
        """Shares of the parameters by Optuna's PED-ANOVA; empty with fewer than four trials."""
        if len(self.complete) < 4 or len(set(self.totals)) == 1:
            return {}
        copy = optuna.create_study(direction="maximize")
        for trial, total in zip(self.complete, self.totals, strict=True):
            copy.add_trial(
                create_trial(params=trial.params, distributions=trial.distributions, value=total)
            )
        return optuna.importance.get_param_importances(copy)


def open_study(folder: Path, url: str | None, name: str, problem: Problem, resume: bool) -> Study:
    """Begin a study, or with `resume` continue or join one if it is the same search."""
    wanted = problem.describe()
    where, storage, study, found = _connect(folder, url, name, begin=not resume)
    if found is None:
        with storage_errors(where):
            study.set_user_attr(DESCRIPTION, wanted)
    elif found != wanted:
        key, theirs, ours = first_difference(wanted, found if isinstance(found, dict) else {})
        raise InputError(
            f"study {name} in {where} is another search: {key} is {theirs!r:.60} there and "
            f"{ours!r:.60} here; choose another --out or --name"
        )
    return Study(where, study, storage, problem)


def load_study(folder: Path, url: str | None = None, name: str | None = None) -> Study:
    """Load a study to read it; its storage must have only one if there is no name."""
    where, storage, study, described = _connect(folder, url, name, begin=False)
    try:
        return Study(where, study, storage, Problem.from_description(described))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"study {study.study_name} in {where} is not of winkel search: {error!r:.60}"
        ) from error


def _connect(
    folder: Path, url: str | None, name: str | None, begin: bool
) -> tuple[str, RDBStorage, optuna.Study, Any]:
    """Begin a study, or load one; also return where it is, without a password, and what is sought.

    Without the URL of a storage, its database is in the folder.
    """
    own = URL.create("sqlite", database=str((folder / "study.db").resolve()))
    try:
        place = own if url is None else make_url(url)
    except ArgumentError:
        raise InputError(
            "need a storage such as sqlite:///study.db or postgresql+psycopg://user@host/name, "
            f"got {url!r}"
        ) from None
    where = place.render_as_string(hide_password=True)
    file = Path(place.database or "")
    if begin:
        ensure_folder(folder)
    elif where.startswith("sqlite") and not (file.is_file() and file.stat().st_size):
        raise InputError(
            f"{file} is missing or empty; put the file of the study there, give --storage, or "
            "begin a study without --resume"
        )
    with storage_errors(where):
        if begin and url is None and not file.exists():
            _create_database(file)
        try:
            storage = _open_storage(place)
        except (SQLAlchemyError, StorageInternalError):
            time.sleep(random.uniform(1.0, 3.0))  # another process may be creating its tables
            storage = _open_storage(place)
        try:
            if begin:
                study = optuna.create_study(storage=storage, study_name=name, direction="maximize")
            else:  # the only one without a name
                study = optuna.load_study(storage=storage, study_name=name)
        except DuplicatedStudyError as error:
            raise InputError(
                f"study {name} exists in {where}; continue or join it with --resume, or choose "
                "another --out or --name"
            ) from error
        except (KeyError, ValueError) as error:
            names = ", ".join(known.study_name for known in storage.get_all_studies()) or "none"
            raise InputError(f"need the name of a study in {where}: {names}, got {name}") from error
        return where, storage, study, study.user_attrs.get(DESCRIPTION)


def _create_database(file: Path) -> None:
    """Create the tables of a study under another name first, so that nobody finds half of them.

    If another process is faster, or if there are no hard links, nothing is done here.
    """
    with suppress(OSError), tempfile.TemporaryDirectory(dir=file.parent, prefix=".new-") as folder:
        made = Path(folder, file.name)
        _open_storage(URL.create("sqlite", database=str(made))).engine.dispose()
        os.link(made, file)


@contextmanager
def storage_errors(where: str, hint: str = "") -> Iterator[None]:
    """Convert errors of a storage to an `InputError` of one line."""
    try:
        yield
    except ImportError as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"need a driver for the storage {where}: {reason}") from error
    except (SQLAlchemyError, StorageInternalError) as error:
        cause = error.__cause__ or error  # the database's own error behind Optuna's
        reason = str(getattr(cause, "orig", None) or cause).strip().splitlines()[0]
        raise InputError(f"cannot use the storage {where}: {reason}{hint}") from error


def _open_storage(place: URL) -> RDBStorage:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed to be used with")
    url = place.render_as_string(hide_password=False)
    sqlite = url.startswith("sqlite")
    try:
        return RDBStorage(
            url,
            engine_kwargs={"connect_args": {"timeout": 60}} if sqlite else {"pool_pre_ping": True},
            heartbeat_interval=HEARTBEAT_SECONDS,
            grace_period=GRACE_SECONDS,
            heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
        )
    except RuntimeError as error:  # another version of Optuna
        raise InputError(f"cannot use the storage {place!r}: {error}") from error
