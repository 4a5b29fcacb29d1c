"""Servers on this machine, at the ports the known engines use unless told otherwise."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from frontier.measure.client import Client
from frontier.measure.detect import answer, detect
from frontier.measure.target import Target, Timeouts

USUAL_PORTS = (8000, 30000, 3000, 8080, 9931, 11434, 4000)
"""vLLM, TensorRT-LLM and `transformers serve`; SGLang; TGI; llama.cpp (old and new); Ollama; LiteLLM."""

_PATIENCE = Timeouts(connect=1.0)


@dataclass(frozen=True, slots=True)
class Found:
    """Something that listens: its address, and the engine it is taken for (None: it does not talk like one)."""

    url: str
    engine: str | None


async def find_servers(ports: Sequence[int] = USUAL_PORTS) -> tuple[Found, ...]:
    """What listens on this machine's ports, in their order."""
    looked = await asyncio.gather(*(_look(f"http://127.0.0.1:{port}/v1") for port in ports))
    return tuple(found for found in looked if found is not None)


async def _look(url: str) -> Found | None:
    async with Client(Target(url, timeouts=_PATIENCE)) as client:
        asked = await client.get("/v1/models", timeout=2.0)
        if asked.status is None:
            return None
        listed = answer(asked)
        has_models = isinstance(listed, dict) and isinstance(listed.get("data"), list)
        # One that wants a key for this question, or is still loading, is one all the same.
        if not has_models and asked.status not in (401, 403, 503):
            known = (await detect(client)).dialect
            return Found(url, None if known == "openai" else known)
        return Found(url, (await detect(client, listed)).text)
