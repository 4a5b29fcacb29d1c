"""One setting against an SLA: a verdict per metric and jointly, what binds, and how many requests would decide.

A setting meets an SLA when the confidence bound of every limited metric is inside its limit; it violates when a bound
on the other side is outside.

Joint claims: "meets" needs every metric at the full error each (intersection-union test, Berger 1982: no correction);
"violates" needs any of m metrics, so each is held to alpha / m (Bonferroni).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from frontier.errors import UsageError
from frontier.metrics import ENERGY, claim_floor, metric
from frontier.model import Estimate, Judgement, Limit, Point, Verdict

SIDE = 0.025
"""The error of each side of `low`..`high`."""
TOO_CLOSE = 100
"""A decision that needs this many times the requests already spent is not worth proposing."""
RISING = frozenset(
    {*ENERGY, "output_throughput", "input_throughput", "total_throughput", "request_throughput", "goodput", "cost"}
)
"""Limits that more concurrency helps to keep: broken at the low end they say "too few", not "too many"."""

_SEVERITY = (Verdict.INVALID, Verdict.VIOLATES, Verdict.UNPROVEN, Verdict.MARGINAL, Verdict.MEETS)


def judge(point: Point, limits: Sequence[Limit], *, alpha: float = 0.05, point_estimates: bool = False) -> Judgement:
    """One point against an SLA, worst verdict first: invalid, violates, unproven, marginal, meets.

    `alpha` is the one-sided error at which the point's `lower` and `upper` were computed. A percentile with fewer
    requests than `metrics.claim_floor` never meets. A metric that was not measured is unproven. `point_estimates`
    compares the values alone and never says marginal. `headroom` is the share of the binding metric's limit that its
    value leaves (negative: over it); `need` the requests in all that would decide. UsageError without limits.
    """
    if not limits:
        raise UsageError("an SLA needs at least one limit", "write one as p99_ttft<=500ms")
    verdicts: dict[str, Verdict] = {}
    joint = [Verdict.INVALID] if not point.valid else []
    for limit in limits:
        sides = _Sides.of(point.metrics.get(limit.metric), limit)
        verdict = sides.verdict(alpha, alpha, point_estimates)
        previous = verdicts.get(limit.metric, Verdict.MEETS)
        verdicts[limit.metric] = worst([verdict, previous])
        joint.append(sides.verdict(alpha, alpha / len(limits), point_estimates))
    verdict = worst(joint)
    headrooms = {limit: headroom(point.metrics.get(limit.metric), limit) for limit in limits}
    deciding = [limit for limit in limits if verdicts[limit.metric] is verdict] or list(limits)
    known = [limit for limit in deciding if headrooms[limit] is not None]
    binding = min(known, key=lambda limit: headrooms[limit] or 0.0) if known else deciding[0]
    needs = [_Sides.of(point.metrics.get(limit.metric), limit).need() for limit in deciding]
    return Judgement(
        concurrency=point.concurrency,
        verdict=verdict,
        per_metric=verdicts,
        binding=binding.metric,
        headroom=headrooms[binding],
        need=max((n for n in needs if n is not None), default=None)
        if verdict in (Verdict.UNPROVEN, Verdict.MARGINAL)
        else None,
    )


def headroom(estimate: Estimate | None, limit: Limit) -> float | None:
    """The share of the limit the value leaves, negative beyond it; None when not measured."""
    if estimate is None or math.isnan(estimate.value):
        return None
    left = limit.promise - estimate.value if metric(limit.metric).better == "lower" else estimate.value - limit.promise
    if limit.promise == 0:
        return 0.0 if left == 0 else math.copysign(math.inf, left)
    return left / abs(limit.promise)


@dataclass(frozen=True, slots=True)
class _Sides:
    """An estimate turned so that low is good: `good` is the bound a claim needs, `bad` the one a violation needs."""

    limit: float
    value: float
    good: float
    bad: float
    bad_side: float
    n: int
    floor: int
    shortfall: int | None
    bounded: bool

    @classmethod
    def of(cls, e: Estimate | None, limit: Limit) -> "_Sides":
        m = metric(limit.metric)
        floor = 0 if m.p is None else claim_floor(m.p)
        if e is None:
            return cls(limit.promise, math.nan, math.inf, -math.inf, -math.inf, 0, floor, None, False)
        bounded = math.isfinite(e.lower) or math.isfinite(e.upper) or e.lower == e.upper
        if m.better == "lower":
            return cls(limit.promise, e.value, e.upper, e.lower, e.low, e.n, floor, e.need, bounded)
        return cls(-limit.promise, -e.value, -e.lower, -e.upper, -e.high, e.n, floor, e.need, bounded)

    def verdict(self, alpha: float, violation_alpha: float, point_estimates: bool) -> Verdict:
        if math.isnan(self.value):
            return Verdict.UNPROVEN
        if point_estimates:
            return Verdict.MEETS if self.value <= self.limit else Verdict.VIOLATES
        enough = self.shortfall is None and self.n >= self.floor
        if enough and self.good <= self.limit:
            return Verdict.MEETS
        if self.bad_at(alpha, violation_alpha) > self.limit:
            return Verdict.VIOLATES
        return Verdict.MARGINAL if enough and self.bounded else Verdict.UNPROVEN

    def bad_at(self, alpha: float, wanted: float) -> float:
        """The violation bound at the error `wanted`: one of the two known, or the stricter stretched as a normal's.

        Of a share SIDE is its mid-P bound (`stats.mid_p`): right on average, for a violation of several limits.
        """
        if wanted >= alpha:
            return self.bad
        if wanted >= SIDE:
            return self.bad_side
        known, edge = (alpha, self.bad) if alpha < SIDE else (SIDE, self.bad_side)
        if edge == self.value:
            return self.value
        stretch = NormalDist().inv_cdf(wanted) / NormalDist().inv_cdf(known)
        return self.value - stretch * (self.value - edge) if math.isfinite(self.value) else -math.inf

    def need(self) -> int | None:
        """Requests in all that would decide: to have a bound, or for an interval as wide as the gap to the limit."""
        if math.isnan(self.value) or (self.shortfall is None and not self.bounded):
            return None
        if self.shortfall is not None or self.n < self.floor:
            return max(self.shortfall or 0, self.floor)
        gap = self.limit - self.value
        reach = self.good - self.value if gap > 0 else self.bad - self.value
        if gap == 0 or not math.isfinite(reach) or not self.bounded:
            return None
        wanted = self.n * (reach / gap) ** 2
        return math.ceil(wanted) if self.n < wanted <= TOO_CLOSE * self.n else None


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The one that decides: invalid, violates, unproven, marginal, meets. ValueError without any."""
    return min(verdicts, key=_SEVERITY.index)


def deciding_bound(estimate: Estimate, limit: Limit) -> float | None:
    """The one-sided 95 % bound that decides: the one toward the limit from the value. None where there is none."""
    toward_upper = limit.holds(estimate.value) == (limit.better == "lower")
    bound = estimate.upper if toward_upper else estimate.lower
    return bound if math.isfinite(bound) else None
