"""Model cards: the sizes of a transformer that decide how much memory a step reads and how much it computes.

The numbers of the shipped cards are those of the models' public config.json files on Hugging Face.
"""

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from frontier.units import usable_count

WEIGHT_BYTES: Mapping[str, float] = {"bf16": 2.0, "fp8": 1.0, "fp4": 9 / 16}
"""Bytes per weight; fp4 with its block scales (nvfp4: one byte per sixteen)."""
KV_BYTES: Mapping[str, float] = {"bf16": 2.0, "fp8": 1.0}


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Sizes of one model. Attention is MLA when `kv_rank` > 0, else grouped-query; `experts` > 0 makes it a MoE.

    `intermediate` is the width of the dense feed-forward (of the first `dense_layers` layers in a MoE),
    `expert_intermediate` of one expert, `shared_experts` how many of those every token passes. `window` tokens are all
    that `windowed_layers` layers look back. `precision` is what the weights are published in.
    """

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    q_rank: int = 0
    kv_rank: int = 0
    rope_dim: int = 0
    nope_dim: int = 0
    v_dim: int = 0
    window: int = 0
    windowed_layers: int = 0
    max_len: int = 131_072
    precision: str = "bf16"

    @property
    def mla(self) -> bool:
        """Multi-head latent attention: one compressed KV per token, the same on every GPU."""
        return self.kv_rank > 0

    @property
    def moe_layers(self) -> int:
        """How many layers route to experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def expert_params(self) -> float:
        """Weights of one expert in one layer (gate, up, down)."""
        return 3.0 * self.hidden * self.expert_intermediate

    @property
    def dense_params(self) -> float:
        """Weights every token passes: attention, dense feed-forward, shared experts; no embedding, no head."""
        h = self.hidden
        if self.mla:
            query = h * self.q_rank + self.q_rank * self.heads * (self.nope_dim + self.rope_dim)
            if not self.q_rank:
                query = h * self.heads * (self.nope_dim + self.rope_dim)
            latent = h * (self.kv_rank + self.rope_dim) + self.kv_rank * self.heads * (self.nope_dim + self.v_dim)
            attention = query + latent + self.heads * self.v_dim * h
        else:
            attention = 2 * h * self.heads * self.head_dim + 2 * h * self.kv_heads * self.head_dim
        dense_ffn = (self.dense_layers if self.experts else self.layers) * 3 * h * self.intermediate
        shared = self.moe_layers * self.shared_experts * self.expert_params
        return float(self.layers * attention + dense_ffn + shared)

    @property
    def active_params(self) -> float:
        """Weights one token passes, without embedding and head."""
        return self.dense_params + self.moe_layers * self.experts_per_token * self.expert_params

    @property
    def head_params(self) -> float:
        """Weights of the output head, kept at two bytes each whatever the precision."""
        return float(self.vocab * self.hidden)

    @property
    def kv_elements(self) -> int:
        """KV numbers per token over all layers, no window considered."""
        if self.mla:
            return self.layers * (self.kv_rank + self.rope_dim)
        return 2 * self.kv_heads * self.head_dim * self.layers

    def touched(self, tokens: float) -> float:
        """Distinct experts per layer that a batch of `tokens` reads, expected under uniform routing."""
        if not self.experts:
            return 0.0
        return float(self.experts * (1.0 - (1.0 - self.experts_per_token / self.experts) ** tokens))


CARDS: Mapping[str, ModelCard] = {
    card.name.lower(): card
    for card in (
        ModelCard("Qwen3-0.6B", 1024, 28, 16, 8, 128, 3072, 151_936, max_len=40_960),
        ModelCard("Llama-3.1-8B", 4096, 32, 32, 8, 128, 14_336, 128_256),
        ModelCard("Llama-3.1-70B", 8192, 80, 64, 8, 128, 28_672, 128_256),
        ModelCard("Qwen3-32B", 5120, 64, 64, 8, 128, 25_600, 151_936, max_len=40_960),
        ModelCard(
            "Qwen3-235B", 4096, 94, 64, 4, 128, 12_288, 151_936,
            experts=128, experts_per_token=8, expert_intermediate=1536, max_len=40_960,
        ),
        ModelCard(
            "MiniMax-M2.5", 3072, 62, 48, 8, 128, 1536, 200_064,
            experts=256, experts_per_token=8, expert_intermediate=1536, max_len=196_608, precision="fp8",
        ),
        ModelCard(
            "DeepSeek-R1", 7168, 61, 128, 128, 192, 18_432, 129_280,
            experts=256, experts_per_token=8, expert_intermediate=2048, shared_experts=1, dense_layers=3,
            q_rank=1536, kv_rank=512, rope_dim=64, nope_dim=128, v_dim=128, max_len=163_840, precision="fp8",
        ),
        ModelCard(
            "gpt-oss-120b", 2880, 36, 64, 8, 64, 2880, 201_088,
            experts=128, experts_per_token=4, expert_intermediate=2880, window=128, windowed_layers=18,
            precision="fp4",
        ),
    )
}  # fmt: skip

