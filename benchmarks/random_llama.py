"""Writes a llama with random weights as a Hugging Face folder, in the shape of Llama-3.1-8B or
tiny.

usage: PYTHON -m benchmarks.random_llama FOLDER [--size 8b|tiny] [--device cuda]

PYTHON needs torch, safetensors and tokenizers; nothing is downloaded. The vocabulary is that of the
tests' tokenizer (8,192 entries), so the 8B shape has 7.0 billion parameters. No token ends an
answer: every answer has the asked length.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.engines.make_model import make_tokenizer, write

SIZES = {"8b": (4096, 32, 32, 8, 14336, torch.bfloat16), "tiny": (256, 4, 4, 2, 768, torch.float32)}
"""Width, layers, heads, KV heads, width of the feed-forward, and what the weights are kept in."""


def make(folder: Path, size: str, device: str) -> None:
    """Writes tokenizer, config and weights; a shard for each layer, so that little memory is
    needed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    width, layers, heads, kv_heads, inner, kept = SIZES[size]
    vocabulary, head = make_tokenizer(folder), width // heads
    write(folder / "generation_config.json", {"bos_token_id": 0, "pad_token_id": 1})
    write(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": vocabulary,
            "torch_dtype": str(kept).removeprefix("torch."),
            "hidden_size": width,
            "intermediate_size": inner,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": head,
            "max_position_embeddings": 8192,
            "rope_theta": 500000.0,
            "rms_norm_eps": 1e-5,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "bos_token_id": 0,
            "eos_token_id": None,
        },
    )
    torch.manual_seed(0)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        """Scaled so that activations neither grow nor vanish."""
        return (torch.randn(rows, columns, device=device) / columns**0.5).to(kept).cpu()

    ones = torch.ones(width, dtype=kept)
    where: dict[str, str] = {}

    def keep(shard: int, weights: dict[str, torch.Tensor]) -> None:
        file = f"model-{shard:03d}.safetensors"
        save_file(weights, folder / file, metadata={"format": "pt"})
        where.update(dict.fromkeys(weights, file))

    keep(
        layers,
        {
            "model.embed_tokens.weight": matrix(vocabulary, width),
            "lm_head.weight": matrix(vocabulary, width),
            "model.norm.weight": ones,
        },
    )
    for layer in range(layers):
        name = f"model.layers.{layer}"
        keep(
            layer,
            {
                f"{name}.input_layernorm.weight": ones,
                f"{name}.post_attention_layernorm.weight": ones.clone(),
                f"{name}.self_attn.q_proj.weight": matrix(width, width),
                f"{name}.self_attn.k_proj.weight": matrix(kv_heads * head, width),
                f"{name}.self_attn.v_proj.weight": matrix(kv_heads * head, width),
                f"{name}.self_attn.o_proj.weight": matrix(width, width),
                f"{name}.mlp.gate_proj.weight": matrix(inner, width),
                f"{name}.mlp.up_proj.weight": matrix(inner, width),
                f"{name}.mlp.down_proj.weight": matrix(width, inner),
            },
        )
    write(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": where})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=SIZES, default="8b")
    parser.add_argument("--device", default="cuda")
    asked = parser.parse_args()
    make(asked.folder, asked.size, asked.device)
