"""Regression gate: is NEW worse than BASE by more than is allowed, and how sure is that?

What is judged is stated before any data is seen:

- the output throughput, and the median of each latency that the SLA limits, each as the geometric
  mean over all settings that both sides measured;
- the SLA, at the concurrency that BASE proved.

No setting is chosen for what it shows, so no result is a lucky or an unlucky pick.

The unit of evidence is not the request but an independent measurement: a pair of measurements taken
in turn, or a run whose difference from other runs the user states. Intervals within a run leave out
the variance between runs; the spread of the pairs includes it, and so does the stated one.
`difference` turns that spread into bounds. An alarm needs a loss above 0, with an error of ALARM
shared by all that is judged (Bonferroni). A pass needs a loss of at most `allow` at 95%.
"""

import itertools
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import numpy as np

from frontier.core.estimates.estimate import estimate
from frontier.core.model.decisions import Limit
from frontier.core.model.loads import Load
from frontier.core.model.metrics import LATENCIES, metric
from frontier.core.model.points import Estimate
from frontier.core.model.shapes import Shape
from frontier.core.stats.difference import ComparisonVerdict, Difference, in_pairs, is_comparable, mean, variance
from frontier.core.stats.laws import chi_square_quantile
from frontier.core.window.window import WindowData
from frontier.extras.compare.contest import overall

ALARM = 0.01
"""The probability of any alarm when nothing changed, over all series, metrics and settings of one
gate."""
MISS = 0.05
"""The probability that a loss above `allow` passes."""
CAUGHT = 0.90
"""The probability that the smallest loss that is named would raise an alarm."""
ENOUGH = 0.9
"""The share of a side's runs that must have measured a setting for it to count; runs without it are
left out."""
Design = Literal["repeats", "in turn", "history"]
"""The design by which a difference is judged: pairs of repeats of one sweep, pairs of runs in turn,
or the stated spread of runs. With a stated spread BASE is one or several days."""
_DAY = 86_400.0
_SAME = ("device", "model")
"""Keys in which two sides must agree even when they are measured in turn."""
_JUDGED = "flags"
"""Keys that may differ in every design and are named: a gate is asked about a change of flags."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement of a series: a run or one repeat of it, begun at unix time `at`.

    - `values`: the metrics of each usable setting.
    - `excluded`: the settings whose numbers mean nothing.
    - `key`: device, engine, flags and model, as far as they are known.
    """

    name: str
    at: float
    key: Mapping[str, str]
    values: Mapping[Load, Mapping[str, Estimate]]
    excluded: frozenset[Load] = frozenset()
    proven: Load | None = None

    def level(self, name: str, settings: Sequence[Load]) -> float:
        """ln of the geometric mean of a metric over settings, with the sign turned so that more is
        worse.
        """
        return -metric(name).sign * float(np.mean([math.log(self.values[c][name].value) for c in settings]))

    def bounded(self, name: str, settings: Sequence[Load]) -> bool:
        """Whether the intervals within the run have ends."""
        return all(math.isfinite(variance(self.values[c][name])) for c in settings)

    def noise(self, name: str, settings: Sequence[Load]) -> float:
        """The variance of `level` by the intervals within the run; 0 where these have no ends."""
        if not self.bounded(name, settings):
            return 0.0
        return sum(variance(self.values[c][name]) for c in settings) / len(settings) ** 2

    def mean(self, name: str, settings: Sequence[Load]) -> Estimate:
        """The geometric mean of a metric over settings, with the 95% interval that follows from
        `noise`.
        """
        value = math.exp(-metric(name).sign * self.level(name, settings))
        half = math.exp(1.96 * math.sqrt(self.noise(name, settings)))
        if half == 1:
            return Estimate.without_interval(value, len(settings))
        return Estimate(value, value / half, value * half, len(settings))


@dataclass(frozen=True, slots=True)
class MetricChange:
    """The change of one metric, as a share of BASE's value; above 0 is worse: less throughput, more
    latency.

    - `at_least`: holds with the alarm's error; -inf where too little was measured.
    - `at_most`: holds at 95%; inf where too little was measured.
    - `smallest`: the change that would raise an alarm in 90% of cases; inf where too little was
      measured.
    """

    metric: str
    value: float
    at_least: float
    at_most: float
    smallest: float
    verdict: ComparisonVerdict


