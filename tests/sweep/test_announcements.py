"""What a sweep tells while it runs is what its table says afterwards."""

import math

import pytest

from frontier.core.claim.verdict import judge
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.points import Estimate, Point
from frontier.core.model.shapes import Shape
from frontier.sweep.announcements import deciding_limit

LIMITS = (Limit("p95_ttft", 0.15), Limit("p95_tpot", 0.018), Limit("error_rate", 0.01))


def short(*values: float) -> Point:
    """A quick look with these values, too few for a bound of any; the first would need most."""
    estimates = {
        limit.metric: Estimate(value, 0.9 * value, math.inf, 64, need=4000 if i == 0 else 200)
        for i, (limit, value) in enumerate(zip(LIMITS, values, strict=True))
    }
    return Point("default", Shape.of(1024, 256), 64, estimates, 64)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ((0.05, 0.0196, 0.0), "p95_tpot"),
        ((0.16, 0.0196, 0.0), "p95_tpot"),
        ((0.2, 0.0196, 0.0), "p95_ttft"),
        ((0.05, 0.015, 0.0), "p95_ttft"),
    ],
)
def test_a_setting_is_over_the_limit_that_its_values_break_most(values: tuple[float, ...], told: str) -> None:
    point = short(*values)
    judgement = judge(point, LIMITS)
    assert judgement.verdict is not Verdict.VIOLATES
    shown = deciding_limit(point, judgement, LIMITS)
    assert shown is not None
    assert (told, any(value > limit.promise for value, limit in zip(values, LIMITS, strict=True))) == (
        shown.metric,
        shown.breaks(point.metrics[shown.metric].value),
    )
