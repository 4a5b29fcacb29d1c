"""Knobs: where the proven concurrency is set in each engine, and what happens to the requests over it."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Knob(NamedTuple):
    """The setting of an engine that limits its requests in flight to `{c}`, and what happens over it."""

    engine: str
    setting: str
    over: str


_WAIT = "requests over it wait in the engine's queue"
KNOBS: Mapping[str, Knob] = {
    "vllm": Knob("vLLM", "--max-num-seqs {c}", f"{_WAIT}, which has no limit"),
    "sglang": Knob("SGLang", "--max-running-requests {c}", f"{_WAIT}, which has no limit"),
    "trtllm": Knob("TensorRT-LLM", "max_batch_size {c}", _WAIT),
    "tgi": Knob("TGI", "--max-concurrent-requests {c}", "requests over it are refused (429)"),
    "llamacpp": Knob("llama.cpp", "--parallel {c}", "requests over it wait in the server"),
    "ollama": Knob("Ollama", "OLLAMA_NUM_PARALLEL={c}", "requests over it wait, OLLAMA_MAX_QUEUE at most; then 503"),
}
"""By the name of the engine's dialect. Versions read: vLLM 0.32.0, SGLang 0.5.23; the others by their documentation."""


def engine_of(identities: Iterable[str | None]) -> str | None:
    """The engine behind what servers said of themselves ('vllm 0.32.0 (uvicorn)'); None where it has no known knob."""
    names = {(text or "").partition(" ")[0].rstrip(",") for text in identities}
    return names.pop() if len(names) == 1 and names <= KNOBS.keys() else None


def knob_sentence(engine: str | None, concurrency: int) -> str:
    """'set vLLM --max-num-seqs 48; requests over it wait in the engine's queue, which has no limit'."""
    knob = KNOBS.get(engine or "")
    if knob is None:
        return f"set vLLM --max-num-seqs {concurrency}, or your gateway's limit"
    return f"set {knob.engine} {knob.setting.format(c=concurrency)}; {knob.over}"
