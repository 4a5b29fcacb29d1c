"""Servers as public bug reports describe them, each with the reports that it was built from."""

import asyncio
import base64
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tests.cases.http_server import Out
from tests.cases.situation import Call, Refused, Situation, event

# ---- chunks of several tokens


@dataclass
class Chunks(Situation):
    """The first chunk has `first` tokens, each other `every`."""

    reports: ClassVar[tuple[str, ...]] = (
        "ai-dynamo/aiperf #1279",
        "modelscope/evalscope #721",
        "modelscope/evalscope #585",
        "vllm-project/vllm #42661",
        "vllm-project/vllm #28183",
    )
    first: int = 1
    every: int = 1
    letters: str = " word"
    """The text of a token."""
    role_with_text: bool = False
    """The first event has the role and the first text."""
    first_text: str | None = None
    """The text of the first chunk, whatever its tokens are."""
    more: str = ""
    """What each event says beside its text: the tokens so far (`usage`) or its `token_ids`."""

    def text(self, call: Call, chunk: int, tokens: int) -> str:
        if chunk == 0 and self.first_text is not None and call.true.asked > 16:
            return self.first_text
        return self.letters * tokens

    def before(self, call: Call) -> list[dict[str, Any]]:
        return [] if self.role_with_text else super().before(call)

    def said(self, call: Call, chunk: int, tokens: int) -> dict[str, Any]:
        role = {"role": "assistant"} if self.role_with_text and chunk == 0 else {}
        return role | super().said(call, chunk, tokens)

    def piece(self, call: Call, number: int, tokens: int, last: bool) -> dict[str, Any]:
        piece = super().piece(call, number, tokens, last)
        if self.more == "usage":
            piece["usage"] = self.usage(call)
        if self.more == "token_ids":
            piece["choices"][0]["token_ids"] = list(range(100, 100 + tokens))
        return piece

    def sizes(self, call: Call) -> Sequence[int]:
        sizes, left = [], call.true.asked
        while left > 0:
            sizes.append(min(left, self.every if sizes else self.first))
            left -= sizes[-1]
        return sizes


