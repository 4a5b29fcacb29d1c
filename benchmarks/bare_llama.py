"""Step times of a bare Llama-3.1-8B in PyTorch: random weights, CUDA graphs, no server.

usage: PYTHON benchmarks/bare_llama.py [--tiny] [--seconds 0.5] > steps.json

What the hardware gives an engine that adds nothing: one token for each request of a batch, and
prompts read. Each time is the median of repeated runs, by device events.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

HIDDEN, INNER, HEADS, KV_HEADS, HEAD, VOCABULARY = 4096, 14336, 32, 8, 128, 128256
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = (256, 1024, 4096, 16384)
PROMPTS = ((1, 256), (1, 1024), (1, 4096), (1, 16384), (4, 1024), (16, 256))
MOST_TOKENS = 256 * 1024
"""Tokens whose keys and values there is room for: 34 GB in all layers."""


class Llama:
    """The model's weights, and keys and values of so many tokens in each layer."""

    def __init__(self, layers: int, device: str, tokens: int) -> None:
        def weight(rows: int, columns: int) -> Tensor:
            return torch.randn(rows, columns, device=device, dtype=torch.bfloat16) * columns**-0.5

        self.layers = [
            {
                "qkv": weight((HEADS + 2 * KV_HEADS) * HEAD, HIDDEN),
                "out": weight(HIDDEN, HEADS * HEAD),
                "up": weight(2 * INNER, HIDDEN),
                "down": weight(HIDDEN, INNER),
                "norm": torch.ones(HIDDEN, device=device, dtype=torch.bfloat16),
                "keys": torch.randn(tokens * KV_HEADS * HEAD, device=device, dtype=torch.bfloat16),
                "values": torch.randn(tokens * KV_HEADS * HEAD, device=device, dtype=torch.bfloat16),
            }
            for _ in range(layers)
        ]
        self.head = weight(VOCABULARY, HIDDEN)
        self.embedding = weight(VOCABULARY, HIDDEN)
        half = HEAD // 2
        self.frequencies = 500000.0 ** -(torch.arange(half, device=device, dtype=torch.float32) / half)

    def rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotary positions of [batch, heads, tokens, HEAD]."""
        angles = positions[:, None].float() * self.frequencies
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    def step(self, ids: Tensor, context: int) -> Tensor:
        """The next token of each request.

        `ids` is [batch, new tokens]; `context` is the length with them. One new token reads the
        cache; many are a prompt and attend to each other.
        """
        batch, new = ids.shape
        positions = torch.arange(context - new, context, device=ids.device)
        x = self.embedding[ids]
        for layer in self.layers:
            y = functional.rms_norm(x, (HIDDEN,), layer["norm"])
            qkv = (y @ layer["qkv"].T).view(batch, new, -1, HEAD).transpose(1, 2)
            q, k, v = qkv.split((HEADS, KV_HEADS, KV_HEADS), dim=1)
            q, k = self.rotated(q, positions), self.rotated(k, positions)
            size = batch * context * KV_HEADS * HEAD
            keys = layer["keys"][:size].view(batch, KV_HEADS, context, HEAD)
            values = layer["values"][:size].view(batch, KV_HEADS, context, HEAD)
            keys[:, :, context - new :], values[:, :, context - new :] = k, v
            y = functional.scaled_dot_product_attention(q, keys, values, is_causal=new > 1, enable_gqa=True)
            x = x + y.transpose(1, 2).reshape(batch, new, -1) @ layer["out"].T
            gate, up = (functional.rms_norm(x, (HIDDEN,), layer["norm"]) @ layer["up"].T).chunk(2, dim=-1)
            x = x + (functional.silu(gate) * up) @ layer["down"].T
        return (x[:, -1] @ self.head.T).argmax(dim=-1)


def timed(work: Callable[[], Any], cuda: bool, seconds: float) -> tuple[float, int]:
    """The median time of one run, and of how many."""
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < 5 or (time.perf_counter() - begin < seconds and len(times) < 200):
        if cuda:
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            work()
            after.record()
            torch.cuda.synchronize()
            times.append(before.elapsed_time(after) / 1e3)
        else:
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
    return statistics.median(times), len(times)


def graphed(work: Callable[[], Any]) -> Callable[[], Any]:
    """`work` as one CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
        work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def measured(model: Llama, cuda: bool, most: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Each setting's time: decode as a graph and without, prompts without."""
    device = "cuda" if cuda else "cpu"
    for context in CONTEXTS:
        for batch in BATCHES:
            if batch * context > most:
                continue
            ids = torch.randint(VOCABULARY, (batch, 1), device=device)
            work = lambda ids=ids, context=context: model.step(ids, context)  # noqa: E731
            work()
            eager, _ = timed(work, cuda, seconds / 4)
            median, n = timed(graphed(work), cuda, seconds) if cuda else (eager, 1)
            yield {"kind": "decode", "batch": batch, "context": context, "s": median, "eager_s": eager, "n": n}
    for batch, tokens in PROMPTS:
        if batch * tokens > most:
            continue
        ids = torch.randint(VOCABULARY, (batch, tokens), device=device)
        work = lambda ids=ids, tokens=tokens: model.step(ids, tokens)  # noqa: E731
        work()
        median, n = timed(work, cuda, seconds)
        yield {"kind": "prompt", "batch": batch, "context": tokens, "s": median, "n": n}


@torch.inference_mode()
def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.5)
    asked = parser.parse_args()
    cuda = torch.cuda.is_available() and not asked.tiny
    most = MOST_TOKENS if cuda else 512
    model = Llama(32 if cuda else 1, "cuda" if cuda else "cpu", most)
    rows = []
    for row in measured(model, cuda, most, asked.seconds):
        rows.append(row)
        print(row, file=sys.stderr, flush=True)
    name = torch.cuda.get_device_name() if cuda else "cpu"
    print(json.dumps({"device": name, "torch": torch.__version__, "model": "llama-3.1-8b", "steps": rows}, indent=1))


if __name__ == "__main__":
    main()
