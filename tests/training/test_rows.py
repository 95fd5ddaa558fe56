"""Rows: compaction of idle lanes, and lanes whose bonus is frozen."""

import threading

import jax
import numpy as np
import pytest

from helpers import compilations
from training.chance import CHUNK, Freezer, courses, make_lanes, plan
from winkel.training import compaction, compiled


def compile_at_once(lanes):
    """Let all lanes wait for what is compiled in the background."""
    compile_it = lanes.programs.compile_in_background

    def at_once(*arguments, **named):
        begun = compile_it(*arguments, **named)
        begun.result()
        return begun

    lanes.programs.compile_in_background = at_once


@pytest.mark.parametrize("freeze", [True, False])
def test_bonuses_are_frozen_when_all_may_be_and_records_stay_the_same(freeze):
    plans = [plan(seed=0, beta_decay=0.3), plan(seed=1, beta_decay=0.7)]
    lanes = make_lanes(plans, 2, Freezer(), freeze_bonus=freeze)
    compile_at_once(lanes)
    episodes, frozen, due = [], [], False
    while reports := lanes.advance():
        losses = {report.metrics["loss"] for report in reports}
        frozen.append(losses == {-1.0})
        assert frozen[-1] == (freeze and due)
        due = all(r.share_done >= plans[r.run].hyper.beta_decay for r in reports)
        episodes += [(r.run, r.episodes.get("return", np.zeros(0)).tolist()) for r in reports]
        for report in reports:
            if report.finished:
                lanes.release(report.run)
    assert any(frozen) == freeze
    assert not frozen[0]
    expected = courses(plans, 2, agent=Freezer())
    for number, course in enumerate(expected):
        returns = [x for which, found in episodes if which == number for x in found]
        np.testing.assert_array_equal(returns, course.episodes["return"])


def test_the_frozen_program_is_compiled_before_it_is_needed(monkeypatch):
    monkeypatch.setattr(compaction, "COMPILE_AHEAD_SHARE", 0.2)
    plans = [plan(seed=0, beta_decay=0.3), plan(seed=1, beta_decay=0.7)]
    lanes = make_lanes(plans, 2, Freezer(), freeze_bonus=True)
    asked, frozen, done = [], [], 0.0
    compile_it = lanes.programs.compile_in_background

    def watched(function, *arguments, **named):
        if function is compiled.advance:
            asked.append((done, arguments[0].frozen))
        begun = compile_it(function, *arguments, **named)
        begun.result()
        return begun

    monkeypatch.setattr(lanes.programs, "compile_in_background", watched)
    while reports := lanes.advance():
        frozen.append((done, {report.metrics["loss"] for report in reports} == {-1.0}))
        done = min(report.share_done for report in reports)
        for report in reports:
            if report.finished:
                lanes.release(report.run)
    assert [is_frozen for _, is_frozen in asked] == [True]
    assert 0.5 <= asked[0][0] < 0.7
    assert [is_frozen for _, is_frozen in frozen] == [done >= 0.7 for done, _ in frozen]


DECAYS, EPISODES = (0.2, 0.9, 0.2, 0.9, 0.2, 0.2), (40, 60, 40, 30, 60, 20)
PLANS = [
    plan(seed=seed, episodes=episodes, beta_decay=decay)
    for seed, (decay, episodes) in enumerate(zip(DECAYS, EPISODES, strict=True))
]


def waiting_lanes(plans, chunk_steps, unit=1):
    """A lane for each run, all of which wait for what is compiled in the background."""
    lanes = make_lanes(plans, len(plans), Freezer(), chunk_steps, unit=unit, freeze_bonus=True)
    compile_at_once(lanes)
    return lanes


@pytest.fixture
def two_rows():
    return waiting_lanes(PLANS, CHUNK)


@pytest.fixture(scope="module")
def expected():
    return [course.episodes["return"] for course in courses(PLANS, 6, agent=Freezer())]


def finished(lanes, each_chunk=lambda reports: None):
    """Returns of all runs, and for each chunk whose bonus was frozen."""
    returns, frozen = [[] for _ in lanes.plans], []
    while reports := lanes.advance():
        frozen.append({r.run for r in reports if r.metrics.get("loss") == -1.0})
        each_chunk(reports)
        for report in reports:
            returns[report.run] += report.episodes.get("return", np.zeros(0)).tolist()
            if report.finished:
                lanes.release(report.run)
    return returns, frozen


