"""More cases of sound servers that could not be measured (`deployments.py`): what else calls tokens
cached, other refusals of a field, other content types, contexts and ranks."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.cases import situations as s
from tests.cases.allowed import EXCLUDED, MEETS, NATURAL, tpot
from tests.cases.comparer import FAILED, UNPROVEN, YES, Case, Expected, Seen
from tests.cases.deployments import Called, SmallContext, SomeRanks, Strict, Unstarted
from tests.cases.failures import LENGTH
from tests.cases.http_server import Out
from tests.cases.situation import Call, Refused, Situation

# ---- cached tokens in the usage


@dataclass
class Cached(Situation):
    """The usage says of each prompt how many of its tokens were cached: `of` gives them by the
    prompt's tokens and by the number of trials' requests before.
    """

    reports = ("vllm-project/vllm #43370", "vllm-project/vllm #47136", "vllm-project/router #193")
    of: Callable[[int, int], int] = field(default=lambda prompt, before: prompt - 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.trials = 0

    def refusal(self, call: Call) -> Refused | None:
        self.trials += call.true.prompt + self.template >= LENGTH and call.true.asked > 1
        return None

    def usage(self, call: Call) -> dict[str, Any]:
        usage = super().usage(call)
        cached = max(0, min(usage["prompt_tokens"], self.of(usage["prompt_tokens"], self.trials)))
        return usage | {"prompt_tokens_details": {"cached_tokens": cached}}


MISUNDERSTOOD = Expected(
    **MEETS,
    no_flags=("cache_contaminated",),
    true=("p50_tpot",),
    words=("(?i)cached",),
    not_words=("restart the server", "came from the cache"),
    counted=True,
)
"""One warning, and the field is not used."""
TEMPLATE = Expected(
    **MEETS,
    no_flags=("cache_contaminated",),
    true=("p50_tpot",),
    not_words=("restart the server",),
    counted=True,
)
WARM = Expected(**EXCLUDED, flags=("cache_contaminated",), counted=True)
PROBE = (("probe", "{url}"), ("sweep", "{config}", "-o", "{run}"))


def cached(
    name: str,
    of: Callable[[int, int], int],
    expected: Expected = MISUNDERSTOOD,
    config: Mapping[str, str] | None = None,
    **how: Any,
) -> Case:
    """A case of cached tokens that the usage says."""
    return Case(name, lambda: Cached(of=of, **how), expected, config)


def template(name: str, tokens: int, found: int, **config: str) -> Case:
    """A case of a gateway's template, of which so many tokens are found in the cache."""
    how = {"template": tokens, "dialect": "openai", "chat_only": True}
    return cached(name, lambda prompt, before: found, TEMPLATE, NATURAL | config, **how)


