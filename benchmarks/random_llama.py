"""A model of Llama-3.1-8B's shape with random weights behind transformers' own server.

usage: PYTHON benchmarks/random_llama.py FOLDER [--port 8000] [--size 8b|tiny] [--graphs]

Nothing is downloaded: configuration and tokenizer are written to FOLDER, whose name is the model's,
and the weights are drawn on the device. PYTHON needs torch, and transformers 5.17 with its extra
`serving`. No token ends an answer: each has the asked length.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_CACHE"] = tempfile.gettempdir()  # the list of models is read from there

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.cli.serve import Serve

LLAMA_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
TINY = LLAMA_8B | {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
TINY |= {"num_key_value_heads": 2, "vocab_size": 16384}
SIZES = {"8b": LLAMA_8B, "tiny": TINY}

LEARNED = 8000
"""Tokens that prompts are made of."""


def make_tokenizer(folder: Path, vocabulary: int) -> None:
    """A byte-level BPE with `vocabulary` tokens: some learned from source code, the rest words that
    no prompt holds."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    sources = sorted(Path(json.__file__).parent.parent.glob("*.py"))[:80]
    trainer = trainers.BpeTrainer(
        vocab_size=LEARNED, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train([str(path) for path in sources], trainer)
    made = json.loads(tokenizer.to_str())
    known = made["model"]["vocab"]
    known |= {f"Ġw{i}w": i for i in range(len(known), vocabulary)}
    (folder / "tokenizer.json").write_text(json.dumps(made))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192}
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    (folder / "tokenizer_config.json").write_text(json.dumps(about | {"chat_template": template}))


def make_folder(folder: Path, shape: dict[str, int]) -> None:
    """What a model's folder holds, but for its weights. Without an end token each answer has the
    length that was asked for."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "max_position_embeddings": 8192,
        "rope_theta": 500000.0,
        "rms_norm_eps": 1e-5,
        "bos_token_id": None,
        "eos_token_id": None,
        "torch_dtype": "bfloat16",
    } | shape
    (folder / "config.json").write_text(json.dumps(config))
    make_tokenizer(folder, shape["vocab_size"])


def random_weights(cls: type[LlamaForCausalLM], folder: str, **how: Any) -> LlamaForCausalLM:
    """A model of the configuration's shape, drawn on its device, in the place of a file."""
    device = how.get("device_map")
    place = device if isinstance(device, str) and device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    torch.set_default_device(place)
    model = cls._from_config(
        LlamaConfig.from_pretrained(folder),
        dtype=torch.bfloat16,
        attn_implementation=how.get("attn_implementation") or "sdpa",
    )
    torch.set_default_device("cpu")
    # Only words are drawn: a learned token can be half of a character, which is no text to stream.
    model.lm_head.weight.data[:LEARNED] = 0
    model.generation_config.eos_token_id = None
    return model.eval()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--size", choices=SIZES, default="8b")
    parser.add_argument("--graphs", action="store_true", help="the server's steps as CUDA graphs")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    make_folder(asked.folder, SIZES[asked.size])
    os.chdir(asked.folder.parent)  # the server calls a model by its folder
    LlamaForCausalLM.from_pretrained = classmethod(random_weights)  # type: ignore[method-assign, assignment]
    Serve(
        force_model=asked.folder.name,
        continuous_batching=True,
        attn_implementation="sdpa",
        cb_max_batch_tokens=2048,
        cb_num_blocks=512 if asked.size == "8b" else 64,
        cb_use_cuda_graph=asked.graphs or None,
        host="127.0.0.1",
        port=asked.port,
        log_level="error",
    )