def test_frozen_runs_have_a_row_of_their_own(two_rows, expected):
    done, shown = dict.fromkeys(range(6), 0.0), []

    def look(reports):
        shown.append([(row.agent.frozen, sorted(row.running)) for row in two_rows.rows])
        assert [r.run for r in reports] == sorted(r.run for r in reports)
        for report in reports:
            after_end = int(two_rows.state(report.run).clock.env_steps) - report.env_steps
            assert 0 <= after_end < CHUNK if report.finished else after_end == 0
            if report.metrics["loss"] == -1.0:
                assert done[report.run] >= DECAYS[report.run]
            done[report.run] = report.share_done

    returns, frozen = finished(two_rows, look)
    assert [(False, [1, 3]), (True, [0, 2, 4])] in shown
    assert {0, 2, 4} in frozen
    assert frozen[0] == set()
    assert frozen[-1] == {1} or frozen[-1] == {1, 4}
    for found, right in zip(returns, expected, strict=True):
        np.testing.assert_array_equal(found, right)


def test_the_last_runs_join_the_frozen_ones_however_few_they_are(expected):
    """Two, where rows go by four."""
    plans = [
        p._replace(hyper=p.hyper._replace(beta_decay=0.5 if i == 1 else 0.2))
        for i, p in enumerate(PLANS)
    ]
    lanes = waiting_lanes(plans, CHUNK, unit=4)
    shown = []

    def look(_):
        shown.append([(row.agent.frozen, row.num_lanes, sorted(row.running)) for row in lanes.rows])

    returns, frozen = finished(lanes, look)
    assert [(False, 4, [1, 4]), (True, 4, [0, 2, 3])] in shown
    assert [(True, 4, [0, 1, 2, 4])] in shown
    assert frozen[-1] == {1, 4}
    for found, right in zip(returns, expected, strict=True):
        np.testing.assert_array_equal(found, right)


def test_lanes_of_several_rows_are_evaluated_and_surveyed(two_rows):
    for _ in range(6):  # from a fifth of the first run on
        two_rows.advance()
    assert len(two_rows.rows) == 2
    runs = two_rows.running[::-1]
    assert len(runs) > 3
    together = two_rows.evaluate(runs, 1, 2)
    apart = [two_rows.evaluate([run], 1, 2)[0] for run in runs]
    np.testing.assert_array_equal(together, apart)
    seen = [int(survey["visits"].sum()) for survey in two_rows.survey(runs)]
    steps = [int(two_rows.state(run).clock.env_steps) for run in runs]
    assert seen == steps


def test_rows_without_memory_become_one_of_half_as_many_lanes(two_rows, expected, monkeypatch):
    call, notices = two_rows.programs.call, []
    two_rows.notice = notices.append

    def short(function, *arguments, **named):
        if len(two_rows.rows) == 2 and not notices:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED")
        return call(function, *arguments, **named)

    monkeypatch.setattr(two_rows.programs, "call", short)
    returns, frozen = finished(two_rows)
    assert len(notices) == 1
    assert any(frozen)
    for found, right in zip(returns, expected, strict=True):
        np.testing.assert_array_equal(found, right)


def test_rows_change_without_a_compilation_that_all_wait_for():
    lanes = waiting_lanes([PLANS[1], PLANS[4], PLANS[5]], CHUNK + 3)
    lanes.advance()
    with compilations() as found:
        finished(lanes)
    assert len(found) > 4
    assert threading.main_thread() not in {thread for _, thread in found}


def test_few_frozen_runs_stay_where_they_are(expected):
    """Two of six, where rows go by four."""
    plans = [
        p._replace(hyper=p.hyper._replace(beta_decay=0.2 if i < 2 else 2.0))
        for i, p in enumerate(PLANS)
    ]
    lanes = make_lanes(plans, 6, Freezer(), unit=4, freeze_bonus=True)
    returns, frozen = finished(lanes)
    assert not any(frozen)
    for found, right in zip(returns, expected, strict=True):
        np.testing.assert_array_equal(found, right)
