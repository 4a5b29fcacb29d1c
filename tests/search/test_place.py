"""Placement: curves over concurrency, what a proof is forecast to take, and which concurrency is
proven next."""

import dataclasses
import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from frontier.core.claim.proof import Candidate
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.points import Estimate, Point
from frontier.core.model.trials import Phase
from frontier.core.stats.episodes import most_times
from frontier.core.window.histogram import LogHistogram
from frontier.core.window.window import BLOCKS, Episodes
from frontier.search import curves, place
from frontier.search.curves import DEEP, FAR, Curve, Part
from frontier.search.place import MANY, State, candidate
from frontier.search.series_history import SeriesHistory
from tests.kit.made import SHAPE, Server, grid, trial

P99 = Part(Limit("p99_ttft", 0.5))
MEAN = Part(Limit("mean_e2e", 2.0))


def curve(level, sigma=0.2, requests=400, pooled=1000, part=P99):
    sigmas = dict.fromkeys(level, ([0.0], [sigma])) if sigma else {}
    return Curve(part, level, dict.fromkeys(level, requests), sigmas, dict.fromkeys(sigmas, pooled))


# --- curves


def test_a_curve_is_the_median_and_the_distance_from_there_to_the_tail():
    at = curve({8: -1.0})
    assert at.at(8, 1.0) == pytest.approx(-1.0 + 0.2 * 2.32635, abs=1e-5), "the 99th percentile of a normal law"
    assert at.at(8, 0.5) == pytest.approx(-1.0 + 0.2 * 2.57583, abs=1e-5), "half of the requests above it: the 99.5th"
    bare = curve({8: -1.0}, sigma=0, part=MEAN)
    assert -1.0 == bare.at(8, 1.0) == bare.at(8, 0.5), "a mean has no tail"
    assert FAR == curve({}).at(8, 1.0), "nothing was seen"


def test_the_standard_error_has_the_noise_of_the_median_of_the_tail_and_of_the_run():
    """By hand: 0.2 * sqrt(1.57 / 400 + 2.32635**2 / 2000) = 0.016286 within the run, 0.03 from run
    to run.
    """
    assert curve({8: -1.0}).standard_error(8) == pytest.approx(0.0341356, abs=1e-6)
    assert place.EXACT == curve({8: -1.0}, sigma=0, part=MEAN).standard_error(8)


@pytest.mark.parametrize(
    ("ends", "c", "value"),
    [
        ({8: 0.1, 16: 0.3}, 12, 0.2),
        ({8: 0.1, 16: 0.3}, 8, 0.1),
        ({8: 0.1, 16: 0.3}, 4, 0.1),
        ({8: 0.1, 16: 0.3}, 64, 0.3),
        ({10: 0.1, 40: 6.0}, 20, 0.1 + 5.9 / 3),  # the 2.95th power of concurrency
        ({10: 0.1, 40: 8.0}, 20, 0.1),  # the 3.16th: a cliff, taken to be at the geometric mean
        ({10: 0.1, 40: 8.0}, 21, 8.0),
    ],
)
def test_between_two_settings_a_latency_is_on_a_straight_line_and_a_cliff_is_half_way(ends, c, value):
    assert math.exp(curves.interpolated({k: math.log(v) for k, v in ends.items()}, c)) == pytest.approx(value)


def test_a_tail_has_the_quantiles_of_enough_requests_and_goes_on_as_the_last_of_them():
    def tail(share, n=100):
        """A setting of n values whose median is at the limit; this share of them is e times it."""
        pooled = curves._pooled([(np.where(np.arange(1, n + 1) > (1 - share) * n, 1.0, 0.0), 0.0)])
        return dataclasses.replace(curve({1: 0.0}), sigma={1: curves._deviations(pooled)}, pooled={1: len(pooled)})

    def beyond(tail, share):
        return tail.between_episodes(1, share / 0.01)

    assert beyond(tail(0.3), 0.2) == pytest.approx(1.0)
    assert beyond(tail(0.3), 0.05) == pytest.approx(1.0), "a second hump lies no further out in the tail"
    assert beyond(tail(0.3), 0.01) == pytest.approx(2.32635 / 1.64485, abs=1e-4), "beyond the last by a normal law"
    assert beyond(tail(0.06), 0.2) == pytest.approx(0.01 * 0.84162, abs=1e-4), "a rare hump makes no usual request late"
    assert beyond(tail(0.04), 0.01) == pytest.approx(0.01 * 2.32635, abs=1e-4), (
        "of 100 the 99th percentile says nothing"
    )
    assert beyond(tail(0.02, 300), 0.01) == pytest.approx(1.0)
    assert 300 == len(curves._pooled([(np.zeros(100), 0.0)] * 3))


