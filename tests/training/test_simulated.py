"""Runs in simulators: the same algorithm as in compiled environments."""

import dataclasses
import os
import re
import signal
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import winkel
from runs.tiny import stop_after
from terminal_helpers import refused
from winkel.agents import AGENTS
from winkel.envs.outside import estimate_range, make_simulator_task
from winkel.errors import InputError
from winkel.runs.results import read_metrics
from winkel.runs.spec import Options, configure, field_names
from winkel.simulators import StepBatch
from winkel.simulators.names import parse
from winkel.training import simulated
from winkel.training.lanes import Lanes
from winkel.training.simulated import SimulatorWorld, make_seeds, pack_step
from winkel.training.steps import Horizon, Plan, make_jobs, make_replay

TINY = {"hidden": (8,), "batch_size": 8, "burn_in": 16, "capacity": 64}
CATCH = "simulators.jax_env:make:env=catch/0"
STREAMS = {"n_step": 3, "priority_exponent": 0.5}
OPTIONS = Options(chunk_steps=50, checkpoint_seconds=1e9, snapshots=0)


def fields_of(agent):
    return TINY | ({"num_atoms": 5} if "num_atoms" in field_names(agent) else {})


QUICK = ("pe_dqn", "streams")


@pytest.mark.parametrize(
    "agent",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.long)
        for name in [*AGENTS, "streams"]
    ],
)
def test_simulators_and_the_accelerator_give_the_same_records(agent, tmp_path):
    """116 steps, 100 updates: equal episodes, equal metrics to rounding."""
    agent, fields = ("dqn", STREAMS) if agent == "streams" else (agent, {})
    fields = fields | fields_of(agent)
    if "z_min" in field_names(agent):
        fields |= {"z_min": -1, "z_max": 1}
    settings = {"steps": 116, "seeds": [3], "options": OPTIONS}
    ours = winkel.train("catch/0", agent, out=tmp_path / "device", **settings, **fields)
    theirs = winkel.train(CATCH, agent, out=tmp_path / "host", workers=0, **settings, **fields)
    for name, column in ours.runs[0].episodes.items():
        np.testing.assert_array_equal(theirs.runs[0].episodes[name], column, err_msg=name)
    assert len(ours.runs[0].episodes["return"]) == 12
    logs = [
        read_metrics(next((tmp_path / loop).glob("*/*/**/metrics.jsonl")))
        for loop in ("device", "host")
    ]
    assert len(logs[0]) == len(logs[1]) == 2
    for row, other in zip(*logs, strict=True):
        assert row.keys() == other.keys()
        for name, value in row.items():
            np.testing.assert_allclose(other[name], value, rtol=2e-4, atol=1e-6, err_msg=name)
    assert logs[0][-1]["updates"] == 100


CART = "gym:CartPole-v1"
SETTINGS = {"workers": 0, "options": OPTIONS, "num_envs": 3, "steps": 300, **fields_of("qr_dqn")}


@pytest.fixture(scope="module")
def pair():
    """Two seeds with three environments each."""
    return winkel.train(CART, "qr_dqn", seeds=[0, 5], **SETTINGS).runs


def test_seeds_side_by_side_are_as_alone(pair):
    alone = winkel.train(CART, "qr_dqn", seeds=[5], **SETTINGS).runs[0]
    for name, column in alone.episodes.items():
        np.testing.assert_array_equal(pair[1].episodes[name], column, err_msg=name)
    assert pair[0].episodes["return"].tolist() != column.tolist()


def test_episodes_are_counted_once_with_their_lengths(pair):
    for run in pair:
        rows = run.episodes
        np.testing.assert_array_equal(rows["return"], rows["length"])
        assert (np.diff(rows["env_steps"]) >= 0).all()
        assert (rows["env_steps"] % 3 == 0).all()
        assert 300 - 3 * 60 < rows["length"].sum() <= 300
        assert run.config["host"]["num_envs"] == 3


