"""Placement: the forecast for each concurrency, and the one to prove next.

For planning, never for claims. Medians need few requests where a p99 needs many. So a curve over
concurrency is of medians, and the distance from the median to the tail is pooled over settings
(`Curve`). Two numbers follow for each concurrency: the chance that the bounds of a proof will be
within the limits after a number of windows, and the number of windows that the proof is expected to
take. The next candidate is the one with the highest worth: its chance times its merit, less the
worth of its windows. The merit is the throughput, less what the answer's own rule asks for a longer
tail (`State.merit`).
"""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from frontier.core.claim import solver
from frontier.core.claim.changes import History
from frontier.core.claim.claimed import claim_points
from frontier.core.claim.proof import (
    CONTRADICTED,
    JUDGED_AFTER,
    SPEND,
    WINDOWS,
    Candidate,
    attempts_over,
    error_left,
    joined,
    pilot_point,
    violation,
)
from frontier.core.claim.undecided import CLEARLY_MORE
from frontier.core.claim.verdict import RISING, judge
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.loads import Concurrency, Load
from frontier.core.model.points import Point
from frontier.core.model.trials import Phase
from frontier.core.stats.laws import normal_cdf
from frontier.core.window.window import WindowData
from frontier.search import disturbed
from frontier.search.curves import DEEP, EXACT, FAR, Curve, Part, interpolated
from frontier.search.series_history import SeriesHistory, nearest, scans
from frontier.search.window_size import (
    allowance,
    dependence,
    fewest_requests,
    mean_e2e,
    reach_of_largest,
    repeats,
    window_size,
)

WANDER_SECONDS, AROUND = 45.0, 12.0
"""The least seconds of a window where the server wanders, as one that an episode fills does not
show it; and those of a window's warm-up and end."""
MANY = 1000
"""So many times as many episodes show how much of the time is slow."""
FITS = 0.8
"""The share of the time left that a proof may take where the server is unsteady: it may be slow."""
UNSTEADY = 0.2
"""Standard error (in ln) of the bound that is forecast for a proof there."""
SAFE = 0.1
"""There, before anything is proven, the highest setting goes first of chances so near the best."""
WIDER = 1.4
"""The factor by which a bound lies further from its value than looks say, before a candidate has
shown it: looks are too short to see a speed that wanders."""
MAYBE = 2.0
"""A look whose value is beyond a limit by at most so many standard errors does not show it."""
LOWER = 0.9
"""The next candidate after one given up is at most this share of it, unless something is proven."""
FAR_LOWER = 0.7
"""The same share where no setting promises to be provable."""
MOST_ESS_DEFICIT, MOST_BOUND_INFLATION = 16.0, 4.0
"""Largest corrections from earlier candidates: the factor by which a bound may have fewer
independent requests than expected, and the factor by which it may lie further from its value."""
FALLBACK, GIVEN_UP_AFTER = 0.75, 4
"""The worth of a proof that fails, as a share of the safest one's, and the number of windows it
usually takes."""
PREFERRED = 0.005
"""The gain in merit for which a setting below a proven one is proven too."""


# --- what is known


