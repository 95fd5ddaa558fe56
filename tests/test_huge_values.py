"""Values that no machine has memory for are one line, before anything is allocated or written."""

import re
import resource
from pathlib import Path

import pytest

from terminal_helpers import refused
from winkel.envs.registry import make
from winkel.runs.spec import Options, make_spec

HUGE = 10**12
TRAIN = ["train", "deep_sea/0"]
SEARCH = ["search", "--agent", "bdqn", "--envs", "deep_sea:size=4@300", "--trials", "4"]
MEMORY = r"need about "


@pytest.fixture(autouse=True)
def _little_memory():
    """At most 8 GiB more than now, so that a test that fails does no harm to the machine."""
    status = Path("/proc/self/status")
    if not status.exists():
        yield
        return
    used = 2**10 * int(re.search(r"VmData:\s+(\d+) kB", status.read_text())[1])
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (used + 8 * 2**30, hard))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["train", f"deep_sea:size={10**9}"], "need size <= 5000"),
        (["train", f"deep_sea:size={HUGE}"], "a whole number for size of at most 2147483647"),
        (["train", f"memory_size:num_bits={10**9}"], "need num_bits <= 10000"),
        (["train", f"umbrella_length:chain_length={10**9}"], "need chain_length <= 1000000"),
        (
            ["train", "umbrella_distract:chain_length=1000000,n_distractor=10000"],
            "need fewer than 214748 random numbers in an episode",
        ),
        ([*TRAIN, "--num-atoms", HUGE], "need num_atoms <= 1000000"),
        ([*TRAIN, "--num-atoms", 10**6], MEMORY),
        ([*TRAIN, "--capacity", HUGE], "need capacity <= 2147483647"),
        ([*TRAIN, "--capacity", 2**31 - 1], MEMORY),
        ([*TRAIN, "--capacity", 2**31 - 1, "--priority-exponent", 0.5], MEMORY),
        ([*TRAIN, "--batch-size", 10**9], MEMORY),
        ([*TRAIN, "--hidden", "10000000,10000000"], MEMORY),
        ([*TRAIN, "--agent", "bdqn", "--num-members", 10**9], MEMORY),
        ([*TRAIN, "--burn-in", 2**31 - 1], MEMORY),
        ([*TRAIN, "--chunk-steps", 2**31 - 1], MEMORY),
        ([*TRAIN, "--evaluate-every", 1, "--evaluation-episodes", 2**31 - 1], MEMORY),
        ([*TRAIN, "--evaluation-episodes", HUGE], "need evaluation_episodes <= 2147483647"),
        ([*TRAIN, "--seeds", HUGE], "need --seeds <= 1000000"),
        ([*TRAIN, "--first-seed", HUGE], "need each seed <= 4294967295"),
        ([*TRAIN, "--seeds", 256, "--capacity", 10**8], "for 256 lanes with this environment"),
        (["train", "gym:CartPole-v1", "--num-envs", HUGE], "need num_envs <= 10000"),
        (["sweep", "deep-sea", "--sizes", HUGE], "need size <= 2147483647"),
        (["sweep", "deep-sea", "--sizes", 10**6], "need size <= 5000"),
        (["sweep", "deep-sea", "--seeds", HUGE], "need seeds <= 1000000"),
        (["sweep", "bsuite", "--seeds", 10**4], "need number of runs <= 1000000, got 4680000"),
        (["sweep", "deep-sea", "--capacity", 2**31 - 1], MEMORY),
        (["sweep", "deep-sea", "--capacity", 2**31 - 1, "--shard", "1/2"], MEMORY),
        ([*SEARCH, "--capacity", 2**31 - 1], MEMORY),
        ([*SEARCH, "--seeds", HUGE], "need seeds <= 1000000"),
        (["rollout", f"deep_sea:size={10**9}"], "need size <= 5000"),
        (["rollout", "catch", "--episodes", 2**31 - 1], "for the records of 42,949,672,940"),
    ],
)
def test_what_no_machine_can_hold_is_refused(tmp_path, capsys, arguments, shown):
    message = refused([*arguments, "--out", tmp_path / "out"], capsys)
    assert shown in message
    if shown == MEMORY:
        assert "MiB of memory for 1 lane with this environment" in message
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_snapshots_count_as_memory():
    """There is at most one for each chunk: 1,000 for 10 episodes of 100 steps and chunks of 1."""
    few, many = (
        make_spec(
            make("deep_sea:size=100"), "dqn", {}, episodes=10,
            options=Options(snapshots=count, chunk_steps=1),
        ).record_bytes
        for count in (10, HUGE // 1000)
    )  # fmt: skip
    assert few == 10 * 100**2 * 2 * 16
    assert many == 1001 * 100**2 * 2 * 16