def test_the_tail_of_a_setting_is_of_the_three_nearest_to_it():
    assert ["c", "b", "d"] == curves._nearest(dict(zip((1, 8, 10, 16, 64), "abcde", strict=True)), 10)


def test_gaps_between_tokens_have_the_quantiles_that_were_seen():
    """3.5% of the gaps are five times as long, as a prompt is read in them: the 95th percentile is
    within the limit, and a bound that leaves 3% beyond it is not.
    """
    limit = Limit("p95_itl", 0.02)

    def server(share):
        rng = np.random.default_rng(3)
        parts = [np.where(rng.random(4000) < share, 0.05, 0.01) for _ in range(BLOCKS)]
        return tuple(LogHistogram.of(part) for part in parts)

    history = [
        (t, dataclasses.replace(sample, block_itl=server(0.035 if t.load <= 16 else 0.08)))
        for t, sample in grid(Server(lambda c: 0.01 * c), (1, 8, 16, 32), requests=100)
    ]
    state = state_of((limit,), history)
    (gaps,) = state.curves
    assert gaps.at(16, 1.0) == pytest.approx(math.log(0.5), abs=2e-3)
    assert gaps.at(16, 0.6) == pytest.approx(math.log(2.5), abs=2e-3)
    assert gaps.at(32, 1.0) == pytest.approx(math.log(2.5), abs=2e-3)
    few, many = (state._reach(gaps, 16, windows, 100, 0.0125) for windows in (3, 36))
    assert few == pytest.approx(place.WIDER * math.log(5), abs=1e-2)
    assert many == 0.0
    assert gaps.standard_error(16) > 1.0, "a look of 100 requests cannot tell 3.5% from 5"


def state_of(limits, history):
    return State.of(SeriesHistory.of(limits, history))


def test_a_limit_that_is_no_percentile_has_the_values_that_were_seen_as_its_level():
    limits = (MEAN.limit, Limit("output_throughput", 500.0))
    history = grid(Server(lambda c: 0.01 * c), (1, 8, 64))
    state = state_of(limits, history)
    mean, rate = state.curves
    for c, point in state.points.items():
        seen = point.metrics["mean_e2e"].value
        assert mean.level[c] == pytest.approx(math.log(seen / 2.0))
        assert rate.level[c] == pytest.approx(math.log(500.0 / point.metrics["output_throughput"].value))
    assert not mean.sigma
    assert not rate.sigma
    assert sorted(mean.level.values()) == list(mean.level.values())
    far = state_of((Limit("mean_e2e", 1e-3),), history).curves[0]
    assert {FAR} == set(far.level.values()), "what is far beyond its limit says no more than that"
    (deep,) = state_of((Limit("mean_e2e", 1e4),), history).curves
    assert {-FAR} == {deep.at(c, 1.0) for c in (1, 8, 64)}


def test_the_scan_says_what_is_inside_and_where_the_edge_is():
    state = state_of((P99.limit,), grid(Server(lambda c: 0.01 * c), (8, 16, 24, 40, 64)))  # crossed at c=31.4
    assert (24, 40) == state.bracket()
    assert 24 == state.edge()
    assert state.surely_outside(64)
    assert not state.surely_outside(16)
    assert state.value(24) < 0 < state.value(40)
    assert state.value(24) == state.curves[0].at(24, 1.0), "at the percentile of the limit itself"
    assert state_of((P99.limit,), grid(Server(lambda c: 0.01), (8, 16))).bracket() == (16, None)
    outside = state_of((P99.limit,), grid(Server(lambda c: 1.0), (8, 16)))
    assert outside.bracket() is outside.edge() is None


def test_the_more_windows_a_proof_has_and_the_lower_it_is_the_likelier_it_succeeds():
    state = state_of(
        (P99.limit,),
        [
            (trial(c, Phase.SCAN, requests=400), sample)
            for _, sample in grid(Server(lambda c: 0.01 * c), (8, 16, 24, 40), requests=400)
            for c in [sample.load]
        ],
    )
    near, low = state.prospects(30), state.prospects(16)
    assert list(near) == [3, 6, 12, 20, 36]
    assert list(near.values()) == sorted(near.values())
    assert near[3] < near[36] < 0.9
    assert low[3] > 0.9
    seven = dataclasses.replace(state, within=7 * state.seconds(30))
    assert dict(list(near.items())[:2]) == seven.prospects(30), "no more than six windows fit the time"


