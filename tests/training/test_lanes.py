"""Runs side by side: what a run does depends on nothing but itself."""

import jax
import numpy as np
import pytest

from helpers import compilations
from training.chance import (
    AGENT,
    BURN_IN,
    CHUNK,
    LENGTH,
    TASK,
    Course,
    Dice,
    courses,
    make_lanes,
    plan,
)
from winkel.training.steps import Horizon

PROGRAMS = ("begin", "advance", "evaluate", "survey")


def alone(one, num_lanes=3):
    return courses([one], num_lanes)[0]


def leaves(tree):
    bare = [jax.random.key_data(leaf) if is_key(leaf) else leaf for leaf in jax.tree.leaves(tree)]
    return [np.asarray(leaf) for leaf in bare]


def is_key(leaf):
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def assert_same_state(left, right, tolerance=0.0):
    for a, b in zip(leaves(left), leaves(right), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def assert_same_course(left, right, tolerance=0.0):
    np.testing.assert_equal(left.episodes, right.episodes)
    for a, b in zip(left.reports, right.reports, strict=True):
        assert without_arrays(a) == without_arrays(b)
        assert a.metrics.keys() == b.metrics.keys()
        np.testing.assert_allclose([*a.metrics.values()], [*b.metrics.values()], rtol=tolerance)
    for a, b in zip(left.states, right.states, strict=True):
        assert_same_state(a, b, tolerance)


def without_arrays(report):
    return report._replace(run=0, episodes={}, metrics={})


COMPANY = (
    {"seed": 3},
    {"seed": 1, "learning_rate": 3e-3, "gamma": 0.5, "beta": 0.0, "prior_scale": 3.0},
    {"seed": 2, "episodes": 11, "beta_decay": 1.0, "z_max": 4.0},
)


@pytest.fixture(scope="module")
def compiled():
    """Programs that a first simple run compiled."""
    with compilations() as found:
        look_at(make_lanes([plan()], 3))
    return [name for name, _ in found if name in PROGRAMS]


@pytest.fixture(scope="module")
def company(compiled):
    return courses([plan(**one) for one in COMPANY], 3)


@pytest.mark.parametrize("which", range(3))
def test_a_run_is_the_same_alone_and_in_company(company, which):
    """Bit by bit; its neighbours' seeds, hyperparameters and horizons do not matter."""
    assert_same_course(alone(plan(**COMPANY[which])), company[which])


@pytest.mark.parametrize("which", range(3))
def test_the_number_of_lanes_changes_nothing_but_rounding(company, which):
    """XLA compiles another program for another number of lanes, which rounds otherwise."""
    one = alone(plan(**COMPANY[which]), num_lanes=1)
    assert_same_course(one, company[which], tolerance=1e-6)


def test_it_does_not_matter_which_lane(company):
    turned = courses([plan(**COMPANY[i]) for i in (1, 2, 0)], 3)
    for course, i in zip(turned, (1, 2, 0), strict=True):
        assert_same_course(course, company[i])


def test_a_run_that_waited_in_the_queue_is_the_same_run(company):
    """Five runs through three lanes; short ones make room at different chunks."""
    short = [plan(seed=7, episodes=2), plan(seed=8, episodes=9)]
    queued = courses([*short, *(plan(**one) for one in COMPANY)], 3)
    for course, one in zip(queued[2:], company, strict=True):
        assert_same_course(course, one)
    for course, one in zip(queued, short, strict=False):
        assert_same_course(course, alone(one))


def test_runs_are_taken_from_the_queue_as_lanes_become_free():
    lanes = make_lanes([plan(seed=s, episodes=9) for s in range(4)], 3)
    assert lanes.running == []
    told = []
    while reports := lanes.advance():
        told.append([(r.run, lanes.row.running[r.run]) for r in reports])
        for report in reports:
            if report.finished:
                lanes.release(report.run)
    together, last = [(0, 0), (1, 1), (2, 2)], [(3, 0)]
    assert told == [together] * 3 + [last] * 3
    assert lanes.running == []


@pytest.mark.parametrize("chunk", range(4))
def test_a_saved_run_goes_on_as_if_it_had_not_stopped(company, chunk):
    """In another lane and in other company."""
    saved = company[0].states[chunk]
    rest = Course(company[0].reports[chunk + 1 :], company[0].states[chunk + 1 :])
    resumed = courses([plan(seed=9), plan(seed=3, saved=saved), plan(seed=8)], 3)
    assert_same_course(resumed[1], rest)
    for course, seed in zip(resumed[::2], (9, 8), strict=True):
        assert_same_course(course, alone(plan(seed=seed)))


def test_a_saved_run_that_waits_for_a_lane_goes_on_as_if_it_had_not_stopped(company):
    saved = company[0].states[2]
    rest = Course(company[0].reports[3:], company[0].states[3:])
    others = [plan(seed=s, episodes=4) for s in (5, 6, 7)]
    assert_same_course(courses([*others, plan(seed=3, saved=saved)], 3)[3], rest)


def test_seeds_differ(company):
    """In what they begin with, in their keys, and in what happens."""
    other = alone(plan(seed=4))
    first, second = (course.states[0] for course in (company[0], other))
    for a, b in zip(leaves(first.learner.params), leaves(second.learner.params), strict=True):
        assert not np.array_equal(a, b)
    assert not np.array_equal(*(jax.random.key_data(run.key) for run in (first, second)))
    assert not np.array_equal(company[0].episodes["visited"], other.episodes["visited"])
    assert company[0].reports[0].metrics["loss"] != other.reports[0].metrics["loss"]


def test_every_step_throws_new_dice():
    """For the action, the batch and the update; and no two of them share a throw."""
    (course,) = courses([plan(seed=1)], 1, Dice(), chunk_steps=1)
    updates = [report.metrics["loss"] for report in course.reports]
    batches = [report.metrics["index"] for report in course.reports]
    actions = [float(state.actor) for state in course.states]
    steps = len(course.reports)
    assert steps == 24 * LENGTH - BURN_IN
    assert len({*updates, *actions}) == 2 * steps
    assert len(set(batches)) > steps / 3
    assert 0.35 < np.mean(updates) < 0.65
    assert len({tuple(row) for row in course.states[-1].visits if row.sum() > 9}) > 1


def test_it_does_not_matter_where_chunks_end():
    (small,), (large,) = (courses([plan()], 1, Dice(), chunk_steps=n) for n in (1, 8))
    np.testing.assert_equal(small.episodes, large.episodes)
    for chunk, state in enumerate(large.states):
        assert_same_state(small.states[8 * chunk + 7], state)


@pytest.mark.parametrize("episodes", [1, 2, 7, 11, 12])
def test_records_end_with_the_last_episode_of_the_horizon(episodes):
    course = alone(plan(episodes=episodes))
    table = course.episodes
    assert {len(values) for values in table.values()} == {episodes}
    np.testing.assert_array_equal(table["length"], LENGTH)
    np.testing.assert_array_equal(table["env_steps"], np.cumsum(table["length"]))
    assert set(table) == {"return", "length", "env_steps", "visited", "bad", "treasure"}
    last = course.reports[-1]
    assert [report.finished for report in course.reports] == [False] * (len(course.reports) - 1) + [
        True
    ]
    assert (last.num_episodes, last.share_done) == (episodes, 1.0)
    chunks = -(-max(episodes * LENGTH - BURN_IN, 1) // CHUNK)
    assert len(course.reports) == chunks


@pytest.mark.parametrize("steps", [1, 4, 5, 8, 24, 39, 40, 41])
def test_records_end_with_the_last_step_of_the_horizon(steps):
    course = alone(plan(episodes=None, steps=steps))
    np.testing.assert_array_equal(
        course.episodes["env_steps"], np.arange(LENGTH, steps + 1, LENGTH)
    )
    assert course.reports[-1].env_steps == steps
    assert course.reports[-1].finished
    assert len(course.reports) == -(-max(steps - BURN_IN, 1) // CHUNK)


@pytest.mark.parametrize(("episodes", "steps", "kept"), [(6, 100, 6), (20, 34, 6), (7, 35, 7)])
def test_the_first_of_two_horizons_counts(episodes, steps, kept):
    assert len(alone(plan(episodes=episodes, steps=steps)).episodes["length"]) == kept


def test_records_agree_with_what_was_counted():
    course = alone(plan(seed=2))
    table, state = course.episodes, course.states[-1]
    assert state.visited == (state.visits > 0).sum()
    assert state.visits.sum() == state.clock.env_steps == BURN_IN + CHUNK * len(course.reports)
    assert state.clock.updates == CHUNK * len(course.reports) == course.reports[-1].updates
    assert (np.diff(table["visited"]) >= 0).all()
    cost = 0.01 / LENGTH
    moves = (table["treasure"] - table["return"]) / cost
    np.testing.assert_allclose(moves, np.round(moves), atol=1e-3)
    assert set(np.unique(table["treasure"])) <= {0, 1}


def test_a_run_that_stops_early_is_the_beginning_of_the_whole_run():
    whole, stopped = alone(plan(seed=1)), alone(plan(seed=1, stop=Horizon(episodes=11)))
    chunks = len(stopped.reports)
    assert chunks < len(whole.reports)
    np.testing.assert_equal(
        stopped.episodes, {name: values[:11] for name, values in whole.episodes.items()}
    )
    for a, b in zip(stopped.states, whole.states, strict=False):
        assert_same_state(a, b)
    same = chunks - 1  # the means of the last chunk are of the updates before the end
    assert [r.metrics for r in stopped.reports[:same]] == [r.metrics for r in whole.reports[:same]]
    last = stopped.reports[-1]
    assert last.finished
    assert last.share_done == 1.0
    steps = int(stopped.episodes["env_steps"][-1])
    assert (last.num_episodes, last.env_steps, last.updates) == (11, steps, steps - BURN_IN)


@pytest.mark.parametrize("stop", [None, Horizon(episodes=11)])
def test_beta_falls_by_the_horizon_wherever_the_run_stops(stop):
    """Here over a half of 24 episodes, from 5 to 1: told from the episodes ended before a step."""
    course = alone(plan(stop=stop, beta=5.0, beta_final=1.0, beta_decay=0.5))
    for number, report in enumerate(course.reports):
        at = BURN_IN + np.arange(CHUNK * number, report.updates)
        share = np.minimum(at // LENGTH / 24 / 0.5, 1.0)
        assert report.metrics["beta"] == pytest.approx(np.mean(5.0 - 4.0 * share), rel=1e-5)


@pytest.mark.parametrize("stop", [None, Horizon(steps=57)])
def test_beta_falls_by_a_horizon_of_steps_too(stop):
    course = alone(plan(episodes=None, steps=100, stop=stop, beta=5.0, beta_decay=1.0))
    assert len(course.episodes["length"]) == (20 if stop is None else 11)
    for number, report in enumerate(course.reports):
        at = BURN_IN + np.arange(CHUNK * number, report.updates)
        mean = np.mean(5.0 * (1.0 - np.minimum(at / 100, 1.0)))
        assert report.metrics["beta"] == pytest.approx(mean, rel=1e-5, abs=1e-6)


FAILURES = ({"gamma": float("nan")}, {"learning_rate": 1e38})


@pytest.mark.parametrize("broken", FAILURES)
def test_a_loss_that_is_not_finite_stops_that_run_alone(company, broken):
    plans = [plan(**COMPANY[0]), plan(seed=1, **broken), plan(**COMPANY[2]), plan(**COMPANY[1])]
    first, failed, third, late = courses(plans, 3)
    assert_same_course(first, company[0])
    assert_same_course(third, company[2])
    assert_same_course(late, company[1])
    (report,) = failed.reports
    assert not report.finished
    update = 1 if "gamma" in broken else 2
    assert f"at update {update};" in report.failure
    assert "nan" in report.failure
    assert (report.env_steps, report.num_episodes, report.updates) == (BURN_IN, 1, 0)
    np.testing.assert_array_equal(report.episodes["env_steps"], [LENGTH])
    assert_same_state(failed.states[-1], burnt_in(plan(seed=1)))


def burnt_in(one):
    """A lane after burn-in: in three lanes, of which one counts."""
    lanes = make_lanes([one], 3)
    lanes._fill()
    return lanes.state(0)


@pytest.mark.parametrize("broken", FAILURES)
def test_a_failed_run_keeps_the_state_from_before_its_last_chunk(company, broken):
    saved = company[0].states[2]
    failed = courses([plan(seed=3, saved=saved, **broken), plan(**COMPANY[1])], 3)
    (report,) = failed[0].reports
    assert_same_state(failed[0].states[-1], saved)
    assert all(len(values) == 0 for values in report.episodes.values())
    assert report.updates == 3 * CHUNK
    update = 3 * CHUNK + (1 if "gamma" in broken else 2)
    assert f"at update {update};" in report.failure
    assert_same_course(failed[1], company[1])


def test_each_program_is_compiled_once(compiled):
    """Seeds, hyperparameters, horizons, queues, saved states and failures share one program."""
    assert sorted(compiled) == ["advance", *sorted(PROGRAMS)]  # with and without learning
    saved = alone(plan(seed=5)).states[1]
    odd = [
        plan(seed=5, saved=saved),
        plan(seed=2**31, episodes=None, steps=77, beta=1, gamma=1.0, z_min=-3.0),
        plan(seed=6, gamma=float("nan")),
        plan(seed=7, episodes=3, stop=Horizon(episodes=2)),
        plan(seed=5, saved=saved, learning_rate=1e-5),
    ]
    with compilations() as found:
        assert look_at(make_lanes(odd, 3))
    assert not {name for name, _ in found} & {*PROGRAMS}


def look_at(lanes):
    chunks = 0
    while reports := lanes.advance():
        chunks += 1
        lanes.survey([report.run for report in reports])
        lanes.evaluate([report.run for report in reports], chunks, 2)
        for report in reports:
            if report.finished or report.failure:
                lanes.release(report.run)
    return chunks


def test_looking_changes_nothing(company):
    lanes = make_lanes([plan(**COMPANY[0])], 3)
    for state in company[0].states:
        lanes.advance()
        lanes.survey([0])
        lanes.evaluate([0], 1, 2)
        assert_same_state(lanes.state(0), state)


def test_a_survey_tells_the_estimates_and_visits_of_every_cell(company):
    plans = [plan(**one) for one in COMPANY]
    lanes = make_lanes(plans, 3)
    lanes.advance()
    surveys = lanes.survey([0, 2])
    estimates = jax.jit(AGENT.estimates)
    assert len(surveys) == 2
    for which, survey in zip((0, 2), surveys, strict=True):
        state = company[which].states[0]
        np.testing.assert_array_equal(survey["visits"], state.visits)
        assert {values.shape for values in survey.values()} == {(LENGTH * LENGTH, 2)}
        for cell in range(LENGTH * LENGTH):
            found = estimates(state.learner, np.int32(cell), plans[which].hyper)
            for name in ("value", "disagreement", "bonus"):
                np.testing.assert_allclose(
                    survey[name][cell], getattr(found, name), rtol=1e-5, atol=1e-6
                )


def test_an_evaluation_is_what_the_greedy_policy_earns(company):
    """Replayed by hand in the sea: down the cells, always to the higher value."""
    plans = [plan(**one) for one in COMPANY]
    lanes = make_lanes(plans, 3)
    for _ in range(2):
        lanes.advance()
    returns = lanes.evaluate([1, 0], 1, 2)
    assert returns.shape == (2, 2)
    for which, found in zip((1, 0), returns, strict=True):
        (survey,) = lanes.survey([which])
        column, total = 0, 0.0
        for row in range(LENGTH):
            action = np.argmax(survey["value"][row * LENGTH + column])
            right = action == TASK.params.right[row, column]
            total += float(right and column == LENGTH - 1) - right * TASK.params.move_cost
            column = min(column + 1, LENGTH - 1) if right else max(column - 1, 0)
        np.testing.assert_allclose(found, total, atol=1e-6)


def test_a_run_added_later_is_the_run_it_would_have_been():
    alone = courses([plan(seed=3)], 2)[0]
    lanes = make_lanes([plan(seed=1, episodes=8), plan(seed=2)], 2)
    lanes.advance()
    number = lanes.add(plan(seed=3))
    assert number == 2
    reports = []
    while found := lanes.advance():
        for report in found:
            reports += [report] if report.run == number else []
            if report.finished:
                lanes.release(report.run)
    assert reports[-1].finished
    assert [r.updates for r in reports] == [r.updates for r in alone.reports]
    for name, column in alone.episodes.items():
        parts = [report.episodes[name] for report in reports if report.episodes]
        np.testing.assert_array_equal(np.concatenate(parts), column)


def test_a_run_can_be_added_when_all_others_have_ended():
    lanes = make_lanes([plan(seed=1, episodes=8)], 2)
    while found := lanes.advance():
        for report in found:
            if report.finished:
                lanes.release(report.run)
    lanes.add(plan(seed=2, episodes=8))
    assert [report.run for report in lanes.advance()] == [1]


def test_a_run_that_waits_can_be_taken_out_of_the_queue():
    plans = [plan(seed=seed, episodes=8) for seed in range(3)]
    lanes = make_lanes(plans, 1)
    begun = {report.run for report in lanes.advance()}
    lanes.release(1)
    while found := lanes.advance():
        for report in found:
            begun.add(report.run)
            if report.finished:
                lanes.release(report.run)
    assert begun == {0, 2}
