"""The request pipeline: requests are prepared ahead of their send, answers parsed after their end,
a slice at a time.

So neither a long prompt nor a long answer keeps the event loop from stamping what arrives
meanwhile. `LiveStats` is how a running trial stands, for display: nothing of it is stored or
decided on.
"""

import asyncio
import bisect
import functools
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from frontier.client.ask.identify import LONGEST_MODEL
from frontier.client.ask.prompts import PromptSource
from frontier.client.ask.target import Target
from frontier.client.engines.request import PreparedRequest, Prompt, TurnReply
from frontier.client.http.exchange import Exchange
from frontier.client.http.parse import AnswerParser, to_record
from frontier.client.load.rules import MeanTimes, first_length
from frontier.core.model.errors import MeasurementError
from frontier.core.model.groups import by_key
from frontier.core.model.trials import TOGETHER, Outcome, Record, Trial

_MOST_AHEAD = 256
MOST_NAMED = 16
_SLICE = 32
"""Reads parsed before giving way to the network: about 0.1 ms."""
_COURTESY = 0.002
"""Seconds left to the stream that set `_wake` before work goes on: it has a request to send first.
"""


@dataclass(slots=True)
class LiveStats:
    """Requests that ended since `start` (seconds on the trial's clock; None: not yet counting)."""

    start: float | None = None
    tokens: int = 0
    _ttft: list[float] = field(default_factory=list)
    """Sorted."""

    def add(self, record: Record) -> None:
        """Take one record into account. A failed request is an infinite time to first token, as
        everywhere.
        """
        if self.start is None or record.end < self.start or record.outcome in (Outcome.CANCELLED, Outcome.CLIENT):
            return
        ttft = math.inf
        if record.outcome is Outcome.OK and record.first is not None:
            self.tokens += record.completion_tokens or 0
            ttft = record.first - record.sent
        bisect.insort(self._ttft, ttft)

    def rate(self, now: float) -> float | None:
        """Output tokens per second of the requests that ended, whose first tokens may lie before
        the start; or None.
        """
        if self.start is None or now <= self.start or not self.tokens:
            return None
        return self.tokens / (now - self.start)

    def ttft(self, p: float) -> float | None:
        """The percentile `p` (0..1) of the time to first token in seconds; None before a first
        request.
        """
        return self._ttft[max(0, math.ceil(p * len(self._ttft)) - 1)] if self._ttft else None


class Named:
    """How many answers named which model and which fingerprint of the system, cleaned; beyond
    MOST_NAMED of a field all others are one.
    """

    def __init__(self, target: Target) -> None:
        self._clean = functools.cache(lambda text: target.cleaned(text, LONGEST_MODEL))
        self._counts = {"asked": Counter({self._clean(target.model or ""): 0})}

    def add(self, named: Iterable[tuple[str, str]]) -> None:
        """Take in what one answer named. Several names in its chunks, as a gateway's alias and the
        name behind it, are one name.
        """
        for field_name, values in by_key((name, self._clean(value)) for name, value in sorted(named)).items():
            known, text = self._counts.setdefault(field_name, Counter()), TOGETHER.join(values)
            known[text if text in known or len(known) < MOST_NAMED else "others"] += 1

    def counts(self) -> dict[str, dict[str, int]]:
        """The values of each field, with the number of answers that gave them; empty where no
        answer named anything.
        """
        return {name: dict(known) for name, known in self._counts.items()} if len(self._counts) > 1 else {}


