"""Trials of processes that died, and of processes that ask at once."""

import time

import pytest
from optuna.trial import TrialState

from search.tiny import CHUNK, RATES, population, problem
from winkel.errors import InputError
from winkel.search import claims, storage
from winkel.search.claims import Process, counts, superfluous, take_up
from winkel.search.pools import Pools
from winkel.search.storage import load_study, open_study
from winkel.search.suggest import distributions, suggest

SPACE = distributions(problem().space.parameters)


@pytest.fixture
def shared(tmp_path):
    return open_study(tmp_path, None, "tiny", problem().identity(), resume=False)


def popped(shared):
    """The next trial of the queue, as if a process had claimed it and not put its name on it."""
    queued = next(t for t in shared.trials() if t.state == TrialState.WAITING)
    return shared.claim(queued, SPACE)


def handed_out(shared, rate, process):
    shared.enqueue({"learning_rate": rate})
    trial = popped(shared)
    trial.set_user_attr(claims.PROCESS, process.name)
    return trial


def counted(shared):
    trials = shared.trials()
    return [t.number for t in trials if counts(t, trials)]


def test_a_living_process_keeps_its_trials(shared):
    process = Process(shared)
    handed_out(shared, RATES[0], process)
    assert take_up(shared) == 0
    assert shared.trials()[0].state == TrialState.RUNNING
    process.close()


def test_a_dead_process_leaves_its_configurations(shared):
    process = Process(shared)
    handed_out(shared, RATES[3], process)
    process.close()
    assert take_up(shared) == 1
    assert take_up(shared) == 0
    old, new = shared.trials()
    assert (old.state, new.state) == (TrialState.FAIL, TrialState.WAITING)
    assert counted(shared) == [1]
    trial = popped(shared)
    assert (trial.number, trial.params) == (1, {"learning_rate": RATES[3]})
    assert superfluous(shared.trials()[1], shared.trials(), wanted=1) is None


def test_one_that_died_between_two_steps_of_taking_up_loses_nothing(shared):
    """The trial is ended, and its successor was not queued yet."""
    process = Process(shared)
    trial = handed_out(shared, RATES[3], process)
    process.close()
    trial.set_user_attr(claims.DIED, True)
    shared.end(0, TrialState.FAIL)
    assert counted(shared) == [0]
    take_up(shared)
    assert counted(shared) == [1]


def test_two_successors_of_one_trial_are_not_both_begun(shared):
    process = Process(shared)
    handed_out(shared, RATES[3], process)
    process.close()
    take_up(shared)
    shared.enqueue({"learning_rate": RATES[3]}, {claims.SUCCESSOR: 0})  # of another process
    popped(shared)
    popped(shared)
    trials = shared.trials()
    assert [superfluous(t, trials, wanted=9) for t in trials[1:]] == [None, claims.DUPLICATE]


def test_no_more_trials_than_wanted_are_begun(shared):
    for rate in RATES[:3]:
        shared.enqueue({"learning_rate": rate})
        popped(shared)
    trials = shared.trials()
    assert [superfluous(t, trials, wanted=2) for t in trials] == [None, None, claims.SURPLUS]


def test_a_trial_without_a_name_is_waited_for(shared, monkeypatch):
    shared.enqueue({"learning_rate": RATES[0]})
    popped(shared)
    assert take_up(shared) == 0
    monkeypatch.setattr(claims, "NAMELESS", 0.0)
    assert take_up(shared) == 1
    assert shared.trials()[1].system_attrs["fixed_params"] == {"learning_rate": RATES[0]}


def test_another_machine_is_known_by_its_signs_of_life(shared, monkeypatch):
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(claims, "_machine", lambda: "elsewhere")
        process = Process(shared)
        process.close()
    assert claims.is_alive(process.name, shared)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + claims.GRACE + 1)
    assert not claims.is_alive(process.name, shared)


def test_no_configuration_is_suggested_twice(shared):
    for _ in RATES:
        shared.enqueue(*suggest(SPACE, shared.trials(), 1, seed=0))
    kept = [t.system_attrs["fixed_params"]["learning_rate"] for t in shared.trials()]
    assert sorted(kept) == sorted(RATES)


def test_suggestions_follow_from_the_seed(shared):
    assert suggest(SPACE, [], 1, seed=3) == suggest(SPACE, [], 1, seed=3)
    drawn = {tuple(suggest(SPACE, [], 1, seed=seed)[0].values()) for seed in range(12)}
    assert len(drawn) > 2


def test_a_batch_has_no_configuration_twice_and_none_that_was_tried(shared):
    shared.enqueue({"learning_rate": RATES[2]})
    batch = suggest(SPACE, shared.trials(), 1, seed=0, count=len(RATES) - 1)
    assert sorted(kept["learning_rate"] for kept in batch) == sorted({*RATES} - {RATES[2]})


