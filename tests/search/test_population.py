"""A population of trials in lanes: pruning by counted updates, programs, seeds, simulators."""

import math

import pytest
from optuna.trial import TrialState

from helpers import compilations
from search.tiny import CHUNK, EPISODES, FIELDS, LENGTH, RATES, SEA, population, problem
from winkel.errors import InputError
from winkel.runs.train import make_lanes
from winkel.search.population import TrialInProgress
from winkel.search.problem import Problem, SearchEnvironment, parse_parameter
from winkel.training.lanes import Lanes

WHOLE, SHORT = EPISODES * LENGTH - FIELDS["burn_in"], CHUNK
"""Updates of a run to its end, and of one that stops at T/5 = 2 episodes: a chunk."""


@pytest.fixture
def scripted(monkeypatch):
    """Score a trial by its learning rate at every milestone; prune from the third trial on."""
    monkeypatch.setattr("winkel.search.population.STARTUP", 2)
    monkeypatch.setattr(TrialInProgress, "score", lambda t, *_: t.trial.params["learning_rate"])


def queue(folder, rates, **options):
    found = population(folder, wanted=len(rates), **options)
    for rate in rates:
        found.study.queue({"learning_rate": rate})
    return found


def states(found):
    return [t.state.name for t in found.study.trials()]


def updates(found):
    return [t.user_attrs["updates"] for t in found.study.trials()]


def test_a_trial_below_the_median_stops_at_the_first_milestone(tmp_path, scripted):
    """One lane: the third is below the median 2.5 of the two before it, the fifth below 3."""
    rates = [RATES[i] for i in (2, 1, 0, 3, 4)]
    shown = []
    found = queue(tmp_path, rates, lanes=1, progress=lambda *now: shown.append(now))
    found.run()
    assert states(found) == ["COMPLETE", "COMPLETE", "PRUNED", "COMPLETE", "COMPLETE"]
    assert updates(found) == [WHOLE, WHOLE, SHORT, WHOLE, WHOLE]
    assert found.updates == 4 * WHOLE + SHORT
    assert shown[-1] == ("4 complete, 1 pruned, best trial 4: 0.0005", 1.0)


def test_the_next_trial_takes_the_lane_of_a_pruned_one(tmp_path, scripted, monkeypatch):
    """Two lanes: the third and fourth begin together; the fifth takes the lane of the third."""
    seen = []
    advance = Lanes.advance

    def watched(lanes):
        reports = advance(lanes)
        seen.append(lanes.row.running)
        return reports

    monkeypatch.setattr(Lanes, "advance", watched)
    rates = [RATES[i] for i in (2, 1, 0, 3, 4)]
    found = queue(tmp_path, rates, lanes=2)
    found.run()
    chunks = -(-WHOLE // CHUNK)
    assert seen[0] == {0: 0, 1: 1}
    assert seen[chunks] == {0: 0, 1: 1}  # new lanes: the ones before had no run left
    assert seen[chunks + 1] == {2: 0, 1: 1}
    assert states(found)[2] == "PRUNED"
    assert updates(found) == [WHOLE, WHOLE, SHORT, WHOLE, WHOLE]
    assert len(seen) == 2 * chunks + 1  # the last ran a chunk longer than its neighbour


def test_nothing_is_pruned_where_that_is_off(tmp_path, scripted):
    rates = [RATES[i] for i in (2, 1, 0)]
    found = queue(tmp_path, rates, lanes=1, of=problem(prune=False))
    found.run()
    assert states(found) == ["COMPLETE"] * 3


def test_a_pruned_trial_does_not_train_in_the_next_environment(tmp_path, scripted):
    of = problem(SEA, f"deep_sea_stochastic:size={LENGTH}@{EPISODES}")
    found = queue(tmp_path, [RATES[i] for i in (2, 1, 0)], lanes=1, of=of)
    found.run()
    steps = [sorted(t.intermediate_values) for t in found.study.trials()]
    assert steps == [list(range(1, 11)), list(range(1, 11)), [1]]
    assert updates(found) == [2 * WHOLE, 2 * WHOLE, SHORT]


def test_all_seeds_of_a_trial_end_together(tmp_path, scripted):
    """Two seeds, one lane: the second seed of a trial waits in the queue of the lanes."""
    found = queue(tmp_path, [RATES[i] for i in (2, 1, 0)], lanes=1, of=problem(seeds=2))
    found.run()
    assert states(found) == ["COMPLETE", "COMPLETE", "PRUNED"]
    assert updates(found)[:2] == [2 * WHOLE, 2 * WHOLE]
    assert updates(found)[2] == WHOLE + SHORT  # a milestone needs all seeds


def test_trials_that_differ_in_numbers_share_a_program(tmp_path):
    found = population(tmp_path / "warm", wanted=2)
    found.run()
    found = population(tmp_path / "found", wanted=6)
    with compilations() as compiled:
        found.run()
    assert not compiled


@pytest.mark.long
def test_each_shape_has_a_program_of_its_own(tmp_path, monkeypatch):
    agents = set()

    def watched(spec, *arguments, **named):
        agents.add(spec.agent)
        return make_lanes(spec, *arguments, **named)

    monkeypatch.setattr("winkel.search.population.make_lanes", watched)
    of = problem(hidden=((8,), (4,)), learning_rate=RATES[:3])
    found = population(tmp_path, wanted=6, of=of)
    found.run()
    assert len(agents) == 2
    assert set(states(found)) <= {"COMPLETE", "PRUNED"}
    assert len(states(found)) == 6


def test_a_trial_whose_loss_is_not_finite_fails_and_stops_nothing(tmp_path):
    of = problem(learning_rate=(1e-3, 1e38))
    notes = []
    found = population(tmp_path, wanted=2, of=of, notice=notes.append)
    found.run()
    assert sorted(states(found)) == ["COMPLETE", "FAIL"]
    failed = next(t for t in found.study.trials() if t.state == TrialState.FAIL)
    assert "the loss was" in failed.user_attrs["reason"]
    assert any("failed: the loss was" in note for note in notes)


def test_more_trials_than_configurations_are_refused():
    with pytest.raises(InputError, match=r"need trials <= 8, .* got 9"):
        problem().check(9)


def test_in_a_simulator_trials_run_one_after_the_other(tmp_path):
    cart = SearchEnvironment(id="gym:CartPole-v1", episodes=None, steps=400, score="interactions")
    never = {"burn_in": 1_000}
    fields = {"hidden": (8,), "batch_size": 8, "capacity": 64, "num_members": 2} | never
    rates = parse_parameter("bdqn", "learning_rate", [1e-3, 1e-4], "")
    of = Problem(
        agent="bdqn",
        parameters={"learning_rate": rates},
        environments=[cart],
        prune=False,
        seeds=2,
        fields=fields,
    )
    found = population(tmp_path, wanted=2, of=of)
    assert found.size == 1
    found.run()
    assert states(found) == ["COMPLETE"] * 2
    for trial in found.study.trials():
        scores = [trial.intermediate_values[step] for step in range(1, 6)]
        known = [score for score in scores if score > -math.inf]  # −∞ before the first episode ends
        assert known == sorted(known, reverse=True)
        assert all(score >= -80 * k for k, score in enumerate(scores, start=1) if score in known)
        assert scores[-1] < -200  # of 400 steps, those of the episodes that had ended
