"""Training from the outside: what it returns, what it leaves on disk, and how it goes on."""

import contextlib
import json
import os
import resource
import shutil
import signal

import numpy as np
import pandas as pd
import pytest

import winkel
from winkel.cli import main
from winkel.errors import InputError
from winkel.experiments.collect import COLLECTORS
from winkel.runs.checkpoint import load_checkpoint, save_checkpoint
from winkel.runs.metrics import read_metrics
from winkel.runs.recording import Recorder, check_same_run
from winkel.runs.results import read_results
from winkel.runs.session import Options, Session
from winkel.training.lanes import Lanes

# Chunks of 16 steps after 8 end in the middle of episodes of 5; 20 episodes are 6 chunks.
ENV, LENGTH, CHUNKS = "deep_sea:size=5", 5, 6
TINY = {"hidden": (16,), "num_atoms": 5, "batch_size": 8, "burn_in": 8, "capacity": 64}
LOOKS = {"evaluate_every": 3, "evaluation_episodes": 2, "snapshots": 3}
OFTEN = Options(chunk_steps=16, checkpoint_seconds=0.0, **LOOKS)
RARELY = Options(chunk_steps=16, checkpoint_seconds=1e9, **LOOKS)
RECORDS = ("config.json", "episodes.npz", "evaluations.npz", "metrics.jsonl", "snapshots.npz")
SEED_0 = "deep_sea/pe_dqn/size=5/seed-0"


class Killed(BaseException):
    """What no program can catch; here raised to stand for it."""


def learn(out=None, agent="pe_dqn", env=ENV, **changed):
    settings = {"episodes": 20, "lanes": 1, "options": OFTEN, **TINY, **changed}
    return winkel.train(env, agent, out=out, **settings)


def files(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def records(folder):
    """Everything that a run leaves, but for how many checkpoints it took to get there."""
    state = load_checkpoint(folder / "checkpoint").arrays
    return {name: (folder / name).read_bytes() for name in RECORDS} | {
        name: (str(array.dtype), array.shape, array.tobytes()) for name, array in state.items()
    }


def assert_same_records(folder, other):
    ours, theirs = records(folder), records(other)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []


def stop_after(chunks, error=KeyboardInterrupt):
    """A progress callback that interrupts."""
    calls = []

    def progress(statuses):
        calls.append(statuses)
        if len(calls) == chunks:
            raise error

    return progress


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing interrupts: the folder for runs, its own, and what `train` returned."""
    root = tmp_path_factory.mktemp("whole")
    training = learn(root)
    return root, root / SEED_0, training


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A run that was interrupted after its third chunk; copy before use."""
    root = tmp_path_factory.mktemp("begun")
    with pytest.raises(KeyboardInterrupt):
        learn(root, progress=stop_after(3))
    return root


@pytest.fixture
def half(begun, tmp_path):
    shutil.copytree(begun, tmp_path / "half")
    return tmp_path / "half"


# What comes back


@pytest.mark.parametrize("path", ["", SEED_0])
def test_a_run_comes_back_from_disk(whole, path):
    root, _, training = whole
    loaded = winkel.load(root / path)
    np.testing.assert_equal(loaded.episodes, training.episodes)
    np.testing.assert_equal(loaded.evaluations, training.evaluations)
    np.testing.assert_equal(loaded.of(0).snapshots, training.of(0).snapshots)
    assert loaded.of(0).config == training.of(0).config
    assert (loaded.of(0).agent, loaded.of(0).hyper) == (training.of(0).agent, training.of(0).hyper)
    for cell in range(LENGTH * LENGTH + 1):
        np.testing.assert_equal(loaded.estimates(cell), training.estimates(cell))


def test_an_unfinished_run_comes_back_as_its_checkpoint_has_it(half, whole):
    loaded = winkel.load(half / SEED_0)
    count = (8 + 3 * 16) // LENGTH
    np.testing.assert_array_equal(loaded.episodes["return"], whole[2].episodes["return"][:count])
    assert "status" not in loaded.of(0).config
    assert np.isfinite(loaded.estimates(0).value).all()


def test_an_unfinished_run_is_a_result_only_if_asked_for(half, whole):
    with pytest.raises(InputError, match=r"no finished runs in .*seed-0: unfinished"):
        read_results(half)
    (record,), problems, _ = read_results(half, unfinished=True)
    count = (8 + 3 * 16) // LENGTH
    np.testing.assert_array_equal(record.episodes["return"], whole[2].episodes["return"][:count])
    assert problems == (f"{SEED_0}: unfinished, its first {count} episodes",)
    loaded = winkel.load(half / SEED_0).of(0)
    np.testing.assert_equal(record.evaluations(), loaded.evaluations)
    np.testing.assert_equal(record.snapshots(), loaded.snapshots)
    assert len(loaded.snapshots["episodes"])
    (ended,), problems, _ = read_results(whole[0], unfinished=True)
    assert ended.finished
    assert not problems
    assert not record.finished


def test_a_figure_shows_an_unfinished_run_and_says_so(half, tmp_path, capsys):
    arguments = ["--out", str(tmp_path / "out"), "--formats", "png"]
    with pytest.raises(SystemExit) as end:
        main(["figure", "learning-curves", str(half), *arguments])
    assert end.value.code == 2
    with pytest.raises(SystemExit):
        main(["figure", "learning-curves", *arguments, "--unfinished"])
    assert "need a folder of runs for --unfinished" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["figure", "regret", str(half), *arguments, "--unfinished"])
    assert "others are of whole runs, got regret" in capsys.readouterr().err
    main(["figure", "learning-curves", str(half), *arguments, "--unfinished"])
    assert f"note: {SEED_0}: unfinished, its first 11 episodes" in capsys.readouterr().out
    assert (tmp_path / "out/learning-curves.png").is_file()


