"""Which engine answers, which models it serves, and whether both are still the same later."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frontier.client.engines import ENGINES
from frontier.client.engines.base import Listing, Room, json_object
from frontier.client.http.exchange import Exchange
from frontier.client.http.http_client import Client
from frontier.core.model.text import some_of

LONGEST_VERSION = 120
LONGEST_MODEL = 400
"""The most characters of a model's name, as in a config. A longer text is not a name, and is not
asked for."""
_MODELS = Listing("/v1/models", "data", "id")
_CONTEXT = ("max_model_len", "context_length", "max_context_length", "loaded_context_length", "context_window", "n_ctx")
"""The context of a model in a list: of vLLM and SGLang, then of gateways, LM Studio and others."""
_MOST_ROOM = 10**9
_MODELS_SAID = 5
"""The most models of a changed list that are named."""


def body_of(exchange: Exchange) -> bytes:
    """The body of a 200 answer; empty of any other."""
    good = exchange.failure is None and exchange.status == 200
    return b"".join(exchange.reads) if good else b""


def object_of(exchange: Exchange) -> dict[str, Any]:
    """The JSON object of a 200 answer; {} without one."""
    return json_object(body_of(exchange))


async def detect(client: Client, listed: Mapping[str, Any]) -> tuple[str, str]:
    """The dialect of the engine behind the client's target, and its identity in its own words:
    trials on different identities are not of one server. `listed` is the answer of /v1/models.

    The owner of the listed models decides, then the routes that only one engine has. Any other
    server counts as plain OpenAI, and is asked nothing beyond the public API.
    """
    answer = await client.ask("/version")
    version = object_of(answer).get("version")
    dialect = _owner(listed) or await _by_routes(client, {"/version": body_of(answer)})
    if not version and (place := ENGINES[dialect].version) is not None:
        route, key = place
        version = object_of(await client.ask(route)).get(key)
    text = client.target.cleaned(str(version or ""), LONGEST_VERSION)
    return dialect, f"{dialect} {text}" if text else dialect


def _owner(listed: Mapping[str, Any]) -> str | None:
    """The engine named as the owner of the first model listed."""
    rows = _rows(listed, _MODELS)
    owner = str(rows[0].get("owned_by", "")).lower() if rows else None
    return next((engine.name for engine in ENGINES.values() if engine.owner and engine.owner == owner), None)


async def _by_routes(client: Client, bodies: dict[str, bytes]) -> str:
    """The engine by its metrics, or by routes that only it has; `bodies` are known by route."""

    async def body(route: str) -> bytes:
        if route not in bodies:
            bodies[route] = body_of(await client.ask(route))
        return bodies[route]

    read = client.target.metrics_urls is not None
    metrics = await body("/metrics") if read else b""
    for engine in ENGINES.values():
        if engine.prefix and re.search(rb"(?:^|\s)" + engine.prefix.replace(":", "[:_]").encode(), metrics):
            return engine.name
    for engine in ENGINES.values():
        told = engine.signs and (read or "/metrics" not in engine.signs)
        if told and all([shows(await body(route)) for route, shows in engine.signs.items()]):
            return engine.name
    return "openai"


def _rows(content: Mapping[str, Any], listing: Listing) -> list[dict[str, Any]]:
    """The models in a list of an answer that have a name."""
    rows, name = content.get(listing.key), listing.name
    rows = rows if isinstance(rows, list) else []
    return [r for r in rows if isinstance(r, dict) and isinstance(r.get(name), str) and len(r[name]) <= LONGEST_MODEL]


def models_of(listed: Mapping[str, Any]) -> tuple[str, ...]:
    """The models in the answer of /v1/models."""
    return tuple(row["id"] for row in _rows(listed, _MODELS))


def listed_context(listed: Mapping[str, Any], model: str | None = None) -> int | None:
    """The tokens that a prompt and its answer may have together, from the answer of /v1/models on
    the model; the fewest of several numbers. None where it does not say.
    """
    rows = _rows(listed, _MODELS)
    mine = [row for row in rows if row["id"] == model] or rows
    told = [row.get(name) for row in mine for name in _CONTEXT]
    return min((n for n in told if type(n) is int and 0 < n < _MOST_ROOM), default=None)


async def context_of(client: Client, dialect: str, listed: Mapping[str, Any], model: str | None = None) -> int | None:
    """The context of a model, from the list or elsewhere from the engine; None where neither
    says.
    """
    return listed_context(listed, model) or (await room_of(client, dialect)).context


async def room_of(client: Client, dialect: str) -> Room:
    """The room of the engine, in its own figures."""
    place = ENGINES[dialect].room
    if place is None or (client.target.metrics_urls is None and place[0] == ENGINES[dialect].metrics):
        return Room()
    route, read = place
    room = read(body_of(await client.ask(route, 1.0)))
    return Room(*(count if type(count) is int and 0 < count < _MOST_ROOM else None for count in room))


async def loaded_models(client: Client, dialect: str, models: Sequence[str]) -> tuple[str, ...]:
    """The listed models that the server has in memory. Some servers list all models that they could
    load; vLLM lists its adapters too.
    """
    listed = set(models)  # there may be hundreds of thousands
    own = ENGINES[dialect].loaded
    place = own or _MODELS
    rows = _rows(object_of(await client.ask(place.route)), place)
    names = tuple(row[place.name] for row in rows if row.get("parent") is None and row[place.name] in listed)
    return names[:1] if own else names


async def version_of(client: Client, limit: float = 5.0) -> str | None:
    """What the server answers on /version within `limit` seconds; None: nothing."""
    version = object_of(await client.ask("/version", limit)).get("version")
    return client.target.cleaned(str(version), LONGEST_VERSION) if version else None


@dataclass(frozen=True, slots=True)
class Served:
    """The models that a server lists at one moment, and its version; None where it does not say."""

    models: frozenset[str] | None
    version: str | None

    @classmethod
    async def ask(cls, client: Client, limit: float = 2.0) -> "Served":
        """What the client's target says now. Where its list does not come across, it is asked
        nothing more.
        """
        exchange = await client.ask(_MODELS.route, limit)
        if exchange.failure is not None:
            return cls(None, None)
        listed = object_of(exchange)
        known = isinstance(listed.get("data"), list)
        return cls(frozenset(models_of(listed)) if known else None, await version_of(client, limit))

    def differences(self, later: "Served") -> str | None:
        """The differences at a later moment, in words; None without any."""
        found = []
        if self.models is not None and later.models is not None and self.models != later.models:
            kinds = (("now lists", later.models - self.models), ("no longer lists", self.models - later.models))
            found += [f"the server {verb} {some_of(sorted(names), _MODELS_SAID)}" for verb, names in kinds if names]
        if self.version is not None and later.version is not None and self.version != later.version:
            found.append(f"it was version {self.version} and is {later.version}")
        return "; ".join(found) or None
