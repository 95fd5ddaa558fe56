import json
import math
import subprocess
import sys
import tempfile
import types
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winkel.envs.registry import make
from winkel.errors import InputError
from winkel.runs.recorder import Recorder, append_row, tensorboard, wandb
from winkel.runs.results import read_metrics
from winkel.runs.spec import make_spec
from winkel.training.lanes import Report

CONFIG = {"env": "catch/0", "agent": "dqn", "seed": 3}
values = st.floats() | st.integers()
rows = st.lists(st.dictionaries(st.text(max_size=5), values, max_size=4), max_size=6)


def write_all(path, rows, length=0):
    """Write rows; the length before the first and after each."""
    lengths = [append_row(path, length)]
    for row in rows:
        lengths.append(append_row(path, lengths[-1], row))
    return lengths


def as_read(row):
    lost = {name for name, value in row.items() if isinstance(value, float) and value - value != 0}
    return {name: None if name in lost else value for name, value in row.items()}


def refuse_constant(name):
    raise AssertionError(f"{name} is not JSON")


@given(rows)
def test_rows_survive_the_disk_as_strict_json(rows):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "new", "metrics.jsonl")
        positions = write_all(path, rows)
        assert read_metrics(path) == [as_read(row) for row in rows]
        content = path.read_bytes()
        assert positions[-1] == len(content)
        for line in content.splitlines():
            json.loads(line, parse_constant=refuse_constant)


@given(rows, st.data())
def test_a_resumed_run_leaves_the_file_of_one_that_was_never_stopped(rows, data):
    with tempfile.TemporaryDirectory() as folder:
        whole, resumed = Path(folder, "whole"), Path(folder, "resumed")
        positions = write_all(whole, rows)
        stop = data.draw(st.integers(0, len(rows)))
        write_all(resumed, rows[: data.draw(st.integers(stop, len(rows)))])
        with resumed.open("ab") as file:
            file.write(b'{"half')
        write_all(resumed, rows[stop:], positions[stop])
        assert resumed.read_bytes() == whole.read_bytes()


def test_a_row_is_on_disk_once_written(tmp_path):
    path = tmp_path / "m.jsonl"
    append_row(path, 0, {"loss": math.nan, "env_steps": 1})
    assert path.read_bytes() == b'{"loss": null, "env_steps": 1}\n'


@pytest.mark.parametrize(
    ("content", "position", "shown"),
    [
        (b'{"a": 1}\n', 10, "need 10 bytes of whole lines"),
        (None, 1, "m.jsonl was deleted or moved"),
        (b'{"a": 1}\n', 8, "need 8 bytes of whole lines"),
    ],
)
def test_a_position_that_is_not_the_files_is_refused_and_the_file_stays(
    tmp_path, content, position, shown
):
    path = tmp_path / "m.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=shown):
        append_row(path, position)
    assert (path.read_bytes() if path.exists() else None) == content


def test_places_that_cannot_be_written_are_named(tmp_path):
    with pytest.raises(InputError, match=f"cannot write {tmp_path}: "):
        append_row(tmp_path, 0)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="need a folder"):
        append_row(tmp_path / "file" / "m.jsonl", 0)


FULL = """
import pathlib, resource, sys
from winkel.errors import InputError
from winkel.runs.recorder import append_row
path = pathlib.Path(sys.argv[1])
length = append_row(path, 0, {"a": 1})
resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))
try:
    append_row(path, length, {"a" * 99: 1})
except InputError as error:
    print(error)
"""


