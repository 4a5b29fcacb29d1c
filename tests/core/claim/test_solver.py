import dataclasses
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier.config import load_config
from frontier.core.claim import proof, solver
from frontier.core.claim.causes import with_causes
from frontier.core.claim.verdict import judge
from frontier.core.estimates import estimate as summarize
from frontier.core.model.decisions import Cause, EndedEarly, Limit, Reason, Verdict
from frontier.core.model.errors import ExitCode, UsageError
from frontier.core.model.loads import Concurrency
from frontier.core.model.points import Estimate, Flag, Frontier, Point
from frontier.core.model.shapes import Shape
from frontier.planning import sla_result
from frontier.planning.budget import TrialTimes
from frontier.planning.next_step import SweepAgain, spoilt_settings, with_command
from frontier.show.view.answer_view import answer_view
from frontier.show.view.explain import sentence, why_not_more, with_notes
from frontier.show.view.sentences import headline, next_step_lines, reason_words
from frontier.show.view.series_view import series_view
from frontier.show.view.wording import deciding_bound, flag_kind
from frontier.store.journal import Amount
from tests.kit import made
from tests.kit.golden import assert_golden_row

SHAPE = Shape.of(1024, 256)
TTFT = Limit("p99_ttft", 0.5)
TPOT = Limit("p99_tpot", 0.03)
BROKEN = (Flag("lockstep", "8.1", "2", "stagger the starts"),)
INF, NAN = math.inf, math.nan
SWEEP = "endpoint: http://127.0.0.1:9/v1\nmodel: m\nshapes: [64/8]\nsla: {p99_ttft: 500ms}\n"


def sure(value, n=3000):
    """An estimate without uncertainty."""
    return Estimate(value, value, value, n, value, value)


def estimate(value, lower, upper, n=3000, need=None):
    return Estimate(value, lower, upper, n, lower, upper, need)


def point(c, ttft, throughput=None, *, flags=(), shape=SHAPE, deployment="d", **more):
    """`ttft` is an Estimate, or (lower, value, upper), or a value without uncertainty."""
    if isinstance(ttft, tuple):
        ttft = estimate(ttft[1], ttft[0], ttft[2])
    metrics = {"p99_ttft": ttft if isinstance(ttft, Estimate) else sure(ttft)}
    rate = 100.0 * c if throughput is None else throughput
    metrics["output_throughput"] = rate if isinstance(rate, Estimate) else sure(rate)
    metrics |= {name: value if isinstance(value, Estimate) else sure(value) for name, value in more.items()}
    return Point(deployment, shape, c, metrics, 3000, flags=flags)


def verdict(ttft, limits=(TTFT,), **how):
    return judge(point(8, ttft), limits, **how).verdict


@pytest.mark.parametrize(
    ("expected", "ttft"),
    [
        ("meets", estimate(0.4, 0.35, 0.5)),  # the bound may equal the limit
        ("marginal", estimate(0.4, 0.35, 0.501)),
        ("marginal", estimate(0.6, 0.5, 0.7)),
        ("violates", estimate(0.6, 0.501, 0.7)),
        ("violates", estimate(INF, INF, INF)),  # more than one in a hundred failed
        ("marginal", estimate(0.4, 0.35, INF)),  # enough requests, but so many failed that the bound is one of them
        ("unproven", estimate(0.4, 0.35, INF, n=500, need=1000)),
        ("unproven", estimate(0.4, 0.35, 0.45, n=999)),  # under the floor no bound counts, whoever computed it
        ("meets", estimate(0.4, 0.35, 0.45, n=1000)),
        ("violates", estimate(0.9, 0.8, INF, n=299, need=1000)),
        ("unproven", Estimate.without_interval(0.4, 5000)),
        ("unproven", Estimate.without_interval(0.6, 5000)),
        ("unproven", estimate(NAN, NAN, NAN)),
    ],
)
def test_a_latency_limit_has_one_verdict_for_each_kind_of_evidence(expected, ttft):
    assert expected == verdict(ttft)


def normal(value, error, alpha=0.05):
    """An estimate whose bounds are those of a normal law with this standard error."""
    side, bound = NormalDist().inv_cdf(0.975) * error, NormalDist().inv_cdf(1 - alpha) * error
    return Estimate(value, value - side, value + side, 3000, value - bound, value + bound)


@pytest.mark.parametrize(
    ("number", "alpha", "error", "expected"),
    [
        (1, 0.05, 0.060, "violates"),  # 0.1 beyond its limit: 1.67 errors of the 1.64 that one limit needs
        (2, 0.05, 0.060, "marginal"),  # two limits need 1.96
        (2, 0.05, 0.050, "violates"),
        (3, 0.05, 0.049, "marginal"),  # three need 2.13, which is stretched from the interval's 1.96
        (3, 0.05, 0.046, "violates"),
        (1, 0.003, 0.036, "violates"),  # at the error of one batch 2.75
        (2, 0.003, 0.036, "marginal"),  # and for two limits 2.97, stretched from the bound's own
        (2, 0.003, 0.033, "violates"),
    ],
)
def test_a_violation_of_several_limits_is_held_to_its_share_of_the_error(number, alpha, error, expected):
    slow = point(8, normal(0.6, error, alpha), p99_tpot=1, p99_e2e=1)
    limits = [TTFT, Limit("p99_tpot", 9.0), Limit("p99_e2e", 9.0)][:number]
    judged = judge(slow, limits, alpha=alpha)
    assert (expected, "violates") == (judged.verdict, judged.per_metric["p99_ttft"])


@pytest.mark.parametrize(
    ("low", "lower", "alpha", "number"),
    [(0.50, 0.51, 0.003, 2), (0.51, 0.50, 0.05, 3)],  # stretched from the bound, and from the interval
)
def test_the_stricter_of_two_known_bounds_is_stretched(low, lower, alpha, number):
    slow = point(8, Estimate(0.6, low, 0.7, 3000, lower, 0.7), p99_tpot=1, p99_e2e=1)
    limits = [TTFT, Limit("p99_tpot", 9.0), Limit("p99_e2e", 9.0)][:number]
    assert "violates" == judge(slow, limits, alpha=alpha).verdict


def test_a_rate_violates_by_its_upper_bound():
    few = [point(8, 0.1, normal(90, error)) for error in (5.5, 4.5)]
    limits = [TTFT, Limit("output_throughput", 100)]
    assert ["marginal", "violates"] == [judge(p, limits).verdict for p in few]


def test_a_bound_cannot_be_stretched_from_an_infinite_value():
    failing = point(8, estimate(INF, 0.7, INF), p99_tpot=1, p99_e2e=1)
    limits = [TTFT, Limit("p99_tpot", 9.0), Limit("p99_e2e", 9.0)]
    assert ("marginal", "violates") == (judge(failing, limits).verdict, judge(failing, limits[:1]).verdict)


@pytest.mark.parametrize(
    ("needed", "ttft"),
    [
        (1000, Estimate(0.4, -INF, INF, 50, need=700)),  # no bound yet: as many as the floor
        (2000, Estimate(0.4, -INF, INF, 50, need=2000)),
        (44574, Estimate(0.4, -INF, INF, 22287, need=16000)),  # never fewer than it had
        (None, Estimate.without_interval(0.4, 50)),  # an aggregate: no number of requests gives it a bound
    ],
)
def test_what_has_no_bound_says_how_many_requests_give_one(needed, ttft):
    judged = judge(point(8, ttft), [TTFT])
    assert ("unproven", needed) == (judged.verdict, judged.need)


def test_the_requests_needed_grow_with_the_square_of_the_bound_over_the_gap():
    slow = judge(point(8, estimate(0.25, 0.24, 0.625)), [TTFT])  # the bound is half as far again as the limit
    few = judge(point(8, 0.1, estimate(12, 9, 12.1)), [Limit("output_throughput", 10)])
    over = judge(point(8, estimate(0.75, 0.375, 0.76)), [TTFT])
    at_the_floor, above = (judge(point(8, estimate(0.25, 0.24, 0.625, n=n)), [TTFT]) for n in (1000, 1001))
    assert (2250, 2253) == (at_the_floor.need, above.need), "rounded up"
    both = point(8, estimate(0.25, 0.24, 0.625), p99_tpot=estimate(0.015, 0.014, 0.0375, n=2000))
    assert 6750 == judge(both, [TTFT, TPOT]).need, "the most that a limit needs"
    assert [("marginal", 6750)] * 3 == [(j.verdict, j.need) for j in (slow, few, over)]