def test_runs_that_go_on_stand_beside_those_that_ended_of_the_same_plan(half, whole):
    shutil.copytree(whole[1], half / SEED_0.replace("seed-0", "seed-1"))
    config = half / SEED_0.replace("seed-0", "seed-1") / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"seed": 1}))
    arrays = COLLECTORS["learning-curves"](read_results(half, unfinished=True))
    assert arrays["num_seeds"].tolist() == [[2]]
    assert np.nanmax(arrays["x"]) == 11
    assert not any("left out" in note for note in arrays["notes"])


def test_an_unfinished_run_without_a_readable_checkpoint_is_a_problem(half):
    for checkpoint in (half / SEED_0 / "checkpoint").glob("*.ckpt"):
        checkpoint.write_bytes(b"PK")
    with pytest.raises(InputError, match=r"no runs in.*need a readable checkpoint"):
        read_results(half, unfinished=True)


def test_a_policy_takes_an_index_or_a_grid(whole):
    policy, training = whole[2].policy(), whole[2]
    for cell in range(LENGTH * LENGTH):
        grid = np.zeros((LENGTH, LENGTH))
        grid.flat[cell] = 1.0
        action = policy(grid)
        assert action == policy(cell) == policy(np.int32(cell))
        assert type(action) is int
        assert action == np.argmax(training.estimates(cell).value)
    nothing = np.zeros((LENGTH, LENGTH))
    np.testing.assert_equal(training.estimates(nothing), training.estimates(LENGTH * LENGTH))


@pytest.mark.parametrize(
    ("obs", "shown"),
    [
        (26, "got 26"),
        (-1, "got -1"),
        (0.5, r"shape \[\]"),
        (np.ones((5, 5)), r"at most a single one, got an array of shape \[5, 5\]"),
        (np.zeros((4, 4)), r"\[4, 4\]"),
        (np.full((5, 5), 0.5), "single one"),
    ],
)
def test_impossible_observations_are_refused(whole, obs, shown):
    with pytest.raises(InputError, match=shown):
        whole[2].estimates(obs)


def test_episodes_are_a_table(tmp_path):
    table = pd.DataFrame(learn(seeds=[4, 1], options=RARELY).episodes)
    assert list(table.columns[:2]) == ["seed", "episode"]
    assert set(table.columns) == {
        *("seed", "episode", "return", "length", "env_steps", "seen", "bad", "treasure")
    }
    assert table["seed"].tolist() == [4] * 20 + [1] * 20
    assert table["episode"].tolist() == [*range(1, 21)] * 2
    steps = table.groupby("seed")["length"].cumsum()
    np.testing.assert_array_equal(steps, table["env_steps"])
    assert not table.isna().any().any()


