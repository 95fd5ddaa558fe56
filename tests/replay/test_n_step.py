import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winkel.replay.streams import n_step_return


def reference(rewards, discounts, boundaries, gamma):
    """Step by step, as one would by hand."""
    total, k = 0.0, 0
    for reward, boundary in zip(rewards, boundaries, strict=True):
        total += gamma**k * reward
        k += 1
        if boundary:
            break
    return total, gamma ** (k - 1) * discounts[k - 1], gamma ** (k - 1), k - 1, boundaries[k - 1]


STEPS = st.tuples(
    st.floats(-8, 8, width=32), st.sampled_from(["go", "go", "go", "terminate", "truncate"])
)


@settings(max_examples=150)
@given(
    steps=st.sampled_from([1, 3, 10]).flatmap(lambda n: st.lists(STEPS, min_size=n, max_size=n)),
    gamma=st.sampled_from([0.0, 0.5, 0.997, 1.0]),
)
def test_outcomes_are_those_of_a_plain_loop(steps, gamma):
    rewards = np.array([reward for reward, _ in steps], np.float32)
    discounts = np.array([end != "terminate" for _, end in steps], np.float32)
    boundaries = np.array([end != "go" for _, end in steps])
    found = jax.jit(n_step_return)(jnp.asarray(rewards), jnp.asarray(discounts), boundaries, gamma)
    expected = reference(rewards, discounts, boundaries, gamma)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[1:3], expected[1:3], rtol=1e-6)
    assert (int(found[3]), bool(found[4])) == expected[3:]


@pytest.mark.parametrize("n", [1, 4])
def test_an_end_at_every_offset_and_none(n):
    """What stands behind an end is of another episode, be it infinite."""
    for at, discount in itertools.product(range(n + 1), (0.0, 1.0)):
        rewards = np.where(np.arange(n) <= at, 2.0 ** np.arange(n), np.inf).astype(np.float32)
        boundaries = np.arange(n) == at
        boundaries[at + 1 :] = True
        discounts = np.where(np.arange(n) == min(at, n - 1), discount, 7.0).astype(np.float32)
        found_reward, found_discount, gamma_power, last, boundary = n_step_return(
            jnp.asarray(rewards), jnp.asarray(discounts), jnp.asarray(boundaries), 0.5
        )
        k = min(at + 1, n)
        assert float(found_reward) == k  # 2^i halved i times
        assert float(gamma_power) == 0.5 ** (k - 1)
        assert float(found_discount) == discount * 0.5 ** (k - 1)
        assert (int(last), bool(boundary)) == (k - 1, at < n)


def test_one_step_is_the_step_to_the_bit():
    rewards, discounts = jnp.asarray([[0.1], [-3.7]]), jnp.asarray([[1.0], [0.0]])
    boundaries = jnp.asarray([[False], [True]])
    reward, discount, gamma_power, *_ = n_step_return(rewards, discounts, boundaries, 0.99)
    np.testing.assert_array_equal(reward, rewards[:, 0])
    np.testing.assert_array_equal(discount, discounts[:, 0])
    np.testing.assert_array_equal(gamma_power, [1.0, 1.0])
