"""One study, several processes: trials of processes that died, and of two that ask at once."""

import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace

import pytest
from optuna.trial import TrialState

from search.tiny import RATES, population, problem
from winkel.errors import InputError
from winkel.search import population as populations
from winkel.search import study as studies
from winkel.search.study import DISCARDED, is_counted, load_study, open_study


@pytest.fixture(autouse=True)
def short_heartbeats(monkeypatch):
    monkeypatch.setattr(studies, "HEARTBEAT_SECONDS", 1)
    monkeypatch.setattr(studies, "GRACE_SECONDS", 1)
    monkeypatch.setattr(populations, "SHOW_SECONDS", 0.0)


@pytest.fixture
def study(tmp_path):
    return open_study(tmp_path, None, "tiny", problem(), resume=False)


def begin(study, room=1, num_trials=8):
    return study.begin_trials(room, num_trials)


def states(study):
    return [trial.state.name for trial in study.trials()]


def test_no_more_trials_than_wanted_and_none_twice(study):
    trials = begin(study, room=8, num_trials=5) + begin(study, room=8, num_trials=8)
    assert [trial.number for trial in trials] == list(range(8))
    assert sorted(trial.params["learning_rate"] for trial in trials) == sorted(RATES)
    assert begin(study, room=8, num_trials=8) == []


def test_a_trial_with_heartbeats_keeps_running(study):
    trial = begin(study)[0]
    with study.heartbeats([trial.number]):
        assert not study.wait_for_others()
    assert states(study) == ["RUNNING"]


@pytest.mark.parametrize("begun", [True, False])
def test_a_trial_without_heartbeats_is_queued_again(study, begun):
    """Also one whose process died before its first heartbeat, or before it had parameters."""
    params = begin(study)[0].params if begun else study.study.ask().params
    assert study.wait_for_others()
    assert states(study) == ["FAIL", "WAITING"]
    assert [is_counted(trial) for trial in study.trials()] == [False, True]
    again = begin(study, num_trials=1)[0]
    assert again.params == params if begun else again.params


def test_of_two_trials_with_one_configuration_the_second_is_discarded(study):
    for _ in range(2):  # two processes suggest the same
        study.queue({"learning_rate": RATES[3]})
    first, second = begin(study, room=2)
    assert [first.number, second.number] == [0, 2]
    assert DISCARDED in study.trials()[1].user_attrs


def test_of_too_many_trials_the_last_are_discarded(study):
    for rate in RATES[:3]:
        study.queue({"learning_rate": rate})
    assert [trial.number for trial in begin(study, room=3, num_trials=2)] == [0, 1]
    assert states(study) == ["RUNNING", "RUNNING", "FAIL"]


def test_a_queue_that_another_process_has_emptied_is_filled_again(study, monkeypatch):
    queue, calls = studies.Study.queue, []

    def queue_second(*arguments):
        calls.append(arguments)
        if len(calls) > 1:  # the first is taken by another process
            queue(*arguments)

    monkeypatch.setattr(studies.Study, "queue", queue_second)
    assert [trial.number for trial in begin(study, num_trials=1)] == [1]
    assert states(study) == ["FAIL", "RUNNING"]


def test_an_ended_trial_is_not_ended_again(study):
    trial = begin(study)[0]
    study.end(trial, TrialState.COMPLETE, 1.0)
    with pytest.raises(studies.UpdateFinishedTrialError):
        study.end(trial, TrialState.PRUNED)
    assert states(study) == ["COMPLETE"]


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({"seeds": 2}, "seeds is 1 there and 2 here"),
        ({"agent": "bdqn"}, "agent is 'qr_dqn' there and 'bdqn' here"),
        ({"learning_rate": (1e-3, 1e-4)}, r"parameters\.learning_rate.* is .* there and"),
    ],
)
def test_another_search_is_not_resumed(tmp_path, study, changed, shown):
    with pytest.raises(InputError, match=shown):
        open_study(tmp_path, None, "tiny", problem(**changed), resume=True)


def test_a_study_of_another_version_is_not_resumed(tmp_path, study):
    with pytest.raises(InputError, match=r"version is .* there and '99\.0' here"):
        open_study(tmp_path, None, "tiny", replace(problem(), version="99.0"), resume=True)


def test_a_study_is_not_begun_twice(tmp_path, study):
    with pytest.raises(InputError, match=r"study tiny exists in .*; .*--resume"):
        open_study(tmp_path, None, "tiny", problem(), resume=False)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("study.db", "need a storage such as sqlite:///study.db"),
        ("sqlite:////no/such/folder/study.db", "unable to open database file"),
        ("sqlite:////no/such/{folder}/study.db", "unable to open database file"),
        ("postgresql+psycopg://me:secret@127.0.0.1:1/x", r"me:\*\*\*@127.0.0.1:1/x: connection"),
        ("mysql://me@127.0.0.1/x", "need a driver for the storage mysql://me@127.0.0.1/x"),
    ],
)
def test_an_unreachable_storage_is_one_line(tmp_path, url, shown):
    with pytest.raises(InputError, match=shown) as error:
        open_study(tmp_path, url, "tiny", problem(), resume=False)
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_search_goes_on_at_once(tmp_path, stop):
    """The first trial is complete, the second in progress; the first is not run again."""

    def interrupt(shown, _):
        if "complete" in shown and "running" in shown:
            raise stop

    found = population(tmp_path, wanted=4, lanes=1, progress=interrupt)
    with pytest.raises(stop):
        found.run()
    before = [t for t in found.study.trials() if t.state == TrialState.COMPLETE]
    assert len(before) == 1
    begin = time.monotonic()
    population(tmp_path, wanted=4, lanes=1, resume=True).run()
    trials = load_study(tmp_path).trials()
    ended = [t for t in trials if t.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    assert len({t.params["learning_rate"] for t in ended}) == len(ended) == 4
    assert ended[0].datetime_complete == before[0].datetime_complete
    assert time.monotonic() - begin < 60


def test_a_trial_that_another_process_took_for_dead_is_dropped(tmp_path):
    notes = []

    def take(shown, _):
        if "running" in shown and not notes:
            found.study.requeue(next(iter(found.in_progress.values())).trial)

    found = population(tmp_path, wanted=2, lanes=1, progress=take, notice=notes.append)
    found.run()
    assert any("was requeued by another process" in note for note in notes)
    assert states(found.study).count("FAIL") >= 1
    assert sum(map(is_counted, found.study.trials())) == 2


def test_nobody_finds_half_of_the_tables_of_a_new_study(tmp_path):
    """Optuna creates them one by one; a reader that opens the file meanwhile would create some."""
    file, counts, ended = tmp_path / "study.db", set(), threading.Event()

    def look():
        while not ended.is_set():
            if file.exists():
                with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
                    counts.add(database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])

    reader = threading.Thread(target=look)
    reader.start()
    open_study(tmp_path, None, "tiny", problem(), resume=False)
    time.sleep(0.1)
    ended.set()
    reader.join()
    assert len(counts) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["study.db"]