@dataclass(frozen=True, slots=True)
class State:
    """The history, sorted: how often each setting was looked at, the `points` of the valid ones,
    their curves, and the candidates so far.

    `scanned` is the data from before any proof, `by_grid` the settings that the grid's own data
    prove, ascending. `contradicted` are settings that came out slower than a higher one.
    `spent` are the seconds of each setting's proof with their warm-ups, `elapsed` those of all
    trials, `within` those that are left. `wanders`: windows of one load differed by more than
    noise. `ess_deficit` and `bound_inflation` are what candidates taught (`_seen`).
    """

    limits: tuple[Limit, ...]
    looks: Mapping[Load, int]
    points: Mapping[Load, Point]
    curves: tuple[Curve, ...]
    candidates: tuple[Candidate, ...]
    scanned: Mapping[Load, WindowData]
    by_grid: tuple[Load, ...]
    judged_by_grid: frozenset[Load]
    ess_deficit: Mapping[Part, float]
    bound_inflation: Mapping[Part, float]
    contradicted: frozenset[Load] = frozenset()
    spent: Mapping[Load, float] = field(default_factory=dict)
    elapsed: float = 0.0
    wanders: bool = False
    within: float = math.inf

    @classmethod
    def of(cls, known: SeriesHistory, within: float = math.inf) -> "State":
        """The state by the trials of the server as it is now, with so many seconds left."""
        limits, history = known.limits, known.kept
        points, curves = _curves(limits, joined(disturbed.left_out(limits, history), tuple(Phase)))
        contradicted, scanned = disturbed.contradicted(curves), scans(history)
        looks = Counter(trial.load for trial, _ in history)
        corrected = any(k.reason == CONTRADICTED for k in known.candidates)
        by_grid = () if corrected else _proven_by_grid(limits, history)
        in_grid = frozenset(t.load for t, _ in history if t.phase is Phase.GRID)
        state = cls(
            limits, looks, points, curves, tuple(known.candidates), scanned, by_grid, in_grid, {}, {}, contradicted
        )
        deficit, inflation = state._seen()
        spent, elapsed = _spent(known.every)
        wanders = disturbed.wanders(limits, history)
        return dataclasses.replace(
            state,
            ess_deficit=deficit,
            bound_inflation=inflation,
            spent=spent,
            elapsed=elapsed,
            wanders=wanders,
            within=within,
        )

    def _seen(self) -> tuple[Mapping[Part, float], Mapping[Part, float]]:
        """Two corrections learned from the candidates so far, by part.

        They are the factor by which independent requests were fewer than expected where no bound
        could be given, and the factor by which a bound lay further from its value. Proven
        candidates count alone where there are any: they are next to the coming ones. A bound far
        from its value does not show that other bounds cannot be given: else one disturbance of the
        machine would send the search to the lowest settings.
        """
        proven = [k for k in self.candidates if k.verdict is Verdict.MEETS]
        judged = [k for k in proven or self.candidates if k.windows >= WINDOWS]
        seen = {curve.part: self._seen_of(curve, judged) for curve in self.curves}
        return {part: fewer for part, (fewer, _) in seen.items()}, {part: wider for part, (_, wider) in seen.items()}

    def _seen_of(self, curve: Curve, judged: Sequence[Candidate]) -> tuple[float, float]:
        """The two corrections of one part."""
        fewer, further = [1.0], list[float]()
        for k in judged:
            expected = self._reach(curve, k.load, k.windows, self.window_size(k.load), k.alpha)
            seen = k.reach(curve.limit)
            if (times := k.shortage(curve.limit)) is not None:
                fewer.append(1.0 if repeats(self.scanned, curve.limit, k.load) else times)
            elif expected and seen is not None and curve.slow is None:
                further.append(seen / expected)
        return min(MOST_ESS_DEFICIT, max(fewer)), min(MOST_BOUND_INFLATION, max(1.0, max(further, default=WIDER)))

    def _reach(self, curve: Curve, c: Load, windows: int, size: int, alpha: float) -> float | None:
        """The expected distance (in ln) of the bound beyond the value; None where no bound is
        expected.
        """
        p = curve.limit.of.p
        if p is None or not (curve.sigma or curve.gaps):
            return EXACT
        near, alike = nearest(self.scanned, c), not curve.gaps and repeats(self.scanned, curve.limit, c)
        requests = dependence(near, curve.limit) * self.ess_deficit.get(curve.part, 1.0)
        each = min(size, c) if alike else size
        effective = int(windows * each * near.shape.class_share(curve.limit.of.group) / requests)
        allowed = allowance(p, effective, alpha) / (1 - p)
        if alike and allowed <= 0 and windows * size >= fewest_requests(near.shape, curve.limit, c):
            allowed = normal_cdf(-reach_of_largest(p, windows * c, alpha)) / (1 - p)
        if allowed <= 0:
            return None
        curve = curve.later(1 + windows * self.seconds(c) / max(1.0, self.elapsed))
        return self.bound_inflation.get(curve.part, 1.0) * (curve.at(c, allowed) - curve.between_episodes(c, 1.0))

    def value(self, c: Load) -> float:
        """The expected ln of value over limit at c for the worst limit: below 0 within the SLA."""
        return max(min(FAR, curve.later(MANY).at(c, 1.0)) for curve in self.curves)

    def surely_outside(self, c: Load) -> bool:
        """Whether the value is beyond a limit by more than its noise."""
        return any(curve.later(MANY).at(c, 1.0) > curve.standard_error(c) for curve in self.curves)

    def may_be_within(self, c: Load) -> bool:
        """Whether the value may be within each limit that more load does not help to keep: it is
        beyond none of them by more than MAYBE standard errors.
        """
        curves = [curve for curve in self.curves if curve.limit.metric not in RISING]
        return all(curve.later(MANY).at(c, 1.0) <= MAYBE * curve.standard_error(c) for curve in curves)

    def prospects(self, c: Load) -> Mapping[int, float]:
        """The chance that a proof at c has succeeded, by its number of windows, as far as these fit
        the time that is left.
        """
        error = SPEND * error_left(self.candidates)
        done = next((k.windows for k in self.candidates if k.load == c), 0)
        fits = FITS if self.unsteady else 1.0
        size, most = self.window_size(c), done + fits * self.within / self.seconds(c)
        chances: dict[int, float] = {}
        for look, windows in enumerate(JUDGED_AFTER):
            alpha = error * (1 - SPEND) ** look
            if windows <= most:
                chances[windows] = min(self._chance(curve, c, windows, size, alpha) for curve in self.curves)
        return chances

    def seconds(self, c: Load) -> float:
        """How long a window of a proof at c takes, with its warm-up and its end; of its first one's
        size.
        """
        begun = (k.fresh / k.windows for k in self.candidates if k.load == c and k.fresh)
        return min([self.window_size(c), *begun]) * (mean_e2e(c, self.points) or 1.0) / c + AROUND

    def _chance(self, curve: Curve, c: Load, windows: int, size: int, alpha: float) -> float:
        reach = self._reach(curve, c, windows, size, alpha)
        if reach is None:
            return 0.0
        judged = (k for k in self.candidates if k.load == c and k.windows >= WINDOWS and self.unsteady)
        bounds = [curve.between_episodes(c, 1.0) + reach, *(_own_bound(k, curve.limit, windows) for k in judged)]
        return normal_cdf(-max(bounds) / math.hypot(curve.standard_error(c), UNSTEADY * self.unsteady))

    def window_size(self, c: Load) -> int:
        """Requests of each window of a proof at c: more after the first where the server is slow in
        episodes, and where it wanders and time is short.
        """
        earlier = tuple(itertools.takewhile(lambda k: k.load != c, self.candidates))
        size = window_size(self.scanned, self.limits, c, earlier)
        longer = len(earlier) < len(self.candidates) and (self.slow or (self.wanders and self.within < math.inf))
        seconds = max(0.0, min(WANDER_SECONDS, self.within / WINDOWS - AROUND)) if longer else 0.0
        return max(size, math.ceil(seconds * c / (mean_e2e(c, self.points) or math.inf)))

    def rate(self, c: Load) -> float:
        """Expected output throughput at c; in proportion to c below the lowest measured setting. 1
        where no throughput is known.
        """
        known = {k: math.log(v) for k, p in self.points.items() if (v := p.value("output_throughput")) > 0}
        return math.exp(interpolated(known, c)) * min(1.0, c / min(known)) if known else 1.0

    def merit(self, c: Load) -> float:
        """The expected throughput at c, less what `solver` asks for its tail: ten percent for each
        time that the tail doubles from the lowest measured setting on.
        """
        lowest = min(self.points, default=c)
        tails = [x.at(c, 1.0, DEEP) - x.at(lowest, 1.0, DEEP) for x in self.curves if x.limit.of.quantity is not None]
        return self.rate(c) * math.exp(-solver.TAIL_PRICE / math.log(2) * max(tails, default=0.0))

    def bracket(self) -> tuple[Load, Load | None] | None:
        """The highest setting proven or seen within the SLA, and the lowest above it that is not;
        None where none is within it. Settings below all of these that only lack throughput do not
        count: they say "too few".
        """
        proven = {k.load for k in self.candidates if k.verdict is Verdict.MEETS}
        inside = [c for c in self.points if c in proven or self.value(c) <= 0]
        lowest = min(inside, default=math.inf)
        outside = (c for c in self.points if c not in inside and not (c < lowest and self.lacks_throughput(c)))
        high = min(outside, default=None)
        below = [c for c in inside if high is None or c < high]
        return (max(below), high) if below else None

    def lacks_throughput(self, c: Load) -> bool:
        """Whether a setting breaks only limits that more load helps to keep."""
        broken = [curve for curve in self.curves if curve.at(c, 1.0) > 0]
        return bool(broken) and all(curve.limit.metric in RISING for curve in broken)

    def too_few(self) -> tuple[Load, Load | None] | None:
        """The highest setting that only lacks throughput, and the lowest above it that breaks
        another limit; None without such a setting.
        """
        high = min((c for c in self.points if not self.lacks_throughput(c)), default=None)
        low = max((c for c in self.points if high is None or c < high), default=None)
        return None if low is None else (low, high)

    @property
    def unsteady(self) -> bool:
        """Whether the server is slow in episodes or wanders, and time is limited."""
        return (self.slow or self.wanders) and self.within < math.inf

    @property
    def slow(self) -> bool:
        """Whether the server is slow in episodes."""
        return any(curve.slow is not None for curve in self.curves)

    def edge(self) -> Load | None:
        """The likely limit: the highest setting seen within the SLA."""
        bracket = self.bracket()
        return None if bracket is None else bracket[0]


