"""Placement: what a scan lets expect of each concurrency, and which one to prove next. For
planning, never for claims.

Medians need few requests where a p99 needs many, so a curve over concurrency is one of medians, and
the distance from there to the tail is pooled over settings (`Curve`). From it follow, for each
concurrency, the chance that the bounds of a proof will be inside the limits after so many windows,
and how many windows the proof is expected to take. The next candidate is the one that is worth
most: its chance times its throughput, less the worth of its windows.
"""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from frontier.core import solver
from frontier.core.causes import CLEARLY_MORE
from frontier.core.changes import History, latencies, unchanged
from frontier.core.decisions import Limit, Verdict
from frontier.core.intervals import normal_cdf, normal_quantile
from frontier.core.points import Point
from frontier.core.proof import (
    JUDGED_AFTER,
    SCANS,
    SPEND,
    WINDOWS,
    Candidate,
    attempts_over,
    by_concurrency,
    candidates,
    claim_points,
    error_left,
    joined,
    nearest,
    pilot_point,
    rising,
    scans,
    violation,
)
from frontier.core.trials import Phase
from frontier.core.verdict import RISING
from frontier.core.window import Floats, WindowData, narrowed
from frontier.search.window_size import allowance, dependence, window_size

EXACT = 0.05
"""The distance (in ln) asked where the limit is on a mean, a rate or a share."""
RUN_TO_RUN = 0.03
"""By how much (in ln) a value is expected to differ from run to run, on top of the noise within a
run."""
LOWER = 0.9
"""The next candidate after one given up is at most this share of it, unless something is proven."""
FAR_LOWER = 0.7
"""And where nothing promises to be provable, this share."""
MOST_THINNER, MOST_WIDER = 16.0, 4.0
"""Most times fewer independent requests than expected that a bound is taken to be worth, and most
times further from its value than expected that it is taken to lie."""
FALLBACK, GIVEN_UP_AFTER = 0.75, 4
"""What a proof that fails leaves, as a share of what the safest brings, and how many windows it
usually takes."""
FAR = 3.0
"""A violation (in ln) beyond this says no more than this; it also stands for an infinite one."""
CONTRADICTS = 3.0
"""Standard errors by which a setting must be slower than a higher one for one of the two to be
wrong."""
STEEP = 3.0
"""Latency that rises faster than this power of concurrency is a cliff."""


# --- what is known


