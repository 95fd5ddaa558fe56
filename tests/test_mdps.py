import numpy as np
import pytest

import zoo
from winkel import Atoms, mdps
from winkel.errors import InputError
from winkel.mdps import FiniteMDP
from winkel.operators import action_values

TWO_STATES = np.full((2, 1, 2), 0.5)
REWARDS = Atoms.of(np.zeros((2, 1, 1)))


@pytest.mark.parametrize("name", zoo.ZOO)
def test_the_zoo_is_well_formed(name):
    mdp = zoo.ZOO[name]()
    np.testing.assert_allclose(mdp.transitions.sum(-1), 1.0)
    low, high = mdp.return_range
    assert low < high


@pytest.mark.parametrize("size", [2, 5, 10])
def test_deep_sea_pays_one_for_always_going_right(size):
    mdp = mdps.deep_sea(size, gamma=0.9)
    assert mdp.num_states == size * (size + 1) // 2 + 1
    always_right = action_values(mdp, zoo.always(mdp, 1))
    costs = 0.01 / size * sum(0.9**t for t in range(size))
    np.testing.assert_allclose(always_right[0, 1], 0.9 ** (size - 1) - costs)
    np.testing.assert_allclose(action_values(mdp, zoo.always(mdp, 0))[0], [0.0, -0.01 / size])


@pytest.mark.parametrize("gamma", [1.0, -0.1, 1.5, float("nan"), "0.5", None])
@pytest.mark.usefixtures("without_shape_checks")
def test_discounts_outside_the_unit_interval_are_refused(gamma):
    with pytest.raises(InputError, match=str(gamma)):
        FiniteMDP(transitions=TWO_STATES, rewards=REWARDS, gamma=gamma)


@pytest.mark.parametrize(
    ("transitions", "shown"),
    [
        (np.array([[[0.5, 0.4]], [[0.5, 0.5]]]), r"0\.9 in row \(0, 0\)"),
        (np.array([[[1.5, -0.5]], [[0.5, 0.5]]]), "-0.5"),
        (np.array([[[np.nan, 0.5]], [[0.5, 0.5]]]), "nan"),
        (np.full((2, 1, 3), 1 / 3), r"\[2, 1, 3\]"),
        (np.zeros((0, 1, 0)), r"\[0, 1, 0\]"),
    ],
)
@pytest.mark.usefixtures("without_shape_checks")
def test_bad_transitions_are_refused_with_their_values(transitions, shown):
    with pytest.raises(InputError, match=shown):
        FiniteMDP(transitions=transitions, rewards=REWARDS, gamma=0.5)


@pytest.mark.usefixtures("without_shape_checks")
def test_plain_lists_make_an_mdp():
    mdp = FiniteMDP(transitions=[[[1]]], rewards=Atoms([[[1]]], [[[1]]]), gamma=0)
    assert mdp.transitions.dtype == np.float64
    np.testing.assert_allclose(action_values(mdp, [[1]]), 1.0)


def test_bad_rewards_are_refused_with_their_values():
    with pytest.raises(InputError, match="nan"):
        FiniteMDP(
            transitions=TWO_STATES,
            rewards=Atoms(np.full((2, 1, 1), np.nan), np.ones((2, 1, 1))),
            gamma=0.5,
        )
    with pytest.raises(InputError, match=r"\[3, 1, 1\]"):
        FiniteMDP(transitions=TWO_STATES, rewards=Atoms.of(np.zeros((3, 1, 1))), gamma=0.5)


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda: mdps.deep_sea(size=1), "got 1"),
        (lambda: mdps.reward_cycle(length=0), "got 0"),
    ],
)
@pytest.mark.usefixtures("without_shape_checks")
def test_impossible_sizes_are_refused(make, shown):
    with pytest.raises(InputError, match=shown):
        make()


@pytest.mark.parametrize(
    ("policy", "shown"),
    [(np.full((2, 1), 0.9), "0.9"), (np.ones((1, 2)), r"\[1, 2\]"), (np.ones((3, 1)), r"\[3, 1\]")],
)
def test_bad_policies_are_refused_with_their_values(policy, shown):
    mdp = FiniteMDP(transitions=TWO_STATES, rewards=REWARDS, gamma=0.5)
    with pytest.raises(InputError, match=shown):
        mdps.check_policy(mdp, policy)
