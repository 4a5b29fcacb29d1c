"""The search over rates of a sweep: on deployments of the simulated engine in virtual time, whose truth is known."""

import dataclasses
import random
from dataclasses import dataclass

from frontier.decide import search
from frontier.decide.search import Ask, Done, History, SearchPolicy
from frontier.model import POISSON, Arrivals, Lengths, Limit, Rate, Shape, Trial
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import closed_loop_arrays, truth, virtual_trial
from frontier.stats.window import WindowData, window_data

MOST_TRIALS = 150


@dataclass(frozen=True)
class Deployment:
    """An engine, what it is sent, one limit, and how many requests per second it serves at most."""

    spec: EngineSpec
    shape: Shape
    limit: Limit
    top: float

    @classmethod
    def of(cls, seed: int) -> "Deployment | None":
        """A random one; None where even one user at a time is close to the limit or beyond it."""
        rng = random.Random(f"rates/{seed}")
        spec = EngineSpec(
            step_base=rng.uniform(4e-3, 20e-3), per_decode=rng.uniform(20e-6, 500e-6),
            noise=rng.choice([0.0, 0.1, 0.3]), per_prefill_token=rng.uniform(10e-6, 60e-6), max_num_seqs=rng.choice([4, 8, 16, 32]), seed=seed,
        )  # fmt: skip
        isl, osl = rng.randint(32, 200), rng.randint(4, 12)
        arrivals = rng.choice([POISSON, POISSON, POISSON, Arrivals(rng.uniform(0.5, 2.0))])
        shape = Shape(Lengths.uniform(isl, 2 * isl), Lengths.uniform(osl, 2 * osl), arrivals=arrivals)
        loop = closed_loop_arrays(spec, dataclasses.replace(shape, arrivals=None), spec.max_num_seqs, requests=2_000)
        top = len(loop.sent) / loop.window.length
        name = f"p{rng.choice([90, 90, 95])}_{rng.choice(['ttft', 'e2e', 'tpot'])}"
        promise = truth(spec, shape, Rate.of(rng.uniform(0.4, 0.97) * top), name, requests=6_000)
        alone = truth(spec, shape, Rate.of(0.05 * top), name, requests=1_000)
        return cls(spec, shape, Limit(name, promise), top) if promise > 1.05 * alone else None

    def value(self, rate: Rate, requests: int) -> float:
        """The limited metric at a rate, of a long run that the search has not seen."""
        other = dataclasses.replace(self.spec, seed=self.spec.seed + 7_000)
        return truth(other, self.shape, rate, self.limit.metric, requests=requests)


def searched(deployment: Deployment, history: History = ()) -> tuple[Done, list[Ask], History]:
    """The search to its end: the answer, what it asked for, and what it measured."""
    policy, tiers = SearchPolicy((Rate.of(1.0),)), [("", [deployment.limit])]
    finished, asks = list(history), []
    while isinstance(ask := search.next_ask(policy, deployment.shape, tiers, finished), Ask):
        asks.append(ask)
        assert len(finished) < MOST_TRIALS
        finished.append(measured(deployment, ask, len(finished)))
    return ask, asks, finished


def measured(deployment: Deployment, ask: Ask, number: int) -> tuple[Trial, WindowData]:
    """The trial that was asked for, in virtual time."""
    assert isinstance(ask.concurrency, Rate)
    trial = Trial(
        "d", deployment.shape, ask.concurrency, number, ask.phase, ask.requests, 1_000 * deployment.spec.seed + number,
        warmup=ask.warmup, min_time=0.0, max_time=1e9, fingerprint="", rate=ask.concurrency.per_second,
    )  # fmt: skip
    records, measurement = virtual_trial(trial, deployment.spec)
    return trial, window_data(measurement, records)


@dataclass(frozen=True)
class Studied:
    """What the search found of one deployment: the rate as a share of the top, and whether it breaks the limit."""

    share: float | None
    breaks: bool
    beyond: float
    requests: int
    trials: int


def studied(deployment: Deployment, truth_requests: int = 20_000) -> Studied:
    """The search of one deployment, held against the truth."""
    done, asks, _ = searched(deployment)
    requests = sum(ask.requests for ask in asks)
    if done.proven is None:
        return Studied(None, False, 0.0, requests, len(asks))
    assert isinstance(done.proven, Rate)
    beyond = deployment.value(done.proven, truth_requests) / deployment.limit.promise - 1
    return Studied(done.proven.per_second / deployment.top, beyond > 0, beyond, requests, len(asks))
