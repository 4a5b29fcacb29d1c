"""The short form of the calibration study: it fails when a guarantee breaks, not when luck is
bad."""

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.calibration import budgets, others, tables
from benchmarks.calibration.__main__ import known
from benchmarks.calibration.rules import GRID
from benchmarks.calibration.servers import (
    FAMILIES,
    Convoys,
    Engine,
    Law,
    Process,
    RareStalls,
    Wander,
    make_trial,
    stalls_met,
)
from benchmarks.calibration.servers import (
    Path as SpeedPath,
)
from benchmarks.calibration.sweep import answer_first
from frontier.core.model.decisions import Limit
from frontier.core.model.trials import Phase
from frontier.core.stats import stationarity
from frontier.core.stats.intervals import clopper_pearson
from tests.kit.places import ROOT


@pytest.mark.slow
@pytest.mark.timeout(3100)
@pytest.mark.parametrize("drawn", [14, pytest.param(110, marks=pytest.mark.nightly)])
def test_over_drawn_deployments_no_guarantee_is_surely_broken(drawn, tmp_path):
    """One test, as each process of the tests would run the study anew. Nine times in ten it finds a
    rule whose answers break the SLA in 40% of cases with 14 deployments, one of each family, and in
    15% with 110.
    """
    file = tmp_path / "results.jsonl"
    command = [sys.executable, "-m", "benchmarks.calibration", "--deployments", str(drawn), "--results", str(file)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=3000)
    results = known(file)
    no_requirement_of_an_answer_is_surely_missed(results)
    point_values_alone_would_break_it_far_more_often(results)
    an_infeasible_deployment_never_gets_an_operating_point(results)
    published_intervals_hold_the_truth_about_as_often_as_they_say(results)


def no_requirement_of_an_answer_is_surely_missed(results):
    asked = tables.requirements(results)
    assert len(asked) > 20
    # Shares are goals, not all of which are met: docs/validation/calibration.md says by how much.
    # Intervals are many, and those of a deployment alike: they are judged below.
    required = [r for r in asked if "share of best" not in r.name and "coverage" not in r.name]
    assert [] == [(r.name, r.got) for r in required if r.broken(0.99)]
    exists = [r for r in results if r["best"] is not None]
    assert np.median([r["rules"][tables.SHIPPED]["share"] for r in exists]) > 0.75


def point_values_alone_would_break_it_far_more_often(results):
    s = tables.summary(results, "bisection on the value")
    assert clopper_pearson(s["broken"], s["answers"], 0.99)[0] > 0.05


def an_infeasible_deployment_never_gets_an_operating_point(results):
    answers = [
        r["rules"][rule] for r in results if r["family"] == "infeasible" for rule in tables.OURS if rule in r["rules"]
    ]
    assert answers
    assert all(a["c"] is None and a["early_c"] is None for a in answers)


def published_intervals_hold_the_truth_about_as_often_as_they_say(results):
    counted = [r for r in results if r["family"] in tables.FIRST]
    for name, (nominal, held, n, _) in tables.coverage(counted).items():
        goal = 0.87 if nominal == "90%" else 0.93
        # Below its goal for sure only when the one-sided 99.9% bound is: a dozen and more are
        # looked at.
        assert clopper_pearson(held, n, 0.999)[1] >= goal, (name, held, n)


LAW = Law(
    tpot=8e-3,
    tpot_half=40,
    tpot_power=1.0,
    ttft=0.1,
    ttft_half=20,
    ttft_power=1.0,
    osl=64,
    osl_cv=0.2,
    tpot_noise=0.05,
    ttft_noise=0.2,
    shared_noise=0.05,
    memory=0.5,
    run_effect=0.0,
    error_rate=0.0,
)


