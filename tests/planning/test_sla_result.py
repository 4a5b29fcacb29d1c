"""What only several decisions together can say: the common concurrency, the cheapest deployment,
the exit code."""

import dataclasses

import pytest

from frontier.core.claim import solver
from frontier.core.model.decisions import Limit
from frontier.core.model.errors import ExitCode
from frontier.core.model.points import Estimate, Flag, Point
from frontier.core.model.shapes import Shape
from frontier.core.window import cost_energy
from frontier.planning import sla_result
from frontier.show.answer import answers_text
from frontier.show.view.answer_view import tier_views
from frontier.show.view.json_out import answers_json
from frontier.show.view.sla_notes import best_note, sla_notes
from tests.kit.golden import assert_golden_row
from tests.kit.made import SHAPE

TTFT = Limit("p99_ttft", 0.5)
LONG = Shape.of(8192, 512)


def sure(value, spread=0.0):
    low, high = value * (1 - spread), value * (1 + spread)
    return Estimate(value, low, high, 3000, low, high)


def point(c, ttft, *, shape=SHAPE, deployment="d", throughput=None, price=None, spread=0.0, flags=()):
    metrics = {
        "p99_ttft": sure(ttft),
        "output_throughput": sure(throughput or 100.0 * c, spread),
        "request_throughput": sure(c / 2.0),
    }
    if price is not None:
        metrics["cost"] = cost_energy.cost(metrics["output_throughput"], price)
    return Point(deployment, shape, c, metrics, 3000, flags)


def exit_code(*answers):
    return solver.exit_code([decision for answer in answers for decision in answer.decisions])


def asked(points, limits=(TTFT,)):
    return sla_result.make_sla_result("gold", limits, points, solver.solve_all(points, limits))


def test_several_shapes_have_one_concurrency_that_keeps_the_sla_in_all():
    found = asked([point(8, 0.1), point(32, 0.2), point(8, 0.3, shape=LONG), point(32, 0.9, shape=LONG)])
    assert {"d": 8} == found.common
    assert_golden_row("answers", "\n".join(sla_notes(found)))
    assert ExitCode.YES == exit_code(found)


def test_where_none_is_common_it_is_said_and_one_shape_alone_needs_none():
    found = asked([point(8, 0.1), point(8, 0.9, shape=LONG)])
    assert {"d": None} == found.common
    assert_golden_row("answers", "\n".join(sla_notes(found)))
    assert ExitCode.NO == exit_code(found)
    alone = asked([point(8, 0.1)])
    assert ({}, ()) == (alone.common, sla_notes(alone))


@pytest.mark.parametrize(("spread", "sure_of_it"), [(0.01, True), (0.6, False)])
def test_the_cheapest_deployment_is_named_each_at_its_own_operating_point(spread, sure_of_it):
    points = [
        *(point(c, 0.1, deployment="big", price=8.0, spread=spread) for c in (1, 8)),
        *(point(c, t, deployment="small", price=1.0, spread=spread) for c, t in ((1, 0.1), (4, 0.2), (8, 0.9))),
    ]
    found = asked(points)
    (cheapest,) = found.cheapest
    assert ("small", 4, sure_of_it) == (cheapest.decision.deployment, cheapest.decision.load, cheapest.sure)
    assert any("small at c=4, $0.694/Mtok" in note for note in sla_notes(found))
    assert sure_of_it == (not any("another may be" in note for note in sla_notes(found)))
    assert () == asked(points[:2]).cheapest


def test_the_cheapest_setting_inside_the_sla_is_on_the_decision():
    (decision,) = asked([point(c, 0.1, price=2.0, throughput=t) for c, t in ((1, 100), (4, 380), (8, 370))]).decisions
    assert (4, 4) == (decision.cheapest, decision.throughput_optimum)
    (free,) = asked([point(1, 0.1)]).decisions
    assert free.cheapest is None


def test_the_worst_of_all_tiers_is_the_exit_code():
    meets, violates = asked([point(8, 0.1)]), asked([point(8, 0.9)])
    invalid = asked([point(8, 0.1, flags=(Flag("lockstep", "8", "2", ""),))])
    unproven = dataclasses.replace(point(8, 0.1), metrics={"p99_ttft": Estimate(0.1, 0.1, 0.2, 299, 0.1, 0.2)})
    assert ExitCode.NO == exit_code(meets, violates)
    assert ExitCode.NOT_PROVEN == exit_code(meets, asked([unproven]))
    assert ExitCode.FAILED == exit_code(meets, violates, invalid)


def test_a_deployment_that_may_give_more_is_named_beside_the_winner():
    few = Estimate(0.3, 0.1, 9.0, 300, 0.1, 9.0, need=1000)
    open_point = point(64, 0.3, deployment="b", throughput=900.0)
    undecided = dataclasses.replace(open_point, metrics={**open_point.metrics, "p99_ttft": few})
    points = [point(8, 0.1, deployment="a", throughput=600.0), point(8, 0.1, deployment="b", throughput=300.0)]
    (best,) = asked(points).best
    assert ("a", True, ()) == (best.decision.deployment, best.sure, best.may_give)
    (best,) = asked([*points, undecided]).best
    assert ((("b", 64),), ()) == (best.may_give, best.closer)
    assert_golden_row("answers", best_note(best))
    less = dataclasses.replace(undecided, metrics=undecided.metrics | {"output_throughput": sure(550.0)})
    (best,) = asked([*points, less]).best
    assert ((), (("b", 64, 550.0),)) == (best.may_give, best.closer)
    assert "550 tok/s at c=64" in best_note(best)
    trees = answers_json([asked([*points, undecided])])
    assert [(False, ["b"])] == [(tree["sure"], tree["open"]) for tree in trees["tiers"][0]["best"]]


def test_the_winner_among_deployments_is_said_first():
    points = [point(8, 0.1, deployment="a", throughput=600.0), point(8, 0.1, deployment="b", throughput=300.0)]
    (best,) = asked(points).best
    text = answers_text(tier_views([asked(points)]), width=100)
    assert text.startswith(best_note(best))
    assert 1 == text.count(best_note(best))
    assert_golden_row("answers", best_note(best))


def test_rates_are_compared_per_gpu_and_what_is_no_rate_as_it_is():
    points = [point(8, 0.1, deployment="a", throughput=600.0), point(8, 0.1, deployment="b", throughput=300.0)]
    scores = {"a": 0.9, "b": 0.8}
    decisions = {
        d.deployment: dataclasses.replace(d, metrics={**d.metrics, "quality": sure(scores[d.deployment])})
        for d in asked(points).decisions
    }
    gpus = {"a": 8, "b": 1}
    by_rate = sla_result.best_deployment(decisions, gpus)
    by_score = sla_result.best_deployment(decisions, gpus, "quality")
    assert ("b", 300.0) == (by_rate.decision.deployment, by_rate.rate)
    assert ("a", 0.9) == (by_score.decision.deployment, by_score.rate)
