import numpy as np
import pytest

from winkel import Atoms
from winkel.errors import InputError


def test_atoms_are_equally_likely_by_default():
    atoms = Atoms.of([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(atoms.probs, [0.25] * 4)


def test_leading_axes_are_a_batch():
    atoms = Atoms.of(np.zeros((3, 2, 5)))
    assert atoms.probs.shape == (3, 2, 5)
    np.testing.assert_allclose(atoms.probs.sum(-1), 1.0)


@pytest.mark.parametrize(
    ("locations", "probs", "shown"),
    [
        ([0.0, 1.0], [0.5, 0.6], "1.1"),
        ([[0.0, 1.0], [0.0, 1.0]], [[0.5, 0.5], [0.25, 0.25]], r"0\.5 in row \(1,\)"),
        ([0.0, 1.0], [1.5, -0.5], "-0.5"),
        ([0.0, np.nan], [0.5, 0.5], "nan"),
        ([0.0, np.inf], [0.5, 0.5], "inf"),
        ([0.0, 1.0], [np.nan, 0.5], "nan"),
        ([], [], r"\(0,\)"),
        (np.array(1.0), None, r"\(\)"),
        ([0.0, 1.0, 2.0], [0.5, 0.5], r"\(2,\) and \(3,\)"),
    ],
)
def test_bad_atoms_are_refused_with_their_value(locations, probs, shown):
    with pytest.raises(InputError, match=shown):
        Atoms.of(locations, probs)


def test_input_errors_are_value_errors():
    assert issubclass(InputError, ValueError)
