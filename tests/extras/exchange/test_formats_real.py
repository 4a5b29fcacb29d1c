"""Real files of other tools say what their authors' pages say, in our names and units."""

import math

import pytest

from frontier.config import parse_sla
from frontier.core.claim import pareto
from frontier.core.claim.solver import solve
from frontier.core.claim.verdict import judge
from frontier.core.model.decisions import Verdict
from frontier.core.model.loads import Rate
from frontier.core.model.points import Point
from frontier.show.view.explain import with_notes
from tests.kit.golden import assert_golden_row
from tests.kit.peer_files import assembled


def points(*names: str) -> dict[int, Point]:
    return {p.load: p for p in assembled(*names).points}


def test_a_raw_result_of_inferencex_is_read_to_the_digit() -> None:
    point = points("inferencex-result/c4.json")[4]
    assert "1024/1024" == point.shape.label
    assert 40 == point.n
    value = {name: estimate.value for name, estimate in point.metrics.items()}
    assert 258.769951490635 == value["output_throughput"]
    assert 517.53990298127 == value["total_throughput"]
    assert pytest.approx(0.1799939913023263) == value["p99_ttft"]
    assert pytest.approx(0.10545016499236226) == value["p50_ttft"]
    assert pytest.approx(0.0154225127) == value["p99.9_tpot"]
    assert pytest.approx(15.810587048) == value["mean_e2e"]
    assert pytest.approx(1 / 0.0154156830) == value["p99_interactivity"]
    assert 0 == value["error_rate"]
    estimate = point.metrics["p99_ttft"]
    assert (-math.inf, math.inf, -math.inf, math.inf, 40) == (
        estimate.low,
        estimate.high,
        estimate.lower,
        estimate.upper,
        estimate.n,
    )
    assert not point.flags


def test_the_model_is_named_as_its_cache_folder_names_it() -> None:
    (deployment,) = assembled("inferencex-result/*").deployments
    assert ("MiniMaxAI-MiniMax-M2.5", "MiniMaxAI/MiniMax-M2.5", None) == (
        deployment.name,
        deployment.model,
        deployment.gpus,
    )


@pytest.mark.parametrize("against", ["p99_ttft", "p99_tpot", "p99_e2e"])
def test_all_of_minimax_is_on_every_frontier(against: str) -> None:
    members = pareto.frontier(assembled("inferencex-result/*").points, ("output_throughput", against)).members
    assert (4, 8, 16, 32, 64, 128, 256, 512) == members


def test_aggregates_decide_nothing_unless_asked_to() -> None:
    mine = assembled("inferencex-result/*").points
    limits = parse_sla("p99_ttft<=1s")
    undecided = solve(mine, limits)
    assert (Verdict.UNPROVEN, None) == (undecided.verdict, undecided.load)
    assert any("--point-estimates decides" in note for note in with_notes(undecided).notes)
    assert {judge(p, limits).need for p in mine} == {None}
    asked = solve(mine, limits, point_estimates=True)
    assert (Verdict.MEETS, 32, 64) == (asked.verdict, asked.load, asked.first_fail)
    assert 64 == solve(mine, parse_sla("p99_ttft<=2s"), point_estimates=True).last_pass


def test_a_result_in_seconds_is_told_from_one_in_milliseconds() -> None:
    mine = points("glm-5/*")
    assert [165, 294, 404, 648, 594, 663] == [round(mine[c].metrics["output_throughput"].value) for c in sorted(mine)]
    assert pytest.approx(2.077586938) == mine[16].metrics["p99_ttft"].value
    frontier = pareto.frontier(list(mine.values()), ("output_throughput", "p99_e2e"))
    assert (4, 8, 16, 32, 64) == frontier.members


def test_rates_per_gpu_become_those_of_the_deployment() -> None:
    mine = assembled("inferencex-agg/*")
    kimi = next(p for p in mine.points if p.load == 4)
    assert pytest.approx(8 * 27.678011491816765) == kimi.metrics["output_throughput"].value
    assert pytest.approx(0.5859901384473777) == kimi.metrics["p99_ttft"].value
    assert "p99_interactivity" in kimi.metrics
    assert {8} == {d.gpus for d in mine.deployments}
    assert 2 == len({p.deployment for p in mine.points}) == len(mine.deployments)


def test_requests_that_failed_are_infinite_and_said_to_be() -> None:
    agentic = next(p for p in assembled("inferencex-agg/*").points if p.load == 64 and p.n == 121)
    value = {name: estimate.value for name, estimate in agentic.metrics.items()}
    assert pytest.approx(53 / 121) == value["error_rate"]
    assert math.isinf(value["p99_ttft"])
    assert math.isinf(value["mean_ttft"])
    assert pytest.approx(285.6603789) == value["p50_ttft"]
    notes = "\n".join(agentic.notes)
    assert "53 of 121" in notes
    assert "416 s" in notes
    assert_golden_row("answers", notes)


def test_what_contradicts_itself_is_flagged() -> None:
    mine = points("inference-perf/*")
    assert {(True, False)} == {("identity" in {flag.name for flag in p.flags}, p.valid) for p in mine.values()}
    saturated = mine[max(mine)]
    assert pytest.approx(101.23196666) == saturated.metrics["request_throughput"].value
    rate = next(flag for flag in saturated.flags if flag.name == "under_rate")
    assert "106.5 of 122.6" in rate.measured
    assert any("122.59 requests/s" in note for note in saturated.notes)
    assert Rate.of(122.59) == saturated.load
    assert any(f"{101.23196666 * 3.8440110167:.3g} in" in note for note in saturated.notes)
    assert "under_rate" not in {flag.name for flag in mine[min(mine)].flags}


def test_observed_lengths_that_hardly_differ_are_one_shape() -> None:
    assert 1 == len({p.shape for p in assembled("inference-perf/*").points})


def test_llmperf_gives_first_token_and_end_but_no_tpot() -> None:
    mine = points("llmperf/*")
    assert [1, 16, 64] == sorted(mine)
    sixteen = mine[16]
    value = {name: estimate.value for name, estimate in sixteen.metrics.items()}
    assert ("550/159", 112) == (sixteen.shape.label, sixteen.n)
    assert pytest.approx(7.9380509024) == value["p99_ttft"]
    assert pytest.approx(18.0696061956) == value["mean_e2e"]
    assert pytest.approx(124.2927556359) == value["output_throughput"]
    assert pytest.approx(46.8214203639 / 60) == value["request_throughput"]
    assert not any("tpot" in name or "itl" in name for name in value)
    assert sixteen.valid
