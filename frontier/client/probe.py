"""`frontier probe`: which servers run on this machine, and the checklist of one (TLS, cache,
metrics, client).

Every finding is a line of the checklist; nothing raises for what a server does.
"""

import asyncio
import re
import secrets
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from frontier.client.evidence import scrape
from frontier.client.facts import facts_at
from frontier.client.health import p99, raise_fd_limit
from frontier.client.http import Client, tls_context
from frontier.client.preflight import (
    Check,
    Preflight,
    ask_once,
    detect,
    json_of,
    loaded_models,
    models_of,
    new_salt,
    object_of,
    preflight,
)
from frontier.client.processes import AutoWorkers, cores
from frontier.client.prompts import random_prompts
from frontier.client.target import Target, Timeouts
from frontier.errors import FrontierError
from frontier.model import Outcome, Shape
from frontier.units import format_seconds

USUAL_PORTS = (8000, 30000, 3000, 8080, 9931, 11434, 4000)
"""vLLM, TensorRT-LLM and `transformers serve`; SGLang; TGI; llama.cpp (old and new); Ollama;
LiteLLM."""

_PATIENCE = Timeouts(connect=1.0)
ASK_WITHIN = 4.0
"""Seconds that a server has to say what it is."""


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server that listens: its address, and the engine it is taken for (None: it does not answer
    like one).
    """

    url: str
    engine: str | None


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says of itself when it is asked: its engine, its models with those it has
    loaded first, and the longest prompt and answer it takes. `refused`: it wants a key, or another
    one, and says no more.

    `kv_tokens` are the tokens that its KV cache has room for, `slots` the requests that it serves
    at once; None: it does not say.
    """

    engine: str
    models: tuple[str, ...] = ()
    max_model_len: int | None = None
    refused: bool = False
    kv_tokens: int | None = None
    slots: int | None = None


async def ask_server(url: str, api_key: str | None = None) -> ServerFacts | None:
    """What the server at `url` says within ASK_WITHIN seconds; None when nothing there talks like
    one.
    """
    try:
        async with asyncio.timeout(ASK_WITHIN), Client(Target(url, api_key=api_key, timeouts=_PATIENCE)) as client:
            listing = await client.ask("/v1/models", ASK_WITHIN / 2)
            if listing.status in (401, 403):
                return ServerFacts("", refused=True)
            listed = json_of(listing)
            models, longest = models_of(listed)
            engine = await detect(client, listed)
            if not models and engine.dialect == "openai":
                return None
            loaded = await loaded_models(client, engine.dialect, models) if len(models) > 1 else models
            kv_tokens, slots = await _room(client, engine.dialect)
            names = tuple(dict.fromkeys((*loaded, *models)))
            return ServerFacts(engine.text, names, longest, kv_tokens=kv_tokens, slots=slots)
    except TimeoutError:
        return None


_MOST_ROOM = 10**9
_CACHE_INFO = re.compile(rb"^vllm:cache_config_info\{([^\n]*)\}", re.MULTILINE)
_LABEL = re.compile(rb'(block_size|num_gpu_blocks|kv_cache_size_tokens)="([0-9]{1,12})"')


async def _room(client: Client, dialect: str) -> tuple[int | None, int | None]:
    """Tokens of the KV cache (vLLM, in its metrics) and slots (llama.cpp, in its properties), where
    it says so.
    """
    if dialect == "llamacpp":
        slots = (await object_of(client, "/props", ASK_WITHIN / 4)).get("total_slots")
        return None, slots if isinstance(slots, int) and 0 < slots < _MOST_ROOM else None
    if dialect != "vllm":
        return None, None
    reading = await client.ask("/metrics", ASK_WITHIN / 4)
    # One series for each data-parallel rank; ranks add up.
    series = [dict(_LABEL.findall(labels)) for labels in _CACHE_INFO.findall(b"".join(reading.reads))]
    tokens = sum(
        int(
            labels.get(b"kv_cache_size_tokens")
            or int(labels.get(b"block_size", 0)) * int(labels.get(b"num_gpu_blocks", 0))
        )
        for labels in series
    )
    return (tokens if 0 < tokens < _MOST_ROOM else None), None


