"""The instances of disaggregated serving: schedulers that only read prompts, or decode what was read elsewhere.

Disaggregated serving: one pool of instances reads the prompts, another decodes, and the KV moves between them.

After vLLM with a KV connector (NIXL): a request is sent to the prefill instance with the fewest, which reads its prompt
and keeps the KV; then to the decode instance with the fewest, which reserves blocks at a step of its own, pulls the KV
over, reads the last prompt token again and so gives the first token the client sees. The links of an instance carry one
request's KV after another. What is preempted in the decode pool is recomputed there.

Each instance is a `Scheduler` with a clock of its own; `Disaggregated` is driven event by event in the caller's time.

The speed of light of separate prefill and decode pools, with KV moved between them.

No request takes less than an idle prefill, the move of its KV and its decode steps; and no pool does more than it can:
the prefill pool its arithmetic, its links every prompt's KV, the decode pool the steps of as many requests as its
memory holds. How many decode at a time follows from Little's law, since those that are read or moved are in no batch.
They are taken to be spread evenly over the decode instances, which is best for all.
"""

import dataclasses
import heapq
import math
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from frontier.hardware.roofline import PHASE, Bound, Limits, ModelRoofline, Roofline, context_of
from frontier.model import Shape
from frontier.simulator.engine import Drafted, Request, RequestId, Scheduler, Step
from frontier.simulator.spec import EngineSpec
from frontier.simulator.speculative import SpeculativeScheduler
from frontier.simulator.step_cost import roofline_of, transfer_of


class PrefillInstance(Scheduler):
    """Reads prompts, and keeps their KV until it is let go."""

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self._kept: dict[RequestId, int] = {}

    @property
    def kept(self) -> int:
        """Prompts that were read and are not let go."""
        return len(self._kept)

    def let_go(self, name: RequestId) -> None:
        """The KV of a prompt has been moved, or is not wanted any more."""
        blocks = self._kept.pop(name)
        self.pinned -= blocks
        self.kv.release((), blocks)

    def _finish(self, index: int) -> tuple[RequestId, ...]:
        blocks = {request.id: self._blocks(request.prompt) for request in self._ending.get(index, ())}
        done = super()._finish(index)
        for name, count in blocks.items():
            self._kept[name] = count
            self.pinned += count
            self.kv.take(count)
        return done


class Receiving(Scheduler):
    """Decodes requests whose KV comes from elsewhere: `hold` room for it, and `enter` when it is there."""

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self._held: dict[RequestId, Request] = {}  # not yet in the batch

    @property
    def moving(self) -> int:
        """Requests whose KV is on its way."""
        return sum(map(self.is_moving, self._held))

    def is_moving(self, name: RequestId) -> bool:
        """Its KV is on its way."""
        return name in self._held and name not in self._known

    def hold(self, name: RequestId, prompt_tokens: int, output_tokens: int, cached: int) -> bool:
        """Reserve the blocks of a prompt above the watermark; False when there is no room, or others wait for some."""
        blocks = self._blocks(prompt_tokens)
        if any(request.id not in self._held for request in self._waiting) or not self.kv.fits(
            blocks, (), self._reserve
        ):
            return False
        request = Request(name, prompt_tokens, output_tokens, ())
        request.cached = cached
        self._held[name] = request
        self.pinned += blocks
        self.kv.take(blocks)
        return True

    def enter(self, name: RequestId) -> None:
        """The KV is there: the request waits for its place in the batch, where it reads its last prompt token."""
        request = self._held[name]
        request.read = request.prompt - 1
        self._known[name] = request
        self._waiting.append(request)

    def cancel(self, name: RequestId) -> bool:
        request = self._held.pop(name, None)
        if request is None:
            return super().cancel(name)
        if self._known.pop(name, None) is not None:
            self._waiting.remove(request)
        self._release(request)
        self.kv.release((), self._blocks(request.prompt))
        return True

    def _release(self, request: Request) -> None:
        self.pinned -= self._blocks(request.prompt)

    def _admit(self) -> bool:
        """Who holds its blocks goes first: it can always run, and frees them."""
        request = next((r for r in self._waiting if r.id in self._held), None) if self._held else None
        if request is None:
            return super()._admit()
        self._waiting.remove(request)
        del self._held[request.id]
        self._release(request)
        self._prefilling.append(request)
        return True


class DecodeInstance(Receiving):
    """Decodes one token of each request per step."""


class SpeculatingDecodeInstance(Receiving, SpeculativeScheduler):
    """Decodes with drafts."""


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