@pytest.mark.parametrize(
    ("limit", "wanted"),
    [(Limit("output_throughput", 10), 3000 * (3 / 2) ** 2), (Limit("cost", 15), 3000 * (4 / 3) ** 2)],
)
def test_a_rate_whose_n_counts_blocks_of_time_needs_requests_all_the_same(limit, wanted):
    judged = judge(point(8, 0.1, **{limit.metric: estimate(12, 9, 16, n=20)}), [limit])
    assert ("marginal", pytest.approx(wanted, rel=0.02)) == (judged.verdict, judged.need)


@pytest.mark.parametrize(("rate", "expected"), [(12, "meets"), (10, "meets"), (9, "violates")])
def test_a_rate_alone_decides_on_its_value_when_asked(rate, expected):
    few = point(8, 0.1, Estimate.without_interval(rate, 50))
    assert expected == judge(few, [Limit("output_throughput", 10)], point_estimates=True).verdict


def test_a_value_exactly_at_its_limit_binds():
    judged = judge(point(8, sure(0.5), p99_tpot=0.02), [TPOT, TTFT])
    assert ("meets", "p99_ttft", 0.0) == (judged.verdict, judged.binding, judged.headroom)


@pytest.mark.parametrize(
    ("expected", "goodput"),
    [
        ("meets", estimate(12, 10, 14)),
        ("marginal", estimate(12, 9.9, 14)),
        ("violates", estimate(8, 7, 9.9)),
        ("unproven", Estimate.without_interval(12, 1000)),
        ("marginal", estimate(9, 8, 10)),
    ],
)
def test_a_limit_where_more_is_better_is_proven_by_its_lower_bound(expected, goodput):
    assert expected == judge(point(8, 0.1, goodput=goodput), [Limit("goodput", 10)]).verdict


def test_interactivity_is_judged_from_below_and_keeps_the_floor_of_its_percentile():
    fast = estimate(50, 45, 60, n=3000)
    limit = [Limit("p99_interactivity", 40)]
    assert Verdict.MEETS == judge(point(8, 0.1, p99_interactivity=fast), limit).verdict
    few = dataclasses.replace(fast, n=500)
    assert Verdict.UNPROVEN == judge(point(8, 0.1, p99_interactivity=few), limit).verdict


def test_a_metric_that_was_not_measured_is_unproven_not_zero():
    found = judge(point(8, 0.1), [TTFT, TPOT])
    assert Verdict.UNPROVEN == found.verdict
    assert "p99_tpot" == found.binding
    assert (None, None) == (found.headroom, found.need)


def test_the_worst_metric_speaks_for_all_and_an_invalid_point_for_none():
    tpot = {"meets": sure(0.02), "marginal": estimate(0.029, 0.028, 0.031), "violates": sure(0.04)}
    for name, value in tpot.items():
        found = judge(point(8, 0.4, p99_tpot=value), [TTFT, TPOT])
        assert name == found.verdict
        assert {"p99_ttft": "meets", "p99_tpot": name} == found.per_metric
    assert Verdict.INVALID == judge(point(8, 0.9, flags=BROKEN), [TTFT]).verdict


def test_a_violation_of_one_among_several_metrics_is_held_to_its_share_of_the_error():
    edge = Estimate(0.6, 0.49, 0.7, 3000, 0.51, 0.69)  # one-sided 95% excludes the limit, 97.5% does not
    assert Verdict.VIOLATES == judge(point(8, edge), [TTFT]).verdict
    joint = judge(point(8, edge, p99_tpot=0.02), [TTFT, TPOT])
    assert (Verdict.MARGINAL, Verdict.VIOLATES) == (joint.verdict, joint.per_metric["p99_ttft"])
    wide = Estimate(0.6, 0.51, 0.7, 3000, 0.52, 0.69)  # stretched to alpha / 4 this bound falls below the limit
    three = [TTFT, TPOT, Limit("p99_e2e", 9), Limit("error_rate", 0.01)]
    assert Verdict.MARGINAL == judge(point(8, wide, p99_tpot=0.02, p99_e2e=1, error_rate=0), three).verdict
    certain = estimate(INF, INF, INF)
    assert Verdict.VIOLATES == judge(point(8, certain, p99_tpot=0.02, p99_e2e=1, error_rate=0), three).verdict


def test_the_binding_metric_is_the_deciding_one_with_least_headroom():
    found = judge(point(8, 0.4, p99_tpot=0.027), [TTFT, TPOT])
    assert "p99_tpot" == found.binding
    assert 0.1 == pytest.approx(found.headroom)
    marginal = judge(point(8, 0.49, p99_tpot=estimate(0.020, 0.018, 0.031)), [TTFT, TPOT])
    assert "p99_tpot" == marginal.binding  # TTFT has less headroom but meets


def test_values_alone_decide_imported_points_only_when_asked():
    assert Verdict.MEETS == verdict(Estimate.without_interval(0.5, 0), point_estimates=True)
    assert Verdict.VIOLATES == verdict(Estimate.without_interval(0.51, 0), point_estimates=True)
    assert Verdict.UNPROVEN == verdict(estimate(NAN, NAN, NAN), point_estimates=True)


def test_the_requests_that_would_decide_are_named():
    assert 1000 == judge(point(8, estimate(0.4, 0.3, INF, n=200, need=600)), [TTFT]).need
    assert 12_000 == judge(point(8, estimate(0.4, 0.35, 0.6)), [TTFT]).need  # twice the gap: four times the requests
    assert judge(point(8, estimate(0.5, 0.45, 0.6)), [TTFT]).need is None
    assert judge(point(8, 0.1), [TTFT]).need is None


def test_an_sla_without_limits_is_a_wrong_question():
    with pytest.raises(UsageError) as refused:
        judge(point(8, 0.1), [])
    assert_golden_row("messages", str(refused.value))


# --- solve


def curve(*pairs):
    return [point(c, ttft) for c, ttft in pairs]


def code(decision):
    return solver.exit_code([decision])


def causes(decision):
    return [reason.cause for reason in decision.explanation.reasons]


def reason(decision, cause):
    """The one reason of this cause."""
    (found,) = (reason for reason in decision.explanation.reasons if reason.cause is cause)
    return found


def of_setting(decision, concurrency):
    (found,) = (reason for reason in decision.explanation.settings if reason.settings == (concurrency,))
    return found


def test_the_highest_setting_worth_its_tail_below_the_first_violation_is_chosen():
    d = solver.solve(curve((1, 0.1), (8, 0.12), (32, 0.2), (48, 0.3), (64, 0.8), (96, 0.9)), [TTFT])
    assert (Verdict.MEETS, 48, 48, 64) == (d.verdict, d.load, d.last_pass, d.first_fail)
    assert ExitCode.YES == code(d)
    assert [Cause.CHOSEN, Cause.VIOLATES] == causes(d)
    beyond = reason(d, Cause.VIOLATES)
    assert ((64,), "p99_ttft", 0.8) == (beyond.settings, beyond.metric, beyond.estimate.value)
    each = [Cause.MEETS] * 3 + [Cause.CHOSEN] + [Cause.VIOLATES] * 2
    assert each == [reason.cause for reason in d.explanation.settings]
    assert_golden_row("answers", sentence(beyond))


def test_points_may_come_in_any_order():
    points = curve((64, 0.8), (1, 0.1), (48, 0.3))
    assert solver.solve(points, [TTFT]) == solver.solve(points[::-1], [TTFT])
    assert 48 == solver.solve(points, [TTFT]).load


