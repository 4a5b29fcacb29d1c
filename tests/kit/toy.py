"""Toy sweeps for the tests: a saturating server, so that the pictures look like real ones."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from frontier.core.claim.causes import with_causes
from frontier.core.model.decisions import Decision, Judgement, Limit, Verdict
from frontier.core.model.loads import Concurrency
from frontier.core.model.metrics import metric
from frontier.core.model.points import Estimate, Flag, Frontier, Point, TimeBreakdown
from frontier.core.model.shapes import Shape
from frontier.show.picture.data import Line, Panel, Picture
from frontier.show.picture.frontier_picture import small_multiples
from frontier.show.tables import points_table
from frontier.show.view.series_view import DrawnRoofline, series_view, series_views
from frontier.show.view.wording import Provenance

SHAPE = Shape.of(1024, 256)
LIMIT = Limit("p99_ttft", 0.5)
LADDER = (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128)


def estimate(value: float, spread: float = 0.06, n: int = 900) -> Estimate:
    low, high = value * (1 - spread), value * (1 + 1.4 * spread)
    return Estimate(value, low, high, n, lower=low * 1.01, upper=high * 0.99)


def toy_point(
    c: int,
    *,
    shape: Shape = SHAPE,
    peak: float = 3300.0,
    knee: float = 60.0,
    base: float = 0.045,
    flags: tuple[Flag, ...] = (),
    deployment: str = "default",
    n: int = 900,
) -> Point:
    """Throughput saturates at `peak` and folds back past the knee; the tail grows past it."""
    over = max(0.0, c / knee - 1.3)
    speed = peak * (1 - math.exp(-c / (knee * 0.55))) * (1 - 0.05 * over**1.2)
    tail = base * (1 + c / knee * 3 + (c / knee) ** 3 * 4.2)
    tpot = 0.008 * (1 + c / knee * 1.4)
    metrics = {
        "output_throughput": estimate(speed, 0.012, n),
        "p50_ttft": estimate(tail * 0.4, 0.03, n),
        "p99_ttft": estimate(tail, 0.07, n),
        "p50_tpot": estimate(tpot, 0.02, n),
        "p99_tpot": estimate(tpot * 1.3, 0.04, n),
        "p50_e2e": estimate(tail * 0.4 + tpot * 255, 0.03, n),
        "p99_e2e": estimate(tail + tpot * 255 * 1.2, 0.05, n),
        "p50_interactivity": estimate(1 / tpot, 0.02, n),
        "request_throughput": estimate(speed / 256, 0.012, n),
        "error_rate": Estimate(0.002, 0.0, 0.006, n),
    }
    whole = {"output_throughput": speed * 0.93, "p99_ttft": tail * 1.3}
    return Point(deployment, shape, c, metrics, n, flags, repeats=3, whole_run=whole)


def toy_points(ladder: Iterable[int] = LADDER, **how: object) -> list[Point]:
    return [toy_point(c, **how) for c in ladder]  # type: ignore[arg-type]


def toy_frontier(points: list[Point], objectives: tuple[str, str] = ("output_throughput", "p99_ttft")) -> Frontier:
    """The non-dominated set by brute force."""
    up, across = objectives
    lower = across != "p50_interactivity"
    healthy = [p for p in points if p.valid]

    def beats(a: Point, b: Point) -> bool:
        ax, bx = a.metrics[across].value, b.metrics[across].value
        if not lower:
            ax, bx = -ax, -bx
        ay, by = a.metrics[up].value, b.metrics[up].value
        return ax <= bx and ay >= by and (ax < bx or ay > by)

    members = tuple(p.load for p in healthy if not any(beats(o, p) for o in healthy))
    dominated = tuple(p.load for p in healthy if p.load not in members)
    excluded = {p.load: p.flags[0].name for p in points if not p.valid}
    return Frontier(points[0].deployment, points[0].shape, objectives, members, dominated, excluded)


def _used(point: Point, limit: Limit) -> float:
    used = point.metrics[limit.metric].value / limit.promise
    return used if metric(limit.metric).better == "lower" else 1 / used


def toy_decision(points: list[Point], limits: tuple[Limit, ...] = (LIMIT,), **changes: object) -> Decision:
    """The highest setting whose interval is within every limit, below the first that is not."""
    judgements = []
    for p in sorted(points, key=lambda p: p.load):
        verdicts = {}
        for limit in limits:
            e = p.metrics[limit.metric]
            sign = 1 if metric(limit.metric).better == "lower" else -1
            worst_bound, best_bound = sorted((sign * e.lower, sign * e.upper), reverse=True)
            inside = Verdict.MEETS if worst_bound <= sign * limit.promise else Verdict.MARGINAL
            verdicts[limit.metric] = inside if best_bound <= sign * limit.promise else Verdict.VIOLATES
        order = (Verdict.VIOLATES, Verdict.MARGINAL, Verdict.MEETS)
        worst = Verdict.INVALID if not p.valid else next(v for v in order if v in verdicts.values())
        binding = max(limits, key=lambda it: _used(p, it)).metric
        judgements.append(Judgement(p.load, worst, verdicts, binding))
    passing = []
    for judgement in judgements:
        if judgement.verdict is Verdict.VIOLATES:
            break
        if judgement.verdict is Verdict.MEETS:
            passing.append(judgement)
    if passing:
        verdict, chosen, about = Verdict.MEETS, passing[-1].load, passing[-1]
    else:
        verdict, chosen, about = judgements[0].verdict, None, judgements[0]
    point = next(p for p in points if p.load == about.load)
    fields: dict[str, object] = {
        "deployment": point.deployment,
        "shape": point.shape,
        "limits": limits,
        "verdict": verdict,
        "load": chosen,
        "binding": about.binding,
        "metrics": point.metrics,
        "judgements": tuple(judgements),
        "candidate": None if passing else about.load,
        "last_pass": chosen,
        "first_fail": next((j.load for j in judgements if j.verdict is Verdict.VIOLATES), None),
    }
    given = {k: Concurrency(v) if k in ("load", "candidate") and type(v) is int else v for k, v in changes.items()}
    decision = Decision(**(fields | given))  # type: ignore[arg-type]
    return with_causes(decision, {p.load: p for p in points}, "output_throughput")


def said(picture: Picture) -> str:
    """Every word of a picture's data, those of its panels in the order in which they are placed."""
    lines = [picture.title, *("  ".join(cells) for cells, _ in picture.rows), picture.legend]
    for panel in picture.panels:
        lines += [panel.title, panel.x.label, panel.y.label]
        lines += [line for rule in panel.rules for line in rule.lines]
        lines += [mark.words for mark in panel.marks]
        lines += [*(line.name for line in panel.lines), " ".join(mark.text for mark in panel.marks if mark.text)]
    return "\n".join([*filter(None, lines), *picture.notes, picture.foot]).replace("\u00a0", " ")


