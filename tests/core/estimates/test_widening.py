"""What warnings add to intervals, against slow twins and known truth; nothing without a warning,
never less."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate
from scipy import stats as dist

from frontier.core.estimates.estimate import estimate
from frontier.core.estimates.widening import NO_WIDENING, widening
from frontier.core.model.points import Estimate
from frontier.core.model.trials import ClientHealth
from frontier.core.stats.wander import PERIODS, Wander, _by_windows, wander
from frontier.core.window.window import BLOCKS, Floats, WindowData, join
from tests.core.estimates.test_estimate import a_sample
from tests.core.flags.test_flags import simulated

NAMES = ("p50_ttft", "p95_ttft", "mean_ttft", "p95_tpot", "p95_e2e", "p95_itl", "output_throughput")


def known(sample: WindowData, name: str) -> Estimate:
    found = estimate(sample, name)
    assert found is not None
    return found


def test_without_a_warning_nothing_is_added() -> None:
    assert NO_WIDENING is widening(a_sample())


# --- the client and the load


def test_a_pause_moves_latencies_by_itself_and_a_tpot_by_its_share() -> None:
    one = a_sample()
    paused = replace(one, health=(ClientHealth(loop_lag_p99=0.006),))
    for name, seconds in (("p95_ttft", 0.006), ("p95_e2e", 0.006), ("p95_tpot", 0.006 / 9), ("p95_itl", 0.006)):
        steady, wide = known(one, name), known(paused, name)
        assert steady.value == wide.value
        assert steady.upper + seconds == pytest.approx(wide.upper)
        assert steady.lower - seconds == pytest.approx(wide.lower)
        assert (steady.low - seconds, steady.high + seconds) == pytest.approx((wide.low, wide.high))


def test_missing_requests_may_make_each_latency_longer_by_their_share_of_an_e2e() -> None:
    one = a_sample(concurrency=16)
    short = replace(one, in_flight=np.full(BLOCKS, 15.5))
    e2e = float(one.e2e.mean())
    for name, seconds in (("p95_ttft", e2e * 0.5 / 15.5), ("p95_tpot", e2e * 0.5 / 15.5 / 9)):
        assert known(one, name).upper + seconds == pytest.approx(known(short, name).upper)
        assert known(one, name).lower == known(short, name).lower
    rate, more = known(one, "output_throughput"), known(short, "output_throughput")
    assert rate.upper * 16 / 15.5 == pytest.approx(more.upper)
    assert rate.lower == more.lower


@pytest.mark.filterwarnings("error")
def test_where_every_request_failed_all_throughputs_are_0_and_no_bound_is_nan() -> None:
    one, none = a_sample(concurrency=16), np.zeros(BLOCKS)
    infinite = {name: np.full(one.n, math.inf) for name in ("ttft", "tpot", "e2e")}
    tokens = {f"block_{name}": none for name in ("output_tokens", "input_tokens", "finished")}
    failed = replace(one, ok=np.zeros(one.n, np.bool_), in_flight=np.full(BLOCKS, 2.0), **infinite, **tokens)
    assert widening(failed).more == math.inf
    for name in ("output_throughput", "input_throughput", "total_throughput", "request_throughput"):
        found = known(failed, name)
        assert (found.value, found.low, found.high, found.lower, found.upper) == (0, 0, 0, 0, 0)


def test_surplus_requests_are_the_other_way_round() -> None:
    one = a_sample(concurrency=16)
    long = replace(one, in_flight=np.full(BLOCKS, 16.5))
    assert known(one, "p95_ttft").upper == known(long, "p95_ttft").upper
    assert known(one, "p95_ttft").lower > known(long, "p95_ttft").lower
    assert known(one, "output_throughput").lower * 16 / 16.5 == pytest.approx(known(long, "output_throughput").lower)


# --- wander


def test_the_tolerance_factor_is_the_noncentral_t_of_its_definition() -> None:
    """P(mean + k s > the percentile) over the laws of mean and s, by integration."""
    moves = Wander(1.0, 7.0, 9.0)
    k, freedom = moves.beyond(0.95, 0.9), 2 * 7.0 - 1
    z = float(dist.norm.ppf(0.95))

    def above(s: float) -> float:
        return float(dist.norm.cdf((k * s - z) * math.sqrt(7.0)) * dist.chi.pdf(s * math.sqrt(freedom), freedom))

    assert 0.9 == pytest.approx(integrate.quad(above, 0, 20)[0] * math.sqrt(freedom), abs=1e-6)


def ar1(rng: np.random.Generator, n: int, rho: float) -> Floats:
    values = [rng.standard_normal()]
    for _ in range(n - 1):
        values.append(rho * values[-1] + math.sqrt(1 - rho**2) * rng.standard_normal())
    return np.array(values)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
def test_the_stretches_of_a_known_wander_are_counted_with_caution(rho: float) -> None:
    rng, n = np.random.default_rng(3), 200
    apart = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    true = n * n / float((rho**apart).sum())
    found = [wander(0.1 * ar1(rng, n, rho), np.arange(n) * 1.0, np.zeros(n, int), 0.0) for _ in range(100)]
    stretches = [each.independent_periods for each in found if each is not None]
    assert 0.4 * true < np.median(stretches) < true
    assert np.mean(np.array(stretches) > 1.1 * true) < 0.2
    assert 0.1 == pytest.approx(np.median([each.deviation for each in found if each is not None]), rel=0.15)
    certain = float(np.mean([each.certain for each in found if each is not None]))
    assert certain > 0.9 if rho else certain < 0.05


def test_windows_far_apart_are_more_stretches_than_windows_in_a_row() -> None:
    rng = np.random.default_rng(4)
    levels = np.concatenate([0.1 * ar1(rng, 20, 0.8) for _ in range(6)])
    windows = np.repeat(np.arange(6), 20)
    row = wander(levels, np.arange(120.0), windows, 0.0)
    far = wander(levels, np.arange(120.0) + windows * 2000, windows, 0.0)
    assert row is not None
    assert far is not None
    assert row.independent_periods < far.independent_periods
    assert far.independent_periods >= 4


@pytest.mark.parametrize("lasts", [1, 6, 20, 60])
def test_the_scatter_of_windows_shows_no_more_stretches_than_there_are(lasts: int) -> None:
    """Of a wander that is faster than a window, as long, and longer, over twelve windows in a row
    of 20 blocks each.
    """
    rng, n, windows = np.random.default_rng(5), 240, np.repeat(np.arange(12), 20)
    rho = math.exp(-1 / lasts)
    apart = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    true = n * n / float((rho**apart).sum())
    drawn = [ar1(rng, n, rho) for _ in range(200)]
    found = [_by_windows(levels, windows, float(levels.var())) for levels in drawn]
    assert np.mean(np.array(found) > 1.1 * max(true, 1 + 12 * PERIODS)) < 0.2
    assert np.median(found) > 0.15 * true


def test_waves_that_come_again_in_every_window_are_many_stretches() -> None:
    """Blocks next to each other are alike, and yet no window differs from the next."""
    rng, windows = np.random.default_rng(6), np.repeat(np.arange(6), 40)
    levels = 0.1 * np.sin(np.arange(240) / 40 * 4 * math.pi) + 0.005 * rng.standard_normal(240)
    found = wander(levels, np.arange(240.0), windows, 0.0)
    one = wander(levels, np.arange(240.0), windows * 0, 0.0)
    assert found is not None
    assert one is not None
    assert found.independent_periods > 4 * one.independent_periods
    assert found.beyond(0.95, 0.95) < 0.1 * 2.2


def swinging(n: int = 1500) -> WindowData:
    """A steady window whose latencies swing by a tenth, three times."""
    one = simulated(n, 8, seed=2)
    factor = np.exp(0.1 * np.sin(np.arange(one.n) / one.n * 6 * math.pi))
    return replace(one, ttft=one.ttft * factor, tpot=one.tpot * factor, e2e=one.e2e * factor)


@pytest.mark.parametrize("name", NAMES)
def test_a_wander_widens_every_interval_and_moves_no_value(name: str) -> None:
    steady, sample = known(simulated(1500, 8, seed=2), name), swinging()
    found = known(sample, name)
    bare = known(replace(sample, open_loop=True), name) if name.endswith("put") else steady
    assert widening(sample).wander
    assert found.low <= found.value <= found.high
    assert found.high - found.low > bare.high - bare.low
    assert found.lower <= bare.lower * 1.2


def test_windows_apart_in_time_narrow_what_one_leaves_open() -> None:
    one = swinging()
    day = [
        replace(one, starts=one.starts + 1e4 * i, ends=one.ends + 1e4 * i, sent=one.sent + 1e4 * i) for i in range(5)
    ]
    assert known(join(day), "p95_ttft").upper < known(one, "p95_ttft").upper


def test_requests_that_failed_stay_infinite() -> None:
    one = swinging()
    ok = np.arange(one.n) % 10 > 0
    failed = replace(one, ok=ok, **{q: np.where(ok, getattr(one, q), math.inf) for q in ("ttft", "tpot", "e2e")})
    assert math.inf == known(failed, "p95_ttft").value
    assert math.inf == known(failed, "p95_ttft").upper
    assert math.isfinite(known(failed, "p50_ttft").upper)
