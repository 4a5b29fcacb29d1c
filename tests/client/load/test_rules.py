"""The rules of the window are the same for one process and for many: they see only the sum of the
streams."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier.client.ask.prompts import PromptPlan
from frontier.client.ask.target import Target
from frontier.client.load.pipeline import RequestPipeline, Share
from frontier.client.load.rules import StreamStatus, WindowState, next_state, together
from frontier.core.model.loads import CappedRate
from frontier.core.model.shapes import Lengths, Session, Shape
from frontier.core.model.trials import Phase, Trial

TRIAL = Trial("d", Shape.of(40, 20), 8, 1, Phase.GRID, 100, 7, 2.0, 3.0, 60.0, "f", seconds=30.0)
OPEN = dataclasses.replace(TRIAL, load=CappedRate.at(4.0, TRIAL.load))


def status(now: float, **more: object) -> StreamStatus:
    """As in the middle of a warm-up that has gone well."""
    fields = {"begun": 8, "finished": 20, "in_flight": 8, "succeeded": 12, "e2e_sum": 12.0} | more
    return StreamStatus(now, **fields)  # type: ignore[arg-type]


@st.composite
def divided(draw: st.DrawFn) -> tuple[StreamStatus, list[StreamStatus]]:
    """The status of all streams, and the same divided among some processes, all as old as the
    whole.
    """
    count = draw(st.integers(1, 5))
    now = draw(st.floats(0, 70))
    names = ("begun", "finished", "failed", "in_flight", "window_sent", "succeeded")
    parts = [
        StreamStatus(
            now,
            **{name: draw(st.integers(0, 40)) for name in names},
            waiting=draw(st.booleans()),
            e2e_sum=float(draw(st.integers(0, 100))),
            lost=draw(st.booleans()),
        )
        for _ in range(count)
    ]
    whole = StreamStatus(
        now,
        **{name: sum(getattr(part, name) for part in parts) for name in names},
        waiting=any(part.waiting for part in parts),
        e2e_sum=sum(part.e2e_sum for part in parts),
        lost=all(part.lost for part in parts),
    )
    return whole, parts


STATES = (WindowState(), WindowState(5.0), WindowState(5.0, 20.0, "requests"))


@given(divided(), st.sampled_from(STATES), st.sampled_from([TRIAL, OPEN]))
def test_any_division_of_the_streams_gives_the_same_decision(both, state, trial):
    whole, parts = both
    assert next_state(trial, state, whole) == next_state(trial, state, together(parts))


def test_a_status_of_many_processes_is_as_old_as_its_oldest_part():
    assert 3.0 == together([status(4.0), status(3.0), status(5.0)]).now


def test_requests_that_are_silent_in_several_processes_are_counted_together() -> None:
    parts = [status(4.0, silent=(70.0, 20.0)), status(4.0), status(4.0, silent=(65.0,))]
    assert (70.0, 20.0, 65.0) == together(parts).silent
    assert () == together([status(4.0), status(4.0)]).silent


@pytest.mark.parametrize(
    ("now", "more", "opens"),
    [
        (3.0, {}, True),
        (3.0, {"begun": 7}, False),  # a stream has not finished its first request
        (1.9, {"e2e_sum": 1.0}, False),  # the asked warm-up
        (3.0, {"finished": 15}, False),  # 2 N requests
        (3.0, {"e2e_sum": 30.0}, False),  # two latencies of 2.5 s
        (30.0, {"begun": 0, "finished": 0}, True),  # half of max_time
    ],
)
def test_the_window_opens_when_the_streams_are_warm_and_not_before(now, more, opens):
    state = next_state(TRIAL, WindowState(), status(now, **more))
    assert state == (WindowState(now) if opens else WindowState())


def test_a_scan_opens_as_soon_as_every_stream_has_begun_and_an_open_loop_after_two_latencies():
    scan = dataclasses.replace(TRIAL, phase=Phase.SCAN)
    assert next_state(scan, WindowState(), status(2.5, finished=8, e2e_sum=30.0)).start == 2.5
    early, later = status(2.5, begun=0, e2e_sum=18.0), status(3.1, begun=0, e2e_sum=18.0)
    assert next_state(OPEN, WindowState(), early).start is None
    assert next_state(OPEN, WindowState(), later).start == 3.1


def test_at_a_rate_of_sessions_the_window_waits_for_the_last_turns_by_the_time_of_the_first_requests():
    session = Session(Lengths.fixed(5), Lengths.fixed(40), Lengths.fixed(9), think=0.0)
    trial = dataclasses.replace(OPEN, shape=Shape.of_session(session, Lengths.fixed(20), "a"))
    early, later = (status(now, early_e2e=1.5) for now in (7.4, 7.6))
    assert next_state(trial, WindowState(), early).start is None
    assert next_state(trial, WindowState(), later).start == 7.6


@pytest.mark.parametrize(
    ("now", "sent", "end", "ended"),
    [
        (9.0, 100, 9.02, "requests"),
        (7.9, 100, None, None),  # min_time
        (9.0, 99, None, None),
        (35.0, 10, 35.02, "time"),  # seconds of the window
        (35.0, 0, None, None),  # nothing was sent in it yet
        (60.0, 0, 60.0, "time"),  # max_time
    ],
)
def test_the_window_closes_after_its_requests_and_its_time(now, sent, end, ended):
    state = next_state(TRIAL, WindowState(5.0), status(now, window_sent=sent))
    assert state == WindowState(5.0, pytest.approx(end) if end else None, ended)


def test_a_window_of_whole_passes_closes_with_the_pass_that_its_least_time_is_in():
    def sent(state: WindowState, now: float, number: int) -> WindowState:
        return next_state(TRIAL, state, status(now, window_sent=number), whole=25)

    early = sent(sent(WindowState(5.0), 7.9, 120), 8.1, 130)
    assert 150 == early.closes_at
    assert sent(early, 9.0, 149).end is None
    assert "requests" == sent(early, 9.0, 151).ended
    late = sent(WindowState(5.0), 8.1, 60)
    assert (None, "requests") == (sent(late, 9.0, 99).end, sent(late, 9.0, 103).ended)


def test_announced_ahead_the_window_opens_and_closes_that_much_later():
    assert next_state(TRIAL, WindowState(), status(3.0), lead=0.25).start == 3.25
    assert next_state(TRIAL, WindowState(5.0), status(9.0, window_sent=100), lead=0.25).end == 9.25
    assert next_state(TRIAL, WindowState(5.0), status(60.0), lead=0.25).end == 60.25


def test_the_trial_is_over_when_nothing_of_the_window_is_in_flight():
    closed = WindowState(5.0, 9.0, "requests")
    assert next_state(TRIAL, closed, status(9.1)) == closed
    assert next_state(TRIAL, closed, status(9.2, waiting=False)) == dataclasses.replace(closed, over=True)


@pytest.mark.parametrize("before", STATES)
def test_a_server_that_every_process_has_lost_ends_the_trial_at_once(before):
    parts = [status(30.0, lost=True), status(30.0)]
    assert next_state(TRIAL, before, together(parts)).ended != "server_lost"
    state = next_state(TRIAL, before, together([status(30.0, lost=True)] * 2))
    assert ("server_lost", True, before.end or 30.0) == (state.ended, state.over, state.end)
    assert state.start == (before.start or 30.0)


# --- shares


@given(st.integers(1, 300), st.integers(1, 20))
def test_streams_are_divided_evenly_and_each_belongs_to_one_share(concurrency, count):
    count = min(count, concurrency)
    shares = [Share(i, count).streams(concurrency) for i in range(count)]
    assert sorted(number for share in shares for number in share) == list(range(concurrency))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert min(map(len, shares)) >= 1


@pytest.mark.parametrize("count", [2, 3, 7])
def test_any_number_of_shares_sends_the_very_requests_that_one_process_sends(count):
    target = Target("http://127.0.0.1:1/v1", "m", "completions", dialect="vllm")
    trial = dataclasses.replace(TRIAL, shape=Shape.parse("20-200/10-90"))
    plan = PromptPlan(trial.shape, 3)

    def requests(share: Share, most: int) -> dict[int, object]:
        pipeline = RequestPipeline(trial, target, plan.source(), lambda _: None, share)
        made = [pipeline.next_request() for _ in range(most)]
        return {request.index: request for request in made}

    whole = requests(Share(), 42)
    parts = {index: r for i in range(count) for index, r in requests(Share(i, count), 42 // count).items()}
    assert parts == {index: whole[index] for index in parts}
    assert set(parts) == set(range(42))


def test_nothing_but_failures_end_a_trial_from_the_first_of_them_on():
    failing = status(12.0, failing=1.5)
    assert WindowState(1.5, 12.0, "failing", over=True) == next_state(TRIAL, WindowState(), failing)
    assert WindowState(1.0, 12.0, "failing", over=True) == next_state(TRIAL, WindowState(1.0), failing)
    closed = WindowState(1.0, 11.0, "time")
    assert closed == next_state(TRIAL, closed, failing), "the last requests of a window are waited for"
    assert together([failing, status(12.0)]).failing is None, "one process with an answer shows that some are good"


@pytest.mark.parametrize(("failed", "begins"), [(8, 2.0), (0, 30.0)])
def test_a_window_without_a_send_begins_with_what_its_streams_are_stuck_in(failed, begins):
    """Eight streams, all in requests that they sent before it."""
    at_close = status(60.0, stuck=2.0)
    closed = next_state(TRIAL, WindowState(30.0), at_close)
    assert (2.0, 60.0) == (closed.start, closed.end)
    assert closed == next_state(TRIAL, closed, status(70.0, stuck=2.0)), "they are waited for"
    ended = status(75.0, waiting=False, failed=failed, succeeded=20 - failed)
    assert begins == next_state(TRIAL, closed, ended).start
