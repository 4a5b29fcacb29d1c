"""What servers say of themselves; and those on this machine, at the ports the known engines use by default."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from frontier.measure.client import Client
from frontier.measure.detect import answer, detect, loaded_models
from frontier.measure.preflight import models_of
from frontier.measure.target import Target, Timeouts

USUAL_PORTS = (8000, 30000, 3000, 8080, 9931, 11434, 4000)
"""vLLM, TensorRT-LLM and `transformers serve`; SGLang; TGI; llama.cpp (old and new); Ollama; LiteLLM."""

_PATIENCE = Timeouts(connect=1.0)
ASK_WITHIN = 4.0
"""Seconds that a server has to say what it is."""


@dataclass(frozen=True, slots=True)
class Found:
    """Something that listens: its address, and the engine it is taken for (None: it does not talk like one)."""

    url: str
    engine: str | None


@dataclass(frozen=True, slots=True)
class Answered:
    """What a server says of itself when it is asked: its engine, its models with those it has loaded first, and the
    longest prompt and answer it takes. `refused`: it wants a key, or another one, and says no more.
    """

    engine: str
    models: tuple[str, ...] = ()
    max_model_len: int | None = None
    refused: bool = False


async def ask_server(url: str, api_key: str | None = None) -> Answered | None:
    """What the server at `url` says within ASK_WITHIN seconds; None when nothing there talks like one."""
    try:
        async with asyncio.timeout(ASK_WITHIN), Client(Target(url, api_key=api_key, timeouts=_PATIENCE)) as client:
            asked = await client.get("/v1/models", timeout=ASK_WITHIN / 2)
            if asked.status in (401, 403):
                return Answered("", refused=True)
            listed = answer(asked)
            models, longest = models_of(listed)
            engine = await detect(client, listed)
            if not models and engine.dialect == "openai":
                return None
            loaded = await loaded_models(client, engine.dialect, models) if len(models) > 1 else models
            return Answered(engine.text, tuple(dict.fromkeys((*loaded, *models))), longest)
    except TimeoutError:
        return None


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
