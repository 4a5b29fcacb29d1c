"""What a running trial looks like so far, for the eyes of whoever waits: nothing here is stored or decided on.

Fed when a request's record is written, which is off the hot path, and read twice a second: counts in buckets of 3 %,
so that neither takes longer the longer the trial runs.

Everything about requests that need not happen at the moment of sending or receiving.

Requests are made ahead of their send; exchanges are read after their end, a slice at a time, so that neither a long
prompt nor a long answer keeps the event loop from stamping what arrives meanwhile.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from frontier.client.adapters import DIALECTS, Ask
from frontier.client.http import Exchange
from frontier.client.parse import Reading, to_record
from frontier.client.prompts import Prompt, PromptSource
from frontier.client.target import Target
from frontier.model import Outcome, Record

_STEPS = 1 / math.log(1.03)


@dataclass(slots=True)
class SoFar:
    """Requests that ended since `start` (seconds on the trial's clock; None: not yet counting)."""

    start: float | None = None
    tokens: int = 0
    _ttft: dict[int, int] = field(default_factory=dict)
    _n: int = 0

    def add(self, record: Record) -> None:
        """Take one record into account. A failed request is an infinite time to first token, as everywhere."""
        if self.start is None or record.end < self.start or record.outcome in (Outcome.CANCELLED, Outcome.CLIENT):
            return
        self._n += 1
        if record.outcome is Outcome.OK and record.first is not None:
            self.tokens += record.completion_tokens or 0
            step = math.ceil(math.log(max(1e-6, record.first - record.sent)) * _STEPS)
            self._ttft[step] = self._ttft.get(step, 0) + 1

    def rate(self, now: float) -> float | None:
        """Output tokens per second of the requests that ended, whose first tokens may lie before the start; or None."""
        if self.start is None or now <= self.start or not self.tokens:
            return None
        return self.tokens / (now - self.start)

    def ttft(self, p: float) -> float | None:
        """The percentile `p` (0..1) of the time to first token in seconds, within 3 %; None before a first request."""
        if not self._n:
            return None
        wanted, seen = max(1, math.ceil(p * self._n)), 0
        for step in sorted(self._ttft):
            seen += self._ttft[step]
            if seen >= wanted:
                return math.exp(step / _STEPS)
        return math.inf


_SLICE = 32
"""Reads interpreted before giving way to the network: about 0.1 ms."""
_COURTESY = 0.002


@dataclass(frozen=True, slots=True)
class Job:
    """A request made ready: its number, what it asks, its bytes."""

    index: int
    prompt: Prompt
    body: bytes


@dataclass(frozen=True, slots=True)
class Done:
    """A job after its exchange. `scheduled` is the client's clock when it should have been sent (open loop only)."""

    job: Job
    stream: int
    exchange: Exchange
    scheduled: float | None = None


class Clerk:
    """Keeps `stock` requests ready, puts what is done on record. `run()` beside the streams, `finish()` after them."""

    def __init__(self, target: Target, prompts: PromptSource, sink: Callable[[Record], None], stock: int) -> None:
        self._target = target
        self._dialect = DIALECTS[target.dialect or "openai"]
        self._prompts = prompts
        self._sink = sink
        self._stock = stock
        self._ready: deque[Job] = deque()
        self._made = 0
        self._unread: deque[Done] = deque()
        self._wanted = asyncio.Event()
        self.zero = 0.0
        self.failed = 0
        self.so_far = SoFar()
        self.failed_in_a_row = 0
        self._e2e_sum, self._succeeded = 0.0, 0

    @property
    def mean_e2e(self) -> float | None:
        """Mean end-to-end seconds of the successes so far."""
        return self._e2e_sum / self._succeeded if self._succeeded else None

    def stock_up(self, count: int) -> None:
        """Make requests ready before the start."""
        while len(self._ready) < count:
            self._ready.append(self._make())

    def next_job(self) -> Job:
        """A ready request; made on the spot when the stock is out."""
        self._wanted.set()
        return self._ready.popleft() if self._ready else self._make()

    def put(self, done: Done) -> None:
        """Hand in a finished exchange."""
        self._unread.append(done)
        self._wanted.set()

    def _make(self) -> Job:
        prompt, target = self._prompts(self._made), self._target
        salt = prompt.salt if target.salted else None
        ask = Ask(
            target.model or "", prompt.content, prompt.osl, target.ignore_eos, salt, prompt.shares, target.extra_body
        )
        job = Job(self._made, prompt, self._dialect.body(target.api, ask))
        self._made += 1
        return job

    async def run(self) -> None:
        """Work for ever, giving way after every small piece."""
        while True:
            while self._unread or len(self._ready) < self._stock:
                if len(self._ready) < self._stock:
                    self._ready.append(self._make())
                    await asyncio.sleep(0)
                if self._unread:
                    done = self._unread[0]  # stays there until it is read: the trial may end between two slices
                    reading = Reading(done.exchange, self._dialect, self._target.api)
                    while reading.take(_SLICE):  # noqa: ASYNC110 - gives way between slices, waits for nothing
                        await asyncio.sleep(0)
                    self._unread.popleft()
                    self._record(done, reading)
                    await asyncio.sleep(0)
            self._wanted.clear()
            await self._wanted.wait()
            # Whoever rang has a request to send first.
            await asyncio.sleep(_COURTESY)

    def finish(self) -> None:
        """Read what is left, at once: nothing is measured any more."""
        while self._unread:
            done = self._unread.popleft()
            reading = Reading(done.exchange, self._dialect, self._target.api)
            reading.take(len(done.exchange.reads))
            self._record(done, reading)

    def _record(self, done: Done, reading: Reading) -> None:
        prompt = done.job.prompt
        record = to_record(
            reading,
            index=done.job.index,
            stream=done.stream,
            isl=prompt.isl,
            osl=prompt.osl if self._target.ignore_eos else 0,
            zero=self.zero,
            scheduled=None if done.scheduled is None else done.scheduled - self.zero,
        )
        if record.outcome is Outcome.OK:
            self._e2e_sum += record.end - record.sent
            self._succeeded += 1
            self.failed_in_a_row = 0
        elif record.outcome is not Outcome.CANCELLED:
            self.failed += 1
            self.failed_in_a_row += record.outcome is not Outcome.CLIENT
        self.so_far.add(record)
        self._sink(record)
