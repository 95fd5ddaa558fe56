"""Speed measured: what is timed is done, floors add up, rows survive the disk and each other."""

import dataclasses
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winkel.agents import AGENTS
from winkel.envs.registry import make
from winkel.errors import InputError
from winkel.experiments import bench, bench_rows
from winkel.experiments.bench_rows import Bench, Call, Row
from winkel.runs import machine
from winkel.runs.spec import configure
from winkel.training import compiled, steps
from winkel.training.compiled import CompiledWorld
from winkel.training.lanes import Lanes, Plan
from winkel.training.steps import Horizon

TINY = {"hidden": (8,), "num_atoms": 3, "batch_size": 2, "burn_in": 4, "capacity": 32}
SEA = "deep_sea:size=4"
CALL = Call("2026-11-15T12:00:00+00:00", "winkel bench", "here", "0.10.2", "0.1.0")


def row(agent="pe_dqn", env=SEA, lanes=4, **others):
    known = {"num_atoms": 3, "fields": {}, "steps": 10, "status": "ok", "ms_step": 8.0}
    known |= {"updates_per_second": 500.0, "parameters": 1_000, "lane_bytes": 50_000}
    return Row(agent=agent, env=env, lanes=lanes, **(known | others))


def failed(**others):
    return row(
        status="failed", reason="out of memory", ms_step=None, updates_per_second=None, **others
    )


def bench_of(*rows, device="H200"):
    return Bench(device=device, calls=(CALL,), rows=rows)


@pytest.fixture(scope="module")
def lanes():
    """Two lanes of PE-DQN after some chunks."""
    task = make(SEA)
    configured = configure("pe_dqn", TINY, task)
    plans = [Plan(task.params, configured.hyper, Horizon(), seed=seed) for seed in range(2)]
    made = Lanes(configured.agent, CompiledWorld(task.env), plans, num_lanes=2, chunk_steps=6)
    made.advance()
    return made


def test_learning_alone_makes_every_update(lanes):
    run, hyper = lanes.rows[0].lanes, lanes.rows[0].jobs.hyper
    learner, clock, losses = bench.learn_alone(lanes.agent, hyper, run, 5)
    assert clock.updates.tolist() == (run.clock.updates + 5).tolist()
    assert clock.env_steps.tolist() == run.clock.env_steps.tolist()
    assert losses.shape == (2, 5)
    # By hand, one update of one lane after the other.
    learn = jax.jit(lambda *given: steps.learn(lanes.agent, *given))
    for lane in range(2):
        alone, setting = jax.tree.map(lambda x, lane=lane: x[lane], (run, hyper))
        for update in range(5):
            key = jax.random.fold_in(alone.key, alone.clock.updates)
            alone, told = learn(alone, setting, key)
            assert np.allclose(told.metrics["loss"], losses[lane, update], rtol=1e-4)
        for ours, theirs in zip(
            jax.tree.leaves(alone.learner), jax.tree.leaves(learner), strict=True
        ):
            assert np.allclose(ours, theirs[lane], rtol=1e-3, atol=1e-5)
    changed = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), run.learner.params, learner.params)
    assert all(jax.tree.leaves(changed))


@pytest.mark.parametrize("env", [SEA, "catch/0", "cartpole/0"])
def test_environments_alone_make_every_step(env):
    task = make(env)
    params = jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * 2), task.params)
    keys = jax.random.split(jax.random.key(1), 2)
    actions = np.random.default_rng(0).integers(task.env.num_actions, size=(2, 13))
    found = bench.step_alone(task.env, params, keys, jnp.asarray(actions, jnp.int32))
    move = jax.jit(task.env.step)
    for lane in range(2):
        state, _ = task.env.reset(jax.random.fold_in(keys[lane], 0), task.params)
        total = 0.0
        for index, action in enumerate(actions[lane]):
            key = jax.random.fold_in(jax.random.fold_in(keys[lane], index + 1), 1)
            state, step = move(key, state, jnp.asarray(action, jnp.int32), task.params)
            total += float(step.reward)
        assert np.allclose(found.total[lane], total, atol=1e-6)
        assert int(found.state.episode[lane]) == int(state.episode)
        assert np.allclose(found.obs[lane], step.obs, atol=1e-5)
        assert np.allclose(found.next_obs[lane], step.next_obs, atol=1e-5)


def inside_loops(compiled):
    """Text of everything that a compiled program does in the bodies of its loops."""
    parts = re.split(r"\n\n(?:ENTRY )?%?", compiled.as_text())
    found = {part.split()[0]: part for part in parts if part.strip()}
    waiting = re.findall(r"body=%?([\w.\-]+)", compiled.as_text())
    seen = set()
    while waiting:
        name = waiting.pop()
        if name in found and name not in seen:
            seen.add(name)
            waiting += re.findall(r"%([\w.\-]+)", found[name])
    return "\n".join(found[name] for name in seen)


