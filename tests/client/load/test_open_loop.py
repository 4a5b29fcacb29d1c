"""Poisson arrivals: at their times, whatever the server does, and latency counted from them."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, pairwise

import pytest

from frontier.client import run_trial
from frontier.client.ask.prompts import Calibration, random_prompts, session_prompts
from frontier.client.ask.target import Target, Timeouts
from frontier.client.http.http_client import run
from frontier.core.model.loads import Arrivals, CappedRate
from frontier.core.model.shapes import Lengths, Session, Shape
from frontier.core.model.trials import Measurement, Outcome, Phase, Record, Trial
from frontier.extras.workload.arrival_files import of_column
from tests.kit.engine import Engine
from tests.kit.hostile import Hostile


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    with Hostile() as running:
        yield running


def go(
    server: Hostile, engine: Engine, rate: float, cap: int, arrivals: Arrivals | None = None, **more: float
) -> tuple[Measurement, list[Record]]:
    times = {"warmup": 0.3, "min_time": 0.5, "max_time": 10.0} | more
    shape = replace(Shape.of(20, 5), arrivals=arrivals)
    trial = Trial("d", shape, CappedRate.at(rate, cap), 0, Phase.CONFIRM, 120, 11, fingerprint="f", **times)
    limits = Timeouts(2.0, 5.0, 2.0, total=1.5)
    target = Target(server.url(engine.name), "m", "chat", dialect="vllm", timeouts=limits)
    records: list[Record] = []
    prompts = random_prompts(trial.shape, 1)
    measurement = run(run_trial(trial, target, prompts, on_record=records.append))
    return measurement, sorted(records, key=lambda r: r.scheduled or 0)


def in_window(measurement: Measurement, records: list[Record]) -> list[Record]:
    window = measurement.window
    return [r for r in records if r.scheduled is not None and window.start <= r.scheduled < window.end]


@pytest.mark.process
def test_arrivals_come_at_the_rate_and_at_random(server: Hostile) -> None:
    measurement, records = go(server, Engine("poisson").install(), rate=60, cap=64)
    counted = in_window(measurement, records)
    assert "requests" == measurement.ended
    assert {Outcome.OK} == {r.outcome for r in counted}
    gaps = [(b.scheduled or 0) - (a.scheduled or 0) for a, b in pairwise(records)]
    mean = sum(gaps) / len(gaps)
    spread = (sum((g - mean) ** 2 for g in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(1 / 60, rel=0.25)
    assert spread / mean == pytest.approx(1, abs=0.25)
    late = sorted(r.sent - (r.scheduled or 0) for r in counted)
    assert 0 <= late[0]
    assert late[len(late) // 2] < max(0.01, 3 * (measurement.health.loop_lag_p99 or 0))


@pytest.mark.process
def test_arrivals_of_a_trace_come_when_it_says_at_the_rate(server: Hostile) -> None:
    bunches = of_column("t", "".join(f"{3 * (n // 4) + 0.1 * (n % 4):.6f}\n" for n in range(100)).encode())
    measurement, records = go(server, Engine("trace").install(), rate=200, cap=64, arrivals=bunches)
    assert "requests" == measurement.ended
    due = [r.scheduled for r in records]
    assert due == pytest.approx(list(islice(bunches.times(200, 11), len(due))), abs=1e-6)
    assert records
    assert all(r.sent >= (r.scheduled or 0) for r in records)
    gaps = [b - a for a, b in pairwise(r.scheduled or 0.0 for r in records)]
    assert bunches.trace is not None
    speed = 200 / bunches.trace.rate
    assert (min(gaps), max(gaps)) == pytest.approx((0.1 / speed, 2.7 / speed), abs=1e-5)


@pytest.mark.process
@pytest.mark.slow
def test_a_server_that_is_too_slow_is_charged_for_the_queue(server: Hostile) -> None:
    engine = Engine("jam", ttft=0.1, itl=0.0).install()
    measurement, records = go(server, engine, rate=40, cap=2, max_time=3.0)
    counted = in_window(measurement, records)
    waited = [r.sent - (r.scheduled or 0) for r in counted]
    assert max(waited) > 0.5
    never = [r for r in counted if r.outcome is Outcome.TIMEOUT]
    assert never
    assert all("never sent" in (r.error or "") and r.first is None for r in never)
    assert len(counted) == pytest.approx(40 * measurement.window.length, rel=0.35)
    assert len({r.index for r in records}) == len(records)


@pytest.mark.process
@pytest.mark.slow
def test_later_turns_that_no_caller_was_free_for_are_charged_from_when_they_were_due(server: Hostile) -> None:
    engine = Engine("full", ttft=0.1, itl=0.0).install()
    session = Session(Lengths.fixed(3), Lengths.fixed(60), Lengths.fixed(30), think=0.05)
    shape = Shape.of_session(session, Lengths.fixed(5), "chat")
    limits = Timeouts(2.0, 5.0, 2.0, total=1.5)
    target = Target(server.url(engine.name), "m", "chat", dialect="vllm", timeouts=limits)
    trial = Trial("d", shape, CappedRate.at(40.0, 2), 0, Phase.CONFIRM, 300, 11, 0.3, 0.5, 3.0, "f")
    records: list[Record] = []
    prompts = session_prompts(shape, 1, Calibration(), 0)
    measurement = run(run_trial(trial, target, prompts, on_record=records.append))
    counted = in_window(measurement, records)
    later = [r for r in counted if r.turn]
    assert later
    assert max(r.sent - (r.scheduled or 0) for r in later if r.outcome is Outcome.OK) > 0.2
    never = {r.turn for r in counted if "never sent" in (r.error or "")}
    assert never >= {0}
    assert len({r.index for r in records}) == len(records)
    ends = {(r.session, r.turn): r.end for r in records}
    assert later
    assert all((r.scheduled or 0) >= ends[r.session, (r.turn or 0) - 1] - 1e-6 for r in later)
