"""Server starts of different speed: what a variant gives at the speed in the middle.

One start of a server is slower than the next, at all loads. Where two starts were measured at one
load their difference shows, and what either gave at other loads is corrected by it. So one slow
start decides less. For planning, and for what a variant may give beyond its proof.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from frontier.core.claim.changes import History, latencies
from frontier.core.claim.proof import join
from frontier.core.model.decisions import Limit
from frontier.core.stats.laws import normal_quantile
from frontier.core.stats.wander import BASIC
from frontier.core.window.window import Floats, WindowData

LEAST_ERROR = 0.01
"""The standard error (ln) of a value of one load in one start, beside that of its requests."""

Cells = Mapping[tuple[int, int], tuple[float, float]]
"""By concurrency and number of the start: a value (ln) and its standard error."""


def by_start(history: History, starts: Mapping[str, int]) -> dict[tuple[int, int], WindowData]:
    """The data of each load in each start."""
    parts: dict[tuple[int, int], list[WindowData]] = {}
    for trial, sample in history:
        parts.setdefault((trial.concurrency, starts[trial.key]), []).append(sample)
    return {cell: join(tuple(each)) for cell, each in parts.items()}


@dataclass(frozen=True, slots=True)
class Levels:
    """The `value` of each load at the speed in the middle of the starts and its standard `error`,
    and by how much each start is `above` the middle (ln).
    """

    value: Mapping[int, float]
    error: Mapping[int, float]
    above: Mapping[int, float]

    @classmethod
    def of(cls, cells: Cells, spread: float) -> "Levels":
        """By least squares, where starts differ by the standard deviation `spread`. A start that
        shares no load with another counts as one in the middle. Where starts do not differ by the
        same factor at all loads, the errors are larger.
        """
        loads, starts = sorted({c for c, _ in cells}), sorted({start for _, start in cells})
        columns = len(loads) + len(starts)
        rows, right = np.zeros((len(cells), columns)), np.zeros(len(cells))
        for row, ((c, start), (value, error)) in enumerate(cells.items()):
            rows[row, [loads.index(c), len(loads) + starts.index(start)]] = 1 / error
            right[row] = value / error
        of_starts = np.diag([0.0] * len(loads) + [spread**-2] * len(starts))
        covariance = np.linalg.inv(rows.T @ rows + of_starts)
        solved = covariance @ rows.T @ right
        spare = max(1.0, len(cells) - float(np.trace(rows @ covariance @ rows.T)))
        misfit = max(1.0, float(((right - rows @ solved) ** 2).sum()) / spare)
        errors, found = np.sqrt(misfit * np.diag(covariance)).tolist(), solved.tolist()
        above = dict(zip(starts, found[len(loads) :], strict=True))
        return cls(dict(zip(loads, found, strict=False)), dict(zip(loads, errors, strict=False)), above)


def at_one_speed(
    data: Mapping[tuple[int, int], WindowData], limits: Iterable[Limit], spread: float
) -> tuple[dict[int, WindowData], dict[Limit, Levels]]:
    """The data of each load, with the latencies that the limits are on as they would be at the
    speed in the middle; and the levels of each limit.
    """
    moved, found = dict(data), dict[Limit, Levels]()
    for limit in limits:
        known = {cell: _median(latencies(sample, limit)) for cell, sample in data.items()}
        found[limit] = Levels.of({cell: median for cell, median in known.items() if median is not None}, spread)
        if (quantity := limit.of.quantity) in BASIC:
            for (c, start), sample in moved.items():
                slower = math.exp(-found[limit].above.get(start, 0.0))
                moved[c, start] = replace(sample, **{quantity: getattr(data[c, start], quantity) * slower})
    loads: dict[int, list[WindowData]] = {}
    for (c, _), sample in sorted(moved.items(), key=lambda each: each[0]):
        loads.setdefault(c, []).append(sample)
    return {c: join(tuple(parts)) for c, parts in loads.items()}, found


def _median(values: Floats) -> tuple[float, float] | None:
    """ln of the median and its standard error; None where most requests failed."""
    median = float(np.median(values)) if len(values) else math.inf
    if not 0 < median < math.inf:
        return None
    logs = np.log(values[np.isfinite(values) & (values > 0)] / median)
    deviation = float(np.median(np.abs(logs))) / normal_quantile(0.75)
    return math.log(median), math.hypot(deviation * math.sqrt(1.57 / len(logs)), LEAST_ERROR)
