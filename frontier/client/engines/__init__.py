"""The table of engines, by the names of their dialects.

Each engine is a file of this folder, and one line here. Where several could answer alike, as on
/server_info, the one listed first is tried first.
"""

from collections.abc import Iterable, Mapping

from frontier.client.engines import llamacpp, ollama, openai, sglang, tgi, trtllm, vllm
from frontier.client.engines.base import Engine

ENGINES: Mapping[str, Engine] = {
    engine.name: engine
    for engine in (
        openai.ENGINE,
        openai.REASONING_MODELS,
        vllm.ENGINE,
        trtllm.ENGINE,
        sglang.ENGINE,
        tgi.ENGINE,
        llamacpp.ENGINE,
        ollama.ENGINE,
    )
}

PREFIXES = frozenset(engine.prefix for engine in ENGINES.values() if engine.prefix)
"""What the names of their metrics begin with."""

KNOWN = {name: engine for name, engine in ENGINES.items() if engine.limit}
"""The engines whose limit on requests in flight is known, by dialect."""

EMITTED = {name: engine for name, engine in KNOWN.items() if engine.gauges}
"""The engines that `frontier users --emit` writes lines for."""


def engine_of(identities: Iterable[str | None]) -> str | None:
    """The engine by what servers said of themselves ('vllm 0.32.0 (uvicorn)'); None where it has no
    known limit.
    """
    names = {(text or "").partition(" ")[0].rstrip(",") for text in identities}
    return names.pop() if len(names) == 1 and names <= KNOWN.keys() else None
