"""A trial in closed loop: exactly N in flight, staggered, handed over, held; and its end, whatever
happens."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from frontier.client import run_trial
from frontier.client.ask.prompts import random_prompts
from frontier.client.ask.target import Target, Timeouts
from frontier.client.http.http_client import run
from frontier.client.load.loop import TrialProgress
from frontier.client.load.rules import first_length
from frontier.core.model.errors import MeasurementError
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Measurement, Outcome, Phase, Record, Trial
from tests.cases.failures import Gateway
from tests.cases.http_server import serving
from tests.kit.engine import Engine
from tests.kit.hostile import Hostile

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    with Hostile() as running:
        yield running


def trial(concurrency: int = 8, requests: int = 40, osl: int = 20, **more: float) -> Trial:
    times = {"warmup": 0.2, "min_time": 0.3, "max_time": 20.0} | more
    return Trial("d", Shape.of(40, osl), concurrency, 0, Phase.GRID, requests, 7, fingerprint="f", **times)


def target(server: Hostile, engine: Engine, **more: object) -> Target:
    options = {"api": "completions", "dialect": "vllm", "timeouts": Timeouts(2.0, 5.0, 2.0, 10.0)} | more
    return Target(server.url(engine.name) + "/v1", "m", **options)  # type: ignore[arg-type]


def go(
    trial: Trial,
    target: Target,
    expected_e2e: float | None = 0.1,
    tell: Callable[[TrialProgress], None] | None = None,
    stop_when: Callable[[], bool] | None = None,
) -> tuple[Measurement, list[Record]]:
    records: list[Record] = []

    async def all_of_it() -> Measurement:
        stop = asyncio.Event()
        watch = asyncio.create_task(set_when(stop, stop_when)) if stop_when is not None else None
        prompts = random_prompts(trial.shape, trial.seed)
        measurement = await run_trial(
            trial, target, prompts, on_record=records.append, expected_e2e=expected_e2e, on_progress=tell, stop=stop
        )
        assert watch is None or watch.done()
        return measurement

    return run(all_of_it()), sorted(records, key=lambda r: r.index)


async def set_when(event: asyncio.Event, when: Callable[[], bool]) -> None:
    while not when():  # noqa: ASYNC110 - the condition is another thread's
        await asyncio.sleep(0.01)
    event.set()


def do_when(act: Callable[[], object], when: Callable[[], bool]) -> None:
    """In a thread of its own: wait for the condition, then act."""

    def wait() -> None:
        while not when():
            time.sleep(0.01)
        act()

    threading.Thread(target=wait, daemon=True).start()


def occupancy(records: list[Record], start: float, end: float) -> float:
    """Requests in flight between two times, by integral."""
    return sum(max(0.0, min(r.end, end) - max(r.sent, start)) for r in records) / (end - start)


E2E = 0.02 + 59 * 0.004
Ordinary = tuple[Measurement, list[Record], Engine, list[TrialProgress]]


@pytest.fixture(scope="module")
def ordinary(server: Hostile) -> Ordinary:
    """One plain trial; measured again, a few times, when the machine was too busy to say anything
    about timing.
    """
    for attempt in range(3):
        engine = Engine(f"ordinary_{attempt}").install()
        seen: list[TrialProgress] = []
        measurement, records = go(trial(requests=60, osl=60), target(server, engine), E2E, tell=seen.append)
        if (measurement.health.loop_lag_p99 or 0) < BUSY:
            break
    return measurement, records, engine, seen


BUSY = 0.02


@pytest.fixture
def calm(ordinary: Ordinary) -> Ordinary:
    """For what is about timing: not on a machine whose event loops wake late."""
    lag = ordinary[0].health.loop_lag_p99 or 0
    if lag > BUSY:
        pytest.skip(f"the machine is too busy: the event loop woke up to {lag * 1e3:.0f} ms late")
    return ordinary


def test_exactly_n_requests_are_in_flight_over_the_window(calm: Ordinary) -> None:
    measurement, records, engine, _ = calm
    window = measurement.window
    assert occupancy(records, window.start, window.end) == pytest.approx(8, rel=0.02)
    zero = measurement.epoch - (time.time() - time.perf_counter())
    inside = [(a - zero, min(b - zero, window.end)) for a, b in engine.spans]
    served = sum(max(0.0, min(b, window.end) - max(a, window.start)) for a, b in inside) / window.length
    assert 0.7 * 8 < served <= 8.05


def test_the_window_opens_without_a_dip_and_is_held_to_its_last_request(calm: Ordinary) -> None:
    measurement, records, _, _ = calm
    window = measurement.window
    last = max(r.end for r in records if window.start <= r.sent < window.end)
    for a, b in [(window.start - 0.1, window.start), (window.start, window.start + 0.1), (window.end, last)]:
        assert occupancy(records, a, b) == pytest.approx(8, rel=0.1)


def test_every_request_sent_in_the_window_is_ended_and_the_rest_is_cut_off(ordinary: Ordinary) -> None:
    measurement, records, _, _ = ordinary
    window = measurement.window
    inside = [r for r in records if window.start <= r.sent < window.end]
    assert {Outcome.OK} == {r.outcome for r in inside}
    assert 60 <= len(inside) <= 76
    cut = [r for r in records if r.outcome is Outcome.CANCELLED]
    assert 0 < len(cut) <= 8
    assert all(r.sent >= window.end for r in cut)
    assert "requests" == measurement.ended


def test_warm_up_ends_after_every_stream_has_finished_one_and_not_before_its_time(ordinary: Ordinary) -> None:
    measurement, records, _, _ = ordinary
    before = [r for r in records if r.end <= measurement.window.start]
    assert set(range(8)) == {r.stream for r in before}
    assert len(before) >= 16
    assert measurement.window.start >= 0.2


def test_the_first_request_of_each_stream_asks_for_a_random_share_of_the_length_and_never_counts(
    ordinary: Ordinary,
) -> None:
    measurement, records, _, _ = ordinary
    firsts = {r.stream: r for r in records[:8]}
    assert set(range(8)) == set(firsts)
    assert [first_length(60, 7, k) for k in range(8)] == [r.asked_osl for r in records[:8]]
    assert [r.asked_osl for r in records[:8]] == [r.completion_tokens for r in records[:8]]
    assert {60} == {r.asked_osl for r in records[8:]}
    assert all(r.end <= measurement.window.start for r in firsts.values())


def test_where_the_length_cannot_be_forced_the_first_sends_are_spread_evenly_over_one_latency(server: Hostile) -> None:
    for attempt in range(3):
        engine = Engine(f"unforced_{attempt}", owner="someone").install()
        measurement, records = go(trial(requests=16, osl=60), target(server, engine, dialect="openai"), E2E)
        if (measurement.health.loop_lag_p99 or 0) < BUSY:
            break
    assert {60} != {r.completion_tokens for r in records}
    firsts = [next(r.sent for r in records if r.stream == k) for k in range(8)]
    assert all(a < b for a, b in pairwise(firsts))
    assert firsts[-1] - firsts[0] == pytest.approx(E2E * 7 / 8, rel=0.4)


def test_restarts_wait_for_less_than_a_decode_step_and_are_not_late_for_it(calm: Ordinary) -> None:
    measurement, records, _, _ = calm
    health, window = measurement.health, measurement.window
    assert health.restart_delay_mean is not None
    assert 0 < health.restart_delay_mean < 0.004
    by_stream = [[r for r in records if r.stream == k and window.start <= r.sent <= window.end] for k in range(8)]
    waits = [b.sent - a.end for stream in by_stream for a, b in pairwise(stream)]
    # A timer of a whole millisecond and the wake of a loop come on top.
    assert sorted(waits)[-len(waits) // 20] < 0.004 + 0.003
    assert health.send_late_p99 < 0.004


def test_every_request_is_on_record_once_with_its_own_prompt(ordinary: Ordinary) -> None:
    _, records, engine, _ = ordinary
    assert list(range(len(records))) == [r.index for r in records]
    heads = [prompt[:60] for prompt in engine.prompts]
    assert len(heads) == len(set(heads))
    assert {40} == {r.prompt_tokens for r in records if r.outcome is Outcome.OK}
    assert {60} == {r.completion_tokens for r in records[8:] if r.outcome is Outcome.OK}


def test_latencies_are_those_of_the_engine(calm: Ordinary) -> None:
    _, records, _, _ = calm
    done = [r for r in records[8:] if r.outcome is Outcome.OK]
    ttft = sorted((r.first or 0) - r.sent for r in done)[len(done) // 2]
    tpot = sorted(((r.last or 0) - (r.first or 0)) / 59 for r in done)[len(done) // 2]
    assert 0.02 <= ttft < 0.06
    assert tpot == pytest.approx(0.004, rel=0.5)


def test_health_and_the_servers_own_metrics_are_kept(ordinary: Ordinary) -> None:
    measurement, _, _, _ = ordinary
    health = measurement.health
    assert 8 == health.connections_opened
    assert 0 == health.resent
    assert None not in (health.loop_lag_p99, health.send_late_p99, health.cpu_share, health.gc_pause_max)
    assert 4 <= measurement.server["num_requests_running"] <= 8
    tokens = 8 * measurement.window.length / E2E * 60
    assert measurement.server["generation_tokens_total"] == pytest.approx(tokens, rel=0.5)
    assert "started 1700000000" == measurement.server_identity


def test_progress_walks_through_the_stages(ordinary: Ordinary) -> None:
    _, _, _, seen = ordinary
    order = ["ramp", "warmup", "window", "hold"]
    assert [order.index(p.stage) for p in seen] == sorted(order.index(p.stage) for p in seen)
    assert seen
    assert all(p.in_flight <= 8 for p in seen)


@pytest.mark.parametrize("expected_e2e", [None, 30.0])
def test_of_a_slow_server_all_streams_are_in_flight_when_the_window_opens(
    server: Hostile, expected_e2e: float | None
) -> None:
    # One token after 0.2 s, in a trial that gives the warm-up 0.06 s.
    engine = Engine(f"slow_{expected_e2e}", ttft=0.2).install()
    there = target(server, engine, dialect="openai")
    measurement, records = go(trial(4, osl=1, max_time=0.12), there, expected_e2e)
    assert measurement.window is not None
    assert [0, 1, 2, 3] == sorted(r.stream for r in records[:4])
    assert all(r.sent <= measurement.window.start for r in records[:4])


def test_without_an_estimate_the_first_request_tells_how_far_to_spread(server: Hostile) -> None:
    engine = Engine("alone").install()
    _, records = go(trial(4, 8), target(server, engine, dialect="openai"), expected_e2e=None)
    first = next(r for r in records if r.stream == 0)
    e2e = first.end - first.sent
    firsts = [next(r.sent for r in records if r.stream == k) for k in range(1, 4)]
    assert all(sent >= first.end + e2e * k / 4 - 0.005 for k, sent in enumerate(firsts, 1))
    assert all(a < b for a, b in pairwise(firsts))


def test_the_window_lasts_its_least_time_even_when_requests_are_plenty(server: Hostile) -> None:
    engine = Engine("brief").install()
    measurement, _ = go(trial(2, 1, osl=4, min_time=0.5), target(server, engine))
    assert 0.5 <= measurement.window.length < 1.0


def test_max_time_closes_the_window_with_what_there_is(server: Hostile) -> None:
    engine = Engine("timed").install()
    measurement, records = go(trial(2, 100000, max_time=0.7), target(server, engine))
    assert "time" == measurement.ended
    assert 0.7 <= measurement.window.end < 1.0
    assert max(r.end for r in records) < 4


def test_seconds_close_the_window_however_long_the_warm_up_took(server: Hostile) -> None:
    engine = Engine("windowed").install()
    measurement, records = go(trial(2, 100000, warmup=0.4, seconds=0.3), target(server, engine))
    window = measurement.window
    assert "time" == measurement.ended
    assert window.start >= 0.4
    assert 0.3 <= window.length < 0.6
    assert {Outcome.OK} == {r.outcome for r in records if window.start <= r.sent <= window.end}


def test_a_window_shorter_than_a_request_lasts_until_one_was_sent(server: Hostile) -> None:
    engine = Engine("long", ttft=0.4).install()
    measurement, records = go(trial(1, 100000, osl=2, warmup=0.0, min_time=0.0, seconds=0.05), target(server, engine))
    window = measurement.window
    assert "time" == measurement.ended
    inside = [r for r in records if window.start <= r.sent <= window.end]
    assert {Outcome.OK} == {r.outcome for r in inside}


def test_warm_up_never_takes_more_than_half_of_max_time(server: Hostile) -> None:
    engine = Engine("sluggish", ttft=0.8).install()
    measurement, _ = go(trial(2, 1, max_time=1.0, warmup=30.0), target(server, engine))
    assert 0.5 <= measurement.window.start < 0.9


def test_stop_ends_the_trial_at_once_with_everything_on_record(server: Hostile) -> None:
    engine = Engine("stopped", ttft=5.0).install()
    began = time.perf_counter()
    measurement, records = go(trial(6), target(server, engine), stop_when=lambda: engine.running == 6)
    assert time.perf_counter() - began < 4
    assert "interrupted" == measurement.ended
    assert [Outcome.CANCELLED] * 6 == [r.outcome for r in records]


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """Also where the tests themselves run in the background of a shell, which has them ignore
    it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_cancels_and_is_passed_on(server: Hostile) -> None:
    engine = Engine("ctrl_c", ttft=5.0).install()
    records: list[Record] = []
    do_when(lambda: os.kill(os.getpid(), signal.SIGINT), lambda: engine.running == 3)
    began = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        run(
            run_trial(
                trial(3),
                target(server, engine),
                random_prompts(Shape.of(4, 4), 1),
                on_record=records.append,
                expected_e2e=0.1,
            )
        )
    assert time.perf_counter() - began < 4
    assert [Outcome.CANCELLED] * 3 == [r.outcome for r in records]


