"""The search over load against queues whose truth is known: what it names keeps the SLA, and is not
far below the best.

The truth of M/M/c is Erlang's formula; that of other queues is a run of 400,000 requests.
"""

import dataclasses
import heapq
import math
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from frontier.core.model.decisions import Decision, Limit, Verdict
from frontier.core.model.loads import Concurrency, Rate
from frontier.core.model.points import FLAG_WORDS
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import ClientHealth, Measurement, Phase, Trial, Window
from frontier.core.window.from_records import window_data
from frontier.core.window.histogram import LogHistogram
from frontier.core.window.window import BLOCKS, WindowData
from frontier.extras.verify.finding import expected_seconds
from frontier.extras.verify.found_rates import found_rate
from frontier.search.highest_rate import INVALID, next_ask
from frontier.search.next_trial import Ask, Done
from frontier.search.rate_policy import MOST, RatePolicy, is_overloaded, rate_of, rounded
from tests.kit.golden import assert_golden_row

Floats = NDArray[np.float64]
_EMPTY = tuple(LogHistogram() for _ in range(BLOCKS))
TOKENS = 32
FIRST = 0.2
"""Share of a service after which the first token comes."""


@dataclass(frozen=True)
class Queue:
    """Poisson arrivals at `places` places, each a request at a time; what arrives when all are
    taken waits its turn.

    The capacity is `places / service` requests per second. `cv` is that of the service time: 1 is
    exponential (M/M/c), anything else lognormal.
    """

    places: int
    service: float
    cv: float
    limits: tuple[Limit, ...]
    errors: float = 0.0

    @property
    def top(self) -> float:
        return self.places / self.service

    def policy(self) -> RatePolicy:
        return RatePolicy(0.75 * self.top, self.top, self.places, self.service, warmup=2 * self.service)

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

    def trial(self, ask: Ask, number: int) -> tuple[Trial, WindowData]:
        """The asked trial, ended early when clearly more arrives than is served."""
        rng = np.random.default_rng([number, round(1e6 * self.cv), self.places])
        rate = rate_of(ask.load).per_second
        due, waits, services = self.run(rate, ask.requests + math.ceil(1.5 * ask.warmup * rate) + 10, rng)
        first = int(np.searchsorted(due, ask.warmup))
        inside = slice(first, first + ask.requests)
        due, waits, services = due[inside], waits[inside], services[inside]
        over = bool((waits > 15 / (self.top - rate)).any())
        data = self.window(due, waits, services, rng.random(len(due)) >= self.errors, 1e6 * number)
        data = dataclasses.replace(data, ended=("interrupted",) if over else data.ended)
        sent = Trial("d", data.shape, ask.load, number, ask.phase, ask.requests, number, ask.warmup, 0.0, 1e9, "f")
        return sent, data

    def window(self, due: Floats, waits: Floats, services: Floats, ok: NDArray[np.bool_], epoch: float) -> WindowData:
        n, start, stop = len(due), float(due[0]), float(due[-1]) + 1e-9
        marks = np.linspace(start, stop, BLOCKS + 1)
        finished, _ = np.histogram((due + waits + services)[ok], marks)
        ttft = waits + FIRST * self.service
        e2e = ttft + services
        tokens = np.full(n, float(TOKENS))
        return WindowData(
            deployment="d",
            shape=Shape.of(256, TOKENS),
            load=self.places,
            starts=np.array([epoch + start]),
            ends=np.array([epoch + stop]),
            sent=epoch + due,
            window=np.zeros(n, np.int64),
            ttft=np.where(ok, ttft, math.inf),
            tpot=np.where(ok, services / (TOKENS - 1), math.inf),
            e2e=np.where(ok, e2e, math.inf),
            ok=ok,
            silence=np.zeros(n),
            hollow=np.zeros(n, dtype=bool),
            irregular=np.full(n, math.nan),
            asked_isl=np.full(n, 256.0),
            asked_osl=tokens,
            prompt_tokens=np.full(n, 256.0),
            completion_tokens=tokens,
            cached_tokens=np.zeros(n),
            events=tokens.astype(np.int64),
            reads=tokens.astype(np.int64),
            text_chars=5 * tokens.astype(np.int64),
            block_seconds=np.full(BLOCKS, (stop - start) / BLOCKS),
            block_output_tokens=finished * float(TOKENS),
            block_input_tokens=finished * 256.0,
            block_finished=finished.astype(float),
            block_itl=_EMPTY,
            in_flight=np.full(BLOCKS, 1.0),
            health=(ClientHealth(),),
            server_identities=(None,),
            server=({},),
            ended=("requests",),
            client_failures=0,
            outcomes={"ok": int(ok.sum()), "timeout": int((~ok).sum())},
            whole_run={},
            open_loop=True,
        )

    def breaks(self, load: float) -> bool:
        """Whether the SLA is truly broken at a load: by Erlang's formula for M/M/c, else by a very
        long run.
        """
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
            float(
                np.quantile(
                    np.where(gone, math.inf, values[limit.of.quantity or ""]), limit.of.p or 0.5, method="inverted_cdf"
                )
            )
            > limit.promise
            for limit in self.limits
        )

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