def test_the_work_of_both_parts_is_inside_their_loops(lanes):
    """Neither moved out of the loop nor folded away: products and random bits are in its body."""
    learning = bench.learn_alone.lower(
        lanes.agent, lanes.rows[0].jobs.hyper, lanes.rows[0].lanes, 5
    )
    assert re.search(r"\bdot\(", inside_loops(learning.compile()))
    task = make("cartpole_noise/0")
    params = jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * 2), task.params)
    keys = jax.random.split(jax.random.key(1), 2)
    world = bench.step_alone.lower(task.env, params, keys, jnp.zeros((2, 5), jnp.int32)).compile()
    assert re.search(r"\bcosine\(", inside_loops(world))
    assert re.search(r"\bxor\(", inside_loops(world))


def test_a_row_is_measured_with_its_parts():
    (wanted,) = bench.combinations(["pe_dqn"], [SEA], [2], fields=TINY)
    (found,) = bench.measured([wanted], num_steps=5)
    assert found.status == "ok"
    assert found.reason is None
    assert (found.agent, found.env, found.lanes, found.num_atoms) == ("pe_dqn", SEA, 2, 3)
    assert found.fields == {"hidden": [8], "batch_size": 2, "burn_in": 4, "capacity": 32}
    assert found.chunks >= 3
    assert 0 < found.ms_fastest <= found.ms_step <= found.ms_slowest
    assert found.updates_per_second == pytest.approx(2 * 1e3 / found.ms_step)
    assert found.compile_seconds > 0
    assert found.learning_ms > 0
    assert found.environment_ms > 0
    assert found.peak_bytes is None  # a CPU does not tell
    assert found.parameters == bench.num_parameters(wanted.shapes.learner)
    assert found.lane_bytes > 4 * 4 * found.parameters  # with targets and two moments


def test_without_parts_only_the_whole_is_measured(monkeypatch):
    def never(*_):
        raise AssertionError

    monkeypatch.setattr(bench, "learn_alone", never)
    monkeypatch.setattr(bench, "step_alone", never)
    wanted = bench.combinations(["dqn"], [SEA], [1], fields=TINY)
    (found,) = bench.measured(wanted, num_steps=2, parts=False)
    assert found.status == "ok"
    assert found.learning_ms is found.environment_ms is None
    assert found.num_atoms is None


@pytest.mark.parametrize("agent", AGENTS)
def test_parameters_are_what_an_update_changes(agent):
    """Of every agent: as many numbers as its two moments have, none of targets or priors."""
    (wanted,) = bench.combinations([agent], [SEA], [1], fields=TINY)
    learner = wanted.shapes.learner
    parts = [learner.ensemble, learner.c51] if agent == "ids" else [learner]
    expected = sum(leaf.size for part in parts for leaf in jax.tree.leaves(part.params))
    assert bench.num_parameters(learner) == expected > 0


def test_parameters_by_hand():
    """2 value and 2 bonus models of 10 × 5 pixels, 8 hidden units, 3 actions of 3 atoms."""
    (wanted,) = bench.combinations(["pe_dqn"], ["catch/0"], [1], fields=TINY)
    assert bench.num_parameters(wanted.shapes.learner) == 4 * (50 * 8 + 8 + 8 * 9 + 9)


def test_environments_alone_are_timed_once_for_all_agents(monkeypatch):
    seen = []
    monkeypatch.setattr(bench, "_whole", lambda combination, _: (None, row_times()))
    monkeypatch.setattr(bench, "_learning", lambda *_: 0.01)

    def row_times():
        return {"updates_per_second": 1.0, "ms_step": 1.0}

    def environment(lanes, combination, num_steps, known):
        seen.append((combination.task.id, combination.lanes) in known)
        return known.setdefault((combination.task.id, combination.lanes), 0.001)

    monkeypatch.setattr(bench, "_environment", environment)
    wanted = bench.combinations(["dqn", "pe_dqn"], [SEA], [1, 2], fields=TINY)
    assert len(list(bench.measured(wanted, 10))) == 4
    assert sorted(seen) == [False, False, True, True]


