"""The rules of a trial's load: pacing of the streams, and when the window opens and closes.

They also say when a trial is over or given up.

Pacing is the same over HTTP and in virtual time. Requests of equal length that end in one step of
the engine are sent again together, and stay together for good. So the streams begin at random
points of a request's life, as if the load had been on for long. The first request of each stream,
which is never counted, asks for a random share of the output length
(docs/decisions/0010-lockstep.md). A long step or a pause of the machine joins requests later; that
is undone slowly. A send that follows another closely waits for a moment, never longer than one
decode step.

The rules of the window are pure functions of the trial, of how its streams stand, and of what was
decided before. The streams may be in one process or divided among several. The rules see the sum,
so they are the same for any number of processes.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from frontier.client.load.session_plans import EARLY
from frontier.core.model.trials import Phase, Trial

# --- pacing

_GAP = 0.5
"""The least distance of sends, as a share of their mean gap: less than 1, so that sends keep their
irregular distances."""
_MOST = 0.015
"""The longest delay, as a share of a request's E2E: with short answers a decode step is a large
share of it, and N must be in flight within 2%."""


def first_length(osl: int, seed: int, stream: int) -> int:
    """Output tokens of a stream's first request, uniform in 1..`osl`."""
    return max(1, math.ceil(osl * random.Random(f"{seed}/first/{stream}").random()))


class Pacing:
    """When the streams of one trial may send again."""

    def __init__(self, streams: int) -> None:
        self._streams = streams
        self._last = -math.inf

    def delay(self, now: float, tpot: float | None, e2e: float | None) -> float:
        """Seconds that a stream which is free `now` waits before it sends.

        At most `tpot`, the mean time per output token so far, which is one decode step; `e2e` is
        the mean of whole requests. While they are not known, for answers of one token and for a
        single stream there is no delay.
        """
        if tpot is None or e2e is None or self._streams == 1:
            return 0.0
        wait = min(max(0.0, self._last + _GAP * e2e / self._streams - now), tpot, _MOST * e2e)
        self._last = max(self._last, now + wait)
        return wait


class MeanTimes:
    """Mean times of the requests of full length that have ended well so far. `count` requests took
    `e2e_sum` seconds; `early_e2e` is the mean of the first EARLY, or of all while they are fewer.
    """

    def __init__(self) -> None:
        self.count = self._timed = 0
        self.e2e_sum = self._tpot_sum = self.early_e2e = 0.0

    def add(self, e2e: float, tpot: float | None = None) -> None:
        """Take one in, with its time per output token where it has one."""
        self.count += 1
        self.e2e_sum += e2e
        if self.count <= EARLY:
            self.early_e2e = self.e2e_sum / self.count
        if tpot is not None:
            self._timed += 1
            self._tpot_sum += tpot

    @property
    def e2e(self) -> float | None:
        """Mean end-to-end seconds; None before the first."""
        return self.e2e_sum / self.count if self.count else None

    @property
    def tpot(self) -> float | None:
        """Mean seconds per output token; None while no answer had two tokens."""
        return self._tpot_sum / self._timed if self._timed else None


# --- the window

Ended = Literal["requests", "time", "failing", "budget", "interrupted", "server_lost"]
TrialStage = Literal["ramp", "warmup", "window", "hold"]

WARMUP_SHARE = 0.5
SEND = 0.02
"""Seconds that may pass, at the most, between the decision to send and the bytes on their way."""
_SILENT, _SILENCES = 10.0, 5.0
"""A request is given up, once the window has closed, after this many seconds without a byte, or
this many times the longest wait of an answer, whichever is longer."""


def patience(longest_wait: float = 0.0) -> float:
    """Seconds without a byte after which a request is given up once the window has closed, where
    no answer of the trial has kept one waiting for longer than `longest_wait`.
    """
    return max(_SILENT, _SILENCES * longest_wait)


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """How streams stand at `now`, in seconds on the trial's clock.

    `begun` of them have ended their first request. `finished` requests have ended, `failed` of them
    failed; `window_sent` were sent in the window so far. `waiting`: a request of the window may
    still be in flight. `succeeded` requests of full length took `e2e_sum` seconds, the first ones
    `early_e2e` on average. `lost`: no connection, or not a word, for so long that the server is
    gone. `failing`: since when every request was answered with a failure, where that has lasted.
    `stuck`: when the earliest request was sent that is still open. `silent`: the seconds of the
    requests that have been silent for long; only in the report of a client process.
    """

    now: float
    begun: int = 0
    finished: int = 0
    failed: int = 0
    in_flight: int = 0
    window_sent: int = 0
    waiting: bool = True
    succeeded: int = 0
    e2e_sum: float = 0.0
    lost: bool = False
    failing: float | None = None
    early_e2e: float = 0.0
    stuck: float | None = None
    silent: tuple[float, ...] = ()

    @property
    def mean_e2e(self) -> float | None:
        """Mean end-to-end seconds of the successes of full length so far."""
        return self.e2e_sum / self.succeeded if self.succeeded else None


