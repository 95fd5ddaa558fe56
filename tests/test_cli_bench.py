"""`winkel bench`, as one types it."""

import dataclasses
import json

import pytest

from terminal_helpers import refused
from winkel import cli
from winkel.commands import bench as command
from winkel.experiments import bench_rows
from winkel.experiments.bench_rows import Bench, Call, Row

pytestmark = pytest.mark.usefixtures("wide")

SEA = "deep_sea:size=4"
TINY = ["--hidden", "8", "--num-atoms", "3", "--batch-size=2", "--burn-in=4", "--capacity", "32"]
SMALL = ["bench", "--agents", "pe_dqn", "--envs", SEA, "--lanes", "1", "2", "--steps", "4"]
CALL = Call("2026-11-15T12:00:00+00:00", "winkel bench", "here", "0.10.2", "0.1.0")


def row(lanes=1, ms_step=2.0, **others):
    known = {"agent": "pe_dqn", "env": SEA, "num_atoms": 3, "fields": {}, "steps": 4}
    known |= {"status": "ok", "updates_per_second": 1e3 * lanes / ms_step, "parameters": 760}
    known |= {"lane_bytes": 20_000, "copy_bytes_per_second": 1e9, "compile_seconds": 1.5}
    return Row(lanes=lanes, ms_step=ms_step, **(known | others))


def stored(path, *rows, device="H200"):
    bench_rows.save(path, Bench(device=device, calls=(CALL,), rows=rows))
    return path


def cells_of(printed):
    """The table as rows of words."""
    lines = printed.splitlines()
    (head,) = [i for i, line in enumerate(lines) if line.startswith("agent ")]
    return [line.split() for line in lines[head + 1 :] if line.startswith(("pe_dqn", "dqn"))]