def _own_bound(k: Candidate, limit: Limit, windows: int) -> float:
    """How far (in ln) the bound of a proof will be beyond a limit after so many windows, by its own
    data: an interval narrows with the root of the requests. -inf where it has no bound.
    """
    reach, value = k.reach(limit) or math.inf, limit.excess(k.point.value(limit.metric))
    return value + reach * math.sqrt(min(1.0, k.windows / windows)) if math.isfinite(reach) else -math.inf


def _spent(history: History) -> tuple[Mapping[Load, float], float]:
    """The seconds from the end of the window before to the end of each window of a proof, by
    setting; and those from the first window's start to the last one's end.
    """
    spent: dict[Load, float] = {}
    ends = [float(sample.starts[0]) for _, sample in history[:1]]
    for trial, sample in history:
        ends.append(float(sample.ends[-1]))
        if trial.phase is Phase.PROVE:
            spent[trial.load] = spent.get(trial.load, 0.0) + ends[-1] - ends[-2]
    return spent, ends[-1] - ends[0] if ends else 0.0


def _curves(
    limits: tuple[Limit, ...], samples: Mapping[Load, WindowData]
) -> tuple[Mapping[Load, Point], tuple[Curve, ...]]:
    """The points of the valid settings, and the curves through them."""
    points = {c: pilot_point(sample, limits) for c, sample in sorted(samples.items())}
    points = {c: p for c, p in points.items() if violation(p, limits) is not None}
    valid = {c: samples[c] for c in points}
    every = [Curve.of(part, valid, points) for limit in limits for part in Part.of(limit, valid)]
    # A class that no look has seen yet says nothing of any setting.
    return points, tuple(curve for curve in every if curve.level or curve.part.group is curve.limit.of.group is None)


