"""llama.cpp's `llama-server` (its documentation was read)."""

from frontier.client.engines import openai
from frontier.client.engines.base import Engine, EngineSetting, Room, SettingNames, json_object, object_with


def _room(props: bytes) -> Room:
    """Its slots, and the context of each; a router has none of its own."""
    told = json_object(props)
    defaults = told.get("default_generation_settings")
    return Room(slots=told.get("total_slots"), context=defaults.get("n_ctx") if isinstance(defaults, dict) else None)


ENGINE = Engine(
    "llamacpp",
    openai.payload,
    openai.EVENTS,
    openai.PATHS,
    length_fields=lambda osl: {"ignore_eos": True, "n_predict": osl},
    token_ids=True,
    uncached={"cache_prompt": False},
    owner="llamacpp",
    prefix="llamacpp:",
    signs={"/props": object_with("total_slots", "default_generation_settings")},
    version=("/props", "build_info"),
    # Seconds are added up over requests, which it does not count.
    facts={
        "llamacpp:requests_processing": {"num_requests_running": 1.0},
        "llamacpp:requests_deferred": {"num_requests_waiting": 1.0},
        "llamacpp:tokens_predicted_total": {"generation_tokens_total": 1.0},
        "llamacpp:prompt_tokens_total": {"prompt_tokens_total": 1.0},
        "llamacpp:prompt_seconds_total": {"request_prefill_time_seconds_sum": 1.0},
        "llamacpp:tokens_predicted_seconds_total": {"request_decode_time_seconds_sum": 1.0},
    },
    tells=("/props",),
    setting_names=SettingNames(
        kv=("cache_type_k",),
        drafts=("model_draft",),
        cap=("total_slots", "parallel"),
        model=("model", "model_path"),
    ),
    room=("/props", _room),
    title="llama.cpp",
    limit="--parallel {c}",
    over="wait in the server",
    flags={
        EngineSetting.LIGHTER_WEIGHTS: "a smaller quantisation (Q4_K_M)",
        EngineSetting.SMALLER_KV: "--cache-type-k q8_0 --cache-type-v q8_0",
        EngineSetting.DRAFTS: "--model-draft",
        EngineSetting.STEP_BUDGET: "--ubatch-size",
    },
    ports=(8080, 9931),  # 9931 of newer ones
)
