"""The scheduler with speculative decoding: a step may yield several tokens of a request, and every
one is counted.

After vLLM: each decoding request brings its draft tokens into the step, which verifies them and its
own next token at once; the leading drafts that are accepted and one token more come out. What an
accepted draft would yield beyond the output asked is cut off. Drafts take part in the token budget
and need KV while they are verified. Drafting is paid for in the step that verifies.

How far a request gets in a step is random, so nothing can be planned ahead: a step costs time in
the number of its requests, here in this program too.
"""

import math
from collections.abc import Sequence

import numpy as np

from frontier.simulator.engine import Drafted, Request, RequestId, Scheduler
from frontier.simulator.spec import EngineSpec, Speculation


class Acceptance:
    """How many of a request's drafts are accepted, one request after another, from the spec's
    seed.
    """

    def __init__(self, speculation: Speculation, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 2])
        self._log = math.log(speculation.acceptance) if 0 < speculation.acceptance < 1 else 0.0
        self._always = speculation.acceptance == 1
        self._drawn: list[float] = []

    def draw(self, drafts: int) -> int:
        """Of so many, the leading ones accepted: at least j of them with probability acceptance **
        j.
        """
        if not self._log or not drafts:
            return drafts if self._always else 0
        if not self._drawn:
            # -ln of a uniform number is exponential; how often -ln(acceptance) fits into it is
            # geometric.
            self._drawn = (self._rng.exponential(1.0, 1024) / -self._log).tolist()
            self._drawn.reverse()
        return min(drafts, int(self._drawn.pop()))


class SpeculativeScheduler(Scheduler):
    """A `Scheduler` whose steps say in `counts` how many tokens each request got."""

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        assert spec.speculation is not None
        self._did = self.drafted = Drafted(0, 0, [0] * spec.speculation.tokens)
        self._speculation = spec.speculation
        self._acceptance = Acceptance(spec.speculation, spec.seed)
        self._brought: dict[RequestId, int] = {}
        self._done: list[Request] = []

    def _grow(self, index: int) -> tuple[RequestId, ...]:  # noqa: ARG002
        """Blocks for each decoding request's next token and drafts; the latest arrival makes room
        where there are none left."""
        out: list[RequestId] = []
        self._brought.clear()
        self._context = 0
        for name in tuple(self._decoding):
            request = self._decoding.get(name)
            if request is None:  # preempted for one before it
                break
            known = request.prompt + request.made
            # Drafts stop where the context ends, so that a request that fits alone is always served
            # when it is alone.
            drafts = min(self._speculation.tokens, self.max_len - known)
            need = self._blocks(known + drafts) - request.blocks
            while need > self.kv.free and name in self._decoding:
                out.append(self._preempt())
            if name not in self._decoding:
                break
            if need > 0:
                self.kv.take(need)
                request.blocks += need
            self._brought[name] = drafts
            self._context += known + drafts
        return tuple(out)

    def _budgeted(self) -> int:
        return len(self._decoding) + sum(self._brought.values())

    def _cost(self, prefilled: int, pairs: float, sampled: int) -> float:
        decodes = len(self._decoding)
        queries = self._budgeted()
        found = self._price.mixed(decodes, self._context, queries, prefilled, pairs, sampled)
        if decodes and self._speculation.draft:
            each = self._price.decode(decodes, self._context)
            found += self._speculation.draft * max(self._brought.values()) * each
        return found

    def _advance(self) -> tuple[int, ...] | None:
        counts = []
        for name, request in self._decoding.items():
            drafts = self._brought[name]
            accepted = self._acceptance.draw(drafts)
            if drafts:
                self._did.drafts += 1
                self._did.tokens += drafts
                for position in range(accepted):
                    self._did.accepted[position] += 1
            got = min(accepted + 1, request.output - request.made)
            request.made += got
            counts.append(got)
            if request.made == request.output:
                self._done.append(request)
        return tuple(counts)

    def _join(self, request: Request, index: int) -> None:
        request.joined = index
        request.blocks = self._blocks(request.prompt + request.made)
        request.made += 1
        self.kv.register(request.hashes, request.held, request.prompt // self._block)
        self._decoding[request.id] = request
        if request.made == request.output:
            self._done.append(request)

    def _leave(self, request: Request) -> None:
        del self._decoding[request.id]
        self.kv.release(request.held, request.blocks)

    def _finish(self, index: int) -> Sequence[Request]:  # noqa: ARG002
        done, self._done = self._done, []
        for request in done:
            self.kv.register(request.hashes, request.held, (request.prompt + request.made - 1) // self._block)
            self._leave(request)
            del self._known[request.id]
        return done


def make_scheduler(spec: EngineSpec) -> Scheduler:
    """The scheduler that serves one instance of `spec`."""
    return Scheduler(spec) if spec.speculation is None else SpeculativeScheduler(spec)
