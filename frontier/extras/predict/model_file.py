"""Model file: a model's sizes from its config.json on Hugging Face, as a model card has them."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, BaseModel, Field

from frontier.core.model.errors import UsageError
from frontier.core.model.text import clean_name
from frontier.fields import Count, Positive, Problem, read, read_alone, shown, without_nulls
from frontier.hardware.models import ModelCard
from frontier.simulator.spec import Card
from frontier.store.files import CONFIG_BYTES, read_given

ARCHITECTURES = frozenset(
    {
        "cohere",
        "cohere2",
        "deepseek",
        "deepseek_v2",
        "deepseek_v3",
        "ernie4_5",
        "exaone4",
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "glm",
        "glm4",
        "glm4_moe",
        "gpt_oss",
        "granite",
        "helium",
        "hunyuan_v1_dense",
        "kimi_k2",
        "llama",
        "minimax_m2",
        "ministral",
        "mistral",
        "mistral3",
        "mixtral",
        "olmo",
        "olmo2",
        "olmo3",
        "olmoe",
        "phi3",
        "phimoe",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "seed_oss",
        "smollm3",
        "solar",
        "stablelm",
    }
)
"""Model types (`model_type` in config.json) that a card can describe.

They have attention of every head, of groups or with a compressed KV, over all tokens or a window,
and gated feed-forward layers, dense or of experts."""
_WINDOWS_IN_SOME = frozenset({"cohere2", "exaone4", "gemma2", "gemma3", "gemma3_text", "olmo3"})
"""Model types with a window in some layers; without `layer_types` it is not known in which."""
_LAYER_KINDS = ("full_attention", "sliding_attention")
_ALL_EQUAL = {"decoder_sparse_step": 1, "moe_layer_freq": 1, "interleave_moe_layer_step": 1, "mlp_only_layers": []}
"""Keys that make some layers differ from the others, with the values that a card allows."""


def sizes_in(file: str) -> dict[str, Any]:
    """The fields of a model card that a model's config.json gives. UsageError otherwise."""
    name, hint = clean_name(file), "name the config.json of a model"
    try:
        tree = json.loads(read_given(Path(file), CONFIG_BYTES))
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror or error}", hint) from None
    except ValueError:
        raise UsageError(f"{name} is not JSON", hint) from None
    try:
        made: ModelCard = read_alone(Card, tree)
    except ValueError as error:
        what, _, hint = str(error).partition("; ")
        raise UsageError(f"{name}: {what}", hint) from None
    return {key: value for key, value in asdict(made).items() if value}


def sizes_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `ModelCard` that a config.json gives. A Problem, or pydantic's with one for
    each key that is wrong or missing.
    """
    _require_known(config)
    known: _HuggingFaceConfig = read(_HuggingFaceConfig, config)
    return known.sizes()


def _require_known(sizes: Mapping[str, Any]) -> None:
    """A Problem that names the parts of a config.json that no card describes."""
    by_hand = "give the sizes by hand:  model: {hidden: 4096, layers: 32, heads: 32, kv_heads: 8, ...}"
    kind = sizes.get("model_type")
    if kind is not None and kind not in ARCHITECTURES:
        raise Problem(f"model_type {shown(kind)} in config.json is not known", by_hand)
    layers = sizes.get("layer_types")
    if kind in _WINDOWS_IN_SOME and layers is None:
        raise Problem(f"layer_types is missing in config.json, which a {kind} needs", by_hand)
    if isinstance(layers, list) and (other := [layer for layer in layers if layer not in _LAYER_KINDS]):
        raise Problem(f"layer_types has {shown(other[0])} in config.json, which is not known", by_hand)
    for key, wanted in _ALL_EQUAL.items():
        if (value := sizes.get(key, wanted)) != wanted:
            raise Problem(f"{key} is {shown(value)} in config.json, and a card has {shown(wanted)} only", by_hand)
    quantised = sizes.get("quantization_config")
    method = str(quantised.get("quant_method", "")) if isinstance(quantised, Mapping) else ""
    if method and not any(precision in method for precision in ("fp8", "fp4")):
        raise Problem(f"quant_method {shown(method)} in config.json is not known", "remove quantization_config")


class _HuggingFaceConfig(BaseModel):
    """The keys of a Hugging Face config.json that a card needs."""

    name: Any = Field("custom", validation_alias=AliasChoices("_name_or_path", "model_type"))
    hidden: Positive = Field(alias="hidden_size")
    layers: Positive = Field(alias="num_hidden_layers")
    heads: Positive = Field(alias="num_attention_heads")
    kv_heads: Positive | None = Field(None, alias="num_key_value_heads")
    head_dim: Positive | None = None
    intermediate: Count = Field(alias="intermediate_size")
    vocab: Positive = Field(alias="vocab_size")
    experts: Count = Field(0, validation_alias=AliasChoices("num_experts", "num_local_experts", "n_routed_experts"))
    experts_per_token: Count = Field(0, validation_alias=AliasChoices("num_experts_per_tok", "experts_per_token"))
    expert_intermediate: Count | None = Field(None, alias="moe_intermediate_size")
    shared_experts: Count = Field(0, alias="n_shared_experts")
    shared_intermediate: Count = Field(0, alias="shared_expert_intermediate_size")
    dense_layers: Count = Field(0, alias="first_k_dense_replace")
    q_rank: Count = Field(0, alias="q_lora_rank")
    kv_rank: Count = Field(0, alias="kv_lora_rank")
    rope_dim: Count = Field(0, alias="qk_rope_head_dim")
    nope_dim: Count = Field(0, alias="qk_nope_head_dim")
    v_dim: Count = Field(0, alias="v_head_dim")
    window: Count = Field(0, alias="sliding_window")
    max_len: Count = Field(131_072, alias="max_position_embeddings")
    use_sliding_window: bool = True
    layer_types: list[Any] | None = None
    quantization_config: dict[str, Any] = Field(default_factory=dict)

    def sizes(self) -> dict[str, Any]:
        """The fields of the card of this model."""
        own = {"use_sliding_window", "layer_types", "quantization_config", "shared_intermediate"}
        sizes = without_nulls(self.model_dump(exclude=own))
        kinds, method = self.layer_types, str(self.quantization_config.get("quant_method", ""))
        windowed = self.layers if kinds is None else kinds.count("sliding_attention")
        windowed = windowed if self.window and self.use_sliding_window else 0
        if not self.experts:
            for key in ("experts_per_token", "expert_intermediate", "shared_experts", "dense_layers"):
                sizes.pop(key, None)
        inner = {"expert_intermediate": self.intermediate} if self.experts else {}
        if self.experts and self.shared_intermediate:
            sizes["shared_experts"] = max(1, round(self.shared_intermediate / (self.expert_intermediate or 1)))
        return (
            {"kv_heads": self.heads, **inner}
            | sizes
            | {
                "name": str(self.name),
                "window": self.window if windowed else 0,
                "windowed_layers": windowed,
                "precision": next((precision for precision in ("fp8", "fp4") if precision in method), "bf16"),
            }
        )
