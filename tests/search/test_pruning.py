"""Pruning by the median, in the rule and in the lanes."""

import math

import pytest
from optuna.trial import TrialState

from helpers import compilations
from search.tiny import CHUNK, EPISODES, FIELDS, LENGTH, RATES, SEA, population, problem
from winkel.search.flights import Flight
from winkel.search.pruning import is_below_median, standing, step_of
from winkel.training.lanes import Lanes

STEPS = EPISODES * LENGTH
WHOLE = -(-(STEPS - FIELDS["burn_in"]) // CHUNK) * CHUNK
"""Updates of a run to its end, and of one that stops at T/5 = 2 episodes: a chunk."""
SHORT = CHUNK


def test_the_rule_by_hand():
    assert is_below_median(1.0, [0.0, 2.0, 3.0], startup=3)
    assert not is_below_median(2.0, [0.0, 2.0, 3.0], startup=3)
    assert not is_below_median(1.0, [2.0, 3.0], startup=3)
    assert not is_below_median(1.0, [-math.inf, -math.inf, 3.0], startup=3)
    assert is_below_median(-math.inf, [0.0], startup=1)


def test_those_that_were_stopped_count_as_lower_in_their_environment():
    stopped = {step_of(0, look): 5.0 for look in range(1, 6)} | {step_of(1, 1): 2.0}
    assert standing(stopped, step_of(1, 1), stopped=True) == 2.0
    assert standing(stopped, step_of(1, 2), stopped=True) == -math.inf
    assert standing(stopped, step_of(2, 1), stopped=True) is None
    assert standing(stopped, step_of(1, 2), stopped=False) is None
    assert standing(stopped, step_of(0, 3), stopped=True) == 5.0
    assert standing({}, step_of(0, 1), stopped=True) is None


@pytest.fixture
def scripted(monkeypatch):
    """A trial's score is its learning rate, at every look."""

    def look(flight, problem):
        flight.looks += 1
        return flight.values["learning_rate"]

    monkeypatch.setattr(Flight, "look", look)


def enqueued(folder, rates, **options):
    found = population(folder, wanted=len(rates), startup=2, **options)
    for rate in rates:
        found.shared.enqueue({"learning_rate": rate})
    return found


def states(found):
    return [t.state.name for t in found.shared.trials()]


def updates(found):
    return [t.user_attrs["updates"] for t in found.shared.trials()]


def test_a_trial_below_the_median_stops_at_the_first_look(tmp_path, scripted):
    """One lane: the third is below the median 2.5 of the two before it, the fifth below 3."""
    rates = [RATES[i] for i in (2, 1, 0, 3, 4)]
    found = enqueued(tmp_path, rates, lanes=1)
    standing = found.run()
    assert states(found) == ["COMPLETE", "COMPLETE", "PRUNED", "COMPLETE", "COMPLETE"]
    assert updates(found) == [WHOLE, WHOLE, SHORT, WHOLE, WHOLE]
    assert standing.updates == 4 * WHOLE + SHORT
    assert (standing.complete, standing.pruned, standing.programs) == (4, 1, 1)


def test_its_lane_is_taken_by_the_next(tmp_path, scripted, monkeypatch):
    """Two lanes: the third and fourth begin together; the fifth takes the lane of the third."""
    seen = []
    advance = Lanes.advance

    def watched(lanes):
        reports = advance(lanes)
        seen.append(dict(lanes.running))
        return reports

    monkeypatch.setattr(Lanes, "advance", watched)
    rates = [RATES[i] for i in (2, 1, 0, 3, 4)]
    found = enqueued(tmp_path, rates, lanes=2)
    found.run()
    chunks = WHOLE // CHUNK
    assert seen[0] == {0: 0, 1: 1}
    assert seen[chunks] == {0: 0, 1: 1}  # a new pool: the one before had no run left
    assert seen[chunks + 1] == {2: 0, 1: 1}
    assert states(found)[2] == "PRUNED"
    assert updates(found) == [WHOLE, WHOLE, SHORT, WHOLE, WHOLE]
    assert len(seen) == 2 * chunks + 1  # the last ran a chunk longer than its neighbour


def test_nothing_is_pruned_where_that_is_off(tmp_path, scripted):
    rates = [RATES[i] for i in (2, 1, 0)]
    found = enqueued(tmp_path, rates, lanes=1, of=problem(prune=False))
    found.run()
    assert states(found) == ["COMPLETE"] * 3


def test_a_pruned_trial_never_sees_the_next_environment(tmp_path, scripted):
    of = problem(SEA, f"deep_sea_stochastic:size={LENGTH}@{EPISODES}")
    found = enqueued(tmp_path, [RATES[i] for i in (2, 1, 0)], lanes=1, of=of)
    found.run()
    looks = [sorted(t.intermediate_values) for t in found.shared.trials()]
    assert looks == [list(range(1, 11)), list(range(1, 11)), [1]]
    assert updates(found) == [2 * WHOLE, 2 * WHOLE, SHORT]


def test_seeds_of_a_trial_leave_together_queued_or_not(tmp_path, scripted):
    """Two seeds, one lane: the second seed of a trial waits in the queue, and is looked at too."""
    found = enqueued(tmp_path, [RATES[i] for i in (2, 1, 0)], lanes=1, of=problem(seeds=2))
    found.run()
    assert states(found) == ["COMPLETE", "COMPLETE", "PRUNED"]
    assert updates(found)[:2] == [2 * WHOLE, 2 * WHOLE]
    assert updates(found)[2] == WHOLE + SHORT  # nothing is due until its last seed has come so far


def test_trials_that_differ_in_numbers_share_a_program(tmp_path):
    found = population(tmp_path / "warm", wanted=2)
    found.run()
    found = population(tmp_path / "found", wanted=6)
    with compilations() as compiled:
        found.run()
    assert not {name for name, _ in compiled} & {"begin", "advance"}
    assert len(found.pools.programs) == 1


@pytest.mark.long
def test_each_shape_has_a_program_of_its_own(tmp_path):
    of = problem(hidden=((8,), (4,)), learning_rate=RATES[:3])
    found = population(tmp_path, wanted=6, of=of)
    standing = found.run()
    assert standing.programs == 2
    assert standing.complete + standing.pruned == 6


def test_a_trial_whose_loss_is_not_finite_fails_and_stops_nothing(tmp_path):
    of = problem(learning_rate=(1e-3, 1e38))
    notes = []
    found = population(tmp_path, wanted=2, of=of, notice=notes.append)
    standing = found.run()
    assert (standing.complete, standing.failed) == (1, 1)
    failed = next(t for t in found.shared.trials() if t.state == TrialState.FAIL)
    assert "the loss was" in failed.user_attrs["reason"]
    assert any("failed: the loss was" in note for note in notes)
