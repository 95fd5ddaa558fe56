"""Kernels run in Pallas' interpreter, as there is no GPU."""

import pytest

from winkel.kernels import common


@pytest.fixture(autouse=True)
def _interpreter(monkeypatch):
    monkeypatch.setattr(common, "INTERPRET", True)
