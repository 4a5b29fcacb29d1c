"""Simulated deployments drawn at random, with a truth to any precision, in virtual time.

Two kinds. `Process` draws latencies from a law of concurrency with dependence between requests,
drift, stalls, convoys, a machine whose speed wanders, and differences between runs: a thousand of
them can be swept in minutes. `Engine` is the embedded scheduler itself
(frontier.simulator.virtual), a hundred times slower, as a check that the process is not kinder than
an engine.
"""

import dataclasses
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from frontier.core.model.decisions import Limit
from frontier.core.model.shapes import Lengths, Shape
from frontier.core.model.trials import ClientHealth, Measurement, Phase, Record, Trial, Window
from frontier.core.window.from_records import window_data
from frontier.core.window.histogram import LogHistogram
from frontier.core.window.window import BLOCKS, WindowData
from frontier.simulator import virtual
from frontier.simulator.spec import EngineSpec, Stalls
from tests.kit.virtual_truth import closed_loop

Floats = NDArray[np.float64]
Truth = dict[str, float]
TOP = 128
FAMILIES = (
    "smooth",
    "cliff",
    "queue_capped",
    "drifting",
    "stalling",
    "non_monotone",
    "infeasible",
    "fixed_lengths",
    "noisy",
    "rare_stalls",
    "no_noise",
    "noise_0.5",
    "noise_1",
    "stated_sizes",
)
EVERY = (*FAMILIES, "heavy_tail", "slow_speed")
"""With those of a study of their own. New ones come last: a family's place is part of the seed of
its deployments."""
PROMPT_CV, ANSWER_CV = 1.5, 1.0
"""Coefficients of variation of the lengths of the family of heavy tails. Both are lognormal; TTFT
is in proportion to the length of the prompt."""
STEP_NOISE = {"no_noise": 0.0, "noise_0.5": 0.005, "noise_1": 0.01}
"""Families whose steps hardly vary, as of engines that replay CUDA graphs, and the coefficient of
variation of a step. Lengths are fixed, so a stream keeps its place among the others, and with it
its latencies, for a whole run."""
NIGHT = 100_000
"""Seeds of one sweep: a server's trials with seeds of the same NIGHT are one night on one machine.
"""
STATED = (300, 1000, 2000)
"""Requests of a trial that the configs of the family of stated sizes may ask for."""
APART = 600.0
"""Seconds between the starts of successive trials when no start time is given."""
_EMPTY = tuple(LogHistogram() for _ in range(BLOCKS))


class Server(Protocol):
    """A deployment under one SLA. `band` are concurrencies that are slower than higher ones, if
    any. `requests` are those of a trial that its config states; None: the sweep sizes its trials.
    """

    family: str
    shape: Shape
    limits: tuple[Limit, ...]
    band: tuple[int, int] | None
    requests: int | None

    def trial(self, trial: Trial, seed: int, at: float | None = None) -> WindowData:
        """One window of it, started `at` seconds into its sweep (None: trials follow each other by
        seed).
        """
        ...

    def truth(self, concurrency: int) -> Truth:
        """The metrics of the limits and the throughput in the long run, over many runs."""
        ...

    def touched(self, concurrency: int) -> float:
        """The share of requests with a rare stall in what the SLA limits; 0 without rare stalls."""
        ...


def excess(server: Server, concurrency: int) -> float:
    """The worst metric over its limit in the long run: above 1 the SLA is broken."""
    true = server.truth(concurrency)
    pairs = ((limit, true[limit.metric]) for limit in server.limits)
    return max(value / m.promise if m.better == "lower" else m.promise / max(value, 1e-9) for m, value in pairs)


def last_inside(server: Server, low: int, high: int) -> int | None:
    """The highest concurrency within the SLA from `low` to `high`, by halving; None when `low` is
    outside.
    """
    if excess(server, low) > 1:
        return None
    if excess(server, high) <= 1:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if excess(server, middle) <= 1 else (low, middle)
    return low


@dataclass(frozen=True, slots=True)
class Convoys:
    """Requests of equal length run in step: each belongs to one of `count` convoys.

    A convoy's requests share the part `together` of the variance of their noise. A request that is
    early or late for its convoy keeps the part `hold` of that until its next turn, as it waits less
    or longer; at each turn the part `leave` of the requests goes over to another convoy.
    """

    count: int
    together: float
    hold: float
    leave: float


@dataclass(frozen=True, slots=True)
class Wander:
    """The speed of the whole machine: an Ornstein-Uhlenbeck process in ln(seconds of the clock per
    second of work).

    `sd` is its standard deviation, `time` its correlation time in seconds of work; a second of work
    takes one second on average.
    """

    sd: float
    time: float


@dataclass(frozen=True, slots=True)
class Episodes:
    """Now and then the whole machine works at half its speed: for `low` to `high` seconds, `every`
    so many seconds on average.
    """

    every: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RareStalls:
    """The server stands still for `length` seconds at random moments, so often that `share` of all
    requests meet it.

    To meet it means: in the phase that the SLA limits (to the first token, after it, or the whole
    request).
    """

    share: float
    length: float
    phase: str


