"""Samples and histories made up from a law of latency, without a server: quick, seeded, and clean
of flags."""

import math

import numpy as np

from frontier.core.model.loads import Concurrency, Load
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import ClientHealth, Phase, Trial
from frontier.core.stats import intervals
from frontier.core.window.histogram import LogHistogram
from frontier.core.window.window import BLOCKS, WindowData

SHAPE = Shape.of(512, 100)


def bounds(x, p, confidence=0.95):
    """The one-sided lower and upper bound of the percentile p, each at `confidence`; x in the order
    of sending.
    """
    if not len(x):
        return -math.inf, math.inf
    effective, ordered = intervals.n_eff(x, p), np.sort(x)
    low = intervals.lower_rank(p, len(x), effective, confidence)
    high = intervals.upper_rank(p, len(x), effective, confidence)
    return -math.inf if low is None else ordered[low - 1], math.inf if high is None else ordered[high - 1]


def sample(concurrency, ttft, tpot, *, start=0.0, ok=None, shape=SHAPE, deployment="d"):
    """One window in which request i of a closed loop of `concurrency` had ttft[i] and tpot[i], in
    seconds.
    """
    ttft, tpot = np.asarray(ttft, float), np.asarray(tpot, float)
    n, osl = len(ttft), shape.osl.low
    ok = np.ones(n, bool) if ok is None else np.asarray(ok)
    e2e = ttft + tpot * (osl - 1)
    length = n * float(e2e.mean()) / concurrency
    sent = start + (np.arange(n) + 0.5) * length / n
    blocks = np.minimum((np.arange(n) * BLOCKS) // n, BLOCKS - 1)
    finished = np.bincount(blocks[ok], minlength=BLOCKS).astype(float)
    finished = np.full(BLOCKS, finished.mean()) * (1 + 0.005 * np.cos(np.arange(BLOCKS) * 2.4))
    whole = {"events": np.full(n, osl), "reads": np.full(n, osl), "text_chars": np.full(n, 5 * osl)}
    return WindowData(
        deployment=deployment,
        shape=shape,
        load=concurrency,
        starts=np.array([start]),
        ends=np.array([start + length]),
        sent=sent,
        window=np.zeros(n, np.int64),
        ttft=np.where(ok, ttft, math.inf),
        tpot=np.where(ok, tpot, math.inf),
        e2e=np.where(ok, e2e, math.inf),
        ok=ok,
        silence=np.zeros(n),
        hollow=np.zeros(n, bool),
        irregular=np.full(n, math.nan),
        asked_isl=np.full(n, float(shape.isl.low)),
        asked_osl=np.full(n, float(osl)),
        prompt_tokens=np.full(n, float(shape.isl.low)),
        completion_tokens=np.full(n, float(osl)),
        cached_tokens=np.zeros(n),
        block_seconds=np.full(BLOCKS, length / BLOCKS),
        block_output_tokens=finished * osl,
        block_input_tokens=finished * shape.isl.low,
        block_finished=finished,
        block_itl=tuple(LogHistogram() for _ in range(BLOCKS)),
        in_flight=np.full(BLOCKS, float(concurrency)),
        health=(ClientHealth(),),
        server_identities=(None,),
        server=({},),
        ended=("requests",),
        client_failures=0,
        outcomes={"ok": int(ok.sum()), "timeout": int((~ok).sum())},
        whole_run={},
        **whole,
    )


class Server:
    """A law: `ttft(c)` and `tpot(c)` are the medians; every request varies by lognormal(sigma)."""

    def __init__(self, ttft, tpot=lambda c: 0.01 * (1 + c / 64), *, sigma=0.2, seed=1, errors=lambda c: 0.0):
        self.ttft, self.tpot, self.sigma, self.errors = ttft, tpot, sigma, errors
        self.rng = np.random.default_rng(seed)
        self.clock = 0.0

    def true_p99_ttft(self, c):
        return self.ttft(c) * math.exp(2.3263 * self.sigma)

    def run(self, trial):
        """The sample of a trial; time goes on between trials."""
        noise = np.exp(self.sigma * self.rng.standard_normal((2, trial.requests)))
        ok = self.rng.random(trial.requests) >= self.errors(trial.load)
        c = trial.load
        found = sample(c, self.ttft(c) * noise[0], self.tpot(c) * noise[1] ** 0.2, start=self.clock, ok=ok)
        self.clock = float(found.ends[0]) + 60
        return found


def trial(concurrency, phase=Phase.GRID, repeat=1, requests=300, shape=SHAPE):
    return Trial("d", shape, concurrency, repeat, phase, requests, 1, 0.0, 0.0, 1e9, "f")


def grid(server, concurrencies=(1, 2, 4, 8, 16, 32, 64, 128), requests=300, repeats=1):
    """The history of a sweep's grid."""
    trials = [trial(c, repeat=r, requests=requests) for r in range(1, repeats + 1) for c in concurrencies]
    return [(t, server.run(t)) for t in trials]


def loads(*numbers: int) -> tuple[Load, ...]:
    """Requests in flight as loads."""
    return tuple(map(Concurrency, numbers))
