"""A search that is killed in the middle ends with as many trials, none lost and none twice."""

import signal

import pytest
from optuna.trial import TrialState

from process_helpers import finish, wait_for
from search.processes import TRIALS, environment, searching
from winkel.errors import InputError
from winkel.search import claims
from winkel.search.storage import load_study

ENDED = (TrialState.COMPLETE, TrialState.PRUNED)


def trials_of(out):
    try:
        return load_study(out).trials()
    except InputError:  # not begun
        return []


def ended(trials):
    return {(t.number, t.datetime_complete) for t in trials if t.state in ENDED}


def wait_until_in_the_middle(shared, enough, process):
    """Some trials have ended, and one has been looked at once and goes on."""

    def is_there():
        trials = shared.trials()
        running = [t for t in trials if t.state == TrialState.RUNNING]
        halfway = any(len(t.intermediate_values) == 1 for t in running)
        return len(ended(trials)) >= enough and halfway

    wait_for(is_there, process)


@pytest.mark.long
@pytest.mark.parametrize("kills", [1, 3])
def test_killed_in_the_middle(tmp_path, kills):
    env, out, gate = environment(tmp_path / "programs"), tmp_path / "study", tmp_path / "gate"
    gate.touch()
    kept, left = set(), set()
    for number in range(kills):
        process = searching(env, out, gate)
        wait_for(lambda: trials_of(out), process)
        wait_until_in_the_middle(load_study(out), 2 * number + 1, process)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        trials = trials_of(out)
        assert kept <= ended(trials)
        kept = ended(trials)
        assert len(kept) < TRIALS
        left |= {t.number for t in trials if t.state == TrialState.RUNNING}
    assert left
    output = finish(searching(env, out, gate))
    assert f"{TRIALS} trials" in output
    trials = trials_of(out)
    counted = [t for t in trials if claims.counts(t, trials)]
    rates = [t.params["learning_rate"] for t in counted]
    assert len(ended(counted)) == len(counted) == len(set(rates)) == TRIALS
    assert kept <= ended(trials)
    died = {t.number: claims.configuration(t) for t in trials if t.user_attrs.get(claims.DIED)}
    assert set(died) == left
    assert {found["learning_rate"] for found in died.values()} <= set(rates)
    assert all(t.state.is_finished() for t in trials)