@dataclass(frozen=True, slots=True)
class State:
    """The history, sorted: how often each setting was looked at, the `points` of the valid ones,
    their curves, and the candidates so far.

    `scanned` is the data from before any proof, `by_grid` the highest setting that the grid's own
    data prove. `contradicted` are settings that came out slower than a higher one.
    """

    limits: tuple[Limit, ...]
    looks: Mapping[int, int]
    points: Mapping[int, Point]
    curves: tuple["Curve", ...]
    candidates: tuple[Candidate, ...]
    scanned: Mapping[int, WindowData]
    by_grid: int | None
    judged_by_grid: frozenset[int]
    thinner: Mapping["Part", float]
    wider: Mapping["Part", float]
    contradicted: frozenset[int] = frozenset()

    @classmethod
    def of(cls, limits: tuple[Limit, ...], history: History) -> "State":
        history = unchanged(history, limits)
        points, curves = _curves(limits, joined(_undisturbed(limits, history), tuple(Phase)))
        contradicted = _contradicted(curves)
        begun = tuple(candidates(history, limits))
        scanned = scans(history)
        looks = Counter(trial.concurrency for trial, _ in history)
        by_grid = _proven_by_grid(limits, history)
        in_grid = frozenset(t.concurrency for t, _ in history if t.phase is Phase.GRID)
        state = cls(limits, looks, points, curves, begun, scanned, by_grid, in_grid, {}, {}, contradicted)
        thinner, wider = state._seen()
        return dataclasses.replace(state, thinner=thinner, wider=wider)

    def _seen(self) -> tuple[Mapping["Part", float], Mapping["Part", float]]:
        """How far the candidates' bounds were from what the scan let expect: how many times fewer
        independent requests there were where no bound could be given, and how many times further a
        bound lay from its value.

        By what is proven, where anything is: that is next to what comes. A bound far from its value
        does not say that others cannot be given at all: a machine that was disturbed once would
        send the search to the lowest settings.
        """
        thinner, wider = {}, {}
        for curve in self.curves:
            fewer, further = [1.0], [1.0]
            proven = [k for k in self.candidates if k.verdict is Verdict.MEETS]
            for k in proven or self.candidates:
                e = k.point.metrics.get(curve.limit.metric)
                if k.windows < WINDOWS or e is None:
                    continue
                expected = self._reach(curve, k.concurrency, k.windows, self.window_size(k.concurrency), k.alpha)
                seen = k.reach(curve.limit)
                if (times := k.shortage(curve.limit)) is not None:
                    fewer.append(times)
                elif expected and seen is not None:
                    further.append(seen / expected)
            thinner[curve.part] = min(MOST_THINNER, max(fewer))
            wider[curve.part] = min(MOST_WIDER, max(further))
        return thinner, wider

    def _reach(self, curve: "Curve", c: int, windows: int, size: int, alpha: float) -> float | None:
        """How far (in ln) the bound is expected to lie beyond the value; None where there is
        none.
        """
        p = curve.limit.of.p
        if not curve.sigma or p is None:
            return EXACT
        near = nearest(self.scanned, c)
        requests = dependence(near, curve.limit) * self.thinner.get(curve.part, 1.0)
        effective = int(windows * size * near.shape.class_share(curve.limit.of.group) / requests)
        allowed = allowance(p, effective, alpha) / (1 - p)
        if allowed <= 0:
            return None
        return self.wider.get(curve.part, 1.0) * (curve.at(c, allowed) - curve.at(c, 1.0))

    def value(self, c: int) -> float:
        """The expected ln of value over limit at c for the worst limit: below 0 inside the SLA."""
        return max(min(FAR, curve.at(c, 1.0)) for curve in self.curves)

    def surely_outside(self, c: int) -> bool:
        """Whether the value is beyond a limit by more than its noise."""
        return any(curve.at(c, 1.0) > curve.standard_error(c) for curve in self.curves)

    def prospects(self, c: int) -> Mapping[int, float]:
        """The chance that a proof at c has succeeded after so many windows."""
        error = SPEND * error_left(self.candidates)
        size = self.window_size(c)
        chances: dict[int, float] = {}
        for look, windows in enumerate(JUDGED_AFTER):
            alpha = error * (1 - SPEND) ** look
            chances[windows] = min(self._chance(curve, c, windows, size, alpha) for curve in self.curves)
        return chances

    def _chance(self, curve: "Curve", c: int, windows: int, size: int, alpha: float) -> float:
        reach = self._reach(curve, c, windows, size, alpha)
        if reach is None:
            return 0.0
        return normal_cdf(-(curve.at(c, 1.0) + reach) / curve.standard_error(c))

    def window_size(self, c: int) -> int:
        """Requests of each window of a proof at c."""
        earlier = tuple(itertools.takewhile(lambda k: k.concurrency != c, self.candidates))
        return window_size(nearest(self.scanned, c), self.limits, c, earlier)

    def rate(self, c: int) -> float:
        """Expected output throughput at c; 1 where none is known."""
        known = {k: math.log(v) for k, p in self.points.items() if (v := p.value("output_throughput")) > 0}
        return math.exp(_between(known, c)) if known else 1.0

    def bracket(self) -> tuple[int, int | None] | None:
        """The highest setting proven or seen inside the SLA and the lowest above it that is not;
        None when none is.
        """
        proven = {k.concurrency for k in self.candidates if k.verdict is Verdict.MEETS}
        inside = [c for c in self.points if c in proven or self.value(c) <= 0]
        high = min((c for c in self.points if c not in inside), default=None)
        below = [c for c in inside if high is None or c < high]
        return (max(below), high) if below else None

    def edge(self) -> int | None:
        """The likely limit: the highest setting seen inside the SLA."""
        bracket = self.bracket()
        return None if bracket is None else bracket[0]


