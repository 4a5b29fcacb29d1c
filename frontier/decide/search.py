"""Search: where to measure next, as a pure function of what was measured, so that resuming a sweep replays its history.

Scan, then prove. A scan looks at few settings of the grid for a few seconds each: its values show about where the SLA
is crossed, and claim nothing. A candidate is then placed where the scan expects it to be provable at little cost, a
little below the edge, and measured on fresh data until it is proven or given up (`proof`). `completion` goes on from
there.

What is guaranteed. An ascent goes upwards only and ends at the first candidate not proven, so whatever its length it
can name a concurrency that breaks the SLA only at the first such candidate it meets (fixed-sequence testing, as in
Angelopoulos et al. 2021, "Learn then Test"). The ascents share the error ALPHA of a claim, and the judgements of a
candidate share the error of its ascent (`proof`). Which candidate comes next may depend on anything seen before, as
each is tested on data of its own. If the SLA is broken at every concurrency above one where it is broken, the search
names one that breaks it with probability at most ALPHA = 5 %, up to the coverage error of the bounds themselves. For
servers that are not monotone each candidate's own claim holds. With several tiers each tier errs with ALPHA, plus what
a candidate of another tier adds that breaks it and passes. What it comes to is measured in docs/calibration.md.
"""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from frontier.decide import operating_point
from frontier.decide.capacity import knee
from frontier.decide.proof import (
    ASCENTS,
    LOOKS,
    PROOFS,
    SPEND,
    WINDOWS,
    Candidate,
    History,
    allowance,
    ascents_over,
    candidates,
    claim_points,
    claim_windows,
    dependence,
    error_left,
    joined,
    pilot_point,
    quantity,
    violation,
    window_size,
)
from frontier.decide.verdict import RISING
from frontier.model import Limit, Phase, Point, Shape, Verdict
from frontier.stats import estimate
from frontier.stats.window import Floats, WindowData

__all__ = ["Ask", "Done", "History", "SearchPolicy", "claim_points", "claim_windows", "next_ask", "skip_reason"]

SCAN_REQUESTS, SCAN_PER_STREAM, SCAN_SECONDS = 40, 4, 12.0
"""A scan's window holds this many requests, or this many of each stream, unless the time is over before."""
EXACT = 0.05
"""The distance (in ln) asked where the limit is on a mean, a rate or a share."""
RUN_TO_RUN = 0.03
"""By how much (in ln) a value is expected to differ from run to run, on top of the noise within a run."""
WINDOW_WORTH = 0.01
"""The share of throughput for which one more window of a proof (a third of the least proof) is measured."""
LOWER = 0.9
"""The next candidate after one given up is at most this share of it, unless something is proven."""
MOST_THINNER = 16.0
FAR_LOWER = 0.7
"""And where nothing promises to be provable, this share."""
FALLBACK, GIVEN_UP_AFTER = 0.75, 4
"""What a proof that fails leaves, as a share of what the safest brings, and how many windows it usually takes."""
FAR = 3.0
"""A violation (in ln) beyond this says no more than this; it also stands for an infinite one."""
STEEP = 3.0
"""Latency that rises faster than this power of concurrency is a cliff."""
TURNS = 2.0
"""The least window of a trial that the search sizes by time, in times of a request."""
LOOKS_AT_MOST = 2
"""A look that came out invalid is taken once more."""
CLOSE = 1.25
"""The scan ends when the edge is known within this factor."""
NARROW = 0.10
"""Neighbours whose throughputs (in ln) or concurrencies differ by less need no setting between them."""
IMPORTANT = 3.0
"""Weight of a gap that straddles the SLA's limit or touches the knee."""
SKIP_ERRORS, SKIP_TAIL, SKIP_FALL = 0.05, 10.0, 0.05
"""Share of failed requests, times over a latency limit, and loss of throughput that make higher settings pointless."""


@dataclass(frozen=True, slots=True)
class SearchPolicy:
    """What the search may do: look at the `grid`, the config's settings, and measure at most `refine` more for looks,
    proofs and the frontier (None: as many as are worth their time).

    `requests` is the size of a window that the config states, None: the search sizes its trials. `prove` are settings
    that the user asked to be proven.
    """

    grid: tuple[int, ...]
    requests: int | None = None
    refine: int | None = None
    prove: tuple[int, ...] = ()

    @property
    def top(self) -> int:
        """The highest concurrency that may be asked for."""
        return max((*self.grid, *self.prove))


