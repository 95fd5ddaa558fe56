"""Runs that are interrupted, killed or damaged: they continue as if nothing had happened."""

import contextlib
import os
import resource
import shutil
import signal

import numpy as np
import pytest

import winkel
from runs.tiny import (
    CHUNKS,
    EVALUATED,
    LENGTH,
    OFTEN,
    RARELY,
    SEED_0,
    assert_same_records,
    files,
    learn,
    stop_after,
)
from winkel.errors import InputError
from winkel.files import WRITERS
from winkel.runs.checkpoint import check_same_run, load_checkpoint, save_checkpoint
from winkel.runs.recorder import Recorder
from winkel.runs.results import read_results
from winkel.runs.spec import Options
from winkel.runs.train import Session


class Killed(BaseException):
    """Stands for SIGKILL, which no program can catch."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run that nothing interrupts, and what `train` returned."""
    root = tmp_path_factory.mktemp("whole")
    training = learn(root)
    return root / SEED_0, training


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    root = tmp_path_factory.mktemp("begun")
    with pytest.raises(KeyboardInterrupt):
        learn(root, progress=stop_after(3))
    return root


@pytest.fixture
def half(begun, tmp_path):
    """A run that was interrupted after its third chunk."""
    shutil.copytree(begun, tmp_path / "half")
    return tmp_path / "half"


# Unfinished runs


def test_an_unfinished_run_is_loaded_as_its_checkpoint_has_it(half, whole):
    loaded = winkel.load(half / SEED_0)
    count = (8 + 3 * 16) // LENGTH
    np.testing.assert_array_equal(loaded.episodes["return"], whole[1].episodes["return"][:count])
    assert "status" not in loaded.of(0).config
    assert np.isfinite(loaded.estimates(0).value).all()


def test_an_unfinished_run_is_a_result_only_if_asked_for(half, whole):
    with pytest.raises(InputError, match=r"no finished runs in .*seed-0: unfinished"):
        read_results(half)
    (record,), problems, *_ = read_results(half, unfinished=True)
    count = (8 + 3 * 16) // LENGTH
    assert problems == (f"{SEED_0}: unfinished, its first {count} episodes",)
    assert not record.finished
    loaded = winkel.load(half / SEED_0).of(0)
    for table in ("episodes", "evaluations", "snapshots"):
        np.testing.assert_equal(getattr(record, table), getattr(loaded, table))
        assert getattr(record, table)
    (ended,), problems, *_ = read_results(whole[0].parents[3], unfinished=True)
    assert ended.finished
    assert not problems
    for checkpoint in (half / SEED_0 / "checkpoint").glob("*.ckpt"):
        checkpoint.write_bytes(b"PK")
    with pytest.raises(InputError, match=r"no runs in.*need a readable checkpoint"):
        read_results(half, unfinished=True)


# Interrupts


@pytest.mark.parametrize(("chunk", "options"), [(1, RARELY), (3, OFTEN), (CHUNKS, RARELY)])
def test_an_interrupted_run_continues(tmp_path, whole, chunk, options):
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path, options=options, progress=stop_after(chunk))
    assert load_checkpoint(tmp_path / SEED_0 / "checkpoint")[2] == {}
    training = learn(tmp_path, options=options, resume=True)
    assert_same_records(tmp_path / SEED_0, whole[0])
    np.testing.assert_equal(training.estimates(3), whole[1].estimates(3))
    np.testing.assert_equal(training.episodes, whole[1].episodes)
    assert list(training.episodes) == list(whole[1].episodes)


def test_a_run_that_is_interrupted_after_every_chunk_ends_all_the_same(tmp_path, whole):
    for _ in range(CHUNKS):
        with pytest.raises(KeyboardInterrupt):
            learn(tmp_path, options=RARELY, resume=True, progress=stop_after(1))
    reported = []
    learn(tmp_path, options=RARELY, resume=True, progress=reported.append)
    assert reported == []
    assert_same_records(tmp_path / SEED_0, whole[0])


@pytest.mark.parametrize("chunk", [2, CHUNKS + 1])
def test_interrupted_runs_in_a_queue_continue(tmp_path, whole, chunk):
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path, seeds=[1, 0], progress=stop_after(chunk))
    learn(tmp_path, seeds=[1, 0], resume=True)
    assert_same_records(tmp_path / SEED_0, whole[0])


def test_a_run_that_waits_to_continue_shows_how_far_it_is(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path, seeds=[1], progress=stop_after(2))
    reported = []
    learn(tmp_path, seeds=2, resume=True, progress=reported.append)
    status = reported[0][1]
    made = (status.progress, status.env_steps, status.num_episodes, status.updates)
    assert made == (0.4, 40, 8, 32)