def _curves(
    limits: tuple[Limit, ...], samples: Mapping[int, WindowData]
) -> tuple[Mapping[int, Point], tuple["Curve", ...]]:
    """The points of the valid settings, and the curves through them."""
    points = {c: pilot_point(sample, limits) for c, sample in sorted(samples.items())}
    points = {c: p for c, p in points.items() if violation(p, limits) is not None}
    valid = {c: samples[c] for c in points}
    every = [Curve.of(part, valid, points) for limit in limits for part in Part.of(limit, valid)]
    # A class that no look has seen yet says nothing of any setting.
    return points, tuple(curve for curve in every if curve.level or curve.part.group is curve.limit.of.group is None)


def _contradicted(curves: Iterable["Curve"]) -> frozenset[int]:
    """The settings whose median is above that of a higher one by more than noise: other work on the
    machine makes a look too slow, and none makes it too fast.
    """
    return frozenset(
        c
        for curve in curves
        for (c, slow), (k, fast) in itertools.combinations(sorted(curve.medians.items()), 2)
        if slow - fast > CONTRADICTS * math.hypot(curve.standard_error(c), curve.standard_error(k))
    )


def _undisturbed(limits: tuple[Limit, ...], history: History) -> History:
    """The history without looks at a setting that are slower than another look at it by more than
    noise: a look of a few seconds is all too short for other work on the machine to average out.
    """
    looks = by_concurrency([(trial, sample) for trial, sample in history if trial.phase in (*SCANS, Phase.GRID)])
    slow = {id(sample) for parts in looks.values() if len(parts) > 1 for sample in _slower(limits, parts)}
    return [(trial, sample) for trial, sample in history if id(sample) not in slow] if slow else history


def _slower(limits: tuple[Limit, ...], looks: Sequence[WindowData]) -> Iterable[WindowData]:
    """Those of the looks at one setting whose median is above that of the quickest beyond noise."""
    for limit in limits:
        if limit.of.p is None or limit.of.quantity in (None, "itl") or limit.of.inverted:
            continue
        known = [(look, _logs(latencies(look, limit), limit.promise)) for look in looks]
        medians = [(look, float(np.median(x)), _noise(x)) for look, x in known if len(x)]
        _, least, noise = min(medians, key=lambda each: each[1], default=(None, math.inf, 0.0))
        yield from (look for look, median, own in medians if median - least > CONTRADICTS * math.hypot(noise, own))


def _noise(logs: Floats) -> float:
    """The standard error of a look's median, and what differs from run to run."""
    with np.errstate(invalid="ignore"):  # infinite where most failed
        spread = float(np.median(np.abs(logs - np.median(logs)))) / normal_quantile(0.75)
    return math.hypot((spread if math.isfinite(spread) else FAR) * math.sqrt(1.57 / len(logs)), RUN_TO_RUN)


def _proven_by_grid(limits: tuple[Limit, ...], history: History) -> int | None:
    """The highest setting that the grid's own data prove and later visits do not contradict."""
    own = {trial.concurrency for trial, _ in history if trial.phase is Phase.GRID}
    grid = [(t, s) for t, s in history if t.concurrency in own and t.phase in (Phase.GRID, Phase.VISIT)]
    points = claim_points(grid, limits, names=[limit.metric for limit in limits])
    return solver.solve(points, limits).last_pass if points else None


@dataclass(frozen=True, slots=True)
class Part:
    """A limit, and the class of requests whose values it is looked at by; None: all that it is on.

    Where a limit is on requests of several classes, a percentile is looked at class by class: of a
    mixture of classes the tail does not follow from the median. It is inside the limit where that
    of each class is.
    """

    limit: Limit
    group: str | None = None

    @classmethod
    def of(cls, limit: Limit, samples: Mapping[int, WindowData]) -> "list[Part]":
        """The parts in which a limit is looked at."""
        group = limit.of.group
        classes = next((sample.shape.finest(group) for sample in samples.values()), ())
        if limit.of.p is None or limit.of.quantity == "itl" or classes in ((), (group,)):
            return [cls(limit)]
        return [cls(limit, name) for name in classes]


