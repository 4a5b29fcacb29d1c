"""The instances of disaggregated serving: schedulers that only read prompts, or decode what was read elsewhere."""

from frontier.engine.scheduler import Request, RequestId, Scheduler
from frontier.engine.spec import EngineSpec
from frontier.engine.speculative import SpeculativeScheduler


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
