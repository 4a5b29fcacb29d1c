"""Verdict of one setting against an SLA: per metric and jointly, what binds, and how many requests
would decide.

A setting meets an SLA when the confidence bound of every limited metric is within its limit. It
violates the SLA when a bound on the other side is outside.

"meets" needs every metric at the full error each (intersection-union test, Berger 1982: no
correction). "violates" needs any of m metrics, so each is held to alpha / m (Bonferroni).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from frontier.core.model.decisions import Judgement, Limit, Verdict, worst
from frontier.core.model.errors import UsageError
from frontier.core.model.loads import Load
from frontier.core.model.metrics import APART, claim_floor, metric
from frontier.core.model.points import Estimate, Point

INTERVAL_SIDE = 0.025
"""The error of each side of `low`..`high`."""
TOO_CLOSE = 100
"""A decision that needs this many times the requests already spent is not worth proposing."""
RISING = frozenset(
    {
        *("output_throughput", "input_throughput", "total_throughput", "request_throughput", "goodput"),
        *("cost", "energy"),
    }
)
"""Limits that more concurrency helps to keep: broken at the low end they say "too few", not "too
many"."""


def judge(point: Point, limits: Sequence[Limit], *, alpha: float = 0.05, point_estimates: bool = False) -> Judgement:
    """One point against an SLA, worst verdict first: invalid, violates, unproven, marginal, meets.

    `alpha` is the one-sided error at which the point's `lower` and `upper` were computed. A
    percentile with fewer requests than `metrics.claim_floor` never meets. A metric that was not
    measured is unproven. A rate at which the backlog grew violates every limit. `point_estimates`
    compares the values alone, and the worse end of an interval without a bound: that of several
    runs. It then says marginal where the end is not inside. `headroom` is the share of the binding
    metric's limit that its value leaves (negative: over it). `need` is the number of requests in
    all that would decide every limit, the most demanding one included. It is None where one limit
    is too close or has no interval. UsageError without limits.
    """
    if not limits:
        raise UsageError("an SLA needs at least one limit", "write one as p99_ttft<=500ms")
    sides = {limit: _Sides.of(point.metrics.get(limit.metric), limit) for limit in limits}
    verdicts: dict[str, Verdict] = {}
    joint = [Verdict.INVALID] if not point.valid else []
    for limit in limits:
        own = sides[limit].verdict(alpha, alpha, point_estimates)
        verdicts[limit.metric] = worst([own, verdicts.get(limit.metric, Verdict.MEETS)])
        joint.append(sides[limit].verdict(alpha, alpha / len(limits), point_estimates))
    if point.overloaded:
        verdicts = dict.fromkeys(verdicts, Verdict.VIOLATES)
        joint.append(Verdict.VIOLATES)
    verdict = worst(joint)
    undecided = verdict in (Verdict.UNPROVEN, Verdict.MARGINAL)
    needed = {
        limit: _needed_in_all(point, limit, sides[limit])
        for limit in limits
        if verdicts[limit.metric] is not Verdict.MEETS
    }
    margins = {limit: limit.margin(point.value(limit.metric)) for limit in limits}
    # Of an undecided setting, what is over its limit by its value comes first. Otherwise what no
    # number of requests decides holds back the rest, whatever its own verdict.
    over = [limit for limit in limits if margins[limit] < 0]
    hopeless = [limit for limit, n in needed.items() if n is None and not math.isnan(margins[limit])]
    deciding = [limit for limit in limits if verdicts[limit.metric] is verdict] or list(limits)
    deciding = (over or hopeless or deciding) if undecided else deciding
    known = {limit: margins[limit] for limit in deciding if not math.isnan(margins[limit])}
    binding = min(known, key=known.__getitem__) if known else deciding[0]
    return Judgement(
        load=point.load,
        verdict=verdict,
        per_metric=verdicts,
        binding=binding.metric,
        headroom=known.get(binding),
        need=max(filter(None, needed.values()), default=None) if undecided and None not in needed.values() else None,
    )


def inside(point: Point, limits: Sequence[Limit]) -> bool:
    """Whether every limited metric was measured and its value keeps its limit. A metric that was
    not measured keeps no limit: such a setting must not look nearer to an answer than another.
    """
    return all(limit.holds(point.value(limit.metric)) for limit in limits)


def _needed_in_all(point: Point, limit: Limit, sides: "_Sides") -> int | None:
    """Requests of all classes that would decide; None as `requests_needed`. For a limit on a class,
    they bring enough requests of the class. For a rate or a cost, whose n counts blocks of time,
    they fill enough blocks. A percentile needs as many as a lower one within the same limit: where
    that is not proven, it is not.
    """
    if limit.metric in APART:
        return None
    needs = [each.requests_needed() for each in (sides, *_easier(point, limit, sides))]
    need = None if None in needs else max(filter(None, needs))
    apart = (limit.of.group is not None or limit.metric in RISING) and sides.estimate.n > 0
    return math.ceil(need * point.n / sides.estimate.n) if apart and need is not None else need


