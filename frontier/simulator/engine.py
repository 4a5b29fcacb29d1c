"""The simulated engine: continuous batching with KV memory, prefix cache and disturbances.

It follows vLLM's V1 scheduler, iteration by iteration:

- First come, first served.
- Running requests decode one token per step.
- The rest of the step's token budget reads prompts in chunks; the last chunk of a prompt yields the
  first token.
- KV is given out in blocks. When they run out, the latest arrival is preempted, loses its KV and
  recomputes it later.

Two simplifications: the blocks of a prompt are reserved whole at admission (vLLM: chunk by chunk,
or whole with its reserve option), and they enter the prefix cache when the prompt is done.

The caller passes the time, so the same scheduler runs in virtual time and behind the HTTP server.
Between two events nothing is counted per request, so a step in which all requests only decode costs
the same at any batch size.
"""

import math
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from frontier.simulator.kv_memory import KvMemory
from frontier.simulator.request_times import Clocks, RequestTimes
from frontier.simulator.spec import EngineSpec, kv_blocks, max_len, price_of


class Disturbance:
    """What makes steps longer than they cost: noise, drift and pauses of successive steps, from the
    spec's seed.
    """

    def __init__(self, spec: EngineSpec) -> None:
        self._rng = np.random.default_rng(spec.seed)
        self._cv, self._kind = spec.noise, spec.noise_kind
        self._drift = spec.drift / 60.0 / spec.time_scale
        self._pause = 0.0 if spec.stalls is None else spec.stalls.duration * spec.time_scale
        self._every = math.inf if spec.stalls is None else spec.stalls.every * spec.time_scale
        self._stalls = np.random.default_rng([spec.seed, 1])
        self._next = self._stalls.exponential(self._every) if spec.stalls is not None else math.inf
        self._factors = self._draw()
        self.quiet = not self._cv and not self._drift and self._next == math.inf

    def _draw(self) -> Iterator[float]:
        """Factors with mean 1 and the spec's coefficient of variation, for ever."""
        cv = self._cv
        sigma = math.sqrt(math.log1p(cv * cv))
        while True:
            if self._kind == "gamma":
                yield from self._rng.gamma(1 / cv**2, cv**2, 1024).tolist()
            else:
                yield from self._rng.lognormal(-sigma * sigma / 2, sigma, 1024).tolist()

    def apply(self, start: float, duration: float) -> float:
        """The step's real duration: times noise and drift, plus the pauses that fall into it."""
        if self._cv:
            duration *= next(self._factors)
        if self._drift:
            duration *= max(0.0, 1.0 + self._drift * start)
        while self._next < start + duration:
            if self._next >= start:  # a pause while the engine was idle delays no request
                duration += self._pause
            self._next += self._stalls.exponential(self._every)
        return duration


RequestId = int


class Step(NamedTuple):
    """What one step did. `tokens` got one token each at the step's end, `first` of them by
    finishing their prompt.

    `first` includes requests that were preempted before and now continue. `cached` has for each of
    these how many prompt tokens came from the prefix cache when it was first admitted. `prefilled`
    counts prompt tokens read, `running` and `waiting` requests while the step ran, `kv_used` the
    share of KV blocks in use.
    """

    number: int
    start: float
    duration: float
    tokens: tuple[RequestId, ...]
    first: tuple[RequestId, ...]
    cached: tuple[int, ...]
    finished: tuple[RequestId, ...]
    preempted: tuple[RequestId, ...]
    prefilled: int
    running: int
    waiting: int
    kv_used: float

    @property
    def end(self) -> float:
        """When its tokens leave."""
        return self.start + self.duration


@dataclass(slots=True, eq=False)
class Request:
    """A request in the engine. `made` tokens were generated before its current stay, which began to
    decode at step `joined` with `kv` tokens in the cache. `read` tokens of the prompt, and of the
    tokens generated before, are done.
    """

    id: RequestId
    prompt: int
    output: int
    hashes: Sequence[Hashable]
    clocks: Clocks | None = None
    held: list[Hashable] = field(default_factory=list)
    made: int = 0
    read: int = 0
    kv: int = 0
    joined: int = -1
    cached: int = -1


