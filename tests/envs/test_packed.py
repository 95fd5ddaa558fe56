"""A setting among others of other families is the same setting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winkel import envs
from winkel.envs import registry
from winkel.envs.bsuite import mnist
from winkel.envs.packs import PACKS, Packed, PackedParams
from winkel.envs.registry import FAMILIES, make, parse
from winkel.errors import InputError

IDS = {
    family: [i for e in envs.EXPERIMENTS.values() if e.family == family for i in e.ids]
    for family in FAMILIES
    if FAMILIES[family].experiments
}


@pytest.fixture(autouse=True)
def digits(monkeypatch):
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, (32, 28, 28), np.uint8), rng.integers(0, 10, 32, np.uint8)
    monkeypatch.setattr(mnist, "load_mnist", lambda: data)
    registry._build.cache_clear()
    yield
    registry._build.cache_clear()


def make_packed(task_id):
    return registry.make_padded(task_id, packed=True)


@jax.jit
def course(env, params, key, actions):
    """First observation, then everything that happens."""
    state, first = env.reset(jax.random.fold_in(key, 0), params)

    def step(state, action):
        key_step = jax.random.fold_in(key, 1 + state.episode * 10_000 + action[1])
        return env.step(key_step, state, action[0], params)

    times = jnp.arange(len(actions))
    return first, jax.lax.scan(step, state, (actions, times))[1]


def padded_to(array, size):
    flat = np.asarray(array).reshape(*array.shape[: -len(SHAPE)], -1)
    return np.pad(flat, [*[(0, 0)] * (flat.ndim - 1), (0, size - flat.shape[-1])])


def assert_same_up_to_rounding(plain, packed):
    """Another program may fuse a product and a sum, which rounds once instead of twice."""
    np.testing.assert_allclose(plain, packed, rtol=1e-4, atol=1e-5)


SHAPE = (1, 1)  # every dense observation of bsuite has two axes


@pytest.mark.parametrize("family", IDS)
@settings(max_examples=4)
@given(data=st.data())
def test_a_packed_setting_takes_the_course_of_the_plain_one(family, data):
    """Same keys, same actions: same observations but for padding, rewards, ends and facts."""
    task_id = data.draw(st.sampled_from(IDS[family]))
    seed = data.draw(st.integers(0, 2**32 - 1))
    plain, packed = make(task_id), make_packed(task_id)
    steps = 60 if family != "mountain_car" else 1_010
    actions = np.random.default_rng(seed).integers(0, plain.env.num_actions, steps)
    key = jax.random.key(seed)
    first, ours = course(plain.env, plain.params, key, actions)
    packed_first, theirs = course(packed.env, packed.params, key, actions)
    for name in ("discount", "boundary"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), name)
    assert_same_up_to_rounding(ours.reward, theirs.reward)
    assert set(ours.info) == {*plain.facts} == {*packed.facts}
    for name, fact in theirs.info.items():
        np.testing.assert_array_equal(fact, ours.info.get(name, 0 * fact), name)
    if not isinstance(packed.env, Packed):
        return
    (size,) = packed.env.observation.shape
    assert_same_up_to_rounding(padded_to(first, size), packed_first)
    for name in ("obs", "next_obs"):
        assert_same_up_to_rounding(padded_to(getattr(ours, name), size), getattr(theirs, name))
    assert np.asarray(ours.boundary).any() or plain.longest_episode > steps


@pytest.mark.parametrize("task_id", ["deep_sea/0", "deep_sea_stochastic/9", "deep_sea/20"])
def test_seas_of_a_band_show_their_own_cells(task_id):
    plain, packed = make(task_id), make_packed(task_id)
    size, side = plain.setting["size"], packed.env.max_size
    assert side == (30 if size <= 30 else 50)
    actions = np.random.default_rng(0).integers(0, 2, 3 * size)
    first, ours = course(plain.env, plain.params, jax.random.key(0), actions)
    packed_first, theirs = course(packed.env, packed.params, jax.random.key(0), actions)
    assert first == packed_first == 0
    rows, columns = np.divmod(np.asarray(ours.next_obs), size)
    cells = np.where(ours.next_obs == size**2, side**2, rows * side + columns)
    np.testing.assert_array_equal(theirs.next_obs, cells)


def test_every_setting_is_in_one_pack():
    assert {make_packed(i).pack for e in envs.EXPERIMENTS.values() for i in e.ids} == {*PACKS}


@pytest.mark.parametrize("family", IDS)
def test_a_packed_setting_knows_what_it_really_is(family):
    for task_id in IDS[family][:: max(len(IDS[family]) // 3, 1)]:
        plain, packed = make(task_id), make_packed(task_id)
        assert packed.inputs == np.prod(plain.env.observation.shape)
        actions = packed.available or packed.env.num_actions
        assert actions == plain.env.num_actions <= packed.env.num_actions
        assert packed.setting == plain.setting == parse(task_id)[1]
        assert packed.num_episodes == plain.num_episodes


def test_settings_of_a_pack_share_shapes():
    packed = [make_packed(i) for e in envs.EXPERIMENTS.values() for i in e.ids]
    for pack in PACKS:
        tasks = [task for task in packed if task.pack == pack]
        assert all(task.env is tasks[0].env for task in tasks)
        shapes = {
            str(jax.tree.map(lambda x: (np.shape(x), np.asarray(x).dtype), task.params))
            for task in tasks
        }
        assert len(shapes) == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_no_episode_is_longer_than_the_longest(family):
    """And where nothing ends it before, one is as long."""
    task = make(IDS.get(family, [family])[-1])
    longest = task.longest_episode
    still = 1 if family.startswith(("cartpole_swingup", "mountain_car")) else 0
    actions = np.full(2 * longest + 2, still)
    _, steps = course(task.env, task.params, jax.random.key(3), actions)
    lengths = np.diff(np.flatnonzero(np.asarray(steps.boundary)), prepend=-1)
    assert lengths.max() <= longest
    assert family == "cartpole" or family not in IDS or lengths.max() == longest


def test_what_cannot_be_packed_is_refused():
    with pytest.raises(InputError, match="bsuite's own ids"):
        make_packed("deep_sea:size=12")


def test_others_stay_where_they_are():
    """What is not looked at does not run away to numbers that are none."""
    packed = make_packed("cartpole/0")
    assert isinstance(packed.params, PackedParams)
    state, _ = jax.jit(packed.env.reset)(jax.random.key(0), packed.params)
    moved, _ = jax.jit(packed.env.step)(jax.random.key(1), state, jnp.asarray(2), packed.params)
    which = int(packed.params.which)
    for i, (before, after) in enumerate(zip(state.inner, moved.inner, strict=True)):
        same = jax.tree.map(lambda a, b: bool((a == b).all()), before, after)
        assert all(jax.tree.leaves(same)) == (i != which)
