import numpy as np
import pytest

from terminal_helpers import refused
from winkel import envs
from winkel.envs.registry import bsuite_info
from winkel.errors import InputError
from winkel.runs.policies import make_policy, rollout


def test_every_episode_is_recorded_once():
    batch = envs.make_batch(["umbrella_length/0", "umbrella_length/9", "umbrella_length/22"])
    heard = []
    records = rollout(batch, make_policy("random", batch.env), 250, seed=0, progress=heard.append)
    for task_id, episodes in zip((1, 10, 100), records, strict=True):
        assert {len(values) for values in episodes.values()} == {250}
        np.testing.assert_array_equal(episodes["length"], task_id)
        assert abs(episodes["wrong"].mean() - 0.5) < 0.15
    assert heard[-1] == 250


def test_known_policies_earn_what_they_must():
    """Always the same arm pays its rank; the chain's first arm pays at once."""
    bandit = envs.make_batch(["bandit/3"])
    best = int(np.argmax(bandit.params.inner[0]))
    episodes = rollout(bandit, make_policy(f"action:{best}", bandit.env), 50, seed=0)[0]
    np.testing.assert_array_equal(episodes["return"], 1.0)
    assert bsuite_info("bandit", episodes)["total_regret"][-1] == 0.0
    chain = envs.make_batch(["discounting_chain/2", "discounting_chain/0"])
    paid = rollout(chain, make_policy("action:2", chain.env), 20, seed=0)
    np.testing.assert_allclose(paid[0]["return"], 1.1, rtol=1e-6)
    np.testing.assert_allclose(paid[1]["return"], 1.0)


def test_seeds_repeat_and_differ():
    batch = envs.make_batch(["cartpole/0"])
    policy = make_policy("random", batch.env)
    first, again, other = (rollout(batch, policy, 20, seed)[0]["length"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    "name", ["greedy", "action:", "action:x", "action", "", "action:--1", "action:１"]
)
def test_unknown_policies_are_refused(name):
    env = envs.make("catch/0").env
    with pytest.raises(InputError, match="'random' or 'action:K'"):
        make_policy(name, env)


@pytest.mark.parametrize("seed", [-1, 2**31, 2**64, 2**70])
def test_a_seed_out_of_range_is_one_line(seed, tmp_path, capsys):
    message = refused(["rollout", "catch/0", "--seed", seed, "--out", tmp_path / "a"], capsys)
    right = ">= 0, a whole number" if seed < 0 else f"<= {2**31 - 1}"
    assert message == f"winkel: error: need seed {right}, got {seed}\n"
    assert not (tmp_path / "a").exists()
    batch = envs.make_batch(["catch/0"])
    with pytest.raises(InputError, match=f"got {seed}"):
        rollout(batch, make_policy("random", batch.env), 1, seed)


def test_impossible_rollouts_are_refused():
    batch = envs.make_batch(["catch/0"])
    with pytest.raises(InputError, match="0 … 2, got 3"):
        make_policy("action:3", batch.env)
    with pytest.raises(InputError, match="got 0"):
        rollout(batch, make_policy("random", batch.env), 0, seed=0)
