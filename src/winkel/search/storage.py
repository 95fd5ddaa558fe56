"""A study in Optuna's storage, that several processes share."""

import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import DuplicatedStudyError, StorageInternalError, UpdateFinishedTrialError
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError

from winkel.errors import InputError
from winkel.files import ensure_folder
from winkel.runs.folder import write_text
from winkel.version import __version__

Made = TypeVar("Made")
ATTEMPTS = 6
DATABASE, POINTER = "study.db", "study.json"
IDENTITY = "winkel"
"""Name of the study's attribute that says what it is a search for."""


@dataclass
class Shared:
    """A study and where it is kept."""

    url: str
    study: optuna.Study
    storage: BaseStorage

    @property
    def identity(self) -> dict[str, Any]:
        """What the study is a search for."""
        return self.study.user_attrs.get(IDENTITY, {})

    def trials(self) -> list[FrozenTrial]:
        """All, as they are now."""
        return self.study.get_trials(deepcopy=False)

    def enqueue(self, kept: Mapping[str, Any], attributes: Mapping[str, Any] | None = None) -> None:
        """Queue a configuration for whoever asks next."""
        self.study.enqueue_trial(dict(kept), user_attrs=dict(attributes or {}))

    def claim(self, queued: FrozenTrial, space: Mapping[str, BaseDistribution]) -> Trial | None:
        """A configuration that was in the queue, for this process; None if another was faster.

        Optuna's `ask` reads the whole study anew for each trial that it hands out.
        """
        try:
            if not self.storage.set_trial_state_values(queued._trial_id, TrialState.RUNNING):
                return None
        except UpdateFinishedTrialError:
            return None
        trial = Trial(self.study, queued._trial_id)
        for name, part in space.items():
            trial._suggest(name, part)
        return trial

    def mark(self, trial: FrozenTrial, name: str, value: Any) -> bool:
        """Write an attribute of a trial; False if it has ended, and keeps what it has."""
        try:
            self.storage.set_trial_user_attr(trial._trial_id, name, value)
        except UpdateFinishedTrialError:
            return False
        return True

    def end(self, number: int, state: TrialState, value: float | None = None) -> bool:
        """End a trial; False if another process had."""
        try:
            self.study.tell(number, value, state)
        except UpdateFinishedTrialError:
            return False
        except ValueError as error:
            if "Cannot tell" not in str(error):
                raise
            return False
        return True


def open_study(
    folder: Path,
    url: str | None,
    name: str,
    identity: Mapping[str, Any],
    resume: bool,
) -> Shared:
    """Make a study, or with `resume` join one that is there, if it is the same search."""
    ensure_folder(folder)
    url = url or f"sqlite:///{(folder / DATABASE).resolve()}"
    wanted = json.loads(json.dumps({"version": __version__, **identity}))
    with reachable(url):
        storage = _storage(url)
        try:
            study = optuna.create_study(
                storage=storage,
                study_name=name,
                direction="maximize",
                sampler=optuna.samplers.RandomSampler(),
                load_if_exists=resume,
            )
        except DuplicatedStudyError as error:
            raise InputError(
                f"study {name} is in {shown(url)} already; go on with it, or join, with --resume, "
                "or choose another --out or --name"
            ) from error
        if IDENTITY not in study.user_attrs:
            _unless_another_did(lambda: study.set_user_attr(IDENTITY, wanted))
        shared = Shared(url, study, storage)
        _check_same(wanted, shared.identity, f"study {name} in {shown(url)}")
    write_text(folder / POINTER, json.dumps({"storage": shown(url), "study": name}, indent=2))
    return shared


def load_study(folder: Path, url: str | None = None) -> Shared:
    """The study of a folder, for those who only read it."""
    path = folder / POINTER
    try:
        pointer = json.loads(path.read_text())
        name, kept = str(pointer["study"]), str(pointer["storage"])
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"{folder} holds no study: no {POINTER}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} does not name a study ({error})") from error
    if url is None and (folder / DATABASE).is_file():
        url = f"sqlite:///{(folder / DATABASE).resolve()}"  # wherever the folder is now
    if url is None and ":***@" in kept:
        raise InputError(f"need --storage, whose password {path} does not keep, for {kept}")
    url = url or kept
    with reachable(url):
        storage = _storage(url)
        try:
            study = optuna.load_study(study_name=name, storage=storage)
        except KeyError as error:
            raise InputError(f"no study {name} in {shown(url)}") from error
        if IDENTITY not in study.user_attrs:
            raise InputError(f"study {name} in {shown(url)} was not made by winkel search")
        return Shared(url, study, storage)


@contextmanager
def reachable(url: str) -> Iterator[None]:
    """Say in one line what is wrong with a storage."""
    try:
        yield
    except ImportError as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"need a driver for the storage {shown(url)}: {reason}") from error
    except (SQLAlchemyError, StorageInternalError) as error:
        cause = error.__cause__ if isinstance(error, StorageInternalError) else error
        reason = str(getattr(cause, "orig", None) or cause or error).strip().splitlines()[0]
        raise InputError(f"cannot reach the storage {shown(url)}: {reason}") from error


def shown(url: str) -> str:
    """A URL without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return url


def _storage(url: str) -> BaseStorage:
    """Patient with other writers of SQLite; a lost connection to a server is made anew."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    sqlite = url.startswith("sqlite")
    options: dict[str, Any] = {"connect_args": {"timeout": 60}} if sqlite else {}
    try:
        make_url(url)
    except ArgumentError as error:
        raise InputError(
            f"need a storage such as sqlite:///study.db or postgresql+psycopg://user@host/name, "
            f"got {url!r}"
        ) from error
    kept = {"pool_pre_ping": not sqlite, **options}
    return optuna.storages.get_storage(
        _unless_another_did(lambda: RDBStorage(url, engine_kwargs=kept))
    )


def _unless_another_did(make: Callable[[], Made]) -> Made:
    """Make tables or rows that another process may be making; once more where it was first."""
    for attempt in range(ATTEMPTS):
        try:
            return make()
        except (SQLAlchemyError, StorageInternalError) as error:
            cause = error.__cause__ if isinstance(error, StorageInternalError) else error
            first = isinstance(cause, IntegrityError) or "already exists" in str(cause)
            if not first or attempt == ATTEMPTS - 1:
                raise
            time.sleep(0.2 * (attempt + 1))
    raise AssertionError


def _check_same(wanted: Mapping[str, Any], found: Mapping[str, Any], where: str) -> None:
    """Raise, naming the first difference, unless both are the same search of the same version."""
    for key in wanted:
        if wanted[key] != found.get(key):
            ours, theirs = wanted[key], found.get(key)
            if isinstance(ours, dict) and isinstance(theirs, dict):
                inner = min(k for k in {*ours, *theirs} if ours.get(k) != theirs.get(k))
                key, ours, theirs = f"{key}.{inner}", ours.get(inner), theirs.get(inner)
            raise InputError(
                f"{where} is another search: {key} is {theirs!r:.80} there and {ours!r:.80} here; "
                "choose another --out or --name"
            )