_SUFFIXES = ("-instruct", "-it", "-a22b", "-fp8", "-0528", "-hf", "-instruct-2507")


def card(what: str | Mapping[str, Any]) -> ModelCard:
    """The model called `what` ('llama-3.1-8b', 'Qwen/Qwen3-32B'), or one described by a mapping.

    A mapping is either a model's Hugging Face config.json (it has `num_hidden_layers`) or the fields of `ModelCard`.
    ValueError names the key that is wrong or missing.
    """
    if isinstance(what, str):
        name = what.strip().lower().rpartition("/")[2].removeprefix("meta-")
        while name not in CARDS and name.endswith(_SUFFIXES):
            name = next(name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix))
        if name in CARDS:
            return CARDS[name]
        close = difflib.get_close_matches(name, CARDS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(CARDS)
        raise ValueError(f"model: unknown model {what!r}; {hint}")
    if "num_hidden_layers" in what:
        return _from_config(what)
    fields = {field.name: field for field in dataclasses.fields(ModelCard)}
    for key in what:
        if key not in fields:
            close = difflib.get_close_matches(key, fields, n=1)
            raise ValueError(
                f"model.{key}: unknown key; " + (f"did you mean {close[0]!r}?" if close else ", ".join(fields))
            )
    for name, field in fields.items():
        if field.default is dataclasses.MISSING and name not in what and name not in ("name", "head_dim"):
            raise ValueError(f"model.{name}: missing")
        if name in what and name not in ("name", "precision"):
            _count(name, what[name])
    given = {"name": "custom", "head_dim": what["hidden"] // what["heads"], **what}
    return _checked(ModelCard(**given))


def _count(name: str, value: Any) -> int:
    """A size of a model, above zero where others are divided by it. ValueError otherwise."""
    found = usable_count(int(value) if isinstance(value, float) and value.is_integer() else value)
    if found is None or (found == 0 and name in ("heads", "num_attention_heads")):
        raise ValueError(f"model.{name}: {value!r:.40} is not a count")
    return found


def _from_config(config: Mapping[str, Any]) -> ModelCard:
    """A card from a Hugging Face config.json (`text_config` is the caller's to unwrap)."""

    def number(*names: str, default: int | None = None) -> int:
        for name in names:
            if config.get(name) is not None:
                return _count(name, config[name])
        if default is None:
            raise ValueError(f"model.{names[0]}: missing in the model's config")
        return default

    hidden, heads, layers = number("hidden_size"), number("num_attention_heads"), number("num_hidden_layers")
    experts = number("num_experts", "num_local_experts", "n_routed_experts", default=0)
    inter = number("intermediate_size")
    window = number("sliding_window", default=0) if config.get("use_sliding_window", True) else 0
    kinds = config.get("layer_types")
    windowed = (layers if kinds is None else sum(kind == "sliding_attention" for kind in kinds)) if window else 0
    quant = config.get("quantization_config") or {}
    method = str(quant.get("quant_method", ""))
    return _checked(
        ModelCard(
            str(config.get("_name_or_path") or config.get("model_type", "custom")), hidden, layers, heads,
            number("num_key_value_heads", default=heads), number("head_dim", default=hidden // heads), inter,
            number("vocab_size"), experts,
            number("num_experts_per_tok", "experts_per_token", default=0) if experts else 0,
            number("moe_intermediate_size", default=inter) if experts else 0,
            number("n_shared_experts", default=0) if experts else 0,
            number("first_k_dense_replace", default=0) if experts else 0,
            number("q_lora_rank", default=0), number("kv_lora_rank", default=0), number("qk_rope_head_dim", default=0),
            number("qk_nope_head_dim", default=0), number("v_head_dim", default=0), window if windowed else 0, windowed,
            number("max_position_embeddings", default=131_072),
            "fp8" if "fp8" in method else "fp4" if "fp4" in method else "bf16",
        )
    )  # fmt: skip


def _checked(made: ModelCard) -> ModelCard:
    for name in ("hidden", "layers", "heads", "kv_heads", "head_dim", "vocab"):
        if getattr(made, name) < 1:
            raise ValueError(f"model.{name}: must be at least 1")
    if made.precision not in WEIGHT_BYTES:
        raise ValueError(f"model.precision: {made.precision!r} is none of {', '.join(WEIGHT_BYTES)}")
    if made.experts and not 0 < made.experts_per_token <= made.experts:
        raise ValueError("model.experts_per_token: must be between 1 and the number of experts")
    return made
