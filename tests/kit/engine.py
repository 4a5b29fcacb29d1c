"""A small honest engine in the hostile server's frame: vLLM's face, fixed timing, a memory of who
was in it when."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.kit.hostile import BEHAVIOURS, Call, Hostile, chunk, sse


@dataclass
class Engine:
    """`/NAME/...` of a hostile server. Times in seconds; `spans` are (arrival, departure) on
    time.perf_counter().

    `pace` and `started` are asked with the seconds since the first request: a factor on all times,
    and the start that the process tells. `together` requests are held until so many are there,
    `linger` keeps a stream open after its last token. `counters` are added to the metrics, per
    request, `names` to each event.
    """

    name: str = "engine"
    ttft: float = 0.02
    itl: float = 0.004
    template_tokens: int = 0
    tokens_per_word: float = 1.0
    takes_ids: bool = True
    honours_length: bool = True
    apis: tuple[str, ...] = ("completions", "chat")
    owner: str = "vllm"
    model: str = "m"
    key: str | None = None
    usage: bool = True
    fail_all: str | None = None
    fail_every: int = 0
    tokens_per_event: int = 1
    linger: float = 0.0
    together: int = 0
    pace: Callable[[float], float] = lambda _: 1.0
    started: Callable[[float], float] = lambda _: 1.7e9
    usage_of: Callable[[int, int], dict[str, Any]] = lambda p, c: {"prompt_tokens": p, "completion_tokens": c}
    counters: dict[str, float] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    served: int = 0
    first_at: float | None = None
    prompts: list[Any] = field(default_factory=list)
    spans: list[list[float]] = field(default_factory=list)
    running: int = 0
    generated: int = 0
    _gate: list[asyncio.Future[None]] = field(default_factory=list)

    def install(self) -> "Engine":
        BEHAVIOURS[self.name] = self.answer
        return self

    def count(self, content: Any) -> int:
        if isinstance(content, list):
            return len(content)
        return self.template_tokens + round(self.tokens_per_word * len(content.split()))

    async def answer(self, call: Call) -> None:
        route = call.path.removeprefix(f"/{self.name}")
        if self.key is not None and call.headers.get("authorization") != f"Bearer {self.key}":
            await call.json("401 Unauthorized", {"error": {"message": "Incorrect API key provided"}})
        elif route == "/v1/models":
            row = {"id": self.model, "owned_by": self.owner, "max_model_len": 4096}
            await call.json("200 OK", {"object": "list", "data": [row]})
        elif route == "/version" and self.owner == "vllm":
            await call.json("200 OK", {"version": "0.11.0"})
        elif route == "/metrics" and self.owner == "vllm":
            await call.json("200 OK", self.metrics())
        elif route.endswith("completions"):
            await self.complete(call, "chat" if "chat" in route else "completions")
        else:
            await call.json("404 Not Found", {"detail": "Not Found"})

    @property
    def age(self) -> float:
        return 0.0 if self.first_at is None else time.perf_counter() - self.first_at

    async def gather(self) -> None:
        """Wait for the others."""
        if not self.together:
            return
        turn = asyncio.get_running_loop().create_future()
        self._gate.append(turn)
        if len(self._gate) == self.together:
            for waiting in self._gate:
                waiting.set_result(None)
            self._gate.clear()
        await turn

    def metrics(self) -> bytes:
        lines = [
            "# TYPE vllm:num_requests_running gauge",
            f'vllm:num_requests_running{{model_name="m"}} {self.running}',
            "# TYPE vllm:generation_tokens_total counter",
            f'vllm:generation_tokens_total{{model_name="m"}} {self.generated}',
            "# TYPE vllm:kv_cache_usage_perc gauge",
            f'vllm:kv_cache_usage_perc{{model_name="m"}} {self.running / 100}',
            "# TYPE vllm:e2e_request_latency_seconds histogram",
            'vllm:e2e_request_latency_seconds_bucket{le="0.3"} 5',
            f"process_start_time_seconds {self.started(self.age)}",
            *(f"{name} {self.served * step}" for name, step in self.counters.items()),
        ]
        return "\n".join(lines).encode() + b"\n"

    async def complete(self, call: Call, api: str) -> None:
        if api not in self.apis:
            await call.json("404 Not Found", {"detail": "Not Found"})
            return
        if self.fail_all == "503":
            await call.json("503 Service Unavailable", {"error": "Loading model"})
            return
        if self.fail_all == "in stream":
            await call.stream(sse({"error": "no more memory"}), gap=0)
            return
        body = json.loads(call.body)
        content = body["prompt"] if api == "completions" else body["messages"][0]["content"]
        if isinstance(content, list) and not self.takes_ids:
            await call.json("400 Bad Request", {"error": {"message": "prompt must be a string"}})
            return
        self.prompts.append(content)
        self.served += 1
        self.first_at = self.first_at or time.perf_counter()
        if self.fail_every and self.served % self.fail_every == 0:
            await call.json("500 Internal Server Error", {"error": {"message": "CUDA error"}})
            return
        asked = body["max_tokens"]
        tokens = asked if self.honours_length and body.get("ignore_eos") else min(asked, 3)
        span = [time.perf_counter(), float("inf")]
        self.spans.append(span)
        self.running += 1
        try:
            await self.speak(call, api, tokens, self.count(content))
        finally:
            self.running -= 1
            span[1] = time.perf_counter()

    async def speak(self, call: Call, api: str, tokens: int, prompt_tokens: int) -> None:
        await call.head("Transfer-Encoding: chunked")
        await self.gather()
        due, pace = time.perf_counter(), self.pace(self.age)
        for i in range(0, tokens, self.tokens_per_event):
            due += pace * (self.itl if i else self.ttft)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            said = {"text": " x"} if api == "completions" else {"delta": {"content": " x"}}
            finish = "length" if i + self.tokens_per_event >= tokens else None
            await call.raw(chunk(sse({"choices": [{"index": 0, **said, "finish_reason": finish}], **self.names})))
            self.generated += self.tokens_per_event
        await asyncio.sleep(self.linger)
        usage = self.usage_of(prompt_tokens, tokens)
        last = chunk(sse({"choices": [], "usage": usage})) if self.usage else b""
        await call.raw(last + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


__all__ = ["Engine", "Hostile"]
