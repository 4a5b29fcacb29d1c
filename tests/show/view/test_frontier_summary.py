"""What is said of a throughput curve and its frontier as a whole."""

from frontier.core.claim import pareto
from frontier.core.model.points import Estimate, Frontier, Point
from frontier.show.view.frontier_summary import summarise
from tests.kit.golden import assert_golden_row
from tests.kit.made import SHAPE, loads

OBJECTIVES = ("output_throughput", "p99_ttft")


def point(c, throughput, ttft, tpot=0.01, e2e=None):
    values = {
        "output_throughput": throughput,
        "p99_ttft": ttft,
        "p50_ttft": ttft / 2,
        "p50_tpot": tpot,
        "p99_e2e": e2e or ttft + 100 * tpot,
        "mean_e2e": ttft + 100 * tpot,
        "request_throughput": throughput / 100,
    }
    return Point("d", SHAPE, c, {k: Estimate(v, v * 0.999, v * 1.001, 3000) for k, v in values.items()}, 3000)


def told(points):
    return summarise(pareto.frontier(points, OBJECTIVES), points)


def test_the_knee_is_named():
    points = [point(c, min(100 * c, 1600), 0.1 if c <= 16 else 0.1 * c) for c in (1, 2, 4, 8, 16, 32, 64)]
    found = told(points)
    assert (16, ()) == (found.knee, found.retrograde)
    assert_golden_row("answers", "\n".join(found.notes))


def test_throughput_that_folds_back_without_a_jump_is_named():
    points = [point(c, x, 0.1 + c / 1000) for c, x in ((1, 100), (2, 190), (4, 350), (8, 340), (16, 320))]
    found = told(points)
    assert (8, 16) == found.retrograde
    assert_golden_row("answers", "\n".join(found.notes))


def test_members_that_noise_may_have_made_are_said():
    points = [point(1, 100, 0.1), point(2, 180, 0.2), point(4, 181, 0.3)]
    sure = Frontier("d", SHAPE, OBJECTIVES, loads(1, 2, 4), (), probability={1: 1.0, 2: 0.9, 4: 0.3})
    found = summarise(sure, points)
    assert_golden_row("answers", "\n".join(found.notes))
    assert () == summarise(sure, []).notes[1:]
