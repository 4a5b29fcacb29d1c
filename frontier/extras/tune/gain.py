"""The gain of a race: how much more the winner gives than the baseline, and how sure that is.

Baseline and winner are started anew in turn, and each pair of starts is one observation. Most of
the error is the difference from start to start, which requests within one start do not show. The
interval is Student's over the pairs. It is judged after 3, 5 and 8 pairs, each time with a part of
the error. Its lower end is widened by what the baseline may still give at a load that was not
proven, its upper end by what the winner may.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frontier.core.estimates.estimate import estimate
from frontier.core.model.decisions import Limit
from frontier.core.model.loads import Load
from frontier.core.model.metrics import metric
from frontier.core.model.points import Estimate
from frontier.core.stats.difference import Difference, in_pairs, variance
from frontier.core.stats.laws import t_quantile
from frontier.core.window.window import WindowData, join
from frontier.hardware import device_power

SPENT = {3: 0.02, 5: 0.015, 8: 0.015}
"""The two-sided error that each judgement spends, by the number of pairs after which it comes."""
WORTH = 0.03
"""The smallest gain worth looking for: a race ends when the gain is surely smaller, and a variant
is better where its gain is surely larger."""
MOST_PAIRS = 200
"""A number of pairs that would decide is not named beyond this: nobody starts a server as often."""
_COUNTS = (*range(min(SPENT), 20), *range(20, MOST_PAIRS + 1, 10))
_MOST = 700.0
"""The largest exponent: beyond it floats end."""


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
    """The proven setting of a variant, with its data by the number of the start. Its load was fixed
    in the start `fixed`.

    `most_more` (ln) is how much more the variant may give at another load within the SLA.
    """

    load: Load
    starts: Mapping[int, tuple[WindowData, ...]]
    fixed: int
    most_more: float


@dataclass(frozen=True, slots=True)
class Gain:
    """The winner's value over the baseline's, each at its proven setting: `ratio` with the interval
    of the ratio of their true bests, by `pairs` of starts.

    `told`: the interval lies on one side of what a gain is worth. `reach` is half the width (ln)
    that the pairs give it, and `deciding` the pairs that would show the gain; None where no number
    would.
    """

    loads: tuple[Load, Load]
    baseline: float
    winner: float
    ratio: Estimate
    pairs: int
    reach: float
    deciding: int | None

    @property
    def better(self) -> bool:
        """Whether the winner is shown to be better, by more than a gain is worth looking for."""
        return self.ratio.low > 1 + WORTH

    @property
    def no_worse(self) -> bool:
        """Whether the winner gave more in the pairs and is shown not to be worse by what a gain is
        worth.
        """
        return self.ratio.value > 1 + WORTH and self.ratio.low > 1 / (1 + WORTH)

    @property
    def more_as_proven(self) -> bool:
        """Whether the winner is shown to give more at its proven load than the baseline does at its
        own, by more than a gain is worth.
        """
        return self.ratio.value / math.exp(self.reach) > 1 + WORTH

    @property
    def told(self) -> bool:
        """Whether more pairs would not change the conclusion: after a judgement, the winner is
        shown to be better, or not to be by what a gain is worth.
        """
        return self.pairs in SPENT and (self.better or self.ratio.high < 1 + WORTH)


Values = Sequence[tuple[Estimate, Estimate]]


def pairs_of(baseline: ProvenVariant, winner: ProvenVariant, rules: RaceRules) -> Values:
    """The values of each pair of starts, in their order. Only starts that were begun after both
    loads were fixed count: a load is found on starts that were luckier than the next ones are.
    """
    fixed = max(baseline.fixed, winner.fixed)
    sides = [[join(data) for number, data in side.starts.items() if number > fixed] for side in (baseline, winner)]
    a, b = map(device_power.in_parts, sides) if metric(rules.objective).needs == "power" else sides
    values = [(rules.value(x), rules.value(y)) for x, y in zip(a, b, strict=False)]
    return [(x, y) for x, y in values if x is not None and y is not None]


def steps_of(values: Values, rules: RaceRules) -> list[float]:
    """ln of the winner over the baseline, of each pair."""
    return [metric(rules.objective).sign * math.log(b.value / a.value) for a, b in values]


def spread_of(values: Values, rules: RaceRules) -> float:
    """The standard deviation (ln) from start to start that pairs show; 0 for few pairs."""
    return float(np.std(steps_of(values, rules), ddof=1)) / math.sqrt(2) if len(values) >= min(SPENT) else 0.0


def gain_of(baseline: ProvenVariant, winner: ProvenVariant, rules: RaceRules) -> Gain | None:
    """The gain by the pairs of starts; None while there are no pairs.

    The interval is at the part of the error that the last judgement spends. Downwards it allows for
    the most that the baseline may give beyond what is proven, upwards for the most that the winner
    may.
    """
    values = pairs_of(baseline, winner, rules)
    if not values:
        return None
    # A value without an interval says nothing of the requests within its start.
    floor = max(sum(v for v in map(variance, pair) if math.isfinite(v)) for pair in values)
    steps = steps_of(values, rules)
    difference = in_pairs(steps, floor)
    d, r = difference.value, reach_of(difference, len(steps)) if difference.freedom >= 1 else math.inf
    low, high = math.hypot(r, baseline.most_more), math.hypot(r, winner.most_more)
    ratio = Estimate(math.exp(d), math.exp(d - low), math.exp(d + high) if d + high < _MOST else math.inf, len(steps))
    means = [math.exp(sum(math.log(x.value) for x in side) / len(side)) for side in zip(*values, strict=True)]
    loads, deciding = (baseline.load, winner.load), _deciding(difference, baseline.most_more)
    return Gain(loads, means[0], means[1], ratio, len(steps), r, deciding)


def reach_of(difference: Difference, pairs: int) -> float:
    """Half the width of the interval of the pairs, at the part of the error that the last judgement
    spends.
    """
    judged = max((count for count in SPENT if count <= pairs), default=min(SPENT))
    return t_quantile(1 - SPENT[judged] / 2, difference.freedom) * difference.error


def expected_reach(spread: float) -> float:
    """The same that is expected of the second judgement, where starts differ by the standard
    deviation `spread` (ln).
    """
    pairs = sorted(SPENT)[1]
    return t_quantile(1 - SPENT[pairs] / 2, pairs - 1) * spread * math.sqrt(2 / pairs)


def _deciding(difference: Difference, most_more: float) -> int | None:
    """How many pairs that scatter like these would show a gain like this; None where no number
    up to MOST_PAIRS would.
    """
    pairs, spare = difference.freedom + 1, difference.value - math.log1p(WORTH)
    if spare <= most_more or difference.freedom < 1:
        return None
    scatter = difference.error * math.sqrt(pairs)
    reaches = ((n, t_quantile(1 - min(SPENT.values()) / 2, n - 1) * scatter / math.sqrt(n)) for n in _COUNTS)
    return next((n for n, reach in reaches if math.hypot(reach, most_more) < spare), None)
