"""Clients in virtual time: what each sends and when, and what each step gave them.

They send in a closed loop, or as requests arrive.
"""

import bisect
import heapq
import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from frontier.client.load.rules import MeanTimes, Pacing, first_length
from frontier.client.load.session_plans import SessionPlan, class_of, left_out, plan_session
from frontier.core.model.loads import POISSON, Load
from frontier.core.model.shapes import Shape
from frontier.simulator.engine import Scheduler, Step
from frontier.simulator.spec import EngineSpec


@dataclass(slots=True)
class Sent:
    """One request of the run. `spans` are the first and one past the last of the step numbers that
    gave it one token each.
    """

    index: int
    stream: int
    sent: float
    prompt: int
    output: int
    spans: list[tuple[int, int]] = field(default_factory=list)
    open: int = -1
    cached: int = 0
    done: bool = False
    session: int | None = None
    turn: int | None = None
    reusable: int | None = None
    class_index: int | None = None


@dataclass(slots=True)
class _Session:
    """A stream's session: its shape, the turn that comes next, the tokens of its history, and those
    that an answer left out.
    """

    number: int
    shape: Shape
    class_index: int | None
    plan: SessionPlan
    turn: int
    known: int
    more: int = 0


class VirtualClients:
    """The clients of one run: who sends when, and when the window opens and closes."""

    def __init__(self, spec: EngineSpec, shape: Shape, load: Load, stagger: bool, seed: int) -> None:
        rate, streams = load.per_second, load.turns(1)
        self.scheduler = Scheduler(spec)
        self.shape, self.streams, self.seed = shape, streams, seed
        self.rng = random.Random(seed)
        self.pacing = Pacing(streams) if stagger and rate is None else None
        self.due = None if rate is None else (shape.arrivals or POISSON).times(rate, seed)
        self.times = MeanTimes()
        self.sends: list[tuple[float, float]] = []
        self.ingest = spec.ingest * spec.time_scale
        self.requests: list[Sent] = []
        self.sessions: dict[int, _Session] = {}
        self.ends: list[float] = []
        self.arrivals: list[tuple[float, int, int]] = []
        self.completed = 0
        self.prefix, self.block, self.caches = shape.prefix, spec.block_size, spec.prefix_cache
        longest = shape.isl.high if shape.prefix else 0
        self.shared = self._beginning(longest if shape.session is None else shape.shared)
        self.of_class = [
            self._beginning(each.shape.shared_of(each.shape.isl.high), i) for i, each in enumerate(shape.mix)
        ]
        self.begun = 0
        self.arrived, self.latest = 0, 0.0
        for stream in range(streams):
            heapq.heappush(self.arrivals, (self._begin(stream), stream, stream))
        self._arrive(0.0)

    def _arrive(self, now: float) -> None:
        """Open loop: all arrivals until now, and the next one. Each is a stream of its own, of one
        session.
        """
        while self.due is not None and self.latest <= now:
            self.latest, stream = next(self.due), self.arrived
            self.arrived += 1
            self._begin(stream)
            self._send(self.latest, 0.0, stream)

    def _send(self, due: float, delay: float, stream: int) -> None:
        """A stream sends at this time."""
        bisect.insort(self.sends, (due, delay))
        heapq.heappush(self.arrivals, (due, len(self.sends) + self.streams, stream))

    def admit(self, now: float) -> None:
        """Hand the scheduler what has reached it by `now`."""
        while self.arrivals and self.arrivals[0][0] + self.ingest <= now:
            sent, _, stream = heapq.heappop(self.arrivals)
            request, hashes = self._turn(sent, stream) if stream in self.sessions else self._single(sent, stream)
            self.requests.append(request)
            self.scheduler.submit(request.index, request.prompt, request.output, hashes, sent)

    def _beginning(self, tokens: int, class_index: int | None = None) -> tuple[Hashable, ...]:
        """The blocks that all sessions of a class begin with, where the engine has a prefix
        cache.
        """
        blocks = tokens // self.block if self.caches else 0
        return tuple(("shared", class_index, i) for i in range(blocks))

    def _single(self, sent: float, stream: int) -> tuple[Sent, Sequence[Hashable]]:
        """A request of its own."""
        prompt, output, shared, blocks = self.shape.request(len(self.requests), self.seed, self.rng)
        if self.pacing is not None and len(self.requests) < self.streams:
            output = first_length(output, self.seed, stream)
        common = int(self.prefix * prompt) if shared is None else shared
        hashes: Sequence[Hashable] = self.shared[: common // self.block] if self.shared else ()
        if self.caches and blocks and self.shape.pairs is not None:
            size = self.shape.pairs.block  # tokens of a block of the trace; the engine's are smaller
            full = len(blocks[: prompt // size]) * size // self.block
            hashes = tuple((blocks[((i + 1) * self.block - 1) // size], i) for i in range(full))
        return Sent(len(self.requests), stream, sent, prompt, output), hashes

    def _turn(self, sent: float, stream: int) -> tuple[Sent, Sequence[Hashable]]:
        """The next turn of the stream's session."""
        session = self.sessions[stream]
        planned = session.plan.turns[session.turn]
        begins = session.turn == session.plan.start
        prompt = session.plan.prompt(session.turn) if begins else session.known + planned.new + session.more
        output = planned.out
        if self.pacing is not None and begins and session.number < self.streams:
            output = first_length(output, self.seed, stream)
        known = min(session.shape.shared_of(prompt), prompt - 1) if begins else session.known
        hashes: Sequence[Hashable] = ()
        if self.caches:
            shared = (
                self.shared
                if session.class_index is None
                else self.of_class[session.class_index][: known // self.block]
            )
            own = range(len(shared), (prompt + output) // self.block)
            hashes = (*shared, *((session.number, i) for i in own))
        index = len(self.requests)
        return Sent(
            index,
            stream,
            sent,
            prompt,
            output,
            session=session.number,
            turn=session.turn,
            reusable=known,
            class_index=session.class_index,
        ), hashes

    def _begin(self, stream: int) -> float:
        """A new session for a stream; the seconds before its first turn."""
        if self.shape.session is None and not self.shape.mix:
            return 0.0
        number, self.begun = self.begun, self.begun + 1
        class_index = class_of(self.shape, self.seed, number) if self.shape.mix else None
        shape = self.shape if class_index is None else self.shape.mix[class_index].shape
        plan = plan_session(shape, self.seed, number, self.streams if self.pacing is not None else 0)
        self.sessions[stream] = _Session(number, shape, class_index, plan, plan.start, 0)
        return plan.turns[plan.start].pause

    def _continue(self, request: Sent) -> float | None:
        """The seconds of thinking before the next turn of the session of a request that has ended;
        None: it is over.
        """
        session = self.sessions.get(request.stream)
        if session is None or session.turn + 1 == len(session.plan.turns):
            return None
        session.more = left_out(session.plan.turns[session.turn], request.output)
        session.known = request.prompt + request.output
        session.turn += 1
        return session.plan.turns[session.turn].pause

    def advance(self, now: float) -> Step | None:
        """One step from `now` on; None when the engine is idle until the next arrival."""
        self.admit(now)
        step = self.scheduler.step(now)
        if step is None:
            return None
        end = step.end
        self._arrive(end)
        self.ends.append(end)
        self._span(step)
        for name in step.finished:
            request = self.requests[name]
            request.done = True
            self.completed += 1
            if self.due is not None:
                self.times.add(end - request.sent)
                if (thinking := self._continue(request)) is not None:
                    self._send(end + thinking, 0.0, request.stream)
                else:
                    self.sessions.pop(request.stream, None)
                continue
            delay = 0.0 if self.pacing is None else self._delay(self.pacing, request, end)
            thinking = self._continue(request)
            if thinking is None:
                self._begin(request.stream)
            elif thinking:
                delay = 0.0
            send = end + delay + (thinking or 0.0)
            self._send(send, delay, request.stream)
        return step

    def _delay(self, pacing: Pacing, request: Sent, now: float) -> float:
        """How long its stream waits now that it has ended."""
        if request.index >= self.streams:
            tpot = None
            if request.output > 1:
                tpot = (now - self.ends[request.spans[0][0]]) / (request.output - 1)
            self.times.add(now - request.sent, tpot)
        return pacing.delay(now, self.times.tpot, self.times.e2e)

    def _span(self, step: Step) -> None:
        """One token for everybody in the batch: only who came and who went is noted."""
        number, requests = step.number, self.requests
        for name in step.preempted:
            request = requests[name]
            if request.open >= 0:
                request.spans.append((request.open, number))
                request.open = -1
        for name, cached in zip(step.first, step.cached, strict=True):
            requests[name].open = number
            requests[name].cached = cached
        for name in step.finished:
            request = requests[name]
            request.spans.append((request.open, number + 1))
