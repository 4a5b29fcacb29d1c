"""The frontier over several deployments: against moocore, with limits that no axis shows, and with
every owner told."""

import dataclasses
import math
import random

import moocore
import numpy as np
import pytest

from frontier.core.model.decisions import Limit
from frontier.core.model.metrics import metric
from frontier.core.model.points import Estimate, Flag, Point
from frontier.core.model.shapes import Shape
from frontier.extras.compare.pooled import pooled
from tests.kit.golden import assert_golden_row

SHAPE = Shape.of(128, 64)
OBJECTIVES = ("quality", "cost", "output_throughput", "p99_ttft")


def point(owner: str, c: int, /, shape: Shape = SHAPE, **values: float) -> Point:
    metrics = {name: Estimate(v, v, v, 2000, v, v) for name, v in values.items()}
    return Point(owner, shape, c, metrics, 2000)


@pytest.mark.parametrize("number", [2, 3, 4])
def test_dominance_is_exact_over_all_deployments(number: int) -> None:
    names = OBJECTIVES[:number]
    for seed in range(60):
        rng = random.Random(seed)
        points = [
            point(f"d{i % 4}", i + 1, **{name: rng.randrange(1, 8) / 4 for name in OBJECTIVES}) for i in range(40)
        ]
        costs = np.array([[-metric(n).sign * p.metrics[n].value for n in names] for p in points])
        oracle = moocore.is_nondominated(costs, keep_weakly=True)
        expected = {p.load for p, kept in zip(points, oracle, strict=True) if kept}
        (pool,) = pooled(points, names)
        assert expected == {p.load for p in pool.members}
        owners = {p.deployment for p in pool.members}
        assert owners.isdisjoint(pool.without)
        assert {"d0", "d1", "d2", "d3"} == owners | pool.without.keys()
        first = [p.metrics[names[0]].value for p in pool.members]
        assert first == sorted(first, reverse=True)


def test_a_setting_that_breaks_a_limit_that_no_axis_shows_takes_no_part() -> None:
    limits = (Limit("p99_ttft", 0.5),)
    points = [
        point("bf16", 8, quality=0.95, cost=2.0, p99_ttft=0.2),
        point("int4", 8, quality=0.90, cost=1.0, p99_ttft=0.4),
        point("int4", 64, quality=0.90, cost=0.5, p99_ttft=2.0),
        point("slow", 8, quality=0.99, cost=0.1, p99_ttft=9.0),
    ]
    (pool,) = pooled(points, ("quality", "cost"), limits)
    assert [("bf16", 8), ("int4", 8)] == [(p.deployment, p.load) for p in pool.members]
    assert ["slow"] == list(pool.without)
    assert_golden_row("answers", pool.without["slow"])
    (shown,) = pooled(points, ("quality", "p99_ttft"), limits)  # the axis shows it
    assert "slow" in {p.deployment for p in shown.members}


def test_what_is_not_proven_takes_no_part_unless_it_is_an_aggregate() -> None:
    open_end = Estimate(0.2, 0.1, math.inf, 50, 0.1, math.inf, need=1000)
    wide = dataclasses.replace(
        point("d", 8, quality=0.9, cost=1.0),
        metrics={**point("d", 8, quality=0.9, cost=1.0).metrics, "p99_ttft": open_end},
    )
    imported = dataclasses.replace(wide, metrics={**wide.metrics, "p99_ttft": Estimate.without_interval(0.2, 50)})
    limits = (Limit("p99_ttft", 0.5),)
    assert [] == list(pooled([wide], ("quality", "cost"), limits)[0].members)
    assert 1 == len(pooled([imported], ("quality", "cost"), limits)[0].members)


def test_every_owner_without_a_part_has_its_reason() -> None:
    bad = dataclasses.replace(point("bad", 1, quality=1.0, cost=0.1), flags=(Flag("errors", "", "", ""),))
    points = [
        point("good", 1, quality=0.9, cost=1.0),
        point("same", 1, quality=0.9, cost=1.0),
        point("worse", 1, quality=0.8, cost=1.0),
        point("unpriced", 1, quality=0.99),
        bad,
    ]
    (pool,) = pooled(points, ("quality", "cost"))
    assert ["good", "same"] == [p.deployment for p in pool.members]  # ties are kept
    assert {"worse", "unpriced", "bad"} == set(pool.without)
    assert_golden_row("answers", "\n".join(f"{name}: {why}" for name, why in sorted(pool.without.items())))


def test_each_shape_has_its_own() -> None:
    other = Shape.of(8, 8)
    points = [point("a", 1, quality=0.9, cost=1.0), point("b", 1, other, quality=0.1, cost=9.0)]
    assert [{"a"}, {"b"}] == [{p.deployment for p in pool.members} for pool in pooled(points, ("quality", "cost"))]


@pytest.mark.parametrize("number", [2, 3])
def test_rates_are_compared_per_gpu_where_the_gpus_of_all_are_known(number: int) -> None:
    names = ("output_throughput", "p99_ttft", "quality")[:number]
    for seed in range(60):
        rng = random.Random(seed)
        gpus = {f"d{i}": rng.choice([1, 2, 4, 8]) for i in range(4)}
        points = [
            point(f"d{i % 4}", i + 1, **{name: float(rng.randrange(1, 40)) for name in OBJECTIVES}) for i in range(40)
        ]
        values = [
            [p.metrics[n].value / (gpus[p.deployment] if n == "output_throughput" else 1) for n in names]
            for p in points
        ]
        costs = np.array(values) * [-metric(n).sign for n in names]
        oracle = moocore.is_nondominated(costs, keep_weakly=True)
        (pool,) = pooled(points, names, gpus=gpus)
        assert {p.load for p, kept in zip(points, oracle, strict=True) if kept} == {p.load for p in pool.members}
        assert {p.load: p.metrics for p in points if p in pool.members} == {p.load: p.metrics for p in pool.members}, (
            "the values are those of the whole deployment"
        )


def test_with_the_gpus_of_some_whole_deployments_are_compared_and_it_is_said() -> None:
    points = [
        point("one", 1, output_throughput=100.0, p99_ttft=0.2),
        point("four", 1, output_throughput=300.0, p99_ttft=0.1),
    ]
    axes = ("output_throughput", "p99_ttft")
    members = [{p.deployment for p in pooled(points, axes, gpus=g)[0].members} for g in ({}, {"one": None, "four": 4})]
    assert members == [{"four"}, {"four"}]
    (known,) = pooled(points, axes, gpus={"one": 1, "four": 4})
    assert {p.deployment for p in known.members} == {"one", "four"}
    assert known.undivided == ""
    assert "one" in pooled(points, axes, gpus={"one": None, "four": 4})[0].undivided
    assert pooled(points, ("quality", "p99_ttft"), gpus={"one": None, "four": 4})[0].undivided == ""
