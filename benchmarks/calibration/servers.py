"""Simulated deployments drawn at random, with a truth to any precision, in virtual time.

Two kinds. `Process` draws latencies from a law of concurrency with dependence between requests, drift, stalls and
differences between runs: a thousand of them can be swept in minutes. `Engine` is the embedded scheduler itself
(frontier.simulator.virtual), a hundred times slower, as a check that the process is not kinder than an engine.
"""

import dataclasses
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from frontier.model import ClientHealth, Lengths, Limit, Phase, Shape, Trial
from frontier.simulator import virtual
from frontier.simulator.spec import EngineSpec, Stalls
from frontier.stats import window
from frontier.stats.histogram import LogHistogram
from frontier.stats.window import BLOCKS, WindowData

Floats = NDArray[np.float64]
Truth = dict[str, float]
TOP = 128
FAMILIES = ("smooth", "cliff", "queue_capped", "drifting", "stalling", "non_monotone", "infeasible")
_EMPTY = tuple(LogHistogram() for _ in range(BLOCKS))


class Server(Protocol):
    """A deployment under one SLA. `band` are concurrencies that are slower than higher ones, if any."""

    family: str
    shape: Shape
    limits: tuple[Limit, ...]
    band: tuple[int, int] | None

    def trial(self, trial: Trial, seed: int) -> WindowData:
        """One window of it."""
        ...

    def truth(self, concurrency: int) -> Truth:
        """The metrics of the limits and the throughput in the long run, over many runs."""
        ...


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


def _between(rng: np.random.Generator, low: float, high: float) -> float:
    """Evenly in the logarithm."""
    return float(math.exp(rng.uniform(math.log(low), math.log(high))))


def draw_law(rng: np.random.Generator, family: str) -> Law:
    """A deployment of the family, every number drawn from a wide range; nothing depends on what the rules do."""
    law = Law(
        tpot=_between(rng, 4e-3, 20e-3), tpot_half=_between(rng, 8, 128), tpot_power=rng.uniform(0.5, 1.3),
        ttft=_between(rng, 0.02, 0.3), ttft_half=_between(rng, 4, 64), ttft_power=rng.uniform(0.5, 1.5),
        osl=float(rng.choice([64, 128, 256])), osl_cv=rng.uniform(0.0, 0.5),
        tpot_noise=rng.uniform(0.02, 0.15), ttft_noise=rng.uniform(0.1, 0.6),
        shared_noise=rng.uniform(0.0, 0.15), memory=rng.uniform(0.0, 0.97), run_effect=rng.uniform(0.0, 0.04),
        error_rate=rng.uniform(0, 0.004) if rng.random() < 0.2 else 0.0,
    )  # fmt: skip
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
    return law


def draw_metrics(rng: np.random.Generator) -> tuple[str, ...]:
    """What the SLA limits: one latency, or TTFT and TPOT together; their p99 three times in four, else their p95."""
    tail = "p99" if rng.random() < 0.75 else "p95"
    which = rng.choice(4, p=[0.3, 0.2, 0.2, 0.3])
    return tuple(f"{tail}_{name}" for name in (("ttft",), ("tpot",), ("e2e",), ("ttft", "tpot"))[which])


def draw_limits(
    rng: np.random.Generator, names: tuple[str, ...], one: Truth, many: Truth, *, infeasible: bool
) -> tuple[Limit, ...]:
    """Limits that know nothing of the deployment but its range: anything from what one user meets to what TOP users do.

    Evenly in the logarithm, and up to 20 % above, where nothing binds; below what one user meets when infeasible.
    """
    if infeasible:
        return tuple(Limit(name, one[name] * rng.uniform(0.3, 0.95)) for name in names)
    return tuple(Limit(name, _between(rng, one[name], max(one[name], 1.2 * many[name]))) for name in names)


