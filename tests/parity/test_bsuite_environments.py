"""Every experiment against DeepMind's bsuite 0.3.6, step by step, with its own random numbers."""

import sys
from pathlib import Path

import bsuite
import jax
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from bsuite_replay import (
    FLOAT64_STATE,
    as_dense,
    inputs_of,
    record,
    replay,
    small_mnist,
    use_mnist_from,
)

from winkel import envs
from winkel.envs.bsuite.common import PerturbedParams
from winkel.envs.bsuite.mnist import IMAGES, LABELS, Mnist, read_idx, signed
from winkel.envs.registry import bsuite_info, family_of, parse

NUM_STEPS = 2_100
EXTRA = {"deep_sea": [20], "discounting_chain": [7], "umbrella_distract": [22]}


def chosen(experiment):
    """Smallest, middle and largest setting, and the ones that are known to be tricky."""
    last = len(envs.EXPERIMENTS[experiment].settings) - 1
    return [f"{experiment}/{i}" for i in sorted({0, last // 2, last, *EXTRA.get(experiment, [])})]


def random_policy(raw, t, rng):
    return int(rng.integers(raw.action_spec().num_values))


def scripted_policy(raw, t, rng):
    """Good play where it is easy to write down, else every action in turn."""
    kind = type(raw).__name__
    if kind == "DeepSea":
        right = int(raw._action_mapping[raw._row, raw._column])
        return right if rng.random() < 0.97 else 1 - right
    if kind == "Catch":
        return 1 + int(np.sign(raw._ball_x - raw._paddle_x))
    if kind == "Cartpole":
        x, x_dot, theta, theta_dot, _ = raw._state
        angle = (theta + np.pi) % (2 * np.pi) - np.pi
        push = angle + 0.3 * theta_dot + 0.03 * x + 0.06 * x_dot
        return 2 if push > 0 else 0
    if kind == "CartpoleSwingup":
        _, _, theta, theta_dot, _ = raw._state
        return int(1 + np.sign(theta_dot * np.cos(theta))) if t % 3 else 1
    if kind == "MountainCar":
        return 2 if raw._velocity >= 0 else 0
    if kind == "SimpleBandit":
        return int(np.argmax(raw._rewards)) if t % 2 else t % 11
    if kind == "MemoryChain":
        return int(raw._context[raw._query]) if t % 5 else t % 2
    if kind == "UmbrellaChain":
        return int(raw._need_umbrella) if t % 3 else t % 2
    return t % raw.action_spec().num_values


@pytest.fixture(scope="module")
def mnist_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("mnist")
    small_mnist(directory)
    return directory


def make_batch(ids, mnist_dir):
    if not ids[0].startswith("mnist"):
        return envs.make_batch(ids)
    images, labels = (
        np.frombuffer(read_idx(mnist_dir, name)[1][header:], np.uint8)
        for name, header in ((IMAGES, 16), (LABELS, 8))
    )
    images = signed(images.reshape(-1, 28, 28))
    env = Mnist(images=images, labels=labels.astype(int))
    settings = [parse(task_id)[1] for task_id in ids]
    params = PerturbedParams(
        inner=None,
        reward_scale=np.array([s["reward_scale"] for s in settings], np.float32),
        noise_scale=np.array([s["noise_scale"] for s in settings], np.float32),
    )
    return envs.TaskBatch(tuple(ids), env, params, tuple(settings))


def unpad(task_id, obs, shape):
    """Padding is zero, and outside it lies the original's observation."""
    if obs.shape[1:] == shape:
        return obs
    inside = obs[(slice(None), *(slice(0, n) for n in shape))]
    assert np.abs(obs).sum() == np.abs(inside).sum(), task_id
    return inside


def compare(task_id, env, first_obs, steps, theirs):
    exact = family_of(task_id.split("/")[0]) not in FLOAT64_STATE
    tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 1e-5, "atol": 1e-5}
    shape = theirs.first_obs.shape
    for ours, wanted in (
        (first_obs[None], theirs.first_obs[None]),
        (steps.next_obs, theirs.next_obs),
        (steps.obs, theirs.obs),
    ):
        shown = unpad(task_id, as_dense(env, ours), shape)
        assert shown.dtype == wanted.dtype == np.float32
        np.testing.assert_allclose(shown, wanted, **tolerance, err_msg=task_id)
    np.testing.assert_array_equal(steps.boundary, theirs.boundaries, err_msg=task_id)
    np.testing.assert_array_equal(steps.discount, theirs.discounts, err_msg=task_id)
    np.testing.assert_allclose(steps.reward, theirs.rewards, rtol=1e-6, atol=2e-7, err_msg=task_id)


def episodes_of(steps):
    """Facts, returns and lengths of the finished episodes."""
    ends = np.flatnonzero(steps.boundary)
    starts = np.concatenate([[0], ends[:-1] + 1])
    add = lambda values: np.add.reduceat(np.asarray(values, float)[: ends[-1] + 1], starts)  # noqa: E731
    facts = {name: add(values).astype(int) for name, values in steps.info.items()}
    return {"return": add(steps.reward), "length": ends - starts + 1, **facts}


def compare_info(task_id, steps, theirs):
    ours = bsuite_info(task_id.split("/")[0], episodes_of(steps))
    for name in theirs.infos[-1]:
        wanted = [info[name] for info in theirs.infos]
        np.testing.assert_allclose(ours[name], wanted, rtol=1e-9, atol=1e-9, err_msg=task_id)
    assert set(ours) == set(theirs.infos[-1]), task_id


FAMILIES = sorted({family_of(name) for name in envs.EXPERIMENTS})


@pytest.mark.parametrize("family", FAMILIES)
def test_steps_equal_the_originals(family, mnist_dir, monkeypatch):
    """Three settings or more of every experiment of the family, random and scripted actions."""
    use_mnist_from(monkeypatch, mnist_dir)
    experiments = [name for name in envs.EXPERIMENTS if family_of(name) == family]
    ids = [task_id for name in experiments for task_id in chosen(name)]
    assert len(ids) >= 3 * len(experiments)
    doubled = [task_id for task_id in ids for _ in range(2)]
    batch = make_batch(doubled, mnist_dir)
    recorded = [
        record(task_id, policy, NUM_STEPS)
        for task_id in ids
        for policy in (random_policy, scripted_policy)
    ]
    first_obs, steps = replay(
        batch.env, batch.params, inputs_of(recorded), inject_states=family in FLOAT64_STATE
    )
    steps = jax.tree.map(np.asarray, steps)
    for lane, (task_id, theirs) in enumerate(zip(doubled, recorded, strict=True)):
        mine = jax.tree.map(lambda x, lane=lane: x[lane], steps)
        compare(task_id, batch.env, np.asarray(first_obs)[lane], mine, theirs)
        if theirs.infos:
            compare_info(task_id, mine, theirs)
    assert sum(len(t.infos) for t in recorded) > 0


@pytest.mark.parametrize(
    "task_id",
    ["deep_sea/3", "deep_sea_stochastic/0", "memory_size/9", "memory_len/0", "umbrella_distract/22",
     "umbrella_length/5"],
)  # fmt: skip
def test_single_environments_have_the_original_shape(task_id):
    task = envs.make(task_id)
    theirs = record(task_id, random_policy, 500)
    assert task.env.observation.shape == theirs.first_obs.shape
    params = jax.tree.map(lambda x: np.asarray(x)[None], task.params)
    first_obs, steps = replay(task.env, params, inputs_of([theirs]), inject_states=False)
    mine = jax.tree.map(lambda x: np.asarray(x)[0], steps)
    compare(task_id, task.env, np.asarray(first_obs)[0], mine, theirs)


def test_a_balanced_pole_is_stopped_after_1001_steps():
    theirs = record("cartpole/0", scripted_policy, NUM_STEPS)
    assert np.flatnonzero(theirs.boundaries)[0] == 1_000
    assert theirs.next_obs[1_000][0, 5] == np.float32(1.001)


def test_the_sweep_is_deepminds():
    for name, experiment in envs.EXPERIMENTS.items():
        for task_id, setting in zip(experiment.ids, experiment.settings, strict=True):
            theirs = {k: v for k, v in bsuite.sweep.SETTINGS[task_id].items() if k != "seed"}
            assert dict(setting) == theirs, task_id
            env_episodes = bsuite.sweep.EPISODES[task_id]
            assert experiment.num_episodes == env_episodes, task_id
        tags = __import__(f"bsuite.experiments.{name}.sweep", fromlist=["TAGS"]).TAGS
        assert experiment.tags == tuple(tags), name
    assert sum(len(e.settings) for e in envs.EXPERIMENTS.values()) == 468


def test_actions_and_observations_have_the_originals_sizes(monkeypatch, mnist_dir):
    use_mnist_from(monkeypatch, mnist_dir)
    for name, experiment in envs.EXPERIMENTS.items():
        for index in (0, len(experiment.settings) - 1):
            theirs = bsuite.load_from_id(f"{name}/{index}")
            batch = make_batch([f"{name}/{index}"], mnist_dir)
            assert batch.env.num_actions == theirs.action_spec().num_values
            assert batch.env.observation.shape == theirs.observation_spec().shape
