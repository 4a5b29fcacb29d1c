import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier.core.model.decisions import Limit, Verdict, worst
from frontier.core.model.points import Estimate, Frontier, Point
from frontier.core.model.series import Series, by_series
from frontier.core.model.shapes import MAX_TOKENS, Lengths, Shape, ShapeError

SHAPE, LONG = Shape.of(1024, 256), Shape.of(4096, 256)
ENDS = st.one_of(st.floats(allow_nan=False), st.just(0.0))
ESTIMATES = st.builds(Estimate, ENDS, ENDS, ENDS, st.integers(0, 9), ENDS, ENDS, st.none() | st.integers(1, 9))
LIMITS = st.builds(
    Limit,
    st.sampled_from(["p99_ttft", "goodput", "error_rate", "p50_interactivity"]),
    st.floats(-10, 10),
    st.none() | st.floats(0, 10),
)


def point(deployment: str, shape: Shape, concurrency: int = 1, **metrics: Estimate) -> Point:
    return Point(deployment, shape, concurrency, metrics, 100)


def test_items_are_grouped_by_deployment_and_shape_in_order_of_appearance() -> None:
    points = [point("b", SHAPE, 1), point("a", SHAPE, 1), point("b", SHAPE, 2), point("b", LONG, 1)]
    groups = by_series(points)
    assert list(groups) == [("b", SHAPE), ("a", SHAPE), ("b", LONG)]
    assert groups[Series("b", SHAPE)] == [points[0], points[2]]
    frontier = Frontier("a", LONG, ("output_throughput", "p99_ttft"), (), ())
    assert (frontier.series, points[0].series) == (("a", LONG), ("b", SHAPE))


@pytest.mark.parametrize(
    ("series", "labels"),
    [
        ([("default", SHAPE)], ["1024/256"]),
        ([("fp8", SHAPE)], ["1024/256"]),
        ([("fp8", SHAPE), ("fp8", LONG)], ["1024/256", "4096/256"]),
        ([("", SHAPE), ("fp8", SHAPE)], ["default", "fp8"]),
        ([("default", SHAPE), ("fp8", LONG)], ["default · 1024/256", "fp8 · 4096/256"]),
    ],
)
def test_labels_among_several_name_what_differs(series: list[tuple[str, Shape]], labels: list[str]) -> None:
    among = [Series(*one) for one in series]
    assert [one.label(among) for one in among] == labels


def test_labels_alone_hide_the_unnamed_deployment_and_are_clean() -> None:
    assert [Series(name, SHAPE).label(join="  ") for name in ("", "default", "fp8")] == [
        "1024/256",
        "1024/256",
        "fp8  1024/256",
    ]
    assert Series("a\x1b[31m\n" + "b" * 99, SHAPE).label(longest=9) == "a[31…bbbb · 1024/256"
    both = [Series("a", SHAPE), Series("b", SHAPE)]
    assert both[0].label(both, keep_shape=True) == "a · 1024/256"


@pytest.mark.parametrize("text", ["1024/256", "256-4096/128-512", "1024~256/512", "1/4194304", "12~2.5/7"])
def test_a_shape_reads_back_as_it_is_written(text: str) -> None:
    assert Shape.parse(text).label == text
    assert Shape.parse(f"  {text.replace('/', ' / ')} ") == Shape.parse(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("1k/1k", "write 1024/1024 or 1000/1000"),
        ("8k1k", "write 8192/1024 or 8000/1000"),
        ("1024", "1024/256"),
        ("0/5", f"{MAX_TOKENS:,}"),
        (f"{MAX_TOKENS + 1}/5", f"{MAX_TOKENS:,}"),
        ("9-3/4", "write 3-9"),
        ("", "1024/256"),
        ("1/2/3", "1024/256"),
        ("-5/3", "1024/256"),
        ("9" * 99 + "/1", "1024/256"),
        ("٣/3", "1024/256"),
    ],
)
def test_a_text_that_is_no_shape_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(ShapeError) as caught:
        Shape.parse(text)
    assert hint in caught.value.hint
    assert len(str(caught.value)) < 160


@given(st.text(max_size=30))
def test_any_text_is_a_shape_or_refused(text: str) -> None:
    try:
        shape = Shape.parse(text)
    except ShapeError:
        return
    assert min(shape.isl.low, shape.osl.low) >= 1


def test_lengths_without_spread_are_fixed() -> None:
    assert Lengths.parse("7-7") == Lengths.parse("7~0") == Lengths.fixed(7)


@given(LIMITS, st.floats())
def test_the_margin_is_the_share_of_the_promise_that_is_left(limit: Limit, value: float) -> None:
    margin = limit.margin(value)
    if math.isnan(value):
        assert math.isnan(margin)
        assert not limit.holds(value)
        assert not limit.breaks(value)
        return
    left = limit.promise - value if limit.better == "lower" else value - limit.promise
    at_zero = 0.0 if left == 0 else math.copysign(math.inf, left)
    assert margin == (left / abs(limit.promise) if limit.promise else at_zero)
    assert limit.holds(value) is (value <= limit.promise if limit.better == "lower" else value >= limit.promise)
    assert limit.holds(value) is not limit.breaks(value)