@dataclass(frozen=True, slots=True)
class Law:
    """The medians as functions of concurrency, and what disturbs them. Seconds."""

    tpot: float
    tpot_half: float
    tpot_power: float
    ttft: float
    ttft_half: float
    ttft_power: float
    osl: float
    osl_cv: float
    tpot_noise: float
    ttft_noise: float
    shared_noise: float
    memory: float
    run_effect: float
    error_rate: float
    edge: int = 1 << 20
    edge_tpot: float = 1.0
    edge_ttft: float = 1.0
    seats: int = 1 << 20
    wait_noise: float = 0.3
    drift: float = 0.0
    drift_windows: float = 1.0
    stall_every: float = math.inf
    stall: float = 0.0
    band: tuple[int, int] | None = None
    convoys: Convoys | None = None
    wander: Wander | None = None
    episodes: Episodes | None = None
    rare: RareStalls | None = None
    step_noise: float | None = None
    heavy: bool = False


def _between(rng: np.random.Generator, low: float, high: float) -> float:
    """Evenly in the logarithm."""
    return float(math.exp(rng.uniform(math.log(low), math.log(high))))


def draw_law(rng: np.random.Generator, family: str) -> Law:
    """A deployment of the family, every number drawn from a wide range; nothing depends on what the
    rules do.
    """
    law = Law(
        tpot=_between(rng, 4e-3, 20e-3),
        tpot_half=_between(rng, 8, 128),
        tpot_power=rng.uniform(0.5, 1.3),
        ttft=_between(rng, 0.02, 0.3),
        ttft_half=_between(rng, 4, 64),
        ttft_power=rng.uniform(0.5, 1.5),
        osl=float(rng.choice([64, 128, 256])),
        osl_cv=rng.uniform(0.0, 0.5),
        tpot_noise=rng.uniform(0.02, 0.15),
        ttft_noise=rng.uniform(0.1, 0.6),
        shared_noise=rng.uniform(0.0, 0.15),
        memory=rng.uniform(0.0, 0.97),
        run_effect=rng.uniform(0.0, 0.04),
        error_rate=rng.uniform(0, 0.004) if rng.random() < 0.2 else 0.0,
    )
    place = round(_between(rng, 6, 110))
    if family == "cliff":
        steep = {"edge": place, "edge_tpot": rng.uniform(1.5, 4.0), "edge_ttft": _between(rng, 2, 20)}
        return dataclasses.replace(law, **steep)
    if family == "queue_capped":
        return dataclasses.replace(law, seats=place, wait_noise=rng.uniform(0.2, 0.5))
    if family == "drifting":
        return dataclasses.replace(law, drift=rng.uniform(0.03, 0.15), drift_windows=_between(rng, 0.3, 5))
    if family == "stalling":
        return dataclasses.replace(law, stall_every=_between(rng, 5, 120), stall=_between(rng, 0.1, 2.0))
    if family == "non_monotone":
        band = (place, max(place + 1, round(1.35 * place)))
        worse = rng.uniform(1.1, 1.8)
        return dataclasses.replace(law, band=band, edge_tpot=worse, edge_ttft=worse)
    if family == "fixed_lengths":
        convoys = Convoys(
            int(rng.integers(1, 5)), rng.uniform(0.5, 0.95), rng.uniform(0.8, 0.97), _between(rng, 2e-3, 0.05)
        )
        return dataclasses.replace(law, osl_cv=0.0, convoys=convoys)
    if family == "noisy":
        return dataclasses.replace(law, wander=draw_wander(rng))
    if family == "heavy_tail":
        return dataclasses.replace(law, heavy=True, osl_cv=ANSWER_CV, ttft_noise=_log_sd(PROMPT_CV))
    if family == "slow_speed":
        return dataclasses.replace(law, wander=Wander(rng.uniform(0.03, 0.15), _between(rng, 20, 300)))
    if family in STEP_NOISE:
        noise = STEP_NOISE[family]
        steady = {"osl_cv": 0.0, "shared_noise": 0.0, "tpot_noise": noise / math.sqrt(law.osl), "error_rate": 0.0}
        return dataclasses.replace(
            law, step_noise=noise, run_effect=law.run_effect / 10, ttft_noise=rng.uniform(0.02, 0.2), **steady
        )
    return law


def _log_sd(cv: float) -> float:
    """The standard deviation of the logarithm of a lognormal law with this coefficient of
    variation.
    """
    return math.sqrt(math.log1p(cv**2))


def draw_wander(rng: np.random.Generator) -> Wander:
    """By 5 to 20%, within a second to five minutes."""
    return Wander(rng.uniform(0.05, 0.2), _between(rng, 1, 300))


def draw_metrics(rng: np.random.Generator) -> tuple[str, ...]:
    """What the SLA limits: one latency, or TTFT and TPOT together; their p99 three times in four,
    else their p95.
    """
    tail = "p99" if rng.random() < 0.75 else "p95"
    which = rng.choice(4, p=[0.3, 0.2, 0.2, 0.3])
    return tuple(f"{tail}_{name}" for name in (("ttft",), ("tpot",), ("e2e",), ("ttft", "tpot"))[which])