def test_what_another_process_was_handed_is_not_claimed(shared):
    """Both had read the queue before either claimed."""
    for rate in RATES[:2]:
        shared.enqueue({"learning_rate": rate})
    first, second = shared.trials()
    assert shared.claim(first, SPACE).params == {"learning_rate": RATES[0]}
    assert shared.claim(first, SPACE) is None
    shared.claim(second, SPACE)
    shared.end(1, TrialState.FAIL)
    assert shared.claim(second, SPACE) is None


def test_more_trials_than_configurations_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"need trials <= 8, .* got 9"):
        population(tmp_path, wanted=9)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_search_goes_on(tmp_path, monkeypatch, stop):
    """The first trial is complete, the second under way; nothing of the first is done again."""
    advance, calls = Pools.tidy, []

    def interrupt(pools):
        calls.append(1)
        if len(calls) == 7:
            raise stop
        advance(pools)

    with monkeypatch.context() as patched:
        patched.setattr(Pools, "tidy", interrupt)
        found = population(tmp_path, wanted=4, lanes=1)
        with pytest.raises(stop):
            found.run()
    before = [t for t in found.shared.trials() if t.state == TrialState.COMPLETE]
    assert len(before) == 1
    standing = population(tmp_path, wanted=4, lanes=1, resume=True).run()
    assert standing.complete + standing.pruned == 4
    trials = load_study(tmp_path).trials()
    ended = [t for t in trials if t.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    assert len({t.params["learning_rate"] for t in ended}) == len(ended) == 4
    assert ended[0].datetime_complete == before[0].datetime_complete


def test_environments_that_a_dead_trial_had_been_through_are_not_repeated(tmp_path):
    of = problem("deep_sea:size=5@10", "deep_sea_stochastic:size=5@10")
    found = population(tmp_path, wanted=1, of=of)
    process = Process(found.shared)
    trial = handed_out(found.shared, RATES[0], process)
    for step in range(1, 8):
        trial.report(float(step), step)
    process.close()
    found.run()
    died, done = found.shared.trials()
    assert died.user_attrs[claims.DIED]
    assert done.state == TrialState.COMPLETE
    assert [done.intermediate_values[step] for step in range(1, 6)] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert done.user_attrs["steps"] == 8 + 5 * CHUNK  # of the second environment alone


def test_a_trial_that_was_taken_up_elsewhere_is_left_there(tmp_path, monkeypatch):
    """Such as by a machine that took this one for dead."""
    tidy, notes = Pools.tidy, []
    found = population(tmp_path, wanted=2, lanes=1, notice=notes.append)

    def take(pools):
        if found.flights and not notes:
            trial = found.shared.trials()[0]
            if trial.state == TrialState.RUNNING:
                found.shared.end(0, TrialState.FAIL)
        tidy(pools)

    monkeypatch.setattr(Pools, "tidy", take)
    found.run()
    assert any("was taken up by another process" in note for note in notes)
    assert found.shared.trials()[0].value is None


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({"seeds": 2}, "seeds is 1 there and 2 here"),
        ({"agent": "bdqn"}, "agent is 'pe_dqn' there and 'bdqn' here"),
        ({"learning_rate": (1e-3, 1e-4)}, "space.parameters is .* there and"),
    ],
)
def test_another_search_is_not_resumed(tmp_path, shared, changed, shown):
    with pytest.raises(InputError, match=shown):
        open_study(tmp_path, None, "tiny", problem(**changed).identity(), resume=True)


def test_a_study_of_another_version_is_not_resumed(tmp_path, shared, monkeypatch):
    monkeypatch.setattr(storage, "__version__", "99.0")
    with pytest.raises(InputError, match=r"version is .* there and '99\.0' here"):
        open_study(tmp_path, None, "tiny", problem().identity(), resume=True)


def test_a_study_is_not_begun_twice(tmp_path, shared):
    with pytest.raises(InputError, match=r"study tiny is in .* already; .*--resume"):
        open_study(tmp_path, None, "tiny", problem().identity(), resume=False)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("study.db", "need a storage such as sqlite:///study.db"),
        ("sqlite:////no/such/folder/study.db", "unable to open database file"),
        ("postgresql+psycopg://me:secret@127.0.0.1:1/x", r"me:\*\*\*@127.0.0.1:1/x: connection"),
        ("mysql://me@127.0.0.1/x", "need a driver for the storage mysql://me@127.0.0.1/x"),
    ],
)
def test_an_unreachable_storage_is_one_line(tmp_path, url, shown):
    with pytest.raises(InputError, match=shown) as error:
        open_study(tmp_path, url, "tiny", {}, resume=False)
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)


def test_a_folder_without_a_study(tmp_path):
    with pytest.raises(InputError, match=r"holds no study: no study\.json"):
        load_study(tmp_path)
