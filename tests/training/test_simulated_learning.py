"""Seeded runs that learn in a simulator: CartPole is solved, which a broken loop does not do."""

import pytest

import winkel
from winkel.runs.spec import Options

SETTINGS = {
    "steps": 160_000, "num_envs": 8, "workers": 0, "hidden": (128, 128), "num_atoms": 51,
    "batch_size": 64, "burn_in": 1_000, "capacity": 50_000, "target_period": 50,
    "learning_rate": 5e-4, "n_step": 10,
}  # fmt: skip
OWN = {
    "pe_dqn": {"huber_width": 1.0, "prior_scale": 1.0, "beta": 0.5},
    "qr_dqn": {"huber_width": 1.0},
    "c51": {},
}


@pytest.mark.long
@pytest.mark.parametrize("agent", OWN)
def test_cartpole_is_solved(agent):
    """Mean greedy return of 100 episodes, at least 475 in the end.

    Seen: 500 of each agent, for seeds 0, 1 and 2; docs/simulators.md has the table.
    """
    options = Options(evaluate_every=80_000, evaluation_episodes=100, checkpoint_seconds=1e9)
    settings = SETTINGS | OWN[agent]
    run = winkel.train("gym:CartPole-v1", agent, options=options, **settings).runs[0]
    assert run.evaluations["returns"].mean(axis=1)[-1] >= 475