def test_nothing_feasible_is_an_answer_and_one_user_waiting_too_long_is_not_queueing():
    d = solver.solve(curve((1, 0.612), (2, 0.7)), [TTFT])
    assert (Verdict.VIOLATES, None, 1, 1, None) == (d.verdict, d.load, d.candidate, d.first_fail, d.last_pass)
    assert [Cause.VIOLATES, Cause.SLOW_ALONE] == causes(d)
    assert ((1,), 0.612) == (reason(d, Cause.VIOLATES).settings, reason(d, Cause.SLOW_ALONE).estimate.value)
    assert ExitCode.NO == code(d)
    assert "service time" in sentence(reason(d, Cause.SLOW_ALONE))
    failing = solver.solve(curve((1, INF), (2, INF)), [TTFT])
    assert "service time" not in sentence(reason(failing, Cause.SLOW_ALONE))


def test_without_a_measurement_at_one_user_lower_concurrencies_are_advised():
    d = solver.solve(curve((8, 0.9), (16, 0.8)), [TTFT])
    assert (Verdict.VIOLATES, 16) == (d.verdict, d.candidate)
    assert (8,) == reason(d, Cause.LOWEST_MEASURED).settings


def test_a_hole_hides_everything_above_it():
    d = solver.solve(curve((1, 0.1), (8, 0.9), (16, 0.2), (32, 0.3), (64, 0.9)), [TTFT])
    assert (1, 8, (8,)) == (d.load, d.first_fail, d.holes)
    assert (8, 32) == reason(d, Cause.NON_MONOTONE).settings
    assert Cause.MEETS is of_setting(d, 16).cause


def test_a_violation_below_every_meeting_setting_is_a_contradiction_not_a_choice():
    d = solver.solve(curve((1, 0.9), (8, 0.1)), [TTFT])
    assert (Verdict.UNPROVEN, None, 8) == (d.verdict, d.load, d.candidate)
    assert ExitCode.NOT_PROVEN == code(d)
    assert (1, 8) == reason(d, Cause.NON_MONOTONE).settings


def test_every_measured_setting_meeting_means_the_limit_is_above_the_grid():
    d = solver.solve(curve((64, 0.1), (128, 0.2)), [TTFT])
    assert 128 == d.load
    assert (128,) == reason(d, Cause.HIGHEST_MEASURED).settings


def test_too_few_requests_name_the_candidate_and_what_would_decide():
    few = [point(c, estimate(0.1 * c, 0.05, INF, n=300, need=1000)) for c in (1, 2, 4, 8)]
    d = solver.solve(few, [TTFT])
    assert (Verdict.UNPROVEN, None, 4) == (d.verdict, d.load, d.candidate)
    open_one = reason(d, Cause.TOO_FEW)
    assert ((4,), 300, 1000) == (open_one.settings, open_one.estimate.n, open_one.need)
    assert_golden_row("answers", sentence(open_one))
    assert ExitCode.NOT_PROVEN == code(d)


@pytest.mark.parametrize("high", [0.45, 0.55, INF])
def test_an_interval_inside_the_limit_beside_unproven_is_explained(high):
    few = dataclasses.replace(estimate(0.4, 0.38, INF, n=900, need=1000), low=0.38, high=high)
    d = solver.solve([point(8, few)], [TTFT])
    assert (Verdict.UNPROVEN, None) == (d.verdict, d.load)
    assert ((8,), 1000) == (reason(d, Cause.TOO_FEW).settings, reason(d, Cause.TOO_FEW).need)


def test_an_interval_inside_the_limit_beside_marginal_names_the_bound_a_claim_stands_on():
    looked_at_often = dataclasses.replace(estimate(0.4, 0.37, 0.51), low=0.38, high=0.45)
    d = solver.solve([point(8, looked_at_often)], [TTFT])
    assert Verdict.MARGINAL == d.verdict
    assert 0.51 == deciding_bound(reason(d, Cause.CROSSES).estimate, TTFT)
    fast = Limit("p99_interactivity", 50)
    slowest = dataclasses.replace(estimate(60, 49, 70), low=52, high=68)
    d = solver.solve([point(8, 0.1, p99_interactivity=slowest)], [fast])
    assert 49 == deciding_bound(reason(d, Cause.CROSSES).estimate, fast)


def test_a_marginal_setting_is_taken_only_when_asked_and_never_called_proven():
    points = [point(1, 0.9), point(8, 0.9)]
    points[0] = point(1, (0.4, 0.45, 0.55))
    d = solver.solve(points, [TTFT])
    assert (Verdict.MARGINAL, None, 1) == (d.verdict, d.load, d.candidate)
    assert (ExitCode.NOT_PROVEN, True) == (code(d), reason(d, Cause.CROSSES).need > 3000)
    d = solver.solve(points, [TTFT], marginal_ok=True)
    assert (Verdict.MARGINAL, 1, ExitCode.YES) == (d.verdict, d.load, code(d))
    assert (1,) == reason(d, Cause.CROSSES).settings
    over = [point(1, (0.45, 0.52, 0.6))]
    assert solver.solve(over, [TTFT], marginal_ok=True).load is None  # its own value is over the limit


def test_the_next_setting_being_unresolved_is_said_with_what_it_would_bring():
    d = solver.solve([point(48, 0.3), point(64, (0.456, 0.49, 0.531), 4944)], [TTFT])
    assert 48 == d.load
    beyond = reason(d, Cause.CROSSES)
    assert ((64,), 0.03) == (beyond.settings, pytest.approx(beyond.gain))
    assert_golden_row("answers", sentence(beyond))


def test_an_undecided_setting_that_would_give_clearly_more_is_a_reason_of_its_own():
    open_ones = [point(c, (0.3, 0.4, 0.51), 5000.0 + c) for c in (64, 96)]
    d = solver.solve([point(48, 0.3, 3000), *open_ones], [TTFT])
    assert [(64,), (96,)] == [reason.settings for reason in d.explanation.reasons if reason.cause is Cause.CROSSES]
    assert (96, 0.7) == (d.next_step.load, pytest.approx(d.next_step.gain, abs=0.01))
    assert_golden_row("answers", headline(d))


def test_only_invalid_points_end_as_failed_measurement():
    d = solver.solve([point(8, 0.1, flags=BROKEN)], [TTFT])
    assert (Verdict.INVALID, None, None, ExitCode.FAILED) == (d.verdict, d.load, d.candidate, code(d))
    assert ((8,), BROKEN) == (reason(d, Cause.EXCLUDED).settings, reason(d, Cause.EXCLUDED).flags)


def test_a_flag_that_many_points_have_is_explained_once():
    d = solver.solve([point(c, 0.1, flags=BROKEN) for c in (1, 2, 8)], [TTFT])
    assert (1, 2, 8) == reason(d, Cause.EXCLUDED).settings


def test_a_violation_above_invalid_settings_does_not_say_no():
    d = solver.solve([point(1, 0.1, flags=BROKEN), point(8, 0.9)], [TTFT])
    assert (Verdict.INVALID, ExitCode.FAILED) == (d.verdict, code(d))
    assert (8,) == reason(d, Cause.VIOLATES).settings


def test_an_invalid_point_is_never_chosen_and_is_named():
    d = solver.solve([point(1, 0.1), point(8, 0.1, flags=BROKEN), point(16, 0.2)], [TTFT])
    assert 16 == d.load
    assert (8,) == reason(d, Cause.EXCLUDED).settings
    assert BROKEN == reason(d, Cause.EXCLUDED).flags
    assert_golden_row("answers", sentence(reason(d, Cause.EXCLUDED)))


def test_errors_and_nan_never_make_a_setting_feasible():
    points = [point(1, 0.1), point(8, estimate(NAN, NAN, NAN)), point(16, estimate(INF, INF, INF))]
    d = solver.solve(points, [TTFT])
    assert (1, 16) == (d.load, d.first_fail)
    assert (Verdict.MEETS, Verdict.UNPROVEN, Verdict.VIOLATES) == tuple(j.verdict for j in d.judgements)


# --- marginal gain


