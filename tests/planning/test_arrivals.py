"""The head count against oracles: closed formulas, a slow twin, draws, and fleets of the embedded
engine."""

import dataclasses
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import gammaincc
from scipy.stats import binom

from benchmarks import arrivals
from benchmarks import people as study
from frontier.config import parse_sla
from frontier.core.model.decisions import Limit
from frontier.core.model.loads import Concurrency
from frontier.core.model.shapes import Shape
from frontier.core.model.units import format_number, trimmed
from frontier.core.stats.intervals import clopper_pearson
from frontier.extras.capacity import head_count as people_of
from frontier.extras.capacity.head_count import HeadCount, Verified, head_count, replicas_for
from frontier.extras.present.report import report_of
from frontier.extras.verify import open_loop_check
from frontier.planning import arrivals as capacity
from frontier.planning.arrivals import FirstTokens, Latencies, MeasuredSetting, Replica
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import closed_loop_arrays
from tests.kit.places import ROOT
from tests.kit.sweeps import ENGINES, config_text, sweep_in_virtual_time

Floats = NDArray[np.float64]
RNG = np.random.default_rng(5)


def alike(*seconds: float) -> Latencies:
    """Latencies that are equally frequent."""
    return Latencies.of(np.array(seconds), np.ones(len(seconds)))


def measured(concurrency: int, rate: float, *, ttft: float = 0.1, e2e: float = 1.0) -> MeasuredSetting:
    """A setting at which nothing varies."""
    return MeasuredSetting(Concurrency(concurrency), rate, {"ttft": alike(ttft), "e2e": alike(e2e)}, 0.0)


def replica(cap: int, rate: float, *limits: Limit, ttft: float = 0.1, service: float = 1e6) -> Replica:
    """A replica whose throughput grows in a line up to `rate` at its cap, its first-token queue
    served at `service`.
    """
    firsts = FirstTokens(np.array([service]), (alike(ttft),))
    return Replica(cap, (measured(cap, rate),), firsts, tuple((limit, 1.0) for limit in limits))


# --- requests in flight


def test_without_a_queue_the_number_in_flight_is_binomial() -> None:
    """Each of N people is in flight with probability R / (R + Z), whatever the others do."""
    e2e, think, people = 2.0, 6.0, 40
    share = people_of._in_flight(replica(50, 50 / e2e), think, 1, people)
    assert share == pytest.approx(binom.pmf(np.arange(people + 1), people, e2e / (e2e + think)), abs=1e-12)


def test_with_a_queue_it_is_what_the_generator_of_the_chain_says() -> None:
    people, think, one = (
        30,
        3.0,
        Replica(4, (measured(1, 1.0), measured(2, 1.8), measured(4, 2.5)), FirstTokens(np.ones(1), (alike(0.1),)), ()),
    )
    rates = capacity.Replica.rates(one, 2, people)
    generator = np.zeros((people + 1, people + 1))
    for n in range(people):
        generator[n, n + 1] = (people - n) / think
        generator[n + 1, n] = rates[n]
    generator -= np.diag(generator.sum(axis=1))
    system = np.vstack([generator.T, np.ones(people + 1)])
    truth = np.linalg.lstsq(system, np.append(np.zeros(people + 1), 1.0), rcond=None)[0]
    assert people_of._in_flight(one, think, 2, people) == pytest.approx(truth, abs=1e-9)
    assert rates[[0, 1, 3, 7, 29]] == pytest.approx([1.0, 2.0, 3.6, 5.0, 5.0])  # 0.5, 1, 2, 4 and more on each of two


# --- the queue for first tokens


