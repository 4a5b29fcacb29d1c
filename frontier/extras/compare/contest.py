"""Contest of two or more frontiers of one shape: how much better each is, and how sure that is.

One question, one method (`difference`): compare what the two serve within the SLA, each at its
operating point. Where that shows nothing, or one of them has no operating point, compare the
settings that both measured.

Intervals are those within each run. They leave out what varies between days: run A and B
interleaved, or ask the gate.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from frontier.core.claim import pareto
from frontier.core.model.decisions import Decision, Limit, Verdict
from frontier.core.model.loads import NO_LOAD, Load
from frontier.core.model.metrics import RATES, Metric, metric, per_gpu
from frontier.core.model.points import Estimate, Point
from frontier.core.model.shapes import Shape
from frontier.core.stats import difference
from frontier.core.stats.difference import ORDER, ComparisonVerdict, is_comparable
from frontier.core.window.window import WindowData
from frontier.planning.sla_result import Best, best_deployment, of_values

GpuCounts = tuple[int | None, int | None]
"""How many GPUs each side has; None: not known."""


@dataclass(frozen=True, slots=True)
class CompareRules:
    """How two frontiers are compared.

    `within` is the share that B may lose and still be "no worse". That is proven when the lower end
    of the interval is above it. B is then worse only when its loss is surely larger. With
    `point_estimates` values without intervals decide as if they were exact.
    """

    objectives: tuple[str, str]
    limits: tuple[Limit, ...] = ()
    within: float | None = None
    point_estimates: bool = False

    @property
    def metrics(self) -> tuple[Metric, Metric]:
        """Both objectives."""
        return metric(self.objectives[0]), metric(self.objectives[1])

    @property
    def gain(self) -> str:
        """The metric that is compared at operating points: the first objective, or the second where
        only that is better high.
        """
        first, second = self.metrics
        return second.name if second.higher_is_better and not first.higher_is_better else first.name


@dataclass(frozen=True, slots=True)
class Side:
    """The measurements of one shape on one side: its `name`, points, decision under the SLA, GPUs,
    and window data by concurrency. Without the number of GPUs, rates are compared as they are.
    """

    name: str
    points: Sequence[Point]
    decision: Decision | None = None
    gpus: int | None = None
    samples: Mapping[Load, WindowData] = field(default_factory=dict)

    @property
    def chosen(self) -> Load | None:
        """The concurrency of the operating point; None without one."""
        return self.decision.load if self.decision else None

    def at_chosen(self, name: str) -> Estimate | None:
        """A metric at the operating point; None without an operating point, or where the metric has
        no value there.
        """
        if self.decision is None or self.chosen is None:
            return None
        point = next((p for p in self.points if p.load == self.chosen), None)
        estimate = self.decision.metrics.get(name) or (point and point.metrics.get(name))
        return estimate if estimate and is_comparable(estimate) else None

    @property
    def characters_per_token(self) -> float | None:
        """Characters per output token, over answers whose tokens were counted; None where the
        requests or their text are not known.
        """
        counted = [(s, s.ok & ~np.isnan(s.completion_tokens)) for s in self.samples.values()]
        characters = sum(int(s.text_chars[ok].sum()) for s, ok in counted)
        tokens = sum(float(s.completion_tokens[ok].sum()) for s, ok in counted)
        return characters / tokens if characters and tokens else None


@dataclass(frozen=True, slots=True)
class Contest:
    """Two or more sides of one shape; their names tell them apart."""

    sides: tuple[Side, ...]
    rules: CompareRules

    @property
    def names(self) -> tuple[str, ...]:
        """What the sides are called."""
        return tuple(side.name for side in self.sides)

    @property
    def is_judged(self) -> bool:
        """Whether there is an SLA to prove, and the compared metric is better high."""
        return metric(self.rules.gain).higher_is_better and any(side.decision is not None for side in self.sides)

    @property
    def per_gpu(self) -> bool:
        """Whether rates of two sides are divided by each side's own GPUs. Between equal numbers it
        would change nothing; without a number it is impossible.
        """
        a, b = (side.gpus for side in self.sides)
        return None not in (a, b) and a != b and any(each.unit in RATES for each in self.rules.metrics)


@dataclass(frozen=True, slots=True)
class MetricDifference:
    """One metric of B against A over pairs of settings (concurrency of A, of B).

    The pairs are both operating points where `inside_sla`, otherwise the same load on both sides.
    `a` and `b` are the values, or their geometric means over several settings; `ratio` is B over A
    with its 95% interval. Within the SLA, the verdict also allows for the steps between measured
    settings.
    """

    metric: str
    inside_sla: bool
    settings: tuple[tuple[Load, Load], ...]
    a: float
    b: float
    ratio: Estimate
    verdict: ComparisonVerdict


@dataclass(frozen=True, slots=True)
class Comparison:
    """What B, the second of two, shows against A: the difference within the SLA, where both have an
    operating point, and the differences at the same load.

    `lost` are the settings of A and of B that only the other side measured validly. `remarks` are
    sentences on the runs. Where the sides have different numbers of GPUs, and both are known,
    everything is per GPU.
    """

    contest: Contest
    differences: tuple[MetricDifference, ...]
    verdict: ComparisonVerdict
    lost: tuple[tuple[Load, ...], tuple[Load, ...]] = ((), ())
    remarks: tuple[str, ...] = ()

    @property
    def shape(self) -> Shape:
        """The workload of both."""
        return self.contest.sides[0].points[0].shape

    @property
    def deployments(self) -> tuple[str, str]:
        """The deployment of each side."""
        a, b = (side.points[0].deployment for side in self.contest.sides)
        return a, b

    @property
    def inside_sla(self) -> MetricDifference | None:
        """The difference of the operating points; None unless both sides have one."""
        return next((d for d in self.differences if d.inside_sla), None)

    @property
    def deciding(self) -> MetricDifference | None:
        """The difference that the verdict stands on, otherwise the first one."""
        return next((d for d in self.differences if d.verdict == self.verdict), next(iter(self.differences), None))


# --- the verdict


def compare(contest: Contest) -> Comparison:
    """Compare B, the second of two sides, with A, the first.

    - Where both have an operating point and their difference is resolved, the operating points
      decide.
    - Otherwise the settings of the same load decide, unless they contradict what is proven.
    - Where only one side has an operating point, it is better if the other violates the SLA at that
      load or below it, and no setting of the other keeps it. Otherwise nothing is resolved.
    - The verdict is "invalid" where a side has no usable point.
    """
    (a, b), rules = contest.sides, contest.rules
    gpus = (a.gpus, b.gpus) if contest.per_gpu else (None, None)
    first, second = a.at_chosen(rules.gain), b.at_chosen(rules.gain)
    same = _of_same_load(contest, gpus)
    if first is None or second is None:
        neither = first is None and second is None
        return same if neither or same.verdict == "invalid" else replace(same, verdict=_one_sided(a, b, gpus))
    steps = _may_still_give(a, first, rules.gain), _may_still_give(b, second, rules.gain)
    pair = {(a.chosen or NO_LOAD, b.chosen or NO_LOAD): (first, second)}
    inside, proven = (_metric_difference(rules, rules.gain, pair, gpus, open_) for open_ in (steps, (1.0, 1.0)))
    verdict = inside.verdict
    if verdict == "not resolved" and {proven.verdict, same.verdict} != {"better", "worse"}:
        verdict = same.verdict if same.differences else verdict
    return replace(same, differences=(inside, *same.differences), verdict=verdict)


def _may_still_give(side: Side, chosen: Estimate, gain: str) -> float:
    """The factor by which a side may give more within the SLA than at its operating point; infinite
    where nothing violates.

    Nothing is known between its highest setting that meets and its lowest that violates, and
    throughput grows at most in proportion to the load.
    """
    decision = side.decision
    if decision is None or decision.first_fail is None or decision.last_pass is None:
        return math.inf
    top = next((p.metrics[gain].value for p in side.points if p.load == decision.last_pass), chosen.value)
    more = top / chosen.value if metric(gain).higher_is_better else chosen.value / top
    return max(1.0, more * decision.first_fail / decision.last_pass)


def _one_sided(a: Side, b: Side, gpus: GpuCounts) -> ComparisonVerdict:
    """The verdict where only one side has an operating point."""
    loads = [[p.load / (n or 1) for p in side.points] for side, n in zip((a, b), gpus, strict=True)]
    proven, other = (0, 1) if b.chosen is None else (1, 0)
    decision, at = (a, b)[other].decision, ((a, b)[proven].chosen or 0) / (gpus[proven] or 1)
    if decision is None or decision.verdict is not Verdict.VIOLATES or min(loads[other]) > at:
        return "not resolved"
    return "worse" if other == 1 else "better"


def _of_same_load(contest: Contest, gpus: GpuCounts) -> Comparison:
    """The differences at the same load: the same concurrency or rate, per GPU where rates are.

    A setting that is invalid on one side only must not make that side better by being left out.
    """
    rules, sides = contest.rules, zip(contest.sides, gpus, strict=True)
    of_a, of_b = ({p.load / (n or 1): p for p in side.points} for side, n in sides)
    usable = [{load for load, p in side.items() if pareto.exclusion(p, rules.metrics) is None} for side in (of_a, of_b)]
    if not all(usable):
        return Comparison(contest, (), "invalid")
    both = {(of_a[load].load, of_b[load].load): load for load in sorted(usable[0] & usable[1])}
    lost = (
        tuple(of_a[load].load for load in sorted((usable[1] - usable[0]) & of_a.keys())),
        tuple(of_b[load].load for load in sorted((usable[0] - usable[1]) & of_b.keys())),
    )
    differences = []
    for name in sorted(rules.objectives, key=lambda name: name != rules.gain):
        pairs = {at: (of_a[load].metrics[name], of_b[load].metrics[name]) for at, load in both.items()}
        if pairs := {at: pair for at, pair in pairs.items() if all(map(is_comparable, pair))}:
            differences.append(_metric_difference(rules, name, pairs, gpus))
    if not differences:
        return Comparison(contest, (), "not resolved", lost)
    verdict = joint_verdict(differences[0].verdict, [d.verdict for d in differences[1:]])
    spoilt = lost[0] if verdict == "worse" else lost[1]
    return Comparison(contest, tuple(differences), "not resolved" if spoilt else verdict, lost)


def joint_verdict(gain: ComparisonVerdict, others: Sequence[ComparisonVerdict]) -> ComparisonVerdict:
    """The verdict over several metrics of the same settings. "not resolved" where one is better and
    another worse; otherwise the verdict of any that is better or worse, or else the gain's.
    """
    kinds = {gain, *others}
    if {"better", "worse"} <= kinds:
        return "not resolved"
    if "worse" in kinds:
        return "worse"
    return "better" if "better" in kinds else gain


def _metric_difference(
    rules: CompareRules,
    name: str,
    pairs: Mapping[tuple[Load, Load], tuple[Estimate, Estimate]],
    gpus: GpuCounts,
    steps: tuple[float, float] | None = None,
) -> MetricDifference:
    """One metric over pairs of settings: those with intervals, or all where none has one. `steps`
    are the factors by which A and B may still give more than at their operating points.
    """
    each = {at: difference.between(*_divided(name, pair, gpus)) for at, pair in pairs.items()}
    kept = [at for at, one in each.items() if one.has_interval] or list(each)
    found = difference.mean([each[at] for at in kept])
    estimates = [_divided(name, pairs[at], gpus) for at in kept]
    a, b = (math.exp(float(np.mean([math.log(pair[i].value) for pair in estimates]))) for i in (0, 1))
    ratio = found.ratio(sum(min(x.n, y.n) for x, y in estimates))
    judged = of_values(found) if rules.point_estimates else found
    verdict = difference.verdict(judged.turned(metric(name).sign), rules.within, steps or (1.0, 1.0))
    return MetricDifference(name, steps is not None, tuple(kept), a, b, ratio, verdict)


def _divided(name: str, pair: tuple[Estimate, Estimate], gpus: GpuCounts) -> tuple[Estimate, Estimate]:
    """Both estimates, per GPU of each side."""
    return pair[0].scaled(1, per_gpu(name, gpus[0])), pair[1].scaled(1, per_gpu(name, gpus[1]))


def overall(verdicts: Iterable[ComparisonVerdict]) -> ComparisonVerdict:
    """The worst verdict of all; "invalid" when nothing could be compared."""
    return max(verdicts, key=ORDER.index, default="invalid")


# --- who gives the most


def best_of(contest: Contest) -> Best | None:
    """The side that gives the most, as far as it is proven, by the rule of `frontier solve`; None
    where nothing is proven.
    """
    gain = contest.rules.gain
    decisions = {side.name: side.decision for side in contest.sides if side.decision is not None}
    # Of the step that may give more it is this rate that is compared, not always that of tokens.
    steps = {
        side.name: next((p.value(gain) for p in side.points if p.load == step.load), None)
        for side in contest.sides
        if side.decision is not None and (step := side.decision.next_step) is not None
    }
    best = best_deployment(decisions, {side.name: side.gpus for side in contest.sides}, gain, steps)
    # Of aggregates nothing is decided, which is no "no".
    return best and replace(best, open=(*best.open, *(s.name for s in contest.sides if s.decision is None)))
