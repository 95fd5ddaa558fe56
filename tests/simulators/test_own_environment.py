"""The environment of the example: only the combination opens it."""

import importlib

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from winkel.simulators.names import parse
from winkel.simulators.pool import Pool


@pytest.fixture
def make(request, monkeypatch):
    monkeypatch.syspath_prepend(request.config.rootpath)
    return importlib.import_module("examples.own_environment").make


def test_gymnasium_finds_nothing_wrong_with_it(make):
    check_env(make(), skip_render_check=True)


def test_only_the_combination_opens_it(make):
    opened = {}
    with Pool(parse("examples.own_environment:make:digits=6")[1], [0], 0) as pool:
        assert (pool.layout.shape, pool.num_actions) == ((7,), 2)
        pool.reset()
        for number in range(64):
            buttons = tuple(number >> i & 1 for i in range(6))
            rewards = []
            for button in buttons:
                moves = pool.step(np.array([button]))
                rewards.append(moves.reward[0])
                if moves.boundary[0]:
                    break
            assert moves.discount[0] == 0.0
            opened[buttons] = sum(rewards)
    assert opened.pop(tuple(make(digits=6).code.tolist())) == pytest.approx(1.0 - 5 * 0.01)
    assert max(opened.values()) == 0.0