def test_rows_are_measured_shown_and_kept(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "copy_bandwidth", lambda: 5e9)
    cli.main([*SMALL, *TINY, "--no-parts", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    found = bench_rows.load(tmp_path / "bench.json")
    assert [(r.lanes, r.num_atoms, r.status, r.steps) for r in found.rows] == [
        (1, 3, "ok", 4),
        (2, 3, "ok", 4),
    ]
    assert all(r.copy_bytes_per_second == 5e9 for r in found.rows)
    assert len(found.calls) == 1
    assert found.calls[0].command == " ".join(["winkel", *SMALL, "--no-parts", *TINY])
    assert "learning" not in printed
    assert len(cells_of(printed)) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"bench.json", "bench.png", "bench.pdf"}
    for name in ("bench.json", "bench.png", "bench.pdf"):
        assert str(tmp_path / name) in printed
    # Again, from the file alone.
    cli.main(["bench", "--from", str(tmp_path / "bench.json"), "--out", str(tmp_path / "again")])
    again = capsys.readouterr().out
    assert cells_of(again) == cells_of(printed)
    assert bench_rows.load(tmp_path / "again/bench.json") == found
    assert (tmp_path / "again/bench.png").read_bytes() == (tmp_path / "bench.png").read_bytes()


def test_parts_can_be_put_together(tmp_path, capsys):
    first = stored(tmp_path / "a.json", row(1, 2.0), row(2, 3.0))
    second = stored(tmp_path / "b.json", row(2, 3.5), row(4, 5.0, learning_ms=4.0))
    cli.main(["bench", "--from", str(first), str(second), "--out", str(tmp_path / "both")])
    printed = capsys.readouterr().out
    shown = [(cells[3], cells[5]) for cells in cells_of(printed)]
    assert shown == [("1", "2.00"), ("2", "3.50"), ("4", "5.00")]
    assert "4.00 ( 80%)" in printed
    assert "at 1.0 GB/s of a copy" in printed
    assert (tmp_path / "both/bench.png").stat().st_size > 10_000
    assert [r.ms_step for r in bench_rows.load(tmp_path / "both/bench.json").rows] == [2, 3.5, 5]


def test_failures_are_rows_of_the_table(tmp_path, capsys):
    failed = dataclasses.replace(
        row(64), status="failed", reason="out of memory: no", ms_step=None, updates_per_second=None
    )
    path = stored(tmp_path / "a.json", row(1), failed)
    cli.main(["bench", "--from", str(path), "--out", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    assert "failed: out of memory: no" in printed
    assert "no figure" in printed
    assert not (tmp_path / "out/bench.png").exists()
    only = stored(tmp_path / "b.json", failed)
    cli.main(["bench", "--from", str(only), "--out", str(tmp_path / "only")])
    assert "out of memory" in capsys.readouterr().out


def test_each_row_is_on_disk_before_the_next_and_an_interruption_keeps_them(
    tmp_path, capsys, monkeypatch
):
    seen = []

    def measured(wanted, steps, parts):
        for combination in wanted:
            seen.append(len(json.loads((tmp_path / "bench.json").read_text())["rows"]))
            if combination.lanes == 4:
                raise KeyboardInterrupt
            yield row(combination.lanes)

    monkeypatch.setattr(command, "measured", measured)
    monkeypatch.setattr(command, "copy_bandwidth", lambda: 1e9)
    with pytest.raises(SystemExit) as stop:
        cli.main(["bench", "--agents", "pe_dqn", "--envs", SEA, "--lanes", "2", "1", "4", *TINY,
                  "--out", str(tmp_path)])  # fmt: skip
    assert stop.value.code == 130
    assert seen == [0, 1, 2]
    found = bench_rows.load(tmp_path / "bench.json")
    assert [r.lanes for r in found.rows] == [1, 2]
    assert len(cells_of(capsys.readouterr().out)) == 2
    assert (tmp_path / "bench.png").exists()


def test_what_is_there_is_not_replaced(tmp_path, capsys):
    path = stored(tmp_path / "bench.json", row(1), row(2))
    before = path.read_bytes()
    assert "is there already" in refused([*SMALL, "--out", tmp_path], capsys)
    other = stored(tmp_path / "other.json", row(4))
    assert "is there already" in refused(["bench", "--from", other, "--out", tmp_path], capsys)
    both = ["bench", "--from", path, other, "--out", tmp_path]
    assert "is there already" in refused(both, capsys)
    assert path.read_bytes() == before
    cli.main(["bench", "--from", str(path), "--out", str(tmp_path)])  # only drawn again
    assert path.read_bytes() == before
    assert (tmp_path / "bench.png").exists()


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--agents", "pe_dqm"], "did you mean pe_dqn"),
        (["--agents", "pe_dqn", "--envs", "deep_see/0"], "did you mean deep_sea"),
        (["--agents", "pe_dqn", "--lanes", "0"], "need lanes >= 1"),
        (["--agents", "pe_dqn", "--steps", "0"], "need steps >= 1"),
        (["--agents", "pe_dqn", "--hiden", "8"], "did you mean hidden"),
        (["--agents", "pe_dqn", "--atoms", "3", "--num-atoms", "3"], "got both"),
        (["--agents", "pe_dqn", "--hidden", "0"], "each of hidden"),
        (["--out", "pyproject.toml", "--agents", "dqn"], "the file pyproject.toml"),
        (["--from", "absent.json"], "no such file: absent.json"),
        (["--from", "pyproject.toml"], "pyproject.toml is not JSON"),
        (["--from", "bench.json", "--lanes", "1"], "measures nothing"),
    ],
)
def test_bad_input_is_one_line(arguments, shown, capsys, monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)
    assert shown in refused(["bench", *arguments], capsys)


def test_rows_of_two_devices_or_of_another_version_are_refused(tmp_path, capsys):
    first = stored(tmp_path / "a.json", row(1))
    second = stored(tmp_path / "b.json", row(2), device="A100")
    out = ["--out", tmp_path / "out"]
    message = refused(["bench", "--from", first, second, *out], capsys)
    assert "need rows of one device, got A100 and H200" in message
    second.write_text(second.read_text().replace('"version": 1', '"version": 7'))
    assert "version 7" in refused(["bench", "--from", second, *out], capsys)
    assert not (tmp_path / "out").exists()


def test_rows_are_shown_without_a_floor_where_no_copy_fits(tmp_path, capsys, monkeypatch):
    def fails():
        raise RuntimeError("RESOURCE_EXHAUSTED")

    monkeypatch.setattr(command, "copy_bandwidth", fails)
    plain = dataclasses.replace(row(1), copy_bytes_per_second=None)
    monkeypatch.setattr(command, "measured", lambda *_: iter([plain]))
    cli.main([*SMALL, *TINY, "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "no floor" in printed
    assert len(cells_of(printed)) == 1
    assert bench_rows.load(tmp_path / "bench.json").rows == (plain,)


def test_restless_rows_are_told(tmp_path, capsys):
    calm = stored(tmp_path / "a.json", row(1, 2.0, ms_fastest=1.9, ms_slowest=2.4))
    cli.main(["bench", "--from", str(calm), "--out", str(tmp_path / "calm")])
    assert "something else" not in capsys.readouterr().out
    wild = stored(tmp_path / "b.json", row(2, 2.0, ms_fastest=1.9, ms_slowest=4.0))
    cli.main(["bench", "--from", str(calm), str(wild), "--out", str(tmp_path / "wild")])
    assert "in 1 of 2 rows the slowest chunk" in capsys.readouterr().out


def test_columns_are_aligned():
    rows = [row(1, 0.0123), row(1024, 12_345.6, learning_ms=1e4, environment_ms=0.5)]
    heading, *lines = command.table(rows)
    assert "K" in heading.split()
    for name in ("updates/s", "ms a step", "compile s", "parameters"):
        end = heading.index(name) + len(name)
        assert all(line[end - 1] != " " and line[end : end + 2].strip() == "" for line in lines)
    assert "12,346" in lines[1]
    assert "10,000 ( 81%)" in lines[1]