def direct(server, c, n, moments):
    """A slow twin of the truth: the requests of runs begun at these moments of a night, and
    requests per second.
    """
    parts, count, lasted = [], 0, 0.0
    for run, at in enumerate(moments):
        rng = np.random.default_rng([17, run])
        sent, first, end, tokens, _, edges, _ = server.timeline(c, n, rng, when=(3, at))
        inside = (sent >= edges[0]) & (sent < edges[1])
        parts.append(np.stack([first - sent, (end - first) / (tokens - 1), end - sent])[:, inside])
        count, lasted = count + inside.sum(), lasted + edges[1] - edges[0]
    return dict(zip(("ttft", "tpot", "e2e"), np.concatenate(parts, axis=1), strict=True)), count / lasted


@pytest.mark.parametrize(("phase", "limit"), [("ttft", 0.8), ("e2e", 3.0), ("tpot", 0.05)])
def test_the_truth_of_rare_stalls_is_that_of_many_runs(phase, limit):
    law = dataclasses.replace(LAW, rare=RareStalls(0.02, 4.0, phase))
    server = Process(law, "rare_stalls", (Limit(f"p99_{phase}", limit),), 1)
    true, (columns, rate) = server.truth(16), direct(server, 16, 1000, range(150))
    assert true["touched"] == pytest.approx(0.02, rel=0.05)
    assert server.touched(16) == true["touched"]
    assert 1 - true["attainment"] == pytest.approx((columns[phase] > limit).mean(), rel=0.1)
    assert 1 - true["attainment"] == pytest.approx(true["touched"], rel=0.05)
    assert true["request_throughput"] == pytest.approx(rate, rel=0.03)
    assert true[f"p99_{phase}"] > limit > true[f"p95_{phase}"]


def test_stalls_met_are_those_of_a_poisson_process():
    spans = np.repeat([0.5, 2.0], 20_000)
    met = stalls_met(spans, 4.0, np.random.default_rng(0))
    for span in (0.5, 2.0):
        mean = span / 4
        share = np.bincount(met[spans == span].astype(int), minlength=3)[:3] / 20_000
        assert share == pytest.approx([math.exp(-mean) * mean**k / math.factorial(k) for k in range(3)], abs=0.01)


def test_rare_stalls_are_drawn_to_push_a_request_at_the_edge_over_its_limit():
    for seed in range(4):
        server = Process.drawn("rare_stalls", seed)
        rare = server.law.rare
        assert 0.001 <= rare.share <= 0.03
        assert server.truth(8)["touched"] == pytest.approx(rare.share, rel=0.05)
        quantities = {limit.metric.split("_")[1] for limit in server.limits}
        assert quantities == {rare.phase} or len(quantities) == 2
        within = server.truth(1)["attainment"]
        assert within == pytest.approx(1 - rare.share, abs=0.6 * rare.share + 0.01)


def test_the_truth_of_a_wandering_speed_is_that_of_many_moments():
    law = dataclasses.replace(LAW, wander=Wander(0.2, 2.0))
    server = Process(law, "noisy", (), 1)
    true, (columns, rate) = server.truth(16), direct(server, 16, 100, np.arange(3000) * 40.0)
    for name, values in columns.items():
        for p in (50, 95, 99):
            assert true[f"p{p}_{name}"] == pytest.approx(np.quantile(values, p / 100), rel=0.03), (name, p)
    assert true["request_throughput"] == pytest.approx(rate, rel=0.02)
    assert true["p99_tpot"] > 1.2 * Process(LAW, "noisy", (), 1).truth(16)["p99_tpot"]


def test_a_wandering_speed_is_one_path_over_a_night():
    quiet = dataclasses.replace(LAW, tpot_noise=0.0, shared_noise=0.0, wander=Wander(0.2, 300.0))
    server = Process(quiet, "noisy", (), 1)
    speed = SpeedPath(quiet.wander, [1, 31, 2])
    paces = []
    for number, at in enumerate((20_000.0, 0.0, 400.0, 410.0, 5_000.0)):
        found = server.trial(make_trial(server, 8, Phase.GRID, 1, 100), 200_000 + number, at)
        assert found.starts[0] == pytest.approx(2e9 + at, abs=60)
        paces.append(found.tpot.mean() / server.medians(8)[0])
        moments = speed.work(found.starts[0] - 2e9) + np.array([0.0, 10.0])
        assert paces[-1] == pytest.approx(np.diff(speed.at(moments))[0] / 10, rel=0.05)
    assert paces[2] == pytest.approx(paces[3], rel=0.05)
    assert max(paces) / min(paces) > 1.1


