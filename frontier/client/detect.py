"""Which engine answers: from what it says of itself on the routes only that engine has.

Order: who owns the models it lists, then /version with /metrics, /server_info, /props, /info, /api/version; else it is
taken as plain OpenAI, which is asked nothing beyond the public API.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from frontier.client.http import Client, Exchange

_OWNERS = {
    "vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp", "tensorrt_llm": "trtllm", "library": "ollama",
}  # fmt: skip
_PREFIXES = {b"vllm:": "vllm", b"sglang:": "sglang", b"llamacpp:": "llamacpp", b"tgi_": "tgi", b"trtllm_": "trtllm"}


LONGEST_MODEL = 400
"""Characters of a model's name: as many as a config may give it. What is longer is no name, and is not asked for."""
LONGEST_VERSION = 120


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the server says it is; two trials on different identities are not one server."""

    dialect: str
    text: str


def answer(exchange: Exchange) -> Any:
    """The JSON of a 200 answer, else None."""
    if exchange.failure is not None or exchange.status != 200:
        return None
    try:
        return orjson.loads(b"".join(exchange.reads))
    except orjson.JSONDecodeError:
        return None


def owner(models: Any) -> str | None:
    """The engine named as the owner of the first model listed."""
    data = models.get("data") if isinstance(models, dict) else None
    if isinstance(data, list) and data and isinstance(data[0], dict):
        return _OWNERS.get(str(data[0].get("owned_by", "")).lower())
    return None


async def detect(client: Client, models: Any = None) -> Identity:
    """The engine behind the client's target; `models` is the answer of /v1/models when it was already asked."""
    version = answer(await client.get("/version"))
    version_text = str(version["version"]) if isinstance(version, dict) and version.get("version") else None
    name = owner(models) or await _by_routes(client, version_text is not None)
    said = client.target.said(version_text or (await _version_elsewhere(client, name)) or "", LONGEST_VERSION)
    return Identity(name, f"{name} {said}" if said else name)


def listed_models(listed: Any) -> list[dict[str, Any]]:
    """The rows of an answer of /v1/models that name a model."""
    return [row for row in _rows(listed, "data") if isinstance(row.get("id"), str) and len(row["id"]) <= LONGEST_MODEL]


async def loaded_models(client: Client, dialect: str, models: Sequence[str]) -> tuple[str, ...]:
    """Of the models a server lists, those it has in memory: Ollama lists all it could load, vLLM its adapters too."""
    listed = set(models)
    if dialect == "ollama":
        rows = _rows(answer(await client.get("/api/ps")), "models")
        names = [row["model"] for row in rows if isinstance(row.get("model"), str)]
        return tuple(name for name in names if name in listed)[:1]
    rows = listed_models(answer(await client.get("/v1/models")))
    return tuple(row["id"] for row in rows if row.get("parent") is None and row["id"] in listed)


def _rows(said: Any, key: str) -> list[dict[str, Any]]:
    rows = said.get(key) if isinstance(said, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


async def _by_routes(client: Client, has_version: bool) -> str:
    metrics = await client.get("/metrics")
    if metrics.status == 200 and metrics.failure is None:
        body = b"".join(metrics.reads)
        for prefix, name in _PREFIXES.items():
            if prefix in body:
                return name
        if has_version and body.lstrip().startswith(b"["):
            return "trtllm"
    if isinstance(answer(await client.get("/server_info")), dict):
        return "sglang"
    props = answer(await client.get("/props"))
    if isinstance(props, dict) and ("total_slots" in props or "default_generation_settings" in props):
        return "llamacpp"
    info = answer(await client.get("/info"))
    if isinstance(info, dict) and "model_id" in info:
        return "tgi"
    if isinstance(answer(await client.get("/api/version")), dict):
        return "ollama"
    return "openai"


async def _version_elsewhere(client: Client, name: str) -> str | None:
    route, key = {
        "llamacpp": ("/props", "build_info"), "tgi": ("/info", "version"), "ollama": ("/api/version", "version"),
        "sglang": ("/server_info", "version"),
    }.get(name, (None, ""))  # fmt: skip
    if route is None:
        return None
    found: Mapping[str, Any] | None = answer(await client.get(route))
    return str(found[key]) if isinstance(found, dict) and found.get(key) else None