def test_a_step_that_only_costs_tail_is_rejected_with_its_numbers():
    d = solver.solve([point(48, 0.04, 1000), point(56, 0.39, 1003)], [TTFT])
    assert (48, 56) == (d.load, d.throughput_optimum)
    assert (56, "p99_ttft", False) == (d.rejected.load, d.rejected.metric, d.rejected.tie)
    assert 0.003 == pytest.approx(d.rejected.gain)
    assert 9.75 == pytest.approx(d.rejected.cost)
    step = reason(d, Cause.STEP_NOT_WORTH)
    assert ((56,), 9.75) == (step.settings, pytest.approx(step.cost))
    assert_golden_row("answers", sentence(step))
    solve = solver.solve
    assert 56 == solve([point(48, 0.04, 1000), point(56, 0.39, 1003)], [TTFT], marginal_gain=False).load


def test_ten_percent_for_a_doubled_tail_is_the_line():
    assert 2 == solver.solve([point(1, 0.1, 1000), point(2, 0.2, 1101)], [TTFT]).load
    assert 1 == solver.solve([point(1, 0.1, 1000), point(2, 0.2, 1099)], [TTFT]).load


def test_the_rule_does_not_depend_on_how_fine_the_grid_is():
    def server(c):
        return point(c, 0.02 * c, 1000 * c**0.5)

    coarse = solver.solve([server(c) for c in (1, 2, 4, 8, 16)], [TTFT]).load
    fine = solver.solve([server(c) for c in range(1, 17)], [TTFT]).load
    assert (16, 16) == (coarse, fine)


def test_a_later_worthwhile_step_is_still_seen_past_a_rejected_one():
    d = solver.solve([point(8, 0.1, 1000), point(12, 0.3, 1005), point(16, 0.31, 1900)], [TTFT])
    assert 16 == d.load


def test_values_decide_on_a_step_and_one_that_falls_short_by_less_than_its_interval_is_a_tie():
    def server(tail, noisy):
        metrics = {"p99_ttft": sure(tail), "output_throughput": noisy}
        return [point(8, 0.1, 1000), dataclasses.replace(point(9, 0.1), metrics=metrics)]

    noisy = Estimate(1050, 1000, 1100, 3000, 1008, 1092)
    # +5% for nothing, though it may be no gain at all
    assert 9 == solver.solve(server(0.1, noisy), [TTFT]).load
    d = solver.solve(server(0.17, noisy), [TTFT])  # 0.77 doublings ask for 7.3%: within the interval
    assert (8, True) == (d.load, d.rejected.tie)
    assert (9,) == reason(d, Cause.STEP_NOT_WORTH).settings
    assert not solver.solve(server(0.17, sure(1050)), [TTFT]).rejected.tie
    assert not solver.solve(server(0.1, Estimate(1010, 900, 1100, 3000, 908, 1092)), [TTFT]).rejected.tie


def test_the_worst_of_several_tails_is_what_a_step_costs():
    points = [point(8, 0.1, 1000, p99_tpot=0.01), point(16, 0.1, 1050, p99_tpot=0.028)]
    d = solver.solve(points, [TTFT, TPOT])
    assert (8, "p99_tpot") == (d.load, d.rejected.metric)


def test_without_a_throughput_the_highest_feasible_concurrency_is_taken():
    points = [Point("d", SHAPE, c, {"p99_ttft": sure(0.1)}, 3000) for c in (1, 2)]
    assert 2 == solver.solve(points, [TTFT]).load


def test_the_other_optima_are_shown_beside_the_choice():
    points = [
        point(48, 0.04, 1000, goodput=estimate(9, 8.9, 9.1), cost=0.3),
        point(56, 0.39, 1018, goodput=estimate(10, 8.0, 12), cost=0.2),
    ]
    d = solver.solve(points, [TTFT])
    assert (48, 56, 48) == (d.load, d.throughput_optimum, d.goodput_optimum)  # goodput by its lower bound
    most, cheapest = (r for r in d.explanation.reasons if r.cause is Cause.OPTIMUM)
    assert ("output_throughput", (56,), 0.018) == (most.metric, most.settings, pytest.approx(most.gain))
    assert ("cost", (56,), 0.2) == (cheapest.metric, cheapest.settings, cheapest.estimate.value)
    assert_golden_row("answers", "\n".join(map(sentence, (most, cheapest))))


def test_a_range_says_whether_the_setting_is_comfortable():
    limit = Limit("p99_ttft", 0.5, comfort=0.3)
    comfortable = solver.solve([point(1, 0.2)], [limit])
    assert limit == reason(comfortable, Cause.RANGE).limit
    ranges = [sentence(reason(d, Cause.RANGE)) for d in (comfortable, solver.solve([point(1, 0.4)], [limit]))]
    assert_golden_row("answers", "\n".join(ranges))
    between = solver.solve([point(1, 0.4)], [limit])
    assert Verdict.MEETS == between.verdict
    assert "p99_ttft" == reason(between, Cause.RANGE).metric


# --- several shapes


def test_each_deployment_and_shape_gets_its_own_decision_and_the_worst_sets_the_exit_code():
    other = Shape.of(8192, 512)
    points = [*curve((1, 0.1), (8, 0.2)), point(1, 0.9, shape=other), point(1, 0.1, deployment="e")]
    decisions = solver.solve_all(points, [TTFT])
    assert [("d", SHAPE, 8), ("d", other, None), ("e", SHAPE, 1)] == [
        (d.deployment, d.shape, d.load) for d in decisions
    ]
    assert ExitCode.NO == solver.exit_code(decisions)
    assert ExitCode.YES == solver.exit_code(decisions[:1])
    assert ExitCode.FAILED == solver.exit_code([])
    with pytest.raises(ValueError, match="one shape"):
        solver.solve(points, [TTFT])


def test_the_common_concurrency_was_measured_and_meets_in_every_shape():
    other = Shape.of(8192, 512)

    def both(first, second):
        points = [*curve(*first), *(point(c, ttft, shape=other) for c, ttft in second)]
        return sla_result.common(solver.solve_all(points, [TTFT]))

    assert {"d": 8} == both([(1, 0.1), (8, 0.2), (32, 0.3)], [(1, 0.2), (8, 0.4), (32, 0.9)])
    assert {"d": 1} == both([(1, 0.1), (16, 0.2)], [(1, 0.2), (8, 0.4)])  # 8 and 16 were each measured once
    assert {"d": None} == both([(1, 0.1)], [(1, 0.9)])


# --- from requests to an exit code: a golden row for each verdict


@pytest.mark.parametrize(
    ("expected", "code", "name", "n", "errors", "ttft"),
    [
        ("meets", ExitCode.YES, "p99_ttft", 1000, 0, 0.3),
        ("meets", ExitCode.YES, "p99_ttft", 1000, 1, 0.3),  # one failure is within one in a hundred
        ("unproven", ExitCode.NOT_PROVEN, "p99_ttft", 999, 0, 0.3),
        ("unproven", ExitCode.NOT_PROVEN, "p99_ttft", 299, 0, 0.3),
        ("unproven", ExitCode.NOT_PROVEN, "p99_ttft", 298, 0, 0.3),
        ("meets", ExitCode.YES, "p95_ttft", 299, 0, 0.3),
        ("unproven", ExitCode.NOT_PROVEN, "p95_ttft", 199, 0, 0.3),
        ("meets", ExitCode.YES, "p50_ttft", 30, 0, 0.3),
        ("unproven", ExitCode.NOT_PROVEN, "p50_ttft", 29, 0, 0.3),
        ("violates", ExitCode.NO, "p99_ttft", 1000, 0, 0.7),
        ("violates", ExitCode.NO, "p99_ttft", 299, 0, 0.7),
        ("violates", ExitCode.NO, "p99_ttft", 1000, 40, 0.3),  # the percentile itself is a failure
        ("marginal", ExitCode.NOT_PROVEN, "p90_ttft", 1000, 0, 0.5),
        ("violates", ExitCode.NO, "error_rate", 1000, 700, 0.3),
        ("meets", ExitCode.YES, "error_rate", 1000, 0, 0.3),
        ("marginal", ExitCode.NOT_PROVEN, "error_rate", 1000, 500, 0.3),
    ],
)
def test_requests_end_in_the_verdict_and_the_exit_code_of_their_number_and_kind(expected, code, name, n, errors, ttft):
    rng = np.random.default_rng(7)
    ok = np.ones(n, bool)
    ok[rng.permutation(n)[:errors]] = False
    # Scattered closely around the value, so that the verdict is of the number of requests and not
    # of luck.
    made_of = made.sample(8, ttft * np.exp(0.02 * rng.standard_normal(n)), np.full(n, 0.01), ok=ok)
    quantile = {"p99_ttft": 2.33, "p95_ttft": 1.64, "p90_ttft": 1.28}.get(name, 0.0)
    limit = Limit(name, 0.5 * math.exp(0.02 * quantile) if name != "error_rate" else 0.5)
    metrics = {m: e for m in ("output_throughput", name) if (e := summarize.estimate(made_of, m)) is not None}
    p = Point("d", made.SHAPE, 8, metrics, n)
    d = solver.solve([p], [limit])
    assert (expected, code) == (d.verdict, solver.exit_code([d]))


