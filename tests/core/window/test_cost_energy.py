import dataclasses
import math

import numpy as np
import pytest

from frontier import uncertainty
from frontier.core.claim import solver
from frontier.core.estimates import estimate
from frontier.core.model.decisions import Limit
from frontier.core.model.points import Estimate, Point
from frontier.core.window import cost_energy
from frontier.extras.present.evidence_tables import cost_tables
from frontier.planning import sla_result
from frontier.show.view import costs
from frontier.show.view.json_out import points_json
from frontier.show.view.series_view import series_views
from tests.kit.made import SHAPE, Server, trial


def test_a_dollar_an_hour_at_a_million_tokens_an_hour_is_a_dollar_per_million():
    throughput = Estimate(1e6 / 3600, 900e3 / 3600, 1.2e6 / 3600, 20, 950e3 / 3600, 1.1e6 / 3600)
    e = cost_energy.cost(throughput, 1.0)
    assert 1.0 == pytest.approx(e.value)
    assert (1 / 1.2, 1 / 0.9) == pytest.approx((e.low, e.high))
    assert (1 / 1.1, 1 / 0.95) == pytest.approx((e.lower, e.upper))
    assert 20 == e.n


def test_a_bound_that_is_not_known_stays_not_known():
    e = cost_energy.cost(Estimate.without_interval(1000, 0), 3.6)
    assert (1.0, -math.inf, math.inf) == (e.value, e.low, e.high)
    nothing = cost_energy.cost(Estimate(0.0, 0.0, 0.0, 20), 1.0)
    assert math.inf == nothing.value


def test_a_point_has_a_cost_where_a_price_is_known():
    sample = Server(ttft=lambda c: 0.01 * c).run(trial(8, requests=500))
    assert "cost" not in estimate.point(sample).metrics
    metrics = estimate.point(sample, price=2.5).metrics
    assert metrics["cost"] == cost_energy.cost(metrics["output_throughput"], 2.5)


def test_deployments_are_compared_each_at_its_own_operating_point():
    limits = [Limit("p99_ttft", 0.5)]

    def decided(name, throughput, price, ttft=0.1):
        metrics = {"p99_ttft": Estimate(ttft, ttft, ttft, 2000, ttft, ttft), "output_throughput": throughput}
        metrics["cost"] = cost_energy.cost(throughput, price)
        point = Point(name, SHAPE, 8, metrics, 2000)
        return solver.solve([point], limits)

    fast = decided("fast", Estimate(2000, 1990, 2010, 20), 4.0)
    cheap = decided("cheap", Estimate(1000, 990, 1010, 20), 1.0)
    slow = decided("slow", Estimate(9000, 9000, 9000, 20), 1.0, ttft=0.9)  # never an operating point
    (found,) = sla_result.make_sla_result("", limits, (), [fast, cheap, slow]).cheapest
    assert ("cheap", True) == (found.decision.deployment, found.sure)
    close = dataclasses.replace(cheap, metrics={**cheap.metrics, "cost": Estimate(0.5, 0.27, 0.7, 20)})
    (found,) = sla_result.make_sla_result("", limits, (), [fast, cheap, close]).cheapest
    assert ("cheap", False) == (found.decision.deployment, found.sure)
    assert () == sla_result.make_sla_result("", limits, (), [slow, slow]).cheapest


def test_token_prices_are_those_computed_by_hand():
    """$12/h, 10,000 prompt tokens a second of which 20% come from the cache, 2,500 written."""
    by_hand = {
        "output tokens an hour": 9.0,  # millions: 2,500 x 3,600
        "`cost`": 1.333,  # $/Mtok: $12 over 9.0 M
        "output token": 0.733,  # $1.333 / 1.82: 4 prompt tokens for each, of 0.8 x 1/4 + 0.2 x 1/40 = 0.205 each
        "input token": 0.183,  # 1/4 of it
        "cached token": 0.0183,  # 1/40 of it
        "check": 12.0,  # $: 9.0 M x $0.733 + 28.8 M x $0.183 + 7.2 M x $0.0183 an hour
        "a month": 8760.0,  # $12 x 730
        "output token at 50% busy": 1.465,  # twice $0.733
        "output tokens a month at 50% busy": 3285.0,  # millions: 9.0 M x 730 / 2
    }
    made, read, share = (Estimate(v, v, v, 1000) for v in (2500.0, 10_000.0, 0.2))
    metrics = {"output_throughput": made, "input_throughput": read, "cached_share": share}
    metrics["cost"] = cost_energy.cost(made, 12.0)
    prices, half = costs.token_prices(metrics), costs.token_prices(metrics, 0.5)
    hourly = (9.0, prices.output), (28.8, prices.input), (7.2, prices.cached)
    computed = {
        "output tokens an hour": 2500 * 3600 / 1e6,
        "`cost`": metrics["cost"].value,
        "output token": prices.output.value,
        "input token": prices.input.value,
        "cached token": prices.cached.value,
        "check": sum(millions * price.value for millions, price in hourly),
        "a month": prices.per_month,
        "output token at 50% busy": half.output.value,
        "output tokens a month at 50% busy": half.output_tokens_per_month / 1e6,
    }
    assert computed.keys() == by_hand.keys()
    for step, figure in computed.items():
        assert by_hand[step] == pytest.approx(figure, rel=0.003), step
    assert 0.2 * costs.CACHED_PRICE + 0.8 * costs.INPUT_PRICE == pytest.approx(0.205)


