"""Rows: compaction of idle lanes, and bonuses that are frozen."""

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


def test_the_row_shrinks_and_freezes_and_records_stay_the_same(expected):
    lanes, done, shown = waiting_lanes(PLANS, CHUNK), dict.fromkeys(range(6), 0.0), []

    def look(reports):
        shown.append((lanes.row.agent.frozen, lanes.num_lanes))
        assert [r.run for r in reports] == sorted(r.run for r in reports)
        for report in reports:
            after_end = int(lanes.state(report.run).clock.env_steps) - report.env_steps
            assert 0 <= after_end < CHUNK if report.finished else after_end == 0
            if report.metrics["loss"] == -1.0:
                assert done[report.run] >= DECAYS[report.run]
            done[report.run] = report.share_done

    returns, frozen = finished(lanes, look)
    assert shown[0] == (False, 6)
    assert shown[-1][0]
    assert shown[-1][1] < 6
    assert frozen[0] == set()
    for found, right in zip(returns, expected, strict=True):
        np.testing.assert_array_equal(found, right)


def test_a_frozen_row_without_memory_becomes_one_of_half_as_many_lanes(expected, monkeypatch):
    lanes = waiting_lanes(PLANS, CHUNK)
    call, notices = lanes.programs.call, []
    lanes.notice = notices.append

    def short(function, *arguments, **named):
        if lanes.row.agent.frozen and not notices:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED")
        return call(function, *arguments, **named)

    monkeypatch.setattr(lanes.programs, "call", short)
    returns, frozen = finished(lanes)
    assert len(notices) == 1
    assert any(frozen)
    for found, right in zip(returns, expected, strict=True):
        np.testing.assert_array_equal(found, right)


def test_rows_change_without_a_compilation_that_all_wait_for():
    lanes = waiting_lanes([PLANS[1], PLANS[4], PLANS[5]], CHUNK + 3)
    lanes.advance()
    with compilations() as found:
        finished(lanes)
    assert len(found) > 2
    assert threading.main_thread() not in {thread for _, thread in found}


def test_a_bonus_is_learned_while_one_run_needs_it(expected):
    plans = [
        p._replace(hyper=p.hyper._replace(beta_decay=2.0 if i == 1 else 0.2))
        for i, p in enumerate(PLANS)
    ]
    lanes = make_lanes(plans, 6, Freezer(), unit=4, freeze_bonus=True)
    done, learned = set(), []

    def look(reports):
        learned.append((1 in done, {r.metrics["loss"] == -1.0 for r in reports}))
        done.update(r.run for r in reports if r.finished)

    returns, _ = finished(lanes, look)
    assert all(frozen == {False} for is_done, frozen in learned if not is_done)
    for found, right in zip(returns, expected, strict=True):
        np.testing.assert_array_equal(found, right)
