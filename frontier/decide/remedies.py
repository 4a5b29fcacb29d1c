"""Remedies: what to change when a resource binds, by its name on each engine, and what to expect of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from frontier.decide.knobs import KNOBS
from frontier.units import format_number, format_seconds


class Resource(StrEnum):
    """What can bind."""

    PREFILL = "prefill"
    DECODE = "decode"
    KV = "kv_cache"
    BATCH = "batch_cap"
    BUDGET = "token_budget"
    FRONT_END = "front_end"
    NETWORK = "network"
    CLIENT = "client"
    CLOCKS = "clocks"
    RATE_LIMIT = "rate_limit"
    OVERLOAD = "overload"


@dataclass(frozen=True, slots=True)
class Numbers:
    """What an expected effect is computed from: mean seconds, the most requests that ran, and how many the KV cache has
    room for. None: not known.
    """

    concurrency: int
    ttft: float
    parts: Mapping[str, float]
    running: int | None
    room: float | None

    @property
    def cap(self) -> int:
        """The batch cap to try: twice the present one, within the KV cache, not above the concurrency."""
        present = self.running or self.concurrency
        return max(present + 1, round(min(2 * present, self.concurrency, 0.9 * (self.room or 3 * present))))

    def spent(self, *places: str) -> float:
        """Seconds in these places."""
        return sum(self.parts.get(place, 0.0) for place in places)


_FLAGS: Mapping[Resource, Mapping[str, str]] = {
    Resource.PREFILL: {
        "vllm": "--tensor-parallel-size", "sglang": "--tp-size", "trtllm": "--tp_size", "tgi": "--num-shard",
    },
    Resource.DECODE: {
        "vllm": "--quantization fp8", "sglang": "--quantization fp8", "trtllm": "an FP8 checkpoint",
        "tgi": "--quantize fp8", "llamacpp": "a smaller quantisation (Q4_K_M)",
    },
    Resource.KV: {
        "vllm": "--kv-cache-dtype fp8", "sglang": "--kv-cache-dtype fp8_e5m2",
        "trtllm": "kv_cache_config.dtype: fp8", "tgi": "--kv-cache-dtype fp8_e5m2",
        "llamacpp": "--cache-type-k q8_0 --cache-type-v q8_0",
    },
    Resource.BATCH: {"tgi": "--max-batch-size {c}"},
    Resource.BUDGET: {
        "vllm": "--max-num-batched-tokens", "sglang": "--chunked-prefill-size", "trtllm": "max_num_tokens",
        "tgi": "--max-batch-prefill-tokens", "llamacpp": "--ubatch-size",
    },
    Resource.FRONT_END: {
        "vllm": "--api-server-count", "sglang": "--tokenizer-worker-num", "tgi": "--validation-workers",
    },
    Resource.RATE_LIMIT: {"tgi": "--max-concurrent-requests"},
}  # fmt: skip
"""By resource and dialect. Versions read: vLLM 0.32.0, SGLang 0.5.23; the others by their documentation."""
_CHANGES: Mapping[Resource, str] = {
    Resource.PREFILL: "more GPUs for each replica ({flag}), or a prefix cache where prompts repeat",
    Resource.DECODE: "lighter weights ({flag})",
    Resource.KV: "a smaller KV cache entry ({flag})",
    Resource.BATCH: "a higher cap ({flag})",
    Resource.BUDGET: "twice the token budget ({flag})",
    Resource.FRONT_END: "more front-end processes ({flag})",
    Resource.NETWORK: "measuring beside the server, then the proxy's connection limit and buffering",
    Resource.CLIENT: "more client processes (workers: in the config) or an idle machine",
    Resource.CLOCKS: "cooling or a higher power limit (nvidia-smi -q -d PERFORMANCE says which)",
    Resource.RATE_LIMIT: "a higher limit for this key, at the gateway or the server ({flag})",
    Resource.OVERLOAD: "another replica, or a limit on requests in flight before the server",
}


def remedy(resource: Resource, engine: str | None, numbers: Numbers) -> tuple[str, str]:
    """What to change on an engine (vLLM's names where it is not known), and what to expect of it."""
    knob = KNOBS.get(engine or "", KNOBS["vllm"])
    name = next(name for name, known in KNOBS.items() if known is knob)
    flag = _FLAGS.get(resource, {}).get(name)
    if resource is Resource.BATCH:
        flag = (flag or knob.setting).format(c=numbers.cap)
    label = knob.engine if name == engine else f"on {knob.engine}"
    return _CHANGES[resource].replace(" ({flag})", f" ({label} {flag})" if flag else ""), _effect(resource, numbers)


def _effect(resource: Resource, n: Numbers) -> str:
    """What to expect, from what was measured."""
    match resource:
        case Resource.BATCH if n.room is not None:
            return f"{_EFFECTS[resource]}; the KV cache has room for about {format_number(n.room)}"
        case Resource.PREFILL | Resource.BUDGET:
            return _EFFECTS[resource].format(format_seconds(n.spent("queue", "prefill")), format_seconds(n.ttft))
        case Resource.FRONT_END:
            return _EFFECTS[resource].format(format_seconds(n.spent("front_end")), format_seconds(n.ttft))
        case Resource.NETWORK:
            return _EFFECTS[resource].format(format_seconds(n.spent("connect", "network")), format_seconds(n.ttft))
    return _EFFECTS[resource]


_EFFECTS: Mapping[Resource, str] = {
    Resource.PREFILL: "half the work for a prompt takes at least half of {} off a mean TTFT of {}",
    Resource.DECODE: "each step reads half the bytes, so a token takes up to half the time; check quality",
    Resource.KV: "about twice as many requests fit; check quality",
    Resource.BATCH: "fewer requests wait, each token takes a little longer",
    Resource.BUDGET: "up to {} of a mean TTFT of {} can go; gaps between tokens grow where prompts are read",
    Resource.FRONT_END: "up to {} of a mean TTFT of {} can go",
    Resource.NETWORK: "up to {} of a mean TTFT of {} can go",
    Resource.CLIENT: "latencies without the client's own delay; as measured they are not the server's",
    Resource.CLOCKS: "steps become shorter by up to the share that the clock fell",
    Resource.RATE_LIMIT: "requests reach the server; only then its own limit shows",
    Resource.OVERLOAD: "fewer requests at a replica, none refused or timed out",
}
