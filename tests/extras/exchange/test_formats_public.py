"""Public files of other tools: the load and the figures that their own text states, or the reason
why not."""

import pytest

from frontier.core.model.loads import POISSON, Rate
from frontier.core.model.points import Point
from frontier.core.model.shapes import Shape
from tests.kit.peer_files import assembled


def points(name: str, shape: str | None = None) -> dict[tuple[str, int], Point]:
    found = assembled(f"public/{name}", shape=None if shape is None else Shape.parse(shape)).points
    return {(point.shape.label, point.load): point for point in found}


def test_guidellm_0_3_states_its_counts_and_lengths() -> None:
    """Its throughput profile was read as 0 tok/s once."""
    ((key, point),) = points("guidellm-0.3.json").items()
    assert (("512/128", 423), 1000) == (key, point.n)
    assert 644.5 == pytest.approx(point.value("output_throughput"), abs=0.05)
    assert 5.035 == pytest.approx(point.value("request_throughput"), abs=1e-3)


def test_a_summary_of_guidellm_has_rates_and_means_in_flight() -> None:
    mine = assembled("public/guidellm-0.5-summary.csv").points
    assert {1, 4, 16, 64, 509, Rate.of(2.6), Rate.of(5), Rate.of(18)} == {point.load for point in mine}
    fives = {point.n: str(point.shape.arrivals) for point in mine if point.load == Rate.of(5)}
    assert {281: "evenly spaced", 335: "Poisson"} == fives
    assert [509] == [point.load for point in mine if not point.valid]


def test_guidellm_0_8_at_rates() -> None:
    assert [("32/8", Rate.of(2)), ("32/8", Rate.of(4))] == sorted(points("guidellm-0.8.json"))


def test_aiperf_at_a_rate_and_at_a_concurrency() -> None:
    ((key, rated),) = points("aiperf-0.10-rate.json").items()
    assert (Rate.of(0.8), POISSON) == (key[1], rated.shape.arrivals)
    assert (0.2155, 175.9, 96) == pytest.approx(
        (rated.value("p99_ttft"), rated.value("output_throughput"), rated.n), rel=1e-3
    )
    ((key, closed),) = points("aiperf-0.11-c16.json", "300/256").items()
    assert (16, 2044, True) == (key[1], closed.n, closed.valid)
    assert 0.06676 == pytest.approx(closed.value("p99_ttft"), rel=1e-3)
    assert 1792.2 == pytest.approx(closed.value("output_throughput"), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "loads", "excluded"),
    [
        ("deepseek_dp_mla_output", {10_000}, set()),
        ("llama_3_3_70b_offline_output", {800, 1500, 2000, 3000, 4000, 6000}, {800, 1500, 2000, 3000, 4000, 6000}),
        ("llama_3_3_70b_online_output", {Rate.of(r) for r in (1, 2, 4, 8, 16)}, set()),
        ("llama_405b_online_output", {Rate.of(r) for r in (1, 2, 4, 8)}, set()),
    ],
)
def test_sglang_0_4_sends_all_at_once_or_at_rates(name: str, loads: set[int], excluded: set[int]) -> None:
    """A burst is no steady concurrency: its rate x E2E is far below it."""
    mine = points(f"sglang-0.4-{name}.jsonl")
    assert loads == {load for _, load in mine}
    assert excluded == {load for (_, load), point in mine.items() if not point.valid}


def test_a_rate_that_is_not_served_is_overload() -> None:
    mine = points("sglang-0.4-llama_405b_online_output.jsonl")
    flagged = {
        load.per_second
        for (_, load), p in mine.items()
        if any(f.name == "overloaded" for f in p.flags) and isinstance(load, Rate)
    }
    assert {8.0} == flagged


def test_tokens_that_are_counted_twice_exclude_a_stage() -> None:
    ((key, point),) = points("inference-perf-stage.json").items()
    assert Rate.of(170.24) == key[1]
    assert {"identity"} == {flag.name for flag in point.flags if flag.fatal}


def test_a_report_of_llm_d_0_1_states_its_rate() -> None:
    ((key, point),) = points("llm-d-0.1.yaml").items()
    assert (Rate.of(1.34), 32) == (key[1], point.n)


def test_an_input_throughput_of_single_requests_is_not_that_of_all() -> None:
    """genai-bench once wrote the mean of each request's own, far above the total."""
    ((key, point),) = points("genai-bench.json").items()
    assert (("100/100", 1), {"output_throughput"}) == (
        key,
        {name for name in point.metrics if name.endswith("put_throughput")},
    )
    assert any("1,704" in note and "101.7" in note for note in point.notes)
