"""Sessions on the simulated engine in virtual time: live sessions, order of turns, the prefix cache
across turns."""

import dataclasses
import itertools
import re
from collections import defaultdict

import numpy as np
import pytest

from frontier.client.load.session_plans import plan_session
from frontier.core.estimates.estimate import point
from frontier.core.flags.flags import flags
from frontier.core.model.shapes import Lengths, Session, Shape
from frontier.core.model.trials import Measurement, Outcome, Phase, Record, Trial
from frontier.core.window.from_records import window_data
from frontier.core.window.window import WindowData
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import virtual_trial
from tests.kit.golden import assert_golden_row
from tests.kit.virtual_truth import closed_loop

SPEC = EngineSpec(step_base=5e-3, per_decode=1e-4, per_prefill_token=2e-5, kv_tokens=2_000_000, prefix_cache=True)
SHAPE = Shape.of_session(
    Session(Lengths.fixed(5), Lengths.fixed(800), Lengths.fixed(90), think=1.0), Lengths.fixed(40), "agent", 0.25
)
N = 12


def trial(shape: Shape = SHAPE, requests: int = 600, **changes: object) -> Trial:
    base = Trial("d", shape, N, 1, Phase.GRID, requests, 7, 0.0, 0.0, 1e9, "f")
    return dataclasses.replace(base, **changes)


def ran(spec: EngineSpec = SPEC, shape: Shape = SHAPE, **changes: object) -> tuple[list[Record], Measurement]:
    return virtual_trial(trial(shape, **changes), spec)


def sample_of(spec: EngineSpec = SPEC, shape: Shape = SHAPE, **changes: object) -> WindowData:
    records, measurement = ran(spec, shape, **changes)
    return window_data(measurement, records)


def sessions_of(records: list[Record]) -> dict[int, list[Record]]:
    sessions = defaultdict(list)
    for record in sorted(records, key=lambda r: r.sent):
        assert record.session is not None
        sessions[record.session].append(record)
    return sessions


def test_each_turn_follows_its_answer_by_the_planned_think_time() -> None:
    records, _ = ran()
    for number, turns in sessions_of(records).items():
        plan = plan_session(SHAPE, 7, number, N)
        assert [r.turn for r in turns] == list(range(plan.start, plan.start + len(turns)))
        assert len({r.stream for r in turns}) == 1
        for before, after in itertools.pairwise(turns):
            assert after.sent - before.end == pytest.approx(plan.turns[after.turn].pause)
            assert after.reusable == before.asked_isl + before.asked_osl
        assert [r.asked_isl for r in turns] == [plan.prompt(r.turn) for r in turns]


def test_a_stream_holds_one_session_at_a_time_and_begins_the_next_at_once() -> None:
    records, window = ran()
    window = window.window
    by_stream = defaultdict(list)
    for record in sorted(records, key=lambda r: r.sent):
        by_stream[record.stream].append(record)
    assert len(by_stream) == N
    for mine in by_stream.values():
        for before, after in itertools.pairwise(mine):
            if after.session != before.session:
                assert (before.turn, after.turn) == (4, 0)
                assert after.sent - before.end < 0.02
            assert after.sent >= before.end
    assert window.length > 0


def test_the_cache_serves_what_was_said_before_to_the_block() -> None:
    records, _ = ran(SPEC, requests=200)
    done = [r for r in records if r.outcome is Outcome.OK]
    starts = {number: plan_session(SHAPE, 7, number, N).start for number in range(N)}
    later = [r for r in done if r.turn != starts.get(r.session, 0)]
    assert len(later) > 100
    # The last token of an answer was never an input, so that its KV does not exist.
    assert {(r.reusable - 1) // 16 * 16 - r.cached_tokens for r in later} == {0}
    first = [r for r in done if r.turn == 0 and r.session >= N]
    assert {r.cached_tokens for r in first} == {200 // 16 * 16}


def test_turns_mix_from_the_start_of_the_window() -> None:
    sample = sample_of(requests=3000)
    quarter = sample.turn[: sample.n // 4]
    shares = np.bincount(quarter, minlength=5) / len(quarter)
    assert shares == pytest.approx(np.full(5, 0.2), abs=0.04)


def test_requests_in_flight_are_reported_beside_the_sessions() -> None:
    sample = sample_of(requests=2000)
    found = point(sample)
    rate, e2e = found.metrics["request_throughput"].value, found.metrics["mean_e2e"].value
    assert found.in_flight == pytest.approx(rate * e2e, rel=0.02)
    # The response-time law: N = X (R + Z), Z once per request that is not a session's first.
    assert rate * (e2e + SHAPE.pause) == pytest.approx(N, rel=0.03)
    assert not {"under_concurrency", "littles_law"} & {flag.name for flag in found.flags}
    assert point(sample_of(shape=Shape.of(800, 40), requests=200)).in_flight is None


def test_without_think_times_as_many_requests_as_sessions_are_in_flight() -> None:
    assert SHAPE.session is not None
    busy = dataclasses.replace(SHAPE, session=dataclasses.replace(SHAPE.session, think=0.0))
    assert point(sample_of(shape=busy)).in_flight == pytest.approx(N, rel=0.02)


def test_history_that_is_read_again_is_a_warning_with_its_size() -> None:
    good = flags(sample_of())
    assert not {"history_read_again", "cache_contaminated"} & {flag.name for flag in good}
    cold = dataclasses.replace(SPEC, prefix_cache=False)
    (flag,) = [flag for flag in flags(sample_of(cold)) if flag.name == "history_read_again"]
    assert not flag.fatal
    cached, known = (float(share) for share in re.findall(r"([\d.]+)%", flag.measured))
    assert (cached, known) == (0.0, pytest.approx(100 * SHAPE.cached, abs=1))
    assert_golden_row("flags", f"{flag.measured}\n{flag.limit}\n{flag.advice}")
    # Too little memory: what one session said is dropped before its next turn.
    little = dataclasses.replace(SPEC, kv_tokens=9_000)
    assert "history_read_again" in {flag.name for flag in flags(sample_of(little))}


def test_later_turns_read_less_and_answer_sooner() -> None:
    found = point(sample_of(requests=2000)).metrics
    assert found["later.p50_ttft"].value < found["first.p50_ttft"].value
    low, high = sorted(found[f"{name}.mean_ttft"].value for name in ("first", "later"))
    assert low <= found["mean_ttft"].value <= high


def test_staggered_or_not_a_session_has_its_turns() -> None:
    records, _ = closed_loop(SPEC, SHAPE, 4, requests=100, stagger=False, seed=3)
    assert {0} == {turns[0].turn for turns in sessions_of(records).values()}