@dataclass(frozen=True, slots=True)
class Ask:
    """One trial to run next, and why. Its window ends with `requests` sent, or after `seconds` where they are given.

    `value` is the share of throughput that it may bring, or by which its claim gains, per second; 0: not known.
    """

    concurrency: int
    phase: Phase
    requests: int
    reason: str
    seconds: float | None = None
    value: float = 0.0


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more to ask. `located` is the likely limit (no claim), `proven` the highest candidate proven."""

    reason: str
    located: int | None = None
    proven: int | None = None


def next_ask(
    policy: SearchPolicy, shape: Shape, tiers: Sequence[tuple[str, Sequence[Limit]]], history: History,
    *, window_worth: float = WINDOW_WORTH,
) -> Ask | Done:  # fmt: skip
    """The next trial for one (deployment, shape), given all of its finished trials in the order in which they
    ended; or Done.

    `tiers` are named SLAs. The scan goes on until every tier's limit is located; then each is proven, the one with the
    lowest limit first: what is proven for it serves the looser ones too. ValueError for trials of another shape.

    Nothing is remembered between calls: after a crash or an interruption the same history gives the same next trial.
    """
    if any(trial.shape != shape for trial, _ in history):
        raise ValueError("the history holds trials of another shape")
    limited = [tuple(limits) for _, limits in tiers if limits]
    if not limited:
        return Done("no limit to search for")
    if policy.prove:
        return _as_asked(policy, limited[0], history)
    states = [_State.of(policy, limits, history) for limits in limited]
    for state in states:
        if (look := _scan(state)) is not None:
            return look
    ends = []
    for state in sorted(states, key=lambda state: _edge(state) or 0):
        step = _prove(state, window_worth)
        if isinstance(step, Ask):
            return step
        ends.append(step)
    return ends[0]


# --- what is known


@dataclass(frozen=True, slots=True)
class _State:
    """The history, sorted: all `samples` by concurrency, valid or not, how often each was looked at, and how many
    settings beyond the grid were used; the `points` of the valid ones, their curves, and the candidates so far.

    `scanned` is the data from before any proof, `by_grid` the highest setting that the grid's own data prove.
    """

    policy: SearchPolicy
    limits: tuple[Limit, ...]
    samples: Mapping[int, WindowData]
    looks: Mapping[int, int]
    extra: int
    points: Mapping[int, Point]
    curves: tuple["_Curve", ...]
    candidates: tuple[Candidate, ...]
    scanned: Mapping[int, WindowData]
    by_grid: int | None
    judged_by_grid: frozenset[int]
    thinner: Mapping[Limit, float]

    @classmethod
    def of(cls, policy: SearchPolicy, limits: tuple[Limit, ...], history: History) -> "_State":
        samples = joined(history, tuple(Phase))
        points = {c: pilot_point(sample, limits) for c, sample in sorted(samples.items())}
        points = {c: p for c, p in points.items() if violation(p, limits) is not None}
        curves = tuple(_Curve.of(limit, {c: samples[c] for c in points}, points) for limit in limits)
        begun = tuple(candidates(history, limits))
        scanned = joined(history, tuple(phase for phase in Phase if phase not in (*PROOFS, Phase.VISIT))) or samples
        looks = Counter(trial.concurrency for trial, _ in history)
        extra = len(settings_beyond(policy, history))
        by_grid = _proven_by_grid(limits, history)
        in_grid = frozenset(t.concurrency for t, _ in history if t.phase is Phase.GRID)
        state = cls(policy, limits, samples, looks, extra, points, curves, begun, scanned, by_grid, in_grid, {})
        return dataclasses.replace(state, thinner=state._thinner())

    def _thinner(self) -> Mapping[Limit, float]:
        """How many times fewer independent requests the candidates' bounds were worth than the scan let expect.

        From how far a bound lay beyond its value, as a bound's distance falls with the root of their number, or from
        how many requests were missing for one. By what is proven, where anything is: that is next to what comes.
        """
        thinner = {}
        for curve in self.curves:
            factors = [1.0]
            proven = [k for k in self.candidates if k.verdict is Verdict.MEETS]
            for k in proven or self.candidates:
                e = k.point.metrics.get(curve.limit.metric)
                if k.windows < WINDOWS or e is None:
                    continue
                expected = self._reach(curve, k.concurrency, k.windows, self.window_size(k.concurrency), k.alpha)
                seen = k.reach(curve.limit)
                if e.need is not None:
                    factors.append(e.need / e.n)
                elif expected and seen is not None:
                    factors.append((seen / expected) ** 2)
            thinner[curve.limit] = min(MOST_THINNER, max(factors))
        return thinner

    def _reach(self, curve: "_Curve", c: int, windows: int, size: int, alpha: float) -> float | None:
        """How far (in ln) the bound is expected to lie beyond the value; None where there is none."""
        p = curve.limit.of.p
        if not curve.sigma or p is None:
            return EXACT
        requests = dependence(self.scanned[self.nearest_scan(c)], curve.limit) * self.thinner.get(curve.limit, 1.0)
        effective = int(windows * size / requests)
        allowed = allowance(p, effective, alpha) / (1 - p)
        return curve.at(c, allowed) - curve.at(c, 1.0) if allowed > 0 else None

    def value(self, c: int) -> float:
        """The expected ln of value over limit at c for the worst limit: below 0 inside the SLA."""
        return max(min(FAR, curve.at(c, 1.0)) for curve in self.curves)

    def surely_outside(self, c: int) -> bool:
        """Whether the value is beyond a limit by more than its noise."""
        return any(curve.at(c, 1.0) > curve.doubt(c) for curve in self.curves)

    def prospects(self, c: int) -> Mapping[int, float]:
        """The chance that a proof at c has succeeded after so many windows."""
        error = SPEND * error_left(self.candidates)
        size = self.window_size(c)
        chances: dict[int, float] = {}
        for look, windows in enumerate(LOOKS):
            alpha = error * (1 - SPEND) ** look
            chances[windows] = min(self._chance(curve, c, windows, size, alpha) for curve in self.curves)
        return chances

    def _chance(self, curve: "_Curve", c: int, windows: int, size: int, alpha: float) -> float:
        reach = self._reach(curve, c, windows, size, alpha)
        if reach is None:
            return 0.0
        return float(special.ndtr(-(curve.at(c, 1.0) + reach) / curve.doubt(c)))

    def nearest_scan(self, c: int) -> int:
        """The setting nearest to c with data from before any proof."""
        return min(self.scanned, key=lambda k: (abs(math.log(k / c)), k))

    def window_size(self, c: int) -> int:
        """Requests of each window of a proof at c."""
        return window_size(self.scanned[self.nearest_scan(c)], self.limits, c)

    def rate(self, c: int) -> float:
        """Expected output throughput at c."""
        known = {
            k: p.metrics["output_throughput"].value for k, p in self.points.items() if "output_throughput" in p.metrics
        }
        return _between({k: math.log(v) for k, v in known.items() if v > 0}, c) if known else 0.0

    @property
    def may_add(self) -> bool:
        """Whether a setting beyond the grid may be measured."""
        return self.policy.refine is None or self.extra < self.policy.refine


def settings_beyond(policy: SearchPolicy, history: History) -> set[int]:
    """The settings used beyond those of the grid. One that was looked at and then proven is one."""
    return {trial.concurrency for trial, _ in history} - set(policy.grid)


def _proven_by_grid(limits: tuple[Limit, ...], history: History) -> int | None:
    grid = [pilot_point(sample, limits) for sample in joined(history, (Phase.GRID,)).values()]
    return operating_point.solve(grid, limits).last_pass if grid else None


@dataclass(frozen=True, slots=True)
class _Curve:
    """One limit over concurrency, for planning and not for verdicts.

    `level` is ln of median over limit by concurrency, non-decreasing (isotonic regression, weighted by requests), since
    a median needs few requests where a p99 needs many. `sigma` turns normal quantiles into the distance from median to
    tail, by the tail of the settings nearest by, of which there are `pooled` values. A limit that is no percentile has
    its value as the level, and no tail.
    """

    limit: Limit
    level: Mapping[int, float]
    requests: Mapping[int, int]
    sigma: Mapping[int, float]
    pooled: Mapping[int, int]

    @classmethod
    def of(cls, limit: Limit, samples: Mapping[int, WindowData], points: Mapping[int, Point]) -> "_Curve":
        m = limit.of
        if m.p is None or m.quantity in (None, "itl") or m.inverted:
            level = {c: max(-FAR, min(FAR, limit.excess(p.metrics[limit.metric].value))) for c, p in points.items()}
            level = level if m.name in RISING else _rising(level, points)
            return cls(limit, level, {c: points[c].n for c in level}, {}, {})
        logs = {c: _logs(quantity(sample, m.quantity or ""), limit.promise) for c, sample in samples.items()}
        logs = {c: x for c, x in logs.items() if len(x)}
        level = _rising({c: max(-FAR, min(FAR, float(np.median(x)))) for c, x in logs.items()}, points)
        tails = {c: _tail(logs, c) for c in level}
        sigma, pooled = ({c: tail[i] for c, tail in tails.items()} for i in (0, 1))
        return cls(limit, level, {c: len(logs[c]) for c in level}, sigma, {c: int(k) for c, k in pooled.items()})

    def _z(self, tail: float) -> float:
        """The normal quantile that `tail` of the requests which may exceed the limit are beyond."""
        p = self.limit.of.p
        return float(special.ndtri(1 - tail * (1 - p))) if self.sigma and p is not None else 0.0

    def at(self, c: int, tail: float) -> float:
        """Expected ln of that quantile over the limit; of a limit without a tail that of its value."""
        if not self.level:
            return FAR
        z = self._z(tail)
        return _between({k: min(FAR, x + z * self.sigma.get(k, 0.0)) for k, x in self.level.items()}, c)

    def doubt(self, c: int) -> float:
        """Standard error of the expected value: of its median, of its tail, and of what differs from run to run."""
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
    """The standard deviation of the normal law that has the tail of the settings nearest to c (in ln, from the median),
    and from how many values.

    Of three settings together, as one has few requests; the largest of what several quantiles say.
    """
    near = sorted(logs, key=lambda k: (abs(math.log(k / c)), k))[:3]
    parts = [logs[k] - np.median(logs[k]) for k in near if np.isfinite(np.median(logs[k]))]
    pooled = np.sort(np.concatenate(parts)) if parts else np.zeros(1)
    telling = [p for p in (0.8, 0.9, 0.95, 0.99) if len(pooled) * (1 - p) >= 3]
    widths = [float(pooled[math.ceil(p * len(pooled)) - 1]) / float(special.ndtri(p)) for p in telling]
    return min(FAR, max([0.01, *widths])), len(pooled)


def _rising(level: Mapping[int, float], points: Mapping[int, Point]) -> dict[int, float]:
    """The level made non-decreasing in concurrency: one unlucky value would send the search an octave down."""
    if not level:
        return {}
    from scipy.optimize import isotonic_regression  # slow to import, and not needed to look at a run

    ordered = dict(sorted(level.items()))
    fitted = isotonic_regression(list(ordered.values()), weights=[max(1, points[c].n) for c in ordered]).x
    return {c: float(value) for c, value in zip(ordered, fitted, strict=True)}


def _between(level: Mapping[int, float], c: int) -> float:
    """The level (a logarithm) at c: latency and throughput are nearly linear in concurrency between settings.

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


