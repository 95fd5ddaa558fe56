"""One rule for the whole command line, on generated options, folders and faults.

A command ends with status 0 and true records, or with another status, one line on standard error
and nothing lost. There is never a traceback, a hang, or a process that outlives the command.

`make test` tries 40 cases, `make test-long` 300 others; both must find planted faults.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from winkel import cli
from winkel.files import load_arrays
from winkel.runs import record as record_module
from winkel.runs.record import load_run
from winkel.runs.results import read_metrics
from winkel.runs.spec import run_fingerprint

ENV, EPISODES, SECONDS = "deep_sea:size=3", 8, 120
RUNS = [f"deep_sea/dqn/size=3/seed-{seed}" for seed in range(2)]
TRAIN = [
    *("train", ENV, "--agent", "dqn", "--hidden", "8", "--batch-size", "4", "--burn-in", "8"),
    *("--capacity", "32", "--chunk-steps", "8", "--checkpoint-seconds", "0"),
]
WHOLE = [*TRAIN, "--episodes", str(EPISODES), "--seeds", "2"]

ODD_NUMBERS = ["0", "-1", "1", "3", "1e9", "nan", "inf", "-inf", "2.5", "1_0", "１０", "", "x", "∞",
               "10" * 20, "1,2", "None", "true"]  # fmt: skip
OPTIONS = ["--seeds", "--first-seed", "--episodes", "--steps", "--until", "--lanes", "--label",
           "--evaluate-every", "--checkpoint-seconds", "--chunk-steps", "--preset", "--num-envs",
           "--learning-rate", "--gamma", "--epsilon", "--capacity", "--batch-size", "--n-step",
           "--priority-exponent", "--hidden", "--no-such-field", "--agent"]  # fmt: skip
ENVIRONMENTS = [ENV, "deep_sea/0:size=3", "deep_sea:size=3,size=4", "deep_sea:size=", "deep_sea",
                "", "deep_sea/99", "cach/0", "os:system", "gym:NoSuch-v0",
                "deep_sea:size=1e99"]  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=4,
)


@st.composite
def trainings(draw):
    """A training into an empty folder, with odd options."""
    chosen = draw(st.lists(st.sampled_from(OPTIONS), max_size=2, unique=True))
    odd = [part for name in chosen for part in (name, draw(st.sampled_from(ODD_NUMBERS)))]
    env = draw(st.sampled_from([ENV, *ENVIRONMENTS]))
    return [TRAIN[0], env, *TRAIN[2:], "--episodes", "4", *odd], []


COMMANDS = [
    [*WHOLE, "--resume", "--out", "RUNS"],
    ["report", "RUNS", "-o", "OUT"],
    ["figure", "regret", "RUNS", "--out", "OUT", "--formats", "png"],
    ["score", "RUNS"],
    ["export", "bsuite", "RUNS", "OUT"],
    ["inspect", f"RUNS/{RUNS[0]}", "--out", "OUT", "--formats", "png"],
]
FAULTS = ("truncate", "flip", "delete", "empty", "junk", "folder", "nest")


@st.composite
def damages(draw):
    """A command on finished runs, one or two files of which are damaged or edited."""
    command = draw(st.sampled_from(COMMANDS))
    where = st.sampled_from(["config.json", "episodes.npz", "metrics.jsonl", "newest"])
    damage = st.tuples(st.just("damage"), where, st.sampled_from(FAULTS), st.floats(0, 0.999))
    keys = ["env", "agent", "seed", "config", "hyper", "setting", "rows", "until", "status"]
    edit = st.tuples(st.just("edit"), st.sampled_from(keys), VALUES, st.booleans())
    return command, draw(st.lists(damage | edit, min_size=1, max_size=2))


def apply(run, change):
    """Damage a file of a run, or edit its config and perhaps sign it with a new fingerprint."""
    kind, *how = change
    if kind == "edit":
        key, value, sign = how
        path = run / "config.json"
        if not path.is_file():
            return
        try:
            config = json.loads(path.read_bytes())
            config[key] = value
            if sign:
                config["fingerprint"] = run_fingerprint(config)
        except (ValueError, TypeError, RecursionError):  # damaged before
            return
        path.write_text(json.dumps(config))
        return
    name, fault, share = how
    path = max((run / "checkpoint").iterdir()) if name == "newest" else run / name
    if not path.is_file():
        return
    content = bytearray(path.read_bytes())
    at = int(share * len(content))
    if fault in ("delete", "folder"):
        path.unlink()
        if fault == "folder":
            path.mkdir()
        return
    if fault == "flip" and content:
        content[at] ^= 1 << at % 8
    new = {"truncate": content[:at], "empty": b"", "junk": os.urandom(9), "nest": b"[" * 100_000}
    path.write_bytes(new.get(fault, content))


def contents(root):
    """Hashes of all files under a folder."""
    return {hashlib.sha256(p.read_bytes()).hexdigest() for p in root.rglob("*") if p.is_file()}


def children():
    """Processes that this one has started and that still run."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has just ended
            found |= {*(task / "children").read_text().split()}
    return found