def test_seeds_are_a_number_or_a_list(whole):
    counted, listed = learn(seeds=2, options=RARELY), learn(seeds=[1, 0], options=RARELY)
    assert [run.config["seed"] for run in counted.runs] == [0, 1]
    assert [run.config["seed"] for run in listed.runs] == [1, 0]
    for seed in (0, 1):
        np.testing.assert_equal(counted.of(seed).episodes, listed.of(seed).episodes)
    np.testing.assert_equal(counted.of(0).episodes, whole[2].of(0).episodes)
    assert not np.array_equal(counted.of(0).episodes["seen"], counted.of(1).episodes["seen"])
    np.testing.assert_equal(listed.estimates(3), listed.estimates(3, seed=1))
    with pytest.raises(InputError, match=r"need a seed from \[1, 0\], got 7"):
        listed.of(7)


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch, whole):
    monkeypatch.chdir(tmp_path)
    training = learn()
    assert list(tmp_path.iterdir()) == []
    np.testing.assert_equal(training.episodes, whole[2].episodes)


def test_progress_is_told_after_every_chunk():
    told = []
    training = learn(seeds=2, options=RARELY, progress=told.append)
    assert len(told) == 2 * CHUNKS
    first, second = told[CHUNKS - 1]
    rows = training.of(0).episodes
    assert first.state == "finished"
    assert (first.seed, first.progress, first.num_episodes) == (0, 1.0, 20)
    assert first.recent_return == pytest.approx(rows["return"].mean())
    assert first.seen == pytest.approx(rows["seen"][-1] / 30)  # 15 cells on or below the diagonal
    found = np.flatnonzero(rows["treasure"])
    assert first.found == (found[0] + 1 if len(found) else None)
    assert (second.seed, second.state, second.progress) == (1, "running", 0.0)
    assert [statuses[0].progress for statuses in told[:CHUNKS]] == sorted(
        statuses[0].progress for statuses in told[:CHUNKS]
    )


# Records


