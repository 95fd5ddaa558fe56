"""All 468 settings run to the end of an episode, family by family, under vmap."""

import jax
import numpy as np
import pytest

from winkel import envs
from winkel.envs.bsuite import mnist
from winkel.envs.registry import FAMILIES


@pytest.mark.parametrize("family", FAMILIES)
def test_every_setting_ends_an_episode(family, monkeypatch):
    rng = np.random.default_rng(0)
    digits = rng.integers(0, 256, (32, 28, 28), np.uint8), rng.integers(0, 10, 32, np.uint8)
    monkeypatch.setattr(mnist, "load_mnist", lambda: digits)
    ids = [i for e in envs.EXPERIMENTS.values() if e.family == family for i in e.ids] or [family]
    batch = envs.make_batch(ids)
    num_steps = max(FAMILIES[family].longest_episode(setting) for setting in batch.settings)

    @jax.jit
    def run(env, params, keys):
        def one(params, key):
            key_reset, key_steps = jax.random.split(key)
            state, _ = env.reset(key_reset, params)

            def step(state, key):
                action = jax.random.randint(key, (), 0, env.num_actions)
                state, result = env.step(key, state, action, params)
                finite = (
                    jax.numpy.isfinite(result.reward)
                    & jax.numpy.isfinite(result.next_obs.astype(float)).all()
                )
                return state, (result.boundary, finite)

            return jax.lax.scan(step, state, jax.random.split(key_steps, num_steps))[1]

        return jax.vmap(one)(params, keys)

    boundary, finite = run(batch.env, batch.params, jax.random.split(jax.random.key(0), len(ids)))
    assert np.asarray(boundary).any(axis=1).all()
    assert np.asarray(finite).all()


def test_the_families_hold_all_settings():
    assert sum(len(e.settings) for e in envs.EXPERIMENTS.values()) == 468
    assert {e.family for e in envs.EXPERIMENTS.values()} <= set(FAMILIES)
