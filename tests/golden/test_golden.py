"""Runs are equal to those recorded, array for array, on a machine that has been recorded."""

import pytest

from golden.cases import case_names, difference, load_hashes, run_case

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", case_names())
def test_a_run_leaves_the_recorded_arrays(name, tmp_path):
    recorded = load_hashes().get(name)
    if recorded is None:
        pytest.skip("no hashes of this machine: python tests/golden/cases.py --write, on old code")
    assert difference(recorded, run_case(name, tmp_path)) is None