def test_metrics_are_a_line_for_each_chunk(whole):
    rows = read_metrics(whole[1] / "metrics.jsonl")
    assert [row["updates"] for row in rows] == [16 * n for n in range(1, CHUNKS + 1)]
    assert [row["episodes"] for row in rows] == [
        min((8 + 16 * n) // LENGTH, 20) for n in range(1, CHUNKS + 1)
    ]
    assert all({"loss", "beta", "clipped", "env_steps"} <= row.keys() for row in rows)


def test_evaluations_happen_at_the_first_end_of_a_chunk_after_their_time(whole):
    table = whole[2].evaluations
    ended = [min((8 + 16 * n) // LENGTH, 20) for n in range(1, CHUNKS + 1)]
    due = {count // 3: count for count in reversed(ended) if count // 3}
    assert dict(zip(table["evaluation"], table["episodes"], strict=True)) == due
    assert table["returns"].shape == (len(due), 2)
    assert (table["seed"] == 0).all()
    assert (np.diff(table["evaluation"]) > 0).all()


def test_evaluations_count_steps_where_the_horizon_does():
    options = Options(chunk_steps=16, **LOOKS | {"evaluate_every": 20})
    table = learn(episodes=None, steps=70, options=options).evaluations
    assert table["evaluation"].tolist() == [1, 2, 3]
    assert table["env_steps"].tolist() == [24, 40, 70]


def test_snapshots_go_from_the_first_chunk_to_the_end(whole):
    snapshots = whole[2].of(0).snapshots
    assert snapshots["episodes"].tolist() == [4, 11, 20]
    for name in ("visits", "value", "disagreement", "bonus"):
        assert snapshots[name].shape == (3, LENGTH * LENGTH, 2)
    assert snapshots["visits"].sum(axis=(1, 2)).tolist() == [24, 56, 8 + 16 * CHUNKS]
    for cell in range(LENGTH * LENGTH):
        estimates = whole[2].estimates(cell)
        for name in ("value", "disagreement", "bonus"):
            np.testing.assert_allclose(
                snapshots[name][-1, cell], getattr(estimates, name), rtol=1e-5, atol=1e-6
            )


@pytest.mark.parametrize(("wanted", "episodes"), [(0, []), (1, [20]), (2, [4, 20])])
def test_the_number_of_snapshots_is_chosen(tmp_path, wanted, episodes):
    options = Options(chunk_steps=16, snapshots=wanted)
    training = learn(tmp_path, options=options)
    assert list(training.of(0).snapshots.get("episodes", ())) == episodes
    assert (tmp_path / SEED_0 / "snapshots.npz").exists() == bool(episodes)
    assert training.evaluations == {}
    assert not (tmp_path / SEED_0 / "evaluations.npz").exists()


def test_a_run_until_is_the_beginning_of_the_whole(tmp_path, whole):
    training = learn(tmp_path, until=9)
    np.testing.assert_equal(
        training.episodes, {name: rows[:9] for name, rows in whole[2].episodes.items()}
    )
    config = json.loads((tmp_path / SEED_0 / "config.json").read_text())
    assert (config["until"], config["horizon"], config["status"]) == (
        *(9, {"episodes": 20, "steps": None}, "finished"),
    )
    lines = (whole[1] / "metrics.jsonl").read_bytes().splitlines()
    ours = (tmp_path / SEED_0 / "metrics.jsonl").read_bytes().splitlines()
    assert ours[:-1] == lines[: len(ours) - 1]
    assert training.of(0).snapshots["episodes"].tolist() == [4, 8, 9]


def test_a_run_until_ends_with_a_horizon_of_steps_too():
    training = learn(episodes=None, steps=30, until=19, options=RARELY)
    assert training.episodes["env_steps"].tolist() == [5, 10, 15, 20, 25, 30]


def test_a_label_names_the_runs(tmp_path):
    training = learn(tmp_path, label="mine", options=RARELY)
    folder = tmp_path / "deep_sea/mine/size=5/seed-0"
    assert (folder / "config.json").is_file()
    assert training.of(0).config["agent"] == "mine"
    assert training.of(0).config["algorithm"] == "pe_dqn"
    np.testing.assert_equal(winkel.load(folder).estimates(3), training.estimates(3))


def test_runs_of_two_agents_are_not_loaded_as_one(tmp_path):
    learn(tmp_path, options=RARELY)
    learn(tmp_path, label="mine", options=RARELY)
    with pytest.raises(InputError, match="mine in deep_sea:size=5, pe_dqn in deep_sea:size=5"):
        winkel.load(tmp_path)


def test_a_config_tells_everything(whole):
    config = json.loads((whole[1] / "config.json").read_text())
    assert config["config"] | TINY == config["config"] | {"hidden": (16,)}
    assert config["hyper"]["z_min"] == -0.5
    assert (config["env"], config["seed"], config["setting"]["size"]) == (ENV, 0, 5)
    assert config["versions"]["winkel"] == winkel.__version__
    assert config["options"] == LOOKS | {"chunk_steps": 16}


class Copy:
    def __init__(self):
        self.steps, self.closed = [], 0

    def write(self, step, row):
        self.steps.append(step)

    def close(self):
        self.closed += 1


def test_mirrors_get_the_metrics_and_are_closed(tmp_path):
    made = []

    def mirrors(config, folder):
        made.append((config["seed"], folder, Copy()))
        return (made[-1][2],)

    learn(tmp_path, options=RARELY, mirrors=mirrors)
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path, seeds=[1], options=RARELY, mirrors=mirrors, progress=stop_after(2))
    (seed, folder, done), (_, _, stopped) = made
    assert (seed, folder) == (0, tmp_path / SEED_0)
    assert done.steps == [row["env_steps"] for row in read_metrics(folder / "metrics.jsonl")]
    assert (len(stopped.steps), done.closed, stopped.closed) == (2, 1, 1)


def test_a_failed_run_is_told_and_kept(tmp_path):
    told = []
    training = learn(tmp_path, learning_rate=1e38, notice=told.append)
    (notice,) = told
    assert "seed 0 stopped: the loss was nan at update 2" in notice
    config = training.of(0).config
    assert config["status"] == "failed"
    assert "update 2" in config["reason"]
    assert len(training.episodes["length"]) == 1  # of the burn-in
    before = files(tmp_path)
    again = learn(tmp_path, learning_rate=1e38, notice=told.append, resume=True)
    assert again.of(0).config["status"] == "failed"
    assert files(tmp_path) == before


# Going on


def test_finished_runs_are_not_trained_again(tmp_path, whole):
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    before = {path: path.stat().st_mtime_ns for path in files(tmp_path)}
    told = []
    again = learn(tmp_path, resume=True, progress=told.append)
    assert told == []
    assert {path: path.stat().st_mtime_ns for path in files(tmp_path)} == before
    np.testing.assert_equal(again.episodes, whole[2].episodes)
    more = learn(tmp_path, seeds=2, resume=True)
    assert [run.config["seed"] for run in more.runs] == [0, 1]
    kept = {path: path.stat().st_mtime_ns for path in files(tmp_path) if path in before}
    assert kept == before


@pytest.mark.parametrize("options", [OFTEN, RARELY])
@pytest.mark.parametrize("chunk", range(1, CHUNKS + 1))
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(tmp_path, whole, chunk, options):
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path, options=options, progress=stop_after(chunk))
    assert load_checkpoint(tmp_path / SEED_0 / "checkpoint").skipped == ()
    training = learn(tmp_path, options=options, resume=True)
    assert_same_records(tmp_path / SEED_0, whole[1])
    np.testing.assert_equal(training.estimates(3), whole[2].estimates(3))
    np.testing.assert_equal(training.episodes, whole[2].episodes)
    assert list(training.episodes) == list(whole[2].episodes)


def test_a_run_that_is_interrupted_after_every_chunk_ends_all_the_same(tmp_path, whole):
    for _ in range(CHUNKS):
        with pytest.raises(KeyboardInterrupt):
            learn(tmp_path, options=RARELY, resume=True, progress=stop_after(1))
    told = []
    learn(tmp_path, options=RARELY, resume=True, progress=told.append)
    assert told == []
    assert_same_records(tmp_path / SEED_0, whole[1])


@pytest.mark.parametrize("chunk", [2, CHUNKS, CHUNKS + 1, 2 * CHUNKS - 1])
def test_interrupted_runs_in_a_queue_go_on(tmp_path, whole, chunk):
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path, seeds=[1, 0], progress=stop_after(chunk))
    learn(tmp_path, seeds=[1, 0], resume=True)
    assert_same_records(tmp_path / SEED_0, whole[1])


@pytest.mark.long
def test_runs_go_on_in_as_many_lanes_as_before(tmp_path):
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
    (Lanes, "_fill", 4, RARELY),
    (Lanes, "_reports", 4, RARELY),
    (Session, "_record", 4, RARELY),
    (Session, "_status", 4, RARELY),
    (Session, "_look", 4, RARELY),
    (Session, "_save", 4, OFTEN),
    (Session, "_finish", CHUNKS, RARELY),
    (Recorder, "checkpoint", CHUNKS, OFTEN),
    (Recorder, "finish", 1, RARELY),
)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[1])
def test_ctrl_c_at_any_place_loses_nothing(tmp_path, whole, monkeypatch, place, after):
    """What was under way is done first, then saved: in the fourth chunk or the last."""
    kind, name, call, options = place
    original, calls = getattr(kind, name), []

    def pressed(self, *arguments):
        calls.append(name)
        if len(calls) == call and not after:
            signal.raise_signal(signal.SIGINT)
        result = original(self, *arguments)
        if len(calls) == call and after:
            signal.raise_signal(signal.SIGINT)
        return result

    with monkeypatch.context() as patch:
        patch.setattr(kind, name, pressed)
        with pytest.raises(KeyboardInterrupt):
            learn(tmp_path, options=options)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    made = []
    learn(tmp_path, resume=True, progress=made.append)
    assert len(made) == (CHUNKS - 4 if call == 4 else 0)
    assert_same_records(tmp_path / SEED_0, whole[1])


