"""TGI, text-generation-inference (its documentation was read)."""

from typing import Any

from frontier.client.engines import openai
from frontier.client.engines.base import Engine, EngineSetting, Room, SettingNames, histogram, json_object, object_with
from frontier.client.engines.request import Prompt
from frontier.client.engines.stream import NO_TOKEN, VISIBLE, StreamState, native_event, take_reason, take_text


def read_generate(state: StreamState, kind: bytes, data: bytes) -> int:
    """One event of /generate_stream: one token each, the last one with the details; there is no
    [DONE].
    """
    event = native_event(state, kind, data)
    if event is None:
        return NO_TOKEN
    details = event.get("details")
    if details:
        state.done = True
        take_reason(state, details.get("finish_reason"))
        state.usage = {
            "completion_tokens": details.get("generated_tokens"),
            "prompt_tokens": details.get("input_length"),
        }
    elif event.get("generated_text") is not None:
        state.done = True
    token = event.get("token")
    if not token:
        return NO_TOKEN
    take_text(state, token.get("text") or "")
    return VISIBLE


def _payload(api: str, model: str, prompt: Prompt) -> dict[str, Any]:
    if api == "chat":
        body = {"model": model, "messages": openai.messages(prompt), "max_tokens": prompt.osl}
        return body | {"stream": True, "stream_options": {"include_usage": True}}
    # `decoder_input_details` would make the prompt counted per token; `details` is enough for the
    # lengths.
    parameters = {"max_new_tokens": prompt.osl, "details": True, "do_sample": False}
    return {"inputs": prompt.text, "parameters": parameters}


def _room(info: bytes) -> Room:
    """Its longest prompt and answer."""
    return Room(context=json_object(info).get("max_total_tokens"))


ENGINE = Engine(
    "tgi",
    _payload,
    {"chat": openai.read_chat, "completions": read_generate},
    {"completions": "/generate_stream", "chat": "/v1/chat/completions"},
    token_per_event=True,
    prefix="tgi_",
    signs={"/info": object_with("model_id")},
    version=("/info", "version"),
    # It counts tokens in histograms only.
    facts={
        "tgi_batch_current_size": {"num_requests_running": 1.0},
        "tgi_queue_size": {"num_requests_waiting": 1.0},
        "tgi_request_generated_tokens_sum": {"generation_tokens_total": 1.0},
        "tgi_request_input_length_sum": {"prompt_tokens_total": 1.0},
        **histogram("tgi_request_queue_duration", "request_queue_time_seconds"),
        **histogram("tgi_request_inference_duration", "request_inference_time_seconds"),
        **histogram("tgi_request_duration", "e2e_request_latency_seconds"),
    },
    tells=("/info",),
    setting_names=SettingNames(
        weights=("quantize",),
        kv=("kv_cache_dtype",),
        drafts=("speculate",),
        cap=("max_batch_size",),
        model=("model_id",),
    ),
    room=("/info", _room),
    title="TGI",
    limit="--max-concurrent-requests {c}",
    over="are refused (429)",
    flags={
        EngineSetting.GPUS: "--num-shard",
        EngineSetting.LIGHTER_WEIGHTS: "--quantize fp8",
        EngineSetting.SMALLER_KV: "--kv-cache-dtype fp8_e5m2",
        EngineSetting.DRAFTS: "--speculate",
        EngineSetting.BATCH_CAP: "--max-batch-size {c}",
        EngineSetting.STEP_BUDGET: "--max-batch-prefill-tokens",
        EngineSetting.FRONT_END: "--validation-workers",
        EngineSetting.RATE_LIMIT: "--max-concurrent-requests",
    },
    ports=(3000,),
    histograms={
        "input": ("tgi_request_input_length",),
        "output": ("tgi_request_generated_tokens",),
        "tpot": ("tgi_request_mean_time_per_token_duration",),
        "e2e": ("tgi_request_duration",),
    },
)
