"""The JSON answers: their schema, and that they are always strict JSON."""

import dataclasses
import json
import math
from typing import Any

from frontier.core.model.decisions import RejectedStep
from frontier.core.model.loads import Concurrency
from frontier.core.model.points import Distance, Estimate, Flag
from frontier.show.view.explain import with_notes
from frontier.show.view.json_out import decisions_json, points_json
from frontier.show.view.series_view import series_views
from frontier.show.view.wording import deciding_bound
from tests.kit.toy import LIMIT, toy_decision, toy_frontier, toy_point, toy_points


def strict(tree: Any) -> Any:
    """Through text and back; NaN and infinity are not JSON."""
    return json.loads(json.dumps(tree, allow_nan=False))


def test_solve_has_the_contracts_keys() -> None:
    points = toy_points()
    decision = toy_decision(points)
    tree = strict(decisions_json([decision]))

    assert "frontier.solve/1" == tree["schema"]
    (shape,) = tree["shapes"]
    assert {"shape", "verdict", "concurrency", "binding", "metrics", "notes"} <= shape.keys()
    found = [shape[key] for key in ("shape", "verdict", "concurrency", "binding")]
    assert ["1024/256", "meets", 64, "p99_ttft"] == found
    (limited,) = decision.limits
    assert {"value", "low", "high", "n"} == shape["metrics"]["output_throughput"].keys()
    assert {"value", "low", "high", "n", "bound", "confidence", "headroom"} == shape["metrics"]["p99_ttft"].keys()
    bound = deciding_bound(decision.metrics["p99_ttft"], limited)
    assert bound == shape["metrics"]["p99_ttft"]["bound"]
    assert shape["notes"]
    assert list(with_notes(decision).notes) == shape["notes"]
    assert [{"metric": "p99_ttft", "better": "lower", "promise": 0.5, "comfort": None}] == shape["limits"]


def test_nothing_found_is_null_with_a_candidate() -> None:
    points = toy_points()
    (shape,) = strict(decisions_json([toy_decision(points, load=None, candidate=1)]))["shapes"]

    assert shape["concurrency"] is None
    assert 1 == shape["candidate"]


def test_infinite_and_unknown_numbers_become_null() -> None:
    points = toy_points((8,))
    metrics = {
        "p99_ttft": Estimate(math.inf, 1.0, math.inf, 300),
        "p50_ttft": Estimate.without_interval(0.1, 300),
        "p99_tpot": Estimate(math.nan, -math.inf, math.inf, 0),
    }
    decision = toy_decision(
        points, rejected=RejectedStep(Concurrency(16), math.inf, "p99_ttft", math.nan), metrics=metrics
    )
    (shape,) = strict(decisions_json([decision]))["shapes"]

    failing = {"value": None, "low": 1.0, "high": None, "n": 300, "infinite": True}
    assert {**failing, "bound": None, "confidence": None, "headroom": None} == shape["metrics"]["p99_ttft"]
    assert {"value": 0.1, "low": None, "high": None, "n": 300} == shape["metrics"]["p50_ttft"]
    assert shape["metrics"]["p99_tpot"]["value"] is None
    assert shape["rejected_step"]["gain"] is None


def test_show_has_the_contracts_keys() -> None:
    points = toy_points()
    points[0] = toy_point(1, flags=(Flag("errors", "4%", "1%", "look"),))
    tree = strict(points_json(series_views(points, [toy_frontier(points)])))

    assert "frontier.show/1" == tree["schema"]
    assert ["output_throughput", "p99_ttft"] == tree["objectives"]
    assert {"shape", "concurrency", "valid", "flags", "on_frontier", "metrics"} <= tree["points"][0].keys()
    assert (False, ["errors"], False) == tuple(tree["points"][0][k] for k in ("valid", "flags", "on_frontier"))
    assert [p.load in toy_frontier(points).members for p in points] == [p["on_frontier"] for p in tree["points"]]
    assert 0.5 == LIMIT.promise


def test_the_distance_from_the_roofline_is_a_tree_or_null() -> None:
    points = toy_points((8, 16))
    lit = Distance(2000.0, Estimate(0.42, 0.41, 0.43, 900), "prefill compute", mfu=Estimate(0.3, 0.2, 0.4, 900))
    points[1] = dataclasses.replace(points[1], roofline_distance=lit)
    dark, bright = (entry["light"] for entry in points_json(series_views(points, [toy_frontier(points)]))["points"])
    assert dark is None
    assert (2000.0, "prefill compute", None) == (bright["ceiling"], bright["binds"], bright["mbu"])
    assert {"value": 0.42, "low": 0.41, "high": 0.43, "n": 900} == bright["share"]
    assert 0.3 == bright["mfu"]["value"]