@pytest.mark.slow
def test_a_server_that_was_never_there_is_lost_soon(server: Hostile) -> None:
    began = time.perf_counter()
    measurement, records = go(trial(4), Target("http://127.0.0.1:1", "m", "chat", dialect="vllm"))
    assert "server_lost" == measurement.ended
    assert time.perf_counter() - began < 15
    assert {Outcome.CONNECT} >= {r.outcome for r in records} - {Outcome.CANCELLED}
    assert len(records) < 60


def test_a_server_that_goes_away_ends_the_trial(server: Hostile) -> None:
    engine = Engine("mortal").install()
    began = time.perf_counter()
    with Hostile() as mortal:
        do_when(lambda: mortal.__exit__(None, None, None), lambda: engine.generated > 300)
        measurement, records = go(trial(4, 100000), target(mortal, engine))
    assert "server_lost" == measurement.ended
    assert time.perf_counter() - began < 15
    assert sum(r.outcome is Outcome.OK for r in records) > 4


@pytest.mark.parametrize(("how", "outcome"), [("503", Outcome.HTTP_ERROR), ("in stream", Outcome.STREAM_ERROR)])
def test_failing_requests_do_not_spin(server: Hostile, how: str, outcome: Outcome) -> None:
    engine = Engine(f"failing_{how[:2]}", fail_all=how).install()
    measurement, records = go(trial(4, 100000, max_time=0.8), target(server, engine))
    assert "time" == measurement.ended
    assert {outcome} == {r.outcome for r in records} - {Outcome.CANCELLED}
    assert len(records) < 4 * 0.8 / 0.05 * 1.2


