"""The search over load against queues whose truth is known: what it names keeps the SLA, and it is not far below."""

import dataclasses
import heapq
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frontier.decide.load_search import (
    LoadAsk,
    LoadDone,
    LoadPolicy,
    LoadTrial,
    next_ask,
)
from frontier.model import ClientHealth, Limit, Shape
from frontier.stats.histogram import LogHistogram
from frontier.stats.window import BLOCKS, WindowData

Floats = NDArray[np.float64]
_EMPTY = tuple(LogHistogram() for _ in range(BLOCKS))
TOKENS = 32
FIRST = 0.2
"""Share of a service after which the first token comes."""


@dataclass(frozen=True)
class Queue:
    """Poisson arrivals at `places` places, each a request at a time; what arrives when all are taken waits its turn.

    The capacity is `places / service` requests per second. `cv` is that of the service time: 1 is exponential (M/M/c),
    anything else lognormal.
    """

    places: int
    service: float
    cv: float
    limits: tuple[Limit, ...]
    errors: float = 0.0

    @property
    def top(self) -> float:
        return self.places / self.service

    def policy(self) -> LoadPolicy:
        return LoadPolicy(0.75 * self.top, self.top, self.places, self.service, warmup=2 * self.service)

    def services(self, n: int, rng: np.random.Generator) -> Floats:
        if self.cv == 1:
            return rng.exponential(self.service, n)
        sigma = math.sqrt(math.log(1 + self.cv**2))
        return self.service * np.exp(sigma * rng.standard_normal(n) - sigma**2 / 2)

    def run(self, load: float, n: int, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Arrivals, waits and services of n requests that found the queue empty at first."""
        due = np.cumsum(rng.exponential(1 / load, n))
        services = self.services(n, rng)
        free = [0.0] * self.places
        waits = np.empty(n)
        for i, (at, lasts) in enumerate(zip(due.tolist(), services.tolist(), strict=True)):
            start = max(at, free[0])
            heapq.heapreplace(free, start + lasts)
            waits[i] = start - at
        return due, waits, services

    def trial(self, ask: LoadAsk, number: int) -> LoadTrial:
        """The asked trial, ended early when clearly more arrives than is served."""
        rng = np.random.default_rng([number, round(1e6 * self.cv), self.places])
        due, waits, services = self.run(ask.load, ask.requests + math.ceil(1.5 * ask.warmup * ask.load) + 10, rng)
        first = int(np.searchsorted(due, ask.warmup))
        inside = slice(first, first + ask.requests)
        due, waits, services = due[inside], waits[inside], services[inside]
        over = bool((waits > 15 / (self.top - ask.load)).any())
        data = self.window(due, waits, services, rng.random(len(due)) >= self.errors, 1e6 * number)
        return LoadTrial(ask.load, ask.phase, ask.requests, data, over)

    def window(self, due: Floats, waits: Floats, services: Floats, ok: NDArray[np.bool_], epoch: float) -> WindowData:
        n, start, stop = len(due), float(due[0]), float(due[-1]) + 1e-9
        marks = np.linspace(start, stop, BLOCKS + 1)
        finished, _ = np.histogram((due + waits + services)[ok], marks)
        ttft = waits + FIRST * self.service
        e2e = ttft + services
        tokens = np.full(n, float(TOKENS))
        return WindowData(
            deployment="d", shape=Shape.of(256, TOKENS), concurrency=self.places,
            starts=np.array([epoch + start]), ends=np.array([epoch + stop]), sent=epoch + due,
            window=np.zeros(n, np.int64), ttft=np.where(ok, ttft, math.inf),
            tpot=np.where(ok, services / (TOKENS - 1), math.inf), e2e=np.where(ok, e2e, math.inf), ok=ok,
            silence=np.zeros(n), hollow=np.zeros(n, dtype=bool), irregular=np.full(n, math.nan),
            asked_isl=np.full(n, 256.0), asked_osl=tokens, prompt_tokens=np.full(n, 256.0), completion_tokens=tokens,
            cached_tokens=np.zeros(n), events=tokens.astype(np.int64), reads=tokens.astype(np.int64),
            text_chars=5 * tokens.astype(np.int64), block_seconds=np.full(BLOCKS, (stop - start) / BLOCKS),
            block_output_tokens=finished * float(TOKENS), block_input_tokens=finished * 256.0,
            block_finished=finished.astype(float), block_itl=_EMPTY, in_flight=np.full(BLOCKS, 1.0),
            health=(ClientHealth(),), server_identities=(None,), server=({},), ended=("requests",), client_failures=0,
            outcomes={"ok": int(ok.sum()), "timeout": int((~ok).sum())}, whole_run={}, open_loop=True,
        )  # fmt: skip

    def breaks(self, load: float) -> bool:
        """Whether the SLA is truly broken at a load: by Erlang's formula for M/M/c, else by a very long run."""
        if load >= self.top:
            return True
        if self.cv == 1 and all(limit.metric.endswith("_ttft") for limit in self.limits) and not self.errors:
            return any(self._beyond(load, limit) > 1 - (limit.of.p or 0) for limit in self.limits)
        rng = np.random.default_rng([7, self.places])
        _, waits, services = self.run(load, 400_000, rng)
        waits, services = waits[20_000:], services[20_000:]
        ttft = waits + FIRST * self.service
        values = {"ttft": ttft, "e2e": ttft + services, "tpot": services / (TOKENS - 1)}
        gone = rng.random(len(ttft)) < self.errors
        return any(
            float(np.quantile(np.where(gone, math.inf, values[limit.of.quantity or ""]), limit.of.p or 0.5,
                              method="inverted_cdf")) > limit.promise
            for limit in self.limits
        )  # fmt: skip

    def _beyond(self, load: float, limit: Limit) -> float:
        """P(TTFT > limit) of M/M/c: Erlang's C times the exponential tail of the wait."""
        room = limit.promise - FIRST * self.service
        return 1.0 if room < 0 else erlang_c(self.places, load * self.service) * math.exp(-(self.top - load) * room)

    def best(self) -> float | None:
        """The highest load that keeps the SLA, within half a percent."""
        low, high = 0.0, self.top
        while high - low > 0.005 * self.top:
            middle = (low + high) / 2
            low, high = (low, middle) if self.breaks(middle) else (middle, high)
        return low or None


def erlang_c(places: int, offered: float) -> float:
    """The share of arrivals that wait in M/M/c (by Erlang B's recursion)."""
    blocked = 1.0
    for k in range(1, places + 1):
        blocked = offered * blocked / (k + offered * blocked)
    return blocked / (1 - offered / places * (1 - blocked))


def search(queue: Queue, seed: int = 0) -> tuple[LoadDone, list[LoadTrial]]:
    history: list[LoadTrial] = []
    while isinstance(ask := next_ask(queue.policy(), queue.limits, history), LoadAsk):
        history.append(queue.trial(ask, 1000 * seed + len(history)))
        assert len(history) < 60
    return ask, history


def drawn(seed: int) -> Queue:
    """A queue of any size, its limit drawn from what an idle server gives to what one at 97 % gives."""
    rng = np.random.default_rng([seed, 13])
    places = round(math.exp(rng.uniform(math.log(4), math.log(96))))
    cv = 1.0 if seed % 2 else float(rng.uniform(0.1, 1.5))
    service = float(math.exp(rng.uniform(math.log(0.2), math.log(8))))
    p = 0.99 if rng.random() < 0.6 else 0.95
    name = f"p{round(100 * p)}_{'ttft' if seed % 2 or rng.random() < 0.5 else 'e2e'}"
    bare = Queue(places, service, cv, ())
    at = float(rng.uniform(0.4, 0.97)) * bare.top
    _, waits, services = bare.run(at, 100_000, rng)
    alone = FIRST * service + (services if name.endswith("e2e") else 0.0)
    promise = max(float(np.quantile((waits + alone)[2_000:], p)), 1.05 * float(np.quantile(alone, p)))
    return dataclasses.replace(bare, limits=(Limit(name, promise),), errors=0.001 if seed % 7 == 0 else 0.0)