def test_nan_is_no_latency_a_single_token_has_no_tpot():
    n = 1200
    sample = made.sample(8, np.full(n, 0.3), np.full(n, 0.01))
    tpot = sample.tpot.copy()
    tpot[::2] = np.nan
    half = summarize.estimate(dataclasses.replace(sample, tpot=tpot), "p99_tpot")
    assert 600 == half.n
    metrics = {"output_throughput": sure(100.0), "p99_tpot": half}
    assert Verdict.UNPROVEN == judge(Point("d", made.SHAPE, 8, metrics, n), [TPOT]).verdict
    assert summarize.estimate(dataclasses.replace(sample, tpot=np.full(n, np.nan)), "p99_tpot") is None


# --- properties

points_strategy = st.lists(
    st.tuples(
        st.floats(0.01, 2), st.floats(0, 0.5), st.floats(0, 1), st.integers(1, 5000), st.sampled_from([1, 1, 1, 0])
    ),
    min_size=1,
    max_size=8,
)


def from_rows(rows):
    points = []
    for i, (value, spread, bound, n, valid) in enumerate(rows):
        e = estimate(value, value * (1 - spread), value * (1 + spread) if bound > 0.1 else INF, n)
        points.append(point(2**i, e, 100 * (1 + spread) * (i + bound), flags=() if valid else BROKEN))
    return points


@given(points_strategy, st.floats(0.01, 2), st.floats(1, 3))
def test_loosening_a_limit_never_lowers_the_best_throughput_inside_it(rows, limit, factor):
    # Holds for the highest throughput within the SLA; with the marginal-gain rule a looser limit
    # may choose less, since a cheaper first step can make a later one not worth its tail.
    points = from_rows(rows)
    tight = solver.solve(points, [Limit("p99_ttft", limit)], marginal_gain=False)
    loose = solver.solve(points, [Limit("p99_ttft", limit * factor)], marginal_gain=False)
    throughput = {p.load: p.metrics["output_throughput"].value for p in points} | {None: -INF}
    assert throughput[loose.load] >= throughput[tight.load]
    assert (loose.first_fail or INF) >= (tight.first_fail or INF)


@given(points_strategy, st.floats(0.01, 2), st.booleans(), st.booleans())
def test_the_choice_is_always_measured_proven_valid_and_below_every_violation(rows, limit, marginal_gain, marginal_ok):
    points = from_rows(rows)
    d = solver.solve(points, [Limit("p99_ttft", limit)], marginal_gain=marginal_gain, marginal_ok=marginal_ok)
    assert with_notes(d).notes
    assert marginal_ok or (d.load is not None) == (d.verdict is Verdict.MEETS)
    if d.load is None:
        return
    chosen = next(p for p in points if p.load == d.load)
    assert chosen.valid
    assert chosen.metrics["p99_ttft"].n >= 1000
    assert marginal_ok or chosen.metrics["p99_ttft"].upper <= limit
    assert [] == [j for j in d.judgements if j.verdict is Verdict.VIOLATES and j.load <= d.load]


@given(points_strategy, st.floats(0.01, 2))
def test_too_few_samples_never_end_as_meets(rows, limit):
    few = [(value, spread, bound, min(n, 999), valid) for value, spread, bound, n, valid in rows]
    d = solver.solve(from_rows(few), [Limit("p99_ttft", limit)])
    assert d.verdict is not Verdict.MEETS
    assert Verdict.MEETS not in {j.verdict for j in d.judgements}


def test_too_little_throughput_at_the_low_end_does_not_forbid_the_settings_above() -> None:
    floor = Limit("output_throughput", 900.0)
    points = [point(c, 0.1 * c / 16, 100.0 * c) for c in (1, 4, 16, 32)]
    assert 16 == solver.solve(points, [floor, Limit("p99_ttft", 0.15)], marginal_gain=False).load
    assert 32 == solver.solve(points, [floor], marginal_gain=False).load


def test_throughput_that_is_lost_again_is_a_violation() -> None:
    points = [point(c, 0.1, rate) for c, rate in ((4, 1000.0), (8, 700.0), (16, 1200.0))]
    decision = solver.solve(points, [Limit("output_throughput", 900.0)], marginal_gain=False)
    assert (4, 8) == (decision.load, decision.first_fail)


def test_throughput_nothing_reaches_is_answered_with_higher_concurrencies() -> None:
    decision = solver.solve([point(1, 0.1, 100.0), point(8, 0.1, 700.0)], [Limit("output_throughput", 900.0)])
    assert (Verdict.VIOLATES, 8) == (decision.verdict, decision.candidate)
    assert (8,) == reason(decision, Cause.HIGHEST_MEASURED).settings


@pytest.mark.parametrize(("rates", "chosen"), [((0.0, 100.0), 8), ((0.0, 0.0), 1), ((100.0, 0.0), 1)])
def test_a_setting_without_any_throughput_is_left_for_one_with_some(rates, chosen):
    points = [point(c, 0.1, rate) for c, rate in zip((1, 8), rates, strict=True)]
    assert chosen == solver.solve(points, [TTFT]).load


def test_of_equal_throughputs_the_lowest_concurrency_is_the_best():
    points = [point(c, 0.1, rate) for c, rate in ((1, 90), (2, 100), (4, 100))]
    decision = solver.solve(points, [TTFT], marginal_gain=False)
    assert (2, 2) == (decision.load, decision.throughput_optimum)
    assert decision.rejected is None, "only the marginal-gain rule rejects a step"


def test_without_a_throughput_the_most_users_are_preferred():
    points = [point(c, 0.1) for c in (1, 2, 4)]
    unknown = [dataclasses.replace(p, metrics={"p99_ttft": p.metrics["p99_ttft"]}) for p in points]
    assert 4 == solver.solve(unknown, [TTFT]).load


def test_a_violation_is_non_monotone_only_where_a_higher_setting_meets():
    low, high = point(1, 0.1), point(16, 0.9)
    decisions = [solver.solve([low, point(8, 0.9), *more], [TTFT]) for more in ([high], [point(16, 0.1)])]
    assert [(), (8,)] == [d.holes for d in decisions]


def test_below_a_violation_without_a_valid_measurement_nothing_is_known():
    decision = solver.solve([point(1, 0.1, flags=BROKEN), point(8, 0.9), point(16, 0.9)], [TTFT])
    assert ("invalid", None, None) == (decision.verdict, decision.load, decision.candidate)


def test_a_low_setting_that_lacks_throughput_and_waits_too_long_is_a_violation():
    limits = [TTFT, Limit("output_throughput", 50)]
    both, only_rate = point(1, 0.9, 10), point(1, 0.1, 10)
    chosen = [solver.solve([low, point(8, 0.1, 800)], limits).load for low in (both, only_rate)]
    assert [None, 8] == chosen


def test_the_nearest_miss_is_the_one_whose_worst_limit_is_least_broken():
    points = [point(1, 0.55, p99_tpot=0.09), point(2, 0.6, p99_tpot=0.036)]
    assert 2 == solver.solve(points, [TTFT, TPOT]).candidate


def test_above_a_violation_the_lowest_that_meets_is_to_be_measured_again():
    decision = solver.solve([point(8, 0.9), point(16, 0.1), point(32, 0.1)], [TTFT])
    assert ("unproven", None, 16) == (decision.verdict, decision.load, decision.candidate)