def _easier(point: Point, limit: Limit, sides: "_Sides") -> list["_Sides"]:
    """The lower percentiles of a latency within its limit that are not proven to keep it either,
    with bounds as sure as its own, as the quantiles of a normal law are.
    """
    of, level = limit.of, sides.estimate.confidence
    if of.p is None or of.inverted or not sides.value <= sides.limit:
        return []
    z = NormalDist().inv_cdf
    lower = [
        _Sides.of(estimate, Limit(name, limit.promise))
        for name, estimate in point.metrics.items()
        if (metric(name).quantity, metric(name).group, metric(name).inverted) == (of.quantity, of.group, False)
        and (metric(name).p or 1.0) < of.p
    ]
    stretched = (
        replace(each, good=each.value + (each.good - each.value) * z(level) / z(each.estimate.confidence))
        for each in lower
    )
    return [each for each in stretched if not (each.enough and each.good <= each.limit)]


@dataclass(frozen=True, slots=True)
class _Sides:
    """An estimate turned so that low is good.

    `good` is the claim bound: within the limit, it shows that the setting meets. `bad` is the
    violation bound at the point's own error, and `bad_side` the one at INTERVAL_SIDE: outside the
    limit, they show that it violates. `end` is the worse end of an interval between runs, which
    proves nothing; the value without one. `floor` is the fewest requests of a claim.
    """

    limit: float
    value: float
    good: float
    bad: float
    bad_side: float
    end: float
    floor: int
    estimate: Estimate

    @classmethod
    def of(cls, measured: Estimate | None, limit: Limit) -> "_Sides":
        e = measured or Estimate.without_interval(math.nan, 0)
        floor = 0 if limit.of.p is None else claim_floor(limit.of.p)
        ends = (e.high, -e.low) if e.has_interval and not e.has_bound else (e.value, -e.value)
        if not limit.of.higher_is_better:
            return cls(limit.promise, e.value, e.upper, e.lower, e.low, ends[0], floor, e)
        return cls(-limit.promise, -e.value, -e.lower, -e.upper, -e.high, ends[1], floor, e)

    @property
    def enough(self) -> bool:
        """Whether there are enough requests for a bound, and for a claim."""
        return self.estimate.need is None and self.estimate.n >= self.floor

    def verdict(self, alpha: float, violation_alpha: float, point_estimates: bool) -> Verdict:
        if math.isnan(self.value) or not (point_estimates or self.estimate.has_bound):
            return Verdict.UNPROVEN
        if point_estimates and self.value <= self.limit < self.end:
            return Verdict.MARGINAL
        if point_estimates:
            return Verdict.MEETS if self.value <= self.limit else Verdict.VIOLATES
        if self.estimate.n >= self.floor and self.good <= self.limit:
            return Verdict.MEETS  # a rough bound too, where it is all that there is
        if self.bad_at(alpha, violation_alpha) > self.limit:
            return Verdict.VIOLATES
        return Verdict.MARGINAL if self.enough and self.estimate.has_bound else Verdict.UNPROVEN

    def bad_at(self, alpha: float, wanted: float) -> float:
        """The violation bound at the error `wanted`.

        Two violation bounds are known: `bad`, at the error `alpha`, and `bad_side`, at
        INTERVAL_SIDE. The bound with the next smaller error is used: it may miss a violation and
        never invents one. Below both errors, the stricter bound is stretched as the quantiles of a
        normal law are. For a share, the bound at INTERVAL_SIDE is mid-P (`intervals.mid_p`): right
        on average, not for every share.
        """
        if wanted >= alpha:
            return self.bad
        if wanted >= INTERVAL_SIDE:
            return self.bad_side
        known, edge = (alpha, self.bad) if alpha < INTERVAL_SIDE else (INTERVAL_SIDE, self.bad_side)
        if edge == self.value:
            return self.value
        stretch = NormalDist().inv_cdf(wanted) / NormalDist().inv_cdf(known)
        return self.value - stretch * (self.value - edge) if math.isfinite(self.value) else -math.inf

    def requests_needed(self) -> int | None:
        """Requests in all that would decide: enough for a bound, or for an interval as wide as the
        gap to the limit. None where that is not known, or more than TOO_CLOSE times those there
        are.

        An interval narrows with the root of the requests, so halving it takes four times as many.
        """
        n, need = self.estimate.n, self.estimate.need
        if math.isnan(self.value) or (need is None and not self.estimate.has_bound):
            return None
        if not self.enough:
            # An effective sample size may say that fewer would have been enough; they were not, so
            # that as many again are asked for.
            known = max(need or 0, self.floor)
            return known if known > n else 2 * n
        gap = self.limit - self.value
        reach = self.good - self.value if gap > 0 else self.bad - self.value
        if gap == 0 or not math.isfinite(reach):
            return None
        wanted = n * (reach / gap) ** 2
        return math.ceil(wanted) if n < wanted <= TOO_CLOSE * n else None


def violating_settings(judged: Mapping[Load, Judgement]) -> list[Load]:
    """The settings that violate, ascending, less those at the low end that only lack throughput.

    One user alone cannot give 1,000 tok/s: that says "too few", and must not forbid everything
    above it. Once a setting did not violate, a higher one that lacks throughput counts like any
    other violation.
    """
    violating: list[Load] = []
    kept_below = False
    for c, j in sorted(judged.items()):
        if j.verdict is not Verdict.VIOLATES:
            kept_below = True
        elif kept_below or any(v is Verdict.VIOLATES and m not in RISING for m, v in j.per_metric.items()):
            violating.append(c)
    return violating
