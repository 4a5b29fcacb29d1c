"""How an operating point is chosen by other rules on the same deployments; this project's way is in
`sweep`."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.calibration.servers import TOP, Server, last_inside, make_trial
from frontier.core.claim import solver
from frontier.core.claim.claimed import claim_points
from frontier.core.estimates import estimate
from frontier.core.model.loads import doublings
from frontier.core.model.metrics import claim_floor, metric
from frontier.core.model.trials import Phase, Trial
from frontier.core.stats import intervals
from frontier.core.window.window import WindowData
from frontier.search import skipping

GRID = doublings(1, 128)
PROBE = 1000
"""Requests per setting of the other tools' rules; what a p99 is commonly taken from."""
WINDOWS = 3
"""Of a setting's proof, apart in time: one window cannot tell what differs from run to run."""
LEAST_WARMUP, TURNS_AROUND, SCAN_TURNS = 10.0, 4, 3
"""Seconds, and latencies of a request, that a trial takes beside its window: its starts, its
warm-up, its last ends."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a rule says: the concurrency to run (None: nothing), what it called that, and what it
    took.

    `seconds` are those of its trials, each from its first request to the end of its last.
    `early_concurrency` is what was announced first, `early_seconds` when.
    """

    load: int | None
    verdict: str
    requests: int
    seconds: float
    settings: int
    early_concurrency: int | None = None
    early_seconds: float | None = None
    trace: tuple[str, ...] = ()
    claim_stage: str = ""
    turns: int = 0


class Bench:
    """Runs trials of one deployment; every trial has a seed of its own, and `clock` is the time
    that all have taken.
    """

    def __init__(self, server: Server, seed: int) -> None:
        self.server, self.next_seed = server, seed * 100_000
        self.history: list[tuple[Trial, WindowData]] = []
        self.clock = 0.0

    def run(self, concurrency: int, phase: Phase, requests: int, seconds: float | None = None) -> WindowData:
        repeat = 1 + sum((t.load, t.phase) == (concurrency, phase) for t, _ in self.history)
        trial = make_trial(self.server, concurrency, phase, repeat, requests, seconds)
        self.next_seed += 1
        sample = self.server.trial(trial, self.next_seed, self.clock)
        self.history.append((trial, sample))
        self.clock += _around(concurrency, sample.n, float((sample.ends - sample.starts).sum()), phase)
        return sample

    def answer(self, concurrency: int | None, verdict: str) -> Answer:
        return Answer(
            concurrency,
            verdict,
            sum(s.n for _, s in self.history),
            self.clock,
            len({t.load for t, _ in self.history}),
        )


def _around(concurrency: int, requests: int, window: float, phase: Phase = Phase.GRID) -> float:
    """Seconds of a trial with this window: a request's latency follows from its rate (Little's
    law).

    A scan has no least warm-up: its window opens when every stream has finished a request, twice a
    latency at least.
    """
    latency = concurrency * window / max(1, requests)
    if phase is Phase.SCAN:
        return window + (SCAN_TURNS - 1) * latency + latency
    return window + max(LEAST_WARMUP, (TURNS_AROUND - 1) * latency) + latency


def search_names(server: Server) -> tuple[str, ...]:
    """The metrics a decision needs."""
    return ("output_throughput", *(limit.metric for limit in server.limits))


