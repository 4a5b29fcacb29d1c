"""Joules per token: against the energy and the tokens added up, and where a power may be taken from
at all."""

import dataclasses
import functools
import math
import re

import pytest

from frontier import uncertainty
from frontier.core.estimates import estimate
from frontier.core.model.metrics import Unit, metric
from frontier.core.model.points import Estimate, Point, Power
from frontier.core.window import cost_energy, window
from frontier.hardware import device_power
from frontier.show.view import costs
from tests.kit.golden import assert_golden_row
from tests.kit.made import SHAPE, Server, trial


def powered(watts: float | None, seed: int = 1, source: str = "measured"):
    sample = Server(ttft=lambda c: 0.01 * c, seed=seed).run(trial(8, requests=500))
    power = None if watts is None else Power(watts, source)
    return dataclasses.replace(sample, power_rule=lambda _: power)


def read(watts: float | None, readings: int, gpus: int = 2, seed: int = 1):
    """Window data with so many readings of the power of two GPUs; None: without any."""
    facts = {"gpu_power": watts, "gpu_count": float(gpus), "gpu_power_readings": float(readings)}
    sample = Server(ttft=lambda c: 0.01 * c, seed=seed).run(trial(8, requests=500))
    return dataclasses.replace(
        sample, server=({} if watts is None else facts,), power_rule=functools.partial(device_power.measured, gpus=2)
    )


def test_it_is_the_joules_of_the_window_over_its_tokens():
    sample = powered(650.0)
    joules = 650.0 * float((sample.ends - sample.starts).sum())
    tokens = float(sample.block_output_tokens.sum())
    point = estimate.point(sample)
    assert joules / tokens == pytest.approx(point.metrics["energy"].value)
    assert Power(650.0, "measured") == point.power


def test_its_interval_is_the_throughputs_turned_round():
    point = estimate.point(powered(650.0))
    rate, joules = (point.metrics[n] for n in ("output_throughput", "energy"))
    assert (650 / rate.high, 650 / rate.low) == pytest.approx((joules.low, joules.high))
    assert (650 / rate.upper, 650 / rate.lower) == pytest.approx((joules.lower, joules.upper))
    assert rate.n == joules.n


def test_over_several_windows_energy_is_all_joules_over_all_tokens():
    parts = [read(400.0, 30), read(800.0, 60, seed=2)]
    longer = dataclasses.replace(parts[1], starts=parts[1].starts + 1e4, ends=parts[1].ends + 1e4 + 30.0)
    joined = window.join([parts[0], longer])
    seconds = [float((p.ends - p.starts).sum()) for p in (parts[0], longer)]
    assert joined.power is not None
    assert (400 * seconds[0] + 800 * seconds[1]) / sum(seconds) == pytest.approx(joined.power.watts)
    assert window.join([parts[0], dataclasses.replace(longer, server=({},))]).power is None


def test_windows_that_are_joined_have_enough_readings_together_and_of_all_gpus():
    few = [read(300.0, 5, seed=seed) for seed in (1, 2)]
    assert all("energy" not in estimate.point(part).metrics for part in few)
    joined = window.join(few)
    rate, energy = (estimate.point(joined).metrics[name] for name in ("output_throughput", "energy"))
    assert 300 / rate.value == pytest.approx(energy.value)
    assert window.join([few[0], read(300.0, 4)]).power is None
    assert window.join([few[0], read(150.0, 30, gpus=1)]).power is None  # one of two in a window
    assert window.join([few[0], read(None, 0)]).power is None


def test_parts_that_are_compared_have_enough_readings_together():
    few = device_power.in_parts([read(300.0, 5), read(330.0, 5, seed=2)])
    assert [300.0, 330.0] == pytest.approx([part.power.watts for part in few if part.power])
    assert [None, None] == [part.power for part in device_power.in_parts([read(300.0, 4), read(330.0, 5, seed=2)])]
    assert [] == list(device_power.in_parts([]))


def test_without_a_power_there_is_no_energy_and_never_a_zero():
    point = estimate.point(powered(None))
    assert point.power is None
    assert "energy" not in point.metrics
    assert estimate.estimate(powered(None), "energy") is None
    bare = Point("d", SHAPE, 1, {}, 0)
    assert bare is device_power.with_energy(bare, Power(700.0, "stated"))
    full = Point("d", SHAPE, 1, {"output_throughput": Estimate(1, 1, 1, 1)}, 0)
    assert full is device_power.with_energy(full, None)


def test_the_readings_count_only_where_they_are_the_deployments_own():
    two = {"gpu_power": 1200.0, "gpu_count": 2.0}
    one_more = {"gpu_power": 600.0, "gpu_count": 2.0}
    assert Power(1000.0, "measured") == device_power.measured([(20.0, two), (10.0, one_more)], gpus=2)
    assert Power(1200.0, "measured") == device_power.measured([(20.0, two)], gpus=None)
    assert device_power.measured([(20.0, two)], gpus=1) is None  # the other one's power is in it
    assert device_power.measured([(20.0, two), (10.0, {})], gpus=2) is None  # a window nobody measured
    assert device_power.measured([], gpus=2) is None
    assert device_power.measured([(20.0, {"gpu_power": 0.0, "gpu_count": 2.0})], gpus=2) is None


def test_an_aggregate_without_an_interval_has_none_here_either():
    point = device_power.with_energy(
        Point("d", SHAPE, 1, {"output_throughput": Estimate.without_interval(1000, 5)}, 5), Power(700.0, "stated")
    )
    joules = point.metrics["energy"]
    assert (0.7, -math.inf, math.inf) == (joules.value, joules.low, joules.high)
    assert math.inf == cost_energy.joules(Estimate(0.0, 0.0, 0.0, 5), Power(700.0, "stated")).value


def test_its_uncertainty_is_drawn_as_the_throughputs_is():
    drawn = {
        name: uncertainty.replicates({8: powered(650.0)}, (name, "p50_ttft"), draws=50).gain[:, 0]
        for name in ("output_throughput", "energy")
    }
    assert 650 / drawn["output_throughput"] == pytest.approx(drawn["energy"])


def test_units_and_directions():
    assert (Unit.JOULES_PER_TOKEN, "lower") == (metric("energy").unit, metric("energy").better)
    assert "0.484 J/tok" == metric("energy").format(0.4841)


def test_where_the_power_comes_from_is_said():
    powers = [Power(612.4, "measured"), Power(690.0, "measured")]
    measured, stated = costs.power_text(powers), costs.power_text([Power(700.0, "stated")] * 2)
    assert [["612", "690"], ["700"]] == [re.findall(r"\d+", text) for text in (measured, stated)]
    assert_golden_row("answers", measured, "measured")
    assert_golden_row("answers", stated, "stated")
    assert "" == costs.power_text([])
