import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest

from frontier.decide import compare, pareto
from frontier.errors import ExitCode, exit_code
from frontier.model import Estimate, Flag, Point, Shape
from frontier.report.comparison import comparison_table, no_characters
from frontier.stats import estimate
from tests.golden import assert_golden_row
from tests.stats.made import SHAPE, Server, trial

OBJECTIVES = ("output_throughput", "p99_e2e")
GRID = (1, 2, 4, 8, 16, 32, 64)


def point(c, throughput, latency, deployment="a", shape=SHAPE, flags=()):
    values = {"output_throughput": throughput, "p99_e2e": latency}
    return Point(deployment, shape, c, {k: Estimate(v, v, v, 1000) for k, v in values.items()}, 1000, flags=flags)


def measured(speed, seed, n=1000, grid=GRID):
    server = Server(lambda c: 0.005 * c / speed, lambda c: 0.01 * (1 + c / 64) / speed, seed=seed)
    samples = {c: server.run(trial(c, requests=n)) for c in grid}
    return [estimate.point(s) for s in samples.values()], samples


def side(points, samples=None, gpus=None):
    series = points[0].series if points else None
    return compare.Side(points, {series: samples or {}}, {series.deployment: gpus} if series else {})


def compared(a, b, objectives=OBJECTIVES, *, a_samples=None, b_samples=None, gpus=(None, None), **rules):
    return compare.compare(side(a, a_samples, gpus[0]), side(b, b_samples, gpus[1]), compare.Rules(objectives, **rules))


def all_compared(a, b):
    return compare.compare_all(compare.Side(a), compare.Side(b), compare.Rules(OBJECTIVES))


def both(speed, n=1000, **more):
    a, a_samples = measured(1.0, 1, n)
    b, b_samples = measured(speed, 2, n)
    return compared(a, b, a_samples=a_samples, b_samples=b_samples, draws=200, **more)


def test_a_server_fifteen_percent_faster_is_better_and_the_other_way_round_worse():
    better, worse = both(1.15, reference=20.0), both(1 / 1.15, reference=20.0)
    assert ("better", "worse") == (better.verdict, worse.verdict)
    assert better.ratio.low <= better.ratio.value <= better.ratio.high
    assert 1.1 < better.ratio.value < 1.35
    assert (ExitCode.YES, ExitCode.NO) == (
        exit_code(c.verdict for c in [better]),
        exit_code(c.verdict for c in [worse, better]),
    )


def test_the_same_server_twice_is_not_resolved():
    same = both(1.0, reference=2.0)
    assert "not resolved" == same.verdict
    assert ExitCode.NOT_PROVEN == exit_code([same.verdict])


def test_the_ratio_is_of_the_areas_up_to_the_reference():
    a = [point(1, 100, 1.0), point(2, 180, 2.0)]
    b = [point(1, 110, 0.9), point(2, 200, 2.1)]
    found = compared(a, b, reference=3.0)
    area_a, area_b = 100 * 1 + 180 * 1, 110 * 1.2 + 200 * 0.9
    assert area_b / area_a == pytest.approx(found.ratio.value)
    assert area_a == pytest.approx(pareto.hypervolume([100, 180], [1, 2], (0, 3)))


def test_without_the_requests_themselves_there_is_no_interval_and_nothing_is_resolved():
    found = compared([point(1, 100, 1.0)], [point(1, 900, 0.1)], reference=3.0)
    assert ("not resolved", -math.inf, math.inf) == (found.verdict, found.ratio.low, found.ratio.high)
    assert any("No confidence interval" in note for note in found.notes)


def test_the_gain_at_equal_latency_is_bracketed_by_what_was_measured():
    a = [point(1, 100, 1.0), point(2, 180, 2.0), point(4, 300, 4.0)]
    b = [point(1, 150, 1.0), point(2, 260, 2.0), point(4, 330, 4.0)]
    (gain,) = compared(a, b, at=(2.5,)).gains
    assert (260 / 300, 330 / 180) == pytest.approx((gain.low, gain.high))
    assert not gain.resolved
    line_a, line_b = 180 + 120 / 4, 260 + 70 / 4
    assert line_b / line_a == pytest.approx(gain.interpolated.value)
    (beyond,) = compared(a, b, at=(9.0,)).gains
    assert (0.0, math.inf, None) == (beyond.low, beyond.high, beyond.interpolated)
    (before,) = compared(a, b, at=(0.5,)).gains
    assert (0.0, math.inf) == (before.low, before.high)