def together(statuses: Sequence[StreamStatus]) -> StreamStatus:
    """The status of all streams of a trial, from those of its processes.

    It is as old as the oldest of them. One process with a success or with bytes coming in shows
    that the server lives.
    """
    failing = [s.failing for s in statuses if s.failing is not None]
    stuck = [s.stuck for s in statuses if s.stuck is not None]
    return StreamStatus(
        now=min(s.now for s in statuses),
        begun=sum(s.begun for s in statuses),
        finished=sum(s.finished for s in statuses),
        failed=sum(s.failed for s in statuses),
        in_flight=sum(s.in_flight for s in statuses),
        window_sent=sum(s.window_sent for s in statuses),
        waiting=any(s.waiting for s in statuses),
        succeeded=sum(s.succeeded for s in statuses),
        e2e_sum=sum(s.e2e_sum for s in statuses),
        lost=all(s.lost for s in statuses),
        failing=min(failing) if len(failing) == len(statuses) else None,
        stuck=min(stuck, default=None),
        silent=tuple(seconds for s in statuses for seconds in s.silent),
    )


@dataclass(frozen=True, slots=True)
class WindowState:
    """The state of a trial's window: it opens at `start` and closes at `end`, in seconds on the
    trial's clock, because of `ended`.

    `over`: the trial ends, and the requests in flight are cut off. `stuck` is for a window in which
    no request was sent: when it began, and how many more requests had succeeded than failed by its
    end. `closes_at` is the number of requests with which one of whole passes closes, known
    after its least time.
    """

    start: float | None = None
    end: float | None = None
    ended: Ended | None = None
    over: bool = False
    stuck: tuple[float, int] | None = None
    closes_at: int | None = None

    def stage(self, now: float, all_begun: bool) -> TrialStage:
        """The stage of the trial at `now`."""
        if self.start is None or now < self.start:
            return "warmup" if all_begun else "ramp"
        return "window" if self.end is None else "hold"

    def cut_short(self, now: float, why: Ended) -> "WindowState":
        """The trial ends at once; also in the hold, where requests of the window are then cut
        off.
        """
        start = now if self.start is None else min(self.start, now)
        return WindowState(start, now if self.end is None else self.end, why, over=True)


def warm(trial: Trial, status: StreamStatus) -> bool:
    """The window may open. Warm-up may take at most half of the trial's max_time; then it opens as
    things are.

    Closed loop: every stream has finished its first request; 2 N requests, two latencies and the
    asked warm-up have passed. A scan, whose values prove nothing, does not wait for the second half
    of that.

    Open loop: the asked warm-up and two latencies have passed, something has been answered, and
    sessions have had the time to come to their last turn.
    """
    now, e2e = status.now, status.mean_e2e
    if now >= trial.max_time * WARMUP_SHARE:
        return True
    if trial.load.is_open:
        lasting = trial.shape.session_seconds(status.early_e2e)
        return e2e is not None and now >= max(trial.warmup, 2 * e2e, lasting)
    if status.begun < trial.load.turns(1) or now < trial.warmup:
        return False
    settled = status.finished >= trial.load.turns(2) and now >= 2 * (e2e or 0.0)
    return settled or trial.phase is Phase.SCAN


def next_state(
    trial: Trial, state: WindowState, status: StreamStatus, *, lead: float = 0.0, whole: int = 1
) -> WindowState:
    """The window's state after this status; `state` itself where nothing changes.

    `lead` is how many seconds ahead the window opens and closes, so that all processes have heard
    of it by then. Its requests are a multiple of `whole`, the prompts of one pass over a file, once
    `measured_to_pass` has cut off those that were sent while it closed.
    """
    now, start = status.now, state.start
    if status.lost:
        return state.cut_short(now, "server_lost")
    if status.failing is not None and state.end is None:
        return replace(state.cut_short(now, "failing"), start=status.failing if start is None else start)
    if start is None:
        return replace(state, start=now + lead) if warm(trial, status) else state
    if state.end is None:
        if whole > 1 and state.closes_at is None and now - start >= trial.min_time:
            wanted = max(trial.requests, status.window_sent)
            state = replace(state, closes_at=math.ceil(wanted / whole) * whole)
        if status.window_sent >= (state.closes_at or trial.requests) and now - start >= trial.min_time:
            # A little later than now: the last one decided on must also be on its way within the
            # window.
            return replace(state, end=now + max(SEND, lead), ended="requests")
        if trial.seconds is not None and now - start >= trial.seconds and status.window_sent:
            return replace(state, end=now + max(SEND, lead), ended="time")
        return _closed(state, start, status, lead) if now >= trial.max_time else state
    if status.waiting:
        return state
    return replace(state, start=_reopened(state, status), over=True)


def _closed(state: WindowState, start: float, status: StreamStatus, lead: float) -> WindowState:
    """The window, closed by its time. If no request was sent in it, it begins with the earliest
    request that its streams are stuck in.
    """
    closed = replace(state, end=max(start, status.now + lead), ended="time")
    if status.window_sent or status.stuck is None:
        return closed
    return replace(closed, start=min(start, status.stuck), stuck=(start, status.succeeded - status.failed))


def _reopened(state: WindowState, status: StreamStatus) -> float | None:
    """When the window began. If most of the requests that its streams were stuck in succeeded, they
    were sent while the streams began and show no load: it is empty, as it was.
    """
    if state.stuck is None or status.succeeded - status.failed <= state.stuck[1]:
        return state.start
    return state.stuck[0]
