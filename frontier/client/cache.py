"""The server's prefix cache: whether it is on, whether a salt keeps prompts apart in it, and emptying it."""

import dataclasses
import secrets
from dataclasses import dataclass
from typing import cast

from frontier.client.adapters import DIALECTS
from frontier.client.detect import answer
from frontier.client.http import Client
from frontier.client.preflight import Preflight, ask_once, swept
from frontier.client.prompts import random_prompts
from frontier.client.target import Target
from frontier.model import Outcome, Shape

_PROMPT = 512
"""Words of a prompt that is sent twice: several blocks of any engine's cache."""
_NO_ROUTE = (404, 501)


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """What a prompt sent twice, and once more with a salt, shows.

    `prompt` tokens it has; of these `cached` came from the cache the second time, `salted` with a salt (None: the
    server does not say). `takes_salt`: None where the engine is not known to have one. `resets`: it offers a route to
    empty the cache.
    """

    prompt: int
    cached: int | None
    salted: int | None
    takes_salt: bool | None
    resets: bool


async def look_at_cache(client: Client, found: Preflight) -> CacheFacts | str:
    """Find out by three requests of one token each; the reason when the prompt was not answered."""
    dialect = DIALECTS[found.target.dialect or "openai"]
    words = min(_PROMPT, (found.max_model_len or 4 * _PROMPT) // 4)
    text = cast("str", random_prompts(Shape.of(words, 1), secrets.randbits(64))(0).content)
    first, _ = await ask_once(client, found.target, text, 1, shares=True)
    second, _ = await ask_once(client, found.target, text, 1, shares=True)
    for record in (first, second):
        if record.outcome is not Outcome.OK or record.prompt_tokens is None:
            return f"a prompt of {words} words was not answered: {record.error or 'it was not counted'}"
    assert second.prompt_tokens is not None
    takes, salted = None, None
    if dialect.salted:
        third, _ = await ask_once(client, found.target, text, 1, new_salt(), shares=True)
        takes, salted = third.outcome is Outcome.OK, third.cached_tokens
    resets = await offers_reset(client, dialect.reset)
    return CacheFacts(second.prompt_tokens, second.cached_tokens, salted, takes, resets)


def new_salt() -> str:
    """A salt never used before."""
    return f"frontier-{secrets.token_hex(8)}"


async def offers_reset(client: Client, route: str | None) -> bool:
    """Whether the route is there. It is not called: emptying the cache of a server in use would be no small thing."""
    if route is None:
        return False
    asked = await client.call("OPTIONS", route)
    # A gateway may answer OPTIONS on anything.
    nowhere = await client.call("OPTIONS", f"{route}-{secrets.token_hex(4)}")
    there = asked.status is not None and asked.status not in _NO_ROUTE and asked.status < 500
    return there and nowhere.status in _NO_ROUTE


async def reset_cache(target: Target) -> bool | None:
    """Empty the prefix cache. None: the server has no such route; False: it did not do it."""
    route = DIALECTS[target.dialect or "openai"].reset
    if route is None:
        return None
    async with Client(target) as client:
        exchange = await client.call("POST", route, timeout=15.0)
    if exchange.status in (*_NO_ROUTE, 405):
        return None
    # vLLM answers 200 when it failed, too; newer builds say so in the body.
    said = answer(exchange)
    return exchange.failure is None and exchange.status == 200 and not (
        isinstance(said, dict) and said.get("success") is False
    )  # fmt: skip


async def settle_salt(found: Preflight) -> Preflight:
    """The same with `target.salted` False where the server does not take a salt."""
    if not DIALECTS[found.target.dialect or "openai"].salted:
        return found
    async with Client(found.target) as client, swept(client):
        text = cast("str", random_prompts(Shape.of(32, 1), secrets.randbits(64))(0).content)
        record, _ = await ask_once(client, found.target, text, 1, new_salt())
    if record.outcome is Outcome.OK:
        return found
    return dataclasses.replace(found, target=dataclasses.replace(found.target, salted=False))
