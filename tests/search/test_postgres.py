"""Two processes share a study in PostgreSQL, where a server can be started."""

import os
import pwd
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from optuna.trial import TrialState

from process_helpers import finish, wait_for
from search.processes import TRIALS, start_search
from winkel.search.study import load_study
from winkel.search.trials import DISCARDED, is_counted


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


@pytest.fixture
def url():
    programs = binaries()
    if programs is None:
        pytest.skip("needs PostgreSQL: no initdb on PATH or in /usr/lib/postgresql/*/bin")
    pytest.importorskip("psycopg", reason="needs psycopg, PostgreSQL's driver")
    user = account()
    folder = Path(tempfile.mkdtemp(prefix="winkel-postgres-", dir="/tmp"))
    if user is not None:
        shutil.chown(folder, user)
    data, log = folder / "data", folder / "log"

    def call(*command):
        done = subprocess.run(
            [str(part) for part in command], user=user, cwd=folder, capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"PostgreSQL did not start: {done.stderr.strip()[-200:]}")

    try:
        call(programs / "initdb", "-D", data, "-U", "winkel", "-A", "trust", "--no-sync")
        options = f"-h '' -k {folder} -c fsync=off"
        call(programs / "pg_ctl", "-D", data, "-l", log, "-o", options, "-w", "start")
        yield f"postgresql+psycopg://winkel@/postgres?host={folder}"
        call(programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.long
def test_two_processes_share_a_study_and_no_trial_is_run_twice(url, tmp_path):
    gate = tmp_path / "gate"
    outs = [tmp_path / "one", tmp_path / "two"]
    both = [start_search(out, gate, "--storage", url, "--name", "shared") for out in outs]
    wait_for(lambda: len(list(tmp_path.glob("gate-*"))) == 2, *both)
    gate.touch()
    shares = [
        int(re.search(r"updates: ([\d,]+) here", finish(p))[1].replace(",", "")) for p in both
    ]
    assert min(shares) > 0
    trials = load_study(outs[0], url).trials()
    counted = list(filter(is_counted, trials))
    assert len(counted) == TRIALS
    assert all(t.state in (TrialState.COMPLETE, TrialState.PRUNED) for t in counted)
    assert len({t.params["learning_rate"] for t in counted}) == TRIALS
    begun = [t for t in trials if DISCARDED not in t.user_attrs]
    assert len(begun) == TRIALS
