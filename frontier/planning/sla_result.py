"""The result of one SLA (`SlaResult`): the operating points of a run's series, and their summary.

That is the one concurrency for several shapes, the best and the cheapest deployment, and an arrival
rate to plan with and to check.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from frontier.core.model import metrics
from frontier.core.model.decisions import Cause, Decision, Judgement, Limit, Verdict
from frontier.core.model.loads import Load
from frontier.core.model.points import Estimate, Point
from frontier.core.model.series import Series, by_series
from frontier.core.model.shapes import Shape
from frontier.core.stats import difference
from frontier.planning.most_background import MostBackground, most_background


@dataclass(frozen=True, slots=True)
class Cheapest:
    """The deployment of least cost per token for one shape, each at its own operating point.
    `sure`: its cost interval lies below all others.
    """

    decision: Decision
    sure: bool


@dataclass(frozen=True, slots=True)
class Best:
    """The deployment whose operating point gives the most output throughput for one shape, as far
    as it is proven; `name` is its own, or that of its side.

    `rate` is per GPU where `per_gpu`, and so is `second`, that of the first of `others`. `sure`: it
    is better than every other operating point, by the interval of their difference. `open` are the
    deployments without one that may yet have one: nothing of theirs is proven, or measured validly.
    `may_give` are those with a setting that is not proven and whose throughput is higher, the first
    of them and its concurrency first. `closer` are those whose setting that is not proven gives
    more than their proven one and no more than the winner's: what it gives comes last. `by_values`:
    it was decided on values alone, as asked, and nothing is proven.
    """

    decision: Decision
    rate: float
    per_gpu: bool
    sure: bool
    others: tuple[str, ...]
    open: tuple[str, ...]
    may_give: tuple[tuple[str, Load], ...] = ()
    second: float | None = None
    by_values: bool = False
    name: str = ""
    closer: tuple[tuple[str, Load, float], ...] = ()


@dataclass(frozen=True, slots=True)
class ArrivalRate:
    """The rate of independent (Poisson) arrivals, in requests per second, that one replica takes
    with at most `cap` requests in flight, about `streams` on average. Estimated from a closed loop;
    of a run at rates it was measured, and `cap` is the most that were in flight.
    """

    cap: int
    streams: int
    rate: float


@dataclass(frozen=True, slots=True)
class OpenLoopCheck:
    """An operating point to be checked with Poisson arrivals: `requests` of them at `rate` per
    second after `warmup` seconds, with at most the point's concurrency in flight. The rate is
    `load` times what the closed loop served; `asked`: a user named it so, and it is not the rate
    that was estimated for independent users.
    """

    decision: Decision
    rate: float
    load: float
    requests: int
    warmup: float = 0.0
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Checked:
    """The answer of a check: the open loop's point beside the closed loop's, and the verdict of the
    open loop.

    `in_flight` requests were in flight or waited on average; `cap` were allowed in flight.
    """

    check: OpenLoopCheck
    point: Point
    judgement: Judgement
    in_flight: float
    cap: Load
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SlaResult:
    """The result of one SLA (a tier of a config, or one that was asked).

    `common` holds, per deployment that was measured in several shapes, the one concurrency that
    meets the SLA in all of them, None where none does. `best` has an entry per shape that several
    deployments were measured in and one meets it; `cheapest` one per shape in which several priced
    deployments do. `given_up` is, beside each concurrency that is common, the share of its output
    throughput that each shape gives up by it. `commands` would prove one where none is common, by
    deployment. `arrivals` is the estimated capacity of each operating point for Poisson
    arrivals: to plan with, not proven. `backgrounds` has the most background of each deployment
    whose shape was measured beside one.
    """

    tier: str
    limits: tuple[Limit, ...]
    decisions: tuple[Decision, ...]
    common: Mapping[str, Load | None] = field(default_factory=dict)
    cheapest: tuple[Cheapest, ...] = ()
    arrivals: Mapping[Series, ArrivalRate] = field(default_factory=dict)
    best: tuple[Best, ...] = ()
    given_up: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)
    backgrounds: tuple[MostBackground, ...] = ()

    @property
    def deciding(self) -> list[Decision]:
        """The decisions that say how a command ends: of the amounts of a background that of the
        answer.
        """
        most = {each.deployment: each.deciding for each in self.backgrounds}
        return [d for d in self.decisions if most.get(d.deployment, d) is d]


def make_sla_result(
    tier: str,
    limits: Sequence[Limit],
    points: Sequence[Point],
    decisions: Sequence[Decision],
    gpus: Mapping[str, int | None] | None = None,
    arrivals: Mapping[Series, ArrivalRate] | None = None,
    measured: Sequence[Shape] = (),
) -> SlaResult:
    """The decisions of `core.claim.solver.solve_all` with their summary. `points` are the points
    decided on; `arrivals` is the rate of independent arrivals that each decision takes; `measured`
    are the shapes of the config.

    Where the number of GPUs of every deployment is known, deployments are compared per GPU.
    """
    shapes = Counter(d.deployment for d in decisions)
    shared = common([d for d in decisions if shapes[d.deployment] > 1 and _of_concurrencies(d)])
    groups = by_series(points)
    rivals = [[d for d in decisions if d.shape == shape] for shape in dict.fromkeys(d.shape for d in decisions)]
    rivals = [group for group in rivals if len(group) > 1]
    return SlaResult(
        tier,
        tuple(limits),
        tuple(decisions),
        shared,
        tuple(cheapest for group in rivals if (cheapest := _cheapest_deployment(group)) is not None),
        arrivals or {},
        tuple(
            best
            for group in rivals
            if (best := best_deployment({d.deployment: d for d in group}, gpus or {})) is not None
        ),
        {name: _given_up(c, [d for d in decisions if d.deployment == name], groups) for name, c in shared.items()},
        backgrounds=most_background(decisions, measured),
    )


def _of_concurrencies(decision: Decision) -> bool:
    """Whether a decision is on one of several concurrencies, and not on a rate or a background."""
    return decision.shape.arrivals is None and decision.shape.background is None


def _given_up(
    c: Load | None, decisions: Sequence[Decision], groups: Mapping[Series, Sequence[Point]]
) -> dict[str, float]:
    """The share of its output throughput that each shape gives up at a concurrency; of none
    nothing, and nothing of a shape whose throughput is not known.
    """
    shares = {}
    for d in decisions if c is not None else ():
        own = d.metrics.get("output_throughput")
        there = next((p.value("output_throughput") for p in groups.get(d.series, ()) if p.load == c), math.nan)
        if own is not None and own.value > 0 and math.isfinite(there):
            shares[d.shape.label] = 1 - there / own.value
    return shares


def best_deployment(
    decisions: Mapping[str, Decision],
    gpus: Mapping[str, int | None],
    rate: str = "output_throughput",
    steps: Mapping[str, float | None] | None = None,
) -> Best | None:
    """The deployment with the most proven throughput, or another rate, among those that measured
    one shape, by their names. `steps` has the rates of their next steps, where it is another.
    """
    known = [gpus.get(name) for name in decisions]
    shares = [1.0 if None in known else 1.0 / metrics.per_gpu(rate, n) for n in known]
    share = dict(zip(decisions, shares, strict=True))
    rates = {
        name: d.metrics[rate].scaled(share[name])
        for name, d in decisions.items()
        if d.load is not None and rate in d.metrics
    }
    met = sorted(rates, key=lambda name: -rates[name].value)
    if not met:
        return None
    best, others = rates[met[0]], tuple(met[1:])
    undecided = tuple(name for name, d in decisions.items() if d.verdict not in (Verdict.MEETS, Verdict.VIOLATES))
    by_values = decided_on_values(decisions[met[0]])
    sure = _is_most(best, [rates[name] for name in others], by_values)
    gives = _next_steps({name: d for name, d in decisions.items() if name != met[0]}, share, steps)
    may_give = tuple((name, load) for name, load, value in gives if value > best.value)
    closer = tuple(each for each in gives if each[0] in others and rates[each[0]].value < each[-1] <= best.value)
    second = rates[others[0]].value if others else None
    how = (None not in known, sure, others, undecided, may_give, second, by_values, met[0], closer)
    return Best(decisions[met[0]], best.value, *how)


def _next_steps(
    decisions: Mapping[str, Decision], share: Mapping[str, float], steps: Mapping[str, float | None] | None
) -> list[tuple[str, Load, float]]:
    """The next step of each decision that has one, and what it gives; 0 where that is not known."""
    known = {name: d.next_step for name, d in decisions.items() if d.next_step is not None}
    given = {name: step.throughput for name, step in known.items()} if steps is None else steps
    return [(name, step.load, (given.get(name) or 0.0) * share[name]) for name, step in known.items()]


def _is_most(best: Estimate, others: Sequence[Estimate], by_values: bool) -> bool:
    """Whether a rate is surely more than each other one, or by its value where values decide."""
    apart = (difference.between(other, best) for other in others)
    return all(difference.verdict(of_values(each) if by_values else each) == "better" for each in apart)


def decided_on_values(decision: Decision) -> bool:
    """Whether values alone decided, as asked (`--point-estimates`)."""
    return any(reason.cause is Cause.POINT_ESTIMATES for reason in decision.explanation.reasons)


def of_values(found: difference.Difference) -> difference.Difference:
    """The difference of two values without intervals, as if they were exact."""
    return found if found.has_interval else difference.Difference(found.value, 0.0)


def _cheapest_deployment(decisions: Sequence[Decision]) -> Cheapest | None:
    """The cheapest deployment among several that have a price and an operating point for one
    shape.
    """
    priced = [d for d in decisions if d.load is not None and "cost" in d.metrics]
    if len(priced) < 2:
        return None
    best = min(priced, key=lambda d: d.metrics["cost"].value)
    return Cheapest(best, all(best.metrics["cost"].high < d.metrics["cost"].low for d in priced if d is not best))


def common(decisions: Sequence[Decision]) -> dict[str, Load | None]:
    """The one concurrency to set for all shapes, by deployment; None when no measured setting meets
    in all of them.

    It was measured in every shape and meets in each, below the lowest violation of each. Of such
    settings the highest is taken that is not above the operating point of any shape; without one,
    the lowest.
    """
    settings: dict[str, Load | None] = {}
    for name in dict.fromkeys(d.deployment for d in decisions):
        own = [d for d in decisions if d.deployment == name]
        shared = set.intersection(*(_meeting(d) for d in own))
        modest = [c for c in shared if c <= min(d.load or 0 for d in own)]
        settings[name] = max(modest) if modest else min(shared, default=None)
    return settings


def _meeting(decision: Decision) -> set[Load]:
    limit = math.inf if decision.first_fail is None else decision.first_fail
    return {j.load for j in decision.judgements if j.verdict is Verdict.MEETS and j.load < limit}


def failures_judged(limits: Sequence[Limit], point: Point) -> Point:
    """An imported point whose failures do not exclude it where a limit judges them: one on the
    error rate, or on a latency that they make infinite.
    """
    if not any(limit.metric == "error_rate" or point.value(limit.metric) == math.inf for limit in limits):
        return point
    return replace(point, flags=tuple(replace(f, fatal=f.fatal and f.name != "errors") for f in point.flags))