@dataclass(frozen=True, slots=True)
class Curve:
    """One limit over concurrency, for planning and not for verdicts.

    `level` is ln of median over limit by concurrency, non-decreasing (isotonic regression, weighted
    by requests), since a median needs few requests where a p99 needs many. `sigma` turns normal
    quantiles into the distance from median to tail, by the tail of the settings nearest by, of
    which there are `pooled` values. A limit that is no percentile has its value as the level, and
    no tail. `medians` are those that the level is made of.
    """

    part: Part
    level: Mapping[int, float]
    requests: Mapping[int, int]
    sigma: Mapping[int, float]
    pooled: Mapping[int, int]
    medians: Mapping[int, float] = field(default_factory=dict)

    @property
    def limit(self) -> Limit:
        """The limit."""
        return self.part.limit

    @classmethod
    def of(cls, part: Part, samples: Mapping[int, WindowData], points: Mapping[int, Point]) -> "Curve":
        limit, m = part.limit, part.limit.of
        if m.p is None or m.quantity in (None, "itl") or m.inverted:
            level = {c: max(-FAR, min(FAR, limit.excess(p.metrics[limit.metric].value))) for c, p in points.items()}
            level = level if m.name in RISING else rising(level, {c: p.n for c, p in points.items()})
            return cls(part, level, {c: points[c].n for c in level}, {}, {})
        logs = {c: _logs(latencies(narrowed(s, part.group), limit), limit.promise) for c, s in samples.items()}
        logs = {c: x for c, x in logs.items() if len(x)}
        medians = {c: max(-FAR, min(FAR, float(np.median(x)))) for c, x in logs.items()}
        level = rising(medians, {c: p.n for c, p in points.items()})
        tails = {c: _tail(logs, c) for c in level}
        sigma, pooled = ({c: tail[i] for c, tail in tails.items()} for i in (0, 1))
        counts = {c: int(k) for c, k in pooled.items()}
        return cls(part, level, {c: len(logs[c]) for c in level}, sigma, counts, medians)

    def _z(self, tail: float) -> float:
        """The normal quantile that `tail` of the requests which may exceed the limit are beyond."""
        p = self.limit.of.p
        return normal_quantile(1 - tail * (1 - p)) if self.sigma and p is not None else 0.0

    def at(self, c: int, tail: float) -> float:
        """Expected ln of that quantile over the limit; of a limit without a tail that of its
        value.
        """
        if not self.level:
            return FAR
        z = self._z(tail)
        return _between({k: min(FAR, x + z * self.sigma.get(k, 0.0)) for k, x in self.level.items()}, c)

    def standard_error(self, c: int) -> float:
        """Standard error of the expected value: of its median, of its tail, and of what differs
        from run to run.
        """
        if not self.sigma:
            return EXACT
        near = min(self.level, key=lambda k: abs(math.log(k / c)))
        of_tail = self._z(1.0) ** 2 / (2 * self.pooled[near])
        return math.hypot(self.sigma[near] * math.sqrt(1.57 / self.requests[near] + of_tail), RUN_TO_RUN)


def _logs(values: Floats, promise: float) -> Floats:
    with np.errstate(divide="ignore"):
        logs: Floats = np.log(values / promise)
    return logs


def _tail(logs: Mapping[int, Floats], c: int) -> tuple[float, int]:
    """The standard deviation of the normal law that has the tail of the settings nearest to c (in
    ln, from the median), and from how many values.

    Of three settings together, as one has few requests; the largest of what several quantiles say.
    """
    near = sorted(logs, key=lambda k: (abs(math.log(k / c)), k))[:3]
    parts = [logs[k] - np.median(logs[k]) for k in near if np.isfinite(np.median(logs[k]))]
    pooled = np.sort(np.concatenate(parts)) if parts else np.zeros(1)
    telling = [p for p in (0.8, 0.9, 0.95, 0.99) if len(pooled) * (1 - p) >= 3]
    widths = [float(pooled[math.ceil(p * len(pooled)) - 1]) / normal_quantile(p) for p in telling]
    return min(FAR, max([0.01, *widths])), len(pooled)


