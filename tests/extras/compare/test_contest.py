"""Two frontiers: which is better, by what is proven or by the settings that both measured, and by
how much.
"""

import dataclasses
import math
from types import SimpleNamespace

import pytest

from frontier.core.estimates import estimate
from frontier.core.model.decisions import Decision, Limit, Verdict
from frontier.core.model.errors import ExitCode, exit_code
from frontier.core.model.loads import Concurrency
from frontier.core.model.points import Estimate, Flag, Point
from frontier.extras.compare.comparison_tables import comparison_views, no_characters
from frontier.extras.compare.comparison_text import comparisons_text
from frontier.extras.compare.contest import CompareRules, Contest, Side, best_of, compare, overall
from frontier.extras.compare.rivals import comparison_notes
from frontier.show.verbosity import Detail
from tests.kit.golden import assert_golden_row
from tests.kit.made import SHAPE, Server, trial

OBJECTIVES = ("output_throughput", "p99_e2e")
GRID = (1, 2, 4, 8, 16, 32, 64)
LIMIT = Limit("p99_e2e", 20.0)
LOCKSTEP = (Flag("lockstep", "", "", ""),)


def about(value, sd=0.0, n=1000):
    """A value whose interval is of a standard error of `sd` (of ln); without one for None."""
    if sd is None:
        return Estimate.without_interval(value, n)
    return Estimate(value, value * math.exp(-1.96 * sd), value * math.exp(1.96 * sd), n)


def point(c, throughput, latency, deployment="a", shape=SHAPE, flags=(), sd=0.0):
    values = {"output_throughput": throughput, "p99_e2e": latency}
    return Point(deployment, shape, c, {k: about(v, sd) for k, v in values.items()}, 1000, flags=flags)


def decided(points, c, verdict=Verdict.MEETS, *, last=None, fail=0):
    """What is decided of these points: `c` is the operating point, `last` the highest that meets,
    and the next concurrency violates, or `fail`.
    """
    metrics = next((p.metrics for p in points if p.load == c), {})
    bracket = {"last_pass": last or c, "first_fail": (last or c or 0) + 1 if fail == 0 else fail}
    load = None if c is None else Concurrency(c)
    return Decision(points[0].deployment, SHAPE, (LIMIT,), verdict, load, None, metrics, (), **bracket)


def measured(speed, seed, n=1000, grid=GRID):
    server = Server(lambda c: 0.005 * c / speed, lambda c: 0.01 * (1 + c / 64) / speed, seed=seed)
    samples = {c: server.run(trial(c, requests=n)) for c in grid}
    return [estimate.point(s) for s in samples.values()], samples


def compared(a, b, objectives=OBJECTIVES, *, samples=({}, {}), gpus=(None, None), decisions=(None, None), **rules):
    sides = tuple(
        Side(name, points, decision, number, windows)
        for name, points, decision, number, windows in zip("AB", (a, b), decisions, gpus, samples, strict=True)
    )
    return compare(Contest(sides, CompareRules(objectives, **rules)))


def characters(found):
    return tuple(side.characters_per_token for side in found.contest.sides)


def both(speed, n=1000, **more):
    (a, a_samples), (b, b_samples) = measured(1.0, 1, n), measured(speed, 2, n)
    return compared(a, b, samples=(a_samples, b_samples), **more)


def ratios(found):
    return {d.metric: d.ratio.value for d in found.differences}


# --- within the SLA


def test_the_throughput_of_both_operating_points_is_compared():
    a, b = ([point(c, x * c, 1.0, sd=0.01) for c in (8, 16, 32)] for x in (100, 110))
    found = compared(a, b, decisions=(decided(a, 8), decided(b, 32)))
    inside = found.inside_sla
    assert ("better", ((8, 32),)) == (found.verdict, inside.settings)
    assert inside is found.deciding
    assert (800, 3520, 4.4) == pytest.approx((inside.a, inside.b, inside.ratio.value))
    half = math.exp(1.96 * 0.01 * math.sqrt(2))
    assert (4.4 / half, 4.4 * half) == pytest.approx((inside.ratio.low, inside.ratio.high), rel=1e-4)
    assert "worse" == compared(b, a, decisions=(decided(b, 32), decided(a, 8))).verdict