def test_a_path_does_not_depend_on_how_it_is_asked_for():
    one, other = SpeedPath(Wander(0.2, 1.0), [1]), SpeedPath(Wander(0.2, 1.0), [1])
    early = one.at(np.array([3.0, 7.5]))
    other.at(np.array([50_000.0]))
    assert early == pytest.approx(other.at(np.array([3.0, 7.5])))
    work = np.linspace(0, 40_000, 200_001)
    clock = other.at(work)
    assert [other.work(t) for t in clock[::20_000]] == pytest.approx(work[::20_000].tolist(), abs=1e-6)
    pace = np.log(np.diff(clock) / np.diff(work)) + 0.02
    assert np.diff(clock).sum() / 40_000 == pytest.approx(1, abs=0.01)
    assert pace.std() == pytest.approx(0.2, rel=0.1)
    lag = np.corrcoef(pace[:-5], pace[5:])[0, 1]  # a correlation time later
    assert lag == pytest.approx(math.exp(-1), abs=0.08)


def test_fixed_lengths_run_in_convoys_whose_requests_are_alike():
    law = dataclasses.replace(LAW, osl_cv=0.0, convoys=Convoys(2, 0.9, 0.9, 0.01))
    server, c = Process(law, "fixed_lengths", (), 1), 32
    found = server.trial(make_trial(server, c, Phase.GRID, 1, 640), 1)
    assert set(found.completion_tokens) == {64}
    assert found.in_flight.mean() == pytest.approx(c, rel=1e-6)
    sends = stationarity.dispersion(found.sent, found.starts[0], found.ends[0], found.e2e.mean())
    assert sends.value > 4
    alone = Process(dataclasses.replace(law, convoys=None), "smooth", (), 1)
    apart = alone.trial(make_trial(alone, c, Phase.GRID, 1, 640), 1)
    assert stationarity.dispersion(apart.sent, apart.starts[0], apart.ends[0], apart.e2e.mean()).value < 2
    rounds = [np.log(x.ttft[: 20 * c].reshape(20, c)).mean(axis=1).std() for x in (found, apart)]
    assert rounds[0] > 2 * rounds[1]  # what a convoy shares does not average out over its requests
    assert server.truth(c)["mean_e2e"] == pytest.approx(alone.truth(c)["mean_e2e"], rel=0.03)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_window_may_end_by_time(family):
    server = Process.drawn(family, 2)
    whole = server.trial(make_trial(server, 8, Phase.GRID, 1, 3000), 1)
    length = float((whole.ends - whole.starts)[0])
    part = server.trial(make_trial(server, 8, Phase.GRID, 1, 3000, seconds=length / 10), 1)
    assert float((part.ends - part.starts)[0]) == pytest.approx(length / 10)
    assert 3000 * 0.05 < part.n < 3000 * 0.2
    more = server.trial(make_trial(server, 8, Phase.GRID, 1, 3000, seconds=10 * length), 1)
    assert more.n == whole.n == 3000


@pytest.mark.parametrize(("concurrency", "requests"), [(1, 40), (32, 128), (128, 854)])
def test_streams_of_heavy_tails_have_requests_until_the_window_ends(concurrency, requests):
    server = Process.drawn("heavy_tail", 16)
    found = server.trial(make_trial(server, concurrency, Phase.PROVE, 1, requests), 1)
    assert found.in_flight.mean() == pytest.approx(concurrency, rel=0.01)


