"""Rules, comparisons, and the file of claims."""

import math

import numpy as np
import pytest

from winkel.analysis.statistics import Interval
from winkel.report.claims import apply_rule, load_claims
from winkel.report.comparisons import compare, mean_gap, median_gap, median_ratio
from winkel.report.measures import MEASURES


@pytest.mark.parametrize(
    ("rule", "interval", "expected"),
    [
        ({"interval_below": 1.0}, (0.5, 0.4, 0.9), "holds"),
        ({"interval_below": 1.0}, (0.5, 0.4, 1.0), "inconclusive"),
        ({"interval_below": 1.0}, (1.5, 1.4, 1.6), "contradicted"),
        ({"interval_above": 0.0}, (0.5, 0.4, 0.9), "holds"),
        ({"interval_above": 0.0}, (0.5, 0.0, 0.9), "inconclusive"),
        ({"interval_above": 0.0}, (-0.5, -0.6, -0.1), "contradicted"),
        ({"interval_excludes": 0.0}, (-0.5, -0.6, -0.1), "holds"),
        ({"interval_excludes": 0.0}, (0.0, 0.0, 0.0), "inconclusive"),
        ({"interval_within": [-0.1, 0.1]}, (0.0, -0.1, 0.1), "holds"),
        ({"interval_within": [-0.1, 0.1]}, (0.0, -0.2, 0.1), "inconclusive"),
        ({"interval_within": [-0.1, 0.1]}, (0.3, 0.2, 0.4), "contradicted"),
        ({"estimate_at_most": 0.67, "interval_below": 1.0}, (0.7, 0.5, 0.9), "inconclusive"),
        ({"estimate_at_most": 0.67, "interval_below": 1.0}, (0.6, 0.5, 0.9), "holds"),
        ({"estimate_at_most": 0.67, "interval_below": 1.0}, (0.8, 0.7, 0.9), "contradicted"),
        ({"estimate_at_least": 1.0}, (1.0, 0.6, 1.0), "holds"),
        ({"estimate_at_least": 1.0}, (0.9, 0.6, 1.0), "contradicted"),
        ({"interval_below": 1.0}, (0.5, math.nan, math.nan), "inconclusive"),
    ],
)
def test_rules(rule, interval, expected):
    assert apply_rule(rule, Interval(*interval)) == expected


def interval(xs, ys, statistic):
    return compare("", xs, ys, statistic).interval


def test_comparisons():
    x, y = np.array([1.0, 2.0, 3.0]), np.array([4.0, 4.0, 4.0])
    assert interval([x], [y], median_ratio) == Interval(0.5, 0.25, 0.75)
    assert interval([x], [y], median_gap) == Interval(-2.0, -3.0, -1.0)
    assert interval([x], [y], mean_gap).estimate == -2.0
    assert interval([x[::-1].copy()], [y], mean_gap) == interval([x], [y], mean_gap)
    assert interval([0 * x], [0 * y], median_ratio) == Interval(1.0, 1.0, 1.0)
    alone = interval([x[:1]], [y], median_gap)
    assert math.isnan(alone.low)
    assert math.isnan(alone.high)


def test_equal_up_to_rounding_is_equal():
    x = np.array([0.1 + 0.2, 0.3, 0.3])
    assert interval([x], [np.full(3, 0.3)], mean_gap) == Interval(0.0, 0.0, 0.0)


def test_the_file_of_claims():
    claims = load_claims()
    fields = {
        "id", "source", "statement", "measure", "with", "what", "rule", "axis", "paper", "command",
    }  # fmt: skip
    assert len({claim["id"] for claim in claims}) == len(claims) >= 9
    for claim in claims:
        assert set(claim) == fields
        assert claim["source"]
        assert claim["measure"] in MEASURES
        assert claim["rule"]
        assert apply_rule(claim["rule"], Interval(0.0, -1.0, 1.0))
        assert claim["axis"][0] < claim["axis"][1]
        assert claim["command"].startswith(("winkel sweep ", "python results/"))