class Process:
    """A `Law` under an SLA drawn with it."""

    def __init__(self, law: Law, family: str, limits: tuple[Limit, ...], seed: int) -> None:
        self.law, self.family, self.limits, self.seed = law, family, limits, seed
        self.shape = Shape.of(512, round(law.osl))
        self.band = law.band
        self._truth: dict[int, Truth] = {}

    @classmethod
    def drawn(cls, family: str, seed: int) -> "Process":
        """The deployment number `seed` of its family, with limits where the SLA may bind anywhere or nowhere."""
        rng = np.random.default_rng([seed, FAMILIES.index(family)])
        bare = cls(draw_law(rng, family), family, (), seed)
        names = draw_metrics(rng)
        limits = draw_limits(rng, names, bare.truth(1), bare.truth(TOP), infeasible=family == "infeasible")
        return cls(bare.law, family, limits, seed)

    def medians(self, c: int) -> tuple[float, float, float]:
        """TPOT, TTFT and the mean wait for a seat."""
        law, seated = self.law, min(c, self.law.seats)
        slow = seated > law.edge or (law.band is not None and law.band[0] <= c <= law.band[1])
        tpot = law.tpot * (1 + seated / law.tpot_half) ** law.tpot_power * (law.edge_tpot if slow else 1.0)
        ttft = law.ttft * (1 + seated / law.ttft_half) ** law.ttft_power * (law.edge_ttft if slow else 1.0)
        return tpot, ttft, (c - seated) * (ttft + tpot * law.osl) / seated

    def timeline(self, c: int, n: int, rng: np.random.Generator) -> tuple[Floats, ...]:
        """Requests of one run in the order of sending: sent, first token, end, tokens, succeeded; and the window."""
        law = self.law
        rows = math.ceil((1.3 * n + 4 * c) / c) + 2
        k = rows * c
        shocks = rng.standard_normal(k) * math.sqrt(1 - law.memory**2)
        shocks[0] = rng.standard_normal()
        shared = law.shared_noise * lfilter([1.0], [1.0, -law.memory], shocks)
        tpot, ttft, wait = self.medians(c)
        # One seed's runs differ by a scale and the phase of the drift; everything else is noise within the run.
        scale = math.exp(law.run_effect * rng.standard_normal())
        per_token = tpot * scale * np.exp(shared + law.tpot_noise * rng.standard_normal(k))
        first = ttft * scale * np.exp(shared + law.ttft_noise * rng.standard_normal(k))
        if wait:
            first += wait * scale * np.exp(law.wait_noise * rng.standard_normal(k) - law.wait_noise**2 / 2)
        tokens = np.maximum(2.0, np.round(law.osl * (1 + law.osl_cv * rng.standard_normal(k))))
        e2e = (first + per_token * (tokens - 1)).reshape(rows, c)
        starts = np.arange(c) / c * e2e[0].mean()
        sent = (starts + np.vstack((np.zeros(c), np.cumsum(e2e, axis=0)[:-1]))).ravel()
        order = np.argsort(sent)
        sent, first, e2e_flat, tokens = sent[order], first[order], e2e.ravel()[order], tokens[order]
        open_at = int(np.searchsorted(sent, starts.max() + e2e[0].max()))
        edges = np.array([sent[open_at], sent[min(k - 1, open_at + n)]])
        times = [sent, sent + first, sent + e2e_flat, edges]
        times = self._warped(times, edges[1] - edges[0], rng)
        ok = rng.random(k) >= law.error_rate
        return (*times[:3], tokens, ok, times[3])

    def _warped(self, times: list[Floats], length: float, rng: np.random.Generator) -> list[Floats]:
        """Drift and stalls hit everything in flight at once, so they stretch the axis of time itself."""
        law = self.law
        if law.drift:
            period, phase = length * law.drift_windows, rng.uniform(0, 2 * math.pi)
            reach = law.drift * period / (2 * math.pi)
            turn = 2 * math.pi / period
            times = [t - reach * (np.cos(turn * t + phase) - math.cos(phase)) for t in times]
        if law.stall:
            last = float(times[2].max())
            count = rng.poisson(last / law.stall_every)
            at = np.sort(rng.uniform(0, last, count))
            lasted = np.concatenate(([0.0], np.cumsum(law.stall * rng.uniform(0.5, 1.5, count))))
            times = [t + lasted[np.searchsorted(at, t)] for t in times]
        return times

    def trial(self, trial: Trial, seed: int) -> WindowData:
        """One window, as the summary wants it."""
        rng = np.random.default_rng([self.seed, trial.concurrency, seed])
        sent, first, end, tokens, ok, edges = self.timeline(trial.concurrency, trial.requests, rng)
        start, stop = float(edges[0]), float(edges[1])
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
            deployment="d", shape=self.shape, concurrency=trial.concurrency,
            starts=np.array([start + 1e6 * seed]), ends=np.array([stop + 1e6 * seed]), sent=sent[inside] + 1e6 * seed,
            window=np.zeros(n, np.int64), ttft=np.where(ok, ttft, math.inf),
            tpot=np.where(ok, (e2e - ttft) / (tokens - 1), math.inf), e2e=np.where(ok, e2e, math.inf), ok=ok,
            silence=np.zeros(n), hollow=np.zeros(n, dtype=bool), irregular=np.full(n, math.nan),
            asked_isl=np.full(n, 512.0), asked_osl=tokens, prompt_tokens=np.full(n, 512.0), completion_tokens=tokens,
            cached_tokens=np.zeros(n), events=whole, reads=whole, text_chars=5 * whole,
            block_seconds=np.full(BLOCKS, (stop - start) / BLOCKS), block_output_tokens=np.diff(arrived.sum(axis=0)),
            block_input_tokens=finished * 512.0, block_finished=finished.astype(float), block_itl=_EMPTY,
            in_flight=busy.sum(axis=0) * BLOCKS / (stop - start), health=(ClientHealth(),), server_identities=(None,),
            server=({},), ended=("requests",), client_failures=0,
            outcomes={"ok": int(ok.sum()), "timeout": int((~ok).sum())}, whole_run={},
        )  # fmt: skip

    def truth(self, c: int) -> Truth:
        """From 40 runs of 1,000 requests: what a user of this deployment meets, run by run, in the long run."""
        if c not in self._truth:
            self._truth[c] = self._long(c, 40, 1000)
        return self._truth[c]

    def _long(self, c: int, runs: int, n: int) -> Truth:
        rng = np.random.default_rng([self.seed, c, 1 << 20])
        parts: list[tuple[Floats, ...]] = []
        produced = ended = lasted = 0.0
        for _ in range(runs):
            sent, first, end, tokens, ok, edges = self.timeline(c, n, rng)
            inside = (sent >= edges[0]) & (sent < edges[1])
            arrived = np.clip((edges - first[:, None]) / (end - first)[:, None], 0, 1) * (tokens * ok)[:, None]
            produced += float(np.diff(arrived.sum(axis=0))[0])
            ended += float(((end >= edges[0]) & (end < edges[1]) & ok).sum())
            lasted += float(edges[1] - edges[0])
            gone = np.where(ok, 1.0, math.inf)[inside]
            ttft, e2e = (first - sent)[inside], (end - sent)[inside]
            parts.append((ttft * gone, (e2e - ttft) / (tokens[inside] - 1) * gone, e2e * gone))
        found = {"output_throughput": produced / lasted, "request_throughput": ended / lasted}
        for name, values in zip(("ttft", "tpot", "e2e"), map(np.concatenate, zip(*parts, strict=True)), strict=True):
            for p in (50, 90, 95, 99):
                found[f"p{p}_{name}"] = float(np.quantile(values, p / 100, method="inverted_cdf"))
            found[f"mean_{name}"] = float(values[np.isfinite(values)].mean())
        found["error_rate"] = self.law.error_rate
        if self.limits:
            found["attainment"] = self._attained(parts)
            found["goodput"] = found["attainment"] * sum(len(part[0]) for part in parts) / lasted
        return found

    def _attained(self, parts: list[tuple[Floats, ...]]) -> float:
        columns = dict(zip(("ttft", "tpot", "e2e"), map(np.concatenate, zip(*parts, strict=True)), strict=True))
        within = np.ones(len(columns["ttft"]), bool)
        for limit in self.limits:
            within &= columns[limit.metric.split("_")[1]] <= limit.promise
        return float(within.mean())