@pytest.mark.parametrize(("high", "tie"), [(112.0, True), (101.0, False)])
def test_a_step_ties_by_the_upper_end_of_its_gain(high, tie):
    further = Estimate(105.0, 104.9, high, 3000, 104.9, high)
    points = [point(1, 0.1, 100), point(8, 0.2, further)]
    decision = solver.solve(points, [TTFT])
    assert (1, tie) == (decision.load, decision.rejected.tie)


def test_one_concurrency_for_all_shapes_is_at_most_what_each_would_run_at():
    worth = [point(8, 0.1, 800), point(16, 0.4, 810), point(32, 0.9, 820)]
    other = [point(c, 0.1, 100.0 * c, shape=Shape.of(8, 8)) for c in (8, 16, 32)]
    decisions = solver.solve_all([*worth, *other], [TTFT])
    assert [8, 32] == [d.load for d in decisions]
    assert {"d": 8} == sla_result.common(decisions)


def test_an_excluded_setting_is_named_once():
    decision = solver.solve([point(8, 0.1), point(16, 0.1, flags=BROKEN), point(4, 0.05, flags=BROKEN)], [TTFT])
    excluded = [r.settings for r in decision.explanation.reasons if r.cause is Cause.EXCLUDED]
    assert [(16,), (4,)] == excluded


# --- a better setting that is not proven


WAVES = (Flag("lockstep", "8.1", "2", "stagger the starts"),)


def test_an_excluded_setting_inside_every_limit_that_would_give_twice_as_much_comes_first():
    # A sweep of a real server once said "met, run at concurrency 6: 817 tok/s", and nothing of c=32
    # with 1,837 tok/s.
    limits = [Limit("p95_ttft", 0.3), Limit("p95_tpot", 0.02)]
    points = [
        point(6, 0.05, 817, p95_ttft=0.1, p95_tpot=0.008),
        point(16, 0.05, 1300, p95_ttft=0.15, p95_tpot=0.012, flags=WAVES),
        point(32, 0.05, 1837, p95_ttft=0.191, p95_tpot=0.0173, flags=WAVES),
        point(64, 0.05, 2100, p95_ttft=0.191, p95_tpot=0.0203, flags=WAVES),
    ]
    d = solver.solve(points, limits)
    assert (Verdict.MEETS, 6, 32, 3000) == (d.verdict, d.load, d.next_step.load, d.next_step.requests)
    assert (1837 / 817 - 1, WAVES) == (pytest.approx(d.next_step.gain), d.next_step.flags)
    assert_golden_row("answers", f"{headline(d)}\n{with_notes(d).notes[0]}")


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(point(32, estimate(0.2, 0.1, INF, n=300, need=1000), 109), id="too little more"),
        pytest.param(point(32, (0.4, 0.51, 0.6), 300), id="over the limit"),
        pytest.param(point(32, 0.2, 300, flags=(Flag("token_mismatch", "2", "1", ""),)), id="meaningless"),
        pytest.param(Point("d", SHAPE, 32, {"output_throughput": sure(300)}, 3000), id="not measured"),
    ],
)
def test_what_is_no_better_answer_is_not_named(other):
    d = solver.solve([point(8, 0.1, 100), other], [TTFT], marginal_gain=False)
    assert (None, "Run at concurrency 8") == (d.next_step, headline(d).partition(":")[0])


def test_a_setting_above_a_violation_is_never_the_next_step():
    few = estimate(0.2, 0.1, INF, n=300, need=1000)
    points = [point(8, 0.1, 100), point(16, 0.9, 150), point(32, few, 300)]
    assert solver.solve(points, [TTFT]).next_step is None
    assert 32 == solver.solve([points[0], points[2]], [TTFT]).next_step.load


def test_a_setting_that_was_only_scanned_is_named_and_never_chosen():
    seen = [point(c, estimate(0.01 * c, 0.05, INF, n=40, need=900), 100.0 * c) for c in (16, 32, 64)]
    d = solver.solve([point(8, 0.1)], [TTFT], scanned=seen)
    assert (8, 32, 3.0) == (d.load, d.next_step.load, pytest.approx(d.next_step.gain))
    assert 1000 == d.next_step.requests, "as many as the floor of a p99"
    assert [Cause.CHOSEN, Cause.SCANNED, Cause.SCANNED, Cause.NOT_JUDGED] == [r.cause for r in d.explanation.settings]
    looked_at = next(r for r in d.explanation.reasons if r.settings == (32,))
    assert (Cause.SCANNED, 0.32) == (looked_at.cause, pytest.approx(looked_at.estimate.value))
    assert_golden_row("answers", sentence(looked_at))
    assert [8] == [j.load for j in d.judgements]


@pytest.mark.parametrize("gain", [1.03, 3.0], ids=["no better answer", "a better answer"])
@pytest.mark.parametrize("seen", [0.4, 0.6], ids=["inside", "over"])
@pytest.mark.parametrize("above", [[], [point(64, 0.9, 400)]], ids=["nothing judged", "a violation"])
def test_a_quick_look_at_the_next_setting_is_not_passed_over(seen, above, gain):
    looks = [point(9, estimate(seen, 0.05, INF, n=40, need=900), 103.0)]
    looks += [point(10, estimate(0.3, 0.05, INF, n=40, need=900), gain * 100)] if gain > 2 else []
    d = solver.solve([point(8, 0.1, 100), *above], [TTFT], scanned=looks)
    named = [r.settings for r in d.explanation.reasons if r.cause in (Cause.SCANNED, Cause.NOT_JUDGED)]
    assert [(9,), (10,)][: len(looks)] == named
    assert 8 == d.load
    told = [int(text.partition(" ")[0].removeprefix("c=")) for text in why_not_more(d)]
    assert (9, sorted(told)) == (told[0], told)
    unlooked = solver.solve([point(8, 0.1, 100), *above], [TTFT], scanned=looks[1:])
    told = [text.partition(" ")[0] for text in why_not_more(unlooked)]
    assert told == sorted(told)


def test_of_two_broken_limits_every_output_names_the_one_that_is_broken_most():
    few = {"need": 900, "n": 40}
    both = {"p99_ttft": estimate(0.51, 0.1, INF, **few), "p99_tpot": estimate(0.06, 0.01, INF, **few)}
    p = dataclasses.replace(point(16, 0.1), metrics=both)
    for limits in ([TTFT, TPOT], [TPOT, TTFT]):
        for judged in (True, False):
            known, looks = [point(8, 0.1, 100)], [p]
            d = solver.solve([*known, *looks] if judged else known, limits, scanned=[] if judged else looks)
            (why,) = (r for r in d.explanation.settings if r.settings == (16,))
            view = series_view([p], Frontier("d", p.shape, ("output_throughput", "p99_e2e"), (), ()), d, limits)
            (setting,) = view.settings
            assert ("p99_tpot", "p99_tpot") == (why.metric, setting.broken)
            assert TPOT.of.label in setting.words
            assert TTFT.of.label not in setting.words


def test_a_row_gives_the_reason_that_the_answer_gives():
    over = estimate(0.6, 0.45, INF, n=300, need=900)
    busy = Flag("client_bound", "event loop late (p99) 7.21 ms", "5.00 ms", "run it on an idle core", fatal=False)
    few = Reason(Cause.TOO_FEW, (Concurrency(16),), "p99_ttft", over, TTFT, Verdict.UNPROVEN, need=900)
    assert ("at least 450 ms" in sentence(few), "no bound" in sentence(few)) == (True, False)
    assert TTFT.of.label in reason_words(few)
    stale = dataclasses.replace(few, cause=Cause.STALE)
    assert ("changed since" in reason_words(stale), TTFT.of.label in reason_words(stale)) == (True, False)
    inside = dataclasses.replace(few, estimate=estimate(0.4, 0.3, 0.6), flags=(busy,))
    ended = dataclasses.replace(inside, cut=EndedEarly("given_up"))
    assert [False, True] == [flag_kind("client_bound") in reason_words(each) for each in (inside, ended)]
    beyond = dataclasses.replace(ended, estimate=over)
    assert flag_kind("client_bound") in reason_words(beyond), "it may be why the value is over its limit"
    assert all(flag_kind("client_bound") in sentence(each) for each in (ended, beyond))


