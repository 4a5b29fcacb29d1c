"""Settings of a server as it tells them, flat and without secrets: what was running, kept with each trial's evidence.

vLLM and TensorRT-LLM tell theirs as labels of info metrics; SGLang, llama.cpp and TGI on a route of their own.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from frontier.client.facts import INFO
from frontier.client.http import Client
from frontier.client.preflight import json_of
from frontier.model import SourceReadings
from frontier.text import is_secret_name

_ROUTES = {"sglang": ("/server_info", "/get_server_info"), "llamacpp": ("/props",), "tgi": ("/info",)}
"""Where an engine tells its settings, by dialect: the first route that answers counts."""
_MOST, _LONGEST = 300, 200
_NO_SETTINGS = frozenset({"engine", "model_name", "metrics_url", "launch_command", "chat_template"})
"""What only names a series; a command line, which may hold a key and repeats the settings; a long text."""


async def ask_settings(client: Client) -> dict[str, str]:
    """The settings of the client's target, on the route of its engine; nothing where there is none."""
    for route in _ROUTES.get(client.target.dialect or "", ()):
        answer = json_of(await client.ask(route, 2.0))
        if isinstance(answer, dict):
            return {name: client.target.cleaned(text, _LONGEST) for name, text in _kept(answer).items()}
    return {}


def told_settings(readings: Iterable[SourceReadings]) -> dict[str, str]:
    """The settings in the labels of info metrics; where replicas differ, those of the last."""
    told: dict[str, str] = {}
    for source in readings:
        for series in source.series:
            if series.name in INFO:
                told |= _kept(series.labels)
    return told


def _kept(settings: Mapping[str, Any]) -> dict[str, str]:
    """The settings that are one number or text each, as text. A text whose name is that of a secret is not kept."""
    kept = {}
    for name, value in list(settings.items())[:_MOST]:
        secret = isinstance(value, str) and is_secret_name(name.replace("tokenizer", "")) and not _is_number(value)
        if name not in _NO_SETTINGS and isinstance(value, str | int | float | bool | None) and not secret:
            kept[name[:_LONGEST]] = str(value)
    return kept


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit() or text in ("None", "True", "False")
