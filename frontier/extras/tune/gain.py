"""The claim: how much more the winner of a race gives than the baseline, and how sure that is.

Baseline and winner were started anew in turn, and each pair of starts is one observation: what
differs from start to start is most of the error, and requests within one start do not show it. The
interval is Student's over the pairs. It is judged after 3, 5 and 8 pairs, each time with a part of
the error, and is wider by what either side may still give at a load that was not proven.
"""

import math
from dataclasses import dataclass

from frontier.core.estimates.estimate import estimate
from frontier.core.model.decisions import Limit
from frontier.core.model.metrics import metric
from frontier.core.model.points import Estimate
from frontier.core.stats.difference import Difference, in_pairs, variance
from frontier.core.stats.laws import t_quantile
from frontier.core.window.window import WindowData, join

SPENT = {3: 0.02, 5: 0.015, 8: 0.015}
"""After how many pairs the difference is judged, and the two-sided error that each time spends."""
WORTH = 0.03
"""A gain that is surely smaller is not looked for any longer."""


@dataclass(frozen=True, slots=True)
class RaceRules:
    """What a race is about: under which limits the most of what `objective` counts is looked for;
    `top` is the highest concurrency that may be tried.
    """

    limits: tuple[Limit, ...]
    objective: str
    top: int
    price: float | None = None

    def value(self, sample: WindowData) -> Estimate | None:
        """What the data of a setting give; None where that is not known."""
        value = estimate(sample, self.objective, limits=self.limits, price=self.price)
        return value if value is not None and 0 < value.value < math.inf else None

    def worth(self, sample: WindowData) -> float | None:
        """ln of what the data of a setting give: the higher, the better. None where that is not
        known.
        """
        value = self.value(sample)
        return None if value is None else metric(self.objective).sign * math.log(value.value)

    def given(self, worth: float) -> float:
        """What a setting of this worth gives."""
        return math.exp(metric(self.objective).sign * worth)


@dataclass(frozen=True, slots=True)
class ProvenVariant:
    """The proven setting of a variant: its data by start; and how much more (ln) the variant is
    expected to give at another load inside the SLA, and may give at most.
    """

    concurrency: int
    starts: tuple[tuple[WindowData, ...], ...]
    expected_more: float
    most_more: float


@dataclass(frozen=True, slots=True)
class Gain:
    """The winner's value over the baseline's, at what is proven of each: `ratio` with its interval
    over `pairs` of starts. `decided`: more pairs would not change what is said of it.
    """

    baseline: float
    winner: float
    ratio: Estimate
    pairs: int
    decided: bool

    @property
    def better(self) -> bool:
        """Whether the winner is shown to be better."""
        return self.ratio.low > 1


def gain_of(baseline: ProvenVariant, winner: ProvenVariant, rules: RaceRules) -> Gain | None:
    """What the pairs of starts show; None while there is none."""
    pairs = list(zip(baseline.starts, winner.starts, strict=False))
    values = [(rules.value(join(a)), rules.value(join(b))) for a, b in pairs]
    known = [(a, b) for a, b in values if a is not None and b is not None]
    if not known:
        return None
    sign = metric(rules.objective).sign
    steps = [sign * math.log(b.value / a.value) for a, b in known]
    # A value without an interval says nothing of the requests within its start.
    floor = max(sum(v for v in map(variance, pair) if math.isfinite(v)) for pair in known)
    difference = in_pairs(steps, floor)
    ratio = _of_bests(difference, baseline, winner, len(steps))
    centre = difference.value + winner.expected_more - baseline.expected_more
    told = ratio.low > 1 or ratio.high < 1 + WORTH or centre <= 0
    told = told or reach_of(difference, len(steps)) < open_of(baseline, winner) < math.inf
    enough = len(steps) in SPENT and told
    means = [math.exp(sum(math.log(x.value) for x in side) / len(side)) for side in zip(*known, strict=True)]
    most = len(steps) >= max(SPENT) and math.isfinite(open_of(baseline, winner))
    return Gain(means[0], means[1], ratio, len(steps), enough or most)


def _of_bests(difference: Difference, baseline: ProvenVariant, winner: ProvenVariant, pairs: int) -> Estimate:
    """The ratio of what is proven of the two, with the interval of the ratio of their true bests.

    The interval is at the part of the error that the last judgement spends. It allows for what
    either side is expected to give beyond what is proven, and for the most that it may.
    """
    value = math.exp(difference.value)
    if difference.freedom < 1:
        return Estimate(value, 0.0, math.inf, pairs)
    centre = difference.value + winner.expected_more - baseline.expected_more
    half = math.hypot(reach_of(difference, pairs), open_of(baseline, winner))
    return Estimate(value, min(value, math.exp(centre - half)), max(value, math.exp(centre + half)), pairs)


def reach_of(difference: Difference, pairs: int) -> float:
    """How far the interval of the pairs reaches, at the part of the error of the last judgement."""
    judged = max((count for count in SPENT if count <= pairs), default=min(SPENT))
    return t_quantile(1 - SPENT[judged] / 2, difference.freedom) * difference.error


def open_of(*sides: ProvenVariant) -> float:
    """How far the interval reaches by what either side may still give."""
    return math.hypot(*(max(0.0, side.most_more - side.expected_more) for side in sides))
