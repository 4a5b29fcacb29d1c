"""Estimates and points: values against definitions, bounds against the statistics, floors,
failures, directions."""

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontier.core.estimates.bounds import MEAN_FLOOR, from_blocks, requests_needed
from frontier.core.estimates.estimate import estimate, point
from frontier.core.estimates.sources import attains, per_request
from frontier.core.model.decisions import Limit
from frontier.core.model.metrics import DEFAULT_METRICS
from frontier.core.model.points import Estimate
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import ClientHealth
from frontier.core.stats import intervals
from frontier.core.window.histogram import ALPHA, LogHistogram
from frontier.core.window.window import BLOCKS, Floats, WindowData, join
from tests.kit.golden import assert_golden_row
from tests.kit.made import bounds


def a_sample(n: int = 1200, *, seed: int = 0, concurrency: int = 4, start: float = 0.0, **changes: Any) -> WindowData:
    """A steady window of independent requests of 10 tokens: TTFT near 50 ms, TPOT near 10 ms; then
    the changes.
    """
    rng = np.random.default_rng(seed)
    ttft, tpot = rng.lognormal(-3, 0.3, n), rng.lognormal(-4.6, 0.1, n)
    seconds = float((ttft + 9 * tpot).sum()) / concurrency
    gaps = [LogHistogram.of(rng.lognormal(-4.6, 0.2, max(1, 9 * n // BLOCKS))) for _ in range(BLOCKS)]
    made = WindowData(
        deployment="a",
        shape=Shape.of(100, 10),
        load=concurrency,
        starts=np.array([start]),
        ends=np.array([start + seconds]),
        sent=start + (np.arange(n) + 0.5) * seconds / n,
        window=np.zeros(n, dtype=np.int64),
        ttft=ttft,
        tpot=tpot,
        e2e=ttft + 9 * tpot,
        ok=np.ones(n, dtype=bool),
        silence=np.zeros(n),
        hollow=np.zeros(n, dtype=bool),
        irregular=np.full(n, math.nan),
        asked_isl=np.full(n, 100.0),
        asked_osl=np.full(n, 10.0),
        prompt_tokens=np.full(n, 100.0),
        completion_tokens=np.full(n, 10.0),
        cached_tokens=np.zeros(n),
        events=np.full(n, 10),
        reads=np.full(n, 10),
        text_chars=np.full(n, 50),
        block_seconds=np.full(BLOCKS, seconds / BLOCKS),
        block_output_tokens=rng.normal(10 * n / BLOCKS, 2, BLOCKS),
        block_input_tokens=rng.normal(100 * n / BLOCKS, 20, BLOCKS),
        block_finished=np.full(BLOCKS, n / BLOCKS),
        block_itl=tuple(gaps),
        in_flight=np.full(BLOCKS, float(concurrency)),
        health=(ClientHealth(),),
        server_identities=(None,),
        server=({},),
        ended=("requests",),
        client_failures=0,
        outcomes={"ok": n},
        whole_run={"p99_ttft": 0.5},
    )
    return replace(made, **changes)


def failing(sample: WindowData, which: list[int]) -> WindowData:
    """The same with these requests failed."""
    ok, ttft, tpot, e2e = (a.copy() for a in (sample.ok, sample.ttft, sample.tpot, sample.e2e))
    ok[which], ttft[which], tpot[which], e2e[which] = False, math.inf, math.inf, math.inf
    return replace(sample, ok=ok, ttft=ttft, tpot=tpot, e2e=e2e)


def known(sample: WindowData, name: str, **options: Any) -> Estimate:
    found = estimate(sample, name, **options)
    assert found is not None
    return found


# --- percentiles


@pytest.mark.parametrize("p", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("quantity", ["ttft", "tpot", "e2e"])
def test_a_percentile_is_the_order_statistic_with_its_bounds(quantity: str, p: float) -> None:
    sample = a_sample()
    x: Floats = getattr(sample, quantity)
    found = known(sample, f"p{p * 100:g}_{quantity}")
    assert np.quantile(x, p, method="inverted_cdf") == found.value
    assert (found.low, found.high) == bounds(x, p, 0.975)
    assert (found.lower, found.upper) == bounds(x, p)
    assert found.low <= found.lower <= found.value <= found.upper <= found.high
    assert (1200, None) == (found.n, found.need)


def test_confidence_moves_the_one_sided_bounds_only() -> None:
    usual, strict = known(a_sample(), "p95_ttft"), known(a_sample(), "p95_ttft", confidence=1 - 0.05 / 6)
    assert (usual.low, usual.high, usual.value) == (strict.low, strict.high, strict.value)
    assert strict.lower < usual.lower
    assert usual.upper < strict.upper


@pytest.mark.parametrize(("n", "claimed"), [(298, False), (299, False), (999, False), (1000, True), (1001, True)])
def test_a_p99_is_claimed_from_a_thousand_requests(n: int, claimed: bool) -> None:
    found = known(a_sample(n, seed=3), "p99_ttft")
    assert claimed is math.isfinite(found.upper)
    assert (None if claimed else 1000) == found.need


def test_below_the_floor_the_interval_is_still_shown_and_a_violation_still_seen() -> None:
    found = known(a_sample(900, seed=3), "p99_ttft")
    assert math.inf == found.upper
    assert math.isfinite(found.high)
    assert math.isfinite(found.lower)


def test_at_high_concurrency_a_p99_needs_twenty_requests_per_slot() -> None:
    assert 2560 == known(a_sample(2559, concurrency=128), "p99_ttft").need
    assert math.isfinite(known(a_sample(2560, concurrency=128), "p99_ttft").upper)
    assert math.isfinite(known(a_sample(300, concurrency=128), "p50_ttft").upper)


def test_dependence_is_charged_and_the_need_grows_with_it() -> None:
    sample = a_sample(1200)
    sorted_by_luck = replace(sample, ttft=np.sort(sample.ttft))
    found = known(sorted_by_luck, "p99_ttft")
    assert math.inf == found.upper
    assert found.need is not None
    assert found.need == math.ceil(299 * 1200 / intervals.n_eff(sorted_by_luck.ttft, 0.99))


def test_asked_for_more_confidence_than_the_sample_has_it_says_what_would_do() -> None:
    found = known(a_sample(1000, seed=3), "p99_ttft", confidence=1 - 1e-6)
    assert math.inf == found.upper
    assert found.need is not None
    assert found.need >= 1375  # ln(1e-6) / ln(0.99)


def test_tpot_leaves_out_requests_of_one_token() -> None:
    tpot = a_sample().tpot.copy()
    tpot[::2] = math.nan
    assert 600 == known(a_sample(tpot=tpot), "p50_tpot").n
    assert estimate(a_sample(tpot=np.full(1200, math.nan)), "p50_tpot") is None


@settings(max_examples=20, deadline=None)
@given(st.floats(0.1, 10.0), st.sampled_from(["p99_ttft", "mean_e2e", "p95_itl"]))
def test_slower_by_a_factor_is_slower_by_that_factor(scale: float, name: str) -> None:
    sample = a_sample(1100)
    slower = replace(
        sample,
        ttft=sample.ttft * scale,
        e2e=sample.e2e * scale,
        block_itl=tuple(LogHistogram.of(np.array([0.01, 0.02, 0.03]) * scale) for _ in range(BLOCKS)),
    )
    same = replace(sample, block_itl=tuple(LogHistogram.of([0.01, 0.02, 0.03]) for _ in range(BLOCKS)))
    assert known(same, name).value * scale == pytest.approx(known(slower, name).value, rel=3 * ALPHA)


# --- failures


def test_more_failures_than_the_tail_holds_make_the_percentile_infinite() -> None:
    sample = failing(a_sample(1000), list(range(0, 1000, 90)))
    found = known(sample, "p99_ttft")
    assert (math.inf, math.inf, None) == (found.value, found.upper, found.need)
    assert math.isfinite(known(sample, "p95_ttft").upper)


def test_a_few_failures_leave_the_percentile_but_not_its_bound() -> None:
    found = known(failing(a_sample(1000, seed=3), [100, 350, 600, 700, 850]), "p99_ttft")
    assert math.isfinite(found.value)
    assert math.inf == found.upper
    assert found.need is not None
    assert 1000 < found.need < 10_000


def test_all_failed_is_infinite_and_proven_so() -> None:
    sample = failing(a_sample(1000), list(range(1000)))
    found = known(sample, "p99_ttft")
    assert (math.inf, math.inf) == (found.lower, found.value)
    assert (0.0, 1.0) == (known(sample, "p50_interactivity").value, known(sample, "error_rate").value)


@pytest.mark.parametrize("name", ["mean_ttft", "mean_e2e", "mean_itl"])
def test_a_mean_over_failures_is_infinite_with_a_finite_lower_bound(name: str) -> None:
    whole, broken = known(a_sample(), name), known(failing(a_sample(), [5]), name)
    assert (math.inf, math.inf, math.inf) == (broken.value, broken.upper, broken.high)
    assert whole.lower == pytest.approx(broken.lower, rel=0.01)


def test_failures_weigh_on_gaps_as_on_requests() -> None:
    sample = a_sample(1000)
    assert math.inf == known(failing(sample, list(range(0, 1000, 40))), "p99_itl").value
    assert math.isfinite(known(failing(sample, list(range(0, 1000, 200))), "p99_itl").value)
    assert known(sample, "p95_itl").value < known(failing(sample, list(range(0, 1000, 40))), "p95_itl").value


# --- gaps, means, rates


def test_itl_percentiles_are_of_all_gaps_together() -> None:
    rng = np.random.default_rng(1)
    blocks = [rng.lognormal(-4, 0.5, 2000) for _ in range(BLOCKS)]
    sample = a_sample(block_itl=tuple(map(LogHistogram.of, blocks)))
    for p in (0.5, 0.95, 0.99):
        exact = np.quantile(np.concatenate(blocks), p, method="inverted_cdf")
        found = known(sample, f"p{p * 100:g}_itl")
        assert exact == pytest.approx(found.value, rel=2 * ALPHA)
        assert found.lower <= exact <= found.upper


def test_the_bounds_of_equal_gaps_hold_them_though_a_bin_is_not_a_point() -> None:
    for gap in np.linspace(0.0100, 0.0101, 23):
        found = known(a_sample(block_itl=(LogHistogram.of(np.full(100, gap)),) * BLOCKS), "p99_itl")
        assert found.lower <= gap <= found.upper <= gap * (1 + 3 * ALPHA)


def test_gaps_that_stall_together_widen_the_bound() -> None:
    rng = np.random.default_rng(1)
    spread = [rng.lognormal(-4, 0.1, 2000) for _ in range(BLOCKS)]
    bunched = [block.copy() for block in spread]
    for block in spread:
        block[:30] = 0.5
    for block in bunched[3:6]:
        block[:200] = 0.5
    a, b = (known(a_sample(block_itl=tuple(map(LogHistogram.of, it))), "p95_itl") for it in (spread, bunched))
    assert b.high - b.low > 3 * (a.high - a.low)


def test_no_gaps_no_itl() -> None:
    assert estimate(a_sample(block_itl=(LogHistogram(),) * BLOCKS), "p50_itl") is None


def test_a_mean_has_a_students_interval_of_its_blocks() -> None:
    sample = a_sample(1200)
    blocks = sample.ttft.reshape(BLOCKS, 60).sum(axis=1)
    expected = intervals.batch_means(blocks, np.full(BLOCKS, 60.0))
    found = known(sample, "mean_ttft")
    assert sample.ttft.mean() == pytest.approx(found.value)
    assert expected.bounds(0.975) == pytest.approx((found.low, found.high))
    assert expected.bounds(0.95) == pytest.approx((found.lower, found.upper))


def test_throughputs_are_tokens_of_the_blocks_over_their_seconds() -> None:
    sample = a_sample()
    seconds = sample.block_seconds.sum()
    output, prompt = sample.block_output_tokens.sum() / seconds, sample.block_input_tokens.sum() / seconds
    assert output == pytest.approx(known(sample, "output_throughput").value)
    assert prompt == pytest.approx(known(sample, "input_throughput").value)
    assert output + prompt == pytest.approx(known(sample, "total_throughput").value)
    assert 1200 / seconds == pytest.approx(known(sample, "request_throughput").value)
    assert 20 == known(sample, "output_throughput").n


def test_a_rate_of_too_few_requests_needs_as_many_times_its_blocks_as_those_are_short() -> None:
    short = from_blocks(np.ones(20), np.ones(20), 1, 20, 10, 0.95)
    assert short.need is not None
    assert MEAN_FLOOR / 10 == short.need / short.n


def test_tokens_the_server_does_not_count_are_not_guessed() -> None:
    counts = a_sample().completion_tokens.copy()
    counts[:20] = math.nan
    sample = a_sample(completion_tokens=counts)
    assert estimate(sample, "output_throughput") is None
    assert estimate(sample, "total_throughput") is None
    assert estimate(sample, "input_throughput") is not None
    (note,) = (note for note in point(sample).notes if "token" in note)
    assert ["20", "1,200"] == re.findall(r"[\d,]+", note)
    assert_golden_row("answers", note)


def test_the_error_rate_is_bounded_by_clopper_pearson() -> None:
    found = known(a_sample(1000), "error_rate")
    assert (0.0, 0.0) == (found.value, found.lower)
    assert 1 - 0.05 ** (1 / 1000) == pytest.approx(found.upper)
    scattered = known(failing(a_sample(1000), list(range(0, 1000, 50))), "error_rate")
    assert intervals.clopper_pearson(20, 1000) == pytest.approx((scattered.lower, scattered.upper))


def test_a_handful_claims_nothing_but_may_show_failure() -> None:
    sample = failing(a_sample(20), list(range(10)))
    rate = known(sample, "error_rate")
    assert (0.5, math.inf, 30) == (rate.value, rate.upper, rate.need)
    assert rate.lower > 0.2
    assert -math.inf == known(a_sample(20), "output_throughput").lower
    assert math.inf == known(a_sample(20), "mean_ttft").upper


def test_windows_of_one_setting_widen_the_interval_when_they_differ() -> None:
    parts = [
        a_sample(seed=i, start=1000.0 * i, block_output_tokens=np.random.default_rng(i).normal(600 + 20 * i, 2, BLOCKS))
        for i in range(3)
    ]
    one, three = known(parts[1], "output_throughput"), known(join(parts), "output_throughput")
    assert three.high - three.low > 5 * (one.high - one.low)


# --- higher is better


def test_interactivity_is_the_percentile_of_tpot_inverted() -> None:
    sample = a_sample(1100)
    tpot, speed = known(sample, "p99_tpot"), known(sample, "p99_interactivity")
    inverted = tuple(1 / x for x in (tpot.value, tpot.high, tpot.low, tpot.upper, tpot.lower))
    assert inverted == (speed.value, speed.low, speed.high, speed.lower, speed.upper)


def test_interactivity_that_cannot_be_claimed_has_no_lower_bound() -> None:
    found = known(a_sample(500), "p99_interactivity")
    assert (-math.inf, 1000) == (found.lower, found.need)
    assert math.isfinite(found.upper)


def test_cost_is_price_over_throughput() -> None:
    sample = a_sample()
    speed, cost = known(sample, "output_throughput"), known(sample, "cost", price=36.0)
    assert 36.0 / 3600 / speed.value * 1e6 == pytest.approx(cost.value)
    assert 36.0 / 3600 / speed.lower * 1e6 == pytest.approx(cost.upper)
    assert estimate(sample, "cost") is None


# --- attainment and goodput

LIMITS = (Limit("p99_ttft", 0.06), Limit("p50_ttft", 0.01), Limit("p90_interactivity", 100.0), Limit("mean_e2e", 0.0))


def test_a_request_is_held_to_the_hardest_percentile_of_each_quantity() -> None:
    assert {"ttft": 0.06, "tpot": 0.01} == per_request(LIMITS)


def test_attainment_is_the_share_within_every_limit() -> None:
    sample = failing(a_sample(), [0, 1])
    within = sample.ok & (sample.ttft <= 0.06) & (sample.tpot <= 0.01)
    assert np.array_equal(within, attains(sample, LIMITS))
    found = known(sample, "attainment", limits=LIMITS)
    assert within.mean() == pytest.approx(found.value)
    assert found.low < found.lower < found.value < found.upper < found.high
    assert within.sum() / sample.block_seconds.sum() == pytest.approx(known(sample, "goodput", limits=LIMITS).value)


def test_all_within_is_attained_at_one_with_an_interval() -> None:
    found = known(a_sample(1000), "attainment", limits=(Limit("p99_ttft", 10.0),))
    assert (1.0, 1.0) == (found.value, found.upper)
    assert 0.05 ** (1 / 1000) == pytest.approx(found.lower)


def with_unknown(sample: WindowData, which: np.ndarray[Any, Any]) -> WindowData:
    """The same, these answers without a count: what they were stays in E2E."""
    return replace(
        sample,
        tpot=np.where(which, math.nan, sample.tpot),
        completion_tokens=np.where(which, math.nan, sample.completion_tokens),
    )


def test_unknown_latencies_bound_as_endless_and_as_nothing_and_the_value_is_of_the_known() -> None:
    """Against an oracle: whatever the unknown were, the bounds of the whole lie within those of the
    rest.
    """
    sample = a_sample(1200)
    gone = np.arange(1200) % 150 == 7
    found = known(with_unknown(sample, gone), "p95_tpot")
    assert found.n == 1200 - 8
    assert intervals.quantile(sample.tpot[~gone], 0.95) == found.value
    for were in (0.0, 0.01, 9.0, math.inf):
        true = known(replace(sample, tpot=np.where(gone, were, sample.tpot)), "p95_tpot")
        assert found.lower <= true.lower
        assert found.low <= true.low
        assert found.upper >= true.upper
        assert found.high >= true.high


def test_more_unknown_than_the_percentile_leaves_have_no_upper_bound() -> None:
    found = known(with_unknown(a_sample(1200), np.arange(1200) % 50 == 0), "p99_tpot")
    assert (math.inf, math.inf) == (found.high, found.upper)
    assert math.isfinite(found.value)
    mean = known(with_unknown(a_sample(1200), np.arange(1200) % 500 == 0), "mean_tpot")
    assert (math.inf, math.inf) == (mean.high, mean.upper)


def test_a_throughput_allows_for_answers_without_a_count() -> None:
    sample = a_sample(1200)
    exact, found = (
        known(sample, "output_throughput"),
        known(with_unknown(sample, np.arange(1200) < 6), "output_throughput"),
    )
    grown = 1 + 60 / (12000 - 60)
    assert (exact.value, exact.lower, exact.low) == (found.value, found.lower, found.low)
    assert (exact.upper * grown, exact.high * grown) == pytest.approx((found.upper, found.high))
    prompts = replace(sample, prompt_tokens=np.where(np.arange(1200) < 6, math.nan, 100.0), asked_isl=np.zeros(1200))
    assert math.inf == known(prompts, "input_throughput").upper


def test_a_ttft_is_bounded_by_the_first_visible_character() -> None:
    sample = a_sample(1200)
    later = replace(sample, silence=np.full(1200, 0.02))
    plain, found = known(sample, "p99_ttft"), known(later, "p99_ttft")
    assert (plain.value, plain.lower, plain.low) == (found.value, found.lower, found.low)
    assert (plain.upper + 0.02, plain.high + 0.02) == pytest.approx((found.upper, found.high))


def test_a_count_that_differs_from_the_chunks_by_one_bounds_by_both() -> None:
    sample = a_sample(1200)  # ten tokens, ten chunks
    odd = replace(sample, completion_tokens=np.full(1200, 11.0), tpot=sample.tpot * 9 / 10)
    plain, found = known(sample, "p99_tpot"), known(odd, "p99_tpot")
    assert plain.value * 0.9 == pytest.approx(found.value)
    assert plain.upper == pytest.approx(found.upper)
    assert plain.lower * 0.9 == pytest.approx(found.lower)
    interval = replace(sample, events=np.full(1200, 5))  # two tokens a chunk are no contradiction
    first = known(replace(interval, first_tokens=np.ones(1200)), "p99_tpot")
    assert (plain.value, plain.lower) == pytest.approx((first.value, first.lower))
    assert plain.upper <= first.upper <= 1.03 * plain.upper


def test_where_no_count_is_known_goodput_by_tpot_is_not_either() -> None:
    sample = with_unknown(a_sample(1200), np.ones(1200, dtype=bool))
    assert estimate(sample, "p99_tpot") is None
    assert estimate(sample, "goodput", limits=(Limit("p99_tpot", 1.0),)) is None
    assert estimate(sample, "goodput", limits=(Limit("p99_ttft", 1.0),)) is not None


def test_an_unknown_tpot_does_not_attain() -> None:
    gone = np.arange(1200) % 4 == 0
    assert attains(with_unknown(a_sample(1200), gone), (Limit("p99_tpot", 9.0),)).tolist() == (~gone).tolist()


def test_a_request_of_one_token_breaks_no_limit_on_tpot() -> None:
    one = np.ones(1200)
    sample = a_sample(tpot=np.full(1200, math.nan), completion_tokens=one, events=one.astype(int))
    assert attains(sample, (Limit("p99_tpot", 0.001),)).all()


@pytest.mark.parametrize("limits", [(), (Limit("output_throughput", 10.0),), (Limit("p99_itl", 0.1),)])
def test_without_a_limit_for_single_requests_there_is_no_goodput(limits: tuple[Limit, ...]) -> None:
    assert estimate(a_sample(), "goodput", limits=limits) is None
    assert estimate(a_sample(), "attainment", limits=limits) is None


# --- needs


def test_needs_without_failures_are_the_published_ones() -> None:
    assert [29, 59, 299, 2995] == [requests_needed(p) for p in (0.9, 0.95, 0.99, 0.999)]
    assert 477 == requests_needed(0.99, 1 - 0.05 / 6)
    assert 598 == requests_needed(0.99, per_effective=2.0)


def test_the_need_grows_with_failures_until_none_would_do() -> None:
    found = [requests_needed(0.99, failed=share) for share in (0.0, 0.001, 0.005, 0.009)]
    assert None not in found
    assert found == sorted({n for n in found if n is not None}), "strictly growing"
    assert requests_needed(0.99, failed=0.01) is None


# --- points


def test_a_point_has_every_default_metric_and_those_of_its_limits() -> None:
    found = point(a_sample(), limits=(Limit("p99.9_ttft", 1.0),), price=2.0)
    assert {*DEFAULT_METRICS, "p99.9_ttft", "goodput", "attainment", "cost", "cached_share"} == set(found.metrics)
    assert (1200, 1, {"p99_ttft": 0.5}) == (found.n, found.repeats, found.whole_run)
    assert found.valid


def test_a_point_of_nothing_has_no_metrics_and_is_invalid() -> None:
    none = a_sample(20)
    empty = {name: getattr(none, name)[:0] for name in ("sent", "window", "ttft", "tpot", "e2e", "ok", "asked_isl")}
    empty |= {name: getattr(none, name)[:0] for name in ("asked_osl", "prompt_tokens", "completion_tokens")}
    empty |= {name: getattr(none, name)[:0] for name in ("cached_tokens", "events", "reads")}
    found = point(replace(none, outcomes={}, **empty))
    assert {} == found.metrics
    assert not found.valid


def test_a_point_says_that_failures_make_means_infinite() -> None:
    assert any("3 of 1,200 requests failed" in note for note in point(failing(a_sample(), [1, 2, 3])).notes)
    assert () == point(a_sample()).notes


def test_a_throughput_that_wanders_is_noted() -> None:
    wandering = 600 + 20 * np.sin(np.linspace(0, 6, BLOCKS))
    assert any("correlated" in note for note in point(a_sample(block_output_tokens=wandering)).notes)


def test_an_unknown_metric_is_refused_with_a_hint() -> None:
    with pytest.raises(ValueError, match="did you mean 'p99_ttft'"):
        estimate(a_sample(), "p99_tftt")


def test_a_failure_beside_a_count_that_differs_is_no_warning() -> None:
    ok, events = np.arange(1200) > 9, np.where(np.arange(1200) % 20 == 15, 11, 10)
    sample = a_sample()
    failed = {name: np.where(ok, getattr(sample, name), math.inf) for name in ("ttft", "tpot", "e2e")}
    both = estimate(replace(sample, ok=ok, events=events, **failed), "p50_tpot")  # warnings are errors here
    alone = estimate(replace(sample, ok=ok, **failed), "p50_tpot")
    assert both is not None
    assert alone is not None
    assert (both.value, both.upper) == (alone.value, alone.upper)
    assert both.lower <= alone.lower