def test_operating_points_that_are_within_their_intervals_are_not_resolved():
    a, b = ([point(64, x, 1.0, sd=0.02)] for x in (1000, 1050))
    decisions = decided(a, 64), decided(b, 64)
    assert "not resolved" == compared(a, b, decisions=decisions).verdict
    assert "no worse" == compared(a, b, decisions=decisions, within=0.05).verdict


@pytest.mark.parametrize(
    ("last", "fail", "inside"),
    [
        (4, 5, "worse"),  # 100 tok/s a stream: 500 at the most
        (4, 8, "not resolved"),  # 800 at the most
        (4, None, "not resolved"),  # nothing shows where its limit is
        (6, 8, "not resolved"),  # a step that was not worth it gave 600, and 800 might be
    ],
)
def test_what_the_steps_between_settings_leave_open_is_no_difference(last, fail, inside):
    a, b = [point(8, 790, 1.0)], [point(c, x, 1.0) for c, x in ((4, 400), (6, 600), (8, 700))]
    sides = decided(a, 8), decided(b, 4, last=last, fail=fail)
    found, back = compared(a, b, decisions=sides), compared(b, a, decisions=sides[::-1])
    assert inside == found.inside_sla.verdict
    assert {"worse": "better"}.get(inside, inside) == back.inside_sla.verdict
    assert ("worse", "better") == (found.verdict, back.verdict)
    if inside == "not resolved":  # then the same concurrency decides: 790 against 700 tok/s
        assert ((8, 8),) == found.deciding.settings


def test_a_better_server_of_which_less_is_proven_is_not_resolved():
    """B is faster at each load, and nothing of it is proven above c=4."""
    a, b = ([point(c, x * c, 1.0) for c in (4, 16)] for x in (100, 130))
    found = compared(a, b, decisions=(decided(a, 16), decided(b, 4, fail=32)))
    assert ["not resolved", "better", "not resolved"] == [d.verdict for d in found.differences]
    assert "not resolved" == found.verdict


@pytest.mark.parametrize(
    ("verdict", "at", "answers"),
    [
        (Verdict.VIOLATES, 8, ("better", "worse")),
        (Verdict.VIOLATES, 16, ("not resolved",) * 2),  # nothing of it was measured at so little load
        (Verdict.UNPROVEN, 8, ("not resolved",) * 2),
        (None, 8, ("not resolved",) * 2),
    ],
)
def test_of_which_nothing_keeps_the_sla_is_worse_than_one_that_is_proven(verdict, at, answers):
    a, b = [point(at, 900, 30.0)], [point(8, 800, 10.0)]
    none, some = None if verdict is None else decided(a, None, verdict), decided(b, 8)
    forth, back = compared(a, b, decisions=(none, some)), compared(b, a, decisions=(some, none))
    assert answers == (forth.verdict, back.verdict)
    assert forth.inside_sla is None


def test_the_objective_that_is_better_high_is_compared_whichever_comes_first():
    a, b = ([point(8, x, 1.0)] for x in (1000, 2000))
    turned = ("p99_e2e", "output_throughput")
    found = compared(a, b, turned, decisions=(decided(a, 8), decided(b, 8)))
    assert ("output_throughput", 2.0) == (found.inside_sla.metric, found.inside_sla.ratio.value)
    assert "better" == found.verdict


# --- the same settings


def test_a_server_fifteen_percent_faster_is_better_and_the_other_way_round_worse():
    better, worse = both(1.15), both(1 / 1.15)
    assert ("better", "worse") == (better.verdict, worse.verdict)
    assert {"output_throughput": 1.15, "p99_e2e": 1 / 1.15} == pytest.approx(ratios(better), rel=0.02)
    for difference in better.differences:
        assert tuple((c, c) for c in GRID) == difference.settings
        assert difference.ratio.low < difference.ratio.value < difference.ratio.high
    assert (ExitCode.YES, ExitCode.NO) == (exit_code([better.verdict]), exit_code([worse.verdict, better.verdict]))


def test_the_same_server_twice_is_not_resolved():
    same = both(1.0)
    assert "not resolved" == same.verdict
    assert ExitCode.NOT_PROVEN == exit_code([same.verdict])


def test_more_throughput_for_a_longer_tail_is_not_resolved():
    a, b = [point(8, 100, 1.0)], [point(8, 200, 2.0)]
    assert ["better", "worse"] == [d.verdict for d in compared(a, b).differences]
    assert "not resolved" == compared(a, b).verdict


