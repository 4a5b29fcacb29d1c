"""Model cards: the sizes of a transformer that decide how much memory a step reads and how much it
computes.

The numbers of the shipped cards are those of the models' public config.json files on Hugging Face.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ConfigDict

from frontier import registry
from frontier.fields import Count, Positive, Problem, one_of, read, shown, without_nulls
from frontier.hardware.known_names import MODEL_BY_SIZES, name_hint

WEIGHT_BYTES: Mapping[str, float] = {"bf16": 2.0, "fp8": 1.0, "fp4": 9 / 16}
"""Bytes per weight; fp4 with its block scales (nvfp4: one byte per sixteen)."""
KV_BYTES: Mapping[str, float] = {"bf16": 2.0, "fp8": 1.0}


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Sizes of one model. Attention is MLA when `kv_rank` > 0, else grouped-query; `experts` > 0
    makes it a MoE.

    `intermediate` is the width of the dense feed-forward (of the first `dense_layers` layers in a
    MoE), `expert_intermediate` of one expert, `shared_experts` how many of those every token
    passes. `window` tokens are all that `windowed_layers` layers look back. `precision` is what the
    weights are published in.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    name: str
    hidden: Positive
    layers: Positive
    heads: Positive
    kv_heads: Positive
    head_dim: Positive
    intermediate: Count
    vocab: Positive
    experts: Count = 0
    experts_per_token: Count = 0
    expert_intermediate: Count = 0
    shared_experts: Count = 0
    dense_layers: Count = 0
    q_rank: Count = 0
    kv_rank: Count = 0
    rope_dim: Count = 0
    nope_dim: Count = 0
    v_dim: Count = 0
    window: Count = 0
    windowed_layers: Count = 0
    max_len: Count = 131_072
    precision: Annotated[str, one_of(*WEIGHT_BYTES)] = "bf16"

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
        """Weights every token passes: attention, dense feed-forward, shared experts; no embedding,
        no head.
        """
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
        """Distinct experts per layer that a batch of `tokens` reads, expected under uniform
        routing.
        """
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
            "Qwen3-235B",
            4096,
            94,
            64,
            4,
            128,
            12_288,
            151_936,
            experts=128,
            experts_per_token=8,
            expert_intermediate=1536,
            max_len=40_960,
        ),
        ModelCard(
            "MiniMax-M2.5",
            3072,
            62,
            48,
            8,
            128,
            1536,
            200_064,
            experts=256,
            experts_per_token=8,
            expert_intermediate=1536,
            max_len=196_608,
            precision="fp8",
        ),
        ModelCard(
            "DeepSeek-R1",
            7168,
            61,
            128,
            128,
            192,
            18_432,
            129_280,
            experts=256,
            experts_per_token=8,
            expert_intermediate=2048,
            shared_experts=1,
            dense_layers=3,
            q_rank=1536,
            kv_rank=512,
            rope_dim=64,
            nope_dim=128,
            v_dim=128,
            max_len=163_840,
            precision="fp8",
        ),
        ModelCard(
            "gpt-oss-120b",
            2880,
            36,
            64,
            8,
            64,
            2880,
            201_088,
            experts=128,
            experts_per_token=4,
            expert_intermediate=2880,
            window=128,
            windowed_layers=18,
            precision="fp4",
        ),
    )
}

_SUFFIXES = ("-instruct", "-it", "-a22b", "-fp8", "-0528", "-hf", "-instruct-2507")


def card(what: str | Mapping[str, Any]) -> ModelCard:
    """The model called `what` ('llama-3.1-8b', 'Qwen/Qwen3-32B'), or one described by a mapping.

    A mapping is either a model's Hugging Face config.json (it has `num_hidden_layers` or
    `model_type`) or the fields of `ModelCard`. ValueError otherwise: a `Problem`, or pydantic's
    with one for each key that is wrong or missing.
    """
    if isinstance(what, str):
        name = what.strip().lower().rpartition("/")[2].removeprefix("meta-")
        while name not in CARDS and name.endswith(_SUFFIXES):
            name = next(name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix))
        if name in CARDS:
            return CARDS[name]
        raise Problem(f"unknown model {what!r}", name_hint(name, CARDS, MODEL_BY_SIZES))
    if not isinstance(what, Mapping):
        raise Problem(f"{{key}} is a model's name or its sizes; this is {shown(what)}", "write llama-3.1-8b")
    sizes = without_nulls(what)
    if isinstance(inner := sizes.get("text_config"), Mapping) and "num_hidden_layers" in inner:
        sizes = without_nulls({"quantization_config": sizes.get("quantization_config"), **inner})
    if "num_hidden_layers" in sizes or "model_type" in sizes:
        sizes = registry.MODEL_FILE.require("the config.json of a model").sizes_of(sizes)
    hidden, heads = sizes.get("hidden"), sizes.get("heads")
    per_head = hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads > 0 else 1
    made: ModelCard = read(ModelCard, {"name": "custom", "head_dim": per_head, **sizes})
    if made.experts and not 0 < made.experts_per_token <= made.experts:
        raise Problem("experts_per_token must be between 1 and the number of experts")
    return made
