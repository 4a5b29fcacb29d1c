"""Server settings: which optimisations are on already, as far as the server or its config tells.

Advice must not propose what is on. There are four sources, all read as names with values by the
same tables:

- a server states its settings in its metrics or on a route;
- a sweep that starts the server knows its command;
- the config describes it under `hardware`;
- many models carry their quantisation in their name.

Nothing here is ever a measurement: it only decides which change is proposed.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from itertools import chain, zip_longest

from frontier.client.engines import ENGINES
from frontier.client.engines.base import SettingNames
from frontier.config.deployment import DeploymentConfig
from frontier.hardware.roofline import ModelRoofline


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The known settings of a server; None: not known. `weight_bits` and `kv_bits` are bits of a
    number, `drafts` is whether it speculates, `cap` is the most requests that run.
    """

    weight_bits: float | None = None
    kv_bits: float | None = None
    drafts: bool | None = None
    prefix_cache: bool | None = None
    cap: int | None = None


_NAMES = [engine.setting_names for engine in ENGINES.values()]


def _names(of: Callable[[SettingNames], tuple[str, ...]], *own: str) -> tuple[str, ...]:
    """The names of a setting on all engines, the first of each before the second of any, and the
    config's own.
    """
    ranked = chain.from_iterable(zip_longest(*map(of, _NAMES)))
    return tuple(dict.fromkeys([*filter(None, ranked), *own]))


_WEIGHTS = _names(lambda names: names.weights, "precision")
_KV = _names(lambda names: names.kv, "kv_precision")
_DRAFTS = _names(lambda names: names.drafts, "speculation")
_CAP = _names(lambda names: names.cap)
_MODELS = _names(lambda names: names.model)
_PREFIX = {name: says for names in _NAMES for name, says in names.prefix_cache.items()}
_BITS = (
    (re.compile(r"int4|fp4|awq|gptq|w4a|[_-]i?q4|4-?bit|bitsandbytes|bnb"), 4.0),
    (re.compile(r"fp8|e4m3|e5m2|int8|w8a|q8_|8-?bit"), 8.0),
    (re.compile(r"bf16|bfloat16|fp16|float16|\bf16"), 16.0),
)
_OFF = ("", "0", "false", "none", "null", "off", "auto")


def read_settings(told: Mapping[str, str]) -> ServerSettings:
    """The settings that names with values give, under the names of any engine."""
    known = {name.lower(): str(value).lower() for name, value in told.items()}
    given = {name: value for name, value in known.items() if value not in _OFF}
    quantised = _first(given, _WEIGHTS)
    # A scheme of unknown width is lighter than 16 bits all the same.
    weights = (bits_of(quantised) or 8.0) if quantised else None
    cap = _first(given, _CAP)
    cached = {says == (known[name] not in _OFF) for name, says in _PREFIX.items() if name in known}
    return ServerSettings(
        weight_bits=weights or next(filter(None, (bits_of(given.get(name, "")) for name in _MODELS)), None),
        kv_bits=bits_of(_first(given, _KV)),
        drafts=any(name in given for name in _DRAFTS) if any(name in known for name in _DRAFTS) else None,
        prefix_cache=cached.pop() if len(cached) == 1 else None,
        cap=int(cap) if cap.isdigit() else None,
    )


def _first(given: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((given[name] for name in names if name in given), "")


def bits_of(text: str) -> float | None:
    """Bits of a number in a format or a model of this name ('fp8_e4m3', 'awq_marlin', 'bf16',
    'Qwen3-32B-FP8'); None where the name does not say.
    """
    return next((bits for pattern, bits in _BITS if pattern.search(text.lower())), None)


_FLAG = re.compile(r"(?<!\S)--([A-Za-z][\w-]*)(?:(?:=|\s+)(?!-)('[^']*'|\"[^\"]*\"|[^\s'\"]+))?")


def command_settings(command: str) -> dict[str, str]:
    """The flags of a start command, as names with values: '--kv-cache-dtype fp8' gives
    {'kv_cache_dtype': 'fp8'}; a flag without a value is 'true'.
    """
    return {name.replace("-", "_"): value.strip("'\"") or "true" for name, value in _FLAG.findall(command)}


def settings_of(deployment: DeploymentConfig, told: Mapping[str, str]) -> ServerSettings:
    """The known settings of a deployment's server: first as it `told` them, then by its start
    command, then by the config.
    """
    hardware, roofline = deployment.hardware, deployment.roofline()
    described: dict[str, str] = {}
    if hardware is not None:
        speculates = hardware.speculation is not None
        pairs = {
            "precision": hardware.precision,
            "kv_precision": hardware.kv_precision,
            "speculation": "on" if speculates else None,
            "max_num_seqs": hardware.max_num_seqs,
        }
        described = {name: str(value) for name, value in pairs.items() if value is not None}
    simulated = {name: str(value) for name, value in (deployment.simulator or {}).items()}
    published = {"precision": roofline.precision} if isinstance(roofline, ModelRoofline) else {}
    sources = (told, command_settings(deployment.start or ""), simulated, described, {"model": deployment.model or ""})
    known = [astuple(read_settings(source)) for source in (*sources, published)]
    # Of each setting what the first of them says that says anything.
    return ServerSettings(*(next((x for x in told_of if x is not None), None) for told_of in zip(*known, strict=True)))
