"""What streams take: memory, and which settings and transitions."""

import functools

import jax
import jax.numpy as jnp
import pytest

from winkel.errors import InputError
from winkel.replay import Streams
from winkel.types import Transition


def frames(num_envs=32):
    """Shapes of what VizDoom gives."""
    of = functools.partial(jax.ShapeDtypeStruct, (num_envs,))
    obs = jax.ShapeDtypeStruct((num_envs, 6, 42, 42), jnp.uint8)
    return Transition(obs, of(jnp.int32), of(jnp.float32), of(jnp.float32), obs, of(bool), ())


def test_a_million_frames_fit_in_two_gigabytes():
    replay = Streams(capacity=1_000_000, num_envs=32, n_step=10, stack=6, priority_exponent=0.5)
    state = jax.eval_shape(replay.init, frames())
    assert state.steps.obs.dtype == jnp.uint8
    assert state.steps.obs.shape == (32, 31_265, 42, 42)
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))
    assert size == 1_785_889_700  # 1,764 bytes of a frame and 21 more for each step


@pytest.mark.parametrize("exponent", [0.0, 0.5])
def test_no_program_makes_anything_as_large_as_the_store(exponent):
    """Of a million steps even one bit for each would be 125 kB; the frames of a batch are 11 MB."""
    replay = Streams(
        capacity=1_000_000, num_envs=32, n_step=10, stack=6, priority_exponent=exponent
    )
    state = jax.eval_shape(replay.init, frames())
    key = jax.eval_shape(lambda: jax.random.key(0))

    def learn(state, key):
        batch = replay.sample(state, 512, key, gamma=0.9)
        return replay.reprioritise(state, batch, batch.transitions.reward), batch

    for program, given_, made in ((replay.add, frames(), 0), (learn, key, 11_000_000)):
        compiled = jax.jit(program, donate_argnums=0).lower(state, given_).compile()
        memory = compiled.memory_analysis()
        assert memory.temp_size_in_bytes < 1_000_000
        assert memory.output_size_in_bytes - memory.alias_size_in_bytes <= made + 1_000


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"num_envs": 0}, "num_envs >= 1.*got 0"),
        ({"capacity": 3}, "capacity >= 4.*got 3"),
    ],
)
def test_bad_settings_are_refused(bad, message):
    with pytest.raises(InputError, match=message):
        Streams(**{"capacity": 8, "num_envs": 4, **bad})