@pytest.mark.parametrize("fatal", [True, False])
def test_a_busy_client_that_only_widened_bounds_spoilt_no_other_setting(fatal):
    busy = Flag("client_bound", "event loop late (p99) 7.21 ms", "5.00 ms", "run it on an idle core", fatal=fatal)
    few = {"need": 1000, "n": 300}
    points = [point(c, estimate(0.3 + c / 100, 0.1, INF, **few), 100.0 * c) for c in (1, 2, 4)]
    points.append(point(8, (0.4, 0.6, 0.7), 800, flags=(busy,)))
    d = solver.solve(points, [TTFT])
    assert d.load is None
    assert d.next_step.load != 8
    assert fatal == (flag_kind("client_bound") in next_step_lines(d)[0])


def test_of_two_better_settings_the_one_that_can_be_decided_is_the_next_step():
    too_close = point(96, estimate(0.4999, 0.3, 0.9), 900)
    d = solver.solve([point(8, 0.1, 100), point(64, (0.3, 0.4, 0.51), 500), too_close], [TTFT])
    assert (64, 3631) == (d.next_step.load, d.next_step.requests)
    alone = solver.solve([point(8, 0.1, 100), too_close], [TTFT])
    assert (96, None) == (alone.next_step.load, alone.next_step.requests)


@pytest.mark.parametrize("high", [0.51, 0.9], ids=["a number decides", "no number does"])
def test_a_busy_client_that_widened_a_bound_is_named_as_the_cause_with_what_to_do(high):
    busy = Flag("client_bound", "event loop late (p99) 7.21 ms", "5.00 ms", "run it on an idle core", fatal=False)
    value = 0.4 if high < 0.6 else 0.4999
    points = [point(8, 0.1, 100), point(64, (0.3, value, high), 500, flags=(busy,))]
    d = solver.solve(points, [TTFT])
    assert (64, (busy,)) == (d.next_step.load, d.next_step.widened)
    again = SweepAgain(
        load_config(SWEEP, "x.yaml"), "frontier sweep x.yaml -o runs/x", TrialTimes(), Amount(), "runs/x-2"
    )
    words, command = next_step_lines(dataclasses.replace(d, next_step=with_command(d, again)))
    assert f"-o runs/{'x' if high < 0.6 else 'x-2'} --prove 64" in command
    assert_golden_row("answers", f"{words}\n{sentence(d.explanation.settings[-1])}")
    few = dataclasses.replace(points[1], metrics=point(64, estimate(0.2, 0.1, INF, n=300), 500).metrics)
    alike = with_causes(
        solver.solve([points[0], few], [TTFT]),
        {8: points[0], 64: few},
        "output_throughput",
        cuts={64: EndedEarly("given_up")},
    )
    assert (None, (busy,)) == (alike.next_step.requests, alike.next_step.widened), "its requests are too much alike"
    assert busy.measured in sentence(of_setting(alike, 64))
    calm = solver.solve([points[0], point(64, (0.3, value, high), 500)], [TTFT])
    assert () == calm.next_step.widened


@pytest.mark.parametrize("scanned", [False, True])
def test_where_a_busy_client_excluded_half_of_the_settings_the_answer_is_the_cause_and_the_sweep_anew(scanned):
    late = Flag("client_bound", "event loop late (p99) 72.1 ms", "5.00 ms", "run it on an idle core")
    held = Flag("buffered_stream", "3%", "1%", "turn buffering off")
    undecided, spoilt = point(8, (0.3, 0.4, 0.51), 100), [point(c, 0.2, 10 * c, flags=(late, held)) for c in (16, 64)]
    points, seen = ([undecided], spoilt) if scanned else ([undecided, *spoilt], [])
    d = solver.solve(points, [TTFT], scanned=seen)
    again = SweepAgain(
        load_config(SWEEP, "x.yaml"), "frontier sweep x.yaml -o runs/x", TrialTimes(), Amount(), "runs/x-2"
    )
    answer = answer_view(dataclasses.replace(d, next_step=with_command(d, again)))
    assert late.measured in answer.headline
    assert "frontier sweep x.yaml -o runs/x-2" == answer.step[1], "not one setting alone: none was measured well"
    assert ((), (), 1) == (answer.figures, answer.lines, len(answer.step[0].splitlines()))
    assert_golden_row("answers", f"{answer.headline}\n{answer.step[0]}", "scanned" if scanned else "")
    others = [point(c, 0.2, 10 * c) for c in (1, 2)]
    over = [point(c, 0.9, 10 * c, flags=(late, held)) for c in (16, 64)]  # by values that mean nothing
    said = [
        next_step_lines(solver.solve(each, [TTFT]))[0] for each in ([*others, *over], [*others, point(4, 0.9), *over])
    ]
    assert ["c=16, 64" in said[0], said[1]] == [True, ""], "below a violation they could be better"
    for whole in (
        solver.solve([*others, *points], [TTFT]),
        solver.solve([undecided, point(64, 0.9, flags=())], [TTFT]),
    ):
        assert () == spoilt_settings(whole), "an answer, or no busy client"


@pytest.mark.parametrize("throughput", [99.9, 99, 60])
def test_a_setting_over_its_limit_and_no_faster_is_not_said_to_need_requests(throughput):
    over = point(64, estimate(0.55, 0.4, 0.7), throughput)
    d = solver.solve([point(8, 0.1, 100), over], [TTFT])
    said = sentence(of_setting(d, 64))
    assert (8, True, False) == (d.load, "550 ms" in said, "would decide" in said)
    faster = solver.solve([point(8, 0.1, 100), point(64, estimate(0.55, 0.4, 0.7), 130)], [TTFT])
    assert "would decide" in sentence(of_setting(faster, 64))
    assert_golden_row("answers", said)


def test_a_step_that_would_not_be_worth_its_tail_is_no_next_step():
    few = point(64, estimate(0.4, 0.1, INF, n=300, need=1000), 112)  # 12% more for four times the tail
    assert solver.solve([point(8, 0.1, 100), few], [TTFT]).next_step is None
    assert 64 == solver.solve([point(8, 0.1, 100), few], [TTFT], marginal_gain=False).next_step.load


def test_a_lower_setting_that_is_preferred_and_not_proven_is_named_with_what_it_gives_and_costs():
    lower, chosen = point(64, estimate(0.2, 0.1, INF, n=300, need=1000), 940), point(128, 0.4, 1000)
    d = solver.solve([lower, chosen], [TTFT])
    step = d.next_step
    assert (128, 64, 1000) == (d.load, step.load, step.requests)
    assert (-0.06, ("p99_ttft", 0.5)) == (pytest.approx(step.gain), (step.tail[0], pytest.approx(step.tail[1])))
    assert 64 == solver.solve([chosen], [TTFT], scanned=[lower]).next_step.load
    assert 64 == solver.solve([point(64, 0.2, 940), chosen], [TTFT]).load, "proven, it is the answer"
    command = "frontier sweep x.yaml -o runs/x"
    again = SweepAgain(load_config(SWEEP, "x.yaml"), command, TrialTimes(), Amount(), "runs/x-2")
    words, command = next_step_lines(dataclasses.replace(d, next_step=with_command(d, again)))
    assert "--prove 64" in command
    assert_golden_row("answers", f"{headline(d)}\n{words}")
    for other in (point(64, 0.2, 900), point(64, 0.396, 990)):  # worth its tail; hardly preferred
        few = dataclasses.replace(
            other, metrics=other.metrics | {"p99_ttft": estimate(other.value("p99_ttft"), 0.1, INF, n=300, need=1000)}
        )
        assert solver.solve([few, chosen], [TTFT]).next_step is None
    assert solver.solve([lower, chosen], [TTFT], marginal_gain=False).next_step is None


def test_without_an_answer_the_next_step_is_the_candidate():
    few = [point(c, estimate(0.1 * c, 0.05, INF, n=300, need=1000)) for c in (1, 2, 4, 8)]
    d = solver.solve(few, [TTFT])
    assert (d.candidate, 1000, None) == (d.next_step.load, d.next_step.requests, d.next_step.gain)
    broken = solver.solve([point(8, 0.1, flags=WAVES), point(16, 0.2, flags=WAVES)], [TTFT])
    assert (Verdict.INVALID, 16) == (broken.verdict, broken.next_step.load)
    assert solver.solve([point(1, 0.9)], [TTFT]).next_step is None


