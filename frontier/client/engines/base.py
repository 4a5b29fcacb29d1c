"""Engines: one record of what is known of an engine.

It has the engine's requests, events and routes, and the names of its metrics and settings.
Extension fields (ignore_eos and the like) are sent only where the engine lists them: some servers
reject fields that they do not know. Formats are from the engines' own sources and API references.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import orjson

from frontier.client.engines.request import Prompt
from frontier.client.engines.stream import StreamState

# --- names of metrics

Key = tuple[str, tuple[tuple[str, str], ...]]
"""A series: its name and its labels, in order."""
Samples = Mapping[Key, float]
"""The series of a source at one moment."""


class Fact(NamedTuple):
    """A fact: its unit, and two rules. One joins the series of one moment to a value, the other the
    values of a window.

    'level' is the mean over time, and the highest beside it as NAME_max; 'samples' are of devices.
    """

    unit: str
    series: Literal["sum", "max", "min", "mean", "count"]
    time: Literal["increase", "rate", "level", "mean", "min", "max", "count", "samples"]


class Mask(int):
    """Takes the place of a factor: 1 where one of these bits is set, else 0."""


HISTOGRAMS = {
    "time_to_first_token_seconds": "s",
    "e2e_request_latency_seconds": "s",
    "request_queue_time_seconds": "s",
    "request_prefill_time_seconds": "s",
    "request_decode_time_seconds": "s",
    "request_inference_time_seconds": "s",
    "iteration_tokens_total": "tokens",
}
"""Histograms: the sum (in the unit given) and the count of each are facts, as NAME_sum and
NAME_count."""
COUNTERS = {
    "num_preemptions_total": "requests",
    "prefix_cache_queries_total": "tokens",
    "prefix_cache_hits_total": "tokens",
    "generation_tokens_total": "tokens",
    "prompt_tokens_total": "tokens",
    "spec_decode_num_drafts_total": "drafts",
    "spec_decode_num_draft_tokens_total": "tokens",
    "spec_decode_num_accepted_tokens_total": "tokens",
}
FactTable = Mapping[str, Mapping[str, float]]
"""Names in an exporter's text, NAME or NAME{label=value} for the series with that label, to the
facts that they are and the factor to their unit (see `frontier.client.ask.facts`)."""


def same(prefix: str, *names: str) -> FactTable:
    """Names that differ from the fact's by a prefix only."""
    return {prefix + name: {name: 1.0} for name in names}


def histogram(name: str, fact: str) -> FactTable:
    """The sum and the count of a histogram."""
    return {f"{name}_{part}": {f"{fact}_{part}": 1.0} for part in ("sum", "count")}


# --- names of settings


class EngineSetting(StrEnum):
    """A setting that advice names, beside the limit on requests in flight."""

    GPUS = "gpus"
    LIGHTER_WEIGHTS = "lighter_weights"
    SMALLER_KV = "smaller_kv"
    DRAFTS = "drafts"
    BATCH_CAP = "batch_cap"
    STEP_BUDGET = "step_budget"
    FRONT_END = "front_end"
    RATE_LIMIT = "rate_limit"


@dataclass(frozen=True, slots=True)
class SettingNames:
    """The names under which a server tells a setting, or its start command gives it, in the order
    of precedence.

    `prefix_cache` maps a name to whether the prefix cache is on where that name is true.
    """

    weights: tuple[str, ...] = ()
    kv: tuple[str, ...] = ()
    drafts: tuple[str, ...] = ()
    cap: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    prefix_cache: Mapping[str, bool] = field(default_factory=dict)


# --- the engine

EventReader = Callable[[StreamState, bytes, bytes], int]
"""Takes one event (its type, its data) into the state. Returns the channel on which it brought a
token."""
Payload = Callable[[str, str, Prompt], dict[str, Any]]
"""The body of a request to an api, for a model and of a prompt, without extension fields."""
Sign = Callable[[bytes], bool]
"""Whether the body of an answer shows that it is this engine's."""


class Room(NamedTuple):
    """The room of a server; None: not told.

    `kv_tokens` are the tokens that its KV cache has room for, `slots` the requests that it takes at
    once, and `context` the tokens that one request may have.
    """

    kv_tokens: int | None = None
    slots: int | None = None
    context: int | None = None


