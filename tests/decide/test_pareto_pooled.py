"""The frontier over several deployments: against moocore, with limits that no axis shows, and with
every owner told."""

import dataclasses
import math
import random

import moocore
import numpy as np
import pytest

from frontier.core.decisions import Limit
from frontier.core.metrics import metric
from frontier.core.points import Estimate, Flag, Point
from frontier.core.shapes import Shape
from frontier.extras.compare.pooled import pooled
from tests.golden import assert_golden_row

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
        expected = {p.concurrency for p, kept in zip(points, oracle, strict=True) if kept}
        (pool,) = pooled(points, names)
        assert expected == {p.concurrency for p in pool.members}
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
    assert [("bf16", 8), ("int4", 8)] == [(p.deployment, p.concurrency) for p in pool.members]
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