def test_the_bracket_holds_the_truth_of_a_smooth_law():
    a, a_samples = measured(1.0, 3, 3000)
    b, b_samples = measured(1.2, 4, 3000)
    fine = np.arange(1, 65)

    def throughput(speed, latency):
        """The most that any whole concurrency of this law delivers with its p99 E2E within
        `latency`.
        """
        ttft, tpot = 0.005 * fine / speed, 0.01 * (1 + fine / 64) / speed
        p99 = ttft * math.exp(2.33 * 0.2) + 99 * tpot * 1.08
        return float((fine / (ttft * 1.02 + 99 * tpot))[p99 <= latency].max())

    found = compared(a, b, at=(1.3, 1.6), a_samples=a_samples, b_samples=b_samples, draws=100)
    for gain in found.gains:
        truth = throughput(1.2, gain.at) / throughput(1.0, gain.at)
        assert gain.low * 0.99 <= truth <= gain.high * 1.01
        assert truth == pytest.approx(gain.interpolated.value, rel=0.06)


def test_a_measurement_where_faster_users_are_better_is_compared_the_other_way_round():
    def served(c, throughput, speed, name):
        values = {"output_throughput": throughput, "p50_interactivity": speed}
        return Point(name, SHAPE, c, {k: Estimate(v, v, v, 9) for k, v in values.items()}, 9)

    a = [served(1, 100, 90, "a"), served(8, 500, 50, "a")]
    b = [served(1, 100, 95, "b"), served(8, 600, 55, "b")]
    found = compared(a, b, ("output_throughput", "p50_interactivity"), reference=40.0, at=(52.0,))
    assert (100 * 40 + 600 * 15) / (100 * 40 + 500 * 10) == pytest.approx(found.ratio.value)
    assert (600 / 500, math.inf) == pytest.approx((found.gains[0].low, found.gains[0].high))


def test_only_what_both_sides_reach_takes_part():
    flag = (Flag("lockstep", "", "", ""),)
    a = [point(1, 100, 1.0), point(2, 180, 2.0), point(4, 999, 0.1, flags=flag)]
    b = [point(1, 100, 1.0), point(2, 180, 2.0), point(4, 300, 3.0), point(64, 3000, 3.5)]
    found = compared(a, b, reference=3.5)
    assert any("c=64" in note for note in found.notes)
    apart = compared(a[2:], b)
    assert ("invalid", True) == (apart.verdict, math.isnan(apart.ratio.value))
    assert ("c=4 (invalid: lockstep)",) == apart.absent[0]
    assert_golden_row("answers", "\n".join(apart.notes))


def test_shapes_are_matched_and_deployments_by_name_or_when_there_is_one_each():
    other = Shape.of(8, 8)
    a = [point(1, 100, 1.0, "old"), point(1, 100, 1.0, "old", other)]
    b = [point(1, 100, 1.0, "new"), point(1, 90, 1.0, "new", Shape.of(9, 9))]
    assert [(SHAPE, "old", "new")] == [(c.shape, c.a, c.b) for c in all_compared(a, b)]
    two = [*a, point(1, 100, 1.0, "new")]
    assert [("new", "new")] == [(c.a, c.b) for c in all_compared(two, b)]
    assert ExitCode.FAILED == exit_code(c.verdict for c in all_compared(a, []))


def test_a_loss_within_the_margin_is_no_worse_and_beyond_it_still_worse():
    slower = both(1 / 1.15, reference=20.0)
    assert "worse" == slower.verdict
    assert "worse" == both(1 / 1.15, reference=20.0, within=0.02).verdict
    allowed = both(1 / 1.15, reference=20.0, within=0.4)
    assert ("no worse", ExitCode.YES) == (allowed.verdict, exit_code([allowed.verdict]))
    same = both(1.0, reference=2.0, within=0.2)
    assert "no worse" == same.verdict
    assert "better" == both(1.15, reference=20.0, within=0.2).verdict
    unknown = compared([point(1, 100, 1.0)], [point(1, 99, 1.0)], reference=3.0, within=0.5)
    assert "not resolved" == unknown.verdict  # without the requests nothing is proven, however wide the margin


