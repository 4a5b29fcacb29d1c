"""The simplest speed of light: what memory bandwidth alone allows, from the four figures a user can state."""

from frontier.model import Shape


def decode_ceiling(
    shape: Shape,
    concurrency: int,
    *,
    bandwidth: float,
    weights: float,
    kv_per_token: float = 0.0,
    gpus: int = 1,
    memory: float | None = None,
) -> float:
    """Output tokens per second that no engine can pass at this concurrency, by memory bandwidth.

    A decode step reads all `weights` (bytes, over all GPUs) once and every running request's KV; on average a request
    holds its prompt and half its output. `bandwidth` (bytes/s) and `memory` (bytes) are of one GPU; with `memory` only
    as many requests run as their KV fits beside the weights.
    """
    context = shape.isl.mean + shape.osl.mean / 2
    running = float(concurrency)
    if memory is not None and kv_per_token > 0:
        running = max(1.0, min(running, (memory * gpus - weights) / (context * kv_per_token)))
    return running * bandwidth * gpus / (weights + running * context * kv_per_token)