def search(queue: Queue, seed: int = 0) -> tuple[Done, list[tuple[Trial, WindowData]]]:
    history: list[tuple[Trial, WindowData]] = []
    while isinstance(ask := next_ask(queue.policy(), queue.limits, history), Ask):
        history.append(queue.trial(ask, 1000 * seed + len(history)))
        assert len(history) < 150
    return ask, history


def proven(done: Done) -> float | None:
    return None if done.proven is None else rate_of(done.proven).per_second


def drawn(seed: int) -> Queue:
    """A queue of any size, its limit drawn from what an idle server gives to what one at 97%
    gives.
    """
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


def mmc(places: int = 16, limit: float = 0.4) -> Queue:
    return Queue(places, 1.0, 1.0, (Limit("p95_ttft", limit),))


def test_the_oracle_agrees_with_a_simulation() -> None:
    assert erlang_c(1, 0.7) == pytest.approx(0.7)
    queue = mmc()
    load = 0.8 * queue.top
    _, waits, _ = queue.run(load, 200_000, np.random.default_rng(3))
    beyond = float((waits[5_000:] > 0.2).mean())
    assert beyond == pytest.approx(queue._beyond(load, queue.limits[0]), rel=0.15)
    best = queue.best()
    assert best is not None
    assert not queue.breaks(0.99 * best)
    assert queue.breaks(1.02 * best)


@pytest.mark.parametrize("seed", range(3))
def test_a_rate_is_found_that_keeps_the_sla_and_is_near_the_best(seed: int) -> None:
    queue = mmc()
    done, history = search(queue, seed)
    best = queue.best()
    assert (Verdict.MEETS, False) == (done.verdict, queue.breaks(proven(done) or math.inf))
    assert best is not None
    assert (proven(done) or 0) >= 0.7 * best
    assert done.refused is not None
    assert done.refused[0] > (done.proven or 0)
    assert done.refused[1]
    proofs = {trial.load for trial, _ in history if trial.phase is Phase.PROVE}
    assert done.proven in proofs
    assert done.proven == rounded(proven(done) or 0)


def test_it_is_a_function_of_history_alone() -> None:
    queue = mmc()
    _, history = search(queue)
    asks = [next_ask(queue.policy(), queue.limits, history[:k]) for k in range(len(history))]
    assert [(t.load, t.phase, t.requests) for t, _ in history] == [
        (ask.load, ask.phase, ask.requests) for ask in asks if isinstance(ask, Ask)
    ]


def test_an_sla_that_nobody_keeps_ends_with_no() -> None:
    done, history = search(mmc(limit=0.1))
    assert (Verdict.VIOLATES, None) == (done.verdict, done.proven)
    assert Rate.of(1.6) == min(trial.load for trial, _ in history)
    assert_golden_row("answers", done.reason)
    assert {Phase.SCAN} == {trial.phase for trial, _ in history}


def test_what_lies_on_its_limit_at_every_rate_is_not_proven() -> None:
    queue = Queue(40, 1.0, 0.5, ())
    services = queue.services(400_000, np.random.default_rng(1))
    limit = FIRST + float(np.quantile(services, 0.99)) * 1.002
    done, _ = search(dataclasses.replace(queue, limits=(Limit("p99_e2e", limit),)))
    assert (Verdict.UNPROVEN, None) == (done.verdict, done.proven)


def test_an_sla_that_never_binds_is_proven_up_to_the_top() -> None:
    done, _ = search(Queue(16, 1.0, 0.5, (Limit("p95_tpot", 10.0),)))
    assert (Verdict.MEETS, rounded(MOST * 16), None) == (done.verdict, done.proven, done.refused)


