"""The speed of light as it is drawn: one line for each frontier of deployments whose hardware is described."""

from collections.abc import Mapping, Sequence

from frontier.config import Config
from frontier.hardware.roofline import curve
from frontier.metrics import metric
from frontier.model import Frontier, Point, Shape
from frontier.plot.data import Light
from frontier.units import format_share


def lights(config: Config, points: Sequence[Point], frontiers: Sequence[Frontier]) -> Mapping[tuple[str, Shape], Light]:
    """By (deployment, shape), on each frontier's own axes; none where rates other than output tokens are drawn."""
    described = {d.name: light for d in config.deployments if (light := d.roofline()) is not None}
    lit = {}
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
            at = light.limits(f.shape, highest)
        except ValueError:
            continue
        reached = [(p.metrics["output_throughput"].value, p.concurrency, p.light.share.value) for p in points
                   if p.light and p.valid and (p.deployment, p.shape) == (f.deployment, f.shape)]  # fmt: skip
        _, c, share = max(reached, default=(0, 0, 0))
        best = f"{format_share(share)} of light reached at c={c}; " if reached else ""
        assumption = f"{best}{light.assumption}; {at.binds} binds"
        lit[(f.deployment, f.shape)] = Light(at.throughput, assumption, line)
    return lit
