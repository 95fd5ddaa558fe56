"""Studies in PostgreSQL, where a server can be started: two processes, and a server that stops."""

import os
import pwd
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from optuna.trial import TrialState

from process_helpers import PATIENCE, finish, wait_for
from search.processes import TRIALS, start_search
from search.test_kill_search import ended, wait_until_in_the_middle
from winkel.errors import InputError
from winkel.search.study import DISCARDED, is_counted, load_study


def binaries():
    """The folder of PostgreSQL's programs, None where there is none."""
    on_path = shutil.which("initdb")
    found = [Path(on_path).parent] if on_path else []
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in found if (folder / "pg_ctl").exists()), None)


def account():
    """Who may run the server, which refuses root; None for ourselves."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    found = [name for name in ("postgres", "nobody") if name in names]
    if not found:
        pytest.skip("PostgreSQL does not run as root, and there is no other account")
    return found[0]


class Server:
    """A PostgreSQL server on a socket in a folder of its own, which can be stopped and started."""

    def __init__(self, programs, folder):
        self.programs, self.folder, self.user = programs, folder, account()
        self.url = f"postgresql+psycopg://winkel@/postgres?host={folder}"
        if self.user is not None:
            shutil.chown(folder, self.user)
        self.call("initdb", "-U", "winkel", "-A", "trust", "--no-sync")
        self.start()

    def start(self):
        options = f"-h '' -k {self.folder} -c fsync=off"
        self.call("pg_ctl", "-l", self.folder / "log", "-o", options, "-w", "start")

    def stop(self):
        self.call("pg_ctl", "-m", "immediate", "-w", "stop")

    def call(self, program, *options):
        command = [self.programs / program, "-D", self.folder / "data", *options]
        done = subprocess.run(
            [str(part) for part in command],
            user=self.user,
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            pytest.skip(f"PostgreSQL did not start: {done.stderr.strip()[-200:]}")


@pytest.fixture
def server():
    programs = binaries()
    if programs is None:
        pytest.skip("needs PostgreSQL: no initdb on PATH or in /usr/lib/postgresql/*/bin")
    pytest.importorskip("psycopg", reason="needs psycopg, PostgreSQL's driver")
    folder = Path(tempfile.mkdtemp(prefix="winkel-postgres-", dir="/tmp"))
    try:
        started = Server(programs, folder)
        yield started
        started.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_trials(trials):
    """As many as wanted have ended, none twice."""
    counted = list(filter(is_counted, trials))
    assert len(counted) == TRIALS
    assert all(t.state in (TrialState.COMPLETE, TrialState.PRUNED) for t in counted)
    assert len({t.params["learning_rate"] for t in counted}) == TRIALS


def has_study(out, url):
    try:
        return load_study(out, url)
    except InputError:  # not begun
        return None


@pytest.mark.long
def test_two_processes_share_a_study_and_no_trial_is_run_twice(server, tmp_path):
    """Both are ready before one begins the study; then the other joins it."""
    outs, gates = [tmp_path / "one", tmp_path / "two"], [tmp_path / "gate-1", tmp_path / "gate-2"]
    options = ["--storage", server.url, "--name", "shared"]
    both = [
        start_search(outs[0], gates[0], *options),
        start_search(outs[1], gates[1], *options, "--resume"),
    ]
    wait_for(lambda: len(list(tmp_path.glob("gate-*-*"))) == 2, *both)
    gates[0].touch()
    wait_for(lambda: has_study(outs[0], server.url), *both, poll=0.1)
    gates[1].touch()
    shares = [
        int(re.search(r"updates: ([\d,]+) here", finish(p))[1].replace(",", "")) for p in both
    ]
    assert min(shares) > 0
    trials = load_study(outs[0], server.url).trials()
    check_trials(trials)
    begun = [t for t in trials if DISCARDED not in t.user_attrs]
    assert len(begun) == TRIALS


@pytest.mark.long
def test_a_server_that_stops_in_the_middle_is_one_line_and_resume_continues(server, tmp_path):
    out, gate = tmp_path / "study", tmp_path / "gate"
    gate.touch()
    options = ["--storage", server.url]
    process = start_search(out, gate, *options)
    study = wait_for(lambda: has_study(out, server.url), process, poll=0.1)
    wait_until_in_the_middle(study, 1, process)
    kept = ended(study.trials())
    server.stop()
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert errors.startswith("winkel: error: cannot use the storage postgresql+psycopg://winkel@/")
    assert errors.endswith("; continue with --resume when it is back\n")
    assert errors.count("\n") == 1
    server.start()
    finish(start_search(out, gate, *options, "--resume"))
    trials = load_study(out, server.url).trials()
    assert kept <= ended(trials)
    check_trials(trials)
