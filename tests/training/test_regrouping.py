"""Agents that rest: all of a row at once, or in a row of their own beside those that explore."""

import threading

import jax
import numpy as np
import pytest

from training.chance import CHUNK, TASK, Settler, courses, plan
from winkel.training import device, regrouping
from winkel.training.lanes import Lanes


@pytest.mark.parametrize("rest", [True, False])
def test_agents_rest_when_all_have_settled_and_records_stay_the_same(rest):
    plans = [plan(seed=0, beta_decay=0.3), plan(seed=1, beta_decay=0.7)]
    lanes = Lanes(Settler(), TASK.env, plans, 2, CHUNK, rest=rest)
    episodes, at_rest = [], []
    settled = False
    while reports := lanes.advance():
        losses = {report.metrics["loss"] for report in reports}
        at_rest.append(losses == {-1.0})
        assert at_rest[-1] == (rest and settled)
        settled = all(r.progress >= plans[r.plan].hyper.beta_decay for r in reports)
        episodes += [(r.plan, r.episodes.get("return", np.zeros(0)).tolist()) for r in reports]
        for report in reports:
            if report.finished:
                lanes.release(report.plan)
    assert any(at_rest) == rest
    assert not at_rest[0]
    expected = courses(plans, 2, agent=Settler())
    for number, course in enumerate(expected):
        returns = [x for which, found in episodes if which == number for x in found]
        np.testing.assert_array_equal(returns, course.episodes["return"])


def test_the_program_at_rest_is_compiled_before_agents_settle_and_used_after(monkeypatch):
    monkeypatch.setattr(regrouping, "SOON", 0.2)
    plans = [plan(seed=0, beta_decay=0.3), plan(seed=1, beta_decay=0.7)]
    lanes = Lanes(Settler(), TASK.env, plans, 2, CHUNK, rest=True, ahead=True)
    asked, at_rest, done = [], [], 0.0
    ahead = lanes.programs.ahead

    def watched(function, *arguments, **named):
        if function is device.advance:
            asked.append((done, arguments[0].resting))
        begun = ahead(function, *arguments, **named)
        begun.result()
        return begun

    monkeypatch.setattr(lanes.programs, "ahead", watched)
    while reports := lanes.advance():
        at_rest.append((done, {report.metrics["loss"] for report in reports} == {-1.0}))
        done = min(report.progress for report in reports)
        for report in reports:
            if report.finished:
                lanes.release(report.plan)
    assert [resting for _, resting in asked] == [True]
    assert 0.5 <= asked[0][0] < 0.7
    assert [resting for _, resting in at_rest] == [done >= 0.7 for done, _ in at_rest]


DECAYS, EPISODES = (0.2, 0.9, 0.2, 0.9, 0.2, 0.2), (40, 60, 40, 30, 60, 20)
PLANS = [
    plan(seed=seed, episodes=episodes, beta_decay=decay)
    for seed, (decay, episodes) in enumerate(zip(DECAYS, EPISODES, strict=True))
]


def waiting_lanes(plans, chunk_steps, unit=1):
    """A lane for each run, all of which wait for what is compiled in the background."""
    lanes = Lanes(
        Settler(), TASK.env, plans, len(plans), chunk_steps, shrink=unit, rest=True, ahead=True
    )
    ahead = lanes.programs.ahead

    def at_once(*arguments, **named):
        begun = ahead(*arguments, **named)
        begun.result()
        return begun

    lanes.programs.ahead = at_once
    return lanes


@pytest.fixture
def parted():
    return waiting_lanes(PLANS, CHUNK)


@pytest.fixture(scope="module")
def expected():
    return [course.episodes["return"] for course in courses(PLANS, 6, agent=Settler())]


def finished(lanes, each_chunk=lambda reports: None):
    """Returns of all runs, and for each chunk who was at rest."""
    returns, at_rest = [[] for _ in lanes.plans], []
    while reports := lanes.advance():
        at_rest.append({r.plan for r in reports if r.metrics.get("loss") == -1.0})
        each_chunk(reports)
        for report in reports:
            returns[report.plan] += report.episodes.get("return", np.zeros(0)).tolist()
            if report.finished:
                lanes.release(report.plan)
    return returns, at_rest