@dataclass(frozen=True, slots=True)
class AtProven:
    """Whether NEW keeps the SLA at `proven`, the concurrency that BASE proved.

    - `at`: the concurrency where that was judged: `proven`, or the highest one below it that both
      measured where NEW did not measure `proven`; None where there is none.
    - `estimate`: of the limit that decides, with its one-sided bounds at 95% or, in an alarm, at
      the alarm's error.
    """

    proven: Load
    limit: Limit
    estimate: Estimate | None
    verdict: ComparisonVerdict
    at: Load | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """NEW against BASE for one series.

    - `units`: the number of pairs or of days.
    - `breaks`: the differences in the key that forbid a comparison.
    - `spread`: how much runs of one server differ, where that was stated and used.
    """

    shape: Shape
    a: str
    b: str
    design: Design
    units: int
    settings: tuple[Load, ...]
    changes: tuple[MetricChange, ...]
    at_proven: AtProven | None
    verdict: ComparisonVerdict
    confidence: float
    breaks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    spread: float | None = None


def judged_metrics(limits: Sequence[Limit]) -> tuple[str, ...]:
    """The judged metrics: throughput, and the median of each limited latency, or of TTFT and TPOT
    where none is limited.
    """
    limited = {"tpot" if limit.of.quantity == "itl" else limit.of.quantity for limit in limits} - {None}
    return ("output_throughput", *(f"p50_{q}" for q in LATENCIES if q in (limited or {"ttft", "tpot"})))


def family_size(series: int, limits: Sequence[Limit]) -> int:
    """The number of judgements that share the alarm's error, for this number of judged series."""
    return series * (len(judged_metrics(limits)) + (1 if limits else 0))


def key_changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """The differences between two keys, by name: {'engine': 'vLLM 0.31 → vLLM 0.32'}. Of flags only
    the different ones are named. A value that one side does not know counts as equal.
    """
    texts = {}
    for name in [name for name in before if name in after and before[name] != after[name]]:
        old, new = (re.split(r"\s+(?=-|\w+=)", side[name]) for side in (before, after))
        ours, theirs = (" ".join(w for w in one if w not in other) for one, other in ((old, new), (new, old)))
        texts[name] = f"{ours or 'none'} → {theirs or 'none'}"
    return texts


def common_settings(measured: Sequence[Measured], names: Sequence[str]) -> tuple[Load, ...]:
    """The settings, ascending, in which nearly all measurements have all these metrics."""
    every = sorted(set().union(*(one.values for one in measured)))
    return tuple(c for c in every if sum(has(one, (c,), names) for one in measured) >= ENOUGH * len(measured))


def has(one: Measured, settings: Sequence[Load], names: Sequence[str]) -> bool:
    """Whether the measurement has usable numbers of these metrics in all of these settings."""
    known = [one.values.get(c, {}).get(name) for c in settings for name in names]
    return all(e is not None and is_comparable(e) for e in known)


def in_turn(base: Sequence[Measured], new: Sequence[Measured]) -> list[tuple[Measured, Measured]] | None:
    """(BASE, NEW) pairs where both sides alternate in time, as A B, B A, A B; None where they do
    not.
    """
    ordered = sorted([*((one, 0) for one in base), *((one, 1) for one in new)], key=lambda pair: pair[0].at)
    twos = list(zip(ordered[::2], ordered[1::2], strict=False))
    if len(base) != len(new) or len(twos) < 2 or any(first[1] == second[1] for first, second in twos):
        return None
    return [(a[0], b[0]) if a[1] == 0 else (b[0], a[0]) for a, b in twos]