CACHED = (
    cached("cached_is_the_whole_prompt", lambda prompt, before: prompt),
    cached("cached_is_half_of_each", lambda prompt, before: prompt // 2),
    Case(
        "cached_is_the_prompt_probe",
        Cached,
        Expected((YES,), (), words=(r"511 of 512[^\n]*511 of 512|511[^\n]*sent once",), then=((YES, UNPROVEN),)),
        commands=PROBE,
    ),
    template("template_cached_in_blocks", 25, 16),
    template("template_cached_at_two_lengths", 25, 25, shapes="[80/32, 200/32]"),
    # Controls: caches that are warm.
    cached("warm_cache", lambda prompt, before: prompt * 9 // 10 if before > 4 else 0, WARM),
    cached("warm_cache_partly", lambda prompt, before: prompt * 3 // 10 if before > 4 else 0, WARM),
    cached(
        "warmer_from_trial_to_trial",
        lambda prompt, before: int(prompt * min(0.9, 0.3 * (before // 45))),
        Expected((YES, UNPROVEN, FAILED), (), flags=("cache_contaminated",), counted=True),
        {"concurrency": "[2, 3, 4]"},
    ),
)

# ---- cached tokens by counters


@dataclass
class Recomputed(Situation):
    """The counters say hits of `share` of the prompts while `full` or more requests run; each
    `preempting`-th of those was preempted (0: none).
    """

    reports = ("vllm-project/vllm #25780",)
    share: float = 0.3
    full: int = 6
    preempting: int = 1
    hits_name: str = "vllm:prefix_cache"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.hits, self.struck = 0.0, 0

    async def finish(self, call: Call, out: Out) -> None:
        if self.running >= self.full and call.true.prompt == LENGTH:
            self.hits += self.share * call.true.prompt
            self.struck += 1

    def counters(self) -> list[str]:
        preempted = self.struck // self.preempting if self.preempting else 0
        return [
            *super().counters(),
            f'{self.hits_name}_queries_total{{engine="0"}} {self.prompted}',
            f'{self.hits_name}_hits_total{{engine="0"}} {self.hits:.0f}',
            f'vllm:num_preemptions_total{{engine="0"}} {preempted}',
        ]


FULL = {"concurrency": "[4, 8]", "requests": "60"}
COUNTED_HITS = (
    Case(
        "recomputed_when_full",
        lambda: Recomputed(hits_name="vllm:gpu_prefix_cache"),
        Expected(**MEETS, flags=("recomputed",), no_flags=("cache_contaminated",), counted=True),
        FULL,
    ),
    # A control: far too few preemptions.
    Case("warm_beside_few_preemptions", lambda: Recomputed(full=1, share=0.9, preempting=30), WARM),
)

# ---- fields that are refused


@dataclass
class StrictUncounted(Strict):
    """It refuses to be asked for the usage, and sends none."""

    async def close(self, call: Call, out: Out) -> None:
        await Situation.close(self, call, out)


@dataclass
class ModelsTemperature(s.OneTemperature):
    """Another wording of the one temperature."""

    def refusal(self, call: Call) -> Refused | None:
        if call.tree.get("temperature", 1) == 1:
            return None
        message = "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) is."
        error = {"message": message, "param": "temperature", "code": "unsupported_value"}
        return Refused(400, {"error": error | {"type": "invalid_request_error"}})


LEFT_OUT = Expected(**MEETS, true=("p50_tpot",), counted=True)
UNKNOWN = "Unrecognized request argument supplied: stream_options"
FIELDS = (
    Case("refuses_stream_options_pydantic", lambda: Strict(chat_only=True), LEFT_OUT, NATURAL),
    Case(
        "refuses_stream_options_openai",
        lambda: Strict(chat_only=True, says="param", status=400, words=UNKNOWN),
        LEFT_OUT,
        NATURAL,
    ),
    Case("refuses_stream_options_text", lambda: Strict(chat_only=True, says="text", status=400), LEFT_OUT, NATURAL),
    Case(
        "refuses_stream_options_given_as_null",
        Strict,
        LEFT_OUT,
        {**NATURAL, "extra_body": "{stream_options: null}"},
    ),
    Case(
        "refuses_stream_options_probe",
        Strict,
        Expected((YES,), (), words=("stream_options",)),
        commands=(("probe", "{url}", "-v"),),
    ),
    Case(
        "refuses_stream_options_and_counts_nothing",
        StrictUncounted,
        Expected((FAILED,), (), words=("stream_options", "token counts")),
        NATURAL,
    ),
    Case(
        "refuses_ignore_eos", lambda: Strict(fields=("ignore_eos",), dialect="vllm", says="param", status=400), LEFT_OUT
    ),
    Case(
        "temperature_of_the_model",
        ModelsTemperature,
        Expected((FAILED,), (), words=("does not support 0", r"extra_body: \{temperature: 1\}")),
        NATURAL,
    ),
)

# ---- what the stream is called


@dataclass
class WholeAnswer(Situation):
    """A server that does not stream: the answer is one JSON object."""

    reports = ("vllm-project/vllm-ascend #5033",)
    dialect: str = "openai"
    chat_only: bool = True

    async def stream(self, call: Call, out: Out) -> None:
        call.true.tokens = call.true.asked
        message = {"role": "assistant", "content": " word" * call.true.asked}
        choice = {"index": 0, "message": message, "finish_reason": "length"}
        await out.whole(200, {"id": "x", "model": "m", "choices": [choice], "usage": self.usage(call)})
        call.true.status = 200


CONTENT_TYPES = {
    "bytes": "application/octet-stream",
    "nothing": "",
}
TYPES = (
    *(
        Case(f"stream_called_{name}", lambda called=called: Called(name=called), LEFT_OUT)  # type: ignore[misc]
        for name, called in CONTENT_TYPES.items()
    ),
    Case("stream_called_json_probe", Called, Expected((YES,), ()), commands=(("probe", "{url}"),)),
    Case("whole_answer", WholeAnswer, Expected((FAILED,), (), words=("not a stream",)), NATURAL),
)

# ---- several processes behind one address


BOTH_SEEN = Expected((FAILED, YES), (), words=("several (processes|replicas)", "metrics:", "none"))
PROCESSES = (
    Case("two_processes_probe", s.TwoProcesses, BOTH_SEEN, commands=(("probe", "{url}"),)),
    Case("two_processes_without_a_start_probe", Unstarted, BOTH_SEEN, commands=(("probe", "{url}"),)),
    Case(
        "two_processes_are_seen_before_the_sweep",
        s.TwoProcesses,
        Expected((FAILED,), (), words=("(?s)several processes answer by turns.*1 of 1 setting", "metrics: none")),
    ),
)

# ---- ranks


def of_ranks(concurrency: int, ranks: int = 4) -> Case:
    """A case of the line that sets the limit: what each rank takes, and what that admits in all."""
    each = math.floor(concurrency / ranks)
    said = (rf"--max-num-seqs {each}\b", rf"\b{each * ranks}\b") if each else ("ranks",)
    wrong = rf"--max-num-seqs (?!{each}\b)\d" if each else r"--max-num-seqs \d"
    return Case(
        f"limit_of_{ranks}_ranks_at_{concurrency}",
        lambda: SomeRanks(ranks=ranks, tpot=0.05),
        Expected(**MEETS, words=said, not_words=(wrong,), counted=True),
        tpot("200ms", concurrency=f"[{concurrency}]", shapes="[80/8]", requests=str(max(34, 4 * concurrency))),
    )


RANKS = (of_ranks(45), of_ranks(9, 1), of_ranks(7, 2))


# ---- a context that is too small


def _nothing_sent(seen: Seen) -> list[str]:
    return [f"{len(seen.of_trials)} requests of trials were sent"] if seen.of_trials else []


def _fits(seen: Seen) -> list[str]:
    lines = [line for line in seen.said[0].out.splitlines() if line.startswith("shapes:")]
    lengths = [sum(map(int, part.split("/"))) for line in lines for part in line.split("[")[1].split("]")[0].split(",")]
    return [] if lengths and max(lengths) <= 512 else [f"init writes {lines}"]


def too_long(
    name: str, shape: str, command: tuple[str, ...] = ("sweep", "{config}", "-o", "{run}"), **how: Any
) -> Case:
    """A case of a shape that the context of 512 tokens has no room for."""
    expected = Expected((2, FAILED), (), words=("512", shape), not_words=("server was lost",))
    return Case(
        name,
        lambda: SmallContext(**how),
        expected,
        {"shapes": f"[{shape}]"},
        commands=(command,),
        check=_nothing_sent,
    )


DRY = ("sweep", "{config}", "--dry-run")
CONTEXTS = (
    too_long("context_too_small_dry_run", "1024/40", DRY),
    too_long("context_too_small_with_the_answer", "500/40", DRY),
    too_long("context_too_small_vllm", "500/40", DRY, dialect="vllm", tells="max_model_len"),
    Case("context_is_enough", SmallContext, Expected(true=("p50_tpot",)), {"shapes": "[400/32]"}),
    Case("context_init", SmallContext, Expected((YES,), ()), commands=(("init", "{url}"),), check=_fits),
    Case(
        "context_init_vllm",
        lambda: SmallContext(dialect="vllm", tells="max_model_len"),
        Expected((YES,), ()),
        commands=(("init", "{url}"),),
        check=_fits,
    ),
)


BLOCKED = (*CACHED, *COUNTED_HITS, *FIELDS, *TYPES, *PROCESSES, *RANKS, *CONTEXTS)