def test_ctrl_c_twice_is_not_held_back(tmp_path, whole, monkeypatch):
    """The chunk is broken off, and what it left half done is not saved."""
    original, calls = Session._record, []

    def pressed(self, report):
        calls.append(report)
        if len(calls) == 4:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            pytest.fail("went on after two interrupts")
        original(self, report)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "_record", pressed)
        with pytest.raises(KeyboardInterrupt):
            learn(tmp_path)
    learn(tmp_path, resume=True)
    assert_same_records(tmp_path / SEED_0, whole[1])


WRITES = CHUNKS - 1 + 5  # a checkpoint after each chunk; at the end one, and four files


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", range(1, WRITES + 1))
def test_a_run_that_dies_at_any_write_goes_on(tmp_path, whole, monkeypatch, write, after):
    replace, calls = os.replace, []

    def die(source, target):
        calls.append(target)
        if len(calls) == write and not after:
            raise Killed
        replace(source, target)
        if len(calls) == write and after:
            raise Killed

    def keep(path):
        """A killed process does not tidy up."""

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", die)
        patch.setattr(os, "unlink", keep)
        with pytest.raises(Killed):
            learn(tmp_path)
    if not (tmp_path / SEED_0 / "config.json").exists():
        with (tmp_path / SEED_0 / "metrics.jsonl").open("ab") as file:
            file.write(b'{"env_steps": 1')
    learn(tmp_path, resume=True)
    assert_same_records(tmp_path / SEED_0, whole[1])


