"""Servers found on this machine, and what a server says of itself."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from frontier.client.ask.identify import context_of, detect, loaded_models, models_of, object_of, room_of
from frontier.client.ask.target import Target, Timeouts
from frontier.client.engines import ENGINES
from frontier.client.http.http_client import Client

_LITELLM = 4000
USUAL_PORTS = tuple(dict.fromkeys((*(port for engine in ENGINES.values() for port in engine.ports), _LITELLM)))
"""Of the engines (`transformers serve` has vLLM's), and of a gateway before them."""

_PATIENCE = Timeouts(connect=1.0)
ASK_WITHIN = 4.0
"""Seconds that a server has to answer."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says of itself when it is asked.

    `models` begin with those in its memory. `max_model_len` is the longest prompt and answer
    together. `refused`: it wants a key, or another one, and says no more. `kv_tokens` are the
    tokens that its KV cache has room for, `slots` the requests that it serves at once; None: it
    does not say.
    """

    engine: str
    models: tuple[str, ...] = ()
    max_model_len: int | None = None
    refused: bool = False
    kv_tokens: int | None = None
    slots: int | None = None


async def ask_server(url: str, api_key: str | None = None, model: str | None = None) -> ServerFacts | None:
    """What the server at `url` says within ASK_WITHIN seconds; the context is that of `model`. None
    when nothing there answers like a server.
    """
    try:
        async with asyncio.timeout(ASK_WITHIN), Client(Target(url, api_key=api_key, timeouts=_PATIENCE)) as client:
            listing = await client.ask("/v1/models", ASK_WITHIN / 2)
            if listing.status is None:
                return None
            if listing.status in (401, 403):
                return ServerFacts("", refused=True)
            listed = object_of(listing)
            models = models_of(listed)
            dialect, identity = await detect(client, listed)
            if not models and dialect == "openai":
                return None
            loaded = await loaded_models(client, dialect, models) if len(models) > 1 else models
            room = await room_of(client, dialect)
            names = tuple(dict.fromkeys((*loaded, *models)))
            longest = await context_of(client, dialect, listed, model or next(iter(loaded), None))
            return ServerFacts(identity, names, longest, kv_tokens=room.kv_tokens, slots=room.slots)
    except TimeoutError:
        return None


async def find_servers(ports: Sequence[int] = USUAL_PORTS) -> dict[str, str]:
    """The engine of each server on this machine's ports by its address, in their order."""
    urls = [f"http://127.0.0.1:{port}/v1" for port in ports]
    servers = zip(urls, await asyncio.gather(*map(ask_server, urls)), strict=True)
    return {url: facts.engine or "it wants a key" for url, facts in servers if facts is not None}


async def told_context(target: Target) -> int | None:
    """The context of a target's model, asked for within ASK_WITHIN seconds. None where the server
    does not tell it, or a request sets another one.
    """
    options = target.extra_body.get("options")
    if isinstance(options, dict) and "num_ctx" in options:
        return None
    try:
        async with asyncio.timeout(ASK_WITHIN), Client(replace(target, timeouts=_PATIENCE)) as client:
            listed = object_of(await client.ask("/v1/models", ASK_WITHIN / 2))
            return await context_of(client, target.dialect or (await detect(client, listed))[0], listed, target.model)
    except TimeoutError:
        return None
