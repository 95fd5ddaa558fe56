import json
import math
import subprocess
import sys
import tempfile
import types
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winkel.errors import InputError
from winkel.runs.recorder import MetricsLog, Mirror, tensorboard, wandb
from winkel.runs.results import read_metrics

values = st.floats() | st.integers()
rows = st.lists(st.dictionaries(st.text(max_size=5), values, max_size=4), max_size=6)


def fake_mirror():
    """A mirror, and the calls that it got."""
    calls = []
    return Mirror(lambda *row: calls.append(row), lambda: calls.append("closed")), calls


def write_all(path, rows, position=0):
    """Write rows; the position before the first and after each."""
    with closing(MetricsLog(path, position)) as log:
        positions = [log.position]
        for row in rows:
            log.write(row)
            positions.append(log.position)
    return positions


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
    log = MetricsLog(tmp_path / "m.jsonl")
    log.write({"loss": math.nan, "env_steps": 1})
    assert (tmp_path / "m.jsonl").read_bytes() == b'{"loss": null, "env_steps": 1}\n'
    log.close()
    log.close()


@pytest.mark.parametrize(
    ("content", "position", "shown"),
    [
        (b'{"a": 1}\n', 10, "need the 10 bytes .* got 9"),
        (None, 1, "need the 1 bytes .* got 0"),
        (b'{"a": 1}\n', 8, "need the 8 bytes of whole lines .* got 8"),
    ],
)
def test_a_position_that_is_not_the_files_is_refused_and_the_file_stays(
    tmp_path, content, position, shown
):
    path = tmp_path / "m.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=shown):
        MetricsLog(path, position)
    assert (path.read_bytes() if path.exists() else None) == content


def test_places_that_cannot_be_written_are_named(tmp_path):
    with pytest.raises(InputError, match=f"cannot write {tmp_path}: "):
        MetricsLog(tmp_path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="need a folder"):
        MetricsLog(tmp_path / "file" / "m.jsonl")


FULL = """
import pathlib, resource, sys
from winkel.errors import InputError
from winkel.runs.recorder import MetricsLog
log = MetricsLog(pathlib.Path(sys.argv[1]))
log.write({"a": 1})
resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))
try:
    log.write({"a" * 99: 1})
except InputError as error:
    print(log.position, error)
"""


def test_a_full_disk_leaves_whole_lines(tmp_path):
    path = tmp_path / "m.jsonl"
    command = [sys.executable, "-c", FULL, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"9 cannot write {path}: File too large\n"
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


def test_mirrors_get_every_row_as_it_is_and_are_closed_once(tmp_path):
    (first, ours), (second, theirs) = fake_mirror(), fake_mirror()
    row = {"env_steps": 5, "loss": math.inf}
    log = MetricsLog(tmp_path / "m.jsonl", mirrors=[first, second])
    log.write(row)
    log.close()
    log.close()
    assert ours == theirs == [(5, row), "closed"]


def test_every_mirror_and_the_file_are_closed_when_one_fails(tmp_path):
    def fail():
        raise ConnectionError

    (first, ours), (last, theirs) = fake_mirror(), fake_mirror()
    broken = Mirror(first.write, fail)
    log = MetricsLog(tmp_path / "m.jsonl", mirrors=[first, broken, last])
    with pytest.raises(ConnectionError):
        log.close()
    assert ours == theirs == ["closed"]
    with pytest.raises(ValueError, match="closed file"):
        log.write({"env_steps": 1})


@pytest.mark.parametrize(
    ("module", "make", "extra"),
    [
        ("tensorboardX", lambda folder: tensorboard(folder), "tensorboard"),
        ("wandb", lambda folder: wandb("project", "name", {}), "wandb"),
    ],
)
def test_a_missing_package_names_its_extra(tmp_path, monkeypatch, module, make, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"{module} is missing: pip install 'winkel\[{extra}\]'$"):
        make(tmp_path)


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
    mirror = wandb("winkel", "run", {"lr": 0.1})
    with closing(MetricsLog(tmp_path / "m.jsonl", mirrors=[mirror])) as log:
        log.write({"env_steps": 3, "loss": 0.5})
    settings = {"project": "winkel", "name": "run", "config": {"lr": 0.1}}
    assert fake.calls == [settings, (3, {"env_steps": 3, "loss": 0.5}), "finish"]


def test_a_run_that_weights_and_biases_refuse_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", FakeWandB("no API key:\n log in"))
    with pytest.raises(InputError, match=r"Weights & Biases: no API key: log in$"):
        wandb("winkel", "run", {})


def test_tensorboard_gets_the_numbers(tmp_path, monkeypatch):
    calls = []
    writer = types.SimpleNamespace(
        add_scalar=lambda *scalar: calls.append(scalar), close=lambda: calls.append("close")
    )
    fake = types.SimpleNamespace(SummaryWriter=lambda folder: calls.append(folder) or writer)
    monkeypatch.setitem(sys.modules, "tensorboardX", fake)
    with closing(MetricsLog(tmp_path / "m.jsonl", mirrors=[tensorboard(tmp_path / "tb")])) as log:
        log.write({"env_steps": 3, "loss": 0.5, "updates": 2})
    assert calls == [str(tmp_path / "tb"), ("loss", 0.5, 3), ("updates", 2, 3), "close"]


def test_the_real_tensorboard_writes_its_file(tmp_path):
    pytest.importorskip("tensorboardX")
    with closing(MetricsLog(tmp_path / "m.jsonl", mirrors=[tensorboard(tmp_path / "tb")])) as log:
        log.write({"env_steps": 3, "loss/total": 0.5, "updates": 2, "worst": math.nan})
    (events,) = (tmp_path / "tb").iterdir()
    assert b"loss/total" in events.read_bytes()
