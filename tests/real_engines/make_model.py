"""Writes a tiny llama with random weights as a Hugging Face folder: a model to serve without any
download.

usage: make_model.py FOLDER        (needs numpy, tokenizers and safetensors, which every vLLM
install has)

Four layers of width 256, about 7 million parameters. The tokenizer is a byte-level BPE of 8192
entries trained on the standard library's source text, so ordinary words are one or two tokens.
"""

import json
import sys
import sysconfig
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY, WIDTH, LAYERS, HEADS, KV_HEADS, INNER, CONTEXT = 8192, 256, 4, 4, 2, 768, 8192
SPECIAL = ["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|assistant|>' if message['role'] == 'assistant' else '<|user|>' }}{{ message['content'] }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def make_tokenizer(folder: Path) -> int:
    """Trains and saves the tokenizer; returns the size of its vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:120]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train([str(text) for text in texts], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": SPECIAL[0], "eos_token": SPECIAL[1]}
    write(folder / "special_tokens_map.json", names)
    more = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CONTEXT, "chat_template": CHAT_TEMPLATE}
    write(folder / "tokenizer_config.json", names | more | {"clean_up_tokenization_spaces": False})
    return int(tokenizer.get_vocab_size())


def make_config(folder: Path, vocabulary: int) -> None:
    ends = {"bos_token_id": 0, "eos_token_id": 1}
    write(folder / "generation_config.json", ends)
    write(
        folder / "config.json",
        ends
        | {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "torch_dtype": "float32",
            "vocab_size": vocabulary,
            "hidden_size": WIDTH,
            "intermediate_size": INNER,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": WIDTH // HEADS,
            "max_position_embeddings": CONTEXT,
            "rope_theta": 10000.0,
            "rms_norm_eps": 1e-5,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
        },
    )


def make_weights(folder: Path, vocabulary: int) -> None:
    """Random matrices scaled so that activations neither grow nor vanish; the same ones every
    time.
    """
    random = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (random.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)

    head = WIDTH // HEADS
    ones = np.ones(WIDTH, np.float32)
    weights = {
        "model.embed_tokens.weight": matrix(vocabulary, WIDTH),
        "model.norm.weight": ones,
        "lm_head.weight": matrix(vocabulary, WIDTH),
    }
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        weights |= {
            f"{name}.input_layernorm.weight": ones,
            f"{name}.self_attn.q_proj.weight": matrix(HEADS * head, WIDTH),
            f"{name}.self_attn.k_proj.weight": matrix(KV_HEADS * head, WIDTH),
            f"{name}.self_attn.v_proj.weight": matrix(KV_HEADS * head, WIDTH),
            f"{name}.self_attn.o_proj.weight": matrix(WIDTH, HEADS * head),
            f"{name}.post_attention_layernorm.weight": ones,
            f"{name}.mlp.gate_proj.weight": matrix(INNER, WIDTH),
            f"{name}.mlp.up_proj.weight": matrix(INNER, WIDTH),
            f"{name}.mlp.down_proj.weight": matrix(WIDTH, INNER),
        }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def write(path: Path, data: dict[str, object]) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(f"usage: {Path(sys.argv[0]).name} FOLDER")
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    size = make_tokenizer(target)
    make_config(target, size)
    make_weights(target, size)
