"""A study in Optuna's storage, shared by several processes, and its summary.

While a process runs a trial, it records Optuna's heartbeat of the trial. A trial without one for
`GRACE_SECONDS` is of a process that died: Optuna ends it as failed and queues its configuration
again.
"""

import json
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.exceptions import DuplicatedStudyError, StorageInternalError, UpdateFinishedTrialError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from winkel.errors import InputError
from winkel.files import ensure_folder, write_text
from winkel.runs.spec import first_difference
from winkel.search.problem import FIRST_SEED, Problem
from winkel.search.trials import DISCARDED, calibrated_scores, is_counted, raw_scores, suggest
from winkel.version import __version__

HEARTBEAT_SECONDS, GRACE_SECONDS = 15, 60
DATABASE, POINTER = "study.db", "study.json"
DESCRIPTION = "winkel"
"""Attribute of a study: what it searches for, and the version of winkel."""
RETRY_SECONDS = 2.0
"""Time before a storage is opened again: another process may just be creating its tables."""
MIN_TRIALS = 4
"""Complete trials that an importance needs."""


@dataclass
class Study:
    """An Optuna study, its storage, and what it searches for."""

    url: str
    study: optuna.Study
    storage: RDBStorage
    problem: Problem

    @property
    def version(self) -> str:
        """Version of winkel that made the study."""
        return self.study.user_attrs[DESCRIPTION]["version"]

    def trials(self) -> list[FrozenTrial]:
        """Read all trials."""
        return self.study.get_trials(deepcopy=False)

    def begin_trials(self, room: int, num_trials: int, seed: int) -> list[Trial]:
        """Begin up to `room` trials, at most `num_trials` counted in the study.

        Take trials from the queue; if it is empty, first queue suggestions. Two processes may do so
        at the same time; if there are then too many trials, or two with one configuration, discard
        those with the higher numbers.
        """
        begun: list[Trial] = []
        while len(begun) < room:
            trials = self.trials()
            queued = sum(trial.state == TrialState.WAITING for trial in trials)
            missing = min(room - len(begun), num_trials - sum(map(is_counted, trials)))
            asked = [self._take() for _ in range(min(room - len(begun), queued))]
            for params in suggest(self.problem, trials, seed, 0 if queued else missing):
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
        waiting = TrialState.WAITING
        self.study.add_trial(
            create_trial(state=waiting, params=params, distributions={**self.problem.parameters})
        )

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
        """Record heartbeats of trials in the background, and requeue trials without one.

        The trials in `numbers` may change meanwhile.
        """
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

    Attributes:
        study: the study.
        complete: trials that trained in all environments, the best first.
        raw: their scores at T by environment.
        calibrated: the same, calibrated.
        totals: their final scores.
        pruned: trials stopped below the median.
        failed: trials that failed for a reason of their own.
        num_trials: number of all these, and of unfinished ones.
        unfinished: number of trials that are running or queued.
        requeued: number of trials whose process ended, and which were queued again.
        updates: updates of all trials, pruned ones included.
    """

    def __init__(self, study: Study) -> None:
        with storage_errors(study.url):
            trials = study.trials()
        counted = list(filter(is_counted, trials))
        complete = [trial for trial in counted if trial.state == TrialState.COMPLETE]
        count = len(study.problem.environments)
        calibrated = calibrated_scores(complete, count)
        order = np.argsort(-calibrated.sum(axis=1), kind="stable")
        self.study, self.num_trials = study, len(counted)
        self.complete = [complete[i] for i in order]
        self.raw = raw_scores(self.complete, count)
        self.calibrated = calibrated[order]
        self.totals = self.calibrated.sum(axis=1)
        self.pruned = [trial for trial in counted if trial.state == TrialState.PRUNED]
        self.failed = [trial for trial in counted if trial.state == TrialState.FAIL]
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
        """Shares of the parameters by Optuna's PED-ANOVA; empty with too few trials."""
        if len(self.complete) < MIN_TRIALS or len(set(self.totals)) == 1:
            return {}
        copy = optuna.create_study(direction="maximize")
        for trial, total in zip(self.complete, self.totals, strict=True):
            copy.add_trial(
                create_trial(params=trial.params, distributions=trial.distributions, value=total)
            )
        return optuna.importance.get_param_importances(copy)