def test_the_share_of_episodes_is_surer_once_more_of_them_are_seen():
    slow = Episodes(0.2, (("ttft", 0.7),), 2)
    (curve,) = state_of((P99.limit,), grid(Server(lambda c: 0.01 * c), (8, 16, 24, 40))).curves
    curve = dataclasses.replace(curve, slow=slow)
    shares = [curve.later(times).slow.share for times in (1, 2, 5, MANY)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == pytest.approx(0.2)
    assert shares[-1] == pytest.approx(0.2 / most_times(2), rel=0.1), "in the end it is what was seen"
    assert curve.later(5).at(16, 1.0) < curve.at(16, 1.0)


# --- the next candidate


@dataclass
class Known:
    """What `candidate` asks of a `State`: here every proof succeeds and the throughput is the
    concurrency.
    """

    inside: tuple[int, int | None] | None = (8, 32)
    candidates: tuple[Candidate, ...] = ()
    chance: float = 1.0
    points: dict[int, None] = field(default_factory=lambda: {8: None, 32: None})
    judged_by_grid: frozenset[int] = frozenset()
    rates: dict[int, float] = field(default_factory=dict)
    chances: dict[int, dict[int, float]] = field(default_factory=dict)
    merits: dict[int, float] = field(default_factory=dict)
    within: float = math.inf
    unsteady: bool = False

    def seconds(self, c):
        return 10.0

    def bracket(self):
        return self.inside

    def rate(self, c):
        return self.rates.get(c, c)

    def merit(self, c):
        return self.merits.get(c, 0.0)

    def prospects(self, c):
        return self.chances.get(c, {3: self.chance})


def judged(c, verdict, windows=3, value=0.1, upper=0.1):
    point = Point("d", SHAPE, c, {"p99_ttft": Estimate(value, value, upper, 100, upper=upper)}, 100)
    return Candidate(c, verdict, "", 0.0125, windows, point, point)


FAILED = judged(20, Verdict.VIOLATES)


def test_where_the_time_holds_no_other_proof_the_first_is_the_surer_one():
    chances = {c: {3: 1.0 if c <= 16 else 0.4} for c in range(1, 32)}
    short = 2 * place.GIVEN_UP_AFTER * 10.0 - 1
    assert (31, 16) == tuple(candidate(Known(chances=chances, within=t), 64, (), 0.0) for t in (math.inf, short))


def test_where_the_server_is_unsteady_the_highest_of_the_surest_settings_goes_first():
    chances = {c: {3: 1.0 if c <= 8 else 0.96 if c <= 12 else 0.8} for c in range(1, 32)}
    steady = Known(chances=chances, within=600.0)
    unsteady = dataclasses.replace(steady, unsteady=True)
    assert (31, 12) == tuple(candidate(known, 64, (), 0.0) for known in (steady, unsteady))


@pytest.mark.parametrize(
    ("known", "proven", "c"),
    [
        (Known(), (), 31),  # below the lowest that is outside
        (Known(inside=(8, None)), (), 64),  # nothing is outside: the top
        (Known(candidates=(FAILED,)), (), 18),  # 0.9 of what was given up
        (Known(candidates=(FAILED, judged(18, Verdict.VIOLATES))), (), 12),  # then 0.7
        (Known(candidates=(FAILED, judged(18, Verdict.VIOLATES, windows=2))), (), 16),  # given up unjudged: no ascent
        (Known(candidates=(FAILED, judged(8, Verdict.MEETS))), (8,), 19),  # next to it, once something is proven
        (Known(candidates=(judged(31, Verdict.MEETS),)), (31,), None),  # nothing is left
        (Known(chance=0.0), (), 21),  # nothing is provable: 0.7 of the highest
        (Known(rates={c: c / 100 for c in range(1, 65)}), (), 31),  # however little a setting gives
        (Known(inside=None), (), 8),  # that nothing is inside is claimed from fresh data too
        (Known(inside=None, judged_by_grid=frozenset({8})), (), None),
        (Known(inside=None, candidates=(FAILED,)), (), None),
    ],
)
def test_the_next_candidate_is_as_high_as_what_was_seen_and_given_up_allow(known, proven, c):
    assert c == candidate(known, 64, proven, window_worth=0.0)


def test_how_far_bounds_lie_is_learned_from_what_is_proven_where_anything_is():
    state = state_of((P99.limit,), grid(Server(lambda c: 0.01 * c), (8, 16, 24, 40)))
    proven = judged(24, Verdict.MEETS, value=0.38, upper=0.46)  # 0.19 beyond its value, in ln
    disturbed = judged(26, Verdict.VIOLATES, value=0.4, upper=0.8)  # 0.69

    def wider(*candidates):
        return dataclasses.replace(state, candidates=candidates)._seen()[1][P99]

    expected = state._reach(state.curves[0], 24, 3, state.window_size(24), 0.0125)
    assert wider(proven) == wider(proven, disturbed) == pytest.approx(math.log(0.46 / 0.38) / expected)
    assert wider(disturbed) > wider(proven) > 1.0
    near = dataclasses.replace(proven, point=judged(24, Verdict.MEETS, value=0.38, upper=0.381).point)
    assert wider(near) == 1.0, "a bound that lies nearer is luck"
    unjudged = judged(24, Verdict.MEETS, windows=2, value=0.38, upper=0.46)
    assert place.WIDER == wider() == wider(unjudged), "before a judgement, what is usual"


def test_a_lower_setting_is_the_next_candidate_where_it_gave_clearly_more_and_was_not_tried():
    proven, rates = judged(31, Verdict.MEETS), {8: 35.0}
    assert 8 == candidate(Known(candidates=(proven,), rates=rates), 64, (31,), 0.0)
    assert candidate(Known(candidates=(proven,), rates={8: 33.9}), 64, (31,), 0.0) is None, "not clearly"
    tried = (proven, judged(8, Verdict.VIOLATES))
    assert candidate(Known(candidates=tried, rates=rates), 64, (31,), 0.0) is None


def test_the_merit_is_the_throughput_less_ten_percent_for_each_doubling_of_the_worst_tail():
    """By hand: latencies in proportion to the load, so four doublings from c=4 to c=64."""
    state = state_of((Limit("p99_ttft", 100.0), Limit("p99_e2e", 100.0)), grid(Server(lambda c: 0.01 * c), (4, 64)))
    tails = [x.at(64, 1.0, DEEP) - x.at(4, 1.0, DEEP) for x in state.curves]
    assert max(tails) == pytest.approx(4 * math.log(2), rel=0.15)
    assert state.merit(4) == state.rate(4)
    assert state.merit(64) == pytest.approx(state.rate(64) * 1.1 ** -(max(tails) / math.log(2)))
    bare = state_of((Limit("output_throughput", 5.0),), grid(Server(lambda c: 0.01 * c), (4, 64)))
    assert bare.merit(64) == bare.rate(64), "throughput has no tail"


def test_with_the_rule_of_the_answer_the_best_merit_is_proven_also_below_what_is_proven():
    ahead = {c: float(c if c <= 64 else 64 - (c - 64) / 16) for c in range(1, 129)}
    known = Known(inside=(128, None), merits=ahead)
    assert (128, 64) == tuple(candidate(known, 128, (), 0.001, marginal_gain=rule) for rule in (False, True))
    found = Known(inside=(128, None), merits=ahead, candidates=(judged(128, Verdict.MEETS),))
    assert (None, 64) == tuple(candidate(found, 128, (128,), 0.001, marginal_gain=rule) for rule in (False, True))
    assert candidate(found, 128, (128,), 0.03, marginal_gain=True) is None, "3 windows for 7%"
    assert 62 == candidate(found, 128, (128,), 0.001, {62, 128}, marginal_gain=True)
    both = Known(inside=(128, None), merits=ahead, candidates=(*found.candidates, judged(64, Verdict.VIOLATES)))
    assert 65 == candidate(both, 128, (128,), 0.001, marginal_gain=True), "a setting that was tried is not tried again"


def test_a_candidate_is_worth_its_chance_and_its_throughput_less_its_windows():
    unsure = {c: {3: 1.0 if c <= 16 else 0.2} for c in range(9, 32)}
    assert 16 == candidate(Known(chances=unsure), 64, (), 0.0), "0.2 * 31 + 0.8 * 0.75 * 16 is less than 16"
    slow = {c: {3: 1.0} if c <= 24 else {36: 1.0} for c in range(1, 32)}
    assert 31 == candidate(Known(chances=slow), 64, (), 0.001)
    assert 24 == candidate(Known(chances=slow), 64, (), 0.01), "33 more windows are not worth 29% more"
    assert candidate(Known(), 64, (30,), 0.1) is None, "3 windows for 3% more"
    assert 31 == candidate(Known(), 64, (30,), 0.01)


def test_the_windows_of_a_proof_are_forecast_from_the_chance_at_each_judgement():
    known = Known(chances={10: {3: 0.5, 6: 0.8, 12: 0.7}})
    expected = 3 * 0.5 + 6 * 0.3 + place.GIVEN_UP_AFTER * 0.2
    assert place.forecast(known, 10, 10) == place.ProofForecast(pytest.approx(10), 0.8, pytest.approx(expected))
