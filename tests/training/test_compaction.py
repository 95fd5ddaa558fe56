"""Fewer lanes: when enough of them are idle, and when there is no memory for more."""

from concurrent.futures import Future

import jax
import numpy as np
import pytest

from winkel.envs.registry import make
from winkel.errors import InputError
from winkel.runs.spec import configure
from winkel.training import compaction, compiled
from winkel.training.compaction import Compaction
from winkel.training.compiled import CompiledWorld
from winkel.training.lanes import Lanes
from winkel.training.programs import Programs, take_lanes
from winkel.training.steps import Horizon, Plan

TASK = make("deep_sea:size=3")
TINY = {"hidden": (4,), "num_atoms": 3, "batch_size": 2, "burn_in": 4, "capacity": 16}
AGENT, HYPER = configure("qr_dqn", TINY, TASK)
CHUNK = 6


def plan(seed, episodes, **others):
    return Plan(TASK.params, HYPER, Horizon(episodes=episodes), seed, **others)


def make_lanes(plans, num_lanes, chunk_steps=CHUNK, **options):
    return Lanes(AGENT, CompiledWorld(TASK.env), plans, num_lanes, chunk_steps, **options)


def finished(machine, after_chunk=lambda counts: None):
    """Records by run, all chunks joined, and how many lanes there were at each chunk."""
    records, counts = {}, []
    while reports := machine.advance():
        counts.append(machine.num_lanes)
        after_chunk(counts)
        assert len(machine.running) <= machine.num_lanes
        for report in reports:
            assert report.failure is None
            records.setdefault(report.run, []).append(report.episodes)
            if report.finished:
                machine.release(report.run)
    joined = {
        number: {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        for number, parts in records.items()
    }
    return joined, counts


PLANS = [plan(seed, episodes) for seed, episodes in enumerate((4, 30, 8, 12, 6, 20))]


@pytest.fixture(scope="module")
def whole():
    return finished(make_lanes(PLANS, 4))[0]


def exhausted(most, monkeypatch, lanes_of=lambda arguments: len(arguments[2].fan_in)):
    """A device without memory for more than `most` lanes; counts how often that was tried."""
    advance, tried = compiled.advance, []

    def limited(*arguments, **named):
        if lanes_of(arguments) > most:
            tried.append(lanes_of(arguments))
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory, 7 bytes")
        return advance(*arguments, **named)

    monkeypatch.setattr(compiled, "advance", limited)
    return tried


@pytest.mark.parametrize("most", [1, 3])
def test_without_memory_for_all_lanes_there_are_fewer(whole, monkeypatch, most):
    tried, notices = exhausted(most, monkeypatch), []
    machine = make_lanes(PLANS, 4, notice=notices.append)
    records, _ = finished(machine)
    np.testing.assert_equal(records, whole)
    assert tried == [4, 2][: 3 - machine.num_lanes]
    assert machine.num_lanes == (1 if most == 1 else 2)
    assert len(notices) == len(tried)
    assert "out of memory with 4 lanes" in notices[0]
    assert "\n" not in notices[0]


@pytest.mark.parametrize("after", [1, 2, 4])
def test_memory_that_runs_out_later_loses_and_repeats_nothing(whole, monkeypatch, after):
    """Runs go on from where they were; those without a lane wait."""
    machine, parts = make_lanes(PLANS, 4), {}

    def keep(reports):
        for report in reports:
            parts.setdefault(report.run, []).append(report.episodes)
            if report.finished:
                machine.release(report.run)

    for _ in range(after):
        keep(machine.advance())
    tried = exhausted(2, monkeypatch)
    while reports := machine.advance():
        keep(reports)
    assert tried == [4]
    for number, table in whole.items():
        for name, values in table.items():
            found = np.concatenate([part[name] for part in parts[number]])
            np.testing.assert_array_equal(found, values)


def test_one_lane_that_does_not_fit_is_an_error_that_says_what_to_change(monkeypatch):
    exhausted(0, monkeypatch)
    with pytest.raises(InputError, match="with a single lane; need a smaller environment") as error:
        make_lanes(PLANS, 4).advance()
    assert "\n" not in str(error.value)


def test_other_errors_of_the_device_are_not_taken_for_it(monkeypatch):
    def broken(*_, **__):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    monkeypatch.setattr(compiled, "advance", broken)
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        make_lanes(PLANS, 4).advance()


@pytest.mark.parametrize("look", ["evaluate", "survey"])
def test_without_memory_lanes_are_evaluated_one_by_one(monkeypatch, look):
    machine = make_lanes(PLANS[:2], 2)
    machine.advance()
    arguments = ([1, 0], 1, 2) if look == "evaluate" else ([1, 0],)
    wanted = getattr(machine, look)(*arguments)
    original = getattr(compiled, look)

    def limited(*given, **named):
        if any(np.shape(jax.tree.leaves(part)[0])[:1] == (2,) for part in given[2:4]):
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED")
        return original(*given, **named)

    monkeypatch.setattr(compiled, look, limited)
    for ours, theirs in zip(getattr(machine, look)(*arguments), wanted, strict=True):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), ours, theirs)