@pytest.mark.long
def test_runs_continue_in_as_many_lanes_as_before(tmp_path):
    """Another number of lanes would round otherwise. The fourth run is alone when it is resumed."""
    settings = {"seeds": 4, "lanes": 3}
    learn(tmp_path / "whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path / "half", **settings, progress=stop_after(CHUNKS + 2))
    learn(tmp_path / "half", **settings, resume=True)
    for seed in range(4):
        folder = f"deep_sea/pe_dqn/size=5/seed-{seed}"
        assert_same_records(tmp_path / "half" / folder, tmp_path / "whole" / folder)


PLACES = (
    (Recorder, "record", 4, RARELY),
    (Session, "_take_snapshots", 4, RARELY),
    (Session, "_save", 4, OFTEN),
    (Session, "_finish", 1, RARELY),
    (Recorder, "finish", 1, RARELY),
)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[1])
def test_ctrl_c_at_any_place_loses_nothing(tmp_path, whole, monkeypatch, place):
    """The chunk is completed first, then saved: the fourth chunk or the last."""
    kind, name, call, options = place
    original, calls = getattr(kind, name), []

    def pressed(self, *arguments):
        calls.append(name)
        if len(calls) == call:
            signal.raise_signal(signal.SIGINT)
        return original(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(kind, name, pressed)
        with pytest.raises(KeyboardInterrupt):
            learn(tmp_path, options=options)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    made = []
    learn(tmp_path, resume=True, progress=made.append)
    assert len(made) == (CHUNKS - 4 if call == 4 else 0)
    assert_same_records(tmp_path / SEED_0, whole[0])


def test_ctrl_c_twice_is_not_deferred(tmp_path, whole, monkeypatch):
    """The chunk is broken off, and what it left half done is not saved."""
    original, calls = Recorder.record, []

    def pressed(self, report):
        calls.append(report)
        if len(calls) == 4:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            pytest.fail("went on after two interrupts")
        original(self, report)

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "record", pressed)
        with pytest.raises(KeyboardInterrupt):
            learn(tmp_path)
    learn(tmp_path, resume=True)
    assert_same_records(tmp_path / SEED_0, whole[0])


LAST = CHUNKS + 4
"""A checkpoint after each chunk but the last; at the end a checkpoint, then four files."""


@pytest.mark.parametrize("write", [1, CHUNKS - 1, *range(CHUNKS, LAST + 2)])
def test_a_run_that_dies_at_any_write_continues(tmp_path, whole, monkeypatch, write):
    """Before the first, before each of the last ones, and after all of them."""
    replace, calls = os.replace, []

    def die(source, target):
        if WRITERS not in str(target):
            calls.append(target)
        if len(calls) == write:
            raise Killed
        replace(source, target)
        if len(calls) == LAST:
            raise Killed

    def keep(path):
        """A killed process does not tidy up."""

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", die)
        patch.setattr(os, "unlink", keep)
        with pytest.raises(Killed):
            learn(tmp_path)
    assert len(calls) == min(write, LAST)
    if not (tmp_path / SEED_0 / "config.json").exists():
        with (tmp_path / SEED_0 / "metrics.jsonl").open("ab") as file:
            file.write(b'{"env_steps": 1')
    learn(tmp_path, resume=True)
    assert_same_records(tmp_path / SEED_0, whole[0])


# Damage


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [truncate, flip])
def test_a_damaged_checkpoint_is_reported_and_the_one_before_is_used(half, whole, damage):
    _, newest = sorted((half / SEED_0 / "checkpoint").iterdir())
    damage(newest)
    notices = []
    learn(half, resume=True, notice=notices.append)
    (notice,) = notices
    for part in (newest.name, str(half / SEED_0), "checkpoint before"):
        assert part in notice
    assert_same_records(half / SEED_0, whole[0])


def test_the_last_checkpoint_is_not_believed_if_its_state_is_damaged(tmp_path, whole):
    """The run was killed before its records were written; it is finished from the one before."""
    folder = tmp_path / SEED_0
    shutil.copytree(whole[0], folder)
    (folder / "config.json").unlink()
    newest = max((folder / "checkpoint").iterdir())
    content = newest.read_bytes()
    at = content.index(b"state/clock.env_steps.npy") + 80
    newest.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    notices = []
    learn(tmp_path, resume=True, notice=notices.append)
    assert newest.name in notices[0]
    assert_same_records(folder, whole[0])


def test_resuming_with_other_lanes_is_told(half):
    notices = []
    learn(half, resume=True, seeds=2, lanes=2, notice=notices.append)
    assert len(notices) == 1
    assert f"{half / SEED_0}: was made with lanes 1 and continues with 2: results" in notices[0]


@pytest.mark.parametrize("move", [shutil.rmtree, lambda folder: folder.rename(f"{folder}-moved")])
def test_a_folder_that_is_deleted_or_moved_during_training_is_noticed(tmp_path, move):
    calls = []

    def progress(statuses):
        calls.append(statuses)
        if len(calls) == 2:
            move(tmp_path / "runs")

    with pytest.raises(InputError, match=r"metrics.jsonl was deleted or moved while") as error:
        learn(tmp_path / "runs", progress=progress)
    assert len(calls) == 2
    assert "\n" not in str(error.value)