def named_together(parts: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    """The sum of what answers named, over several client processes."""
    sums: dict[str, Counter[str]] = {}
    for part in parts:
        for name, counts in part.items():
            sums.setdefault(name, Counter()).update(counts)
    return {name: dict(counts) for name, counts in sums.items()}


@dataclass(frozen=True, slots=True)
class Share:
    """The streams and requests of a trial that one of `of` processes has: those numbered `index`,
    `index` + `of`, ...

    Streams differ by at most one between processes, and stream k sends request k first whatever
    `of` is.
    """

    index: int = 0
    of: int = 1

    def streams(self, concurrency: int) -> range:
        """The numbers of its streams."""
        return range(self.index, concurrency, self.of)


WHOLE = Share()


class RequestPipeline:
    """Keeps requests of a trial ready, and turns finished exchanges into records. `run()` beside
    the streams, `finish()` after them. `zero` is the trial's start on the client's clock.

    A session is one request, or turns that follow each other; the sessions of a trial are numbered,
    and only those of the `share` are made. In a closed loop the first requests of the `short` first
    sessions ask for a random share of their output length (see `rules`), where the length can be
    forced.
    """

    def __init__(
        self,
        trial: Trial,
        target: Target,
        prompts: PromptSource,
        on_record: Callable[[Record], None],
        share: Share = WHOLE,
    ) -> None:
        """Also prepares the first requests, which takes a while. MeasurementError when preflight
        has not settled what the target left open.
        """
        if target.api == "auto" or target.model is None:
            raise MeasurementError("the target is not settled: its api or model is unknown", "run preflight first")
        streams = len(share.streams(trial.streams))
        self._trial, self._target = trial, target
        self._prompts = prompts
        self._on_record = on_record
        self._stock = 2 + streams // 8
        self.short = trial.load.turns(1) if target.forces_length else 0
        self._next, self._step = share.index, share.of
        self._shortened: set[int] = set()
        self._awaited: dict[int, asyncio.Future[TurnReply | None]] = {}
        self._unread: deque[Exchange] = deque()
        self._wake = asyncio.Event()
        self.zero = 0.0
        self.failed = 0
        self.failed_in_a_row = 0
        self.failing_from = 0.0
        """When the first of those in a row was sent, on the trial's clock."""
        self.longest_wait: float | None = None
        """Seconds until a good answer began, or went on, at the most; None before there was one."""
        self.live = LiveStats()
        self.named = Named(target)
        self.times = MeanTimes()
        self._ready = deque(self._prepare() for _ in range(min(streams, _MOST_AHEAD)))

    def next_request(self) -> PreparedRequest:
        """The first request of the next session; prepared on the spot when the stock is out."""
        self._wake.set()
        return self._ready.popleft() if self._ready else self._prepare()

    async def next_turn(self, request: PreparedRequest) -> PreparedRequest | None:
        """The request with which a session goes on after this one, which was handed in; None when
        it is over, as after a failure.
        """
        if request.prompt.turn is None or request.prompt.turn.then is None:
            return None
        answer = await self._awaited[request.index]
        del self._awaited[request.index]
        return None if answer is None else self._request(request.session, request.prompt.turn.then(answer))

    def put(self, exchange: Exchange, request: PreparedRequest, stream: int, scheduled: float | None = None) -> None:
        """Hand in a finished exchange."""
        exchange.request, exchange.stream, exchange.scheduled = request, stream, scheduled
        if request.goes_on:
            self._awaited[request.index] = asyncio.get_running_loop().create_future()
        self._unread.append(exchange)
        self._wake.set()

    def _prepare(self) -> PreparedRequest:
        number = self._next
        self._next += self._step
        prompt = self._prompts(number)
        if number < self.short:
            prompt = replace(prompt, osl=first_length(prompt.osl, self._trial.seed, number))
        request = self._request(number, prompt)
        if number < self.short:
            self._shortened.add(request.index)
        return request

    def _request(self, session: int, prompt: Prompt) -> PreparedRequest:
        index = session * self._trial.shape.most_turns + (0 if prompt.turn is None else prompt.turn.number)
        osl = prompt.osl if self._target.ignore_eos else 0
        return PreparedRequest(index, self._target.request_body(prompt), osl, session, prompt)

    async def run(self) -> None:
        """Work for ever, giving way after every small piece."""
        while True:
            while self._unread or len(self._ready) < self._stock:
                if len(self._ready) < self._stock:
                    self._ready.append(self._prepare())
                    await asyncio.sleep(0)
                if self._unread:
                    # It stays in the queue until it is on record: the trial may end, and this task
                    # be cancelled, between two slices, and `finish` must find it then.
                    parser = self._parser(self._unread[0])
                    while parser.parse(_SLICE):  # noqa: ASYNC110 - gives way between slices, waits for nothing
                        await asyncio.sleep(0)
                    self._unread.popleft()
                    self._record(parser)
                    await asyncio.sleep(0)
            self._wake.clear()
            await self._wake.wait()
            await asyncio.sleep(_COURTESY)

    def finish(self) -> None:
        """Parse the remaining answers at once: nothing is measured any more."""
        while self._unread:
            parser = self._parser(self._unread.popleft())
            parser.parse(len(parser.exchange.reads))
            self._record(parser)

    def _parser(self, exchange: Exchange) -> AnswerParser:
        """The parser of an answer, as far as it has come."""
        if exchange.parser is None:
            exchange.parser = AnswerParser(exchange, self._target.engine, self._target.api)
        parser: AnswerParser = exchange.parser
        return parser

    def _record(self, parser: AnswerParser) -> None:
        record = to_record(parser, self.zero)
        parser.exchange.parser = None  # a cycle of references would wait for the garbage collector
        if record.outcome is Outcome.OK:
            self.failed_in_a_row = 0
            first = record.end if record.first is None else record.first
            self.longest_wait = max(self.longest_wait or 0.0, first - record.sent, max(record.gaps, default=0) / 1e6)
            self.named.add(parser.state.named)  # of an answer that was cut off it is not known what it would name
            if record.index not in self._shortened:
                gaps, tpot = (record.completion_tokens or 0) - 1, None
                if gaps > 0 and record.first is not None and record.last is not None:
                    tpot = (record.last - record.first) / gaps
                self.times.add(record.end - record.sent, tpot)
        elif record.outcome is not Outcome.CANCELLED:
            self.failed += 1
            if record.outcome is not Outcome.CLIENT:
                self.failing_from = record.sent if self.failed_in_a_row == 0 else min(self.failing_from, record.sent)
                self.failed_in_a_row += 1
        self.live.add(record)
        self._on_record(record)
        awaited = self._awaited.get(record.index)
        if awaited is not None and not awaited.done():
            awaited.set_result(_answer(parser, record) if record.outcome is Outcome.OK else None)


def _answer(parser: AnswerParser, record: Record) -> TurnReply:
    text, asked = "".join(parser.state.texts or ()), parser.exchange.request.osl
    comes_back = record.completion_tokens
    if comes_back is not None and len(text) < record.text_chars:
        # Reasoning and tool calls are no part of the history: they are taken to have as much text
        # per token as the rest.
        comes_back = round(comes_back * len(text) / record.text_chars)
    return TurnReply(text, record.prompt_tokens, comes_back, asked)