class Listing(NamedTuple):
    """A route that lists models: the key of the list, and that of a model's name in it."""

    route: str
    key: str
    name: str


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine.

    `paths` maps an api to its route. `length_fields` are sent to force the output length; {} means
    that it cannot be forced. `token_ids`: a completions prompt may be a list of token ids.
    `token_per_event` allows counting events where the server reports no usage.

    `salted`: requests take a cache_salt; those with different salts share no prefix cache.
    `uncached` is sent with requests that share nothing. `metrics` is the route of its Prometheus
    text.

    The engine is known by the `owner` of the models that it lists, by the `prefix` of its metrics,
    or by `signs`: answers of routes that no other engine gives together. `version` is the route and
    the key of its version, beside /version. `loaded` lists the models in its memory, the last used
    first; without it /v1/models lists them.

    `facts` are the names of its metrics. `info` are metrics whose labels are its settings; it may
    also tell settings on one of the routes `tells`. `setting_names` are the names of settings.
    `room` reads the server's room from a route. `title` is its name in a sentence. `limit` is its
    flag for `{c}` requests in flight (empty: not known), of each data-parallel rank with
    `limit_per_rank`; `over` says what happens to requests beyond it. `flags` are further ones.

    `ports` are its usual ones. `histograms` are of its requests, by what they are of: input and
    output lengths, ttft, tpot, itl, e2e; `counters` count tokens: input, output, queries and hits
    of the prefix cache. The first name that has counted anything is taken. `metrics_flag` turns
    metrics on. `gauges` are those of requests that run and that wait: with them it is a target of
    `frontier users --emit`. `queue_limit` says how to limit those that wait.
    """

    name: str
    payload: Payload
    parse_event: Mapping[str, EventReader]
    paths: Mapping[str, str]
    framing: Literal["sse", "ndjson"] = "sse"
    length_fields: Callable[[int], dict[str, Any]] = lambda _: {}
    token_ids: bool = False
    token_per_event: bool = False
    salted: bool = False
    uncached: Mapping[str, Any] = field(default_factory=dict)
    metrics: str = "/metrics"
    owner: str | None = None
    prefix: str | None = None
    signs: Mapping[str, Sign] = field(default_factory=dict)
    version: tuple[str, str] | None = None
    loaded: Listing | None = None
    facts: FactTable = field(default_factory=dict)
    info: tuple[str, ...] = ()
    tells: tuple[str, ...] = ()
    setting_names: SettingNames = SettingNames()
    room: tuple[str, Callable[[bytes], Room]] | None = None
    title: str = ""
    limit: str = ""
    limit_per_rank: bool = False
    over: str = ""
    flags: Mapping[EngineSetting, str] = field(default_factory=dict)
    ports: tuple[int, ...] = ()
    histograms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    counters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    metrics_flag: str = ""
    gauges: tuple[str, ...] = ()
    queue_limit: str = ""

    def body(
        self,
        api: str,
        model: str,
        prompt: Prompt,
        *,
        force_length: bool = True,
        extra: Mapping[str, Any] | None = None,
        omitted: Set[str] = frozenset(),
    ) -> bytes:
        """The body of a request; `extra` is merged into it, last. The fields `omitted` are left
        out, as is one of the body's own that is null in `extra`.
        """
        length = self.length_fields(prompt.osl) if force_length else {}
        salt = {"cache_salt": prompt.salt} if self.salted and prompt.salt is not None else {}
        uncached = {} if prompt.shares else dict(self.uncached)
        body, more = self.payload(api, model, prompt) | length | salt | uncached, dict(extra or {})
        left_out = omitted | {name for name, value in more.items() if value is None and name in body}
        return orjson.dumps({name: value for name, value in (body | more).items() if name not in left_out})


def json_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; {} where it is not one."""
    try:
        tree = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return tree if isinstance(tree, dict) else {}


def object_with(*names: str) -> Sign:
    """The body is a JSON object with one of these keys."""
    return lambda body: not json_object(body).keys().isdisjoint(names)
