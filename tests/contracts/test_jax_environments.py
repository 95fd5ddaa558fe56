"""What every environment in JAX from outside must do: a user's own, and those of libraries."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import winkel
from runs.tiny import TINY, stop_after
from winkel.envs.functional import make_jax_task
from winkel.runs.checkpoint import load_checkpoint, pack
from winkel.runs.spec import Options

NAMES = (
    "jax:envs.own:Walk",
    "jax:envs.own:Cells",
    "jax:envs.own:Symbols",
    "gymnax:Breakout-MinAtar",
    "gymnax:DeepSea-bsuite:size=4",
    "gymnax:FrozenLake-misc:max_steps_in_episode=7",
    "craftax:Craftax-Classic-Symbolic-v1:max_timesteps=9",
    "navix:Navix-DoorKey-5x5-v0:max_steps=9",
    "pgx:minatar-freeway:max_steps=9",
    "xminigrid:MiniGrid-Empty-5x5:max_steps=9",
)
STEPS = 40
OFTEN = Options(chunk_steps=40, checkpoint_seconds=0.0, snapshots=0)


@pytest.fixture(autouse=True)
def _ranks_as_libraries_want(monkeypatch):
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="module", params=NAMES)
def task(request):
    library = request.param.partition(":")[0]
    if library != "jax" and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    with jax.numpy_rank_promotion("allow"):
        return make_jax_task(request.param)


def walk(task, seed=0):
    """A random walk: the first state and observation, and all results in order."""
    key = jax.random.key(seed)

    @jax.jit
    def steps(env):
        def step(state, number):
            action = jax.random.randint(jax.random.fold_in(key, number), (), 0, env.num_actions)
            after, result = env.step(jax.random.fold_in(key, 99 + number), state, action, ())
            return after, (result, after.inner[1], after.episode)

        first = env.reset(key, ())
        return first, jax.lax.scan(step, first[0], jnp.arange(STEPS))[1]

    return jax.device_get(steps(task.env))


def test_steps_are_pure_and_shapes_stay(task):
    once, again = walk(task), walk(task)
    jax.tree.map(np.testing.assert_array_equal, pack(once), pack(again))
    (_, obs), (results, shown, episodes) = once
    form = task.env.observation
    shape = () if type(form).__name__ == "OneHot" else form.shape
    assert obs.shape == shape
    assert obs.dtype == results.obs.dtype == results.next_obs.dtype == form.dtype
    assert results.reward.dtype == results.discount.dtype == np.float32
    assert results.boundary.dtype == bool
    np.testing.assert_array_equal(shown, results.obs)
    np.testing.assert_array_equal(episodes, np.cumsum(results.boundary))


def test_the_observation_before_a_reset_is_kept_and_time_limits_do_not_terminate(task):
    _, (results, _, _) = walk(task)
    ended = results.boundary
    np.testing.assert_array_equal(results.obs[~ended], results.next_obs[~ended])
    if task.id == "gymnax:Breakout-MinAtar":  # its limit is 1,000 steps: the walk only loses
        assert ended.any()
        assert (results.discount[ended] == 0.0).all()
        return
    assert ended.any()
    assert any((results.obs[at] != results.next_obs[at]).any() for at in np.flatnonzero(ended))
    if "max_" in task.id:
        limited = ended & (results.discount == 1.0)
        assert limited.any()
        if "FrozenLake" not in task.id:
            assert limited[8] or ended[:8].any()
    assert (results.discount[~ended] == 1.0).all()


def test_runs_train_in_lanes_and_resume_bitwise(task, tmp_path):
    agent = "pe_dqn" if task.id in NAMES[:2] else "dqn"  # numbers, and cells of a grid
    support = {"z_min": -1.0, "z_max": 1.0} if agent == "pe_dqn" else {}
    fields = {name: x for name, x in TINY.items() if agent == "pe_dqn" or name != "num_atoms"}

    def train(out, **changed):
        return winkel.train(
            task.id, agent, seeds=2, steps=200, out=out, options=OFTEN,
            **fields, **support, **changed,
        )  # fmt: skip

    whole = train(tmp_path / "whole")
    assert [run.config["status"] for run in whole.runs] == ["finished"] * 2
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "parts", progress=stop_after(2))
    train(tmp_path / "parts", resume=True)
    for run in whole.runs:
        other = tmp_path / "parts" / run.folder.relative_to(tmp_path / "whole")
        states = [load_checkpoint(folder / "checkpoint")[0] for folder in (run.folder, other)]
        jax.tree.map(np.testing.assert_array_equal, *states)
    loaded = winkel.load(tmp_path / "whole")
    form = task.env.observation
    nothing = np.zeros(() if type(form).__name__ == "OneHot" else form.shape, form.dtype)
    np.testing.assert_array_equal(loaded.estimates(nothing).value, whole.estimates(nothing).value)