def draw_limits(
    rng: np.random.Generator, names: tuple[str, ...], one: Truth, many: Truth, *, infeasible: bool
) -> tuple[Limit, ...]:
    """Limits that know nothing of the deployment but its range: anything from what one user meets
    to what TOP users do.

    Evenly in the logarithm, and up to 20% above, where nothing binds; below what one user meets
    when infeasible.
    """
    if infeasible:
        return tuple(Limit(name, one[name] * rng.uniform(0.3, 0.95)) for name in names)
    return tuple(Limit(name, _between(rng, one[name], max(one[name], 1.2 * many[name]))) for name in names)


def draw_rare(rng: np.random.Generator, server: Server) -> RareStalls:
    """Rare stalls that push a request at the edge of a server without any to 1.5 to 4 times its
    limit.

    They meet 0.1 to 3% of the requests, evenly in the logarithm.
    """
    quantities = {limit.metric.split("_")[1] for limit in server.limits}
    phase = {("ttft",): "ttft", ("tpot",): "tpot"}.get(tuple(quantities), "e2e")
    true = server.truth(last_inside(server, 1, TOP) or 1)
    times = rng.uniform(1.5, 4.0)
    tokens = {"ttft": 1.0, "tpot": server.shape.osl.mean - 1, "e2e": 1.0}
    lengths = [
        (times * limit.promise - true[f"p50_{name}"]) * tokens[name]
        for limit in server.limits
        for name in (limit.metric.split("_")[1],)
    ]
    return RareStalls(_between(rng, 1e-3, 0.03), max(lengths), phase)


def stalls_met(phase_seconds: Floats, every: float, rng: np.random.Generator) -> Floats:
    """How many stalls of a Poisson process each of these spans meets. Stratified: their share
    hardly varies.
    """
    u = (rng.permutation(len(phase_seconds)) + rng.random(len(phase_seconds))) / len(phase_seconds)
    mean = phase_seconds / every
    term = np.exp(-mean)
    met, below = np.zeros(len(u)), term.copy()
    for k in range(1, 20):
        met += u > below
        term = term * mean / k
        below += term
    return met


class Path:
    """One path of a wandering speed: from seconds of work to seconds of the clock. Grows as far as
    it is asked for.
    """

    STEPS = 4
    """Per correlation time."""

    def __init__(self, wander: Wander, seed: list[int]) -> None:
        self.wander, self.rng = wander, np.random.default_rng(seed)
        self.step = wander.time / self.STEPS
        self.last = self.rng.standard_normal()
        self.clock = np.zeros(1)

    def _grow(self) -> None:
        keep = math.exp(-1 / self.STEPS)
        shocks = self.rng.standard_normal(max(4096, len(self.clock))) * math.sqrt(1 - keep**2)
        x, _ = lfilter([1.0], [1.0, -keep], shocks, zi=[keep * self.last])
        self.last = float(x[-1])
        paces = np.exp(self.wander.sd * x - self.wander.sd**2 / 2)
        self.clock = np.concatenate((self.clock, self.clock[-1] + self.step * paces.cumsum()))

    @property
    def length(self) -> float:
        """Seconds of work so far."""
        return self.step * (len(self.clock) - 1)

    def work(self, clock: float) -> float:
        """The seconds of work done by this time of the clock."""
        while self.clock[-1] <= clock:
            self._grow()
        below = int(np.searchsorted(self.clock, clock, side="right")) - 1
        return self.step * (below + (clock - self.clock[below]) / (self.clock[below + 1] - self.clock[below]))

    def at(self, work: Floats) -> Floats:
        """The time of the clock when so much work is done."""
        while self.length < float(work.max()):
            self._grow()
        where = work / self.step
        below = np.minimum(where.astype(np.int64), len(self.clock) - 2)
        return self.clock[below] + (where - below) * (self.clock[below + 1] - self.clock[below])


class EpisodesPath(Path):
    """A path whose speed is halved in episodes."""

    def __init__(self, episodes: Episodes, seed: list[int]) -> None:
        super().__init__(Wander(0.0, 2.0), seed)
        self.episodes = episodes

    def _grow(self) -> None:
        each = self.episodes
        apart = self.rng.exponential(each.every, 200)
        slow = self.rng.uniform(each.low, each.high, 200) / 2  # in seconds of work
        steps = np.maximum(1, np.rint(np.column_stack((apart, slow)).ravel() / self.step)).astype(np.int64)
        paces = np.repeat(np.tile([1.0, 2.0], 200), steps)
        self.clock = np.concatenate((self.clock, self.clock[-1] + self.step * paces.cumsum()))


def with_rare(
    rare: RareStalls, every: float, ttft: Floats, e2e: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats, float]:
    """TTFT and E2E of a steady server with its rare stalls, each request by itself, and the share
    that met one.
    """
    before, after = stalls_met(ttft, every, rng), stalls_met(e2e - ttft, every, rng)
    met = {"ttft": before, "tpot": after, "e2e": before + after}[rare.phase]
    return ttft + rare.length * before, e2e + rare.length * (before + after), float((met > 0).mean())