def test_without_a_readable_checkpoint_nothing_is_touched(half):
    for path in (half / SEED_0 / "checkpoint").iterdir():
        truncate(path)
    before = files(half)
    with pytest.raises(InputError, match="need a readable checkpoint") as error:
        learn(half, resume=True)
    assert str(half / SEED_0) in str(error.value)
    assert "\n" not in str(error.value)
    assert files(half) == before


def other_version(arrays, meta):
    meta["run"]["versions"]["winkel"] = "9.8.7"


def other_shape(arrays, meta):
    arrays["state/visits"] = arrays["state/visits"][:-1]


def other_learner(arrays, meta):
    for name in [name for name in arrays if name.startswith("state/learner.prior")]:
        del arrays[name]


def other_config(arrays, meta):
    meta["run"]["hyper"]["gamma"] = 0.5


def wrong_run(arrays, meta):
    meta["run"] = []


def wrong_position(arrays, meta):
    meta["log_position"] = "1"


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (other_config, "was changed: it has the fingerprint"),
        (wrong_run, r"need run in .* as dict, got \[\]"),
        (wrong_position, "need log_position in .* as int, got '1'"),
        (other_version, "was made by winkel 9.8.7, this is"),
        (other_shape, r"need visits, shape \[25, 2\] of int32, .* got shape \[24, 2\]"),
        (other_learner, "need learner.prior"),
    ],
)
def test_foreign_checkpoints_are_refused_and_left_alone(half, change, shown):
    folder = half / SEED_0 / "checkpoint"
    arrays, meta, _ = load_checkpoint(folder)
    change(arrays, meta)
    save_checkpoint(folder, arrays, meta)
    before = files(half)
    with pytest.raises(InputError, match=shown):
        learn(half, resume=True)
    assert files(half) == before


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({"batch_size": 9}, "config.batch_size is 8 there and 9 here"),
        ({"episodes": 21}, "horizon.episodes is 20 there and 21 here"),
        ({"until": 3}, "until is None there and 3 here"),
        ({"options": Options(chunk_steps=17, **EVALUATED)}, "options.chunk_steps is 16 there"),
        ({"agent": "pe_dqn_no_prior", "label": "pe_dqn"}, "algorithm is 'pe_dqn' there and 'pe_d"),
    ],
)
def test_another_run_is_not_resumed(half, changed, shown):
    before = files(half)
    with pytest.raises(InputError, match=shown) as error:
        learn(half, resume=True, **changed)
    assert SEED_0 in str(error.value)
    assert files(half) == before


def test_a_finished_run_is_not_resumed_as_another(whole):
    root = whole[0].parents[3]
    before = files(root)
    with pytest.raises(InputError, match=r"learning_rate is 0\.0005 there and 0\.25 here"):
        learn(root, resume=True, learning_rate=0.25)
    assert files(root) == before


def test_a_field_that_the_other_run_does_not_know_is_a_difference():
    ours = {"fingerprint": "a", "options": {"every": None, "x": 1}}
    theirs = {"fingerprint": "b", "options": {"x": 1}}
    with pytest.raises(InputError, match=r"options.every is .* there and None here"):
        check_same_run(ours, theirs, "here")


def test_a_folder_is_not_overwritten(half):
    before = files(half)
    with pytest.raises(InputError, match="exists; resume it") as error:
        learn(half)
    assert str(half / SEED_0) in str(error.value)
    assert files(half) == before


@contextlib.contextmanager
def disk_of(size):
    """No file may be larger."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("chunk", [0, 3])
def test_a_full_disk_loses_nothing_that_was_saved(tmp_path, whole, chunk):
    """Checkpoints grow with the records: here the one after so many chunks is too large."""
    sizes = []

    def weigh(_):
        newest = sorted((tmp_path / "weighed" / SEED_0 / "checkpoint").iterdir())[-1]
        sizes.append(newest.stat().st_size)

    learn(tmp_path / "weighed", progress=weigh)
    assert sizes == sorted(set(sizes))
    root = tmp_path / "full"
    with disk_of(sizes[chunk] - 1), pytest.raises(InputError, match="cannot write") as error:
        learn(root)
    assert "File too large" in str(error.value)
    assert "\n" not in str(error.value)
    kept = sorted(path.name for path in (root / SEED_0 / "checkpoint").iterdir())
    assert kept == [f"{n:012d}.ckpt" for n in range(max(chunk - 1, 1), chunk + 1)]
    if chunk:
        assert winkel.load(root / SEED_0).runs
    learn(root, resume=True)
    assert_same_records(root / SEED_0, whole[0])