@dataclass(frozen=True, slots=True)
class PoolsRoofline:
    """`readers` prefill and `writers` decode instances, each of them one `roofline`. The links of a prefill instance
    carry a prompt token in `per_token` seconds, one request after another, and each takes `latency` more.
    `max_num_seqs` is the batch cap of one instance."""

    roofline: ModelRoofline
    readers: int
    writers: int
    per_token: float
    latency: float
    max_num_seqs: int | None = None

    def limits(self, shape: Shape, concurrency: int) -> Limits:
        """`running` are those whose KV the decode pool can hold. ValueError when not one request fits."""
        one, context = self.roofline, context_of(shape)
        room = int(one.kv_room(context)) * self.writers
        if room < 1:
            raise ValueError(f"not one request of {context:,.0f} tokens fits on {one.tp} x {one.gpu.name}")
        cap = room if self.max_num_seqs is None else min(room, self.max_num_seqs * self.writers)
        moving = shape.isl.mean * self.per_token + self.latency
        ahead = self._prefill(shape).seconds + moving
        free = self._decoding(shape, concurrency, ahead)
        batch = min(free, cap)
        tpot = self.token_seconds(shape, batch)
        first = one.prefill(shape.isl.mean, shape.isl.mean - 1).seconds  # the last prompt token is read again
        ceilings = self._pools(shape)
        flow = batch / tpot
        by = ("KV capacity" if cap == room else "batch cap") if free > cap else self._longest(shape, batch, moving)
        if flow < ceilings.get(by, math.inf):
            ceilings = {**ceilings, by: flow}
        binds = min(ceilings, key=lambda name: ceilings[name])
        ttft = ahead + first
        return Limits(
            concurrency, min(concurrency, cap), ttft, tpot, ttft + (shape.osl.mean - 1) * tpot, ceilings[binds], binds
        )

    def _prefill(self, shape: Shape) -> Bound:
        return self.roofline.prefill(shape.isl.mean, shape.prefix * shape.isl.mean)

    def _pools(self, shape: Shape) -> Mapping[str, float]:
        """Output tokens per second for which the prefill pool's GPUs and links can read and move prompts."""
        osl, per_prompt = shape.osl.mean, shape.isl.mean * self.per_token
        return {
            "prefill compute": self.readers * self.roofline.flops_rate * osl / self._prefill(shape).flops,
            "KV transfer": self.readers * osl / per_prompt if per_prompt else math.inf,
        }

    def _decoding(self, shape: Shape, concurrency: int, ahead: float) -> float:
        """How many of those in flight decode, when each spends `ahead` seconds before: Little's law."""

        def over(batch: float) -> float:
            return batch * (1 + ahead / (shape.osl.mean * self.token_seconds(shape, batch))) - concurrency

        from scipy.optimize import brentq  # a quarter of a second, which only disaggregated pools need pay

        return float(brentq(over, 0.0, concurrency))

    def _longest(self, shape: Shape, batch: float, moving: float) -> str:
        """The part of a request's time that is longest."""
        prefill = self._prefill(shape)
        decode = self._step(shape, batch)
        parts = {
            f"prefill {PHASE[prefill.binds]}": prefill.seconds,
            "KV transfer": moving,
            f"decode {PHASE[decode.binds]}": shape.osl.mean * self.token_seconds(shape, batch),
        }
        longest = max(parts, key=lambda name: parts[name])
        return "network" if longest.endswith("network") else longest

    def _step(self, shape: Shape, batch: float) -> Bound:
        return self.roofline.decode(max(1.0, batch / self.writers), context_of(shape))

    def token_seconds(self, shape: Shape, batch: float) -> float:
        return self._step(shape, batch).seconds / self.roofline.per_step

    def read_seconds(self, shape: Shape, batch: float) -> float | None:
        if self.roofline.drafts:
            return None
        return self._step(shape, batch).bytes / self.roofline.gpu.bandwidth

    def compute_share(self, shape: Shape, requests: float, tokens: float) -> float | None:
        one = self.roofline.compute_share(shape, requests, tokens)
        return None if one is None else one / (self.readers + self.writers)

    @property
    def assumption(self) -> str:
        return f"{self.readers} prefill and {self.writers} decode instances, each {self.roofline.assumption}"


def light_of(spec: EngineSpec) -> Roofline:
    """The speed of light of a simulated engine. ValueError when it prices its steps by durations of its own."""
    one = roofline_of(spec)
    if spec.disaggregation is None:
        return dataclasses.replace(one, max_num_seqs=spec.max_num_seqs)
    pools = spec.disaggregation
    return PoolsRoofline(one, pools.prefill, pools.decode, *transfer_of(spec), spec.max_num_seqs)
