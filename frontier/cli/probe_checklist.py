"""`frontier probe`: the checklist of a server.

Every finding is a line of the checklist. Nothing that a server does raises an error.
"""

import secrets

from frontier.client.ask.evidence import scrape
from frontier.client.ask.facts import facts_at
from frontier.client.ask.new_prompts import send_new_prompts
from frontier.client.ask.preflight import Check, Preflight, ask_once, calibrate, preflight
from frontier.client.ask.prompts import random_prompts
from frontier.client.ask.target import Target
from frontier.client.http.http_client import Client
from frontier.client.load.processes import CARRIES, auto_chooses
from frontier.core.model.errors import FrontierError
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import SHARE_ANEW, Outcome

_METRIC_LABELS = {
    "num_requests_running": "requests running",
    "num_requests_waiting": "waiting",
    "kv_cache_usage_perc": "KV cache use",
    "num_preemptions_total": "preemptions",
    "prefix_cache_hits_total": "cache hits",
    "prompt_tokens_total": "tokens in",
    "generation_tokens_total": "tokens out",
}
_PROMPT = 512
"""Words of a prompt that is sent twice: several blocks of any engine's cache."""


async def probe(target: Target, *, wait: float = 0.0) -> tuple[Check, ...]:
    """The checklist of an endpoint. Where it cannot be measured at all, the check that says so has
    the state 'fail'.
    """
    Client(target)  # raises where the target itself is wrong: a usage error, and no finding
    checks: list[Check] = []
    try:
        found = await preflight(target, wait=wait, pick=True, checks=checks)
        async with Client(found.target) as client:
            checks += [await _connections(client, found), await _cache(client, found), await _metrics(client)]
        checks += await _prompt_tokens(found)
    except FrontierError as error:
        checks.append(Check("usable", "fail", str(error)))
    return (*checks, Check("client", "ok", f"{CARRIES}; {auto_chooses()}"))


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


async def _prompt_tokens(found: Preflight) -> list[Check]:
    """Why the server's count of prompts is wrong, or may be, as a sweep would say; nothing where it
    is as usual.
    """
    doubt = (await calibrate(found, [_PROMPT])).doubt
    return [Check("prompt tokens", "note", doubt.removeprefix("prompts: "))] if doubt else []


async def _cache(client: Client, found: Preflight) -> Check:
    """The prefix cache: one prompt of one token out, sent twice."""
    words = min(_PROMPT, (found.max_model_len or 4 * _PROMPT) // 4)
    text = random_prompts(Shape.of(words, 1), secrets.randbits(64))(0).content
    first, _ = await ask_once(client, found.target, text, 1, shares=True)
    second, _ = await ask_once(client, found.target, text, 1, shares=True)
    for record in (first, second):
        if record.outcome is not Outcome.OK or record.prompt_tokens is None:
            why = record.error or "it was not counted"
            return Check("prefix cache", "warn", f"a prompt of {words} words was not answered: {why}")
    cached, share = second.cached_tokens, f"of {second.prompt_tokens} tokens of a prompt sent twice came from it"
    if cached is None:
        return Check("prefix cache", "note", "unknown (no cached_tokens in the usage); a sweep's prompts all differ")
    on = f"on: {cached} {share}, {first.cached_tokens or 0} the first time" if cached else f"off: 0 {share}"
    new = await send_new_prompts(client, found)
    if new is not None and new.cached is not None:
        return Check("prefix cache", "warn" if SHARE_ANEW in new.facts() else "note", f"{on}; {new.words()}")
    return Check("prefix cache", "ok", f"{on}; a sweep's prompts are all different" if cached else on)


async def _metrics(client: Client) -> Check:
    if client.target.metrics_urls is None:
        return Check("metrics", "note", "not read, as  metrics: none  says")
    metrics = await scrape(client)
    if metrics is None:
        return Check("metrics", "note", "none that are known; a sweep goes without the server's own evidence")
    facts = facts_at(metrics[0])
    labels = [label for name, label in _METRIC_LABELS.items() if name in facts]
    return Check("metrics", "ok", ", ".join(labels))
