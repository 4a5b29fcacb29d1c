"""A comparison as every output shows it: of two frontiers, a gate, a race, and of dated runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from frontier.core.model.loads import Load
from frontier.core.model.points import Estimate
from frontier.core.model.series import Series


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """One side against another, or the variants of a race.

    - `title`: what was compared, or what a race shows, also in its picture.
    - `about`: the shape, or what a race is about.
    - `sentence`: what it shows; `rows`: a row for each figure or variant; `notes` on both.
    - `more`: lines for a reader of all there is.
    - `tree`: the same for JSON.
    """

    verdict: str
    title: str
    about: str
    sentence: str
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    more: tuple[str, ...]
    tree: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TrendRow:
    """One dated run of a trend: the means of its metrics over the common settings, and its
    operating point.

    - `stretch`: the number of its stretch, from 1; `begins`: it is the first after a break.
    """

    at: float
    run: str
    key: Mapping[str, str]
    stretch: int
    begins: bool
    chosen: Load | None
    means: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True)
class TrendView:
    """Dated runs of one series, oldest first.

    - `metrics`: of the means, which are over `settings`.
    - `chosen`: what operating points are called: 'proven', or that values alone decided.
    - `breaks`: (number of the first run after it, what changed); `left_out`: runs without these
      settings.
    - `levels`: by metric, (first run, last run, mean) of each stretch.
    """

    series: Series
    metrics: tuple[str, ...]
    settings: tuple[Load, ...]
    chosen: str
    rows: tuple[TrendRow, ...]
    breaks: tuple[tuple[int, str], ...]
    left_out: tuple[str, ...]
    levels: Mapping[str, tuple[tuple[int, int, float], ...]]
    notes: tuple[str, ...]