class Window:
    """What of a window is read: when requests were sent, their TTFTs, their prompts."""

    def __init__(self, sent: Floats, ttft: Floats) -> None:
        self.sent, self.ttft, self.prompt_tokens = sent, ttft, np.tile([100.0, 300.0], len(sent) // 2)
        self.ends, self.window, self.n = np.array([sent[-1] + 1]), np.zeros(len(sent), np.int64), len(sent)


def test_the_first_token_queue_is_read_off_the_records_as_a_slow_twin_does() -> None:
    sent = np.sort(RNG.uniform(0, 60, 600))
    ttft = RNG.exponential(0.15, 600)
    ttft[::50] = math.inf
    got = FirstTokens.of(Window(sent, ttft))  # type: ignore[arg-type]
    ok = np.isfinite(ttft)
    begin, end = sent[ok], (sent + ttft)[ok]
    found = [int(((begin < at) & (end > at)).sum()) for at in begin]
    left = [int(((begin < at) & (end >= at)).sum()) for at in end]
    edges = np.sort(np.concatenate((begin, end)))
    middles, spans = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    waiting = np.array([((begin < at) & (end > at)).sum() for at in middles])
    longest = len(got.rates)
    assert longest > 1
    for m in range(1, longest):
        assert got.rates[m - 1] == pytest.approx(left.count(m) / spans[waiting == m].sum())
        assert left.count(m) >= capacity.ENOUGH
    rest = sum(count >= longest for count in left) / spans[waiting >= longest].sum()
    assert got.rates[-1] == pytest.approx(rest)
    for m in range(longest):
        own = [t for t, f in zip(ttft[ok], found, strict=True) if min(f, longest - 1) == m]
        assert got.found[m].seconds == pytest.approx(sorted(own))
    kept = np.tile([100.0, 300.0], 300)[ok]
    assert got.variety == pytest.approx(kept.var() / kept.mean() ** 2)


def test_a_pause_that_few_requests_meet_counts_for_as_long_as_it_lasts() -> None:
    """The server stands still for 1 s of 10; one request of ten is late, and people ask all the
    time.
    """
    sent = np.array([0, 1, 2, 3, 4, 5, 6, 7, 7.1, 9.0])
    late = Latencies.of(np.where(sent == 7.1, 2.0, 0.1), capacity._lasted(Window(sent, sent)))  # type: ignore[arg-type]
    assert late.above(1.0) == pytest.approx(0.19)
    assert (late.above(0.05), late.above(2.0)) == (1.0, 0.0)
    assert (late.quantiles() > 1).mean() == pytest.approx(0.19, abs=0.006)
    assert alike().above(1.0) == 1.0


def test_a_ttft_at_random_arrivals_is_that_of_the_queue() -> None:
    """One server first come first served (M/M/1): the time in it is exponential with the rate mu -
    lambda.
    """
    service, rate = 10.0, 6.0
    groups = tuple(alike(*RNG.gamma(m + 1, 1 / service, 20_000)) for m in range(12))
    queue = FirstTokens(np.full(12, service), groups)
    for limit in (0.2, 0.5, 1.0):
        assert queue.late(limit, rate, 200, 1) == pytest.approx(math.exp(-(service - rate) * limit), rel=0.03)
    assert queue.late(0.5, 2.0, 200, 1) < queue.late(0.5, rate, 200, 1) < queue.late(0.5, 9.0, 200, 1)


@pytest.mark.parametrize("load", [0.3, 0.5, 0.7, 0.85])
def test_work_of_even_length_makes_long_queues_rarer(load: float) -> None:
    """M/D/1 by Lindley's recursion: TTFTs beyond a limit are about as rare as said, and not rarer
    where it matters.
    """
    gaps = RNG.exponential(1 / load, 400_000)
    steps = np.cumsum(1.0 - gaps)
    wait = steps - np.minimum.accumulate(np.minimum(steps, 0))
    truth = np.append(0.0, wait[:-1]) + 1.0  # a service takes 1 s
    groups = tuple(alike(*np.linspace(m + (m > 0) * 0.0 + 0.0, m + 1.0, 200)) for m in range(40))
    queue = FirstTokens(np.ones(40), groups, 0.0)
    for share in (0.05, 0.01):
        limit = float(np.quantile(truth, 1 - share))
        assert 0.8 * share < queue.late(limit, load, 200, 1) < 3 * share
        assert queue.late(limit, load, 200, 4) < queue.late(limit, load, 200, 1)


def test_a_wait_for_a_slot_counts() -> None:
    """Against draws: so many departures of a full replica with exponential gaps, then the latency
    itself.
    """
    e2e = RNG.gamma(4, 0.25, 500)
    full = MeasuredSetting(Concurrency(8), 5.0, {"e2e": alike(*e2e)}, 0.02)
    limit = Limit("p99_e2e", 2.0)
    got = capacity._late_after_wait(full, limit, 2.0, 2, 7)
    for queue in (0, 1, 2, 6):
        waits = RNG.gamma(math.ceil((queue + 1) / 2), 1 / 5.0, 200_000)
        late = 0.02 + 0.98 * float((waits + RNG.choice(e2e, 200_000) > 2.0).mean())
        assert got[queue] == pytest.approx(late, abs=0.01)
    assert got[0] == got[1] < got[2]


# --- the head count


def test_the_head_count_is_below_what_the_mean_alone_gives() -> None:
    """64 slots, 10 s, 45 s of thinking: N = X (R + Z) is 352, at which half of all requests
    wait.
    """
    one = head_count(replica(64, 6.4), 45.0, 1)
    assert 250 < one.people < 300
    assert one.waiting is not None
    assert one.waiting <= capacity.WAITING
    assert people_of._in_flight(replica(64, 6.4), 45.0, 1, one.people)[64:].sum() > 0.8 * capacity.WAITING
    assert one.rate * (10 + 45) == pytest.approx(one.people, rel=0.01)  # the response-time law, at its own rate
    assert one.in_flight == pytest.approx(10 * one.rate, rel=0.01)


def test_the_head_count_is_the_most_that_keep_the_limits() -> None:
    limit = Limit("p99_ttft", 0.3)
    one = replica(16, 8.0, limit, service=40.0)
    for replicas in (1, 3):
        most = head_count(one, 20.0, replicas).people
        assert people_of._keeps(one, 20.0, replicas, most)
        assert not people_of._keeps(one, 20.0, replicas, most + 1)


def test_more_thinking_and_more_replicas_serve_more_people_and_together_more_than_alone() -> None:
    one = replica(16, 8.0, Limit("p99_e2e", 4.0))
    alone = [head_count(one, think, 1).people for think in (1.0, 5.0, 20.0, 60.0)]
    assert alone == sorted(set(alone))
    four = head_count(one, 20.0, 4).people
    assert 4 * alone[2] < four < 4 * 8.0 * (20 + 4)


def test_the_fewest_replicas_serve_the_people_and_one_less_does_not() -> None:
    one = replica(16, 8.0, Limit("p99_e2e", 4.0))
    for people in (1, 100, 777, 5000):
        fewest = replicas_for(one, 20.0, people)
        assert people_of._keeps(one, 20.0, fewest, people)
        assert fewest == 1 or not people_of._keeps(one, 20.0, fewest - 1, people)


def test_nobody_is_promised_anything_where_one_request_alone_is_late() -> None:
    one = replica(8, 8.0, Limit("p99_ttft", 0.05))
    assert head_count(one, 20.0, 1).people == 0


def test_a_verified_rate_counts_the_people_whose_requests_it_is() -> None:
    assert Verified(5.0, 10.0).head_count(45.0, 3) == HeadCount(825, 3, 50.0, 5.0, None)


# --- independent arrivals

MMONE = 10.0
"""Requests that a server of one place ends per second, in times that are exponential."""


def one_place(*limits: Limit) -> Replica:
    """A queue M/M/1, whose time in the system is exponential with the rate mu - lambda."""
    e2e = alike(*RNG.exponential(1 / MMONE, 100_000))
    setting = MeasuredSetting(Concurrency(1), MMONE, {"e2e": e2e, "ttft": e2e}, 0.0)
    return Replica(1, (setting,), FirstTokens(np.array([MMONE]), (e2e,)), tuple((limit, 1.0) for limit in limits))


def erlang_waits(rate: float, places: int) -> float:
    """The share of arrivals that wait in M/M/c with service times of 1 s (Erlang's formula)."""
    parts = [rate**k / math.factorial(k) for k in range(places)]
    last = rate**places / math.factorial(places) * places / (places - rate)
    return last / (sum(parts) + last)


@pytest.mark.parametrize(("p", "seconds"), [(90, 0.4), (90, 1.0), (99, 1.0), (99, 3.0)])
def test_the_rate_of_independent_arrivals_is_that_of_the_queue(p: int, seconds: float) -> None:
    limit = Limit(f"p{p}_e2e", seconds)
    truth = MMONE - math.log(100 / (100 - p)) / seconds
    assert capacity.open_rate(one_place(limit), [limit]) == pytest.approx(capacity.SPARE * truth, rel=0.02)


def test_no_rate_is_told_where_one_request_alone_is_late_or_more_than_is_kept_up_with() -> None:
    tight, loose, tpot = Limit("p90_e2e", 0.1), Limit("p90_e2e", 100.0), Limit("p90_tpot", 0.1)
    assert capacity.open_rate(one_place(tight), [tight]) is None
    assert 0.7 * MMONE < (capacity.open_rate(one_place(loose), [loose]) or 0.0) < 0.95 * MMONE
    # A wait does not touch a TPOT; of a mean nothing is known but that it holds without a wait.
    assert capacity.open_rate(one_place(), [tpot]) == pytest.approx(capacity.SPARE * capacity.KEPT_UP * MMONE, rel=0.01)
    at_once = capacity.open_rate(replica(8, 8.0), [Limit("mean_ttft", 0.2)])
    assert at_once is not None
    assert erlang_waits(at_once / capacity.SPARE, 8) == pytest.approx(capacity.WAITING, rel=0.05)


@pytest.mark.parametrize("most", [1, 3, 60, 200])
def test_the_tail_of_a_sum_of_exponential_times_is_the_gamma_functions(most: int) -> None:
    x = np.array([0.0, 1e-6, 0.5, 3.0, 40.0, 250.0])
    truth = gammaincc(np.arange(1, most + 1)[:, None], x)
    assert capacity._erlang_tails(most, x) == pytest.approx(truth, abs=1e-9)


def test_the_most_in_flight_are_counted_window_by_window() -> None:
    sample = Window(np.array([0.0, 1.0, 2.0, 10.0, 11.0, 12.0]), np.zeros(6))
    sample.e2e, sample.ends = np.array([1.5, 0.5, 9.0, 5.0, 5.0, math.inf]), np.array([5.0, 20.0])  # type: ignore[attr-defined]
    sample.window = np.array([0, 0, 0, 1, 1, 1])
    sample.block_seconds, sample.in_flight = np.array([5.0, 15.0]), np.array([1.0, 3.0])  # type: ignore[attr-defined]
    assert capacity.in_flight(sample) == (3, 2.5)  # type: ignore[arg-type]


# --- the fleet of the study, and what it finds

TEN = (0, 1, 4, 5, 8, 9, 12, 13, 16, 17)
"""Drawn cases of every kind."""


def test_people_who_do_not_think_are_a_closed_loop() -> None:
    spec = EngineSpec(max_num_seqs=64)
    shape = Shape.of(256, 32)
    fleet = study.Fleet(spec, shape, 1, 1e-4, "exponential", 1).run(16, 3000)
    loop = closed_loop_arrays(spec, shape, 16, requests=3000)
    assert fleet.rate == pytest.approx(len(loop.sent) / loop.window.length, rel=0.05)
    assert fleet.in_flight == pytest.approx(16, rel=0.02)


def test_a_fleet_serves_people_as_the_response_time_law_says() -> None:
    fleet = study.Fleet(EngineSpec(max_num_seqs=64), Shape.of(256, 32), 3, 5.0, "lognormal", 1).run(200, 6000)
    assert fleet.rate * (float(fleet.e2e.mean()) + 5.0) == pytest.approx(200, rel=0.06)


def test_the_tables_of_the_study_count_what_holds() -> None:
    results = [
        {
            "family": "plain",
            "replicas": 1,
            "binding": "p99_ttft",
            "people": 90,
            "most": most,
            "holds": {"exponential": most >= 90, "lognormal": True},
            "mean_holds": False,
        }
        for most in (100, 100, 80)
    ]
    assert "| all | 3 | 3 | 66.7% | 100.0% | " in study.tables(results)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("drawn", [8, pytest.param(40, marks=pytest.mark.nightly)])
def test_a_promised_head_count_keeps_the_sla_and_is_near_the_most(tmp_path: Path, drawn: int) -> None:
    file = tmp_path / "people.jsonl"
    command = [sys.executable, "-m", "benchmarks.people", "--deployments", str(drawn), "--results", str(file)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=1400)
    results = study.known(file)
    assert len(results) == drawn
    # 95% are asked for: it fails when fewer are sure.
    answered = [r for r in results if r["people"]]
    for law in study.LAWS:
        assert clopper_pearson(sum(r["holds"][law] for r in answered), len(answered), 0.99)[1] >= 0.95
    assert np.median([study.share(r) for r in results]) >= 0.85
    # The mean alone (N = X (R + Z)) breaks the SLA nearly always.
    assert sum(r["mean_holds"] for r in results) < 0.3 * drawn


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("drawn", [(0, 5, 13, 16), pytest.param(TEN, marks=pytest.mark.nightly)])
def test_people_counted_by_a_rate_that_holds_keep_the_sla(drawn: tuple[int, ...]) -> None:
    """A rate of (nearly) Poisson arrivals that keeps the SLA with some room stands for a proof;
    think times of both kinds. 3,000 people who seldom ask are as good as a Poisson process.
    """
    kept = []
    for number in drawn:
        case, _, decision, _ = study.drawn(number)
        cap = decision.load or 1
        rate = 0.95 * decision.metrics["request_throughput"].value
        alone = dataclasses.replace(case, replicas=1)
        while True:
            crowd = dataclasses.replace(alone, think=3000 / rate, law="exponential").served(cap, 3000, 5000)
            if all(crowd.late(limit) <= 0.8 * (1 - (limit.of.p or 0)) for limit in case.limits):
                break
            rate *= 0.93
        people = Verified(rate, float(crowd.e2e.mean())).head_count(case.think, 1).people
        served = (dataclasses.replace(alone, law=law).served(cap, people, 5000, seed=3) for law in study.LAWS)
        kept += [each.keeps(case.limits) for each in served]
    assert sum(kept) >= len(kept) - 1


# --- the study of independent arrivals


@pytest.mark.slow
@pytest.mark.parametrize("drawn", [(0, 3, 13), pytest.param((0, 1, 3, 8, 13, 15), marks=pytest.mark.nightly)])
def test_the_estimated_rate_holds_and_is_near_the_highest(drawn: tuple[int, ...]) -> None:
    """Deployments without pauses, which a window cannot miss: none of the estimates is broken."""
    results = [arrivals.deployment(number) for number in drawn]
    assert all(result["estimated"] and arrivals.holds(result) for result in results)
    assert np.median([result["estimated"] / arrivals.most(result) for result in results]) > 0.65


def test_the_tables_of_that_study_count_what_holds() -> None:
    curve = [(0.5, 0.1), (0.6, 0.5), (0.7, 2.0)]
    rows = [{"family": "plain", "estimated": share, "curve": curve} for share in (0.5, 0.6, 0.69, None)]
    assert 0.6 < arrivals.most(rows[0]) < 0.7
    assert [arrivals.holds(row) for row in rows[:3]] == [True, True, False]
    assert arrivals.most({"curve": [(0.1, 3.0)]}) == 0.0
    cells = arrivals.tables(rows).splitlines()[2].split(" | ")
    assert cells[:4] == ["| all", "4", "3", "2"]


@pytest.mark.parametrize("sla", ["p99_ttft<=50ms", "p95_ttft<=45ms"])
def test_one_rate_of_independent_users_in_answer_page_and_check(sla: str, tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"], requests=120, repeats=10)
    run, _, _ = sweep_in_virtual_time(tmp_path / "run", text)
    limits = parse_sla(sla)
    (answer,) = run.answers([("asked", limits)])
    (rate,) = answer.arrivals.values()
    said = " ".join(text for _, text in report_of(run, limits).views[0].answer.whole)
    assert f"about {trimmed(format_number(rate.rate))} requests/s" in said
    assert [rate.rate] == [search.policy.start for search in open_loop_check.searches(run, limits)]
