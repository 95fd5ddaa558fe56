"""A search that is killed and resumed makes as many trials, none lost and none twice."""

import signal

import pytest
from optuna.trial import TrialState

from process_helpers import finish, wait_for
from search.processes import TRIALS, start_search
from winkel.errors import InputError
from winkel.search.study import DISCARDED, is_counted, load_study

ENDED = (TrialState.COMPLETE, TrialState.PRUNED)


def read_trials(out):
    try:
        return load_study(out).trials()
    except InputError:  # not begun
        return []


def ended(trials):
    return {(t.number, t.datetime_complete) for t in trials if t.state in ENDED}


def wait_until_in_the_middle(study, enough, process):
    """Wait until some trials have ended, and another has reached its first milestone."""

    def is_there():
        trials = study.trials()
        running = [t for t in trials if t.state == TrialState.RUNNING]
        halfway = any(len(t.intermediate_values) == 1 for t in running)
        return len(ended(trials)) >= enough and halfway

    wait_for(is_there, process)


@pytest.mark.long
@pytest.mark.parametrize("kills", [1, 3])
def test_killed_in_the_middle(tmp_path, kills):
    out, gate = tmp_path / "study", tmp_path / "gate"
    gate.touch()
    kept, left = set(), set()
    for number in range(kills):
        process = start_search(out, gate, *(["--resume"] if number else []))
        wait_for(lambda: read_trials(out), process)
        wait_until_in_the_middle(load_study(out), 2 * number + 1, process)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        trials = read_trials(out)
        assert kept <= ended(trials)
        kept = ended(trials)
        assert len(kept) < TRIALS
        left |= {t.number for t in trials if t.state == TrialState.RUNNING}
    assert left
    output = finish(start_search(out, gate, "--resume"))
    assert f"{TRIALS} trials" in output
    trials = read_trials(out)
    counted = [t for t in trials if is_counted(t)]
    rates = [t.params["learning_rate"] for t in counted]
    assert len(ended(counted)) == len(counted) == len(set(rates)) == TRIALS
    assert kept <= ended(trials)
    died = [t for t in trials if not is_counted(t) and DISCARDED not in t.user_attrs]
    assert {t.number for t in died} == left
    assert {t.params["learning_rate"] for t in died if t.params} <= set(rates)
    assert all(t.state.is_finished() for t in trials)
