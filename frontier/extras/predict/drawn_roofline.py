"""The roofline as it is drawn on a frontier's axes: its height, its curve, and on what it rests."""

from collections.abc import Mapping, Sequence

from frontier.config import Config
from frontier.core.loads import setting
from frontier.core.metrics import metric
from frontier.core.points import Frontier, Point
from frontier.core.shapes import Shape
from frontier.core.units import format_share
from frontier.hardware.distance import curve
from frontier.show.picture.data import Roofline


def rooflines(
    config: Config, points: Sequence[Point], frontiers: Sequence[Frontier]
) -> Mapping[tuple[str, Shape], Roofline]:
    """The roofline of each series whose hardware is described, on its frontier's own axes; none
    where other rates than output tokens or requests are drawn.
    """
    described = {d.name: light for d in config.deployments if (light := d.roofline()) is not None}
    lines: dict[tuple[str, Shape], Roofline] = {}
    for f in frontiers:
        light = described.get(f.deployment)
        tokens = _tokens_of_each(f)
        if light is None or not tokens:
            continue
        highest = max((*f.members, *f.dominated, *f.excluded), default=1)
        across = metric(f.objectives[1])
        line = curve(light, f.shape, across.quantity, highest) if across.quantity and across.group is None else ()
        line = tuple((1 / x if across.inverted else x, y / tokens) for x, y in line)
        try:
            bound = light.limits(f.shape, highest)
        except ValueError:
            continue
        reached = [
            (p.metrics["output_throughput"].value, p.concurrency, p.light.share.value)
            for p in points
            if p.light and p.valid and p.series == f.series
        ]
        _, c, share = max(reached, default=(0, 0, 0))
        best = f"{format_share(share)} of the roofline reached at {setting(c)}; " if reached else ""
        lines[f.series] = Roofline(bound.throughput / tokens, f"{best}{light.assumption}; {bound.binds} binds", line)
    return lines


def _tokens_of_each(frontier: Frontier) -> float:
    """Output tokens in one of what the vertical axis counts per second; 0 where it counts other
    things.
    """
    each = {"output_throughput": 1.0, "request_throughput": frontier.shape.osl.mean, "goodput": frontier.shape.osl.mean}
    return each.get(frontier.objectives[0], 0.0)