def _proven_by_grid(limits: tuple[Limit, ...], history: History) -> tuple[Load, ...]:
    """The settings that the grid's own data prove and later visits do not contradict."""
    own = {trial.load for trial, _ in history if trial.phase is Phase.GRID}
    grid = [(t, s) for t, s in history if t.load in own and t.phase in (Phase.GRID, Phase.VISIT)]
    points = claim_points(grid, limits, names=[limit.metric for limit in limits])
    last = solver.solve(points, limits).last_pass if points else None
    return tuple(
        p.load for p in points if last is not None and judge(p, limits).verdict is Verdict.MEETS and p.load <= last
    )


# --- the next candidate


def candidate(
    state: State,
    top: Load,
    proven: Sequence[Load],
    window_worth: float,
    among: Collection[Load] | None = None,
    *,
    marginal_gain: bool = False,
) -> Load | None:
    """The next concurrency to prove, `top` at most; None when no setting is worth its windows.

    It lies below every setting that was given up, as high as is cheap to prove. Once some are
    `proven`, it lies above them, or below where clearly more throughput was seen. With
    `marginal_gain` settings are compared by their merit, and a lower setting is tried wherever that
    is higher. Where no setting may be added, it is one `among` these.
    """
    bracket = state.bracket()
    if bracket is None:
        # A scan cannot say "no": that, too, is claimed from fresh data.
        lowest = min(state.points, default=None)
        return lowest if not state.candidates and lowest is not None and lowest not in state.judged_by_grid else None
    most = _most(state, top if bracket[1] is None else min(top, bracket[1] - 1), proven)
    merit = state.merit if marginal_gain else state.rate
    base = max(map(merit, proven), default=0.0)
    higher = map(Concurrency, range(max(proven, default=0) + 1, most + 1))
    options = [*_lower(state, proven, base, marginal_gain), *higher]
    forecasts = {c: forecast(state, c, merit(c)) for c in options if among is None or c in among}
    if proven:
        worth = {c: f.chance * (f.rate / base - 1) - window_worth * f.windows for c, f in forecasts.items()}
        best = max(worth, key=lambda c: (worth[c], -c), default=None)
        return best if best is not None and worth[best] > 0 else None
    if not forecasts:
        return None
    safe = max(f.chance * f.rate for f in forecasts.values())
    if safe <= 0:
        far = Concurrency(max(1, math.floor(FAR_LOWER * most)))
        return max((c for c in among or [far] if c <= far), default=None)
    return _first(state, forecasts, safe, window_worth)


