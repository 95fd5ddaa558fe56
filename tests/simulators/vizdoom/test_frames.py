"""Averages over areas keep what averages keep; gray levels are the usual library's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from winkel.simulators.vizdoom import RENDERINGS, SIDE, average_weights, downsample, gray_levels


@given(st.integers(min_value=1, max_value=700))
def test_each_cell_averages_equal_shares_of_all_pixels(length):
    weights = average_weights(length)
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    np.testing.assert_allclose(weights.sum(axis=0), SIDE / length)


@given(st.integers(min_value=1, max_value=700), st.integers(min_value=0, max_value=2**32 - 1))
def test_area_average_equals_the_mean_of_repeated_pixels(length, seed):
    pixels = np.random.default_rng(seed).uniform(size=length)
    slow = np.repeat(pixels, SIDE).reshape(SIDE, length).mean(axis=1)
    np.testing.assert_allclose(average_weights(length) @ pixels, slow)


def picture(rng, rendering):
    return rng.integers(0, 256, (3, *RENDERINGS[rendering][:2]), dtype=np.uint8)


@pytest.mark.parametrize("rendering", RENDERINGS)
@pytest.mark.parametrize("level", [0, 1, 127, 254, 255])
def test_one_gray_stays_that_gray(rendering, level):
    planes = np.full((3, *RENDERINGS[rendering][:2]), level, np.uint8)
    assert (downsample(planes, rendering) == level).all()


def test_gray_levels_are_whole_as_eight_bit_pictures_have_them(rng):
    planes = picture(rng, "paper")
    red, green, blue = planes.astype(np.int64)
    whole = (9798 * red + 19235 * green + 3735 * blue + 2**14) >> 15
    np.testing.assert_array_equal(gray_levels(planes, "paper"), whole)


def test_fast_gray_levels_are_not_rounded(rng):
    planes = picture(rng, "fast")
    red, green, blue = planes.astype(np.int64)
    np.testing.assert_array_equal(
        gray_levels(planes, "fast"), (77 * red + 150 * green + 29 * blue) / 256
    )


@pytest.mark.parametrize("rendering", RENDERINGS)
def test_a_frame_is_the_rounded_average_of_gray_levels(rng, rendering):
    planes = picture(rng, rendering)
    planes[:, : planes.shape[1] // 3] //= 4  # neither symmetric nor even
    planes[:, :, : planes.shape[2] // 5] //= 3
    height, width = planes.shape[1:]
    gray = gray_levels(planes, rendering).astype(np.float64)
    slow = average_weights(height) @ gray @ average_weights(width).T
    frame = downsample(planes, rendering)
    assert frame.dtype == np.uint8
    assert np.abs(frame - slow).max() <= 0.5 + 1e-3
