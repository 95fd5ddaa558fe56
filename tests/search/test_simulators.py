"""A search in simulators: trials one after the other, their seeds together, looks by steps."""

import math

from search.tiny import population
from winkel.search.problem import Problem
from winkel.search.space import Choice, Space, Where

FIELDS = {"hidden": (8,), "batch_size": 8, "burn_in": 8, "capacity": 64, "num_members": 2}
CART = Where(id="gym:CartPole-v1", episodes=None, steps=400, score="interactions")


def test_a_trial_in_a_simulator(tmp_path):
    space = Space({"learning_rate": Choice((1e-3, 1e-4))}, (CART,), prune=False, preset=None)
    of = Problem(agent="bdqn", space=space, seeds=2, fields=FIELDS)
    found = population(tmp_path, wanted=2, of=of)
    assert found.size == 1
    standing = found.run()
    assert (standing.complete, standing.failed) == (2, 0)
    for trial in found.shared.trials():
        looks = [trial.intermediate_values[step] for step in range(1, 6)]
        known = [look for look in looks if look > -math.inf]  # −∞ before the first episode's end
        assert known == sorted(known, reverse=True)
        assert all(look >= -80 * k for k, look in enumerate(looks, start=1) if look in known)
        assert looks[-1] < -200  # of 400 steps, those of the episodes that had ended
