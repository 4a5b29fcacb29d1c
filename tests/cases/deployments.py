"""Deployments that could not be measured, for a reason that was none: as public bug reports
describe them, and what the command has to say of each."""

from dataclasses import dataclass
from typing import Any

from tests.cases.allowed import MEETS, NATURAL
from tests.cases.comparer import FAILED, NO, UNPROVEN, YES, Case, Expected
from tests.cases.http_server import Out
from tests.cases.situation import Call, Refused, Situation
from tests.cases.situations import Ranks


@dataclass
class CachedAnew(Situation):
    """Prompts that were never seen are called cached: all but one token as by a decode server
    (`how` all), whole blocks of 16 of them (blocks), or so many tokens of a chat template
    (template). `warm`: from the request of this number on a third of each prompt is, besides.
    """

    reports = ("vllm-project/vllm #43370", "vllm-project/vllm #47136", "vllm-project/router #193")
    how: str = "all"
    warm: int | None = None
    details: str = "prompt_tokens_details"

    def usage(self, call: Call) -> dict[str, Any]:
        words, prompt = call.true.prompt, call.true.prompt + self.template
        cached = {"all": prompt - 1, "blocks": (prompt - 1) // 16 * 16, "template": self.template, "none": 0}[self.how]
        if self.warm is not None and call.number >= self.warm:
            cached = min(prompt, cached + words // 3)
        out = call.true.tokens
        usage = {"prompt_tokens": prompt, "completion_tokens": out, "total_tokens": prompt + out}
        return usage | {self.details: {"cached_tokens": cached}}


@dataclass
class Preempted(Situation):
    """Counters of the prefix cache find `share` of the prompts; preempted requests are counted
    where they `preempt`, and the counter stands still where not.
    """

    reports = ("vllm-project/vllm #25780",)
    share: float = 0.3
    preempts: bool = True

    def counters(self) -> list[str]:
        found, fell = self.prompted * self.share, self.finished // 2 if self.preempts else 3
        label = '{engine="0",model_name="m"}'
        return [
            *super().counters(),
            f"vllm:prefix_cache_queries_total{label} {self.prompted}",
            f"vllm:prefix_cache_hits_total{label} {found:.0f}",
            f"vllm:num_preemptions_total{label} {fell}",
        ]


@dataclass
class Strict(Situation):
    """It refuses requests with one of these `fields`. `says` is the shape of its error: FastAPI's
    `loc`, Mistral's, OpenAI's `param`, or its `words` alone.
    """

    reports = ("openai/openai-agents-python #442", "vybestack/llxprt-code #114")
    dialect: str = "openai"
    fields: tuple[str, ...] = ("stream_options",)
    says: str = "loc"
    status: int = 422
    words: str = "Extra inputs are not permitted"

    def refusal(self, call: Call) -> Refused | None:
        if not (sent := [name for name in self.fields if name in call.tree]):
            return None
        listed = [{"type": "extra_forbidden", "loc": ["body", name], "msg": self.words, "input": 1} for name in sent]
        body: Any = {
            "loc": {"detail": listed},
            "mistral": {"object": "error", "message": {"detail": listed}, "type": "invalid_request_error"},
            "param": {"error": {"message": self.words, "param": sent[0], "type": "invalid_request_error"}},
            "words": {"error": {"message": f"{self.words}: {', '.join(sent)}"}},
            "text": f"{self.words}: {', '.join(sent)}",
        }[self.says]
        return Refused(self.status, body)

    async def close(self, call: Call, out: Out) -> None:
        call.tree["stream_options"] = {"include_usage": True}  # its usage comes anyway
        await super().close(call, out)


@dataclass
class Called(Situation):
    """An event stream by another name."""

    reports = ("vllm-project/vllm-ascend #5033",)
    name: str = "application/json"

    def __post_init__(self) -> None:
        super().__post_init__()
        vars(self)["kind"] = self.name


@dataclass
class Unstarted(Situation):
    """Two replicas answer by turns at one address; neither says when it was started."""

    reports = ("BerriAI/litellm #10595", "huggingface/inference-benchmarker #14")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.generated = 900

    async def metrics(self, out: Out) -> None:
        self.scrapes += 1
        share = 1 + self.scrapes % 2
        lines = [*self.gauges(), f"vllm:generation_tokens_total {self.generated * share // 3}"]
        await out.whole(200, "\n".join(lines) + "\n", "text/plain; version=0.0.4")


@dataclass
class SmallContext(Situation):
    """A context of `context` tokens, told by one of `tells`: /props (llama.cpp), /info (TGI) or the
    list of models under that key.
    """

    reports = ("arbs-io/github-copilot-llm-gateway #55", "SillyTavern/SillyTavern #4914")
    dialect: str = "llamacpp"
    context: int = 512
    tells: str = "props"

    def pages(self) -> dict[str, Any]:
        pages = super().pages()
        if self.tells == "props":
            pages["/props"] = {"total_slots": 4, "default_generation_settings": {"n_ctx": self.context}}
        else:
            pages["/v1/models"]["data"][0][self.tells] = self.context
        return pages

    def refusal(self, call: Call) -> Refused | None:
        if call.true.prompt < self.context:
            return None
        text = f"request ({call.true.prompt} tokens) exceeds the available context size ({self.context} tokens)"
        return Refused(400, {"error": {"code": 400, "message": text, "type": "exceed_context_size_error"}})


@dataclass
class ConstantCount(Situation):
    """A gateway that counts the same number of tokens in every prompt; or `share` of the words."""

    reports = ("BerriAI/litellm #36114",)
    dialect: str = "openai"
    chat_only: bool = True
    constant: int | None = 22
    share: float = 1.0
    cut: int = 10**6

    def usage(self, call: Call) -> dict[str, Any]:
        prompt = min(self.cut, int(call.true.prompt * self.share)) if self.constant is None else self.constant
        out = call.true.tokens
        return {"prompt_tokens": prompt, "completion_tokens": out, "total_tokens": prompt + out}


@dataclass
class SomeRanks(Ranks):
    """`ranks` of data parallelism, whose gauges add up."""

    ranks: int = 4

    def gauges(self) -> list[str]:
        lines = []
        for rank in range(self.ranks):
            running = self.running // self.ranks + (rank < self.running % self.ranks)
            lines.append(f'vllm:num_requests_running{{engine="{rank}",model_name="m"}} {running}')
            lines.append(f'vllm:num_requests_waiting{{engine="{rank}",model_name="m"}} 0')
        return lines


CONTAMINATED = Expected((FAILED,), ("invalid",), flags=("cache_contaminated",))
NO_FLAG = ("cache_contaminated", "wrong_input_length")

DEPLOYMENTS = (
    Case(
        "cached_all_but_one",
        CachedAnew,
        Expected(**MEETS, no_flags=NO_FLAG, true=("p50_tpot",), words=("its count is not used",), counted=True),
        gate=True,
    ),
    Case("cached_in_blocks", lambda: CachedAnew(how="blocks"), Expected(**MEETS, no_flags=NO_FLAG)),
    Case(
        "cached_template",
        lambda: CachedAnew(how="template", template=21, dialect="openai", chat_only=True),
        Expected(**MEETS, no_flags=NO_FLAG, not_words=("is not used",)),
        NATURAL,
    ),
    Case("warm_later", lambda: CachedAnew(how="none", warm=2), CONTAMINATED),
    Case(
        "warm_beside_a_template",
        lambda: CachedAnew(how="template", template=21, warm=40, dialect="openai"),
        CONTAMINATED,
        NATURAL,
    ),
    Case(
        "recomputed",
        Preempted,
        Expected(**MEETS, flags=("recomputed",), no_flags=NO_FLAG),
    ),
    Case("found_without_preemption", lambda: Preempted(preempts=False), CONTAMINATED),
    Case(
        "stream_options_refused",
        lambda: Strict(chat_only=True, says="mistral"),
        Expected(**MEETS, true=("p50_tpot",)),
        NATURAL,
    ),
    Case(
        "temperature_refused_by_place",
        lambda: Strict(fields=("temperature",)),
        Expected((FAILED,), (), words=("temperature", r"extra_body: \{temperature: 1\}", "dialect: openai_reasoning")),
        NATURAL,
    ),
    Case("stream_called_json", Called, Expected(**MEETS, true=("p50_tpot",))),
    Case(
        "stream_called_plain", lambda: Called(name="text/plain; charset=utf-8"), Expected(**MEETS, true=("p50_tpot",))
    ),
    Case(
        "replicas_without_a_start",
        Unstarted,
        Expected((YES, UNPROVEN, FAILED), (), words=("several processes answer by turns", "metrics: none")),
    ),
    Case(
        "context_too_small",
        SmallContext,
        Expected((FAILED,), (), words=("takes 1,056 tokens", "is 512", r"shapes: \[256/32\]")),
        {"shapes": "[1024/32]"},
    ),
    Case(
        "constant_count",
        ConstantCount,
        Expected(
            (FAILED,), ("invalid",), words=("no count of the prompt", "22 for 16 words"), not_words=("cuts prompts",)
        ),
        NATURAL | {"shapes": "[256/32]"},
    ),
    Case(
        "limit_of_ranks",
        lambda: SomeRanks(ranks=4),
        Expected((YES, NO), (), words=(r"--max-num-seqs 2 on each of 4 ranks, 8 in\s+all",)),
        {"concurrency": "[9]", "requests": "60"},
    ),
    Case(
        "fewer_than_ranks",
        lambda: SomeRanks(ranks=8),
        Expected((YES, NO), (), words=("limit your gateway to 3", "8 ranks")),
        {"concurrency": "[3]"},
    ),
)
