"""A seeded run that learns: deep sea 6, where one of 64 ways pays and noise does not find it."""

import numpy as np
import pytest

import winkel

SMALL = {
    "hidden": (64,), "num_atoms": 21, "batch_size": 32, "burn_in": 32, "learning_rate": 5e-3,
    "prior_scale": 5.0,
}  # fmt: skip
HORIZON, EPISODES, SEEDS = 300, 150, 2
"""Schedules go by the horizon, over a third of which the bonus decays; runs stop half way."""


def solved(agent, **fields):
    """First episode with the treasure (None without), and its share of the last 50, by seed."""
    training = winkel.train(
        "deep_sea:size=6",
        agent,
        seeds=SEEDS,
        episodes=HORIZON,
        until=EPISODES,
        **(SMALL | fields),
    )
    treasure = training.episodes["treasure"].reshape(SEEDS, EPISODES)
    first = [int(row.argmax()) + 1 if row.any() else None for row in treasure]
    return first, treasure[:, -50:].mean(axis=1)


def test_pe_dqn_finds_the_treasure_and_keeps_it():
    """Seen: first goals 24 and 44, all of the last 50 episodes of both seeds."""
    first, last = solved("pe_dqn")
    assert all(episode is not None and episode <= 100 for episode in first), first
    np.testing.assert_array_equal(last >= 0.9, True)


@pytest.mark.long
@pytest.mark.parametrize("broken", [{"beta": 0.0}, {"gamma": 0.0}], ids=["bonus", "bootstrap"])
def test_without_its_parts_it_does_not(broken):
    """The test above can fail: no seed solves the sea without the bonus, or without looking on."""
    _, last = solved("pe_dqn", **broken)
    assert (last < 0.5).all(), last
