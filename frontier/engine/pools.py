"""Disaggregated serving: one pool of instances reads the prompts, another decodes, and the KV moves between them.

After vLLM with a KV connector (NIXL): a request is sent to the prefill instance with the fewest, which reads its prompt
and keeps the KV; then to the decode instance with the fewest, which reserves blocks at a step of its own, pulls the KV
over, reads the last prompt token again and so gives the first token the client sees. The links of an instance carry one
request's KV after another. What is preempted in the decode pool is recomputed there.

Each instance is a `Scheduler` with a clock of its own; `Disaggregated` is driven event by event in the caller's time.
"""

import dataclasses
import heapq
import math
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial

from frontier.engine.instances import DecodeInstance, PrefillInstance, Receiving, SpeculatingDecodeInstance
from frontier.engine.price import transfer_of
from frontier.engine.scheduler import Drafted, RequestId, Step
from frontier.engine.spec import EngineSpec


@dataclass(slots=True, eq=False)
class _Reader:
    """A prefill instance in time: the step that runs, whether one is about to begin, when its link is free again."""

    scheduler: PrefillInstance
    step: Step | None = None
    waking: bool = False
    link_free: float = 0.0

    @property
    def load(self) -> int:
        """Requests it has to do with, those whose KV it still keeps among them."""
        return self.scheduler.running + self.scheduler.waiting + self.scheduler.kept


@dataclass(slots=True, eq=False)
class _Writer:
    """A decode instance in time. `pending` wait for room in it, their KV in their prefill instance."""

    scheduler: Receiving
    step: Step | None = None
    waking: bool = False
    pending: deque[RequestId] = field(default_factory=deque)

    @property
    def load(self) -> int:
        """Requests it has to do with."""
        return self.scheduler.running + self.scheduler.waiting + self.scheduler.moving + len(self.pending)


@dataclass(slots=True)
class _Passage:
    """A request on its way through the pools."""

    prompt: int
    output: int
    reader: _Reader
    writer: _Writer | None = None
    cached: int = 0