def test_a_trial_that_was_ended_early_is_outside_whatever_its_values() -> None:
    queue = mmc()
    policy = queue.policy()
    first = next_ask(policy, queue.limits, [])
    assert isinstance(first, Ask)
    calm, data = queue.trial(dataclasses.replace(first, load=Rate.of(0.3 * queue.top)), 0)
    cut = dataclasses.replace(data, ended=("interrupted",))
    none = window_data(Measurement(calm, 0.0, Window(0.0, 1.0), "requests", ClientHealth(0, 0, 0, 0), {}, "m"), [])
    assert (False, True, False) == (is_overloaded(data), is_overloaded(cut), is_overloaded(none))
    second = next_ask(policy, queue.limits, [(dataclasses.replace(calm, load=first.load), cut)])
    assert isinstance(second, Ask)
    assert second.load < first.load
    over = dataclasses.replace(calm, load=Rate(round(1.03 * calm.load)))
    proof = dataclasses.replace(calm, phase=Phase.PROVE)
    after = next_ask(policy, queue.limits, [(calm, data), (over, cut), (proof, cut)])
    assert isinstance(after, Ask)
    assert after.load < proof.load


def test_measurements_that_mean_nothing_end_it() -> None:
    queue = mmc()
    ask = next_ask(queue.policy(), queue.limits, [])
    assert isinstance(ask, Ask)
    trial, data = queue.trial(ask, 0)
    bad = trial, dataclasses.replace(data, health=(ClientHealth(cpu_share=0.99),))
    again = next_ask(queue.policy(), queue.limits, [bad])
    assert isinstance(again, Ask)
    assert again.load == ask.load
    done = next_ask(queue.policy(), queue.limits, [bad] * INVALID)
    assert isinstance(done, Done)
    assert done.verdict is Verdict.INVALID
    assert FLAG_WORDS["client_bound"] in done.reason


def test_the_queue_remembers_longer_the_nearer_the_top() -> None:
    policy = mmc().policy()
    assert policy.memory(0.9 * policy.top) > 10 * policy.memory(0.5 * policy.top)
    ask = next_ask(policy, mmc().limits, [])
    assert isinstance(ask, Ask)
    rate = rate_of(ask.load).per_second
    assert ask.warmup >= 2 * policy.memory(rate)
    assert policy.seconds(ask) == ask.warmup + ask.requests / rate


def test_the_expected_time_is_about_what_it_takes() -> None:
    ratios = []
    for seed in range(3):
        queue = mmc()
        _, history = search(queue, seed)
        took = 0.0
        for k in range(len(history)):
            ask = next_ask(queue.policy(), queue.limits, history[:k])
            assert isinstance(ask, Ask)
            seconds = queue.policy().seconds(ask)
            assert expected_seconds(queue.policy(), queue.limits, history[:k]) >= 0.99 * seconds
            took += seconds
        ratios.append(took / expected_seconds(queue.policy(), queue.limits, []))
        assert expected_seconds(queue.policy(), queue.limits, history) == 0.0
    assert 1 / 3 < float(np.median(ratios)) < 3


def test_the_answer_has_the_point_of_the_rate_proven() -> None:
    queue = mmc()
    done, history = search(queue)
    decision = Decision("d", Shape.of(256, TOKENS), queue.limits, Verdict.MEETS, Concurrency(16), "p95_ttft", {}, ())
    found = found_rate(decision, queue.policy(), done, history)
    assert found.point is not None
    proofs = [data for trial, data in history if trial.phase is Phase.PROVE and trial.load == done.proven]
    assert sum(data.n for data in proofs) == found.point.n
    assert found.point.metrics["p95_ttft"].upper <= queue.limits[0].promise
    assert found.loss == pytest.approx(1 - (proven(done) or 0) / 16)
    nothing = found_rate(decision, queue.policy(), Done("x"), history)
    assert (None, None) == (nothing.point, nothing.loss)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("count", [10, pytest.param(120, marks=pytest.mark.nightly)])
def test_over_many_queues_at_most_five_in_a_hundred_break_the_sla(count: int) -> None:
    """What docs/decisions/0011-open-loop-rate.md says of the search. Nine times in ten it finds a
    search that breaks the SLA on 20% of queues with 10 of them, and on 10% with 120.
    """
    broken, far, answered, shares = 0, 0, 0, []
    for seed in range(count):
        queue = drawn(seed)
        done, _ = search(queue, seed)
        rate = proven(done)
        if rate is None:
            continue
        answered += 1
        if queue.breaks(rate):
            broken += 1
            far += queue.breaks(rate / 1.05)
        if queue.cv == 1 and (best := queue.best()) is not None:
            shares.append(rate / best)
    assert broken <= 0.05 * count
    assert far <= max(1, 0.02 * count)
    assert answered >= 0.8 * count
    assert float(np.median(shares)) >= 0.75
