"""Refused fields: which of the fields of a request a server does not take, by the error it
answers."""

import re
from collections.abc import Iterator
from typing import Any

from frontier.client.engines.base import json_object
from frontier.client.http.exchange import Exchange
from frontier.client.http.parse import error_body

REFUSING = (400, 422)
"""What a server answers to a field that it does not take."""
NEEDED = frozenset({"model", "prompt", "messages", "stream", "inputs", "parameters", "options"})
"""Without these nothing is measured."""
LIMIT, REASONING_LIMIT = "max_tokens", "max_completion_tokens"
OWN = frozenset({"n_predict", "cache_prompt"})
"""Fields of llama.cpp: a server that refuses them is another, whatever dialect was given."""
KEPT = frozenset({LIMIT, REASONING_LIMIT, "temperature"})
"""Fields that are always sent: without them something else would be measured."""
_PARTS = {"include_usage": "stream_options"}
_SAYS = ("message", "msg", "detail", "details", "error", "errors", "loc", "param")
"""Keys of an error that say what is wrong; beside them a server may repeat the request."""
_DEEP = 8


def refused_fields(exchange: Exchange) -> frozenset[str]:
    """The sent fields that the error names, less the fields that a request needs."""
    if exchange.status not in REFUSING:
        return frozenset()
    words = set(re.findall(r"\w+", " ".join(_said(error_body(exchange)))))
    words |= {re.sub(r"(?<=[a-z])[A-Z]", lambda capital: f"_{capital[0].lower()}", word) for word in words}
    words |= {whole for part, whole in _PARTS.items() if part in words}
    return frozenset(words & json_object(exchange.request.body).keys() - NEEDED)


def wants_other_limit(exchange: Exchange, refused: frozenset[str]) -> bool:
    """Whether the server refuses max_tokens: it names another field, or only says that it does not
    take this one.
    """
    if exchange.status not in REFUSING:
        return False
    text = " ".join(_said(error_body(exchange)))
    unknown = re.search(
        r"(?i)not (permitted|supported|allowed)|unsupported|un(known|recogni[sz]ed)|extra|deprecated|removed|no longer",
        text,
    )
    return REASONING_LIMIT in text or (LIMIT in refused and unknown is not None)


def _said(error: Any, depth: int = 0) -> Iterator[str]:
    """The texts of an error that say what is wrong."""
    if isinstance(error, str):
        yield error
    elif isinstance(error, list) and depth < _DEEP:
        for part in error:
            yield from _said(part, depth + 1)
    elif isinstance(error, dict) and depth < _DEEP:
        for key in _SAYS:
            yield from _said(error.get(key), depth + 1)