async def find_servers(ports: Sequence[int] = USUAL_PORTS) -> tuple[FoundServer, ...]:
    """What listens on this machine's ports, in their order."""
    servers = await asyncio.gather(*(_look(f"http://127.0.0.1:{port}/v1") for port in ports))
    return tuple(server for server in servers if server is not None)


async def _look(url: str) -> FoundServer | None:
    async with Client(Target(url, timeouts=_PATIENCE)) as client:
        listing = await client.ask("/v1/models", 2.0)
        if listing.status is None:
            return None
        listed = json_of(listing)
        has_models = isinstance(listed, dict) and isinstance(listed.get("data"), list)
        # One that wants a key for this question, or is still loading, is one all the same.
        if not has_models and listing.status not in (401, 403, 503):
            known = (await detect(client)).dialect
            return FoundServer(url, None if known == "openai" else known)
        return FoundServer(url, (await detect(client, listed)).text)


_METRIC_LABELS = {
    "num_requests_running": "requests running",
    "num_requests_waiting": "waiting",
    "kv_cache_usage_perc": "KV cache use",
    "num_preemptions_total": "preemptions",
    "prefix_cache_hits_total": "cache hits",
    "prompt_tokens_total": "tokens in",
    "generation_tokens_total": "tokens out",
}
CONNECTIONS = 1024
_BEATS, _BEAT = 40, 0.010
_LATE = 0.005
_SOON = 14 * 86400.0
_PROMPT = 512
"""Words of a prompt that is sent twice: several blocks of any engine's cache."""
_NO_ROUTE = (404, 501)


async def probe(target: Target, *, wait: float = 0.0) -> tuple[Check, ...]:
    """The checklist of an endpoint. Where it cannot be measured at all, the check that says so is a
    'fail'.
    """
    Client(target)  # raises where the target itself is wrong: a usage error, and no finding
    checks = [*await _tls(target)]
    try:
        found = await preflight(target, wait=wait, pick=True, checks=checks)
        async with Client(found.target) as client:
            checks += [await _connections(client, found), *await _cache(client, found), await _metrics(client)]
    except FrontierError as error:
        checks.append(Check("usable", "fail", str(error)))
    return (*checks, await _clock(), await _capacity(), _files())


async def _tls(target: Target) -> list[Check]:
    """Which TLS is spoken, and how long the certificate lasts; nothing where it is not, or cannot
    be looked at.
    """
    parts = urlsplit(target.base_url)
    if parts.scheme != "https":
        return []
    context = tls_context(target)
    context = ssl.create_default_context() if context is True else context
    try:
        _, writer = await asyncio.wait_for(
            asyncio.open_connection(parts.hostname, parts.port or 443, ssl=context), target.timeouts.connect
        )
    except (OSError, TimeoutError):
        return []  # preflight says why, or reaches it through a proxy
    secure = writer.get_extra_info("ssl_object")
    certificate = secure.getpeercert()
    writer.close()
    if not target.verify_tls:
        return [Check("TLS", "warn", f"{secure.version()}, and the certificate is not verified")]
    left = ssl.cert_time_to_seconds(certificate["notAfter"]) - time.time()
    until = datetime.fromtimestamp(time.time() + left, UTC).strftime("%Y-%m-%d")
    return [
        Check(
            "TLS", "warn" if left < _SOON else "ok", f"{secure.version()}, certificate verified and good until {until}"
        )
    ]


async def _connections(client: Client, found: Preflight) -> Check:
    """Whether connections are kept between requests."""
    opened, resent, requests = client.opened, client.resent, 4
    for _ in range(requests):
        await ask_once(client, found.target, "Hello", 2)
    opened, resent = client.opened - opened, client.resent - resent
    if opened == 1 and not resent:
        return Check("connections", "ok", "kept between requests")
    again = f"; {resent} had closed unannounced, and the request was sent again" if resent else ""
    return Check("connections", "note", f"{opened} opened for {requests} requests{again}: TTFT includes connecting")


