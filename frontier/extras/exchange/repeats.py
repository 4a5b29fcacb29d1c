"""Repeats of an imported setting: their median, with the interval between runs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median, stdev

from frontier.core.model.loads import Load
from frontier.core.model.metrics import metric
from frontier.core.model.points import Estimate, Point
from frontier.core.model.shapes import Shape
from frontier.core.model.text import some_of
from frontier.core.stats.laws import t_quantile
from frontier.extras.exchange.results import Result

ImportedSetting = tuple[str, Shape, Load]
UNLIKE = 1.15
"""Repeats differ less: on real GPUs nine of ten settings that were measured twice by up to 13%."""
AXES = (
    ("output_throughput", "total_throughput", "request_throughput"),
    (
        "p99_ttft",
        "p99_e2e",
        "p99_tpot",
        "p95_ttft",
        "p95_e2e",
        "p90_ttft",
        "p50_ttft",
        "mean_ttft",
        "mean_e2e",
        "mean_tpot",
    ),
)
"""The candidates for each axis of the frontier; the first of two that equally many points have is
taken."""


def joined(repeats: Sequence[Point]) -> Point:
    """The repeats of a setting as one point: the median of each figure that all of them have, with
    its interval between runs, and all flags. A flag that excludes one of several excludes that one
    alone.
    """
    if len(repeats) == 1:
        return repeats[0]
    kept = [point for point in repeats if point.valid] or list(repeats)
    names = [name for name in kept[0].metrics if all(name in point.metrics for point in kept)]
    values = {name: [point.metrics[name].value for point in kept] for name in names}
    n = sum(point.n for point in kept)
    notes = [f"values of {len(kept)} runs, not a proof{_spread(values)}"] if kept[1:] else []
    notes += [f"left out, one of {len(repeats)} runs: {p.fatal[0].measured}" for p in repeats if p not in kept]
    return replace(
        kept[0],
        metrics={name: between_runs(of, n) for name, of in values.items()},
        n=n,
        flags=tuple(dict.fromkeys(flag for point in kept for flag in point.flags)),
        repeats=len(kept),
        notes=tuple(dict.fromkeys((*notes, *(note for point in kept for note in point.notes)))),
    )


def between_runs(values: Sequence[float], n: int) -> Estimate:
    """The median of several runs, of `n` requests in all, with their range for two and the 95%
    interval by Student's t for more. Runs that are all alike, or failed, tell no interval.

    >>> found = between_runs([98.0, 100.0, 103.0], 9)
    >>> [round(end, 1) for end in (found.low, found.high)]
    [94.1, 106.6]
    """
    middle = median(values)
    if not 0 < max(values) - min(values) < math.inf:
        return Estimate.without_interval(middle, n)
    low, high = min(values), max(values)
    if len(values) > 2:
        reach = t_quantile(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
        low, high = fmean(values) - reach, fmean(values) + reach
    return Estimate(middle, max(0.0, min(low, middle)), max(high, middle), n)


def _spread(values: Mapping[str, Sequence[float]]) -> str:
    """': output throughput 900 tok/s to 950 tok/s': the range of the first figure of each axis."""
    axes = [next((name for name in names if name in values), "") for names in AXES]
    apart = [name for name in filter(None, axes) if min(values[name]) < max(values[name])]
    formats = {name: metric(name).format for name in apart}
    words = [f"{metric(name).label} {f(min(values[name]))} to {f(max(values[name]))}" for name, f in formats.items()]
    return f": {'; '.join(words)}" if words else ""


def unlike_runs(settings: Mapping[ImportedSetting, list[Result]]) -> list[str]:
    """A note on deployments with repeats that differ more than repeats do: they may be of several
    deployments, which only the names of their files tell apart.
    """
    widest: dict[str, float] = {}
    for (name, _, _), same in settings.items():
        rates = [rate for result in same if (rate := result.figures.get("output_throughput"))]
        if rates and not same[0].records:
            widest[name] = max(widest.get(name, 1.0), max(rates) / min(rates))
    names = sorted((name for name, apart in widest.items() if apart > UNLIKE), key=lambda name: -widest[name])
    if not names:
        return []
    what = f"output throughput of runs of one setting differs by up to {widest[names[0]] - 1:.0%}: {some_of(names, 3)}"
    return [f"{what}; where they are of several deployments, import the files of each with --deployment"]
