"""A study in Optuna's storage, shared by several processes.

While a process runs a trial, it records Optuna's heartbeat of the trial. A trial without one for
`GRACE_SECONDS` is of a process that died: Optuna ends it as failed and queues its configuration
again.
"""

import json
import os
import platform
import threading
import time
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import DuplicatedStudyError, StorageInternalError, UpdateFinishedTrialError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError

from winkel.errors import InputError
from winkel.files import ensure_folder, write_text
from winkel.runs.spec import first_difference
from winkel.search.problem import Problem
from winkel.search.space import Space
from winkel.search.trials import DISCARDED, is_counted, suggest
from winkel.version import __version__

HEARTBEAT_SECONDS, GRACE_SECONDS = 15, 60
DATABASE, POINTER = "study.db", "study.json"
DESCRIPTION, PROCESS = "winkel", "process"
"""Attributes: of a study, what it searches for; of a trial, the process that ran it."""
ATTEMPTS = 5
"""Attempts to create tables that another process creates at the same time."""


@dataclass
class Study:
    """An Optuna study with its storage."""

    url: str
    study: optuna.Study
    storage: RDBStorage
    _ids: dict[int, int] = field(default_factory=dict, repr=False)

    @property
    def description(self) -> dict[str, Any]:
        """What the study searches for: `Problem.describe` and the version of winkel."""
        return self.study.user_attrs.get(DESCRIPTION, {})

    def trials(self) -> list[FrozenTrial]:
        """Read all trials."""
        return self.study.get_trials(deepcopy=False)

    def begin_trials(self, space: Space, room: int, num_trials: int, seed: int) -> list[Trial]:
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
            for params in suggest(space, trials, seed, 0 if queued else missing):
                self.queue(params, space)
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
                    trial.set_user_attr(PROCESS, f"{platform.node()}:{os.getpid()}")
                    begun.append(trial)
        return begun

    def queue(self, params: dict[str, Any], space: Space) -> None:
        """Queue a configuration for the process that asks next."""
        waiting = TrialState.WAITING
        self.study.add_trial(
            create_trial(state=waiting, params=params, distributions=space.distributions())
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
        callback = self.storage.get_heartbeat_stale_trial_callback()
        if ended.state == TrialState.FAIL and callback is not None:
            callback(self.study, ended)

    def wait_for_others(self) -> bool:
        """Wait until a trial is queued, or until all running trials prove to be alive.

        Return whether a trial is queued.
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
            time.sleep(1.0)

    def record_heartbeat(self, number: int) -> None:
        """Tell other processes that a trial is running."""
        if number not in self._ids:
            study_id = self.storage.get_study_id_from_name(self.study.study_name)
            self._ids[number] = self.storage.get_trial_id_from_study_id_trial_number(
                study_id, number
            )
        self.storage.record_heartbeat(self._ids[number])

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


def open_study(folder: Path, url: str | None, name: str, problem: Problem, resume: bool) -> Study:
    """Create a study, or with `resume` join an existing one if it is the same search.

    Args:
        folder: for the database, if there is no `url`, and for the study's page.
        url: storage in Optuna's form.
        name: of the study in its storage.
        problem: what to search for.
        resume: whether the study may exist.
    """
    ensure_folder(folder)
    url = url or f"sqlite:///{(folder / DATABASE).resolve()}"
    wanted = json.loads(json.dumps({"version": __version__, **problem.describe()}))
    with storage_errors(url):
        storage = _open_storage(url)
        try:
            study = optuna.create_study(
                storage=storage,
                study_name=name,
                direction="maximize",
                load_if_exists=resume,
            )
        except DuplicatedStudyError as error:
            raise InputError(
                f"study {name} exists in {hide_password(url)}; continue or join it with --resume, "
                "or choose another --out or --name"
            ) from error
        if DESCRIPTION not in study.user_attrs:
            study.set_user_attr(DESCRIPTION, wanted)
        opened = Study(url, study, storage)
        if opened.description != wanted:
            key, theirs, ours = first_difference(wanted, opened.description)
            raise InputError(
                f"study {name} in {hide_password(url)} is another search: {key} is {theirs!r:.60} "
                f"there and {ours!r:.60} here; choose another --out or --name"
            )
    pointer = {"storage": hide_password(url), "study": name}
    write_text(folder / POINTER, json.dumps(pointer, indent=2))
    return opened


def load_study(folder: Path, url: str | None = None) -> Study:
    """Load the study of a folder, to read it."""
    path = folder / POINTER
    try:
        pointer = json.loads(path.read_text())
        name, saved = str(pointer["study"]), str(pointer["storage"])
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"{folder} holds no study: no {POINTER}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} does not name a study ({error})") from error
    if url is None and (folder / DATABASE).is_file():
        url = f"sqlite:///{(folder / DATABASE).resolve()}"  # the folder may have been moved
    if url is None and ":***@" in saved:
        raise InputError(f"need --storage with the password, which is not in {path}, for {saved}")
    url = url or saved
    with storage_errors(url):
        storage = _open_storage(url)
        try:
            study = optuna.load_study(study_name=name, storage=storage)
        except KeyError as error:
            raise InputError(f"no study {name} in {hide_password(url)}") from error
        if DESCRIPTION not in study.user_attrs:
            raise InputError(f"study {name} in {hide_password(url)} is not of winkel search")
        return Study(url, study, storage)


@contextmanager
def storage_errors(url: str) -> Iterator[None]:
    """Convert errors of a storage to an `InputError` of one line."""
    try:
        yield
    except ImportError as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"need a driver for the storage {hide_password(url)}: {reason}") from error
    except (SQLAlchemyError, StorageInternalError) as error:
        cause = _cause(error)
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
    hide_password(url)  # raises if it is no URL
    sqlite = url.startswith("sqlite")
    connect = {"connect_args": {"timeout": 60}} if sqlite else {"pool_pre_ping": True}
    for attempt in range(ATTEMPTS):
        try:
            return RDBStorage(
                url,
                engine_kwargs=connect,
                heartbeat_interval=HEARTBEAT_SECONDS,
                grace_period=GRACE_SECONDS,
                heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
            )
        except (SQLAlchemyError, StorageInternalError) as error:
            created = isinstance(_cause(error), IntegrityError) or "exists" in str(_cause(error))
            if not created or attempt == ATTEMPTS - 1:
                raise
            time.sleep(0.2 * (attempt + 1))  # another process creates the tables
    raise AssertionError


def _cause(error: Exception) -> BaseException:
    """Return the database's own error behind Optuna's."""
    return error.__cause__ or error if isinstance(error, StorageInternalError) else error