# --- scan


def _scan(state: _State) -> Ask | None:
    """The next cheap look: upwards in double steps until the SLA is broken, then into the gap that holds its edge."""
    grid, policy = state.policy.grid, state.policy
    if state.candidates:
        return None
    unseen = [c for c in grid if c not in state.points and state.looks.get(c, 0) < LOOKS_AT_MOST]
    if unseen and unseen[0] == grid[0]:
        return _look(policy, grid[0], "the lowest setting shows how long a request takes", state.points)
    edge = _bracket(state)
    if edge is None:
        lowest = min(state.points, default=1)
        if lowest > 1 and state.may_add and state.looks.get(lowest // 4, 0) < LOOKS_AT_MOST:
            return _look(policy, max(1, lowest // 4), f"c={lowest}, the lowest measured, breaks the SLA", state.points)
        above = [c for c in unseen if not state.points]
        return _look(policy, above[0], "no lower setting could be measured", state.points) if above else None
    low, high = edge
    if high is None or not any(state.surely_outside(k) for k in state.points if k >= high):
        above = [c for c in unseen if c > (high or low)]
        if above:
            step = above[min(1, len(above) - 1)] if high is None else above[0]
            return _look(policy, step, f"c={low} is inside the SLA; looking higher", state.points)
    if high is None or high - low <= 1 or high / low <= CLOSE:
        return None
    inner = [c for c in unseen if low < c < high]
    middle = between(low, high)
    if inner:
        return _look(
            policy, min(inner, key=lambda c: abs(math.log(c / middle))), _between_reason(low, high), state.points
        )
    if not state.may_add or state.looks.get(middle, 0) >= LOOKS_AT_MOST:
        return None
    return _look(policy, middle, _between_reason(low, high), state.points)


def _between_reason(low: int, high: int) -> str:
    return f"c={low} is inside the SLA and c={high} is not; looking between them"


def _bracket(state: _State) -> tuple[int, int | None] | None:
    """The highest setting seen inside the SLA and the lowest above it that is not; None when none is inside."""
    inside = [c for c in state.points if state.value(c) <= 0]
    high = min((c for c in state.points if state.value(c) > 0), default=None)
    below = [c for c in inside if high is None or c < high]
    return (max(below), high) if below else None


def _edge(state: _State) -> int | None:
    edge = _bracket(state)
    return None if edge is None else edge[0]


def longer(seconds: float, c: int, points: Mapping[int, Point]) -> float:
    """The seconds of a window at c: so many, and at least TURNS of the time that a request is known to take nearby."""
    known = {k: p.metrics["mean_e2e"].value for k, p in points.items() if "mean_e2e" in p.metrics}
    known = {k: e2e for k, e2e in known.items() if math.isfinite(e2e)}
    if not known:
        return seconds
    near = min(known, key=lambda k: (abs(math.log(k / c)), k))
    return max(seconds, TURNS * known[near])


def _look(policy: SearchPolicy, c: int, reason: str, points: Mapping[int, Point]) -> Ask:
    if policy.requests is not None and c in policy.grid:
        return Ask(c, Phase.GRID, policy.requests, reason)
    seconds = longer(SCAN_SECONDS, c, points)
    return Ask(c, Phase.SCAN, max(SCAN_REQUESTS, SCAN_PER_STREAM * c), reason, seconds)


# --- prove


def _prove(state: _State, window_worth: float) -> Ask | Done:
    """The next window of a candidate, or how the ascents ended."""
    proven = max((k.concurrency for k in state.candidates if k.verdict is Verdict.MEETS), default=None)
    given_up = [k for k in state.candidates if k.verdict is Verdict.VIOLATES]
    for k in state.candidates:
        if k.verdict is Verdict.UNPROVEN:
            return _window(state, k.concurrency)
    best = max((c for c in (proven, state.by_grid) if c is not None), default=None)
    if ascents_over(state.candidates) < ASCENTS and state.may_add:
        candidate = _candidate(state, best, [k.concurrency for k in given_up], window_worth)
        if candidate is not None:
            return _window(state, candidate)
    if proven is None and state.by_grid is not None:
        reason = f"c={state.by_grid} is proven by the grid's own data"
    else:
        reason = f"c={proven} is proven on fresh data" if proven is not None else "nothing is proven"
    if given_up:
        lowest = min(given_up, key=lambda k: k.concurrency)
        reason += f"; c={lowest.concurrency} is not: {lowest.reason}"
    elif best is None and _bracket(state) is None:
        reason = "no measured setting is inside the SLA"
    elif not state.may_add:
        reason += "; no extra settings are left"
    return Done(reason, _edge(state), best)


def _as_asked(policy: SearchPolicy, limits: tuple[Limit, ...], history: History) -> Ask | Done:
    """The next window of a setting that the user asked to be proven, and nothing else, until each is decided.

    The windows count as those of any candidate, so they share its error.
    """
    judged = {k.concurrency: k for k in candidates(history, limits)}
    for c in sorted(policy.prove):
        if c in judged and judged[c].verdict is not Verdict.UNPROVEN:
            continue
        seen = joined(history, tuple(p for p in Phase if p not in (*PROOFS, Phase.VISIT))) or joined(
            history, tuple(Phase)
        )
        if not seen:
            return Ask(c, Phase.SCAN, max(SCAN_REQUESTS, SCAN_PER_STREAM * c), f"c={c} was asked")
        nearest = seen[min(seen, key=lambda k: (abs(math.log(k / c)), k))]
        return Ask(c, Phase.PROVE, window_size(nearest, limits, c), f"c={c} was asked to be proven")
    ends = [k for c, k in judged.items() if c in policy.prove]
    reasons = [
        f"c={k.concurrency} is " + ("proven" if k.verdict is Verdict.MEETS else f"not: {k.reason}") for k in ends
    ]
    proven = [k.concurrency for k in ends if k.verdict is Verdict.MEETS]
    return Done("; ".join(reasons) or "the server was lost", proven=max(proven, default=None))


def _window(state: _State, c: int) -> Ask:
    done = next((k.windows for k in state.candidates if k.concurrency == c), 0)
    return Ask(c, Phase.PROVE, state.window_size(c), f"proving c={c} on fresh data, window {done + 1}")


def _candidate(state: _State, proven: int | None, failed: Sequence[int], window_worth: float) -> int | None:
    """The next concurrency to prove: above what is proven, below what was given up, as high as is cheap to prove."""
    edge = _bracket(state)
    if edge is None:
        # A scan cannot say "no": that, too, is claimed from fresh data.
        lowest = min(state.points, default=None)
        return lowest if not state.candidates and lowest is not None and lowest not in state.judged_by_grid else None
    high = edge[1]
    most = state.policy.top if high is None else high - 1
    if failed:
        lower = LOWER if ascents_over(state.candidates) < 2 else FAR_LOWER
        most = min(most, min(failed) - 1 if proven is not None else math.floor(lower * min(failed)))
    least = 1 if proven is None else proven + 1
    options = range(least, most + 1)
    forecasts = {c: _forecast(state, c) for c in options}
    if not forecasts:
        return None
    if proven is not None:
        base = math.exp(state.rate(proven))
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


@dataclass(frozen=True, slots=True)
class _Forecast:
    """Of a proof: its throughput, the chance that it succeeds, and the windows expected until it is over."""

    rate: float
    chance: float
    windows: float


def _forecast(state: _State, c: int) -> _Forecast:
    expected, before = 0.0, 0.0
    for windows, chance in state.prospects(c).items():
        expected += windows * max(0.0, chance - before)
        before = max(before, chance)
    return _Forecast(math.exp(state.rate(c)), before, expected + (1 - before) * GIVEN_UP_AFTER)


# --- the frontier


def widest_gap(points: Mapping[int, Point], limits: tuple[Limit, ...]) -> tuple[int, int] | None:
    """The neighbours whose throughputs differ most, weighted where it matters; None when all are close enough.

    Between neighbours the frontier is known to lie between their throughputs and no closer, so this is its bracket.
    A gap whose middle was measured already (and was not valid) is passed over.
    """
    rates = {
        c: p.metrics["output_throughput"].value
        for c, p in points.items()
        if p.valid and "output_throughput" in p.metrics
    }
    measured = sorted(c for c, rate in rates.items() if rate > 0)
    bend = knee([points[c] for c in measured])
    widest: tuple[float, int, int] | None = None
    for low, high in itertools.pairwise(measured):
        rise = abs(math.log(rates[high] / rates[low]))
        if high - low <= 1 or (high - low) / high <= NARROW or rise <= NARROW or between(low, high) in points:
            continue
        a, b = violation(points[low], limits), violation(points[high], limits)
        crossing = bool(limits) and a is not None and b is not None and (a <= 0) != (b <= 0)
        width = rise * (IMPORTANT if crossing or bend in (low, high) else 1.0)
        if widest is None or width > widest[0]:
            widest = (width, low, high)
    return None if widest is None else widest[1:]


def between(low: int, high: int) -> int:
    """The geometric mean, strictly between."""
    return min(high - 1, max(low + 1, round(math.sqrt(low * high))))


# --- what need not be run


def skip_reason(concurrency: int, history: History, limits: Sequence[Limit]) -> str | None:
    """Why a setting need not be measured for the grid, given what lower ones of its shape showed; None: measure it.

    A setting is skipped, and reported as skipped, when the highest lower one failed more than 5 % of its requests or
    was more than ten times over a latency limit, or when throughput fell by more than 5 % below the best at two in a
    row: bounds count, not values, and one fall may be noise.
    """
    below = {c: s for c, s in joined(history, (Phase.GRID,)).items() if c < concurrency}
    if not below:
        return None
    last = max(below)
    errors = estimate.estimate(below[last], "error_rate")
    if errors is not None and errors.lower > SKIP_ERRORS:
        return f"c={last} already failed {errors.value:.0%} of its requests"
    for limit in limits:
        m = limit.of
        tail = estimate.estimate(below[last], limit.metric, limits=tuple(limits)) if m.unit.value == "s" else None
        if tail is not None and tail.lower > SKIP_TAIL * limit.promise:
            return f"{m.label} at c={last} is already {m.format(tail.value)}, over ten times its limit"
    rates = [estimate.estimate(below[c], "output_throughput") for c in sorted(below)]
    known = [r for r in rates if r is not None]
    if len(known) >= 3 and all(r.high < (1 - SKIP_FALL) * max(k.value for k in known) for r in known[-2:]):
        return f"throughput has fallen at two settings in a row, up to c={last}"
    return None