def test_a_loss_within_the_margin_is_no_worse_and_beyond_it_still_worse():
    assert "worse" == both(1 / 1.15, within=0.02).verdict
    allowed = both(1 / 1.15, within=0.4)
    assert ("no worse", ExitCode.YES) == (allowed.verdict, exit_code([allowed.verdict]))
    assert "no worse" == both(1.0, within=0.2).verdict
    assert "better" == both(1.15, within=0.2).verdict
    unknown = compared([point(1, 100, 1.0, sd=None)], [point(1, 99, 1.0, sd=None)], within=0.5)
    assert "not resolved" == unknown.verdict  # without intervals nothing is proven, however wide the margin


def test_without_intervals_nothing_is_resolved():
    found = compared([point(1, 100, 1.0, sd=None)], [point(1, 900, 0.1, sd=None)])
    assert "not resolved" == found.verdict
    assert {(-math.inf, math.inf)} == {(d.ratio.low, d.ratio.high) for d in found.differences}
    assert any("No confidence interval" in note for note in comparison_notes(found))


def test_a_side_of_which_nothing_is_decided_is_open_and_does_not_miss_the_sla():
    a, b = ([point(8, x, 1.0)] for x in (100, 150))
    best = best_of(compared(a, b, decisions=(decided(a, 8), None)).contest)
    assert (("B",), ()) == (best.open, best.others)


@pytest.mark.parametrize("gpus", [(2, 2), (2, 4)])
def test_all_rates_of_a_comparison_are_per_gpu_or_none_is(gpus):
    a, b = ([point(c, x * c, 1.0, sd=0.01) for c in (8, 16)] for x in (100, 150))
    found = compared(a, b, gpus=gpus, decisions=(decided(a, 8), decided(b, 16)))
    text = comparisons_text(comparison_views([found]), detail=Detail.ALL, width=200)
    assert text.count("tok/s") == text.count("tok/s/GPU") > 4


def test_a_metric_without_an_interval_does_not_take_back_a_verdict_of_the_others():
    a, b = ([Point("a", SHAPE, 1, {"output_throughput": about(x), "p99_e2e": about(1.0, None)}, 1000)] for x in (1, 2))
    found = compared(a, b)
    assert ("better", [True, False]) == (found.verdict, [d.ratio.has_interval for d in found.differences])
    assert not any("resolved" in note for note in comparison_notes(found))


def test_settings_without_an_interval_are_left_to_those_that_have_one():
    a, b = ([point(1, x, 1.0), point(2, 2 * x, 2.0, sd=None)] for x in (100, 150))
    found = compared(a, b)
    assert {((1, 1),)} == {d.settings for d in found.differences}
    assert "better" == found.verdict


def test_a_setting_that_only_one_side_spoils_does_not_make_it_better():
    a, b = ([point(c, x * c, 1.0) for c in (1, 4)] for x in (100, 150))
    less, spoilt = ([side[0], dataclasses.replace(side[1], flags=LOCKSTEP)] for side in (a, b))
    answers = [compared(*sides).verdict for sides in ((a, b), (a, spoilt), (spoilt, a), (b, less))]
    assert ["better", "not resolved", "not resolved", "worse"] == answers
    found = compared(a, spoilt)
    assert ((), (4,)) == found.lost
    assert any("c=4" in note for note in comparison_notes(found))


def test_with_no_setting_in_common_nothing_is_resolved_and_without_a_usable_point_it_is_invalid():
    a, b = [point(1, 100, 1.0)], [point(2, 180, 2.0)]
    apart = compared(a, b)
    assert ("not resolved", ()) == (apart.verdict, apart.differences)
    gone = compared(a, [point(1, 100, 1.0, flags=LOCKSTEP)])
    assert "invalid" == gone.verdict
    assert_golden_row("pages", comparisons_text(comparison_views([apart, gone]), width=100))
    assert ("invalid", ExitCode.FAILED) == (overall([apart.verdict, gone.verdict]), exit_code([gone.verdict]))
    assert "not resolved" == overall([both(1.15).verdict, apart.verdict])


# --- GPUs


def replicas(number, points):
    """`number` copies of a deployment behind a balancer: every rate and concurrency times that,
    latencies the same.
    """
    return [
        dataclasses.replace(
            p,
            load=p.load * number,
            metrics={n: (e.scaled(number) if n.endswith("throughput") else e) for n, e in p.metrics.items()},
        )
        for p in points
    ]