class Scheduler:
    """The engine's state. `submit` and `cancel` between steps; `step(now)` does one step beginning
    at `now`.
    """

    def __init__(self, spec: EngineSpec) -> None:
        spec.check()
        self.spec = spec
        self.kv = KvMemory(kv_blocks(spec), spec.prefix_cache)
        self.max_len = max_len(spec)
        self.disturbance = Disturbance(spec)
        self.times = RequestTimes()
        self._now = 0.0
        self._ingest = spec.ingest * spec.time_scale
        self.preemptions = self.prompt_tokens = self.generated_tokens = 0
        self.cache_queries = self.cache_hits = 0
        self._price = price_of(spec)
        self._block = spec.block_size
        self._reserve = math.ceil(self.kv.blocks * spec.watermark)
        self._index = 0
        self._waiting: deque[Request] = deque()
        self._prefilling: deque[Request] = deque()
        self._decoding: dict[RequestId, Request] = {}
        self._known: dict[RequestId, Request] = {}
        self._ending: dict[int, list[Request]] = {}
        self._phase = [0] * self._block  # decoding requests by the step (modulo block size) that opens a new block
        self._context = 0  # KV tokens the next step's decodes look back on, their own included

    @property
    def idle(self) -> bool:
        """No request anywhere."""
        return not self._known

    @property
    def running(self) -> int:
        """Requests that hold KV."""
        return len(self._decoding) + len(self._prefilling)

    @property
    def waiting(self) -> int:
        """Requests that wait to be admitted."""
        return len(self._waiting)

    @property
    def counters(self) -> dict[str, float]:
        """Counters as vLLM's of the same names. Those of speculative decoding, where it is done,
        count the mean of accepted tokens.
        """
        counts = {
            "num_preemptions_total": self.preemptions,
            "prompt_tokens_total": self.prompt_tokens,
            "generation_tokens_total": self.generated_tokens,
            "prefix_cache_queries_total": self.cache_queries,
            "prefix_cache_hits_total": self.cache_hits,
        }
        if (speculation := self.spec.speculation) is not None:
            drafts = round(self.generated_tokens / speculation.expected)
            counts |= {
                "spec_decode_num_drafts_total": drafts,
                "spec_decode_num_draft_tokens_total": drafts * speculation.tokens,
                "spec_decode_num_accepted_tokens_total": self.generated_tokens - drafts,
            }
        return {name: float(count) for name, count in counts.items()}

    def check(self, prompt_tokens: int, output_tokens: int) -> None:
        """ValueError, in vLLM's words, when prompt or output are empty, or both longer than the
        deployment takes.
        """
        if prompt_tokens < 1 or output_tokens < 1:
            raise ValueError("a request needs at least one prompt token and one output token")
        if prompt_tokens + output_tokens > self.max_len:
            raise ValueError(
                f"This model's maximum context length is {self.max_len} tokens. However, you requested "
                f"{prompt_tokens + output_tokens} tokens ({prompt_tokens} in the prompt, {output_tokens} in the "
                "completion)."
            )

    def submit(
        self,
        name: RequestId,
        prompt_tokens: int,
        output_tokens: int,
        hashes: Sequence[Hashable] = (),
        received: float | None = None,
        arrived: float | None = None,
    ) -> None:
        """Queue a request. `hashes` name the leading full blocks of its prompt, and of its prompt
        with the answer, for the prefix cache (chained, as vLLM's). `received` is when the server
        got it; without it the request is in none of the engine's `times`. It reached the scheduler
        when it `arrived`: `ingest` later, where that is not given.

        ValueError when the name is in use, or the request cannot be served (`check`).
        """
        if name in self._known:
            raise ValueError(f"request {name!r} is already in the engine")
        self.check(prompt_tokens, output_tokens)
        clocks = None
        if received is not None:
            clocks = Clocks(received, received + self._ingest if arrived is None else arrived)
        request = Request(name, prompt_tokens, output_tokens, hashes, clocks)
        self._known[name] = request
        self._waiting.append(request)

    def cancel(self, name: RequestId) -> bool:
        """Drop a request wherever it is; False when it is not (any more) in the engine."""
        request = self._known.pop(name, None)
        if request is None:
            return False
        if request.joined >= 0:
            self._leave(request)
        elif request in self._prefilling:
            self._prefilling.remove(request)
            self.kv.release(request.held, self._blocks(request.prompt + request.made))
        else:
            self._waiting.remove(request)
        return True

    def step(self, now: float) -> Step | None:
        """One step from `now` on, or None when there is nothing to do. Its tokens are out at the
        step's `end`.
        """
        if not self._known:
            return None
        index, self._now = self._index, now
        preempted = self._grow(index)
        prefilled, pairs = 0, 0.0
        ended: list[Request] = []
        if self._prefilling or (self._waiting and not preempted):
            budget = self.spec.max_batched_tokens - len(self._decoding)
            prefilled, pairs, ended = self._prefill(budget, admit=not preempted)
        tokens = tuple(self._decoding)
        assert tokens or prefilled, "a request that fits alone is always served when it is alone"
        running, kv_used = len(self._decoding) + len(self._prefilling) + len(ended), self.kv.used
        duration = self._cost(prefilled, pairs, len(ended))
        if not self.disturbance.quiet:
            duration = self.disturbance.apply(now, duration)
        end = now + duration
        self.times.step(prefilled + len(self._decoding))
        self._context += len(self._decoding)
        first: tuple[RequestId, ...] = ()
        cached: tuple[int, ...] = ()
        if ended:
            first = tuple(request.id for request in ended)
            cached = tuple(request.cached for request in ended)
            tokens += first
            for request in ended:
                self._join(request, index)
                if request.clocks is not None:
                    self.times.first_token(request.clocks, end)
        finished = self._finish(index)
        for request in finished:
            if request.clocks is not None:
                self.times.finished(request.clocks, end, request.prompt, request.output)
        self.generated_tokens += len(tokens)
        self._index = index + 1
        return Step(
            index,
            now,
            duration,
            tokens,
            first,
            cached,
            tuple(r.id for r in finished),
            preempted,
            prefilled,
            running,
            len(self._waiting),
            kv_used,
        )

    def _grow(self, index: int) -> tuple[RequestId, ...]:
        """Give the decodes the blocks they write to in this step; the latest arrivals, which are
        preempted for it.
        """
        opening = index % self._block
        preempted = []
        while self._phase[opening] > self.kv.free:
            preempted.append(self._preempt())
        self.kv.take(self._phase[opening])
        return tuple(preempted)

    def _cost(self, prefilled: int, pairs: float, sampled: int) -> float:
        """What the step costs, undisturbed."""
        decodes = len(self._decoding)
        if prefilled:
            return self._price.mixed(decodes, self._context, decodes, prefilled, pairs, sampled)
        return self._price.decode(decodes, self._context)

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._block)

    def _prefill(self, budget: int, *, admit: bool) -> tuple[int, float, list[Request]]:
        """Spend the budget on prompts: tokens read, pairs attended, and the requests whose prompts
        end here.
        """
        read, pairs = 0, 0.0
        ended: list[Request] = []
        room = self.spec.max_num_seqs - len(self._decoding)
        while budget > 0:
            if not self._prefilling and not (admit and self._waiting and len(ended) < room and self._admit()):
                break
            request = self._prefilling[0]
            target = request.prompt + request.made
            chunk = min(budget, target - request.read)
            pairs += chunk * (request.read + chunk / 2)
            request.read += chunk
            read += chunk
            budget -= chunk
            if request.read < target:
                break
            ended.append(self._prefilling.popleft())
        return read, pairs, ended

    def _admit(self) -> bool:
        """Move the head of the queue into the batch if its whole prompt fits above the
        watermark.
        """
        request = self._waiting[0]
        target = request.prompt + request.made
        hits = self.kv.lookup(request.hashes, (target - 1) // self._block)
        if not self.kv.fits(self._blocks(target), hits, self._reserve):
            return False
        self._waiting.popleft()
        self.kv.hold(hits)
        self.kv.take(self._blocks(target) - len(hits))
        request.held = list(hits)
        request.read = len(hits) * self._block
        if request.clocks is not None and request.clocks.admitted is None:
            request.clocks.admitted = self._now
        if request.cached < 0:
            request.cached = request.read
            self.prompt_tokens += request.prompt
            if self.spec.prefix_cache:
                self.cache_queries += request.prompt
                self.cache_hits += request.read
        self._prefilling.append(request)
        return True

    def _join(self, request: Request, index: int) -> None:
        """The prompt is done and gave a token in step `index`; from the next step on the request
        decodes.
        """
        request.kv = request.prompt + request.made
        request.joined = index
        self.kv.register(request.hashes, request.held, request.prompt // self._block)
        self._decoding[request.id] = request
        self._phase[(index + 1 - request.kv) % self._block] += 1
        self._context += request.kv + 1
        self._ending.setdefault(index + request.output - request.made - 1, []).append(request)

    def _leave(self, request: Request) -> None:
        """Out of the batch before the step `self._index`, its tokens counted: blocks, context and
        the planned end are taken back."""
        del self._decoding[request.id]
        stayed = self._index - request.joined - 1
        kv = request.kv + stayed
        self._phase[(request.joined + 1 - request.kv) % self._block] -= 1
        self._context -= kv + 1
        end = request.joined + request.output - request.made - 1
        self._ending[end].remove(request)
        if not self._ending[end]:
            del self._ending[end]
        self.kv.release(request.held, self._blocks(kv))
        request.made += stayed + 1

    def _finish(self, index: int) -> Sequence[Request]:
        """The requests whose last token came in step `index` leave."""
        ending = self._ending.pop(index, None)
        if ending is None:
            return ()
        for request in ending:
            del self._decoding[request.id]
            del self._known[request.id]
            self._phase[(request.joined + 1 - request.kv) % self._block] -= 1
            total = request.prompt + request.output
            self._context -= total
            # The last token was never an input: its KV does not exist.
            self.kv.register(request.hashes, request.held, (total - 1) // self._block)
            self.kv.release(request.held, self._blocks(total - 1))
        return ending

    def _preempt(self) -> RequestId:
        """The latest arrival loses its KV and waits at the queue's head."""
        if self._prefilling:
            request = self._prefilling.pop()
            self.kv.release(request.held, self._blocks(request.prompt + request.made))
        else:
            request = self._decoding[next(reversed(self._decoding))]
            self._leave(request)
            request.joined = -1
        request.held, request.read = [], 0
        self._waiting.appendleft(request)
        self.preemptions += 1
        return request.id