def table(picture: Picture) -> str:
    """The table of answers of a picture, a line a row."""
    return "\n".join("  ".join(cells) for cells, _ in picture.rows)


def stairs(panel: Panel) -> list[Line]:
    return [line for line in panel.lines if line.kind == "stair"]


def roofline(panel: Panel) -> tuple[tuple[float, float], ...]:
    """The corners of the panel's roofline; none where it is not drawn."""
    return next((line.points for line in panel.lines if line.kind == "roofline"), ())


def starred(panel: Panel) -> list[float]:
    """The concurrencies of the operating points in a panel."""
    return [mark.load for mark in panel.marks if mark.star]


def picture(
    points: list[Point],
    frontier: Frontier,
    decision: Decision | None = None,
    *,
    limits: Sequence[Limit] = (),
    footer: Provenance | None = None,
    roofline: DrawnRoofline | None = None,
    gpus: int | None = None,
) -> Picture:
    """The picture of one frontier."""
    return small_multiples([series_view(points, frontier, decision, limits, roofline, gpus)], footer=footer)


def points_text(
    points: Sequence[Point],
    frontiers: Sequence[Frontier] = (),
    limits: Sequence[Limit] = (),
    decisions: Sequence[Decision] = (),
    gpus: dict[str, int | None] | None = None,
    **layout: Any,
) -> str:
    """The table of these points, as `show` prints it."""
    return points_table(series_views(points, frontiers, limits, decisions, gpus), **layout)


def with_times(points: Iterable[Point], missing: tuple[str, ...] = ()) -> list[Point]:
    """The points with a time breakdown: a queue that grows, and what `missing` names in the
    unexplained rest.
    """
    timed = []
    for p in points:
        parts = {
            "connect": 0.0,
            "network": 0.002,
            "front_end": 0.004,
            "queue": 1e-4 * p.load**1.5,
            "prefill": 0.040,
            "decode": 1.0 + 0.01 * p.load,
        }
        rest = 0.010 + sum(parts.pop(name) for name in missing)
        ttft = sum(parts.values()) - parts["decode"] + rest - 0.010
        timed.append(replace(p, time=TimeBreakdown(p.n, ttft, sum(parts.values()) + rest, parts, rest, missing)))
    return timed