def test_without_an_answer_what_is_shown_is_of_the_setting_that_is_recommended():
    too_close, few = point(96, estimate(0.4999, 0.3, 0.9), 900), point(64, (0.3, 0.4, 0.51), 500)
    d = solver.solve([few, too_close], [TTFT])
    assert (None, Verdict.MARGINAL, 64, 64) == (d.load, d.verdict, d.candidate, d.next_step.load)
    assert (few.metrics, TTFT.metric) == (d.metrics, d.binding)
    assert [(64,)] == [reason.settings for reason in d.explanation.reasons]
    looked = solver.solve([too_close], [TTFT], scanned=[few])
    assert (Verdict.UNPROVEN, 64, few.metrics) == (looked.verdict, looked.candidate, looked.metrics)
    values = solver.solve([point(96, 0.6)], [TTFT], scanned=[few], point_estimates=True)
    assert (64, None) == (values.candidate, values.next_step)
    flagged = solver.solve([few, point(96, 0.2, 900, flags=WAVES)], [TTFT])
    assert (64, 64) == (flagged.candidate, flagged.next_step.load), "what counts comes before what does not"


@pytest.mark.parametrize("p95", [0.3, 0.4, 0.46, 0.499, 0.4999])
@pytest.mark.parametrize("need", [None, 1000])
def test_a_percentile_needs_no_fewer_requests_than_a_lower_one_inside_the_same_limit(p95, need):
    """Who proves the p99 to be inside has proven the p95. Bounds of two confidences are compared at
    one.
    """
    z = NormalDist().inv_cdf

    def latency(value, confidence, need=None):
        reach = 0.1 * z(confidence) / z(0.95)
        upper = INF if need else value + reach
        return Estimate(value, value - 0.1, upper, 600, value - reach, upper, need, confidence)

    lower, higher = Limit("p95_ttft", 0.5), Limit("p99_ttft", 0.5)
    for asked, sure_ in ((0.95, 0.95), (0.9875, 0.95)):  # a limited metric has the bounds of its proof
        easy = point(8, latency(0.4999, sure_, need), p95_ttft=latency(p95, asked))
        hard = point(8, latency(0.4999, asked, need), p95_ttft=latency(p95, sure_))
        less, more = judge(easy, [lower]), judge(hard, [higher])
        if less.verdict is Verdict.MARGINAL:
            assert more.need is None or (less.need is not None and less.need <= more.need + 1)
    over = point(8, estimate(0.6, 0.4, 0.7, 600), p95_ttft=estimate(0.49, 0.3, 0.6, 600))
    assert judge(over, [higher]).need is not None, "a p95 within its limit does not keep a p99 from violating it"


def test_there_is_one_number_of_requests_that_would_decide():
    few = point(
        32, estimate(0.2, 0.1, INF, n=300, need=1641), 900, p99_tpot=estimate(0.02, 0.01, INF, n=300, need=1300)
    )
    d = solver.solve([point(8, 0.1, 100, p99_tpot=0.01), few], [TTFT, TPOT])
    needs = {
        next(j.need for j in d.judgements if j.load == 32),
        of_setting(d, 32).need,
        reason(d, Cause.TOO_FEW).need,
        d.next_step.requests,
    }
    assert {1641} == needs
    assert {True} == {"1,700 requests" in note for note in with_notes(d).notes if "would decide" in note}


def test_a_limit_that_nothing_reasonable_decides_leaves_no_number():
    both = point(32, estimate(0.2, 0.1, INF, n=1000, need=1641), 900, p99_tpot=estimate(0.02999999, 0.01, 0.9))
    assert judge(both, [TTFT, TPOT]).need is None


def test_what_is_known_of_how_a_point_was_measured_is_said_with_it():
    remedy = "restarts were delayed by up to one decode step, so that requests do not come in waves"
    chosen = dataclasses.replace(point(8, 0.1), notes=(remedy,))
    d = solver.solve([chosen, point(16, 0.9)], [TTFT])
    assert f"c=8: {remedy}" == with_notes(d).notes[-1]


@pytest.mark.parametrize(
    ("low_trials", "high_trials", "chosen", "unconfirmed"),
    [(1, 3, 32, (4,)), (1, 12, 32, (4,)), (2, 12, 1, ()), (1, 2, 1, ()), (3, 3, 1, ())],
)
def test_one_disturbed_trial_below_a_proven_setting_does_not_take_the_answer_back(
    low_trials, high_trials, chosen, unconfirmed
):
    points = [
        point(1, 0.1),
        dataclasses.replace(point(4, (0.6, 0.9, 1.2)), repeats=low_trials),
        dataclasses.replace(point(32, (0.2, 0.3, 0.4)), repeats=high_trials),
        point(64, 0.9),
    ]
    decision = solver.solve(points, [TTFT])
    assert (chosen, unconfirmed) == (decision.load, decision.unconfirmed)
    assert (64 if unconfirmed else 4) == decision.first_fail
    (folds,) = (r for r in decision.explanation.reasons if r.cause in (Cause.UNCONFIRMED, Cause.NON_MONOTONE))
    assert (Cause.UNCONFIRMED if unconfirmed else Cause.NON_MONOTONE) is folds.cause
    assert_golden_row("answers", sentence(folds))


def test_no_setting_is_said_to_fail_that_was_only_scanned():
    outside = point(64, 0.9)
    assert Verdict.VIOLATES is solver.solve([outside], [TTFT]).verdict
    assert Verdict.VIOLATES is solver.solve([outside], [TTFT], scanned=[point(128, 0.1)]).verdict
    d = solver.solve([outside], [TTFT], scanned=[point(32, 0.1, flags=BROKEN)])
    assert (Verdict.UNPROVEN, None, 64, 64) == (d.verdict, d.load, d.candidate, d.first_fail)
    assert code(d) == 4


def test_the_nearest_to_an_answer_is_a_scanned_setting_inside_the_limits_before_one_that_violates():
    """On an H200 c=23 was inside in a quick look, and the headline named c=32, which was over."""
    scanned = [point(16, 0.05), point(23, 0.08), point(28, 0.7)]
    d = solver.solve([point(32, 0.9)], [TTFT], scanned=scanned)
    assert (Verdict.UNPROVEN, None, 23, 32) == (d.verdict, d.load, d.candidate, d.first_fail)
    assert d.metrics == scanned[1].metrics


def test_a_series_of_which_all_was_only_scanned_is_decided_too():
    """A sweep that its budget ended so early has proven nothing: that is no yes, and no silence."""
    inside, outside = point(8, 0.1), point(16, 0.9)
    (d,) = solver.solve_all([], [TTFT], scanned=[inside, outside])
    assert (Verdict.UNPROVEN, None, 8, inside.metrics) == (d.verdict, d.load, d.candidate, d.metrics)
    both = solver.solve_all([point(8, 0.1, deployment="other")], [TTFT], scanned=[inside])
    assert ([8, None], ExitCode.NOT_PROVEN) == ([d.load for d in both], solver.exit_code(both))
    d = solver.solve([], [TTFT], scanned=[outside])
    assert (Verdict.UNPROVEN, 16) == (d.verdict, d.candidate)
    d = solver.solve([], [TTFT], scanned=[point(8, 0.1, flags=BROKEN)])
    assert (Verdict.INVALID, None) == (d.verdict, d.candidate)


def test_a_candidate_is_given_up_for_the_limit_that_its_value_breaks():
    """Of the other limit, whose value is far inside, too few requests are known."""
    few = dataclasses.replace(estimate(0.021, 0.02, math.inf), need=5000)
    here = point(8, few, p99_tpot=Estimate(0.0303, 0.029, 0.032, 3000, 0.029, 0.032))
    verdict, reason = proof._standing(here, (TTFT, TPOT), 0.01, 3, 3000, look=True)
    assert (Verdict.VIOLATES, "p99 TPOT") == (verdict, reason[:8])