def _most(state: State, most: int, proven: Sequence[Load]) -> int:
    """The highest setting to try, `most` at most: well below the settings given up."""
    highest = max(proven, default=0)
    failed = [k.load for k in state.candidates if k.verdict is Verdict.VIOLATES and k.load > highest]
    if not failed:
        return most
    lower = LOWER if attempts_over(state.candidates) < 2 else FAR_LOWER
    return min(most, min(failed) - 1 if proven else math.floor(lower * min(failed)))


def _first(state: State, forecasts: Mapping[Load, "ProofForecast"], safe: float, window_worth: float) -> Load:
    """The setting with the highest worth while nothing is proven; a failed proof counts as FALLBACK
    of `safe`, where the time that is left may hold another. Where the server is unsteady, the
    highest of the surest.
    """
    if state.unsteady:  # what is proven first may be too low: the search goes on from there
        best = max(f.chance for f in forecasts.values())
        return max((c for c, f in forecasts.items() if f.chance >= best - SAFE), key=lambda c: (forecasts[c].rate, -c))
    after = {c: FALLBACK * (2 * GIVEN_UP_AFTER * state.seconds(c) <= state.within) for c in forecasts}
    worth = {
        c: (f.chance * f.rate + (1 - f.chance) * after[c] * safe) / safe - window_worth * f.windows
        for c, f in forecasts.items()
    }
    return max(worth, key=lambda c: (worth[c], -c))


def _lower(state: State, proven: Sequence[Load], base: float, marginal_gain: bool) -> list[Load]:
    """Settings below the highest proven one that were not tried and are better than the best proven
    one: by merit, or by clearly more throughput where it was seen.
    """
    tried = {*proven, *(k.load for k in state.candidates)}
    lower = [Concurrency(c) for c in range(1, max(proven, default=0))]
    if marginal_gain:
        return [c for c in lower if c not in tried and state.merit(c) > (1 + PREFERRED) * base]
    return [c for c in lower if c not in tried and c in state.points and state.rate(c) > (1 + CLEARLY_MORE) * base]


@dataclass(frozen=True, slots=True)
class ProofForecast:
    """The forecast of a proof: its throughput or merit, the chance that it succeeds, and the
    expected number of windows until it is over.
    """

    rate: float
    chance: float
    windows: float


def forecast(state: State, c: Load, rate: float) -> ProofForecast:
    """The forecast of a proof at c, which has this throughput or merit."""
    expected, before = 0.0, 0.0
    for windows, chance in state.prospects(c).items():
        expected += windows * max(0.0, chance - before)
        before = max(before, chance)
    return ProofForecast(rate, before, expected + (1 - before) * GIVEN_UP_AFTER)
