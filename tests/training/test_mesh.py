"""Lanes over several devices, which a CPU can pretend to have."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from winkel.errors import InputError
from winkel.training.programs import make_mesh

FLAGS = f"--xla_force_host_platform_device_count=8 {os.environ['XLA_FLAGS']}"


@pytest.fixture(scope="module")
def found():
    program = Path(__file__).with_name("eight_devices.py")
    done = subprocess.run(
        [sys.executable, str(program)],
        env=os.environ | {"XLA_FLAGS": FLAGS, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_lanes_are_on_all_devices_and_as_many_on_each(found):
    assert found["devices"] == [8, 1]
    assert found["lanes"] == 16


def test_eight_devices_learn_what_one_does_to_rounding(found):
    assert found["learned"] < 1e-6
    assert found["estimates"] < 1e-5


def test_episodes_are_those_of_one_device(found):
    assert found["episodes"] == 20 * 10
    assert found["same as on one"]


def test_a_share_is_bit_by_bit_what_it_is_alone_on_one_device(found):
    assert found["same as a share alone"]


def test_more_devices_than_there_are_is_one_line(found):
    assert found["refusal"] == "need 1 to 8 devices, which this machine has (cpu), got 9"
    with pytest.raises(InputError, match="devices, which this machine has"):
        make_mesh(1_000)
