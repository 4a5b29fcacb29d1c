"""SGLang (0.5.23 was read)."""

from frontier.client.engines import openai
from frontier.client.engines.base import Engine, EngineSetting, SettingNames, histogram, json_object, same

ENGINE = Engine(
    "sglang",
    openai.payload,
    openai.EVENTS,
    openai.PATHS,
    length_fields=openai.ignore_eos,
    token_ids=True,
    salted=True,
    owner="sglang",
    prefix="sglang:",
    signs={"/server_info": lambda body: bool(json_object(body))},
    version=("/server_info", "version"),
    # Its prefill stage runs in one pass or in chunks; the count of requests is that of the queue.
    facts={
        "sglang:num_running_reqs": {"num_requests_running": 1.0},
        "sglang:num_queue_reqs": {"num_requests_waiting": 1.0},
        "sglang:token_usage": {"kv_cache_usage_perc": 1.0},
        "sglang:num_retracted_requests_total": {"num_preemptions_total": 1.0},
        **same("sglang:", "generation_tokens_total", "prompt_tokens_total"),
        **histogram("sglang:time_to_first_token_seconds", "time_to_first_token_seconds"),
        **histogram("sglang:e2e_request_latency_seconds", "e2e_request_latency_seconds"),
        **histogram("sglang:queue_time_seconds", "request_queue_time_seconds"),
        "sglang:per_stage_req_latency_seconds_sum{stage=prefill_forward}": {"request_prefill_time_seconds_sum": 1.0},
        "sglang:per_stage_req_latency_seconds_sum{stage=prefill_chunked_forward}": {
            "request_prefill_time_seconds_sum": 1.0
        },
    },
    tells=("/server_info", "/get_server_info"),
    setting_names=SettingNames(
        weights=("quantization",),
        kv=("kv_cache_dtype",),
        drafts=("speculative_algorithm",),
        cap=("max_running_requests",),
        model=("model_path", "served_model_name"),
        prefix_cache={"disable_radix_cache": False},
    ),
    title="SGLang",
    limit="--max-running-requests {c}",
    over="wait in the engine's queue, which has no limit",
    flags={
        EngineSetting.GPUS: "--tp-size",
        EngineSetting.LIGHTER_WEIGHTS: "--quantization fp8",
        EngineSetting.SMALLER_KV: "--kv-cache-dtype fp8_e5m2",
        EngineSetting.DRAFTS: "--speculative-algorithm",
        EngineSetting.STEP_BUDGET: "--chunked-prefill-size",
        EngineSetting.FRONT_END: "--tokenizer-worker-num",
    },
    ports=(30000,),
    histograms={
        "input": ("sglang:prompt_tokens_histogram",),
        "output": ("sglang:generation_tokens_histogram",),
        "ttft": ("sglang:time_to_first_token_seconds",),
        "tpot": ("sglang:request_time_per_output_token_seconds",),
        "itl": ("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
        "e2e": ("sglang:e2e_request_latency_seconds",),
    },
    counters={
        "input": ("sglang:prompt_tokens_total",),
        "output": ("sglang:generation_tokens_total",),
        "hits": ("sglang:cached_tokens_total",),
    },
    metrics_flag="--enable-metrics",
    gauges=("sglang:num_running_reqs", "sglang:num_queue_reqs"),
    queue_limit="--max-queued-requests sets one; then 503",
)
