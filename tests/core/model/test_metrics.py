import math
import re
from dataclasses import replace

import numpy as np
import pytest

from frontier.core.estimates.estimate import estimate
from frontier.core.model.decisions import Limit
from frontier.core.model.metrics import _PLAIN, DEFAULT_METRICS, NEEDS, Unit, claim_floor, metric
from frontier.core.model.points import Estimate, Power
from frontier.core.window.window import BLOCKS
from frontier.show.view.axis_units import display, display_one
from frontier.uncertainty import replicates
from tests.kit.made import Server, trial


@pytest.mark.parametrize(
    ("name", "quantity", "p"),
    [("p99_ttft", "ttft", 0.99), ("p50_tpot", "tpot", 0.5), ("p99.9_e2e", "e2e", 0.999), ("mean_itl", "itl", None)],
)
def test_a_latency_metric_is_a_statistic_of_a_quantity(name: str, quantity: str, p: float | None) -> None:
    found = metric(name)
    assert (found.quantity, found.p, found.unit, found.better) == (quantity, p, Unit.SECONDS, "lower")


def test_interactivity_inverts_a_percentile_of_tpot() -> None:
    found = metric("p99_interactivity")
    assert (found.quantity, found.p, found.inverted, found.better) == ("tpot", 0.99, True, "higher")


def test_a_mistyped_metric_is_answered_with_the_right_one() -> None:
    with pytest.raises(ValueError, match="did you mean 'p99_ttft'"):
        metric("p99_tfft")


@pytest.mark.parametrize("name", ["p0_ttft", "p100_ttft", "median_ttft", "p99_", "ttft", "mean_interactivity"])
def test_what_is_not_a_metric_is_refused(name: str) -> None:
    with pytest.raises(ValueError):
        metric(name)


def test_every_default_metric_exists() -> None:
    assert [metric(name).name for name in DEFAULT_METRICS] == list(DEFAULT_METRICS)


@pytest.mark.parametrize(("p", "floor"), [(0.5, 30), (0.95, 200), (0.99, 1000), (0.999, 10_000)])
def test_a_claim_about_a_rarer_percentile_needs_more_requests(p: float, floor: int) -> None:
    assert claim_floor(p) == floor


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("P99_TTFT", "'p99_ttft'"),
        ("ttft_p99", "'p99_ttft'"),
        ("p99ttft", "'p99_ttft'"),
        ("99_tpot", "'p99_tpot'"),
        ("median_ttft", "'p50_ttft'"),
        ("avg_tpot", "'mean_tpot'"),
        ("p95_latency", "'p95_e2e'"),
        ("p99_e2el", "'p99_e2e'"),
        ("itl_mean", "'mean_itl'"),
        ("p99_ttft_ms", "'p99_ttft'"),
        ("tokens_per_second", "'output_throughput'"),
        ("p0_ttft", "p1 to p99.99"),
        ("p100_tpot", "p99.9_tpot"),
        ("p999_e2e", "p1 to p99.99"),
        ("max_tpot", "p1 to p99.99"),
        ("p99.999_itl", "p99.9_itl"),
        ("ttft", "p99_ttft"),
        ("interactivity", "p50_interactivity"),
    ],
)
def test_a_name_written_otherwise_leads_to_the_metric(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"unknown metric {name!r}")) as caught:
        metric(name)
    assert hint in str(caught.value)
    for offered in re.findall(r"\b(?:p[\d.]+|mean)_[a-z0-9]+", str(caught.value).partition("; ")[2]):
        assert offered == metric(offered).name


@pytest.mark.parametrize(
    ("name", "better", "worse"), [("p99_ttft", 0.2, 0.4), ("output_throughput", 40.0, 20.0), ("cost", 1.0, 2.0)]
)
def test_a_metric_knows_which_of_two_values_is_better(name: str, better: float, worse: float) -> None:
    found = metric(name)
    assert found.improves(better, worse)
    assert not found.improves(worse, better)
    assert not found.improves(better, better)
    assert not found.improves(better, math.nan)
    assert (found.best([worse, better]), found.worst([better, worse])) == (better, worse)
    assert found.sign * better > found.sign * worse
    assert found.improves(better, found.worst_possible)
    assert found.worsening(better, worse) == 2.0


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("p99_ttft", 0.5, "500 ms"),
        ("p99_ttft", 1.5, "1.5 s"),
        ("error_rate", 0.01, "1%"),
        ("cost", 0.5, "$0.5/Mtok"),
        ("output_throughput", 2850.0, "2,850 tok/s"),
    ],
)
def test_a_limit_is_written_without_trailing_zeros(name: str, value: float, text: str) -> None:
    assert metric(name).format_trimmed(value) == text


def test_a_scale_serves_all_values_of_an_axis_or_one_value_of_a_text() -> None:
    assert display("p99_ttft", [0.5, math.inf, 0.0, 30.0]) == (1e3, "ms")
    assert display("p99_ttft", [1.0, 2.0]) == (1.0, "s")
    assert display("p99_ttft", [0.5, 61.0]) == (1.0, "s")
    assert display("p99_ttft", []) == (1e3, "ms")
    assert display("p99_interactivity", [5.0]) == (1.0, "tok/s/user")
    assert display("request_throughput", [5.0], 8) == (1 / 8, "req/s")
    assert display_one("p99_ttft", 0.0005) == (1e6, "µs")
    assert display_one("p99_ttft", math.inf) == (1.0, "s")
    assert display_one("error_rate", 0.5) == (100.0, "%")


def test_each_metric_is_estimated_and_drawn_by_one_entry() -> None:
    """All that `_PLAIN` names has a value of a window that knows everything, and for its draws the
    same on average.
    """
    bare = Server(lambda c: 0.005 * c, lambda c: 0.01, seed=3).run(trial(8, requests=400))
    bare = replace(bare, pace=np.where(np.arange(bare.n) % 2, 3.0, 9.0), cached_tokens=bare.prompt_tokens / 4)
    apart = Estimate(0.9, 0.9, 0.9, 1)
    behind = np.linspace(90.0, 110.0, BLOCKS)
    given = {"power_rule": lambda _: Power(700.0, "stated"), "quality": apart, "agreement": apart}
    sample = replace(bare, **given, background_tokens=behind)
    limits = (Limit("p99_ttft", 0.05), Limit("p99_tpot", 0.02))
    for name in _PLAIN:
        value = estimate(sample, name, limits=limits, price=3.0)
        assert value is not None, name
        drawn = replicates({8: sample}, (name, "p50_ttft"), limits=limits, price=3.0, draws=50).gain
        assert value.value == pytest.approx(drawn.mean(), rel=0.05), name
    assert set(NEEDS) == {name for name in _PLAIN if estimate(bare, name) is None}
