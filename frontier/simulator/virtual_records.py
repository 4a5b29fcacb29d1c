"""Records of a run in virtual time: each request with the steps that gave it tokens, as records or as arrays."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from frontier.model import Outcome, Record, Window

Floats = npt.NDArray[np.float64]
_CHARS_PER_TOKEN = 5


@dataclass(slots=True)
class Sent:
    """One request of the run. `spans` are the first and one past the last of the step numbers that gave it one token
    each; where steps give several, or not every step gives any, `steps` and `counts` say which gave how many."""

    index: int
    stream: int
    sent: float
    prompt: int
    output: int
    spans: list[tuple[int, int]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    open: int = -1
    cached: int = 0
    done: bool = False
    session: int | None = None
    turn: int | None = None
    reusable: int | None = None
    class_index: int | None = None


@dataclass(frozen=True, slots=True)
class Took:
    """Everything that happened: requests in the order of sending, the end of every step, the window, and gauges.

    `delay` is the mean of what streams waited on purpose before they sent again, in the window.
    In open loop a request is sent when it arrives.
    """

    requests: list[Sent]
    ends: Floats
    window: Window
    until: float
    ended: Literal["requests", "time"]
    server: dict[str, float]
    delay: float
    open_loop: bool = False


@dataclass(frozen=True, slots=True)
class Arrays:
    """The requests sent in the window, in that order: seconds, and output tokens. `tpot` is NaN for a single token.

    `output_tokens` arrived in the window, whoever sent for them.
    """

    sent: Floats
    ttft: Floats
    tpot: Floats
    e2e: Floats
    tokens: npt.NDArray[np.int64]
    window: Window
    output_tokens: int

    @property
    def output_throughput(self) -> float:
        """Tokens per second that arrived in the window."""
        return self.output_tokens / self.window.length


def counts_in(request: Sent, window: Window) -> bool:
    """It was sent in the window."""
    return window.start <= request.sent <= window.end


def _arrived(request: Sent, low: int, high: int) -> int:
    """Tokens it got in the steps from `low` to before `high`."""
    if request.steps:
        return sum(count for step, count in zip(request.steps, request.counts, strict=True) if low <= step < high)
    return sum(max(0, min(b, high) - max(a, low)) for a, b in request.spans)


def token_times(request: Sent, ends: Floats) -> Floats:
    """When each of the steps that gave it tokens ended."""
    if request.steps:
        return ends[request.steps]
    return np.concatenate([ends[a:b] for a, b in request.spans] or [ends[:0]])


def arrays_of(run: Took) -> Arrays:
    """The window's figures, without touching single tokens except those at the window's edges."""
    inside = [request for request in run.requests if counts_in(request, run.window)]
    sent = np.array([request.sent for request in inside])
    tokens = np.array([request.output for request in inside], dtype=np.int64)
    first = run.ends[[request.steps[0] if request.steps else request.spans[0][0] for request in inside]]
    last = run.ends[[request.steps[-1] if request.steps else request.spans[-1][1] - 1 for request in inside]]
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(tokens > 1, (last - first) / (tokens - 1), np.nan)
    low, high = np.searchsorted(run.ends, [run.window.start, run.window.end])
    output = sum(_arrived(request, int(low), int(high)) for request in run.requests)
    return Arrays(sent, first - sent, tpot, last - sent, tokens, run.window, output)


def records_of(run: Took) -> list[Record]:
    """The run as the client would have written it; what was in flight at the end is cancelled."""
    return [_record(request, run) for request in run.requests]


def _record(request: Sent, run: Took) -> Record:
    times = token_times(request, run.ends)
    tokens = sum(request.counts) if request.steps else len(times)
    seen = len(times)
    first, last = (float(times[0]), float(times[-1])) if seen else (None, None)
    return Record(
        index=request.index,
        stream=request.stream,
        sent=request.sent,
        outcome=Outcome.OK if request.done else Outcome.CANCELLED,
        end=last if request.done and last is not None else run.until,
        asked_isl=request.prompt,
        asked_osl=request.output,
        first=first,
        visible=first,
        last=last,
        prompt_tokens=request.prompt if request.done else None,
        completion_tokens=request.output if request.done else None,
        cached_tokens=request.cached if request.done else None,
        events=seen,
        reads=seen,
        text_bytes=tokens * _CHARS_PER_TOKEN,
        text_chars=tokens * _CHARS_PER_TOKEN,
        finish_reason="length" if request.done else None,
        status=200,
        scheduled=request.sent if run.open_loop else None,
        gaps=tuple(np.rint(np.diff(times) * 1e6).astype(np.int64).tolist()),
        session=request.session,
        turn=request.turn,
        reusable=request.reusable,
        class_index=request.class_index,
    )
