"""TensorRT-LLM (`trtllm-serve`; its documentation was read)."""

from frontier.client.engines import openai
from frontier.client.engines.base import HISTOGRAMS, Engine, EngineSetting, SettingNames, object_with, same

ENGINE = Engine(
    "trtllm",
    openai.payload,
    openai.EVENTS,
    openai.PATHS,
    length_fields=openai.ignore_eos,
    token_ids=True,
    metrics="/prometheus/metrics",
    owner="tensorrt_llm",
    prefix="trtllm_",
    # Its /metrics are statistics of iterations, as a JSON list.
    signs={"/version": object_with("version"), "/metrics": lambda body: body.lstrip().startswith(b"[")},
    facts={
        **same(
            "trtllm_",
            "num_requests_running",
            "num_requests_waiting",
            "generation_tokens_total",
            "prompt_tokens_total",
            *(f"{name}_{part}" for name, unit in HISTOGRAMS.items() if unit == "s" for part in ("sum", "count")),
        ),
        "trtllm_kv_cache_utilization": {"kv_cache_usage_perc": 1.0},
    },
    info=(
        "trtllm_model_config_info",
        "trtllm_parallel_config_info",
        "trtllm_speculative_config_info",
        "trtllm_kv_cache_config_info",
    ),
    setting_names=SettingNames(
        weights=("quantization",),
        kv=("kv_cache_dtype", "cache_dtype"),
        drafts=("speculative_config", "spec_enabled", "spec_method"),
        cap=("max_batch_size",),
        model=("model",),
        prefix_cache={"enable_block_reuse": True},
    ),
    title="TensorRT-LLM",
    limit="max_batch_size {c}",
    over="wait in the engine's queue",
    flags={
        EngineSetting.GPUS: "--tp_size",
        EngineSetting.LIGHTER_WEIGHTS: "an FP8 checkpoint",
        EngineSetting.SMALLER_KV: "kv_cache_config.dtype: fp8",
        EngineSetting.DRAFTS: "speculative_config",
        EngineSetting.STEP_BUDGET: "max_num_tokens",
    },
    ports=(8000,),
    histograms={
        "ttft": ("trtllm_time_to_first_token_seconds",),
        "tpot": ("trtllm_time_per_output_token_seconds",),
        "e2e": ("trtllm_e2e_request_latency_seconds",),
    },
    counters={
        "input": ("trtllm_prompt_tokens_total",),
        "output": ("trtllm_generation_tokens_total",),
        "hits": ("trtllm_prompt_cached_tokens_total",),
    },
)