@dataclass
class OneChunk(Situation):
    """The whole answer is held back and comes in one chunk: replayed streams, guardrails. `how`: as
    text, with the usage in the same event (`usage`), or as a call of a tool (`tool`). A `share` of
    the answers comes so, the others are streamed.
    """

    reports = (
        "BerriAI/litellm #30208",
        "BerriAI/litellm #38722",
        "BerriAI/litellm #26102",
        "BerriAI/litellm #38926",
        "nicedreamzapp/claude-code-local #39",
    )
    dialect: str = "openai"
    chat_only: bool = True
    how: str = "text"
    share: float = 1.0

    def sizes(self, call: Call) -> Sequence[int]:
        whole = call.true.asked <= 16 or call.luck.random() < self.share
        return [call.true.asked] if whole else super().sizes(call)

    def said(self, call: Call, chunk: int, tokens: int) -> dict[str, Any]:
        text = self.text(call, chunk, tokens)
        if self.how != "tool" or call.true.asked < 20:
            return {"content": text}
        function = {"name": "find", "arguments": json.dumps({"of": text})}
        return {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": function}]}

    def piece(self, call: Call, number: int, tokens: int, last: bool) -> dict[str, Any]:
        piece = super().piece(call, number, tokens, last)
        return piece | {"usage": self.usage(call)} if self.how == "usage" else piece

    async def close(self, call: Call, out: Out) -> None:
        if self.how == "usage":
            call.tree.pop("stream_options", None)
        await super().close(call, out)


@dataclass
class Speculative(Chunks):
    """Drafts are accepted on random tokens: steps of five tokens, counted."""

    reports = ("ai-dynamo/dynamo #12918", "kekzl/imp #1460")
    every: int = 5

    def counters(self) -> list[str]:
        drafts = self.generated / 5.9
        return [
            *super().counters(),
            f"vllm:spec_decode_num_drafts_total {drafts:.0f}",
            f"vllm:spec_decode_num_draft_tokens_total {drafts * 6:.0f}",
            f"vllm:spec_decode_num_accepted_tokens_total {drafts * 4.9:.0f}",
        ]


@dataclass
class Merged(Situation):
    """Usage is right; in each fifteenth answer a busy event loop merges tokens into pairs, so
    that 64 come in 56 to 60 chunks. `wrong`: each fifth answer counts twice the tokens that it
    has.
    """

    reports = ("vllm-project/vllm 0.32.0 on a CPU",)
    wrong: bool = False

    def sizes(self, call: Call) -> Sequence[int]:
        n = call.true.asked
        if n < 32 or self.wrong:
            return [1] * (n // 2 if self.wrong and n >= 32 and call.number % 5 == 0 else n)
        pairs = call.luck.randint(4, 8) if call.number % 15 == 0 else 0
        return [1, *[2] * pairs, *[1] * (n - 1 - 2 * pairs)]

    def text(self, call: Call, chunk: int, tokens: int) -> str:
        sizes = (round(min(12.0, max(1.0, call.luck.gauss(6, 4)))) for _ in range(tokens))
        return "".join(("w" * size)[1:] + " " for size in sizes)

    def usage(self, call: Call) -> dict[str, Any]:
        prompt, out = call.true.prompt, call.true.asked
        return {"prompt_tokens": prompt, "completion_tokens": out, "total_tokens": prompt + out}


# ---- counts


@dataclass
class Reasoning(Chunks):
    """The first `think` tokens of an answer are reasoning, `hidden` more are never sent.
    completion_tokens counts them all, or those of the answer alone (`visible`); total_tokens has
    all, or the completion's, or is missing.
    """

    reports = (
        "ARahim3/mlx-dspark #37",
        "router-for-me/CLIProxyAPI #5733",
        "vercel/ai #12425",
        "UKGovernmentBEIS/inspect_ai #5528",
    )
    dialect: str = "openai"
    chat_only: bool = True
    think: int = 0
    completion: str = "all"
    total: str | None = "all"
    told: bool = True
    """The usage says how many tokens were reasoning."""

    def said(self, call: Call, chunk: int, tokens: int) -> dict[str, Any]:
        said = super().said(call, chunk, tokens)
        return {"reasoning_content": said["content"]} if call.true.tokens <= self.think else said

    def usage(self, call: Call) -> dict[str, Any]:
        prompt, out = call.true.prompt, call.true.tokens
        think = min(out, self.think)
        completion = out - think if self.completion == "visible" else out + self.hidden
        usage = {"prompt_tokens": prompt, "completion_tokens": completion}
        if self.total is not None:
            usage["total_tokens"] = prompt + (out + self.hidden if self.total == "all" else completion)
        return usage | ({"completion_tokens_details": {"reasoning_tokens": think + self.hidden}} if self.told else {})


@dataclass
class OddCount(Situation):
    """Usage that counts something else: the prompt within the completion (`prompt`), characters
    (`characters`), or rightly, with a gateway's own of zeros behind it (`zeros`).
    """

    reports = ("router-for-me/CLIProxyAPI #5733", "ARahim3/mlx-dspark #37")
    dialect: str = "openai"
    chat_only: bool = True
    how: str = "prompt"

    def usage(self, call: Call) -> dict[str, Any]:
        prompt, out = call.true.prompt, call.true.tokens
        completion = {"prompt": prompt + out, "characters": 5 * out}.get(self.how, out)
        total = prompt + (out if self.how == "prompt" else completion)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}

    async def close(self, call: Call, out: Out) -> None:
        if self.how == "zeros":
            zeros = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0)
            for usage in (self.usage(call), zeros):
                await out.chunk(event({"id": "x", "model": "m", "choices": [], "usage": usage}))
            call.tree.pop("stream_options", None)
        await super().close(call, out)


@dataclass
class NoCount(Situation):
    """A count of nothing, with nothing beside it."""

    reports = ("router-for-me/CLIProxyAPI #5733",)
    dialect: str = "openai"
    chat_only: bool = True

    def usage(self, call: Call) -> dict[str, Any]:
        prompt = call.true.prompt
        return {"prompt_tokens": prompt, "completion_tokens": 0, "total_tokens": prompt}


# ---- series of metrics