def test_settled_runs_rest_in_a_row_of_their_own(parted, expected):
    done, rows = dict.fromkeys(range(6), 0.0), []

    def look(reports):
        rows.append([(row.agent.resting, sorted(row.running)) for row in parted.rows])
        assert [r.plan for r in reports] == sorted(r.plan for r in reports)
        for report in reports:
            lane = parted.running[report.plan]
            assert int(parted.state(lane).run.clock.env_steps) == report.env_steps
            if report.metrics["loss"] == -1.0:
                assert done[report.plan] >= DECAYS[report.plan]
            done[report.plan] = report.progress

    returns, at_rest = finished(parted, look)
    assert [(False, [1, 3]), (True, [0, 2, 4])] in rows
    assert {0, 2, 4} in at_rest
    assert at_rest[0] == set()
    assert at_rest[-1] == {1} or at_rest[-1] == {1, 4}
    for found, right in zip(returns, expected, strict=True):
        np.testing.assert_array_equal(found, right)


def test_the_last_explorers_join_those_at_rest_however_few_they_are(expected):
    """Two, where rows go by four."""
    plans = [
        p._replace(hyper=p.hyper._replace(beta_decay=0.5 if i == 1 else 0.2))
        for i, p in enumerate(PLANS)
    ]
    lanes = waiting_lanes(plans, CHUNK, unit=4)
    rows = []

    def look(_):
        rows.append([(row.agent.resting, row.num_lanes, sorted(row.running)) for row in lanes.rows])

    returns, at_rest = finished(lanes, look)
    assert [(False, 4, [1, 4]), (True, 4, [0, 2, 3])] in rows
    assert [(True, 4, [0, 1, 2, 4])] in rows
    assert at_rest[-1] == {1, 4}
    for found, right in zip(returns, expected, strict=True):
        np.testing.assert_array_equal(found, right)


def test_looks_at_lanes_of_several_rows(parted):
    for _ in range(6):  # from a fifth of the first run on
        parted.advance()
    assert len(parted.rows) == 2
    lanes = [*parted.running.values()][::-1]
    assert len(lanes) > 3
    together = parted.evaluate(lanes, 1, 2)
    apart = [parted.evaluate([lane], 1, 2)[0] for lane in lanes]
    np.testing.assert_array_equal(together, apart)
    seen = [int(survey["visits"].sum()) for survey in parted.survey(lanes)]
    steps = [int(parted.state(lane).run.clock.env_steps) for lane in lanes]
    assert seen == steps


def test_rows_without_memory_become_one_of_half_as_many_lanes(parted, expected, monkeypatch):
    call, told = parted.programs.call, []
    parted.notice = told.append

    def short(function, *arguments, **named):
        if len(parted.rows) == 2 and not told:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED")
        return call(function, *arguments, **named)

    monkeypatch.setattr(parted.programs, "call", short)
    returns, at_rest = finished(parted)
    assert len(told) == 1
    assert any(at_rest)
    for found, right in zip(returns, expected, strict=True):
        np.testing.assert_array_equal(found, right)


def test_rows_change_without_a_compilation_that_all_wait_for():
    lanes = waiting_lanes([*PLANS, plan(seed=7, episodes=50, beta_decay=0.2)], CHUNK + 3)
    lanes.advance()
    compiled, waited_for = [], []

    def listen(event, duration, **_):
        if event.endswith("backend_compile_duration"):
            here = threading.current_thread() is threading.main_thread()
            (waited_for if here else compiled).append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    finished(lanes)
    jax.monitoring.unregister_event_duration_listener(listen)
    assert len(compiled) > 4
    assert waited_for == []


def test_few_settled_runs_stay_where_they_are(expected):
    """Two of six, where rows go by four."""
    plans = [
        p._replace(hyper=p.hyper._replace(beta_decay=0.2 if i < 2 else 2.0))
        for i, p in enumerate(PLANS)
    ]
    lanes = Lanes(Settler(), TASK.env, plans, 6, CHUNK, shrink=4, rest=True, ahead=True)
    returns, at_rest = finished(lanes)
    assert not any(at_rest)
    for found, right in zip(returns, expected, strict=True):
        np.testing.assert_array_equal(found, right)