async def _cache(client: Client, found: Preflight) -> list[Check]:
    """The prefix cache: one prompt of one token out, sent twice, and once more with a salt."""
    words = min(_PROMPT, (found.max_model_len or 4 * _PROMPT) // 4)
    text = random_prompts(Shape.of(words, 1), secrets.randbits(64))(0).content
    first, _ = await ask_once(client, found.target, text, 1, shares=True)
    second, _ = await ask_once(client, found.target, text, 1, shares=True)
    for record in (first, second):
        if record.outcome is not Outcome.OK or record.prompt_tokens is None:
            why = record.error or "it was not counted"
            return [Check("prefix cache", "warn", f"a prompt of {words} words was not answered: {why}")]
    cached = second.cached_tokens
    share = f"{cached} of {second.prompt_tokens} tokens of a prompt sent twice came from it"
    if cached is None:
        checks = [
            Check("prefix cache", "note", "unknown (no cached_tokens in the usage); a sweep's prompts all differ")
        ]
    elif cached:
        checks = [Check("prefix cache", "ok", f"on: {share}; a sweep's prompts are all different")]
    else:
        checks = [Check("prefix cache", "ok", f"off: {share}")]
    if found.target.adapter.salted:
        third, _ = await ask_once(client, found.target, text, 1, new_salt(), shares=True)
        if third.outcome is not Outcome.OK:
            checks.append(Check("cache salt", "note", "refused"))
        elif cached and third.cached_tokens == cached:
            checks.append(Check("cache salt", "note", "taken and ignored"))
        else:
            apart = cached and third.cached_tokens == 0
            checks.append(Check("cache salt", "ok", "keeps prompts apart" if apart else "taken"))
    return [*checks, await _reset(client, found.target)]


async def _reset(client: Client, target: Target) -> Check:
    """Whether there is a route that empties the cache. It is not called: the server may be in
    use.
    """
    route = target.adapter.reset
    if route is not None:
        options = await client.ask(route, method="OPTIONS")
        # A gateway may answer OPTIONS on anything.
        nowhere = await client.ask(f"{route}-{secrets.token_hex(4)}", method="OPTIONS")
        there = options.status is not None and options.status not in _NO_ROUTE and options.status < 500
        if there and nowhere.status in _NO_ROUTE:
            return Check("cache reset", "ok", f"POST {route} is offered (and was not called)")
    hint = ": VLLM_SERVER_DEV_MODE=1 would" if target.dialect == "vllm" else ""
    return Check("cache reset", "note", f"not offered{hint}; random prompts do not need it")


async def _metrics(client: Client) -> Check:
    metrics = await scrape(client)
    if metrics is None:
        return Check("metrics", "note", "none that are known; a sweep goes without the server's own evidence")
    facts = facts_at(metrics[0])
    labels = [label for name, label in _METRIC_LABELS.items() if name in facts]
    return Check("metrics", "ok", ", ".join(labels))


async def _clock() -> Check:
    """How fine this client's clock is, and how late its event loop wakes."""
    lags = []
    for _ in range(_BEATS):
        start = time.perf_counter()
        await asyncio.sleep(_BEAT)
        lags.append(time.perf_counter() - start - _BEAT)
    late = p99(lags) or 0.0
    step = time.get_clock_info("perf_counter").resolution
    detail = f"steps of {step * 1e9:g} ns; this client wakes up to {format_seconds(max(late, 0.0))} late"
    if late > _LATE:
        return Check("clock", "warn", f"{detail}: the machine is busy, and a sweep on it may flag its own points")
    return Check("clock", "ok", f"{detail}, with {cores()} cores")


async def _capacity() -> Check:
    """How many streamed events per second this machine can take as a client."""
    auto = await asyncio.to_thread(AutoWorkers.of_this_machine)
    return Check("client", "ok", f"{auto.carries()}; {auto.chooses()}")


def _files() -> Check:
    limit = raise_fd_limit(CONNECTIONS + 64)
    if limit >= CONNECTIONS + 64:
        return Check("open files", "ok", f"enough for {CONNECTIONS:,} requests in flight")
    return Check(
        "open files", "warn", f"{limit:,}: at most {limit - 64:,} requests in flight; raise it with  ulimit -Hn"
    )
