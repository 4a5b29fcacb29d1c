"""The roofline as it is drawn: one line for each series whose hardware is described."""

from collections.abc import Mapping, Sequence

from frontier.config import Config
from frontier.hardware.roofline import curve
from frontier.metrics import metric
from frontier.model import Frontier, Point, Shape
from frontier.plot.data import Roofline
from frontier.units import format_share


def rooflines(
    config: Config, points: Sequence[Point], frontiers: Sequence[Frontier]
) -> Mapping[tuple[str, Shape], Roofline]:
    """The roofline of each series whose hardware is described, on its frontier's own axes; none where other rates than
    output tokens are drawn.
    """
    described = {d.name: light for d in config.deployments if (light := d.roofline()) is not None}
    lines: dict[tuple[str, Shape], Roofline] = {}
    for f in frontiers:
        light = described.get(f.deployment)
        if light is None or f.objectives[0] != "output_throughput":
            continue
        highest = max((*f.members, *f.dominated, *f.excluded), default=1)
        across = metric(f.objectives[1])
        line = curve(light, f.shape, across.quantity, highest) if across.quantity else ()
        if across.inverted:
            line = tuple((1 / x, y) for x, y in line)
        try:
            bound = light.limits(f.shape, highest)
        except ValueError:
            continue
        reached = [(p.metrics["output_throughput"].value, p.concurrency, p.light.share.value) for p in points
                   if p.light and p.valid and p.series == f.series]  # fmt: skip
        _, c, share = max(reached, default=(0, 0, 0))
        best = f"{format_share(share)} of the roofline reached at c={c}; " if reached else ""
        lines[f.series] = Roofline(bound.throughput, f"{best}{light.assumption}; {bound.binds} binds", line)
    return lines