def test_processes_change_nothing(pair):
    settings = SETTINGS | {"workers": 2}
    runs = winkel.train(CART, "qr_dqn", seeds=[0, 5], **settings).runs
    for ours, theirs in zip(pair, runs, strict=True):
        for name, column in ours.episodes.items():
            np.testing.assert_array_equal(theirs.episodes[name], column, err_msg=name)


def test_runs_that_are_not_equally_far_are_continued_apart(tmp_path):
    """Seed 0 was interrupted; seed 1 is new and makes its own burn-in."""
    with pytest.raises(KeyboardInterrupt):
        winkel.train(CART, "qr_dqn", out=tmp_path, progress=stop_after(2), **SETTINGS)
    both = winkel.train(CART, "qr_dqn", seeds=2, out=tmp_path, resume=True, **SETTINGS)
    alone = winkel.train(CART, "qr_dqn", seeds=[1], **SETTINGS)
    for name, column in alone.of(1).episodes.items():
        np.testing.assert_array_equal(both.of(1).episodes[name], column, err_msg=name)
    assert (np.diff(both.of(0).episodes["env_steps"]) >= 0).all()
    lanes = two_environments()
    lanes.advance()
    ahead = two_environments(saved=lanes.state(0))
    ahead.plans = [*ahead.plans, ahead.plans[0]._replace(saved=None)]
    with pytest.raises(InputError, match=r"equally many steps, got \[0, 6\]"):
        Lanes(ahead.agent, ahead.world, ahead.plans, 2).advance()
    lanes.close()


def test_a_run_whose_newest_checkpoint_is_damaged_is_continued_from_the_one_before(tmp_path):
    """Only its replay is damaged: its clock can be read, but is not where the run continues."""
    notices = []
    often = dataclasses.replace(OPTIONS, checkpoint_seconds=0.0)
    settings = SETTINGS | {"seeds": 2, "out": tmp_path, "options": often}
    with pytest.raises(KeyboardInterrupt):
        winkel.train(CART, "qr_dqn", progress=stop_after(2), **settings)
    newest = max((tmp_path / "gym/qr_dqn/CartPole-v1/seed-1/checkpoint").iterdir())
    content = bytearray(newest.read_bytes())
    content[content.index(b"state/replay") + 400] ^= 1
    newest.write_bytes(content)
    both = winkel.train(CART, "qr_dqn", resume=True, notice=notices.append, **settings)
    assert any(newest.name in text for text in notices)
    assert [run.config["status"] for run in both.runs] == ["finished"] * 2


TWO_ENVIRONMENTS = SETTINGS | {
    "num_envs": 2,
    "n_step": 2,
    "options": dataclasses.replace(OPTIONS, chunk_steps=20),
}