def test_combinations_go_from_small_to_large():
    wanted = bench.combinations(["pe_dqn", "dqn"], [SEA, "catch/0"], [4, 1, 4], [5, 3])
    sizes = [combination.kept_bytes for combination in wanted]
    assert sizes == sorted(sizes)
    found = {(c.configured.name, c.task.id, c.num_atoms, c.lanes) for c in wanted}
    assert len(wanted) == len(found) == 2 * 2 * 2 + 2 * 2  # dqn has no atoms
    assert ("dqn", "catch/0", None, 4) in found
    assert ("pe_dqn", SEA, 5, 1) in found


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("RESOURCE_EXHAUSTED: no 9 GB\nmore"), "out of memory: no 9 GB"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
        (FloatingPointError("the loss was nan"), "the loss was nan"),
        (KeyError(), "KeyError"),
        (ValueError("x" * 1_000), "ValueError: xxx"),
    ],
)
def test_a_failure_is_a_row_and_stops_nothing(error, reason, monkeypatch):
    whole = bench._whole

    def fails(combination, num_steps):
        if combination.lanes == 2:
            raise error
        return whole(combination, num_steps)

    monkeypatch.setattr(bench, "_whole", fails)
    wanted = bench.combinations(["dqn"], [SEA], [1, 2], fields=TINY)
    if not isinstance(error, RuntimeError):
        wanted = wanted[1:]
    rows = list(bench.measured(wanted, 2, parts=False))
    (bad,) = [found for found in rows if found.status == "failed"]
    assert bad.lanes == 2
    assert bad.reason.startswith(reason)
    assert len(bad.reason) <= 160
    assert "\n" not in bad.reason
    assert bad.ms_step is bad.updates_per_second is None
    assert bad.parameters > 0
    assert all(found.status == "ok" for found in rows if found is not bad)


@pytest.mark.parametrize("number", [1, 2])
def test_lanes_that_do_not_fit_are_not_measured_as_fewer(number, monkeypatch):
    advance = compiled.advance

    def fails(agent, env, jobs, *others, **named):
        if len(jobs.key) == number:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no 9 GB")
        return advance(agent, env, jobs, *others, **named)

    monkeypatch.setattr(compiled, "advance", fails)
    wanted = bench.combinations(["dqn"], [SEA], [number], fields=TINY)
    (found,) = bench.measured(wanted, 2)
    assert (found.status, found.lanes) == ("failed", number)
    assert found.reason.startswith("out of memory: ")


def test_a_part_that_fails_leaves_the_whole(monkeypatch):
    def fails(*_):
        raise RuntimeError("RESOURCE_EXHAUSTED: no")

    monkeypatch.setattr(bench, "learn_alone", fails)
    wanted = bench.combinations(["dqn"], [SEA], [1], fields=TINY)
    (found,) = bench.measured(wanted, 2)
    assert found.status == "ok"
    assert found.learning_ms is None
    assert found.environment_ms > 0
    assert found.reason == "learning alone: out of memory: no"


def test_a_loss_that_is_not_finite_is_a_failure():
    wanted = bench.combinations(["dqn"], [SEA], [1], fields=TINY | {"learning_rate": 1e38})
    (found,) = bench.measured(wanted, 20, parts=False)
    assert found.status == "failed"
    assert found.reason.startswith("the loss was")


def test_what_cannot_fit_is_not_tried():
    wanted = bench.combinations(["pe_dqn"], [SEA], [10**9], fields=TINY)
    (found,) = bench.measured(wanted, 2)
    assert found.status == "failed"
    assert found.reason.startswith("out of memory: needs at least")


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ((["pe_dqm"], [SEA], [1]), "did you mean pe_dqn"),
        ((["pe_dqn"], ["deep_see/0"], [1]), "did you mean deep_sea"),
        ((["pe_dqn"], [SEA], [0]), "need lanes >= 1"),
        ((["pe_dqn"], [SEA], []), "at least one of --lanes"),
        ((["pe_dqn"], [SEA], [1], [0]), "num_atoms"),
        ((["dqn"], [SEA], [1], [3]), "has num_atoms for --atoms, got dqn"),
        ((["pe_dqn"], [SEA], [1], [3], {"num_atoms": 5}), "got both"),
    ],
)
def test_impossible_combinations_are_refused(arguments, shown):
    with pytest.raises(InputError, match=shown) as refused:
        bench.combinations(*arguments)
    assert "\n" not in str(refused.value)


def test_the_floor_by_hand():
    """1,000 parameters in 4 lanes: 16 kB, seven times over is 112 kB, in 1 ms at 112 MB/s."""
    found = row(copy_bytes_per_second=112e6)
    assert found.parameter_bytes == 16_000
    assert found.floor_ms == pytest.approx(1.0)
    assert found.floor_ratio == pytest.approx(8.0)
    assert found.ms_update == 2.0
    assert found.kept_bytes == 200_000
    assert row().floor_ms is row().floor_ratio is None
    parts = row(learning_ms=6.0, environment_ms=0.8)
    assert (parts.learning_share, parts.environment_share) == pytest.approx((0.75, 0.1))
    assert failed(learning_ms=1.0).learning_share is None


def test_a_copy_moves_bytes():
    assert 1e7 < machine.copy_bandwidth(2**22) < 1e14


