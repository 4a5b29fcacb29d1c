"""A server that knows the truth about itself. `Situation` is one that behaves; each situation of
a public report is a subclass that misbehaves in one way (`situations.py`)."""

import asyncio
import json
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tests.cases.http_server import Out, Request

OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp", "ollama": "library"}


@dataclass(slots=True)
class Served:
    """One generation, as the server knows it: when tokens were made, not when chunks left. Times
    are in seconds after the request came; `status` is None where a stream broke off.
    """

    asked: int
    prompt: int
    at_once: int
    tokens: int = 0
    first: float = math.inf
    last: float = math.inf
    status: int | None = None

    @property
    def ttft(self) -> float:
        return self.first if self.status == 200 else math.inf

    @property
    def e2e(self) -> float:
        return self.last if self.status == 200 else math.inf

    @property
    def tpot(self) -> float:
        """Seconds a token after the first one took."""
        return (self.last - self.first) / (self.tokens - 1) if self.status == 200 and self.tokens > 1 else math.inf


@dataclass(slots=True)
class Call:
    """A generation under way: what was asked, and what is true of it."""

    request: Request
    tree: dict[str, Any]
    chat: bool
    begun: float
    true: Served
    number: int
    luck: random.Random


@dataclass(frozen=True, slots=True)
class Refused:
    """An answer that is an error."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)


def event(tree: Any) -> str:
    """One event of a stream."""
    return f"data: {tree if isinstance(tree, str) else json.dumps(tree)}\n\n"


@dataclass
class Situation:
    """An honest server: a token every `tpot` seconds after `ttft`, at most `slots` requests at
    once.
    """

    reports: ClassVar[tuple[str, ...]] = ()
    """The public reports that it was built from."""
    kind: ClassVar[str] = "text/event-stream; charset=utf-8"
    trailers: ClassVar[Mapping[str, str]] = {}
    counts_unasked: ClassVar[bool] = False
    """The usage is sent whether it was asked for or not."""

    ttft: float = 0.030
    tpot: float = 0.010
    slots: int = 10**6
    dialect: str = "vllm"
    chat_only: bool = False
    hidden: int = 0
    """Tokens that are made ahead of the first one and never sent."""
    template: int = 0
    """Tokens that the server puts around each prompt, and counts."""
    held: int = 1
    """So many chunks leave in one write at the beginning."""
    step: int = field(default=0, init=False)
    """How many commands of the case have begun: a situation may change between them."""

    def __post_init__(self) -> None:
        self.served: list[Served] = []
        self.asked: list[dict[str, Any]] = []
        self.authorised: set[str] = set()
        self.boot, self.scrapes, self.running, self.inside = time.time() - 1000, 0, 0, 0
        self.generated, self.prompted, self.finished = 0, 0, 0
        self._room: asyncio.Semaphore | None = None

    # --- what a situation changes

    def refusal(self, call: Call) -> Refused | None:
        """Why a request is not served; None: it is."""
        return None

    def sizes(self, call: Call) -> Sequence[int]:
        """Tokens in each chunk."""
        return [1] * call.true.asked

    def text(self, call: Call, chunk: int, tokens: int) -> str:
        """The text of a chunk."""
        return " word" * tokens

    def model(self, call: Call, chunk: int) -> str:
        """The model's name in an event; chunk -1 is the one before any text."""
        return "m"

    def usage(self, call: Call) -> dict[str, Any]:
        """The token counts at the end."""
        prompt, out = call.true.prompt + self.template, call.true.tokens
        return {"prompt_tokens": prompt, "completion_tokens": out, "total_tokens": prompt + out}

    def said(self, call: Call, chunk: int, tokens: int) -> dict[str, Any]:
        """What a chunk says: the delta of a chat, or the text of a completion."""
        return {"content": self.text(call, chunk, tokens)}

    def before(self, call: Call) -> list[dict[str, Any]]:
        """Events ahead of the first text."""
        return [self._event(call, {"role": "assistant", "content": ""}, -1)] if call.chat else []

    async def hold(self, call: Call, chunk: int) -> float:
        """Seconds that everything stands still before a chunk."""
        return 0.0

    def broken(self, call: Call, chunk: int) -> dict[str, Any] | None:
        """The error with which the answer ends in the place of a chunk; None: it goes on."""
        return None

    async def finish(self, call: Call, out: Out) -> None:
        """Events behind the last text, but for the usage."""

    def gauges(self) -> list[str]:
        """The lines of the metrics that say what runs and waits."""
        waiting = self.inside - self.running
        if self.dialect == "sglang":
            return [f'sglang:num_running_reqs{{model_name="m"}} {self.running}', f"sglang:num_queue_reqs {waiting}"]
        if self.dialect == "llamacpp":
            return [f"llamacpp:requests_processing {self.running}", f"llamacpp:requests_deferred {waiting}"]
        return [
            f'vllm:num_requests_running{{engine="0",model_name="m"}} {self.running}',
            f'vllm:num_requests_waiting{{engine="0",model_name="m"}} {waiting}',
        ]

    def counters(self) -> list[str]:
        """The lines of the metrics that only grow."""
        own = {"sglang": "sglang:", "llamacpp": "llamacpp:"}.get(self.dialect, "vllm:")
        out = "tokens_predicted_total" if self.dialect == "llamacpp" else "generation_tokens_total"
        return [f"{own}{out} {self.generated}", f"{own}prompt_tokens_total {self.prompted}"]

    async def metrics(self, out: Out) -> None:
        """The page of metrics."""
        self.scrapes += 1
        lines = [f"process_start_time_seconds {self.boot:.0f}", *self.gauges(), *self.counters()]
        await out.whole(200, "\n".join(lines) + "\n", "text/plain; version=0.0.4")

    def pages(self) -> dict[str, Any]:
        """What the server says of itself, by path."""
        models = {
            "object": "list",
            "data": [{"id": "m", "object": "model", "owned_by": OWNERS.get(self.dialect, "me")}],
        }
        own: dict[str, Any] = {
            "vllm": {"/version": {"version": "0.32.0"}},
            "sglang": {"/server_info": {"version": "0.5.23", "max_running_requests": min(self.slots, 64)}},
            "llamacpp": {"/props": {"total_slots": 4, "default_generation_settings": {"n_ctx": 4096}}},
            "ollama": {"/api/version": {"version": "0.30.11"}},
        }
        return {"/v1/models": models, **own.get(self.dialect, {})}

    # --- what all do

    async def answer(self, request: Request, out: Out) -> None:
        """Serve one request."""
        path = request.path.partition("?")[0]
        if request.method == "POST":
            await self._generate(request, path, out)
        elif path == "/metrics" and self.dialect != "openai":
            await self.metrics(out)
        else:
            page = self.pages().get(path)
            await out.whole(404 if page is None else 200, {"detail": "Not Found"} if page is None else page)

    async def _generate(self, request: Request, path: str, out: Out) -> None:
        tree = request.tree
        chat = "messages" in tree
        if self.chat_only and not chat:
            await out.whole(404, {"detail": "Not Found"})
            return
        text = " ".join(m["content"] for m in tree["messages"]) if chat else tree.get("prompt", "")
        words = len(text) if isinstance(text, list) else len(text.split())
        options = tree.get("options") or {}
        asked = tree.get("max_tokens") or tree.get("max_completion_tokens") or options.get("num_predict") or 16
        self.inside += 1
        true = Served(int(asked), words, self.inside)
        number = len(self.served)
        call = Call(request, tree, chat, time.perf_counter(), true, number, random.Random(number))
        self.served.append(true)
        self.asked.append(tree)
        self.authorised.add(request.headers.get("authorization", ""))
        try:
            if (refused := self.refusal(call)) is not None:
                true.status = refused.status
                await out.whole(refused.status, refused.body, headers=refused.headers)
                return
            if self._room is None:
                self._room = asyncio.Semaphore(self.slots)
            async with self._room:
                self.running += 1
                try:
                    await self.stream(call, out)
                finally:
                    self.running -= 1
        finally:
            self.inside -= 1

    async def stream(self, call: Call, out: Out) -> None:
        """The answer: each chunk leaves when its last token is made."""
        true, sizes = call.true, self.sizes(call)
        begun = time.perf_counter()
        start = begun + self.ttft * (1 + 0.1 * call.luck.random()) + self.hidden * self.tpot
        await out.begin(self.kind)
        for tree in self.before(call):
            await out.chunk(self.framed(tree))
        true.first, pending = start - call.begun, ""
        for number, size in enumerate(sizes):
            true.tokens += size
            start += await self.hold(call, number)
            await asyncio.sleep(max(0.0, start + (true.tokens - 1) * self.tpot - time.perf_counter()))
            if (error := self.broken(call, number)) is not None:
                await out.chunk(event({"error": error}))
                await out.end()
                return
            if number == 0 and size == 1:
                true.first = time.perf_counter() - call.begun
            last = number == len(sizes) - 1
            true.last = time.perf_counter() - call.begun
            pending += self.framed(self.piece(call, number, size, last))
            if number >= self.held - 1 or last:
                await out.chunk(pending)
                pending = ""
            self.generated += size
            if out.gone:
                return
        self.prompted += true.prompt
        self.finished += 1
        await self.finish(call, out)
        await self.close(call, out)
        true.status = 200

    async def close(self, call: Call, out: Out) -> None:
        """The usage and the end of the stream."""
        if self.counts_unasked or (call.tree.get("stream_options") or {}).get("include_usage"):
            await out.chunk(event({"id": "x", "model": self.model(call, -2), "choices": [], "usage": self.usage(call)}))
        await out.chunk(event("[DONE]"))
        await out.end(self.trailers)

    def framed(self, tree: Any) -> str:
        """An event as it is written."""
        return event(tree)

    def piece(self, call: Call, number: int, tokens: int, last: bool) -> dict[str, Any]:
        """The event of one chunk."""
        return self._event(call, self.said(call, number, tokens), number, "length" if last else None)

    def _event(self, call: Call, said: dict[str, Any], chunk: int, finish: str | None = None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        choice |= {"delta": said} if call.chat else {"text": said.get("content", "")}
        return {"id": "x", "created": 1, "model": self.model(call, chunk), "choices": [choice]}