class Engine:
    """The embedded engine as a deployment, with short outputs so that a study of many stays affordable."""

    def __init__(self, spec: EngineSpec, family: str, shape: Shape, limits: tuple[Limit, ...], run_effect: float,
                 band: tuple[int, int] | None, worse: float, seed: int) -> None:  # fmt: skip
        self.spec, self.family, self.shape, self.limits, self.seed = spec, family, shape, limits, seed
        self.run_effect, self.band, self.worse = run_effect, band, worse
        self.truth = lru_cache(maxsize=None)(self._truth)  # type: ignore[method-assign]

    @classmethod
    def drawn(cls, family: str, seed: int) -> "Engine":
        """As `Process.drawn`."""
        rng = np.random.default_rng([seed, 77, FAMILIES.index(family)])
        place = round(_between(rng, 8, 100))
        isl, osl = _between(rng, 128, 1024), _between(rng, 16, 40)
        shape = Shape(Lengths.normal(round(isl), isl * 0.3), Lengths.normal(round(osl), osl * 0.3))
        spec = EngineSpec(
            step_base=_between(rng, 4e-3, 15e-3), per_decode=_between(rng, 10e-6, 80e-6),
            per_prefill_token=_between(rng, 10e-6, 60e-6), per_context_token=_between(rng, 10e-9, 80e-9),
            noise=rng.uniform(0.0, 0.15), max_num_seqs=place if family == "queue_capped" else 256,
            kv_tokens=round(place * (isl + osl)) if family == "cliff" else None,
            drift=rng.uniform(-0.04, 0.04) if family == "drifting" else 0.0, seed=seed,
            stalls=Stalls(_between(rng, 5, 60), _between(rng, 0.1, 1.0)) if family == "stalling" else None,
        )  # fmt: skip
        band = (place, max(place + 1, round(1.35 * place))) if family == "non_monotone" else None
        bare = cls(spec, family, shape, (), rng.uniform(0, 0.04), band, rng.uniform(1.1, 1.8), seed)
        names = draw_metrics(rng)
        bare.limits = draw_limits(rng, names, bare.truth(1), bare.truth(TOP), infeasible=family == "infeasible")
        return bare

    def _spec(self, c: int, seed: int) -> EngineSpec:
        scale = math.exp(self.run_effect * np.random.default_rng([self.seed, c, seed]).standard_normal())
        slow = self.band is not None and self.band[0] <= c <= self.band[1]
        return dataclasses.replace(
            self.spec, time_scale=scale * (self.worse if slow else 1.0), seed=self.seed * 7919 + seed
        )

    def trial(self, trial: Trial, seed: int) -> WindowData:
        """One window, through records and all."""
        records, measurement = virtual.virtual_trial(
            dataclasses.replace(trial, seed=seed), self._spec(trial.concurrency, seed)
        )
        return window.window_data(dataclasses.replace(measurement, epoch=1e6 * seed), records)

    def _truth(self, c: int) -> Truth:
        parts, produced, lasted = [], 0.0, 0.0
        for run in range(10):
            found = virtual.closed_loop_arrays(
                self._spec(c, 10_000 + run), self.shape, c, requests=1000, seed=50_000 + run
            )
            parts.append((found.ttft, found.tpot, found.e2e))
            produced += found.output_tokens
            lasted += found.window.length
        out = {"output_throughput": produced / lasted, "request_throughput": sum(len(p[0]) for p in parts) / lasted}
        for name, values in zip(("ttft", "tpot", "e2e"), map(np.concatenate, zip(*parts, strict=True)), strict=True):
            known = values[~np.isnan(values)]
            for p in (95, 99):
                out[f"p{p}_{name}"] = float(np.quantile(known, p / 100, method="inverted_cdf"))
        return out


def make_trial(server: Server, concurrency: int, phase: Phase, repeat: int, requests: int) -> Trial:
    """A trial as the sweep would plan it."""
    return Trial("d", server.shape, concurrency, repeat, phase, requests, 1, 0.0, 0.0, 1e9, "calibration")