def test_that_was_every_write(tmp_path, monkeypatch):
    replace, calls = os.replace, []
    monkeypatch.setattr(os, "replace", lambda *paths: calls.append(paths) or replace(*paths))
    learn(tmp_path)
    assert len(calls) == WRITES


# Damage


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, flip, empty])
def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(half, whole, damage):
    _, newest = sorted((half / SEED_0 / "checkpoint").iterdir())
    damage(newest)
    told = []
    learn(half, resume=True, notice=told.append)
    (notice,) = told
    assert newest.name in notice
    assert str(half / SEED_0) in notice
    assert "checkpoint before" in notice
    assert_same_records(half / SEED_0, whole[1])


def test_without_a_whole_checkpoint_nothing_is_touched(half):
    for path in (half / SEED_0 / "checkpoint").iterdir():
        truncate(path)
    before = files(half)
    with pytest.raises(InputError, match="need a readable checkpoint") as error:
        learn(half, resume=True)
    assert str(half / SEED_0) in str(error.value)
    assert "\n" not in str(error.value)
    assert files(half) == before


def doctor(root, change):
    """Rewrite the newest checkpoint."""
    folder = root / SEED_0 / "checkpoint"
    saved = load_checkpoint(folder)
    arrays, meta = dict(saved.arrays), json.loads(json.dumps(saved.meta))
    change(arrays, meta)
    save_checkpoint(folder, arrays, meta)


def other_version(arrays, meta):
    meta["run"]["versions"]["winkel"] = "9.8.7"


def other_shape(arrays, meta):
    arrays["state/visits"] = arrays["state/visits"][:-1]


def other_dtype(arrays, meta):
    arrays["state/visits"] = arrays["state/visits"].astype(np.int64)


def other_learner(arrays, meta):
    for name in [name for name in arrays if name.startswith("state/learner.prior")]:
        del arrays[name]


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (other_version, "was made by winkel 9.8.7, this is"),
        (other_shape, r"need shape \[25, 2\] of int32 for visits, got shape \[24, 2\]"),
        (other_dtype, "int64"),
        (other_learner, "need learner.prior"),
    ],
)
def test_foreign_checkpoints_are_refused_and_left_alone(half, change, shown):
    doctor(half, change)
    before = files(half)
    with pytest.raises(InputError, match=shown):
        learn(half, resume=True)
    assert files(half) == before


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({"batch_size": 9}, "config.batch_size is 8 there and 9 here"),
        ({"learning_rate": 0.25}, "hyper.learning_rate is 0.0005 there and 0.25 here"),
        ({"episodes": 21}, "horizon.episodes is 20 there and 21 here"),
        ({"until": 3}, "until is None there and 3 here"),
        ({"options": Options(chunk_steps=17, **LOOKS)}, "options.chunk_steps is 16 there and 17"),
        ({"agent": "pe_dqn_no_prior", "label": "pe_dqn"}, "algorithm is 'pe_dqn' there and 'pe_d"),
    ],
)
@pytest.mark.parametrize("finished", [False, True])
def test_another_run_is_not_resumed(tmp_path, half, whole, changed, shown, finished):
    root = half
    if finished:
        root = tmp_path / "whole"
        shutil.copytree(whole[0], root)
    before = files(root)
    with pytest.raises(InputError, match=shown) as error:
        learn(root, resume=True, **changed)
    assert SEED_0 in str(error.value)
    assert files(root) == before


def test_a_field_that_the_other_run_does_not_know_is_a_difference():
    """Even where it is None here, as a new option is."""
    ours = {"fingerprint": "a", "options": {"every": None, "x": 1}}
    theirs = {"fingerprint": "b", "options": {"x": 1}}
    with pytest.raises(InputError, match=r"options.every is .* there and None here"):
        check_same_run(ours, theirs, "here")


def test_a_folder_is_not_overwritten(half, whole):
    for root in (half, whole[0]):
        before = files(root)
        with pytest.raises(InputError, match="exists; resume it") as error:
            learn(root)
        assert str(root / SEED_0) in str(error.value)
        assert files(root) == before


