"""The gain of a race: how much more the winner gives than the baseline, and how sure that is.

Baseline and winner are started anew in turn, and each pair of starts is one observation. Most of
the error is the difference from start to start, which requests within one start do not show. The
interval is Student's over the pairs. It is judged after 3, 5 and 8 pairs, each time with a part of
the error. It is widened by what either side may still give at a load that was not proven.
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
"""The two-sided error that each judgement spends, by the number of pairs after which it comes."""
WORTH = 0.03
"""The smallest gain worth looking for: a race ends when the gain is surely smaller."""


@dataclass(frozen=True, slots=True)
class RaceRules:
    """The rules of a race: the variant that gives the most of `objective` within the limits wins.
    `top` is the highest concurrency that may be tried.
    """

    limits: tuple[Limit, ...]
    objective: str
    top: int
    price: float | None = None

    def value(self, sample: WindowData) -> Estimate | None:
        """The value of the objective in a setting's data; None where it is not known."""
        value = estimate(sample, self.objective, limits=self.limits, price=self.price)
        return value if value is not None and 0 < value.value < math.inf else None

    def worth(self, sample: WindowData) -> float | None:
        """ln of the value of a setting's data, higher being better; None where it is not known."""
        value = self.value(sample)
        return None if value is None else metric(self.objective).sign * math.log(value.value)

    def given(self, worth: float) -> float:
        """The value of the objective at this worth."""
        return math.exp(metric(self.objective).sign * worth)


@dataclass(frozen=True, slots=True)
class ProvenVariant:
    """The proven setting of a variant, with its data by start.

    `expected_more` and `most_more` (ln) are how much more the variant is expected to give, and may
    give at most, at another load inside the SLA.
    """

    concurrency: int
    starts: tuple[tuple[WindowData, ...], ...]
    expected_more: float
    most_more: float


@dataclass(frozen=True, slots=True)
class Gain:
    """The winner's value over the baseline's, each at its proven setting: `ratio` with its interval
    over `pairs` of starts. `decided`: more pairs would not change the conclusion.
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
    """The gain by the pairs of starts; None while there are no pairs."""
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
    """Half the width of the interval of the pairs, at the part of the error that the last judgement
    spends.
    """
    judged = max((count for count in SPENT if count <= pairs), default=min(SPENT))
    return t_quantile(1 - SPENT[judged] / 2, difference.freedom) * difference.error


def open_of(*sides: ProvenVariant) -> float:
    """Half the width that the interval gets from what either side may still give."""
    return math.hypot(*(max(0.0, side.most_more - side.expected_more) for side in sides))
