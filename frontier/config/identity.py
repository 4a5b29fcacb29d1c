"""The identity of a config: the digest of what it measures, and what differs between two."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def digest(value: Any) -> str:
    """SHA-256, in hex, of a JSON-able value; the same on every machine and Python."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def describe_difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """The differences between two canonical configs: 'shapes 1024/256 there, 2048/256 here'; ''
    without any.
    """
    parts: list[str] = []
    # Of sessions of a file their shape says that the file is another one.
    without = [{key: value for key, value in each.items() if key != "sessions"} for each in (there, here)]
    _differ("", without[0], without[1], parts)
    return "; ".join(parts)


def _differ(name: str, there: Any, here: Any, parts: list[str]) -> None:
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in dict.fromkeys((*there, *here)):
            # The word 'deployments' adds nothing, and neither does the name of the only one.
            lone = name == "deployments" and len({*there, *here}) == 1
            inner = [part for part in (name, key) if part not in ("", "deployments")]
            _differ("" if lone else " ".join(inner) or key, there.get(key), here.get(key), parts)
    elif there != here:
        parts.append(f"{name} {_value_text(there)} there, {_value_text(here)} here")


def _value_text(value: Any) -> str:
    if value is None:
        return "not given"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(_value_text(item) for item in value)
    if isinstance(value, Mapping):
        return "given"
    return f"{value:g}" if isinstance(value, float) else str(value)