def test_the_worst_shape_speaks_for_all_and_a_side_without_a_usable_point_is_invalid():
    flag = (Flag("lockstep", "", "", ""),)
    other = Shape.of(8, 8)
    a = [point(1, 100, 1.0), point(1, 100, 1.0, shape=other)]
    b = [point(1, 100, 1.0), point(1, 100, 1.0, shape=other, flags=flag)]
    found = all_compared(a, b)
    assert ["not resolved", "invalid"] == [c.verdict for c in found]
    assert any("usable point" in note for note in found[1].notes)
    assert ("invalid", ExitCode.FAILED) == (compare.overall(found), exit_code(c.verdict for c in found))
    better, worse = both(1.15, reference=20.0), both(1 / 1.15, reference=20.0)
    assert "worse" == compare.overall([better, worse, found[0]])
    assert "not resolved" == compare.overall([better, found[0]])


def test_the_gain_is_read_where_both_sides_measured_beyond():
    a = [point(1, 100, 1.0), point(2, 180, 2.0), point(4, 300, 4.0)]
    b = [point(1, 150, 1.0), point(2, 260, 2.0), point(4, 330, 6.0)]
    assert 3.5 == compared(a, b, reference=3.5).gains[0].at
    (gain,) = compared(a, b, reference=99.0).gains
    assert 3.0 == gain.at  # the middle of the last step of the side that ends first
    assert 0 < gain.low < gain.high < math.inf


def replicas(number, points):
    """`number` copies of a deployment behind a balancer: every rate and concurrency times that,
    latencies the same.
    """
    return [
        dataclasses.replace(
            p,
            concurrency=p.concurrency * number,
            metrics={n: (times(e, number) if n.endswith("throughput") else e) for n, e in p.metrics.items()},
        )
        for p in points
    ]


def times(e, number):
    return dataclasses.replace(e, value=e.value * number, low=e.low * number, high=e.high * number)


def test_per_gpu_eight_replicas_are_what_one_is():
    one = measured(1.0, 1)[0]
    eight = replicas(8, one)
    found = compared(one, eight, reference=2.0, gpus=(1, 8))
    whole = compared(one, eight, reference=2.0)
    assert (True, False) == (found.per_gpu, whole.per_gpu)
    assert 1.0 == pytest.approx(found.ratio.value)
    assert whole.ratio.value > 4
    (gain,) = found.gains
    assert not gain.resolved
    assert 1.0 == pytest.approx(gain.interpolated.value)


def test_per_gpu_the_interval_is_that_of_the_whole_divided():
    a, a_samples = measured(1.0, 1, grid=(1, 8, 64))
    b, b_samples = measured(1.0, 2, grid=(1, 8, 64))
    reached = min(side[-1].metrics["p99_e2e"].value for side in (a, b))
    how = {"reference": reached, "a_samples": a_samples, "b_samples": b_samples, "draws": 100}
    whole, found = (compared(a, b, gpus=gpus, **how) for gpus in ((4, 4), (4, 5)))
    ends = [getattr(whole.ratio, end) for end in ("low", "value", "high")]
    assert [end * 4 / 5 for end in ends] == pytest.approx([getattr(found.ratio, e) for e in ("low", "value", "high")])
    assert ("not resolved", "worse") == (whole.verdict, found.verdict)
    bracket = [(gain.low, gain.high) for gain in (whole.gains[0], found.gains[0])]
    assert bracket[1] == pytest.approx([end * 4 / 5 for end in bracket[0]])


def test_per_gpu_every_setting_counts_up_to_the_worst_that_both_reach():
    a = [point(c, 100 * c, 1.0 + c) for c in (1, 2, 4, 8)]
    b = [point(c, 100 * c, 1.0 + c / 8) for c in (8, 32, 128)]
    found = compared(a, b, reference=30.0, gpus=(1, 8))
    area_a, area_b = 100 * 1 + 200 * 2 + 400 * 4, 100 * 3 + 400 * 4
    assert (9.0, pytest.approx(area_b / area_a)) == (found.reference, found.ratio.value)
    assert not any("Left out" in note for note in found.notes)
    assert 4.0 == compared(a, b, reference=4.0, gpus=(1, 8)).reference


