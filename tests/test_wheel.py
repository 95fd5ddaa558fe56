"""A pip user's file with an own agent, outside the package: it works with the built wheel."""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig

import pytest

from process_helpers import finish, start, wait_for

pytestmark = pytest.mark.long

NAME = "own_agent:Boltzmann"
SIZES = "--hidden 16 --batch-size 16 --burn-in 32 --capacity 500"
FOLDER = f"runs/catch/{NAME}/0/seed-0"


@pytest.fixture(scope="module")
def python(request, tmp_path_factory):
    """The Python of an environment with the wheel; its dependencies are those of this one."""
    root, made = request.config.rootpath, tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", made, root]
    subprocess.run(build, check=True)
    (wheel,) = made.glob("winkel-*.whl")
    subprocess.run([sys.executable, "-m", "venv", made / "venv"], check=True)
    python = made / "venv/bin/python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", wheel], check=True)
    (site,) = (made / "venv/lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python


@pytest.fixture(scope="module")
def user(request, tmp_path_factory):
    """The user's folder, with one file."""
    folder = tmp_path_factory.mktemp("user")
    shutil.copy(request.config.rootpath / "examples/own_agent.py", folder)
    return folder


@pytest.fixture
def run(python, user):
    """Starts a command of the installed package in the user's folder."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words):
        return start([python.parent / "winkel", *words], clean, cwd=user)

    def script(code):
        return finish(start([python, "-c", code], clean, cwd=user))

    run.script = script
    return run


def test_an_own_agent_outside_the_package(run, user, python):
    assert str(python.parent.parent) in run.script("import winkel; print(winkel.__file__)")
    train = ["train", "catch/0", "--agent", NAME, "--episodes", "1500", *SIZES.split()]
    process = run(*train, "--checkpoint-seconds", "0")
    wait_for(lambda: list((user / FOLDER).glob("checkpoint*/*")), process, poll=0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (user / FOLDER / "config.json").exists()
    assert "finished" in finish(run(*train, "--resume"))
    load = f"run = winkel.load({FOLDER!r}, code={NAME!r}).of()"
    printed = run.script(f"import winkel; {load}; print(len(run.episodes['return']))")
    assert printed.split() == ["1500"]
    finish(run("inspect", FOLDER, "--code", NAME, "--formats", "png"))
    assert (user / FOLDER / "inspect.png").exists()
    agents = ["--agents", "dqn", NAME, "--sizes", "4", "--episodes", "30"]
    finish(run("sweep", "deep-sea", *agents, *SIZES.split()))
    finish(run("report", "runs", "--out", "page"))
    page = (user / "page/index.html").read_text()
    assert NAME in page
    assert "dqn" in page
