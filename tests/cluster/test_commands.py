"""`winkel sweep --manifest-only` and `winkel shard`: what they print and what they refuse."""

import json
import os

import pytest

from cluster.shards import SMALL, records
from terminal_helpers import refused
from winkel import cli
from winkel.files import hold_runs
from winkel.runs.spec import fingerprint, run_folder

SWEEP = [
    *("sweep", "deep-sea", "--sizes", "4", "--agents", "dqn", "--seeds", "3", "--lanes", "2"),
    *("--episodes", "8", *SMALL),
]


def test_a_plan_prints_its_content_and_its_shards_write_the_sweep(tmp_path, capsys):
    plain, out = tmp_path / "plain", tmp_path / "out"
    cli.main([*SWEEP, "--out", str(plain)])
    capsys.readouterr()
    cli.main([*SWEEP, "--out", str(out), "--manifest-only"])
    said = capsys.readouterr().out
    assert "3 runs in 2 shards of 1 to 2, in 2 lanes" in said
    manifest = out / "manifest.json"
    assert str(manifest) in said.replace("\n", "")
    assert not list(out.glob("*/*/*/seed-*"))
    for number in ("1", "0"):
        cli.main(["shard", str(manifest), number])
    assert "finished 2, failed 0, found ended 0" in capsys.readouterr().out
    assert records(out) == records(plain)
    assert "exists; resume it (--resume)" in refused(
        [*SWEEP, "--out", out, "--manifest-only"], capsys
    )
    cli.main([*SWEEP, "--out", str(out), "--manifest-only", "--resume"])
    assert "3 finished before" in capsys.readouterr().out


def test_a_manifest_of_another_sweep_is_not_replaced_unasked(tmp_path, capsys):
    cli.main([*SWEEP, "--out", str(tmp_path), "--manifest-only"])
    kept = (tmp_path / "manifest.json").read_bytes()
    cli.main([*SWEEP, "--out", str(tmp_path), "--manifest-only"])
    other = [*SWEEP, "--out", tmp_path, "--manifest-only", "--first-seed", "7"]
    assert "is of another sweep; replace it with --resume" in refused(other, capsys)
    assert (tmp_path / "manifest.json").read_bytes() == kept
    assert "from 0 to 1, got 2" in refused(["shard", tmp_path / "manifest.json", 2], capsys)
    entries = json.loads(kept) | {"winkel": "0.0.1"}
    (tmp_path / "manifest.json").write_text(json.dumps(entries))
    message = refused(["shard", tmp_path / "manifest.json", 0], capsys)
    assert "was written by winkel 0.0.1" in message


def test_no_manifest_decides_which_code_is_called(tmp_path, capsys):
    cli.main([*SWEEP, "--out", str(tmp_path), "--manifest-only"])
    path, trace = tmp_path / "manifest.json", tmp_path / "trace"
    text = path.read_text().replace("deep_sea:size=4", f"os:system:command=touch {trace}")
    entries = json.loads(text)
    head = {"winkel": entries.pop("winkel"), "id": entries.pop("id")}
    path.write_text(json.dumps(head | {"id": fingerprint(entries)} | entries))
    assert "unknown environment 'os:system:" in refused(["shard", path, 0], capsys)
    assert not trace.exists()


def test_a_folder_in_use_names_who_uses_it(tmp_path, capsys):
    run = run_folder(tmp_path, "deep_sea:size=4", "dqn", 1)
    with hold_runs(tmp_path, [run], "winkel train"):
        for others in ([], ["--manifest-only"], ["--cluster", "slurm", "--script", "a"]):
            message = refused([*SWEEP, "--out", tmp_path, *others], capsys)
            writer = f"winkel train on {os.uname().nodename}, process {os.getpid()}"
            assert f"{run} is being written by {writer}" in message
    assert not list(tmp_path.glob("*/*/*/seed-*"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--cluster", "slurm"), "--script FILE together"),
        (("--script", "a.sbatch"), "--script FILE together"),
        (("--address", "here:1"), "need --address with --cluster ray"),
        (("--shard-runs", "3"), "need --shard-runs with --cluster or --manifest-only"),
        (("--gpus-per-shard", "1"), "need --gpus-per-shard with --cluster"),
        (("--manifest-only", "--dry-run"), "need --dry-run without"),
        (("--manifest-only", "--cluster", "ray"), "need --manifest-only without"),
        (("--manifest-only", "--shard-runs", "1"), "need --shard-runs >= --lanes"),
        (("--cluster", "ray", "--cpus-per-shard", "-1"), "CPUs of a shard >= 0, got -1"),
        (("--cluster", "ray", "--gpus-per-shard", "2"), "one GPU for a shard or a part of one"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path, capsys, options, words):
    assert words in refused([*SWEEP, "--out", tmp_path / "out", *options], capsys)
    assert not (tmp_path / "out").exists()


def test_a_shard_for_gpus_has_the_lanes_of_a_sweep_on_gpus(tmp_path):
    arguments = [part for part in SWEEP if part not in ("--lanes", "2")]
    cli.main([*arguments, "--out", str(tmp_path), "--manifest-only", "--gpus-per-shard", "1"])
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert [(len(s["runs"]), s["lanes"]) for s in manifest["shards"]] == [(3, 3)]
    assert manifest["options"]["chunk_steps"] == 200


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:9", "no Ray cluster answers at 127.0.0.1:9: "),
        ("nowhere.invalid:6379", "no Ray cluster answers at nowhere.invalid:6379: "),
        ("ray://here:10001", "need --address HOST:PORT of a Ray cluster, or auto"),
        ("here", "need --address HOST:PORT of a Ray cluster, or auto, got 'here'"),
    ],
)
def test_an_address_that_nobody_answers_at_is_one_line(tmp_path, capsys, address, words):
    arguments = [*SWEEP, "--out", tmp_path / "out", "--cluster", "ray", "--address", address]
    assert words in refused(arguments, capsys)
    assert not (tmp_path / "out").exists()
