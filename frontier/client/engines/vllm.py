"""vLLM (0.32.0 was read)."""

import re
from functools import partial

from frontier.client.engines import openai
from frontier.client.engines.base import COUNTERS, HISTOGRAMS, Engine, EngineSetting, Room, SettingNames, same

_CACHE_INFO = re.compile(rb"^vllm:cache_config_info\{([^\n]*)\}", re.MULTILINE)
_LABEL = re.compile(rb'(block_size|num_gpu_blocks|kv_cache_size_tokens)="([0-9]{1,12})"')


def _room(metrics: bytes) -> Room:
    """Tokens of the KV cache; there is a series for each data-parallel rank, and ranks add up."""
    series = [dict(_LABEL.findall(labels)) for labels in _CACHE_INFO.findall(metrics)]
    tokens = sum(
        int(
            labels.get(b"kv_cache_size_tokens")
            or int(labels.get(b"block_size", 0)) * int(labels.get(b"num_gpu_blocks", 0))
        )
        for labels in series
    )
    return Room(kv_tokens=tokens)


ENGINE = Engine(
    "vllm",
    openai.payload,
    # An event for every step, even when the token is a special one that has no text.
    {"completions": partial(openai.read_completions, empty_is_token=True), "chat": openai.read_chat},
    openai.PATHS,
    length_fields=openai.ignore_eos,
    token_ids=True,
    salted=True,
    owner="vllm",
    prefix="vllm:",
    facts={
        **same("vllm:", "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", *COUNTERS),
        "vllm:gpu_cache_usage_perc": {"kv_cache_usage_perc": 1.0},
        "vllm:gpu_prefix_cache_queries_total": {"prefix_cache_queries_total": 1.0},
        "vllm:gpu_prefix_cache_hits_total": {"prefix_cache_hits_total": 1.0},
        **same("vllm:", *(f"{name}_{part}" for name in HISTOGRAMS for part in ("sum", "count"))),
    },
    info=("vllm:cache_config_info",),
    setting_names=SettingNames(
        weights=("quantization",),
        kv=("kv_cache_dtype", "cache_dtype"),
        drafts=("speculative_config", "speculative_model"),
        cap=("max_num_seqs",),
        model=("model", "served_model_name"),
        prefix_cache={"enable_prefix_caching": True, "no_enable_prefix_caching": False},
    ),
    room=("/metrics", _room),
    title="vLLM",
    limit="--max-num-seqs {c}",
    limit_per_rank=True,
    over="wait in the engine's queue, which has no limit",
    flags={
        EngineSetting.GPUS: "--tensor-parallel-size",
        EngineSetting.LIGHTER_WEIGHTS: "--quantization fp8",
        EngineSetting.SMALLER_KV: "--kv-cache-dtype fp8",
        EngineSetting.DRAFTS: "--speculative-config",
        EngineSetting.STEP_BUDGET: "--max-num-batched-tokens",
        EngineSetting.FRONT_END: "--api-server-count",
    },
    ports=(8000,),
    histograms={
        "input": ("vllm:request_prompt_tokens",),
        "output": ("vllm:request_generation_tokens",),
        "ttft": ("vllm:time_to_first_token_seconds",),
        "tpot": ("vllm:request_time_per_output_token_seconds",),
        "itl": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
        "e2e": ("vllm:e2e_request_latency_seconds",),
    },
    counters={
        "input": ("vllm:prompt_tokens_total",),
        "output": ("vllm:generation_tokens_total",),
        "queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
        "hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    },
    gauges=("vllm:num_requests_running", "vllm:num_requests_waiting"),
)