class AtOnce(Programs):
    """Programs for which the caller waits, so that a test knows when they are ready."""

    def compile_in_background(self, function, *arguments, **named):
        begun = super().compile_in_background(function, *arguments, **named)
        begun.result()
        return begun


def test_idle_lanes_are_left_out(whole):
    rearrange = Compaction(unit=2).rearrange
    machine = make_lanes(PLANS, 6, rearrange=rearrange, programs=AtOnce())
    records, counts = finished(machine)
    for number, table in whole.items():
        np.testing.assert_array_equal(records[number]["length"], table["length"])
    assert counts[0] == 6
    assert set(counts) == {6, 4, 2}
    assert counts == sorted(counts, reverse=True)
    ends = {i: -(-max(p.horizon.episodes * 3 - 4, 1) // CHUNK) for i, p in enumerate(PLANS)}
    running = [sum(end > chunk for end in ends.values()) for chunk in range(len(counts))]
    assert all(left <= count for left, count in zip(running, counts, strict=True))
    assert counts[-1] == 2


@pytest.mark.parametrize(("left", "shrinks"), [(None, True), (10**6, True), (10, False)])
def test_a_program_of_fewer_lanes_must_be_worth_its_compilation(left, shrinks):
    plans = [p._replace(most_steps=left) for p in PLANS[:4]]
    rearrange = Compaction(unit=1).rearrange
    _, counts = finished(make_lanes(plans, 4, rearrange=rearrange, programs=AtOnce()))
    assert (counts[-1] < 4) == shrinks


def test_lanes_stay_by_default_and_while_runs_wait():
    assert set(finished(make_lanes(PLANS, 4))[1]) == {4}
    rearrange = Compaction(unit=1).rearrange
    queued = make_lanes(PLANS, 2, rearrange=rearrange, programs=AtOnce())
    for _ in range(3):
        for report in queued.advance():
            if report.finished:
                queued.release(report.run)
    assert queued.num_lanes == 2


@pytest.mark.parametrize(
    ("num_lanes", "running", "unit", "fewer"),
    [
        (186, 163, 8, 186),  # 168 would leave out less than an eighth
        (186, 160, 8, 160),
        (24, 17, 8, 24),
        (24, 16, 8, 16),
        (8, 1, 8, 8),
        (4, 1, 1, 1),
    ],
)
def test_how_many_lanes_runs_need(num_lanes, running, unit, fewer):
    assert compaction.fewer_lanes(num_lanes, running, unit) == fewer


class Later(Future):
    """A program that is compiled when the test says so."""

    compiled = False

    def done(self):
        return self.compiled


@pytest.fixture
def slow():
    """A compiler, and the programs that it was asked for, by number of lanes."""
    asked = {}

    class Compiler(AtOnce):
        def compile_in_background(self, function, *arguments, **_):
            if function is take_lanes:
                return super().compile_in_background(function, *arguments)
            return asked.setdefault(jax.tree.leaves(arguments[3])[0].shape[0], Later())

    return Compiler(), asked


def test_lanes_go_on_until_the_program_of_fewer_is_ready(whole, slow):
    compiler, asked = slow
    rearrange = Compaction(unit=1).rearrange
    machine = make_lanes(PLANS, 4, rearrange=rearrange, programs=compiler)

    def compile_it(counts):
        assert len(asked) <= 1 or len(counts) > 6  # one at a time
        for program in asked.values():
            program.compiled = len(counts) >= 6

    records, counts = finished(machine, compile_it)
    assert counts[:6] == [4] * 6  # though at most two runs were under way after the fourth
    assert counts[6] == max(asked) < 4
    for number, expected in whole.items():
        for name, column in expected.items():
            np.testing.assert_allclose(records[number][name], column, rtol=1e-5)