@pytest.mark.nightly
@pytest.mark.timeout(1500)
def test_under_short_budgets_deployments_are_answered_as_often_as_the_page_says():
    """Two of each kind. docs/validation/calibration.md has 55 of 86 after five times the reference;
    fewer than 8 of 22 would then be found in 0.2% of cases.
    """
    found = [budgets.job(seed)["by_times"] for seed in range(2 * len(budgets.DRAWN))]
    answered = [one for each in found for one in each.values() if one["answer"] is not None]
    assert sum(each["5"]["answer"] is not None for each in found if each) >= 8
    assert sum(one["excess"] > 1 for one in answered) <= 2
    assert f"of {sum(map(bool, found))} " in budgets.table([{"by_times": each} for each in found])


TRIALS = 60
"""Trials of an engine whose values are held against its truth: 30,000 requests."""


@pytest.mark.slow
@pytest.mark.parametrize("family", ["fixed_lengths", "noisy", "rare_stalls"])
def test_the_truth_of_an_engine_is_that_of_many_trials(family):
    server = Engine.drawn(family, 1)
    trials = [server.trial(make_trial(server, 16, Phase.GRID, 1, 500), 1 + i, i * 2000.0) for i in range(TRIALS)]
    true = server.truth(16)
    for name in ("ttft", "tpot", "e2e"):
        values = np.concatenate([getattr(t, name) for t in trials])
        for p in (50, 95):
            assert true[f"p{p}_{name}"] == pytest.approx(np.nanquantile(values, p / 100), rel=0.05), (name, p)
    rate = sum(t.n for t in trials) / sum(float((t.ends - t.starts)[0]) for t in trials)
    assert true["request_throughput"] == pytest.approx(rate, rel=0.03)


def test_a_config_that_states_sizes_measures_its_grid_first_and_names_what_is_proven():
    server = Process(LAW, "stated_sizes", (Limit("p90_ttft", 0.9),), 1)
    server.requests = 300
    found = answer_first(server, 1)
    assert ["grid"] * len(GRID) == [line.split()[0] for line in found.trace[: len(GRID)]]
    assert 300 == int(found.trace[0].split("n=")[1])
    assert found.load is not None
    assert found.early_concurrency is not None
    assert found.early_seconds is not None
    assert 0 < found.early_seconds < found.seconds


def test_a_study_that_was_killed_goes_on_after_its_last_whole_line(tmp_path):
    file = tmp_path / "results.jsonl"
    file.write_text('{"seed": 1}\n{"seed": 2}\n{"se')
    assert [{"seed": 1}, {"seed": 2}] == known(file)
    assert '{"seed": 1}\n{"seed": 2}\n' == file.read_text()
    assert [] == known(tmp_path / "none")


def drawn(family, seed, *, c, excess, share, early=None, stage="final", touched=0.0, alone=0.5, best=9, seconds=60.0):  # noqa: PLR0913
    """A result as `study.deployment` makes it, every rule having said the same."""
    rule = {
        "c": c,
        "verdict": "meets",
        "requests": 100,
        "seconds": seconds,
        "excess": excess,
        "share": share,
        "early_c": early or c,
        "early_excess": excess,
        "early_share": share,
        "early_seconds": seconds / 2,
        "stage": stage,
        "turns": 400,
    }
    return {
        "kind": "process",
        "family": family,
        "seed": seed,
        "best": best,
        "alone": alone,
        "touched": touched,
        "reference": 10.0,
        "dense": 1000,
        "dense_seconds": 90.0,
        "rules": dict.fromkeys(tables.RULES, rule),
        "coverage": {"p99_ttft|runs alike": [seed != 1, None], "p50_ttft|runs differ": [None, None]},
    }


