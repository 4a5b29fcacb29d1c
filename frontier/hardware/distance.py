"""Distance of a measured point from its roofline: its share of the bound, and what no measurement
can pass."""

import math

from frontier.core.model.points import Distance, Point
from frontier.core.model.shapes import Lengths
from frontier.hardware.roofline import Roofline, limits_if_any

UNEVEN = 0.85
"""A measured TPOT below this share of its floor is called impossible: the batch is uneven in time,
the floor is not."""


def in_flight(point: Point) -> float:
    """How many requests were in flight on average: at a rate, and where users think, as many as
    were measured.
    """
    return point.load if point.in_flight is None else point.in_flight


def decoding(point: Point) -> float | None:
    """How many of the requests in flight are decoding at a time, by Little's law; None without both
    latencies.
    """
    ttft, tpot = (point.metrics.get(name) for name in ("p50_ttft", "p50_tpot"))
    if ttft is None or tpot is None or not 0 < tpot.value < math.inf or not 0 <= ttft.value < math.inf:
        return None
    time = (point.shape.osl.mean - 1) * tpot.value
    return in_flight(point) * time / (ttft.value + time) if time > 0 else None


def distance(roofline: Roofline, point: Point) -> Distance | None:
    """How far the point is from its roofline; None when it has no throughput or nothing fits the
    described memory.
    """
    rate = point.metrics.get("output_throughput")
    limits = limits_if_any(roofline, point.shape, max(1, math.ceil(in_flight(point))))
    if rate is None or limits is None:
        return None
    batch, tpot = decoding(point), point.metrics.get("p50_tpot")
    mbu = mfu = None
    if batch is not None and tpot is not None:
        seconds = roofline.read_seconds(point.shape, min(batch, limits.running))
        mbu = None if seconds is None else tpot.inverted(seconds)
    requests = point.metrics.get("request_throughput")
    if requests is not None:
        share = roofline.compute_share(point.shape, requests.value, rate.value)
        mfu = None if share is None else rate.scaled(share / rate.value if rate.value else 0.0)
    return Distance(limits.throughput, rate.scaled(1 / limits.throughput), limits.binds, mbu, mfu)


def bounds(roofline: Roofline, point: Point) -> dict[str, float]:
    """What no measurement of this setting can pass: the ceiling of `output_throughput`, floors of
    `tpot` and `ttft`.

    The floor of TPOT is that of the batch that was really decoding. The floor of TTFT is given only
    where every prompt has the same length and none of it is shared.
    """
    limits = limits_if_any(roofline, point.shape, max(1, math.ceil(in_flight(point))))
    if limits is None:
        return {}
    values = {"output_throughput": limits.throughput}
    if (batch := decoding(point)) is not None:
        values["tpot"] = UNEVEN * roofline.token_seconds(point.shape, min(batch, limits.running))
    if limits.ttft > 0 and point.shape.prefix == 0 and point.shape.isl == Lengths.fixed(point.shape.isl.low):
        values["ttft"] = limits.ttft
    return values