def open_study(folder: Path, url: str | None, name: str, problem: Problem, resume: bool) -> Study:
    """Create a study, or with `resume` join an existing one if it is the same search.

    Without the URL of a storage, its database is in the folder.
    """
    ensure_folder(folder)
    url = url or f"sqlite:///{(folder / DATABASE).resolve()}"
    shown, wanted = hide_password(url), {"version": __version__, **problem.describe()}
    with storage_errors(url):
        storage = _open_storage(url)
        try:
            study = optuna.create_study(
                storage=storage, study_name=name, direction="maximize", load_if_exists=resume
            )
        except DuplicatedStudyError as error:
            raise InputError(
                f"study {name} exists in {shown}; continue or join it with --resume, "
                "or choose another --out or --name"
            ) from error
        if DESCRIPTION not in study.user_attrs:
            study.set_user_attr(DESCRIPTION, wanted)
        found = study.user_attrs[DESCRIPTION]
    if found != wanted:
        key, theirs, ours = first_difference(wanted, found)
        raise InputError(
            f"study {name} in {shown} is another search: {key} is {theirs!r:.60} there and "
            f"{ours!r:.60} here; choose another --out or --name"
        )
    write_text(folder / POINTER, json.dumps({"storage": shown, "study": name}, indent=2))
    return Study(url, study, storage, problem)


def load_study(folder: Path, url: str | None = None) -> Study:
    """Load the study of a folder, to read it."""
    path = folder / POINTER
    try:
        pointer = json.loads(path.read_text())
        name, saved = str(pointer["study"]), str(pointer["storage"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder} holds no study: no {POINTER} names it ({error})") from error
    if url is None and (folder / DATABASE).is_file():
        url = f"sqlite:///{(folder / DATABASE).resolve()}"  # the folder may have been moved
    if url is None and ":***@" in saved:
        raise InputError(f"need --storage with the password, which is not in {path}, for {saved}")
    url = url or saved
    shown = hide_password(url)
    with storage_errors(url):
        storage = _open_storage(url)
        try:
            study = optuna.load_study(study_name=name, storage=storage)
        except KeyError as error:
            raise InputError(f"no study {name} in {shown}") from error
        described = study.user_attrs.get(DESCRIPTION)
    if described is None:
        raise InputError(f"study {name} in {shown} is not of winkel search")
    return Study(url, study, storage, Problem.from_description(described))


@contextmanager
def storage_errors(url: str) -> Iterator[None]:
    """Convert errors of a storage to an `InputError` of one line."""
    try:
        yield
    except ImportError as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"need a driver for the storage {hide_password(url)}: {reason}") from error
    except (SQLAlchemyError, StorageInternalError) as error:
        cause = error.__cause__ or error  # the database's own error behind Optuna's
        reason = str(getattr(cause, "orig", None) or cause).strip().splitlines()[0]
        raise InputError(f"cannot reach the storage {hide_password(url)}: {reason}") from error


def hide_password(url: str) -> str:
    """Return a URL without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        raise InputError(
            f"need a storage such as sqlite:///study.db or postgresql+psycopg://user@host/name, "
            f"got {url!r}"
        ) from None


def _open_storage(url: str) -> RDBStorage:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed to be used with")
    sqlite = url.startswith("sqlite")
    make = partial(
        RDBStorage,
        url,
        engine_kwargs={"connect_args": {"timeout": 60}} if sqlite else {"pool_pre_ping": True},
        heartbeat_interval=HEARTBEAT_SECONDS,
        grace_period=GRACE_SECONDS,
        heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
    )
    try:
        return make()
    except (SQLAlchemyError, StorageInternalError):
        time.sleep(RETRY_SECONDS)
        return make()
