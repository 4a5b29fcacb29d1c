"""How often a bound is wrong: the statement "the p99 is at most this, 95 % sure", checked where the truth is known.

A bound is false when it lies below the true percentile; "no bound" is never false. The bound that takes requests for
independent is the control: if it were not false far more often, the test would not see the dependence it is there for.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats as dist
from scipy.signal import lfilter

from frontier.model import Lengths, Measurement, Outcome, Phase, Record, Shape, Trial, Window
from frontier.simulator.spec import EngineSpec, Stalls
from frontier.simulator.virtual import Arrays, closed_loop_arrays
from frontier.stats import intervals
from frontier.stats.estimate import estimate
from frontier.stats.window import WindowData, window_data
from tests.stats.made import bounds

Floats = NDArray[np.float64]


def ar1(rng: np.random.Generator, n: int, rho: float = 0.9) -> Floats:
    series: Floats = lfilter([1.0], [1.0, -rho], rng.standard_normal(n + 300))[300:]
    return series


def ar1_p99(rho: float = 0.9) -> float:
    return float(dist.norm.ppf(0.99)) / math.sqrt(1 - rho**2)


@dataclass
class Tally:
    """Shares of the repetitions."""

    false: float
    naive_false: float
    refused: float
    false_below: float


def tally(make: Callable[[int], Floats], true: float, repetitions: int, p: float = 0.99) -> Tally:
    false = naive = refused = below = 0
    for i in range(repetitions):
        x = make(i)
        low, bound = bounds(x, p)
        false += bound < true
        refused += math.isinf(bound)
        below += low > true
        k = intervals.upper_rank(p, len(x), len(x))
        assert k is not None
        naive += np.sort(x)[k - 1] < true
    return Tally(false / repetitions, naive / repetitions, refused / repetitions, below / repetitions)


def test_dependent_requests_make_at_most_five_false_claims_in_a_hundred() -> None:
    rng = np.random.default_rng(20)
    found = tally(lambda _: ar1(rng, 3000), ar1_p99(), 300)
    assert found.false <= 0.05
    assert found.naive_false >= 0.15
    assert found.refused <= 0.25
    assert found.false_below <= 0.08


def test_independent_requests_are_not_refused() -> None:
    rng = np.random.default_rng(21)
    found = tally(lambda _: rng.lognormal(size=1000), float(np.exp(dist.norm.ppf(0.99))), 300)
    assert found.false <= 0.05
    assert found.refused <= 0.05
    assert found.naive_false <= 0.07


def test_windows_apart_in_time_see_what_no_single_run_can() -> None:
    rng = np.random.default_rng(22)
    n = 3000
    # A day's swing with its truth over the whole swing, of which each run sees a twentieth.
    day = np.exp(0.3 * np.sin(np.linspace(0, 2 * math.pi, 20 * n)))
    true = float(np.quantile(day * rng.lognormal(0, 0.05, 20 * n), 0.99))

    def run(_: int) -> Floats:
        at = rng.integers(0, 19 * n)
        return day[at : at + n] * rng.lognormal(0, 0.05, n)

    found = tally(run, true, 200)
    assert found.false > 0.5  # nothing within one run shows what the rest of the day brings
    joined = tally(lambda i: np.concatenate([run(i) for _ in range(6)]), true, 100)
    assert joined.false <= 0.25


def test_claims_about_gaps_hold_though_gaps_are_many_and_dependent() -> None:
    # 200 requests of 50 gaps, one after the other; the gaps wander over many requests (exp of an AR1 with 0.99).
    rng, spread = np.random.default_rng(24), 0.5
    true = 0.01 * math.exp(spread * float(dist.norm.ppf(0.95)))
    false = naive = refused = 0
    for _ in range(150):
        gaps = 0.01 * np.exp(spread * math.sqrt(1 - 0.99**2) * ar1(rng, 10_000, 0.99))
        found = estimate(one_stream(np.rint(gaps * 1e6).astype(np.int64).reshape(200, 50)), "p95_itl")
        assert found is not None
        false += found.upper < true
        refused += math.isinf(found.upper)
        k = intervals.upper_rank(0.95, len(gaps), len(gaps))
        assert k is not None
        naive += np.sort(gaps)[k - 1] < true
    assert false <= 0.05 * 150
    assert naive >= 0.15 * 150
    assert refused <= 0.5 * 150


def one_stream(micros: NDArray[np.int64]) -> WindowData:
    """The window of a single stream whose requests have these gaps, microseconds per request and gap."""
    records, now = [], 0.0
    for i, gaps in enumerate(micros.tolist()):
        last = now + sum(gaps) * 1e-6
        records.append(
            Record(i, 0, now, Outcome.OK, last, 1, len(gaps) + 1, first=now, last=last, events=len(gaps) + 1,
                   completion_tokens=len(gaps) + 1, gaps=tuple(gaps))
        )  # fmt: skip
        now = last
    trial = Trial("a", Shape.of(1, 51), 1, 0, Phase.GRID, len(records), 0, 0.0, 0.0, 0.0, "f")
    return window_data(Measurement(trial, 0.0, Window(0.0, now), "requests"), records)


def test_claims_about_a_simulated_server_hold() -> None:
    for found in of_server(32, ("p99_ttft", "p99_tpot", "p95_e2e"), repetitions=16).values():
        assert found.false <= 2 / 16


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("concurrency", [8, 32, 64])
@pytest.mark.parametrize(("stalls", "most"), [(None, 0.07), (Stalls(every=2.0, duration=0.2), 0.14)])
def test_claims_about_many_simulated_servers_hold(concurrency: int, stalls: Stalls | None, most: float) -> None:
    # Stalls that hit every stream at once, in windows of ten of them, are the hardest: up to 11 % for the p95 of E2E.
    found = of_server(concurrency, ("p99_ttft", "p99_tpot", "p95_e2e"), repetitions=150, stalls=stalls)
    for name, tallied in found.items():
        assert tallied.false <= most, name


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 0.97])
@pytest.mark.parametrize("n", [1000, 3000, 10_000, 30_000])
def test_claims_hold_at_every_size(n: int, rho: float) -> None:
    rng = np.random.default_rng(23)
    found = tally(lambda _: ar1(rng, n, rho), ar1_p99(rho), 1000)
    assert found.false <= 0.065


def of_server(
    concurrency: int, names: tuple[str, ...], *, repetitions: int, stalls: Stalls | None = None
) -> dict[str, Tally]:
    """Claims of runs of 1500 requests against the truth of one of 40,000."""
    shape = Shape(Lengths.normal(256, 120), Lengths.normal(32, 16))
    spec = EngineSpec(noise=0.05, max_num_seqs=40, stalls=stalls)
    long = closed_loop_arrays(spec, shape, concurrency, requests=40_000, seed=99)
    runs = [
        closed_loop_arrays(replace(spec, seed=i + 1), shape, concurrency, requests=1500, seed=i)
        for i in range(repetitions)
    ]
    found = {}
    for name in names:
        p, quantity = float(name[1:3]) / 100, name.split("_")[1]

        def values(of: Arrays, quantity: str = quantity) -> Floats:
            x: Floats = getattr(of, quantity)
            return x[~np.isnan(x)]

        found[name] = tally(lambda i: values(runs[i]), intervals.quantile(values(long), p), repetitions, p)
    return found
