"""The roofline as drawn on a frontier's axes: its height, its curve, and its assumption."""

import math
from collections.abc import Mapping, Sequence

from frontier.config import Config, DeploymentConfig
from frontier.core.model.loads import NO_LOAD
from frontier.core.model.metrics import metric
from frontier.core.model.points import Frontier, Point
from frontier.core.model.shapes import Shape
from frontier.core.model.units import format_number, format_share
from frontier.hardware.roofline import Roofline, limits_if_any
from frontier.show.view.series_view import DrawnRoofline

_OF_THE_SHEET = ("memory_bandwidth", "memory", "tflops", "tflops_fp8", "tflops_fp4", "link")
"""The hardware figures of a deployment that a data sheet has."""


def rooflines(
    config: Config, points: Sequence[Point], frontiers: Sequence[Frontier]
) -> Mapping[tuple[str, Shape], DrawnRoofline]:
    """The roofline of each series whose hardware is described, on its frontier's own axes. Only
    rates of output tokens and of requests have one.
    """
    described = {d.name: roofline for d in config.deployments if (roofline := d.roofline()) is not None}
    by_sheet = {d.name: _by_sheet(d) for d in config.deployments}
    lines: dict[tuple[str, Shape], DrawnRoofline] = {}
    for f in frontiers:
        roofline = described.get(f.deployment)
        tokens = _tokens_of_each(f)
        highest = max((*f.members, *f.dominated, *f.excluded), default=1)
        bound = limits_if_any(roofline, f.shape, highest)
        if roofline is None or bound is None or not tokens:
            continue
        stated = _stated(by_sheet[f.deployment], f, highest, tokens)
        reached = [
            (p.metrics["output_throughput"].value, p.load, p.roofline_distance.share.value)
            for p in points
            if p.roofline_distance and p.valid and p.series == f.series
        ]
        _, c, share = max(reached, default=(0, NO_LOAD, 0))
        best = f"{format_share(share)} of the roofline reached at {c.label}; " if reached else ""
        beside = f"; by the data sheet {format_number(stated.ceiling)} (dashed)" if stated else ""
        text = f"{best}{roofline.assumption}; {bound.binds} binds{beside}"
        lines[f.series] = DrawnRoofline(bound.throughput / tokens, text, _curve(roofline, f, highest, tokens), stated)
    return lines


def _by_sheet(deployment: DeploymentConfig) -> Roofline | None:
    """The roofline of the data sheet alone, where the config gives other figures; otherwise
    None.
    """
    if deployment.hardware is None:
        return None
    sheet = deployment.hardware.model_copy(update=dict.fromkeys(_OF_THE_SHEET))
    unknown = sheet.gpu() is None or sheet == deployment.hardware
    return None if unknown else sheet.roofline(deployment.model, deployment.gpus)


def _stated(roofline: Roofline | None, f: Frontier, highest: int, tokens: float) -> DrawnRoofline | None:
    """The roofline of the data sheet, where others are measured in its place."""
    bound = limits_if_any(roofline, f.shape, highest)
    if roofline is None or bound is None:
        return None
    return DrawnRoofline(bound.throughput / tokens, roofline.assumption, _curve(roofline, f, highest, tokens))


def _curve(roofline: Roofline, f: Frontier, highest: int, tokens: float) -> tuple[tuple[float, float], ...]:
    """A roofline's own frontier on these axes; nothing where the latency is of a class."""
    across = metric(f.objectives[1])
    line = curve(roofline, f.shape, across.quantity, highest) if across.quantity and across.group is None else ()
    return tuple((1 / x if across.inverted else x, y / tokens) for x, y in line)


def curve(roofline: Roofline, shape: Shape, quantity: str, most: int) -> tuple[tuple[float, float], ...]:
    """The roofline's own frontier up to concurrency `most`: (latency in seconds, output tokens/s),
    rising; empty when nothing fits. `quantity` is one of `metrics.LATENCIES`. Neither a visible
    token nor a second token comes before the first.
    """
    field = {"itl": "tpot", "visible": "ttft", "second": "ttft"}.get(quantity, quantity)
    levels = sorted({min(most, round(2 ** (i / 2))) for i in range(2 * math.ceil(math.log2(most)) + 1)})
    try:
        limits = [roofline.limits(shape, concurrency) for concurrency in levels]
    except ValueError:
        return ()
    return tuple((getattr(at, field), at.throughput) for at in limits)


def _tokens_of_each(frontier: Frontier) -> float:
    """Output tokens in one unit of the vertical axis; 0 where it counts other things."""
    each = {"output_throughput": 1.0, "request_throughput": frontier.shape.osl.mean, "goodput": frontier.shape.osl.mean}
    return each.get(frontier.objectives[0], 0.0)