@pytest.mark.parametrize("gpus", [(8, None), (None, 8), (None, None), (8, 8)])
def test_rates_stay_whole_where_a_number_of_gpus_is_not_known_or_the_same(gpus):
    a, b = [point(1, 100, 1.0), point(2, 180, 2.0)], [point(1, 110, 0.9), point(2, 200, 2.1)]
    found = compared(a, b, reference=3.0, gpus=gpus)
    assert (False, gpus) == (found.per_gpu, found.gpus)
    assert compared(a, b, reference=3.0).ratio.value == found.ratio.value


def test_a_limit_that_is_a_rate_is_that_of_a_and_divided_with_it():
    a = [point(c, 100 * c, 1.0 + c) for c in (1, 2, 4)]
    b = [point(8 * c, 800 * c, 1.0 + c) for c in (1, 2, 4)]
    turned = ("p99_e2e", "output_throughput")
    found = compared(a, b, turned, reference=150.0, gpus=(1, 8))
    assert (150.0, True) == (found.reference, found.per_gpu)
    assert compared(a, a, turned, reference=150.0).ratio.value == pytest.approx(found.ratio.value)


def test_what_is_no_rate_is_not_divided():
    found = compared([point(1, 1, 1.0)], [point(1, 1, 1.0)], ("p99_e2e", "p99_e2e"), gpus=(1, 8))
    assert not found.per_gpu


def test_what_takes_no_part_is_named_with_its_side_and_its_reason():
    lost = (Flag("lockstep", "", "", ""),)
    a = [point(1, 100, 1.0), point(2, 180, 2.0), point(4, 200, 3.0, flags=lost)]
    b = [point(1, 110, 0.9), point(2, 200, 2.1), point(4, 250, math.inf)]
    found = compared(a, b, reference=3.0)
    ((old,), (new,)) = found.absent
    assert "c=4 (invalid: lockstep)" == old
    assert new.startswith("c=4 (p99_e2e is infinite")
    assert_golden_row("pages", comparison_table([found], names=("old", "new"), width=100))
    (none,) = all_compared(a, [point(1, 110, 0.9, flags=lost)])
    assert ("invalid", ("c=1 (invalid: lockstep)",)) == (none.verdict, none.absent[1])


def longer_tokens(samples, characters):
    return {
        c: dataclasses.replace(s, text_chars=(s.completion_tokens * characters).astype(int)) for c, s in samples.items()
    }


def test_tokens_of_other_lengths_are_told_with_the_ratio_in_characters():
    points, samples = measured(1.0, 1, 300)
    same = compared(points, points, a_samples=samples, b_samples=samples, draws=20, reference=2.0)
    assert (5.0, 5.0) == same.characters_per_token

    shorter = longer_tokens(samples, 4)
    other = compared(points, points, a_samples=samples, b_samples=shorter, draws=20, reference=2.0)
    assert (5.0, 4.0) == other.characters_per_token
    (told,) = set(other.notes) - set(same.notes)
    assert_golden_row("answers", told)
    assert told in " ".join(comparison_table([other], width=100).split())
    requests = compared(
        points,
        points,
        a_samples=samples,
        b_samples=shorter,
        draws=20,
        reference=2.0,
        objectives=("request_throughput", "p99_e2e"),
    )
    (of_requests,) = set(requests.notes) - set(same.notes)
    assert_golden_row("answers", of_requests, "requests")  # no ratio of tokens, none in characters


def test_without_requests_the_lengths_of_tokens_are_not_known():
    points, samples = measured(1.0, 1, 300)
    empty = longer_tokens(samples, 0)
    assert (5.0, None) == compared(points, points, a_samples=samples, reference=2.0).characters_per_token
    assert (None, 5.0) == compared(points, points, a_samples=empty, b_samples=samples, draws=20).characters_per_token


def test_of_other_models_it_is_told_that_nothing_shows_how_long_tokens_are():
    def run(path, model):
        return SimpleNamespace(path=path, config=SimpleNamespace(deployments=[SimpleNamespace(name="d", model=model)]))

    points, samples = measured(1.0, 1, 300)
    told = no_characters(compared(points, points, a_samples=samples), run("x", "llama"), run("y", "qwen"))
    (without,) = told
    assert_golden_row("answers", without)
    known = compared(points, points, a_samples=samples, b_samples=samples, draws=20)
    assert [] == no_characters(known, run("x", "llama"), run("y", "qwen"))
    assert [] == no_characters(compared(points, points), run("x", "llama"), run("y", "llama"))