def check_law(command, changes, whole, root, capfd):
    """Run a command on copies of finished runs, and raise if it breaks the rule.

    Returns the command's name and its exit status.
    """
    runs, out = root / "runs", root / "out"
    for folder in (runs, out):
        shutil.rmtree(folder, ignore_errors=True)
    if changes:
        shutil.copytree(whole, runs)
        for change in changes:
            apply(runs / RUNS[0], change)
    else:
        command = [*command, "--out", "RUNS"]
    command = [part.replace("RUNS", str(runs)).replace("OUT", str(out)) for part in command]
    before, processes = contents(runs) if runs.exists() else set(), children()
    status, _ = 0, capfd.readouterr()
    signal.alarm(SECONDS)
    try:
        cli.main(command)
    except SystemExit as error:
        status = error.code or 0
    finally:
        signal.alarm(0)
    said = capfd.readouterr()
    assert "Traceback" not in said.out + said.err
    assert children() <= processes
    if status:
        lines = said.err.strip().splitlines()
        assert len(lines) == 1, said.err
        assert lines[0].startswith("winkel: "), said.err
        kept = contents(runs) if runs.exists() else set()
        assert before <= kept, "a file was lost or changed"
    elif command[0] == "train":
        for folder in runs.glob("*/*/*/seed-*"):
            check_true(folder, whole, damaged=bool(changes))
    return command[0], status


def check_true(folder, whole, damaged):
    """A run that ended well says what it did, and equals the same run that nothing has harmed."""
    run = load_run(folder)
    assert run.config["status"] == "finished"
    metrics = [] if damaged else read_metrics(folder / "metrics.jsonl")
    if metrics:
        assert metrics[-1]["episodes"] == len(run.episodes["return"])
    for name in RUNS:
        original = load_run(whole / name)
        if original.config["fingerprint"] == run.config["fingerprint"]:
            wanted = load_arrays(whole / name / "episodes.npz")
            np.testing.assert_equal(load_arrays(folder / "episodes.npz"), wanted)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Finished runs that nothing has harmed."""
    root = tmp_path_factory.mktemp("whole")
    cli.main([*WHOLE, "--out", str(root)])
    return root


def try_cases(cases, whole, root, capfd, **how):
    """Check the rule on generated cases; raises the first that breaks it.

    `cases` gets the name of each command and its exit status.
    """

    @settings(
        deadline=None, database=None, phases=[Phase.generate, Phase.explicit],
        suppress_health_check=list(HealthCheck), **how,
    )  # fmt: skip
    @given(case=trainings() | damages())
    def check(case):
        cases.append(check_law(*case, whole, root, capfd))

    check()


def test_every_command_keeps_the_law(whole, tmp_path, capfd):
    cases = []
    try_cases(cases, whole, tmp_path, capfd, max_examples=40, derandomize=True)
    assert len(cases) >= 30
    assert {("train", 0), ("train", 2), ("report", 0)} <= {*cases}


@pytest.mark.long
def test_three_hundred_commands_keep_the_law(whole, tmp_path, capfd):
    cases = []
    try_cases(cases, whole, tmp_path, capfd, max_examples=320)
    assert len(cases) >= 300
    counts = Counter(cases)
    assert {name for name, _ in counts} == {command[0] for command in COMMANDS}
    assert min(counts[case] for case in (("train", 0), ("train", 2), ("report", 0))) >= 10


def test_a_planted_fault_is_found(whole, tmp_path, capfd, monkeypatch):
    """Without the check of configs, an edited one is believed or ends in a traceback."""
    monkeypatch.setattr(record_module.checkpoints, "check_config", lambda *_: None)
    with pytest.raises(BaseException) as found:  # noqa: PT011
        try_cases([], whole, tmp_path, capfd, max_examples=100, derandomize=True)
    assert not isinstance(found.value, KeyboardInterrupt | SystemExit)