@pytest.mark.parametrize(
    ("limit", "value", "excess"),
    [
        (Limit("p99_ttft", 0.5), 1.0, math.log(2)),
        (Limit("p99_ttft", 0.5), math.inf, math.inf),
        (Limit("p99_ttft", 0.5), 0.0, -math.inf),
        (Limit("error_rate", 0.0), 0.1, math.inf),
        (Limit("error_rate", 0.0), 0.0, -math.inf),
        (Limit("goodput", 10.0), 5.0, math.log(2)),
        (Limit("goodput", 10.0), 0.0, math.inf),
        (Limit("goodput", 0.0), 5.0, -math.inf),
        (Limit("p99_ttft", math.inf), 1.0, -math.inf),
    ],
)
def test_the_excess_is_the_logarithm_of_value_over_promise(limit: Limit, value: float, excess: float) -> None:
    assert limit.excess(value) == excess


def test_the_interval_and_the_bound_are_those_of_the_side_that_decides() -> None:
    estimate = Estimate(3.0, 1.0, 5.0, 9, 2.0, 4.0)
    latency, rate = Limit("p99_ttft", 4.5), Limit("goodput", 1.5)
    assert latency.bound(estimate) == 4.0
    assert rate.bound(estimate) == 2.0


def test_edges_of_a_limit() -> None:
    latency, rate = Limit("p99_ttft", 0.5, comfort=0.2), Limit("goodput", 10.0)
    assert latency.holds(0.5)
    assert not latency.holds(math.inf)
    assert rate.holds(math.inf)
    assert (latency.comfortable(0.2), latency.comfortable(0.3), rate.comfortable(99.0)) == (True, False, False)
    assert (latency.margin(0.25), rate.margin(15.0), rate.margin(5.0)) == (0.5, 0.5, -0.5)
    assert ("≤ 500 ms" in str(latency), "≥ 10 req/s" in str(rate)) == (True, True)


@given(ESTIMATES, st.floats(1e-3, 1e3))
def test_scaling_and_dividing_an_estimate_are_exact(estimate: Estimate, by: float) -> None:
    sides = ("value", "low", "high", "lower", "upper")
    divided: dict[str, Any] = {side: getattr(estimate, side) / by for side in sides}
    assert estimate.scaled(1, by) == dataclasses.replace(estimate, **divided)
    times: dict[str, Any] = {side: getattr(estimate, side) * by for side in sides}
    assert estimate.scaled(by) == dataclasses.replace(estimate, **times)


def test_an_estimate_is_not_scaled_by_a_negative_factor() -> None:
    for factor, divisor in ((-1, 1), (1, 0), (math.nan, 1)):
        with pytest.raises(ValueError, match="cannot be scaled"):
            Estimate(1, 1, 1, 1).scaled(factor, divisor)
    unbounded = Estimate.without_interval(3.0, 4).scaled(0)
    assert (unbounded.value, unbounded.low, unbounded.high) == (0, -math.inf, math.inf)


INF = math.inf


@pytest.mark.parametrize(
    ("estimate", "inverse"),
    [
        (Estimate(2.0, 1.0, 4.0, 9, 1.25, 2.5, 7), Estimate(5.0, 2.5, 10.0, 9, 4.0, 8.0, 7)),
        (Estimate.without_interval(2.0, 9), Estimate.without_interval(5.0, 9)),
        (Estimate(0.0, 0.0, 0.0, 9, 0.0, 0.0), Estimate(INF, INF, INF, 9, -INF, INF)),
        (Estimate(2.0, -1.0, 4.0, 9, -1.0, INF), Estimate(5.0, 2.5, INF, 9, -INF, INF)),
        (Estimate(INF, 4.0, INF, 9, 5.0, INF), Estimate(0.0, -INF, 2.5, 9, -INF, 2.0)),
        (Estimate(INF, INF, INF, 9, INF, INF), Estimate(0.0, -INF, INF, 9, -INF, INF)),
    ],
)
def test_an_inverse_swaps_the_bounds_and_claims_nothing_where_there_is_none(
    estimate: Estimate, inverse: Estimate
) -> None:
    assert estimate.inverted(10.0) == inverse
    certain = estimate.inverted(10.0, lower_at_zero=INF)
    assert certain.lower == (INF if estimate.upper <= 0 else inverse.lower)


def test_the_inverse_of_nan_is_nan() -> None:
    assert math.isnan(Estimate.without_interval(math.nan, 0).inverted().value)


def test_an_estimate_knows_whether_it_has_an_interval() -> None:
    assert not Estimate.without_interval(1.0, 9).has_interval
    assert not Estimate.without_interval(1.0, 9).has_bound
    assert Estimate(math.inf, math.inf, math.inf, 9, math.inf, math.inf).has_interval
    assert Estimate(1.0, 0.5, math.inf, 9, -math.inf, 2.0).has_bound


def test_the_worst_verdict_decides() -> None:
    order = [Verdict.INVALID, Verdict.VIOLATES, Verdict.UNPROVEN, Verdict.MARGINAL, Verdict.MEETS]
    for i, verdict in enumerate(order):
        assert worst(reversed(order[i:])) is verdict