def by_day(measured: Sequence[Measured]) -> list[list[Measured]]:
    """The measurements of each day (UTC). Those of one day share the day's disturbances, so they
    count as one.
    """
    ordered = sorted(measured, key=lambda one: one.at)
    return [list(day) for _, day in itertools.groupby(ordered, key=lambda one: one.at // _DAY)]


@dataclass(frozen=True, slots=True)
class GateRules:
    """What is judged, and how.

    - `names`: the metrics.
    - `allow`: the share that may be lost.
    - `family`: the number of judgements that share the alarm's error.
    - `spread`: how much runs of one unchanged server differ (standard deviation of ln); None where
      the user does not know it.
    """

    names: tuple[str, ...]
    allow: float
    family: int
    limits: tuple[Limit, ...] = ()
    spread: float | None = None

    @property
    def level(self) -> float:
        """The error of one alarm."""
        return ALARM / self.family


def changes(
    base: Sequence[Measured], new: Sequence[Measured], settings: Sequence[Load], rules: GateRules, design: Design
) -> tuple[tuple[MetricChange, ...], float, bool]:
    """The change of each metric, the largest latency change (in ln) that chance alone explains, and
    whether all were judged by the stated spread. In turn, base[i] and new[i] are a pair.
    """
    # Repeats of one sweep measure each setting of both sides side by side: each is a pair of its
    # own. What differs between runs or days is common to their settings: only their mean over the
    # settings counts.
    groups = [(c,) for c in settings] if design == "repeats" else [tuple(settings)]
    judged = {
        name: mean([_difference(name, group, base, new, rules, design) for group in groups]) for name in rules.names
    }
    latencies = [d for name, d in judged.items() if metric(name).quantity is not None]
    chance = max((d.bound(1 - rules.level) - d.value for d in latencies), default=0.0)
    made = tuple(_change(name, difference, rules) for name, difference in judged.items())
    return made, chance, all(math.isinf(d.freedom) for d in judged.values())


def _difference(
    name: str,
    group: Sequence[Load],
    base: Sequence[Measured],
    new: Sequence[Measured],
    rules: GateRules,
    design: Design,
) -> Difference:
    """How much worse NEW is in one metric over some settings.

    A stated spread replaces the observed one, unless the observed one is larger than chance (1%)
    makes it. In a history each day of BASE counts once. NEW counts once however many runs it has,
    as they may be of one day; without a stated spread its uncertainty is unknown.
    """
    old, fresh = (np.array([one.level(name, group) for one in side]) for side in (base, new))
    floor, mine = (float(np.mean([one.noise(name, group) for one in side])) for side in (base, new))
    if design == "history":
        units = np.array([np.mean([one.level(name, group) for one in day]) for day in by_day(base)])
        seen = Difference(float(fresh.mean() - units.mean()), math.inf, 0)
        own, runs, weight = max(floor, mine), 1, 1 + 1 / len(units)
    else:
        units = fresh - old
        seen = in_pairs(units.tolist(), (floor + mine) / 4)
        own, runs, weight = floor + mine, 2, 1 / len(units)
    if rules.spread is None or not all(one.bounded(name, group) for one in (*base, *new)):
        return seen
    known, freedom = runs * rules.spread**2 + own, len(units) - 1
    scattered = freedom > 0 and float(units.var()) * len(units) > known * chi_square_quantile(0.99, freedom)
    return seen if scattered else Difference(seen.value, math.sqrt(known * weight))


def worse_share(name: str, worse: float) -> float:
    """A difference of levels as a share: of the throughput that is lost, or of the latency that was
    added.
    """
    if metric(name).higher_is_better:
        return -math.expm1(-worse)
    return math.expm1(worse) if worse < 700 else math.inf


def _change(name: str, worse: Difference, rules: GateRules) -> MetricChange:
    """Judge a difference, above 0 being worse."""
    value = worse_share(name, worse.value)
    if not worse.has_interval:
        return MetricChange(name, value, -math.inf, math.inf, math.inf, "not resolved")
    alarm, caught = (worse.bound(p) - worse.value for p in (1 - rules.level, CAUGHT))
    low, high = worse_share(name, worse.value - alarm), worse_share(name, worse.bound(1 - MISS))
    verdict: ComparisonVerdict = "worse" if low > 0 else "not resolved"
    if high <= rules.allow:
        verdict = "no worse"
    return MetricChange(name, value, low, high, worse_share(name, alarm + caught), verdict)


def at_proven(
    proven: Load, samples: Mapping[Load, WindowData], settings: Sequence[Load], rules: GateRules, chance: float
) -> AtProven:
    """Whether NEW keeps the SLA, each limit widened by `allow`, at the concurrency that BASE proved
    or else at the highest common setting below it. Nothing is interpolated.

    NEW breaks the SLA when a value is beyond its limit by more than `allow`, and by more than
    chance or a bad day explains (`chance`, in ln), with the alarm's error.
    """

    def beyond(limit: Limit, by: float) -> Limit:
        return replace(limit, promise=limit.promise * (1 + by if limit.better == "lower" else 1 - by))

    limits = rules.limits
    at = proven if proven in samples else max((c for c in settings if c < proven and c in samples), default=None)
    if at is None:
        return AtProven(proven, limits[0], None, "not resolved")
    sample = samples[at]
    for limit in limits:
        e = estimate(sample, limit.metric, limits=limits, confidence=1 - rules.level / len(limits))
        by = max(rules.allow, math.expm1(chance))
        if e is not None and beyond(limit, by).breaks(e.lower if limit.better == "lower" else e.upper):
            return AtProven(proven, limit, e, "worse", at)
    known = [(limit, estimate(sample, limit.metric, limits=limits)) for limit in limits]
    unproven = [(li, e) for li, e in known if e is None or not beyond(li, rules.allow).holds(li.bound(e))]
    decides = min(
        unproven or known, key=lambda one: -math.inf if one[1] is None else one[0].margin(one[0].bound(one[1]))
    )
    return AtProven(proven, *decides, "not resolved" if unproven else "no worse", at)


def _differences(
    differs: Mapping[str, str], breaking: Collection[str], *, paired: bool
) -> tuple[tuple[str, ...], list[str]]:
    """The differences in the key that are breaks, and sentences on the others."""
    broken = tuple(f"{name}: {text}" for name, text in differs.items() if name in breaking)
    said = differs if paired else differs.keys() & {_JUDGED}
    return broken, [f"Changed between the two: {name} {differs[name]}." for name in said]


def _lost_note(lost: Sequence[Load], proven: Load | None, names: tuple[str, str]) -> list[str]:
    """The note that settings are excluded in NEW alone; of the proven one the SLA's note tells."""
    others = [load.label for load in lost if load != proven]
    return [f"Excluded in {names[1]} and usable in {names[0]}: {', '.join(others)}."] if others else []


def gate(
    base: Sequence[Measured],
    new: Sequence[Measured],
    rules: GateRules,
    design: Design,
    shape: Shape,
    names: tuple[str, str],
    proven: Load | None = None,
    samples: Mapping[Load, WindowData] = MappingProxyType({}),
) -> Gate:
    """NEW against BASE. `proven` is the concurrency that BASE proved, `samples` NEW's window data
    by concurrency. Of a history, the runs count that have the key of its newest run; NEW's flags
    may differ from it.
    """
    paired = design != "history"
    differs = key_changes(base[-1].key, new[-1].key)
    broken, notes = _differences(differs, _SAME if paired else differs.keys() - {_JUDGED}, paired=paired)
    same = list(base) if paired else [one for one in base if not key_changes(one.key, base[-1].key)]
    nearly = common_settings([*(same or base), *new], rules.names)
    settings = tuple(c for c in nearly if all(has(one, (c,), rules.names) for one in new))
    keep = [i for i, one in enumerate(same) if settings and has(one, settings, rules.names)]
    if keep and (without := [one.name for i, one in enumerate(same) if i not in keep]):
        notes.append(f"Left out, without all of these settings: {', '.join(without)}.")
    result = Gate(shape, *names, design, 0, settings, (), None, "invalid", 1 - rules.level, broken, tuple(notes))
    if broken or not keep:
        return replace(result, verdict="not resolved" if broken else "invalid")
    olds, news = [same[i] for i in keep], [new[i] for i in keep] if paired else list(new)
    units = len(olds if paired else by_day(olds))
    made, chance, stated = changes(olds, news, settings, rules, design)
    if rules.spread is not None and not stated:
        notes.append("The stated spread is not used: more is seen, or intervals are missing.")
    check = at_proven(proven, samples, settings, rules, chance) if proven and rules.limits else None
    verdicts: list[ComparisonVerdict] = [change.verdict for change in made] + ([check.verdict] if check else [])
    # A setting that only NEW spoils must not make NEW pass by being left out.
    if lost := sorted({c for one in new for c in one.excluded} & set(common_settings(olds, rules.names))):
        verdicts.append("not resolved")
        notes += _lost_note(lost, proven, names)
    worst = overall(verdicts)
    spread = rules.spread if stated else None
    return replace(result, units=units, changes=made, at_proven=check, verdict=worst, notes=tuple(notes), spread=spread)
