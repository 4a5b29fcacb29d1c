"""Streams that stand still while the server's metrics are read.

The gap between chunks around each reading is compared with the gap around moments between two
readings. Where one event loop makes the metrics' text and writes the streams, a reading holds the
streams up, and what is measured is then not what users meet.
"""

from collections.abc import Sequence

import numpy as np

from frontier.core.model.trials import SourceReadings
from frontier.core.window.window import Floats, Ints

LASTED = "scrape_duration_seconds"
"""The series of a source of metrics that holds how long each reading of it took."""
SHORT = 0.005
"""Seconds of a reading below which a standstill would be no longer than a step of an engine."""
FEWEST, SURE, MORE = 4, 4.0, 0.25
"""A standstill is reported from FEWEST readings on, where the difference is above SURE standard
errors and above MORE of the usual gap."""
DURING, ELSE, SHARE = "scrape_gap", "scrape_gap_else", "scrape_share"


class Standstill:
    """The gaps that hold the moments of a source's readings, and as many thirds between these."""

    def __init__(self, readings: Sequence[SourceReadings]) -> None:
        kept = [(source.times, each.values) for source in readings for each in source.series if each.name == LASTED]
        times, lasted = ([float(n) for n in text.split() if n != "-"] for text in (kept[0] if kept else ("", "")))
        long = len(times) == len(lasted) >= FEWEST and float(np.median(lasted)) >= SHORT
        at = np.array(times if long else [])
        self._share = sum(lasted) / (at[-1] - at[0]) if long and at[-1] > at[0] else 0.0
        between = [at[:-1] + np.diff(at) * part for part in (1 / 3, 2 / 3)]
        points = np.concatenate([at, *between])
        order = np.argsort(points)
        self._points, self._during = points[order], (np.arange(len(points)) < len(at))[order]
        self._sums, self._counts = np.zeros(len(points)), np.zeros(len(points))

    def add(self, first: Floats, gaps: Ints, counts: Ints) -> None:
        """The gaps of a batch in a row, in microseconds, as many of each request as `counts`."""
        if not len(self._points) or not len(gaps):
            return
        passed = gaps.cumsum()
        ends = np.repeat(first, counts) + (passed - _before(passed, gaps, counts)) * 1e-6
        low = np.searchsorted(self._points, ends - gaps * 1e-6, side="right")
        many = np.searchsorted(self._points, ends, side="right") - low
        hit = many > 0
        which = np.repeat(low[hit], many[hit]) + _offsets(many[hit])
        np.add.at(self._sums, which, np.repeat(gaps[hit], many[hit]) * 1e-6)
        np.add.at(self._counts, which, 1)

    def facts(self) -> dict[str, float]:
        """The mean gap around a reading and else, and the share of the time that readings take;
        nothing where the gaps do not differ beyond noise.
        """
        means, met = self._sums / np.maximum(self._counts, 1), self._counts > 0
        during, other = means[met & self._during], means[met & ~self._during]
        if min(len(during), len(other)) < FEWEST:
            return {}
        more = float(during.mean() - other.mean())
        squares = float(during.var() * len(during) + other.var() * len(other))
        error = (squares / (len(during) + len(other) - 2) * (1 / len(during) + 1 / len(other))) ** 0.5
        if more <= max(SURE * error, MORE * float(other.mean())):
            return {}
        return {DURING: float(during.mean()), ELSE: float(other.mean()), SHARE: self._share}


def _before(passed: Ints, gaps: Ints, counts: Ints) -> Ints:
    """For each gap, the time passed before the first gap of its request."""
    some = counts[counts > 0]
    starts = some.cumsum() - some
    return np.repeat(passed[starts] - gaps[starts], some)


def _offsets(many: Ints) -> Ints:
    """0, 1, ... for each of these counts, in a row."""
    return np.arange(many.sum()) - np.repeat(many.cumsum() - many, many)
