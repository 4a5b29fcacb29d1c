"""Difference between two settings: a metric of B against that of A, with interval and verdict.

Values are compared as logarithms, so a difference is a ratio that treats both sides alike.
Measurements made in turn are compared in pairs: what both halves of a pair share drops out, and
Student's t turns the spread of the pairs into bounds. Two estimates that were not made in turn are
compared by their own intervals, as independent. Several differences are averaged with the degrees
of freedom of Welch and Satterthwaite.

An interval within a run does not hold what differs between runs of one server: pairs do.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from frontier.core.model.points import Estimate
from frontier.core.stats.laws import t_quantile

ComparisonVerdict = Literal["better", "no worse", "not resolved", "worse", "invalid"]
ORDER: tuple[ComparisonVerdict, ...] = ("better", "no worse", "not resolved", "worse", "invalid")
"""The verdicts of a comparison, from the best to the worst."""
INDIFFERENCE = 0.02
"""Two runs of one server can differ by more than this share."""


@dataclass(frozen=True, slots=True)
class Difference:
    """ln of B over A with its standard error.

    The error has `freedom` degrees of freedom: infinite where it is known, below 1 where nothing
    shows it.
    """

    value: float
    error: float
    freedom: float = math.inf

    @property
    def has_interval(self) -> bool:
        """Whether its error is known or estimated."""
        return self.freedom >= 1 and math.isfinite(self.error)

    def bound(self, p: float) -> float:
        """The difference plus the p-quantile of its error; infinite where that is not known."""
        if not self.has_interval:
            return math.copysign(math.inf, p - 0.5)
        return self.value + t_quantile(p, self.freedom) * self.error

    def turned(self, sign: float) -> "Difference":
        """The difference, or for -1 that of A over B."""
        return Difference(sign * self.value, self.error, self.freedom)

    def ratio(self, n: int) -> Estimate:
        """B over A with its 95% interval; `n` requests are behind it."""
        if not self.has_interval:
            return Estimate.without_interval(math.exp(self.value), n)
        return Estimate(math.exp(self.value), math.exp(self.bound(0.025)), math.exp(self.bound(0.975)), n)


def is_comparable(estimate: Estimate) -> bool:
    """Whether a value has a logarithm."""
    return 0 < estimate.value < math.inf


def variance(estimate: Estimate) -> float:
    """The variance of ln of a value by its 95% interval; infinite where that lacks an end."""
    if not 0 < estimate.low <= estimate.high < math.inf:
        return math.inf
    return (math.log(estimate.high / estimate.low) / 3.92) ** 2


def between(a: Estimate, b: Estimate) -> Difference:
    """B against A by their own intervals, as independent estimates; NaN with an infinite error
    where a value has no logarithm.
    """
    if not (is_comparable(a) and is_comparable(b)):
        return Difference(math.nan, math.inf, 0)
    return Difference(math.log(b.value / a.value), math.sqrt(variance(a) + variance(b)))


def in_pairs(steps: Sequence[float], floor: float = 0.0) -> Difference:
    """The mean over pairs of ln of B over A. The variance of a pair counts as at least `floor`:
    equal seeds or rounding can make pairs alike.
    """
    seen = float(np.var(steps, ddof=1)) if len(steps) > 1 else math.inf
    return Difference(float(np.mean(steps)), math.sqrt(max(seen, floor) / len(steps)), len(steps) - 1)


def mean(differences: Sequence[Difference]) -> Difference:
    """The mean of independent differences."""
    squares = [d.error**2 for d in differences]
    freedom = min(d.freedom for d in differences)
    if 0 < sum(squares) < math.inf:  # Welch and Satterthwaite; an error that is known takes none away
        taken = sum(square**2 / d.freedom for square, d in zip(squares, differences, strict=True))
        freedom = sum(squares) ** 2 / taken if taken > 0 else math.inf
    return Difference(float(np.mean([d.value for d in differences])), math.sqrt(sum(squares)) / len(squares), freedom)


def verdict(
    gain: Difference, within: float | None = None, may_still_give: tuple[float, float] = (1.0, 1.0)
) -> ComparisonVerdict:
    """The verdict of a difference; above 0 is better.

    "better" and "worse" need an interval on one side of no difference, and a ratio further from 1
    than INDIFFERENCE. "no worse" needs that B surely loses at most the share `within`. Where A and
    B `may_still_give` more than was compared, by these factors, the interval is wider by them.
    """
    value, a, b = math.exp(gain.value), *may_still_give
    low, high = math.exp(gain.bound(0.025)) / a, math.exp(gain.bound(0.975)) * b
    if low > 1 and value > 1 + INDIFFERENCE:
        return "better"
    if within is not None and low >= 1 - within:
        return "no worse"
    if high < 1 - (within or 0.0) and value < 1 - max(INDIFFERENCE, within or 0.0):
        return "worse"
    return "not resolved"
