"""The difference of two settings: slow twins of its formulas, and how often its interval holds
a known ratio.
"""

import math

import numpy as np
import pytest
from scipy import stats

from frontier.core.estimates import estimate
from frontier.core.model.points import Estimate
from frontier.core.stats.difference import Difference, between, in_pairs, mean, variance, verdict
from frontier.core.window import window
from frontier.extras.compare.contest import joint_verdict
from tests.kit.made import Server, trial

TIMES = 300


def drawn(rng, value, sd, n=200):
    """A value measured with an error of `sd` (of ln), which its interval states."""
    at = value * math.exp(rng.normal(0, sd))
    return Estimate(at, at * math.exp(-1.96 * sd), at * math.exp(1.96 * sd), n)


def holds(difference, true):
    ratio = difference.ratio(1)
    return ratio.low <= true <= ratio.high


def test_pairs_are_a_paired_t_test():
    a, b = np.random.default_rng(1).normal(5, 0.1, (2, 7))
    found = in_pairs((b - a).tolist())
    twin = stats.ttest_rel(b, a).confidence_interval(0.95)
    assert (found.bound(0.025), found.bound(0.975)) == pytest.approx((twin.low, twin.high))


def test_the_mean_of_two_has_the_freedom_of_welch():
    """Twice the mean of minus A and of B is what Welch's test of two unpaired samples judges."""
    a, b = (np.random.default_rng(2).normal(0, sd, n) for sd, n in ((0.1, 5), (0.03, 9)))
    found = mean([in_pairs((-a).tolist()), in_pairs(b.tolist())])
    twin = stats.ttest_ind(b, a, equal_var=False)
    assert (2 * found.value, found.freedom) == pytest.approx((b.mean() - a.mean(), twin.df))
    assert (2 * found.bound(0.025), 2 * found.bound(0.975)) == pytest.approx(tuple(twin.confidence_interval(0.95)))


def test_two_estimates_differ_as_draws_of_them_do():
    a, b = Estimate(100, 90, 110, 50), Estimate(300, 280, 330, 50)
    rng = np.random.default_rng(3)
    lnb, lna = (math.log(e.value) + math.sqrt(variance(e)) * rng.standard_normal(400_000) for e in (b, a))
    low, high = np.quantile(np.exp(lnb - lna), (0.025, 0.975))
    found = between(a, b).ratio(50)
    assert (3, low, high) == pytest.approx((found.value, found.low, found.high), rel=2e-3)


@pytest.mark.parametrize("true", [0.4, 1.0, 1.1])
def test_the_interval_of_two_estimates_holds_the_true_ratio(true):
    rng = np.random.default_rng(4)
    inside = sum(holds(between(drawn(rng, 50, 0.03), drawn(rng, 50 * true, 0.01)), true) for _ in range(TIMES))
    assert 0.92 * TIMES <= inside <= 0.98 * TIMES


@pytest.mark.parametrize(("pairs", "own"), [(3, 0.02), (12, 0.02)])
def test_what_a_pair_shares_drops_out(pairs, own):
    """The machine drifts by 30% from pair to pair; the two of a pair differ by their own noise."""
    rng, inside, width = np.random.default_rng(5), 0, []
    for _ in range(TIMES):
        drift, noise = rng.normal(0, 0.3, pairs), rng.normal(0, own, (2, pairs))
        found = in_pairs((math.log(1.25) + (drift + noise[1]) - (drift + noise[0])).tolist())
        inside += holds(found, 1.25)
        width.append(found.error)
    assert 0.92 * TIMES <= inside <= 0.98 * TIMES
    assert np.mean(width) == pytest.approx(own * math.sqrt(2 / pairs), rel=0.15)


def test_the_interval_of_two_measured_settings_holds_the_true_ratio():
    """Windows of two servers of known speed, through the estimates that a run has of them."""
    inside, times = {"output_throughput": 0, "p50_tpot": 0, "p90_e2e": 0}, 40
    for i in range(times):
        sides = []
        for side, speed in enumerate((1.0, 1.1)):
            server = Server(lambda c, s=speed: 0.005 * c / s, lambda c, s=speed: 0.02 / s, seed=1000 * i + side)
            sides.append(window.join([server.run(trial(8, requests=300)) for _ in range(3)]))
        for name in inside:
            a, b = (estimate.estimate(side, name) for side in sides)
            inside[name] += holds(between(a, b), 1.1 if name == "output_throughput" else 1 / 1.1)
    assert all(count >= 0.92 * times for count in inside.values()), inside


def test_without_an_interval_nothing_is_shown():
    bare = Estimate.without_interval(100, 0)
    for found in (
        between(bare, Estimate(900, 899, 901, 9)),
        in_pairs([0.5]),
        mean([in_pairs([0.5]), Difference(1, 0.1)]),
    ):
        assert (False, -math.inf, math.inf) == (found.has_interval, found.bound(0.025), found.bound(0.975))
        assert (-math.inf, math.inf) == (found.ratio(1).low, found.ratio(1).high)
        assert "not resolved" == verdict(found, within=0.5)


def test_pairs_that_are_alike_are_not_surer_than_their_floor():
    assert 0.1 == pytest.approx(in_pairs([0.2, 0.2, 0.2, 0.2], floor=0.04).error)
    assert 0.0 == in_pairs([0.2, 0.2]).error
    assert 3 == mean([in_pairs([0.2, 0.2, 0.2, 0.2])] * 2).freedom


def known(value, error=0.005):
    return Difference(math.log(value), error)


@pytest.mark.parametrize(
    ("ratio", "within", "answer"),
    [
        (1.1, None, "better"),
        (1.015, None, "not resolved"),  # surely more, by less than runs differ
        (0.9, None, "worse"),
        (0.985, None, "not resolved"),
        (0.985, 0.05, "no worse"),
        (0.9, 0.05, "worse"),
        (0.945, 0.05, "not resolved"),  # the interval holds 0.95
        (1.1, 0.05, "better"),
    ],
)
def test_a_verdict_needs_an_interval_beyond_and_a_difference_that_matters(ratio, within, answer):
    assert answer == verdict(known(ratio), within)
    assert {"better": "worse", "worse": "better"}.get(answer, "not resolved") == verdict(
        known(ratio).turned(-1)
    ) or within


def test_what_may_still_be_given_widens_the_interval():
    gain = known(1.2)
    assert ["better", "not resolved"] == [verdict(gain, None, (a, 1.0)) for a in (1.1, 1.3)]
    assert ["worse", "not resolved"] == [verdict(gain.turned(-1), None, (1.0, b)) for b in (1.1, 1.3)]
    assert "better" == verdict(gain, None, (1.0, math.inf))


def test_of_several_metrics_one_must_be_better_and_none_worse():
    assert "better" == joint_verdict("not resolved", ["better"]) == joint_verdict("better", ["no worse"])
    assert "worse" == joint_verdict("no worse", ["worse"])
    assert "not resolved" == joint_verdict("better", ["worse"]) == joint_verdict("not resolved", ["no worse"])
    assert "no worse" == joint_verdict("no worse", ["not resolved"])
