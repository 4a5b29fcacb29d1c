"""What servers say of themselves; and those on this machine, at the ports the known engines use by default.

What `frontier probe` asks beyond preflight: how the server is reached, its cache, its metrics, and this client.

Everything here is a line of a checklist; nothing raises for what a server does.
"""

import asyncio
import os
import ssl
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

import numpy as np

from frontier.client.adapters import DIALECTS
from frontier.client.cache import CacheFacts, look_at_cache
from frontier.client.detect import answer, detect, loaded_models
from frontier.client.evidence import scrape
from frontier.client.health import raise_fd_limit
from frontier.client.http import Client, tls_context
from frontier.client.preflight import Check, Preflight, ask_once, models_of, preflight, swept
from frontier.client.target import Target, Timeouts
from frontier.errors import FrontierError
from frontier.units import format_seconds

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


_TOLD = {
    "num_requests_running": "requests running", "num_requests_waiting": "waiting",
    "kv_cache_usage_perc": "KV cache use",
    "num_preemptions_total": "preemptions", "prefix_cache_hits_total": "cache hits", "prompt_tokens_total": "tokens in",
    "generation_tokens_total": "tokens out",
}  # fmt: skip
CONNECTIONS = 1024
_BEATS, _BEAT = 40, 0.010
_LATE = 0.005
_SOON = 14 * 86400.0


async def probe(target: Target, *, wait: float = 0.0) -> tuple[Check, ...]:
    """The checklist of an endpoint. Where it cannot be measured at all, the check that says so is a 'fail'."""
    Client(target)  # what is wrong with the target itself is the user's mistake, and no finding
    checks = [*await _tls(target)]
    try:
        found = await preflight(target, wait=wait, pick=True, checks=checks)
        async with Client(found.target) as client, swept(client):
            checks += [await _connections(client, found), *await _cache(client, found), await _metrics(client)]
    except FrontierError as error:
        checks.append(Check("usable", "fail", str(error)))
    return (*checks, await _clock(), _files())


async def _tls(target: Target) -> list[Check]:
    """Which TLS is spoken, and how long the certificate lasts; nothing where it is not, or cannot be looked at."""
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
    opened, resent, asked = client.opened, client.resent, 4
    for _ in range(asked):
        await ask_once(client, found.target, "Hello", 2)
    opened, resent = client.opened - opened, client.resent - resent
    if opened == 1 and not resent:
        return Check("connections", "ok", "kept between requests")
    again = f"; {resent} had closed unannounced, and the request was sent again" if resent else ""
    said = f"{opened} opened for {asked} requests{again}: TTFT will hold the time to connect"
    return Check("connections", "note", said)


async def _cache(client: Client, found: Preflight) -> list[Check]:
    facts = await look_at_cache(client, found)
    if isinstance(facts, str):
        return [Check("prefix cache", "warn", facts)]
    return [_cached(facts), *_salt(facts), _reset(facts, found)]


def _cached(facts: CacheFacts) -> Check:
    if facts.cached is None:
        untold = "not told (no cached_tokens in the usage); a sweep's prompts are all different"
        return Check("prefix cache", "note", untold)
    share = f"{facts.cached} of {facts.prompt} tokens of a prompt sent twice came from it"
    if not facts.cached:
        return Check("prefix cache", "ok", f"off: {share}")
    return Check("prefix cache", "ok", f"on: {share}; a sweep's prompts are all different")


def _salt(facts: CacheFacts) -> list[Check]:
    if facts.takes_salt is None:
        return []
    if not facts.takes_salt:
        return [Check("cache salt", "note", "refused")]
    if facts.cached and facts.salted == facts.cached:
        return [Check("cache salt", "note", "taken and ignored")]
    if facts.cached and facts.salted == 0:
        return [Check("cache salt", "ok", "keeps prompts apart")]
    return [Check("cache salt", "ok", "taken")]


def _reset(facts: CacheFacts, found: Preflight) -> Check:
    route = DIALECTS[found.target.dialect or "openai"].reset
    if facts.resets:
        return Check("cache reset", "ok", f"POST {route} is offered (and was not called)")
    hint = ": VLLM_SERVER_DEV_MODE=1 would" if found.target.dialect == "vllm" else ""
    return Check("cache reset", "note", f"not offered{hint}; random prompts do not need it")


async def _metrics(client: Client) -> Check:
    found = await scrape(client)
    if found is None:
        return Check("metrics", "note", "none that are known; a sweep goes without the server's own evidence")
    told = [words for name, words in _TOLD.items() if name in found.gauges or name in found.counters]
    return Check("metrics", "ok", ", ".join(told))


async def _clock() -> Check:
    """How fine this client's clock is, and how late its event loop wakes."""
    lags = []
    for _ in range(_BEATS):
        asked = time.perf_counter()
        await asyncio.sleep(_BEAT)
        lags.append(time.perf_counter() - asked - _BEAT)
    late = float(np.quantile(lags, 0.99, method="inverted_cdf"))
    step = time.get_clock_info("perf_counter").resolution
    said = f"steps of {step * 1e9:g} ns; this client wakes up to {format_seconds(max(late, 0.0))} late"
    if late > _LATE:
        return Check("clock", "warn", f"{said}: the machine is busy, and a sweep on it may flag its own points")
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return Check("clock", "ok", f"{said}, with {cores} cores")


def _files() -> Check:
    limit = raise_fd_limit(CONNECTIONS + 64)
    if limit >= CONNECTIONS + 64:
        return Check("open files", "ok", f"enough for {CONNECTIONS:,} requests in flight")
    return Check(
        "open files", "warn", f"{limit:,}: at most {limit - 64:,} requests in flight; raise it with  ulimit -Hn"
    )