def test_a_copy_that_does_not_fit_is_made_smaller(monkeypatch):
    zeros, tried = jnp.zeros, []

    def small(shape, dtype):
        tried.append(shape)
        if shape > 2**21:
            raise RuntimeError("RESOURCE_EXHAUSTED: no")
        return zeros(shape, dtype)

    monkeypatch.setattr(machine.jnp, "zeros", small)
    assert machine.copy_bandwidth(2**25) > 0
    assert tried == [2**23, 2**22, 2**21]


def test_rows_survive_the_disk(tmp_path):
    before = bench_of(
        row(copy_bytes_per_second=1e9, fields={"hidden": [8, 8], "priors": []}, peak_bytes=3),
        row(agent="dqn", num_atoms=None, reason="learning alone: out of memory"),
        failed(lanes=1024),
    )
    bench_rows.save(tmp_path / "bench.json", before)
    assert bench_rows.load(tmp_path / "bench.json") == before
    document = json.loads((tmp_path / "bench.json").read_text())
    assert document["rows"][0]["derived"]["floor_ms"] == pytest.approx(0.112)
    assert document["calls"][0]["command"] == "winkel bench"
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]


def test_of_equal_combinations_the_later_wins():
    old, other = row(ms_step=9.0), row(lanes=8)
    new, wider = row(ms_step=7.0), row(fields={"hidden": [64]})
    found = bench_rows.merged([bench_of(old, other), bench_of(new, wider)])
    assert set(map(id, found.rows)) == set(map(id, (new, other, wider)))
    assert found.calls == (CALL,)
    with pytest.raises(InputError, match="one device, got A100 and H200"):
        bench_rows.merged([bench_of(old), bench_of(new, device="A100")])


def test_rows_are_shown_in_order():
    rows = [row(lanes=16), row(lanes=4, num_atoms=5), row(agent="dqn"), row(lanes=4)]
    shown = [(r.agent, r.num_atoms, r.lanes) for r in bench_rows.in_order(rows)]
    assert shown == [("pe_dqn", 3, 4), ("pe_dqn", 3, 16), ("pe_dqn", 5, 4), ("dqn", 3, 4)]


def damaged(change):
    document = {"format": "winkel-bench", "version": 1, "device": "H200", "calls": []}
    entry = dataclasses.asdict(row())
    return change({**document, "rows": [entry]})


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (None, "no such file"),
        ("{", "is not JSON"),
        ("[]", "is not a bench.json"),
        ('{"format": "other"}', "is not a bench.json"),
        ('{"format": "winkel-bench", "version": 2}', "has version 2 of the format, need 1"),
        ('{"format": "winkel-bench", "version": 1}', "lacks device"),
        (damaged(lambda d: d | {"rows": 3}), "need list for rows, got 3"),
        (damaged(lambda d: d | {"rows": [3]}), "need dict for each row, got 3"),
        (damaged(lambda d: d | {"calls": [{}]}), "lacks date"),
        (damaged(lambda d: d | {"rows": [d["rows"][0] | {"lanes": "4"}]}), "int for lanes"),
        (damaged(lambda d: d | {"rows": [d["rows"][0] | {"lanes": True}]}), "int for lanes"),
        (damaged(lambda d: d | {"rows": [d["rows"][0] | {"lanes": 0}]}), "need lanes >= 1"),
        (damaged(lambda d: d | {"rows": [d["rows"][0] | {"status": "odd"}]}), "need status from"),
        (damaged(lambda d: d | {"rows": [d["rows"][0] | {"ms_step": None}]}), "a time exactly if"),
        (damaged(lambda d: d | {"rows": [d["rows"][0] | {"env": "odd/0"}]}), "unknown environment"),
    ],
)
def test_what_is_no_bench_is_refused(content, shown, tmp_path):
    path = tmp_path / "rows.json"
    if content is not None:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(InputError, match=shown) as refused:
        bench_rows.load(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_folder_is_no_bench(tmp_path):
    with pytest.raises(InputError, match="got the folder"):
        bench_rows.load(tmp_path)


def test_arrays_have_an_entry_for_each_time():
    found = bench_rows.arrays(
        bench_of(
            row(copy_bytes_per_second=112e6, lanes=4),
            row(env="catch/0", fields={"hidden": [8]}),
            row(agent="dqn", num_atoms=None, fields={"hidden": [8]}),
            failed(lanes=1024),
        )
    )
    assert found["agents"].tolist() == ["pe_dqn", "pe_dqn [hidden 8]", "dqn"]
    assert found["sizes"].tolist() == [4, 0, 4]
    assert found["atoms"].tolist() == [3, 3, 0]
    assert found["milliseconds"].tolist() == [2.0] * 3
    assert found["floor"][0] == pytest.approx(0.25)
    assert np.isnan(found["floor"][1])
    assert found["notes"].tolist() == [
        f"pe_dqn, {SEA}, K = 3, 1024 lanes: out of memory",
        "dqn with hidden 8",
    ]