def proven_grid(server: Server, seed: int) -> Answer:
    """The grid alone, each setting in three windows that together can carry the claim; no
    search.
    """
    bench = Bench(server, seed)
    for c in GRID:
        if skipping.skip_reason(c, bench.history, server.limits) is None:
            for _ in range(WINDOWS):
                bench.run(c, Phase.GRID, -(-proof_size(server, c) // WINDOWS))
    points = claim_points(bench.history, server.limits, names=search_names(server))
    decision = solver.solve(points, server.limits)
    return bench.answer(decision.load, decision.verdict.value)


def proof_size(server: Server, c: int) -> int:
    """Requests with which a setting can be proven with one violation seen, were they
    independent.
    """
    return max(
        max(claim_floor(metric(lim.metric).p or 0.5, c), intervals.needed(metric(lim.metric).p or 0.5, violations=1))
        for lim in server.limits
    )


def reference_seconds(server: Server, concurrency: int) -> float:
    """Seconds to prove one known setting: WINDOWS windows at its own request rate, with warm-ups
    and drains.
    """
    size = -(-proof_size(server, concurrency) // WINDOWS)
    window = size / server.truth(concurrency)["request_throughput"]
    return WINDOWS * _around(concurrency, size, window)


def dense_grid_cost(server: Server) -> tuple[int, float]:
    """Requests and seconds of the same proof without a search: every setting of a grid as fine as
    the search (5%).

    Each in WINDOWS windows, as the proven grid has them.
    """
    settings = sorted({round(1.05**k) for k in range(200) if 1.05**k <= TOP})
    sizes = [proof_size(server, c) for c in settings]
    rates = [math.log(server.truth(c)["request_throughput"]) for c in GRID]
    per_second = np.exp(np.interp(np.log(settings), np.log(GRID), rates))
    windows = [(c, -(-size // WINDOWS), rate) for c, size, rate in zip(settings, sizes, per_second, strict=True)]
    return sum(sizes), sum(WINDOWS * _around(c, n, n / rate) for c, n, rate in windows)


# --- the rules of existing tools


def largest_passing(server: Server, seed: int) -> Answer:
    """The largest setting of the grid whose p99 is inside: what one reads off a table."""
    bench = Bench(server, seed)
    passing = [c for c in GRID if _passes(server, [bench.run(c, Phase.GRID, PROBE)])]
    return bench.answer(max(passing, default=None), "")


def bisection(server: Server, seed: int) -> Answer:
    """Double until a p99 is outside, then halve the bracket on values to 5% (AIPerf, older vLLM,
    Model Analyzer).
    """
    bench = Bench(server, seed)
    return _bisect(bench, lambda c: _passes(server, [bench.run(c, Phase.GRID, PROBE)]))


def bisection_of_means(server: Server, seed: int) -> Answer:
    """The same on the mean of three runs' p99s, the common way to add repeats."""
    bench = Bench(server, seed)
    return _bisect(bench, lambda c: _passes(server, [bench.run(c, Phase.GRID, -(-PROBE // 3)) for _ in range(3)]))


def _passes(server: Server, samples: list[WindowData]) -> bool:
    for limit in server.limits:
        found = [estimate.estimate(s, limit.metric) for s in samples]
        if float(np.mean([e.value for e in found if e is not None])) > limit.promise:
            return False
    return True


def _bisect(bench: Bench, passes: Callable[[int], bool]) -> Answer:
    low, high = 0, TOP + 1
    for c in GRID:
        if not passes(c):
            high = c
            break
        low = c
    if low and high <= TOP:
        while high - low > 1 and (high - low) / high > 0.05:
            middle = (low + high) // 2
            low, high = (middle, high) if passes(middle) else (low, middle)
    return bench.answer(low or None, "")


# --- the truth


@dataclass(frozen=True, slots=True)
class Best:
    """The truth: the highest concurrency below every violation, the most throughput there, None
    when infeasible.
    """

    load: int | None
    throughput: float


def best(server: Server) -> Best:
    """Found by halving, above and below the band that is slower than its neighbours, where there is
    one.
    """
    pieces = [(1, TOP)]
    if server.band is not None:
        start, end = server.band
        pieces = [(1, start - 1), (start, min(TOP, end)), (min(TOP, end) + 1, TOP)]
    top: int | None = None
    for low, high in pieces:
        if low > high:
            continue
        found = last_inside(server, low, high)
        top = found if found is not None else top
        if found is None or found < high:
            break
    if top is None:
        return Best(None, 0.0)
    edge = [server.band[0] - 1] if server.band is not None and 1 < server.band[0] <= top else []
    at = sorted({top, *edge, *(c for c in GRID if c <= top)})
    return Best(top, max(server.truth(c)["output_throughput"] for c in at))