@contextlib.contextmanager
def disk_of(size):
    """No file may be larger."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("chunk", range(CHUNKS))
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
    assert_same_records(root / SEED_0, whole[1])


# Bad input


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({"agent": "pe_dqm"}, ["'pe_dqm'", "did you mean pe_dqn"]),
        ({"agent": "zzz"}, ["'zzz'", "winkel list agents"]),
        ({"env": "deepsea:size=5"}, ["'deepsea:size=5'", "did you mean deep_sea"]),
        ({"env": "deep_sea:size=-5"}, ["-5"]),
        ({"env": "deep_sea:sise=5"}, ["'sise=5'", "size"]),
        ({"num_atom": 5}, ["'num_atom'", "did you mean num_atoms"]),
        ({"zzz": 5}, ["'zzz'", "num_atoms"]),
        ({"num_atoms": "five"}, ["'five'", "a whole number for num_atoms"]),
        ({"num_atoms": 5.5}, ["5.5", "num_atoms"]),
        ({"num_atoms": True}, ["True", "num_atoms"]),
        ({"num_atoms": 1}, ["1", "num_atoms"]),
        ({"hidden": "wide"}, ["'wide'", "hidden"]),
        ({"hidden": (16, 0)}, ["0", "hidden"]),
        ({"batch_size": 0}, ["0", "batch_size"]),
        ({"propagate": 1}, ["1", "true or false for propagate"]),
        ({"backup": "both"}, ["'both'", "mixture, independent"]),
        ({"projections": ("quantile", "quantiles")}, ["'quantiles'", "projections"]),
        ({"projections": "quantile"}, ["1", "number of projections >= 2"]),
        ({"gamma": 1.5}, ["1.5", "gamma in [0, 1]"]),
        ({"gamma": "high"}, ["'high'", "gamma"]),
        ({"learning_rate": 0}, ["0", "learning_rate > 0"]),
        ({"learning_rate": float("nan")}, ["nan", "learning_rate"]),
        ({"beta": -1.0}, ["-1.0", "beta >= 0"]),
        ({"z_min": 2.0}, ["z_min < z_max", "[2, 1.5]"]),
        ({"seeds": 0}, ["got 0", "seeds"]),
        ({"seeds": [1, 1]}, ["[1, 1]", "different seeds"]),
        ({"seeds": []}, ["[]", "at least one"]),
        ({"seeds": [3, -1]}, ["got -1", "seed"]),
        ({"seeds": [2**31]}, ["2147483648", "seed"]),
        ({"episodes": 0}, ["got 0", "episodes"]),
        ({"steps": 0}, ["got 0", "steps"]),
        ({"episodes": 2**31}, ["2147483648", "episodes"]),
        ({"until": 0}, ["got 0", "until"]),
        ({"until": 21}, ["got 21", "until", "20"]),
        ({"lanes": 0}, ["got 0", "lanes"]),
        ({"lanes": -1}, ["got -1", "lanes"]),
        ({"label": "a/b"}, ["'a/b'"]),
    ],
)
def test_bad_input_is_named(tmp_path, changed, shown):
    with pytest.raises(InputError) as error:
        learn(tmp_path / "runs", **changed)
    for part in shown:
        assert part in str(error.value)
    assert "\n" not in str(error.value)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({"evaluate_every": 0}, "evaluate_every >= 1, a whole number, got 0"),
        ({"evaluation_episodes": 0}, "evaluation_episodes >= 1, a whole number, got 0"),
        ({"snapshots": -1}, "snapshots >= 0, a whole number, got -1"),
        ({"chunk_steps": 0}, "chunk_steps >= 1, a whole number, got 0"),
        ({"checkpoint_seconds": -1.0}, "checkpoint_seconds >= 0, got -1.0"),
        ({"checkpoint_seconds": float("nan")}, "got nan"),
    ],
)
def test_bad_options_are_named(changed, shown):
    with pytest.raises(InputError, match=shown):
        Options(**changed)


def test_there_is_nothing_to_resume_without_a_folder():
    with pytest.raises(InputError, match="need a folder"):
        learn(resume=True)


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda path: None, "no such folder"),
        (lambda path: path.mkdir(), "no runs in"),
        (lambda path: path.write_text("x"), "no such folder"),
    ],
)
def test_where_there_are_no_runs_there_is_nothing_to_load(tmp_path, make, shown):
    make(tmp_path / "runs")
    with pytest.raises(InputError, match=shown) as error:
        winkel.load(tmp_path / "runs")
    assert str(tmp_path / "runs") in str(error.value)