def test_a_refusal_that_has_a_stream_wait_over_the_window_is_in_the_window() -> None:
    # Two are let in; the others are to come back after 20 s, which is longer than the trial.
    gateway = Gateway(ttft=0.01, tpot=0.002, most=2, after="long")
    with serving(gateway) as url:
        there = Target(f"{url}/v1", "m", api="chat", dialect="openai")
        measurement, records = go(trial(4, 40, warmup=0.5), there)
    window = measurement.window
    refused = {r.stream for r in records if r.status == 429 and window.start <= r.sent <= window.end}
    assert len(refused) >= 2
    assert max(r.end for r in records) < 10, "and no stream is waited for"


def test_quick_good_answers_are_no_reason_to_pause(server: Hostile) -> None:
    engine = Engine("one_token", ttft=0.005).install()
    measurement, records = go(trial(2, 100, osl=1), target(server, engine))
    window = measurement.window
    assert {Outcome.OK} == {r.outcome for r in records} - {Outcome.CANCELLED}
    assert occupancy(records, window.start, window.end) > 1.4


def test_an_unsettled_target_is_refused() -> None:
    with pytest.raises(MeasurementError, match="not settled"):
        go(trial(), Target("http://127.0.0.1:1", "m"))


def test_progress_tells_what_the_window_gives_so_far(ordinary: Ordinary) -> None:
    measurement, records, _, seen = ordinary
    last = seen[-1]
    window = measurement.window
    ended = [r for r in records if window.start <= r.end <= last.elapsed]
    ttfts = [r.first - r.sent for r in ended if r.first is not None]

    assert seen[0].rate is None
    assert last.p50_ttft is not None
    assert last.p99_ttft is not None
    assert min(ttfts) <= last.p50_ttft * 1.001 <= last.p99_ttft * 1.001 <= max(ttfts) * 1.04
    # Requests are read a little after they have ended, so the count lags by at most the streams.
    tokens = 60 * len(ended) / (last.elapsed - window.start)
    assert last.rate == pytest.approx(tokens, abs=60 * 9 / (last.elapsed - window.start))
