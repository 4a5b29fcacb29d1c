"""The search over rates of sessions: on deployments of the simulated engine in virtual time, whose
truth is known."""

import dataclasses
import random

import pytest

from frontier.core.model.decisions import Limit
from frontier.core.model.loads import POISSON, SessionRate
from frontier.core.model.shapes import Lengths, Session, Shape
from frontier.simulator.spec import EngineSpec
from tests.kit.virtual_truth import truth
from tests.search.test_rates import Deployment, studied


def of_sessions(seed: int) -> Deployment | None:
    """A random deployment that is sent sessions; None where even few of them are close to the limit
    or beyond it.
    """
    rng = random.Random(f"sr/{seed}")
    spec = EngineSpec(
        step_base=rng.uniform(4e-3, 20e-3),
        per_decode=rng.uniform(20e-6, 500e-6),
        noise=rng.choice([0.0, 0.1, 0.3]),
        per_prefill_token=rng.uniform(10e-6, 60e-6),
        max_num_seqs=rng.choice([4, 8, 16, 32]),
        seed=seed,
        prefix_cache=True,
        kv_tokens=2_000_000,
    )
    turns = rng.choice([Lengths.fixed(3), Lengths.fixed(8), Lengths.uniform(2, 10)])
    osl = rng.randint(4, 12)
    first, added = Lengths.fixed(rng.randint(100, 600)), Lengths.fixed(rng.randint(10, 60))
    session = Session(turns, first, added, think=rng.choice([0.0, 0.5, 2.0, 5.0]))
    lengths = Lengths.uniform(osl, 2 * osl)
    shape = dataclasses.replace(Shape.of_session(session, lengths, "a"), arrivals=POISSON)
    busy = Shape.of_session(dataclasses.replace(session, think=0.0), lengths, "a")
    top = truth(spec, busy, spec.max_num_seqs, "request_throughput", requests=3_000) / shape.requests
    name = f"p{rng.choice([50, 90, 90])}_{rng.choice(['ttft', 'e2e', 'ttft'])}"
    name = f"later.{name}" if rng.random() < 0.4 else name
    promise = truth(spec, shape, SessionRate.of(rng.uniform(0.4, 0.9) * top), name, requests=6_000)
    alone = truth(spec, shape, SessionRate.of(0.05 * top), name, requests=1_000)
    return Deployment(spec, shape, Limit(name, promise), top) if promise > 1.05 * alone else None


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("drawn", [4, pytest.param(14, marks=pytest.mark.nightly)])
def test_the_rates_of_sessions_that_are_named_keep_their_limits(drawn: int) -> None:
    """What docs/decisions/0011-open-loop-rate.md says of sessions."""
    results = [studied(d) for seed in range(drawn) if (d := of_sessions(seed)) is not None]
    assert len(results) >= 0.7 * drawn
    assert all(result.share is not None for result in results)
    assert sum(result.breaks for result in results) <= 1
    assert max(result.beyond for result in results) < 0.05