def test_token_prices_need_a_price_and_both_counts_and_their_bounds_are_those_of_the_cost():
    sample = Server(ttft=lambda c: 0.01 * c).run(trial(8, requests=500))
    assert costs.token_prices(estimate.point(sample).metrics) is None
    metrics = dict(estimate.point(sample, price=2.5).metrics)
    prices = costs.token_prices(metrics)
    factor = prices.output.value / metrics["cost"].value
    assert metrics["cost"].scaled(factor).high == pytest.approx(prices.output.high)
    assert 0 < factor < 1
    del metrics["cached_share"]
    assert costs.token_prices(metrics).cached is None
    del metrics["input_throughput"]
    assert costs.token_prices(metrics) is None


@pytest.mark.parametrize("part", [0.0, 0.5])
def test_the_cached_share_is_that_of_the_tokens(part):
    rng = np.random.default_rng(3)
    sample = Server(ttft=lambda c: 0.01 * c).run(trial(8, requests=500))
    cached = np.rint(sample.prompt_tokens * part * rng.uniform(0.5, 1.5, sample.n))
    cached[::50] = np.nan
    sample = dataclasses.replace(sample, cached_tokens=cached)
    found = estimate.estimate(sample, "cached_share")
    known = ~np.isnan(cached)
    assert float(cached[known].sum() / sample.prompt_tokens[known].sum()) == pytest.approx(found.value)
    assert found.low <= found.value <= found.high <= 1.0
    drawn = uncertainty.replicates({8: sample}, ("output_throughput", "cached_share"))
    assert float(drawn.price.mean()) == pytest.approx(found.value, rel=0.02)
    unknown = dataclasses.replace(sample, cached_tokens=np.full(sample.n, np.nan))
    assert estimate.estimate(unknown, "cached_share") is None
    beyond = estimate.estimate(dataclasses.replace(sample, cached_tokens=1.5 * sample.prompt_tokens), "cached_share")
    assert beyond.low == beyond.value == beyond.high == 1.0


def test_the_page_has_the_prices_of_the_operating_point_by_how_busy_it_is():
    limits = [Limit("p99_ttft", 0.5)]
    rate, read = (Estimate(v, v, v, 1000, v, v) for v in (2500.0, 10_000.0))
    metrics = {"p99_ttft": Estimate(0.1, 0.1, 0.1, 2000, 0.1, 0.1), "output_throughput": rate, "input_throughput": read}
    priced = Point("d", SHAPE, 8, {**metrics, "cost": cost_energy.cost(rate, 12.0)}, 2000)
    (grid,) = cost_tables(solver.solve([priced], limits))
    worth = 1 + 10_000 / 2500 / 4  # nothing is known of the cache, so every prompt token is input
    assert f"${12 / 9 / worth:.3g}/Mtok" == grid.texts[0][1] == "$0.667/Mtok"
    assert ("50.0%", "$1.33/Mtok", "$0.333/Mtok", "–", "$8,760", "3,285 M") == grid.texts[1]
    assert "c=8" in grid.caption
    assert [] == cost_tables(solver.solve([Point("d", SHAPE, 8, metrics, 2000)], limits))
    assert [] == cost_tables(solver.solve([priced], [Limit("p99_ttft", 0.01)]))
    assert [] == cost_tables(None)
    tree = points_json(series_views([priced]))["points"][0]["token_prices"]
    assert (8760.0, None) == (tree["per_month"], tree["cached"])