def wandering(path: Path, ttft: Floats, e2e: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """TTFT and E2E if each request came at a time of its own, evenly over very many correlation
    times of the path.
    """
    n = len(ttft)
    begun = (rng.permutation(n) + rng.random(n)) / n * 40_000 * path.wander.time
    clock = path.at(begun)
    return path.at(begun + ttft) - clock, path.at(begun + e2e) - clock


class Process:
    """A `Law` under an SLA drawn with it."""

    def __init__(self, law: Law, family: str, limits: tuple[Limit, ...], seed: int) -> None:
        self.law, self.family, self.limits, self.seed = law, family, limits, seed
        self.shape = Shape.of(512, round(law.osl))
        self.band = law.band
        self.requests: int | None = None
        self._truth: dict[int, Truth] = {}
        self._night: tuple[int, Path] | None = None
        self._many_nights: Path | None = None

    @classmethod
    def drawn(cls, family: str, seed: int) -> "Process":
        """The deployment number `seed` of its family, with limits where the SLA may bind anywhere
        or nowhere.
        """
        rng = np.random.default_rng([seed, EVERY.index(family)])
        bare = cls(draw_law(rng, family), family, (), seed)
        names = draw_metrics(rng)
        limits = draw_limits(rng, names, bare.truth(1), bare.truth(TOP), infeasible=family == "infeasible")
        server = cls(bare.law, family, limits, seed)
        if family == "stated_sizes":
            server.requests = int(rng.choice(STATED))
        if family == "rare_stalls":
            return cls(dataclasses.replace(bare.law, rare=draw_rare(rng, server)), family, limits, seed)
        return server

    def medians(self, c: int) -> tuple[float, float, float]:
        """TPOT, TTFT and the mean wait for a seat."""
        law, seated = self.law, min(c, self.law.seats)
        slow = seated > law.edge or (law.band is not None and law.band[0] <= c <= law.band[1])
        tpot = law.tpot * (1 + seated / law.tpot_half) ** law.tpot_power * (law.edge_tpot if slow else 1.0)
        ttft = law.ttft * (1 + seated / law.ttft_half) ** law.ttft_power * (law.edge_ttft if slow else 1.0)
        return tpot, ttft, (c - seated) * (ttft + tpot * law.osl) / seated

    def phase_seconds(self, c: int, phase: str) -> float:
        """The mean length of a request until its first token, after it, or in all, without
        stalls.
        """
        law = self.law
        tpot, ttft, wait = self.medians(c)
        runs = law.run_effect**2 / 2
        first = ttft * math.exp(runs + (law.shared_noise**2 + law.ttft_noise**2) / 2) + wait * math.exp(runs)
        rest = tpot * (law.osl - 1) * math.exp(runs + (law.shared_noise**2 + law.tpot_noise**2) / 2)
        return {"ttft": first, "tpot": rest, "e2e": first + rest}[phase]

    def _alone(self, c: int, rows: int, rng: np.random.Generator) -> tuple[Floats, Floats, Floats, Floats]:
        """`rows` turns of c streams: their starts; and TTFT, E2E and tokens of the requests, turn
        by turn.
        """
        law, k = self.law, rows * c
        shocks = rng.standard_normal(k) * math.sqrt(1 - law.memory**2)
        shocks[0] = rng.standard_normal()
        shared = law.shared_noise * lfilter([1.0], [1.0, -law.memory], shocks)
        tpot, ttft, wait = self.medians(c)
        # One seed's runs differ by a scale and the phase of the drift; everything else is noise
        # within the run.
        scale = math.exp(law.run_effect * rng.standard_normal())
        per_token = tpot * scale * np.exp(shared + law.tpot_noise * rng.standard_normal(k))
        own = rng.standard_normal(k)
        if law.step_noise is not None:  # by the place of its stream, and what its few steps vary
            own = np.tile(own[:c], rows) + law.step_noise / law.ttft_noise * own
        first = ttft * scale * np.exp(shared + law.ttft_noise * own)
        if wait:
            first += wait * scale * np.exp(law.wait_noise * rng.standard_normal(k) - law.wait_noise**2 / 2)
        lengths = rng.standard_normal(k)
        spread = _log_sd(law.osl_cv)
        lengths = np.exp(spread * lengths - spread**2 / 2) if law.heavy else 1 + law.osl_cv * lengths
        tokens = np.maximum(2.0, np.round(law.osl * lengths))
        e2e = first + per_token * (tokens - 1)
        return np.arange(c) / c * e2e[:c].mean(), first, e2e, tokens

    def _in_convoys(
        self, convoys: Convoys, c: int, rows: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """As `_alone`, of streams that run in step."""
        law, count = self.law, min(c, convoys.count)
        tpot, ttft, _ = self.medians(c)
        scale, tokens = math.exp(law.run_effect * rng.standard_normal()), law.osl
        shocks = rng.standard_normal((rows, count)) * math.sqrt(1 - law.memory**2)
        shocks[0] = rng.standard_normal(count)
        shared = law.shared_noise * lfilter([1.0], [1.0, -law.memory], shocks, axis=0)
        every, own = math.sqrt(convoys.together), math.sqrt(1 - convoys.together)
        pace = tpot * scale * np.exp(shared + law.tpot_noise * every * rng.standard_normal((rows, count)))
        wait = ttft * scale * np.exp(shared + law.ttft_noise * every * rng.standard_normal((rows, count)))
        turn = wait + pace * (tokens - 1)
        phases = rng.random(count) * turn.mean()
        # The convoys keep their distances, loosely: each convoy's turns are held to the mean of
        # all.
        clock = phases + lfilter([0.0, 1.0], [1.0, -convoys.hold], turn - turn.mean(axis=1, keepdims=True), axis=0)

        moves = rng.random((rows, c)) < convoys.leave
        moves[0] = False
        since = np.maximum.accumulate(np.where(moves, np.arange(rows)[:, None], 0), axis=0)
        member = np.take_along_axis(rng.integers(0, count, (rows, c)), since, axis=0)
        pace = np.take_along_axis(pace, member, 1) * np.exp(law.tpot_noise * own * rng.standard_normal((rows, c)))
        wait = np.take_along_axis(wait, member, 1) * np.exp(law.ttft_noise * own * rng.standard_normal((rows, c)))
        e2e = wait + pace * (tokens - 1)
        behind = np.zeros((rows, c))
        behind[1:] = (e2e - np.take_along_axis(turn, member, 1))[:-1]
        behind[1:] += np.take_along_axis(clock[1:], member[:-1], 1) - np.take_along_axis(clock[1:], member[1:], 1)
        behind = lfilter([1.0], [1.0, -convoys.hold], behind, axis=0)
        stretch = np.clip(1 - (1 - convoys.hold) * behind / e2e, 0.75, 1.33)
        starts = phases[member[0]] + turn.mean() * 0.01 * rng.random(c)
        return starts, (wait * stretch).ravel(), (e2e * stretch).ravel(), np.full(rows * c, tokens)

    def timeline(
        self, c: int, n: int, rng: np.random.Generator, seconds: float = math.inf, when: tuple[int, float] | None = None
    ) -> tuple[Floats, ...]:
        """Requests of one run in the order of sending: sent, first token, end, tokens, succeeded;
        the window; and the stream of each.

        The window ends with the n-th request, or after `seconds`. `when`: the sweep's number, and
        the run's start in seconds into it; without it the machine is steady: its speed does not
        wander, and no rare stall comes.
        """
        law = self.law
        rows = math.ceil((1.3 * n + 4 * c) / c) + 2
        if law.heavy:  # a stream of short answers must have more of them until the window ends
            rows = 2 * rows + 24
        starts, first, e2e_flat, tokens = (
            self._alone(c, rows, rng) if law.convoys is None else self._in_convoys(law.convoys, c, rows, rng)
        )
        k, e2e = rows * c, e2e_flat.reshape(rows, c)
        sent = (starts + np.vstack((np.zeros(c), np.cumsum(e2e, axis=0)[:-1]))).ravel()
        order = np.argsort(sent)
        sent, first, e2e_flat, tokens = sent[order], first[order], e2e_flat[order], tokens[order]
        open_at = int(np.searchsorted(sent, starts.max() + e2e[0].max()))
        edges = np.array([sent[open_at], sent[min(k - 1, open_at + n)]])
        times = [sent, sent + first, sent + e2e_flat, edges]
        times = self._warped(times, min(edges[1] - edges[0], seconds), rng)
        if when is not None:
            times = self._on_the_machine(times, c, rng, *when)
        ok = rng.random(k) >= law.error_rate
        start, stop = times[3]
        return (*times[:3], tokens, ok, np.array([start, min(stop, start + seconds)]), order % c)

    def _warped(self, times: list[Floats], length: float, rng: np.random.Generator) -> list[Floats]:
        """Drift and stalls hit everything in flight at once, so they stretch the axis of time
        itself.
        """
        law = self.law
        if law.drift:
            period, phase = length * law.drift_windows, rng.uniform(0, 2 * math.pi)
            reach = law.drift * period / (2 * math.pi)
            turn = 2 * math.pi / period
            times = [t - reach * (np.cos(turn * t + phase) - math.cos(phase)) for t in times]
        if law.stall:
            times = _stalled(times, law.stall_every, (0.5 * law.stall, 1.5 * law.stall), rng)
        return times

    def _on_the_machine(
        self, times: list[Floats], c: int, rng: np.random.Generator, night: int, at: float
    ) -> list[Floats]:
        """What comes over the whole machine, whatever runs on it: rare stalls, and the wander of
        its speed.
        """
        law = self.law
        if law.rare is not None:
            times = _stalled(times, self._rare_every(c), (law.rare.length, law.rare.length), rng)
        if law.wander is not None or law.episodes is not None:
            if self._night is None or self._night[0] != night:
                self._night = night, self._path([self.seed, 31, night])
            path = self._night[1]
            begun = path.work(at)
            times = [path.at(begun + t) - at for t in times]
        return times

    def _path(self, seed: list[int]) -> Path:
        """A path of the machine's speed."""
        if self.law.episodes is not None:
            return EpisodesPath(self.law.episodes, seed)
        assert self.law.wander is not None
        return Path(self.law.wander, seed)

    def _rare_every(self, c: int) -> float:
        """Seconds of work from one rare stall to the next, on average: every concurrency has the
        same share of them.
        """
        assert self.law.rare is not None
        return self.phase_seconds(c, self.law.rare.phase) / self.law.rare.share

    def trial(self, trial: Trial, seed: int, at: float | None = None) -> WindowData:
        """One window, as the summary wants it."""
        night, at = _when(seed, at)
        c, n, seconds = trial.load, trial.requests, trial.seconds or math.inf
        if seconds < math.inf:
            n = min(n, math.ceil(2 * c + seconds * 1.5 * c / self.phase_seconds(c, "e2e")))
        while True:
            rng = np.random.default_rng([self.seed, c, seed])
            sent, first, end, tokens, ok, edges, streams = self.timeline(c, n, rng, seconds, (night, at))
            if n == trial.requests or edges[1] - edges[0] >= 0.999 * seconds:
                break
            n = min(trial.requests, 2 * n)  # the machine was faster than its mean
        start, stop, epoch = float(edges[0]), float(edges[1]), 1e9 * night + at
        inside = (sent >= start) & (sent < stop)
        marks = np.linspace(start, stop, BLOCKS + 1)
        arrived = np.clip((marks - first[:, None]) / (end - first)[:, None], 0, 1) * (tokens * ok)[:, None]
        busy = np.clip(np.minimum(end[:, None], marks[1:]) - np.maximum(sent[:, None], marks[:-1]), 0, None)
        finished, _ = np.histogram(end[ok], marks)
        n = int(inside.sum())
        tokens, ok = tokens[inside], ok[inside]
        ttft, e2e = (first - sent)[inside], (end - sent)[inside]
        whole = tokens.astype(np.int64)
        return WindowData(
            deployment="d",
            shape=self.shape,
            load=trial.load,
            starts=np.array([epoch + start]),
            ends=np.array([epoch + stop]),
            sent=epoch + sent[inside],
            window=np.zeros(n, np.int64),
            ttft=np.where(ok, ttft, math.inf),
            tpot=np.where(ok, (e2e - ttft) / (tokens - 1), math.inf),
            e2e=np.where(ok, e2e, math.inf),
            ok=ok,
            silence=np.zeros(n),
            hollow=np.zeros(n, dtype=bool),
            irregular=np.full(n, math.nan),
            asked_isl=np.full(n, 512.0),
            asked_osl=tokens,
            prompt_tokens=np.full(n, 512.0),
            completion_tokens=tokens,
            cached_tokens=np.zeros(n),
            events=whole,
            reads=whole,
            text_chars=5 * whole,
            block_seconds=np.full(BLOCKS, (stop - start) / BLOCKS),
            block_output_tokens=np.diff(arrived.sum(axis=0)),
            block_input_tokens=finished * 512.0,
            block_finished=finished.astype(float),
            block_itl=_EMPTY,
            in_flight=busy.sum(axis=0) * BLOCKS / (stop - start),
            stream=streams[inside].astype(np.int64),
            health=(ClientHealth(),),
            server_identities=(None,),
            server=({},),
            ended=("requests",),
            client_failures=0,
            outcomes={"ok": int(ok.sum()), "timeout": int((~ok).sum())},
            whole_run={},
        )

    def truth(self, c: int) -> Truth:
        """From 40 runs of 1,000 requests: what a user of this deployment meets, run by run, in the
        long run.
        """
        if c not in self._truth:
            # Where a run repeats its first turn it takes many runs to see what runs may be.
            self._truth[c] = self._long(c, 40, 1000) if self.law.step_noise is None else self._long(c, 800, 50)
        return self._truth[c]

    def _long(self, c: int, runs: int, n: int) -> Truth:
        rng = np.random.default_rng([self.seed, c, 1 << 20])
        parts: list[tuple[Floats, ...]] = []
        produced = ended = lasted = 0.0
        for _ in range(runs):
            sent, first, end, tokens, ok, edges, _ = self.timeline(c, n, rng)
            inside = (sent >= edges[0]) & (sent < edges[1])
            arrived = np.clip((edges - first[:, None]) / (end - first)[:, None], 0, 1) * (tokens * ok)[:, None]
            produced += float(np.diff(arrived.sum(axis=0))[0])
            ended += float(((end >= edges[0]) & (end < edges[1]) & ok).sum())
            lasted += float(edges[1] - edges[0])
            gone = np.where(ok, 1.0, math.inf)[inside]
            parts.append(((first - sent)[inside], (end - sent)[inside], tokens[inside], gone))
        ttft, e2e, tokens, gone = (np.concatenate(part) for part in zip(*parts, strict=True))
        found: Truth = {}
        if self.law.rare is not None:
            every = self._rare_every(c)
            ttft, e2e, found["touched"] = with_rare(self.law.rare, every, ttft, e2e, rng)
            lasted *= 1 + self.law.rare.length / every
        if self.law.wander is not None or self.law.episodes is not None:
            self._many_nights = self._many_nights or self._path([self.seed, 41])
            ttft, e2e = wandering(self._many_nights, ttft, e2e, rng)
        columns = {"ttft": ttft * gone, "tpot": (e2e - ttft) / (tokens - 1) * gone, "e2e": e2e * gone}
        found |= {"output_throughput": produced / lasted, "request_throughput": ended / lasted}
        for name, values in columns.items():
            percentiles = (50, 90, 95, 99)
            at = np.quantile(values, np.array(percentiles) / 100, method="inverted_cdf")
            found |= {f"p{p}_{name}": float(value) for p, value in zip(percentiles, at, strict=True)}
            found[f"mean_{name}"] = float(values[np.isfinite(values)].mean())
        found["error_rate"] = self.law.error_rate
        if self.limits:
            within = np.ones(len(gone), bool)
            for limit in self.limits:
                if limit.of.quantity in columns:
                    within &= columns[limit.of.quantity] <= limit.promise
            found["attainment"] = float(within.mean())
            found["goodput"] = found["attainment"] * len(gone) / lasted
        return found

    def touched(self, c: int) -> float:
        """The share of requests with a rare stall in what the SLA limits."""
        return self.truth(c).get("touched", 0.0)


def _when(seed: int, at: float | None) -> tuple[int, float]:
    """The number of the sweep that a seed belongs to, and the start in seconds (by seed order when
    not given).
    """
    return seed // NIGHT, seed % NIGHT * APART if at is None else at


def _stalled(times: list[Floats], every: float, lengths: tuple[float, float], rng: np.random.Generator) -> list[Floats]:
    """The times when everything stands still now and then, for as long as drawn evenly between two
    lengths.
    """
    last = float(times[2].max())
    count = rng.poisson(last / every)
    begun = np.sort(rng.uniform(0, last, count))
    lasted = np.concatenate(([0.0], np.cumsum(rng.uniform(*lengths, count))))
    return [t + lasted[np.searchsorted(begun, t)] for t in times]


class Engine:
    """The embedded engine as a deployment, with short outputs so that a study of many stays
    affordable.
    """

    def __init__(  # noqa: PLR0913
        self,
        spec: EngineSpec,
        family: str,
        shape: Shape,
        limits: tuple[Limit, ...],
        run_effect: float,
        band: tuple[int, int] | None,
        worse: float,
        seed: int,
        wander: Wander | None,
    ) -> None:
        self.spec, self.family, self.shape, self.limits, self.seed = spec, family, shape, limits, seed
        self.run_effect, self.band, self.worse, self.wander = run_effect, band, worse, wander
        self.rare: RareStalls | None = None
        self.requests: int | None = None
        self.truth = lru_cache(maxsize=None)(self._truth)  # type: ignore[method-assign]
        self.phase_seconds = lru_cache(maxsize=None)(self._phase_seconds)
        self._night: tuple[int, Path] | None = None

    @classmethod
    def drawn(cls, family: str, seed: int) -> "Engine":
        """As `Process.drawn`."""
        rng = np.random.default_rng([seed, 77, EVERY.index(family)])
        place = round(_between(rng, 8, 100))
        isl, osl = _between(rng, 128, 1024), _between(rng, 16, 40)
        shape = Shape(Lengths.normal(round(isl), isl * 0.3), Lengths.normal(round(osl), osl * 0.3))
        if family in STEP_NOISE:
            osl = _between(rng, 48, 160)
        if family == "fixed_lengths" or family in STEP_NOISE:
            shape = Shape.of(round(isl), round(osl))
        spec = EngineSpec(
            step_base=_between(rng, 4e-3, 15e-3),
            per_decode=_between(rng, 10e-6, 80e-6),
            per_prefill_token=_between(rng, 10e-6, 60e-6),
            per_context_token=_between(rng, 10e-9, 80e-9),
            noise=STEP_NOISE.get(family, rng.uniform(0.0, 0.15)),
            max_num_seqs=place if family == "queue_capped" else 256,
            kv_tokens=round(place * (isl + osl)) if family == "cliff" else None,
            drift=rng.uniform(-0.04, 0.04) if family == "drifting" else 0.0,
            seed=seed,
            stalls=Stalls(_between(rng, 5, 60), _between(rng, 0.1, 1.0)) if family == "stalling" else None,
        )
        band = (place, max(place + 1, round(1.35 * place))) if family == "non_monotone" else None
        run_effect, worse = rng.uniform(0, 0.004 if family in STEP_NOISE else 0.04), rng.uniform(1.1, 1.8)
        wander = draw_wander(rng) if family in ("noisy", "slow_speed") else None
        server = cls(spec, family, shape, (), run_effect, band, worse, seed, wander)
        names = draw_metrics(rng)
        server.limits = draw_limits(rng, names, server.truth(1), server.truth(TOP), infeasible=family == "infeasible")
        if family == "stated_sizes":
            server.requests = int(rng.choice(STATED))
        if family == "rare_stalls":
            server.rare = draw_rare(rng, server)
            server.truth.cache_clear()  # type: ignore[attr-defined]
        return server

    def _spec(self, c: int, seed: int, *, steady: bool = False) -> EngineSpec:
        scale = math.exp(self.run_effect * np.random.default_rng([self.seed, c, seed]).standard_normal())
        slow = self.band is not None and self.band[0] <= c <= self.band[1]
        scale *= self.worse if slow else 1.0
        spec = dataclasses.replace(self.spec, time_scale=scale, seed=self.seed * 7919 + seed)
        if self.rare is None or steady:
            return spec
        # The engine counts `every` on a clock that runs on during a stall.
        stalls = Stalls((self._rare_every(c) + self.rare.length) / scale, self.rare.length / scale)
        return dataclasses.replace(spec, stalls=stalls)

    def _phase_seconds(self, c: int) -> dict[str, float]:
        """The mean length of a request until its first token, after it, and in all, without rare
        stalls.
        """
        found = virtual.closed_loop_arrays(
            self._spec(c, 9_999, steady=True), self.shape, c, requests=max(300, 4 * c), seed=49_999
        )
        first, whole = float(found.ttft.mean()), float(found.e2e.mean())
        return {"ttft": first, "tpot": whole - first, "e2e": whole}

    def _rare_every(self, c: int) -> float:
        """As `Process._rare_every`."""
        assert self.rare is not None
        return self.phase_seconds(c)[self.rare.phase] / self.rare.share

    def trial(self, trial: Trial, seed: int, at: float | None = None) -> WindowData:
        """One window, through records and all."""
        (night, at), c = _when(seed, at), trial.load
        records, measurement = self._run(dataclasses.replace(trial, seed=seed), self._spec(c, seed))
        if self.wander is not None:
            if self._night is None or self._night[0] != night:
                self._night = night, Path(self.wander, [self.seed, 31, night])
            path = self._night[1]
            begun = path.work(at)
            records = [_moved(record, path, begun, at) for record in records]
            edges = Window(
                *(path.at(begun + np.array([measurement.window.start, measurement.window.end])) - at).tolist()
            )
            measurement = dataclasses.replace(measurement, window=edges)
        return window_data(dataclasses.replace(measurement, epoch=1e9 * night + at), records)

    def _run(self, trial: Trial, spec: EngineSpec) -> tuple[list[Record], Measurement]:
        """The trial; equal lengths all start at once, or the engine alone would not fall into
        lockstep.
        """
        if self.family != "fixed_lengths":
            return virtual.virtual_trial(trial, spec)
        records, edges = closed_loop(
            spec,
            trial.shape,
            trial.load,
            requests=trial.requests,
            times=virtual.WindowTimes(warmup=trial.warmup, seconds=trial.seconds or math.inf),
            stagger=False,
            seed=trial.seed,
        )
        return records, Measurement(trial, 0.0, edges, "requests", server_identity="virtual")

    def _truth(self, c: int) -> Truth:
        parts, produced, lasted = [], 0.0, 0.0
        runs, requests = (10, 1000) if self.family not in STEP_NOISE else (40, max(60, 2 * c))
        for run in range(runs):
            found = virtual.closed_loop_arrays(
                self._spec(c, 10_000 + run, steady=True),
                self.shape,
                c,
                requests=requests,
                seed=50_000 + run,
                stagger=self.family != "fixed_lengths",
            )
            parts.append((found.ttft, found.e2e, found.tokens))
            produced += found.output_tokens
            lasted += found.window.length
        ttft, e2e, tokens = (np.concatenate(part) for part in zip(*parts, strict=True))
        out: Truth = {}
        rng = np.random.default_rng([self.seed, c, 1 << 20])
        if self.rare is not None:
            ttft, e2e, out["touched"] = with_rare(self.rare, self._rare_every(c), ttft, e2e, rng)
            lasted *= 1 + self.rare.length / self._rare_every(c)
        if self.wander is not None:
            ttft, e2e = wandering(Path(self.wander, [self.seed, 41]), ttft, e2e, rng)
        out |= {"output_throughput": produced / lasted, "request_throughput": len(e2e) / lasted}
        with np.errstate(divide="ignore", invalid="ignore"):
            tpot = np.where(tokens > 1, (e2e - ttft) / (tokens - 1), np.nan)
        for name, values in (("ttft", ttft), ("tpot", tpot), ("e2e", e2e)):
            known = values[~np.isnan(values)]
            out[f"mean_{name}"] = float(known.mean())
            for p in (50, 95, 99):
                out[f"p{p}_{name}"] = float(np.quantile(known, p / 100, method="inverted_cdf"))
        return out

    def touched(self, c: int) -> float:
        """As `Process.touched`."""
        return self.truth(c).get("touched", 0.0)


def _moved(record: Record, path: Path, begun: float, at: float) -> Record:
    """A record of a steady machine as the clock of a wandering one has it."""

    def moved(*times: float | None) -> list[float | None]:
        known = np.array([begun if t is None else begun + t for t in times])
        return [None if t is None else float(new) - at for t, new in zip(times, path.at(known), strict=True)]

    sent, end, first, visible, last = moved(record.sent, record.end, record.first, record.visible, record.last)
    gaps = record.gaps
    if record.first is not None and gaps:
        marks = begun + record.first + np.concatenate(([0.0], np.cumsum(gaps) * 1e-6))
        gaps = tuple(np.rint(np.diff(path.at(marks)) * 1e6).astype(np.int64).tolist())
    assert sent is not None
    assert end is not None
    return dataclasses.replace(record, sent=sent, end=end, first=first, visible=visible, last=last, gaps=gaps)


def make_trial(
    server: Server, concurrency: int, phase: Phase, repeat: int, requests: int, seconds: float | None = None
) -> Trial:
    """A trial as the sweep would plan it."""
    return Trial("d", server.shape, concurrency, repeat, phase, requests, 1, 0.0, 0.0, 1e9, "calibration", seconds)