def test_an_interrupted_run_goes_on_with_new_episodes(tmp_path):
    calls = []

    def interrupt(statuses):
        calls.append(statuses[0].env_steps)
        if len(calls) == 4:
            raise KeyboardInterrupt

    settings = TWO_ENVIRONMENTS | {"out": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        winkel.train(CART, "qr_dqn", progress=interrupt, **settings)
    before = winkel.load(tmp_path / "gym/qr_dqn/CartPole-v1/seed-0").runs[0].episodes
    run = winkel.train(CART, "qr_dqn", resume=True, **settings).runs[0]
    count = len(before["return"])
    assert 0 < count < len(run.episodes["return"])
    for name, column in before.items():
        np.testing.assert_array_equal(run.episodes[name][:count], column)
    assert run.config["status"] == "finished"
    after = run.episodes["env_steps"][count:] - run.episodes["length"][count:]
    assert after.min() >= calls[-1] - 2 * run.episodes["length"].max()
    assert run.episodes["length"].sum() <= 300


def test_a_worker_that_is_killed_costs_its_transitions_only(tmp_path):
    notices, killed = [], []

    def kill(statuses):
        children = [pid for pid in pool_pids() if pid not in killed]
        if statuses[0].env_steps > 60 and len(killed) < 2 and children:
            killed.append(children[0])
            os.kill(children[0], signal.SIGKILL)

    settings = TWO_ENVIRONMENTS | {"workers": 2}
    run = winkel.train(CART, "qr_dqn", progress=kill, notice=notices.append, **settings).runs[0]
    assert len(killed) == 2
    assert sum("worker" in line for line in notices) == 2
    assert run.config["status"] == "finished"
    np.testing.assert_array_equal(run.episodes["return"], run.episodes["length"])
    assert not pool_pids()


def pool_pids():
    """Workers of this process."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children if b"simulators.worker_main" in command(pid)]


def command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("n_step", [1, 2])
def test_what_simulators_bring_is_stored_but_for_what_was_lost(n_step):
    """Three environments: one is truncated, one goes on, one is lost."""
    task = make_simulator_task("simulators.worlds:Walk", num_envs=3, workers=0)
    agent, hyper = configure("dqn", TINY | {"hidden": (4,), "n_step": n_step}, task)
    plan = Plan((), hyper, Horizon(episodes=9, steps=99), seed=0)
    jobs = make_jobs([plan], agent.spec, masked=False)

    def observed(first):
        return np.float32(first) + np.arange(12, dtype=np.float32).reshape(3, 4)

    runs = simulated.begin(agent, (), jobs, observed(0)[None])
    decided = simulated.decide(agent, (), jobs, runs)
    _, observe_and_decide = simulated.step_programs()
    for number in range(2):
        last = number == 1
        boundary = np.array([last, False, last])
        shown = observed(100 * (number + 1))
        moves = StepBatch(
            next_obs=shown,
            obs=np.where(boundary[:, None], np.float32(1000), shown),
            reward=np.float32([1, 2, 3]),
            discount=np.ones(3, np.float32),
            boundary=boundary,
            facts={},
            probes=np.zeros((3, 0)),
            lost=np.array([False, False, last]),
        )
        learners, moved = runs.learner, pack_step(moves, num_runs=1)
        runs, decided = observe_and_decide(
            agent, (), jobs, learners, runs._replace(learner=()), *decided, moved
        )
        runs = runs._replace(learner=learners)
    assert (int(runs.clock.env_steps[0]), int(runs.clock.episodes[0])) == (6, 1)
    np.testing.assert_array_equal(runs.first[0], [True, False, True])
    np.testing.assert_array_equal(runs.obs[0, :, 0], [1000, 204, 1000])
    replay = make_replay(agent.config, agent.spec.observation, 3)
    stored = jax.tree.map(lambda x: x[0], runs.replay)
    drawn = replay.sample(stored, 200, jax.random.key(1), gamma=0.5).transitions
    found = {(float(a), float(r), float(b)) for a, r, b in
             zip(drawn.obs[:, 0], drawn.reward, drawn.next_obs[:, 0], strict=True)}  # fmt: skip
    whole = {(0.0, 1.0, 100.0), (4.0, 2.0, 104.0), (8.0, 3.0, 108.0), (100.0, 1.0, 200.0),
             (104.0, 2.0, 204.0)}  # fmt: skip
    sums = {(0.0, 1.5, 200.0), (4.0, 3.0, 204.0), (8.0, 3.0, 108.0), (100.0, 1.0, 200.0)}
    assert found == (whole if n_step == 1 else sums)


def test_evaluations_are_greedy_episodes_of_their_own(pair):
    options = dataclasses.replace(OPTIONS, evaluate_every=150, evaluation_episodes=5)
    run = winkel.train(CART, "qr_dqn", **(SETTINGS | {"options": options})).runs[0]
    assert run.evaluations["returns"].shape == (2, 5)
    assert run.evaluations["env_steps"].tolist() == [168, 300]
    for name, column in pair[0].episodes.items():
        np.testing.assert_array_equal(run.episodes[name], column)


def test_the_support_comes_from_rewards_and_gamma():
    task = make_simulator_task(CART)
    low, high = task.return_range(0.99)
    assert low == 0.0
    assert high == pytest.approx(1.1 * 101)
    assert estimate_range((-1.0, 0.0), (0.0, 0.0), 0.9) == pytest.approx((-11.0, 0.0))
    assert estimate_range((0.0, 0.0), (-2.0, 1.0), 0.9) == pytest.approx((-2.3, 1.3))
    assert estimate_range((0.0, 0.0), (0.0, 0.0), 0.9) == (-1.0, 1.0)
    with pytest.raises(InputError, match="need gamma < 1"):
        task.return_range(1.0)


def test_rewards_are_measured_only_for_agents_that_need_them():
    notices = []
    task = make_simulator_task("simulators.worlds:Walk", notice=notices.append)
    for agent, fields in (("dqn", {}), ("qr_dqn", {}), ("c51", {"z_min": -1.0, "z_max": 1.0})):
        configure(agent, TINY | fields, task)
    assert notices == []
    for _ in range(2):
        configure("c51", TINY, task)
    assert notices == [
        "measuring rewards of a random policy in 1,000 steps of simulators.worlds:Walk; --z-min "
        "and --z-max make it unnecessary"
    ]


def test_a_simulator_that_hangs_before_training_is_one_line_in_time(capsys):
    name = "simulators.worlds:Sleeps:episode=0"
    began = time.monotonic()
    message = refused(["train", name, "--agent", "c51", "--steps", 9, "--timeout", 5], capsys)
    assert time.monotonic() - began < 20.0
    assert message == (
        f"winkel: error: {name}: worker 0 (environment 0) did not answer for 5 s in a reset and "
        "was killed (--timeout SECONDS allows more)\n"
    )


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("nan", "need a finite observation, got array([nan, nan, nan, nan]"),
        ("nan reward", "need a finite reward, got nan"),
        ("large reward", "need a finite reward, got 1e+39"),
    ],
)
def test_numbers_that_are_not_finite_end_a_run_and_name_the_environment(how, message, tmp_path):
    name = f"simulators.worlds:Fails:how={how!r}"
    with pytest.raises(InputError) as caught:
        winkel.train(name, "dqn", steps=5_000, out=tmp_path, workers=0, options=OPTIONS, **TINY)
    where = r"environment 0 in step 3 of episode \d+: "
    assert re.match(
        re.escape(parse(name)[0]) + ": " + where + re.escape(message), str(caught.value)
    )
    assert not list(tmp_path.rglob("config.json"))  # no result of it


def test_an_environment_that_raises_in_close_costs_a_notice_and_no_result(capfd):
    notices = []
    settings = {"steps": 30, "options": OPTIONS, "notice": notices.append, **TINY}
    run = winkel.train("simulators.worlds:Fails:how=close", "dqn", workers=1, **settings).runs[0]
    assert run.config["status"] == "finished"
    assert len(run.episodes["return"]) == 5
    (line,) = notices
    assert "environment 0 in its close raised RuntimeError: cannot close (worlds.py, li" in line
    assert capfd.readouterr().err == ""


def test_returns_outside_of_the_support_are_noticed_with_their_range():
    notices, never = [], SETTINGS | {"burn_in": 1_000}
    winkel.train(CART, "c51", notice=notices.append, z_min=0.0, z_max=12.0, **never)
    (line,) = notices
    assert "outside of [0, 12]: they were from" in line
    assert "set --z-min and --z-max" in line


@pytest.mark.parametrize(
    ("env", "settings", "message"),
    [
        (CART, {}, "need episodes or steps"),
        (CART, {"steps": 10, "num_envs": 0}, "need num_envs >= 1"),
        (CART, {"steps": 10, "workers": -1}, "need workers >= 0"),
        (CART, {"steps": 10, "n_step": 20}, "need burn_in >= 20"),
        (CART, {"steps": 10, "timeout": 0.0}, "need timeout > 0, in seconds, got 0.0"),
        ("catch/0", {"episodes": 1, "num_envs": 2}, "need num_envs with a simulator"),
        ("catch/0", {"episodes": 1, "timeout": 2.0}, "need timeout with a simulator"),
        ("gym:Pendulum-v1", {"steps": 10}, "need .*iscrete actions|need discrete"),
        ("gym:CartPol-v1", {"steps": 10}, "CartPole"),
        (CART, {"steps": 10, "preset": "doom"}, "need a preset from bsuite, vizdoom"),
    ],
)
def test_bad_input_is_one_line(env, settings, message):
    given = {"workers": 0} if env != "catch/0" else {}
    with pytest.raises(InputError, match=message) as error:
        winkel.train(env, "qr_dqn", **(given | TINY | settings))
    assert "\n" not in str(error.value)


def two_environments(saved=None):
    task = make_simulator_task(CART, num_envs=2, workers=0)
    agent, hyper = configure("qr_dqn", fields_of("qr_dqn") | {"n_step": 2}, task)
    plan = Plan((), hyper, Horizon(steps=10_000), seed=4, saved=saved)
    world = SimulatorWorld(lambda seeds: task.pool(seeds, print), num_envs=2)
    return Lanes(agent, world, [plan], 1, chunk_steps=3)


def test_actions_are_sent_while_learning_is_launched(monkeypatch):
    lanes = two_environments()
    for _ in range(3):  # the burn-in of 16 steps
        lanes.advance()
    pool, (learn, observe_and_decide) = lanes.world.pool, simulated.step_programs()
    sent, met, send = threading.Event(), [], pool.step_async

    def slow_to_launch(*arguments):
        met.append(sent.wait(timeout=5))
        sent.clear()
        return learn(*arguments)

    def send_and_set(actions):
        send(actions)
        sent.set()

    monkeypatch.setattr(simulated, "step_programs", lambda: (slow_to_launch, observe_and_decide))
    monkeypatch.setattr(pool, "step_async", send_and_set)
    report = lanes.advance()[0]
    lanes.close()
    assert met == [True] * 3
    assert report.updates == 3


def test_an_error_of_sending_is_raised(monkeypatch):
    lanes = two_environments()
    lanes.advance()

    def refuse(actions):
        raise InputError("need another pool")

    monkeypatch.setattr(lanes.world.pool, "step_async", refuse)
    with pytest.raises(InputError, match="need another pool"):
        lanes.advance()
    lanes.close()


def test_memory_that_runs_out_is_one_line(monkeypatch):
    """Lanes of simulators cannot be halved: the episodes of the others would be lost."""

    def advance(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory, 7 bytes")

    monkeypatch.setattr(SimulatorWorld, "advance", advance)
    small = {"hidden": 8, "batch_size": 8, "burn_in": 16, "capacity": 48, "workers": 0}
    with pytest.raises(InputError, match="out of memory; need fewer runs, or a smaller"):
        winkel.train("gym:CartPole-v1", "dqn", steps=40, **small)


def test_a_resumed_lane_sees_new_episodes_and_nothing_leads_there():
    before = two_environments()
    before.advance()
    saved = before.state(0)
    assert (saved.replay.age == 3).all()
    after = two_environments(saved=saved)
    after._fill()
    run = after.state(0)
    with after.world.make_pool(make_seeds(4, 2, (2, 6))) as pool:
        np.testing.assert_array_equal(run.obs, pool.reset())
    assert run.first.all()
    assert (run.replay.age == 0).all()
    assert run.replay.steps.boundary.sum() == 2
    assert int(run.clock.env_steps) == 6
    for lane in (before, after):
        lane.close()