def test_per_gpu_eight_replicas_are_what_one_is():
    one = measured(1.0, 1)[0]
    eight = replicas(8, one)
    found, whole = compared(one, eight, gpus=(1, 8)), compared(one, eight)
    assert (True, False) == (found.contest.per_gpu, whole.contest.per_gpu)
    assert {"output_throughput": 1.0, "p99_e2e": 1.0} == pytest.approx(ratios(found))
    assert {tuple((c, 8 * c) for c in GRID)} == {d.settings for d in found.differences}
    assert ratios(whole)["output_throughput"] > 1.2


def test_per_gpu_an_operating_point_counts_its_share():
    a, b = [point(8, 800, 1.0)], [point(64, 3200, 1.0)]
    found = compared(a, b, gpus=(1, 8), decisions=(decided(a, 8), decided(b, 64)))
    inside = found.inside_sla
    assert (800, 400) == pytest.approx((inside.a, inside.b))
    assert "worse" == found.verdict


@pytest.mark.parametrize("gpus", [(8, None), (None, 8), (None, None), (8, 8)])
def test_rates_stay_whole_where_a_number_of_gpus_is_not_known_or_the_same(gpus):
    a, b = [point(1, 100, 1.0), point(2, 180, 2.0)], [point(1, 110, 0.9), point(2, 200, 2.1)]
    found = compared(a, b, gpus=gpus)
    whole = compared(a, b)
    assert not found.contest.per_gpu
    assert (whole.verdict, whole.differences) == (found.verdict, found.differences)


def test_what_is_no_rate_is_not_divided():
    found = compared([point(1, 1, 1.0)], [point(1, 1, 1.0)], ("p99_e2e", "p99_e2e"), gpus=(1, 8))
    assert not found.contest.per_gpu


# --- axes


def test_a_measurement_where_faster_users_are_better_is_compared_the_other_way_round():
    def served(c, throughput, speed, name):
        values = {"output_throughput": throughput, "p50_interactivity": speed}
        return Point(name, SHAPE, c, {k: Estimate(v, v, v, 9) for k, v in values.items()}, 9)

    a = [served(1, 100, 90, "a"), served(8, 500, 50, "a")]
    b = [served(1, 100, 95, "b"), served(8, 600, 55, "b")]
    found = compared(a, b, ("output_throughput", "p50_interactivity"))
    assert "better" == found.verdict


# --- tokens of other lengths


def longer_tokens(samples, characters):
    return {
        c: dataclasses.replace(s, text_chars=(s.completion_tokens * characters).astype(int)) for c, s in samples.items()
    }


def test_tokens_of_other_lengths_are_told_with_the_ratio_in_characters():
    points, samples = measured(1.0, 1, 300)
    same = compared(points, points, samples=(samples, samples))
    assert (5.0, 5.0) == characters(same)

    pair = samples, longer_tokens(samples, 4)
    other = compared(points, points, samples=pair)
    assert (5.0, 4.0) == characters(other)
    (told,) = set(comparison_notes(other)) - set(comparison_notes(same))
    assert_golden_row("answers", told)
    assert told in " ".join(comparisons_text(comparison_views([other]), width=100).split())
    requests = compared(points, points, ("request_throughput", "p99_e2e"), samples=pair)
    (of_requests,) = set(comparison_notes(requests)) - set(comparison_notes(same))
    assert_golden_row("answers", of_requests, "requests")  # no ratio of tokens, none in characters


def test_without_requests_the_lengths_of_tokens_are_not_known():
    points, samples = measured(1.0, 1, 300)
    empty = longer_tokens(samples, 0)
    assert (5.0, None) == characters(compared(points, points, samples=(samples, {})))
    assert (None, 5.0) == characters(compared(points, points, samples=(empty, samples)))


def test_of_other_models_it_is_told_that_nothing_shows_how_long_tokens_are():
    def run(path, model):
        return SimpleNamespace(path=path, config=SimpleNamespace(deployments=[SimpleNamespace(name="d", model=model)]))

    points, samples = measured(1.0, 1, 300)
    told = no_characters(compared(points, points, samples=(samples, {})), run("x", "llama"), run("y", "qwen"))
    (without,) = told
    assert_golden_row("answers", without)
    known = compared(points, points, samples=(samples, samples))
    assert [] == no_characters(known, run("x", "llama"), run("y", "qwen"))
    assert [] == no_characters(compared(points, points), run("x", "llama"), run("y", "llama"))