def _between(level: Mapping[int, float], c: int) -> float:
    """The level (a logarithm) at c: latency and throughput are nearly linear in concurrency between
    settings.

    A cliff is taken to be half way between its ends.
    """
    measured = sorted(level)
    above = next((a for a in measured if a >= c), None)
    below = next((b for b in reversed(measured) if b <= c), None)
    if above is None or below is None or above == below:
        nearest = above if above is not None else below
        return FAR if nearest is None else level[nearest]
    if (level[above] - level[below]) / math.log(above / below) > STEEP:
        return level[above] if c > math.sqrt(below * above) else level[below]
    share = (c - below) / (above - below)
    return math.log((1 - share) * math.exp(level[below]) + share * math.exp(level[above]))


# --- the next candidate


def candidate(state: State, top: int, proven: Sequence[int], window_worth: float) -> int | None:
    """The next concurrency to prove: below what was given up, as high as is cheap to prove, `top`
    at most; None when none is worth its windows. Once some are `proven` it is above them, or below
    where clearly more throughput was seen.
    """
    bracket = state.bracket()
    if bracket is None:
        # A scan cannot say "no": that, too, is claimed from fresh data.
        lowest = min(state.points, default=None)
        return lowest if not state.candidates and lowest is not None and lowest not in state.judged_by_grid else None
    high, highest = bracket[1], max(proven, default=0)
    most = top if high is None else high - 1
    failed = min(
        (k.concurrency for k in state.candidates if k.verdict is Verdict.VIOLATES and k.concurrency > highest),
        default=None,
    )
    if failed is not None:
        lower = LOWER if attempts_over(state.candidates) < 2 else FAR_LOWER
        most = min(most, failed - 1 if proven else math.floor(lower * failed))
    options = (*_below(state, proven), *range(highest + 1, most + 1))
    forecasts: dict[int, ProofForecast] = {c: _forecast(state, c) for c in options}
    if not forecasts:
        return None
    if proven:
        base = max(map(state.rate, proven))
        worth = {c: f.chance * (f.rate / base - 1) - window_worth * f.windows for c, f in forecasts.items()}
        best = max(worth, key=lambda c: (worth[c], -c))
        return best if worth[best] > 0 else None
    safe = max(f.chance * f.rate for f in forecasts.values())
    if safe <= 0:
        return max(1, math.floor(FAR_LOWER * most))
    worth = {
        c: (f.chance * f.rate + (1 - f.chance) * FALLBACK * safe) / safe - window_worth * f.windows
        for c, f in forecasts.items()
    }
    return max(worth, key=lambda c: (worth[c], -c))


def _below(state: State, proven: Sequence[int]) -> list[int]:
    """Settings below the highest that is proven that were seen to give clearly more throughput, and
    were not tried.
    """
    tried = {*proven, *(k.concurrency for k in state.candidates)}
    most = max(map(state.rate, proven), default=0.0)
    lower = (c for c in state.points if c < max(proven, default=0) and c not in tried)
    return [c for c in lower if state.rate(c) > (1 + CLEARLY_MORE) * most]


@dataclass(frozen=True, slots=True)
class ProofForecast:
    """Of a proof: its throughput, the chance that it succeeds, and the windows expected until it is
    over.
    """

    rate: float
    chance: float
    windows: float


def _forecast(state: State, c: int) -> ProofForecast:
    expected, before = 0.0, 0.0
    for windows, chance in state.prospects(c).items():
        expected += windows * max(0.0, chance - before)
        before = max(before, chance)
    return ProofForecast(state.rate(c), before, expected + (1 - before) * GIVEN_UP_AFTER)