class Disaggregated:
    """The deployment of a spec with `disaggregation`. `next_event` says when something happens, `advance` does it.

    Submit what arrives at a moment before the events of that moment are done.
    """

    def __init__(self, spec: EngineSpec) -> None:
        spec.check()
        assert spec.disaggregation is not None
        pools = spec.disaggregation
        self.spec = spec
        self._per_token, self._latency = transfer_of(spec)
        alone = dataclasses.replace(spec, disaggregation=None)

        def seeded(own: EngineSpec, number: int) -> EngineSpec:
            return dataclasses.replace(own, seed=spec.seed * 1009 + number)

        read, write = dataclasses.replace(alone, speculation=None), dataclasses.replace(alone, prefix_cache=False)
        kind = DecodeInstance if spec.speculation is None else SpeculatingDecodeInstance
        self._readers = [_Reader(PrefillInstance(seeded(read, i))) for i in range(pools.prefill)]
        self._writers = [_Writer(kind(seeded(write, pools.prefill + i))) for i in range(pools.decode)]
        self._passages: dict[RequestId, _Passage] = {}
        self._events: list[tuple[float, int, Callable[[float], Step | None]]] = []
        self._order = self._emitted = 0
        self._last = 0.0

    # -- what is asked of it -------------------------------------------------------------------------------------------

    @property
    def next_event(self) -> float:
        """When something happens next; inf when nothing will."""
        return self._events[0][0] if self._events else math.inf

    def advance(self) -> Step | None:
        """Do what happens next; the step whose tokens leave then, if any do. Its `number` counts such steps, its
        `start` is the end of the one before it, whichever instances the two are of."""
        now, _, happen = heapq.heappop(self._events)
        return happen(now)

    def submit(
        self, name: RequestId, prompt_tokens: int, output_tokens: int, hashes: Sequence[Hashable], now: float
    ) -> None:
        """A request arrives at `now`. ValueError as for a `Scheduler`."""
        if name in self._passages:
            raise ValueError(f"request {name!r} is already in the engine")
        self._writers[0].scheduler.check(prompt_tokens, output_tokens)
        reader = min(self._readers, key=lambda one: one.load)
        reader.scheduler.submit(name, prompt_tokens, 1, hashes)
        self._passages[name] = _Passage(prompt_tokens, output_tokens, reader)
        self._wake_reader(reader, now)

    def cancel(self, name: RequestId, now: float) -> bool:
        """Drop a request wherever it is; False when it is not (any more) in the engine."""
        passage = self._passages.pop(name, None)
        if passage is None:
            return False
        reader, writer = passage.reader, passage.writer
        if writer is None:
            reader.scheduler.cancel(name)  # when its last step is under way, that lets go of it
        elif name in writer.pending:
            writer.pending.remove(name)
            reader.scheduler.let_go(name)
        else:
            if writer.scheduler.is_moving(name):
                reader.scheduler.let_go(name)
            writer.scheduler.cancel(name)
            self._wake_writer(writer, now)
        self._wake_reader(reader, now)
        return True

    # -- what happens --------------------------------------------------------------------------------------------------

    def _at(self, when: float, happen: Callable[[float], Step | None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (when, self._order, happen))

    def _wake_reader(self, reader: _Reader, now: float) -> None:
        """It begins a step at `now`, after all that arrives then, unless one runs."""
        if reader.step is None and not reader.waking:
            reader.waking = True
            self._at(now, partial(self._read, reader))

    def _wake_writer(self, writer: _Writer, now: float) -> None:
        if writer.step is None and not writer.waking:
            writer.waking = True
            self._at(now, partial(self._write, writer))

    def _read(self, reader: _Reader, now: float) -> None:
        reader.waking = False
        reader.step = reader.scheduler.step(now)
        if reader.step is not None:
            self._at(reader.step.end, partial(self._was_read, reader))

    def _was_read(self, reader: _Reader, now: float) -> None:
        """Prompts are done: their requests go to a decode instance, and wait for room there."""
        step, reader.step = reader.step, None
        assert step is not None
        for name, cached in zip(step.first, step.cached, strict=True):
            passage = self._passages.get(name)
            if passage is None:  # cancelled meanwhile
                reader.scheduler.let_go(name)
                continue
            passage.cached = cached
            passage.writer = min(self._writers, key=lambda one: one.load)
            passage.writer.pending.append(name)
            self._wake_writer(passage.writer, now)
        self._wake_reader(reader, now)

    def _write(self, writer: _Writer, now: float) -> None:
        """Room is reserved for those that wait for it, whose KV then begins to move; and the step begins."""
        writer.waking = False
        while writer.pending:
            name = writer.pending[0]
            passage = self._passages[name]
            if not writer.scheduler.hold(name, passage.prompt, passage.output, passage.cached):
                break
            writer.pending.popleft()
            reader = passage.reader
            reader.link_free = max(now, reader.link_free) + passage.prompt * self._per_token
            self._at(reader.link_free + self._latency, partial(self._moved, name))
        writer.step = writer.scheduler.step(now)
        if writer.step is not None:
            self._at(writer.step.end, partial(self._written, writer))

    def _moved(self, name: RequestId, now: float) -> None:
        passage = self._passages.get(name)
        if passage is None:  # cancelled meanwhile
            return
        assert passage.writer is not None
        passage.reader.scheduler.let_go(name)
        passage.writer.scheduler.enter(name)
        self._wake_reader(passage.reader, now)
        self._wake_writer(passage.writer, now)

    def _written(self, writer: _Writer, now: float) -> Step:
        """Tokens leave."""
        step, writer.step = writer.step, None
        assert step is not None
        for name in step.finished:
            self._passages.pop(name, None)
        self._wake_writer(writer, now)
        counts = (1,) * len(step.tokens) if step.counts is None else step.counts
        number, start = self._emitted, self._last
        self._emitted, self._last = number + 1, now
        return step._replace(
            number=number, start=start, duration=now - start, counts=counts, running=self.running,
            waiting=self.waiting, kv_used=self.kv_used,
        )  # fmt: skip

    # -- how it stands -------------------------------------------------------------------------------------------------

    @property
    def max_len(self) -> int:
        """Longest prompt plus output it takes."""
        return self._writers[0].scheduler.max_len

    @property
    def running(self) -> int:
        """Requests in a batch of either pool."""
        return sum(one.scheduler.running for one in self._all)

    @property
    def waiting(self) -> int:
        """Requests that wait in either pool, or for their KV."""
        moving = sum(one.scheduler.moving + len(one.pending) for one in self._writers)
        return moving + sum(one.scheduler.waiting for one in self._all)

    @property
    def kv_used(self) -> float:
        """Share of KV blocks in use in the decode pool."""
        return sum(one.scheduler.kv_used for one in self._writers) / len(self._writers)

    @property
    def _all(self) -> list[_Reader | _Writer]:
        return [*self._readers, *self._writers]

    @property
    def preemptions(self) -> int:
        """In both pools."""
        return sum(one.scheduler.preemptions for one in self._all)

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of the requests the prefill pool began."""
        return sum(one.scheduler.prompt_tokens for one in self._readers)

    @property
    def generated_tokens(self) -> int:
        """Tokens the decode pool made."""
        return sum(one.scheduler.generated_tokens for one in self._writers)

    @property
    def cache_queries(self) -> int:
        """Prompt tokens the prefill pool looked up."""
        return sum(one.scheduler.cache_queries for one in self._readers)

    @property
    def cache_hits(self) -> int:
        """Prompt tokens it found cached."""
        return sum(one.scheduler.cache_hits for one in self._readers)

    @property
    def drafted(self) -> Drafted | None:
        """What the decode pool drafted; None when it does not."""
        found = [one.scheduler.drafted for one in self._writers]
        return Drafted.sum([one for one in found if one is not None])
