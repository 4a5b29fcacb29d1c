"""Lines that set a limit: where each engine sets its limit on requests in flight."""

from frontier.client.engines import KNOWN, vllm


def knob_sentence(engine: str | None, concurrency: int) -> str:
    """'set vLLM --max-num-seqs 48; requests over it wait in the engine's queue, which has no
    limit'.
    """
    known = KNOWN.get(engine or "")
    if known is None:
        return f"set {vllm.ENGINE.title} {vllm.ENGINE.limit.format(c=concurrency)}, or your gateway's limit"
    return f"set {known.title} {known.limit.format(c=concurrency)}; {known.over}"