def test_a_full_disk_leaves_whole_lines(tmp_path):
    path = tmp_path / "m.jsonl"
    command = [sys.executable, "-c", FULL, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"cannot write {path}: File too large\n"
    assert path.read_bytes() == b'{"a": 1}\n'


def test_an_unfinished_last_line_is_ignored(tmp_path):
    path = tmp_path / "m.jsonl"
    content = b'{"a": 1}\n{"a": 2}\n'
    for length in range(len(content) + 1):
        path.write_bytes(content[:length])
        assert read_metrics(path) == [{"a": 1}, {"a": 2}][: length // 9]


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b'{"a": 1}\n{"a"\n{"a": 3}\n', "line 2 of .* is damaged"),
        (b'{"a": 1}\n{"a": 2}{"a": 3}\n', "line 2 of .* is damaged"),
        (b"\xff\xfe\xfd\n", "line 1 of .* is damaged"),
        (b'{"a": 1}\n\n', "line 2 of .* is damaged"),
        (b'{"a": 1}\n[1, 2]\n', "line 2 of .* is damaged"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, content, shown):
    path = tmp_path / "m.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=shown) as error:
        read_metrics(path)
    assert "\n" not in str(error.value)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*nowhere: No such file"):
        read_metrics(tmp_path / "nowhere")
    with pytest.raises(InputError, match=f"cannot read {tmp_path}: "):
        read_metrics(tmp_path)


def spec():
    return make_spec(make("deep_sea:size=3"), "dqn", {})


def report(env_steps, **metrics):
    return Report(0, {}, metrics, env_steps, 0, 1, 0.5, False, None)


def test_mirrors_get_every_row_as_it_is_and_are_closed_once(tmp_path):
    calls = [], []

    @contextmanager
    def mirror(seen, config, folder):
        yield lambda *row: seen.append(row)
        seen.append("closed")

    recorder = Recorder(spec(), tmp_path, mirrors=[partial(mirror, seen) for seen in calls])
    recorder.record(report(5, loss=math.inf))
    recorder.close()
    recorder.close()
    row = {"env_steps": 5, "episodes": 0, "updates": 1, "loss": math.inf}
    assert calls == ([(5, row), "closed"],) * 2


def test_every_mirror_is_closed_when_one_fails(tmp_path):
    calls = []

    @contextmanager
    def mirror(fails, config, folder):
        try:
            yield calls.append
        finally:
            calls.append("closed")
        if fails:
            raise ConnectionError

    mirrors = [partial(mirror, fails) for fails in (False, True, False)]
    recorder = Recorder(spec(), tmp_path, mirrors=mirrors)
    with pytest.raises(ConnectionError):
        recorder.close()
    assert calls == ["closed"] * 3


@pytest.mark.parametrize(
    ("module", "make", "extra"),
    [
        ("tensorboardX", tensorboard, "tensorboard"),
        ("wandb", partial(wandb, "project"), "wandb"),
    ],
)
def test_a_missing_package_names_its_extra(tmp_path, monkeypatch, module, make, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"{module} is missing: pip install 'winkel\[{extra}\]'$"):
        make(CONFIG, tmp_path).__enter__()


class FakeWandB(types.ModuleType):
    class Error(Exception):
        pass

    def __init__(self, refusal=None):
        super().__init__("wandb")
        self.refusal, self.calls = refusal, []

    def init(self, **settings):
        if self.refusal:
            raise self.Error(self.refusal)
        self.calls.append(settings)
        return self

    def log(self, row, step):
        self.calls.append((step, row))

    def finish(self):
        self.calls.append("finish")


def test_weights_and_biases_get_the_rows(tmp_path, monkeypatch):
    fake = FakeWandB()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    with wandb("winkel", CONFIG, tmp_path) as write:
        write(3, {"env_steps": 3, "loss": 0.5})
    settings = {"project": "winkel", "name": "catch/0-dqn-3", "config": CONFIG}
    assert fake.calls == [settings, (3, {"env_steps": 3, "loss": 0.5}), "finish"]


def test_a_run_that_weights_and_biases_refuse_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", FakeWandB("no API key:\n log in"))
    with pytest.raises(InputError, match=r"Weights & Biases: no API key: log in$"):
        wandb("winkel", CONFIG, tmp_path).__enter__()


def test_tensorboard_gets_the_numbers(tmp_path, monkeypatch):
    calls = []
    writer = types.SimpleNamespace(
        add_scalar=lambda *scalar: calls.append(scalar), close=lambda: calls.append("close")
    )
    fake = types.SimpleNamespace(SummaryWriter=lambda folder: calls.append(folder) or writer)
    monkeypatch.setitem(sys.modules, "tensorboardX", fake)
    with tensorboard({}, tmp_path) as write:
        write(3, {"env_steps": 3, "loss": 0.5, "updates": 2})
    assert calls == [str(tmp_path / "tensorboard"), ("loss", 0.5, 3), ("updates", 2, 3), "close"]


def test_the_real_tensorboard_writes_its_file(tmp_path):
    pytest.importorskip("tensorboardX")
    with tensorboard({}, tmp_path) as write:
        write(3, {"env_steps": 3, "loss/total": 0.5, "updates": 2, "worst": math.nan})
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert b"loss/total" in events.read_bytes()
