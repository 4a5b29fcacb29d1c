import dataclasses
import math

import pytest

from frontier.decide import operating_point, sla_result
from frontier.model import Estimate, Limit, Point
from frontier.stats import cost_energy, estimate
from tests.stats.made import SHAPE, Server, trial


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
        return operating_point.solve([point], limits)

    fast = decided("fast", Estimate(2000, 1990, 2010, 20), 4.0)
    cheap = decided("cheap", Estimate(1000, 990, 1010, 20), 1.0)
    slow = decided("slow", Estimate(9000, 9000, 9000, 20), 1.0, ttft=0.9)  # never an operating point
    (found,) = sla_result.answer("", limits, (), [fast, cheap, slow]).cheapest
    assert ("cheap", True) == (found.decision.deployment, found.sure)
    close = dataclasses.replace(cheap, metrics={**cheap.metrics, "cost": Estimate(0.5, 0.27, 0.7, 20)})
    (found,) = sla_result.answer("", limits, (), [fast, cheap, close]).cheapest
    assert ("cheap", False) == (found.decision.deployment, found.sure)
    assert () == sla_result.answer("", limits, (), [slow, slow]).cheapest