@dataclass
class InMilliseconds(Situation):
    """Histograms of its requests in milliseconds, under names in seconds."""

    reports = ("kubernetes-sigs/inference-perf #600",)

    def counters(self) -> list[str]:
        done = [one for one in self.served if one.status == 200]
        sums = {
            "e2e_request_latency": sum(one.last for one in done),
            "time_to_first_token": sum(one.first for one in done),
            "request_queue_time": 0.001 * len(done),
            "request_prefill_time": sum(one.first for one in done),
            "request_decode_time": sum(one.last - one.first for one in done),
        }
        own = super().counters()
        for name, seconds in sums.items():
            own.append(f'vllm:{name}_seconds_sum{{engine="0"}} {1000 * seconds:.3f}')
            own.append(f'vllm:{name}_seconds_count{{engine="0"}} {len(done)}')
        return own


@dataclass
class SameNumber(Situation):
    """Gauges that are one number, written several times: by each rank (`ranks`), as a total
    beside one series a priority (`priority`), or by two exporters that a proxy joins (`twice`).
    """

    reports = ("sgl-project/sglang #31896", "sgl-project/sglang #29372", "kubernetes-sigs/inference-perf #600")
    dialect: str = "sglang"
    how: str = "ranks"
    prefix: str = "sglang:"

    def gauges(self) -> list[str]:
        if self.how == "ranks":
            labels = [f'engine_type="unified",model_name="m",tp_rank="{i}",pp_rank="0"' for i in range(8)]
        elif self.how == "priority":
            return self._by_priority()
        else:
            labels = ['model_name="m"']
        values = {"num_running_reqs": self.running, "num_queue_reqs": self.inside - self.running}
        lines = [f"{self.prefix}{name}{{{label}}} {value}" for name, value in values.items() for label in labels]
        return [*lines, f'{self.prefix}token_usage{{model_name="m"}} {self.running / 200}']

    def _by_priority(self) -> list[str]:
        lines = []
        for name, value in (("num_running_reqs", self.running), ("num_queue_reqs", self.inside - self.running)):
            for label, part in (("", value), ("0", value - value // 4), ("5", value // 4)):
                lines.append(f'{self.prefix}{name}{{model_name="m",priority="{label}"}} {part}')
        return lines

    def counters(self) -> list[str]:
        return [line.replace("sglang:", self.prefix) for line in super().counters()]


@dataclass
class Joined(Situation):
    """A page of metrics that two exporters hand on: each series twice, counters and gauges. With
    `others` it is one page, of a server that others use as well.
    """

    reports = ("vllm-project/production-stack #617",)
    others: bool = False

    def gauges(self) -> list[str]:
        more = 8 if self.others else 0
        values = {"num_requests_running": self.running + more, "num_requests_waiting": self.inside - self.running}
        return [f'vllm:{name}{{engine="0",model_name="m"}} {value}' for name, value in values.items()]

    def counters(self) -> list[str]:
        times = 2 if self.others else 1
        seconds = sum(one.last for one in self.served if one.status == 200)
        own = super().counters()
        own += [
            f'vllm:e2e_request_latency_seconds_count{{engine="0"}} {self.finished * times}',
            f'vllm:e2e_request_latency_seconds_sum{{engine="0"}} {seconds * times:.3f}',
        ]
        return own

    async def metrics(self, out: Out) -> None:
        self.scrapes += 1
        lines = [*self.gauges(), *self.counters()]
        if not self.others:
            bare = [line if "{" in line else line.replace(" ", "{} ", 1) for line in lines]
            lines = [
                line.replace("}", f'{"" if "{}" in line else ","}exporter="{name}"}}', 1)
                for name in "ab"
                for line in bare
            ]
        page = [f"process_start_time_seconds {self.boot:.0f}", *lines]
        await out.whole(200, "\n".join(page) + "\n", "text/plain; version=0.0.4")


@dataclass
class TwoProcesses(Situation):
    """One address behind which two processes answer by turns, each with its own start."""

    reports = ("BerriAI/litellm #10595", "huggingface/inference-benchmarker #14")

    async def metrics(self, out: Out) -> None:
        whole, self.boot = self.boot, self.boot - 100 * (self.scrapes % 2)
        await super().metrics(out)
        self.boot = whole


@dataclass
class Ranks(Situation):
    """Four ranks of data parallelism, whose gauges add up."""

    reports = ("vllm-project/vllm #36748",)

    def gauges(self) -> list[str]:
        lines = []
        for rank in range(4):
            running = self.running // 4 + (rank < self.running % 4)
            waiting = self.inside - self.running if rank == 0 else 0
            lines.append(f'vllm:num_requests_running{{engine="{rank}",model_name="m"}} {running}')
            lines.append(f'vllm:num_requests_waiting{{engine="{rank}",model_name="m"}} {waiting}')
            lines.append(f'vllm:kv_cache_usage_perc{{engine="{rank}",model_name="m"}} {self.running / 200}')
        return lines


@dataclass
class SlowScrape(Situation):
    """Writing the page of metrics holds the loop that also writes the streams."""

    reports = ("ROCm/ATOM #2186", "ggml-org/llama.cpp #29104")
    seconds: float = 0.12

    async def metrics(self, out: Out) -> None:
        time.sleep(self.seconds)  # noqa: ASYNC251 - that is the fault
        await super().metrics(out)


# ---- names


@dataclass
class TwoNames(Situation):
    """One server whose events carry an alias and a provider's name: in each answer the first
    event the one, the others the other (`chunk`), the last ones a dated name (`last`), or half
    of the answers the one (`answer`).
    """

    reports = ("BerriAI/litellm #19943", "BerriAI/litellm #10572", "BerriAI/litellm #20990")
    how: str = "chunk"

    def model(self, call: Call, chunk: int) -> str:
        if self.how == "chunk":
            return "m" if chunk == -1 else "hosted_vllm/m"
        if self.how == "last":
            return "m-2026-08-06" if chunk == -2 or chunk >= call.true.asked - 1 else "m"
        return "hosted_vllm/m" if call.number % 2 else "m"


@dataclass
class Fallback(Situation):
    """A gateway's fallback: another model answers from the command `after` on, for the seconds
    `between` of it, or in the trials `fallen_in`; the list of models stays.
    """

    reports = ("BerriAI/litellm, fallbacks of its router",)
    after: int | None = None
    between: tuple[float, float] = (0.0, 1e9)
    fallen_in: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.trial, self.begun, self.stepped = 0, 0, 0.0

    def pages(self) -> dict[str, Any]:
        # Before each trial the list of models is asked for.
        trials = sum(one.asked >= 32 for one in self.served)
        if trials - self.begun >= 20:
            self.trial, self.begun = self.trial + 1, trials
        return super().pages()

    def model(self, call: Call, chunk: int) -> str:
        later = self.after is not None and self.step >= self.after
        if later and not self.stepped:
            self.stepped = time.monotonic()
        fallen = later and self.between[0] <= time.monotonic() - self.stepped < self.between[1]
        return "tiny" if fallen or self.trial in self.fallen_in else "m"


@dataclass
class Alias(Situation):
    """Every answer has a dated name, and with `fingerprints` one of two by turns."""

    reports = ("BerriAI/litellm #10572",)
    dialect: str = "openai"
    chat_only: bool = True
    fingerprints: bool = False

    def model(self, call: Call, chunk: int) -> str:
        return "m" if self.fingerprints else "m-dated"

    def piece(self, call: Call, number: int, tokens: int, last: bool) -> dict[str, Any]:
        piece = super().piece(call, number, tokens, last)
        return piece | ({"system_fingerprint": f"fp_{call.number % 2}"} if self.fingerprints else {})


# ---- words that hold a secret


@dataclass
class Echo(Situation):
    """A proxy whose error body repeats base64 of `user:key`: for all requests, or those of a trial
    whose number `every` divides.
    """

    reports = ("an error page that repeats the header Authorization",)
    user: str = "u"
    every: int = 1

    def refusal(self, call: Call) -> Refused | None:
        key = call.request.headers.get("authorization", "").removeprefix("Bearer ")
        if (call.true.asked < 32 and self.every > 1) or call.number % self.every:
            return None
        coded = base64.b64encode(f"{self.user}:{key}".encode()).decode()
        return Refused(400, {"error": {"message": f"bad credentials Basic-{coded}", "type": "auth"}})


# ---- what held


@dataclass
class Compiles(Situation):
    """Everything stands for a while at each batch size never seen before."""

    reports = ("ai-dynamo/aisimulate #287",)
    stall: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seen: set[int] = set()
        self.until = 0.0

    async def hold(self, call: Call, chunk: int) -> float:
        if call.true.asked > 1 and self.running not in self.seen:
            self.seen.add(self.running)
            self.until = max(self.until, time.perf_counter()) + self.stall
        return max(0.0, self.until - time.perf_counter()) if chunk == 0 else 0.0


@dataclass
class Azure(Situation):
    """Empty choices ahead, an empty model's name, and a chunk without delta after the finish
    reason, and late.
    """

    reports = ("microsoft/autogen #6465",)
    dialect: str = "openai"
    chat_only: bool = True
    late: float = 0.2

    def before(self, call: Call) -> list[dict[str, Any]]:
        filters = [{"prompt_index": 0, "content_filter_results": {"hate": {"filtered": False, "severity": "safe"}}}]
        return [
            {"choices": [], "created": 0, "id": "", "model": "", "object": "", "prompt_filter_results": filters},
            *super().before(call),
        ]

    async def finish(self, call: Call, out: Out) -> None:
        await asyncio.sleep(self.late)
        offsets = {"check_offset": 3329, "start_offset": 3329, "end_offset": 3438}
        late = {"index": 0, "finish_reason": None, "content_filter_offsets": offsets, "content_filter_results": {}}
        await out.chunk(event({"id": "", "choices": [late], "created": 0, "model": "", "object": ""}))


@dataclass
class Trailers(Situation):
    """Trailers after the last chunk."""

    reports = ("aio-libs/aiohttp #1619", "envoyproxy/envoy #7149")
    trailers: ClassVar = {"x-envoy-upstream-service-time": "12", "x-usage": 'tokens=3;cost="0.1"'}


@dataclass
class OllamaCuts(Situation):
    """Ollama, whose context of 256 tokens cuts the prompts."""

    reports = ("dogkeeper886/ollama37 #407",)
    kind = "application/x-ndjson"
    dialect: str = "ollama"
    context: int = 256

    def framed(self, tree: Any) -> str:
        return json.dumps(tree) + "\n"

    def before(self, call: Call) -> list[dict[str, Any]]:
        return []

    def piece(self, call: Call, number: int, tokens: int, last: bool) -> dict[str, Any]:
        text = self.text(call, number, tokens)
        said = {"message": {"role": "assistant", "content": text}} if call.chat else {"response": text}
        return {"model": "m", **said, "done": False}

    async def close(self, call: Call, out: Out) -> None:
        counts = {"prompt_eval_count": min(self.context, call.true.prompt), "eval_count": call.true.tokens}
        said = {"message": {"role": "assistant", "content": ""}} if call.chat else {"response": ""}
        await out.chunk(self.framed({"model": "m", **said, "done": True, "done_reason": "length", **counts}))
        await out.end()


@dataclass
class Router(Situation):
    """llama-server in router mode: models that it could load, and settings of none."""

    reports = ("SillyTavern/SillyTavern #4914", "1ay1/agentty #49")
    dialect: str = "llamacpp"

    def pages(self) -> dict[str, Any]:
        rows = [
            {"id": name, "object": "model", "owned_by": "llamacpp", "status": {"value": state}}
            for name, state in (("m", "loaded"), ("big", "unloaded"), ("small", "unloaded"))
        ]
        settings = {"params": {}, "n_ctx": 0}
        return {
            "/v1/models": {"object": "list", "data": rows},
            "/props": {"role": "router", "max_instances": 4, "default_generation_settings": settings},
        }


@dataclass
class OneTemperature(Situation):
    """Only the temperature 1 is allowed."""

    reports = ("artokun/comfyui-mcp #2535", "decolua/9router #732", "QwenLM/qwen-code #921")
    dialect: str = "openai"
    chat_only: bool = True

    def refusal(self, call: Call) -> Refused | None:
        if call.tree.get("temperature", 1) == 1:
            return None
        message = "invalid temperature: only 1 is allowed for this model"
        return Refused(400, {"error": {"message": message, "type": "invalid_request_error"}})


@dataclass
class AtMost(Situation):
    """A gateway that refuses more than `most` requests at once."""

    reports = ("sgl-project/genai-bench #155", "Azure/azure-openai-benchmark #31")
    dialect: str = "openai"
    chat_only: bool = True
    most: int = 4

    def refusal(self, call: Call) -> Refused | None:
        if self.inside <= self.most:
            return None
        error = {"message": "Too many concurrent requests", "type": "rate_limit_error", "code": 429}
        return Refused(429, {"error": error})