def test_the_tables_count_what_the_results_hold():
    results = [
        drawn("smooth", 0, c=8, excess=0.9, share=0.8),
        drawn("smooth", 1, c=8, excess=1.2, share=1.0),
        drawn("smooth", 2, c=8, excess=1.01, share=0.9, seconds=400.0),
        drawn("smooth", 3, c=None, excess=None, share=0.0, alone=0.96),  # within 5% of one user's: need not be found
        drawn("smooth", 4, c=None, excess=None, share=0.0),
        drawn("smooth", 5, c=None, excess=None, share=None, best=None),
        drawn("rare_stalls", 6, c=4, excess=0.9, share=1.0, touched=0.002),
        drawn("rare_stalls", 7, c=4, excess=2.0, share=1.0, touched=0.02, stage="early", best=None),
        drawn("rare_stalls", 8, c=4, excess=2.0, share=1.0, touched=0.005),  # should not be found, and was
    ]
    s = tables.summary(results, tables.SHIPPED)
    wanted = {"should": 5, "answered": 4, "answers": 5, "broken": 3, "beyond": 2, "share": 0.9, "share_2": 3.7 / 6}
    assert wanted == pytest.approx({key: s[key] for key in wanted})
    assert [3.0, 20.0, 6.0, 40.0] == pytest.approx([s[key] for key in ("early", "early_2", "end", "end_2")])
    first = tables.summary(results, tables.SHIPPED, announced=True)
    assert [4, 3, 2] == [first[key] for key in ("answered", "answers", "broken")]  # no claim is final yet
    text = tables.tables(results)
    assert (
        "| answer first | 80.0% (4) | 5 | 60.0% (3) | 40.0% (2) | 90% (62%) | 3.0 (20.0) | 6.0 (40.0) | 100 |" in text
    )
    assert "| rare stalls | 3 | 100.0% (1) | 2 | 50.0% (1) | 2.5% | 50.0% (1) | 100% (100%) | 3.0 (3.0) |" in text
    assert "| above 1% | 1 | 1 | 100.0% (1) | 0 | – | 400 |" in text
    assert ("95%", 5, 6, 6) == tables.coverage(results[:6])["p99, runs alike"]


def test_a_requirement_is_missed_as_observed_and_surely_missed_by_its_bound():
    good = [drawn("smooth", i, c=8, excess=0.9, share=0.95, seconds=20.0) for i in range(95)]
    bad = [drawn("cliff", i, c=8, excess=1.2, share=0.8, seconds=2000.0) for i in range(95, 101)]
    met = {r.name: (r.ok, r.broken()) for r in tables.requirements([*good, *bad])}
    assert met == {
        "break the SLA": (False, False),  # 6 of 101 is more than 5%, but not surely
        "by over 5%": (False, True),
        "smooth: break the SLA": (True, False),
        "cliff: break the SLA": (False, True),
        "cliff: share of best, median": (False, False),  # six of six below may be chance
        "smooth: share of best, median": (True, False),
        "minutes over reference, median": (True, False),
        "minutes over reference, 90th percentile": (True, False),
        "share of best, median": (True, False),
        "answered where it should": (True, False),
        "lowest coverage of an interval": (True, False),
    }
    slow = [*good[:50], *(drawn("smooth", i, c=None, excess=None, share=0.0, seconds=2000.0) for i in range(40))]
    met = {r.name: (r.ok, r.broken()) for r in tables.requirements(slow)}
    assert met == {
        "break the SLA": (True, False),
        "by over 5%": (True, False),
        "smooth: break the SLA": (True, False),
        "smooth: share of best, median": (True, False),
        "minutes over reference, median": (True, False),
        "minutes over reference, 90th percentile": (False, True),
        "share of best, median": (True, False),
        "answered where it should": (False, True),
        "lowest coverage of an interval": (True, False),
    }


def test_servers_that_no_family_draws_have_the_law_of_their_kind():
    law = dataclasses.replace(others.draw_law(np.random.default_rng(1), "smooth"), error_rate=0.0)

    def truth(kind, c):
        return others.Other(law, kind, (), 1)._long(c, 4, 400)

    assert truth("429 above 20", 40)["error_rate"] == 0.5 > truth("429 above 20", 20)["error_rate"] == 0.0
    pace, later = truth("range", 4), truth("chunks of 8 tokens", 4)
    assert later["p50_ttft"] == pytest.approx(pace["p50_ttft"] + 7 * pace["p50_tpot"], rel=0.1)
    assert truth("slow replica", 4)["p99_e2e"] > 1.02 * pace["p99_e2e"]
    gaps = truth("gaps between tokens", 4)
    assert gaps["p99_itl"] > gaps["p90_itl"] > gaps["p50_tpot"]
