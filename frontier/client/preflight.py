"""Why an endpoint cannot be measured, with the way out: the errors `preflight` ends in.

Before a sweep: is the endpoint there, does it let us in, does it serve the model, does it stream what is needed?

`preflight` settles what the target left open (dialect, api, model) or raises with a way out. What more `frontier probe`
asks is in `probing.py`.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from frontier.client.adapters import DIALECTS, Ask, Content, Dialect
from frontier.client.detect import LONGEST_MODEL, LONGEST_VERSION, answer, detect, listed_models, loaded_models
from frontier.client.health import local_ports, raise_fd_limit
from frontier.client.http import Client, Exchange
from frontier.client.parse import error_message, read_all, retry_after, to_record
from frontier.client.prompts import Calibration, calibrate_words, random_prompts
from frontier.client.target import Api, Target
from frontier.errors import MeasurementError
from frontier.model import Outcome, Record, Shape
from frontier.units import format_elapsed, format_seconds

_MISSING = (404, 405)
"""What a route that a server does not have answers."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One streamed request that failed: the route, and what came of it."""

    path: str
    record: Record
    exchange: Exchange


def unreachable(url: str, exchange: Exchange, tries: int) -> MeasurementError:
    """Nobody answers a small question at `url`, or nobody who is ready."""
    kind, said = exchange.failure or (Outcome.HTTP_ERROR, error_message(exchange))
    took = f"({tries} tries)"
    if kind is Outcome.TLS:
        return MeasurementError(f"no secure connection to {url}: {said}", _secure_way_out(url, said))
    if kind is Outcome.HTTP_ERROR:
        return MeasurementError(
            f"{url} is not ready: {said} {took}",
            f"wait for it with  frontier probe {url} --wait 10min",
            retry_after=retry_after(exchange),
        )
    if kind is Outcome.CONNECT and said.startswith("the proxy"):
        hint = "look at http_proxy, https_proxy and no_proxy, or do without:  proxy: none  in the config"
        return MeasurementError(f"cannot reach {url}: {said}", hint)
    if kind is Outcome.CONNECT and any(word in said for word in ("resolve", "Name or service", "nodename", "DNS")):
        return MeasurementError(f"cannot find the host of {url}: {said}", "check the spelling of the address")
    if kind in (Outcome.STREAM_ERROR, Outcome.PROTOCOL) and url.startswith("http:"):
        return MeasurementError(
            f"cannot reach {url}: {said} {took}", f"if TLS is spoken there, write  https{url.removeprefix('http')}"
        )
    reason = "connection refused" if "refused" in said or "Connect call failed" in said else said
    return MeasurementError(
        f"cannot reach {url}: {reason} {took}",
        f"is the server still loading?   watch with:  frontier probe {url} --wait 10min",
    )


def _secure_way_out(url: str, said: str) -> str:
    if "WRONG_VERSION_NUMBER" in said or "RECORD_LAYER" in said:
        return f"no TLS is spoken at that port: write  http{url.removeprefix('https')}"
    if "expired" in said:
        return "renew the server's certificate (and look at this machine's clock)"
    return "name its authority with  tls: {ca: FILE},  or do without:  tls: {verify: false},  in the config"


def refused(url: str, said: str, *, has_key: bool) -> MeasurementError:
    """It lets nobody in without a key, or not with this one."""
    if has_key:
        return MeasurementError(
            f"{url} refuses the key it was given: {said}", "look at what the variable or the file of the key holds"
        )
    return MeasurementError(
        f"{url} refuses a request without a key: {said}",
        "name the variable that holds it:  api_key_env: NAME  in the config  (api_key_file: FILE),  or for probe and "
        "quick  --api-key-env NAME",
    )


def unnamed(models: str, url: str, listing: Exchange) -> MeasurementError:
    """No model was named, and none can be picked; `models` is what the server lists on `url` ('': nothing)."""
    hint = "name one with  model: NAME  in the config, or with  --model NAME  for probe and quick"
    if models:
        return MeasurementError(f"no model was named, and it serves {models}", hint)
    if listing.status == 200:
        return MeasurementError("no model was named, and it does not list its models", hint)
    astray = f"; or is the address another one? nothing is at {url}" if listing.status == 404 else ""
    said = f"no model was named, and it does not list its models ({error_message(listing)})"
    return MeasurementError(said, hint + astray)


def unanswered(url: str, tried: Sequence[Tried]) -> MeasurementError:
    """It answers, and no request was streamed to its end."""
    routes: dict[str, list[str]] = {}
    for one in tried:
        routes.setdefault(one.record.error or "", []).append(one.path)
    said = "; ".join(f"{' and '.join(paths)}: {error}" for error, paths in routes.items())
    telling = next((one for one in tried if one.record.status not in _MISSING), tried[0])
    waits = [wait for one in tried if (wait := retry_after(one.exchange)) is not None]
    wait = max(waits, default=None)
    return MeasurementError(f"no streamed answer from {url}: {said}", hint(telling.record, wait), retry_after=wait)


def hint(record: Record, wait: float | None) -> str:
    """What to do about a plain request that failed; `wait` is how many seconds the server asks to be left alone."""
    status = record.status or 0
    if record.outcome is Outcome.TIMEOUT:
        return "is it overloaded? else give it longer with  timeouts: {first_byte: 10min, total: 30min}  in the config"
    if status in (429, 503):
        when = "later" if wait is None else f"in {format_elapsed(wait)}, as it asks"
        return f"it is still loading, overloaded, or limits its callers: try again {when}"
    if 300 <= status < 400:
        return "write the address it redirects to"
    if status in (400, 422):
        return "it does not take what it was sent: name its engine with  dialect: NAME  in the config, or see its log"
    if status == 413:
        return "something before the server limits the size of a request: raise that, or ask for shorter prompts"
    if status == 504:
        return "something before the server gives up on its answers: raise that limit, as nginx's proxy_read_timeout"
    if status >= 500 or record.outcome is Outcome.STREAM_ERROR:
        return "the server fails at a plain request: its log says why"
    return "the endpoint must stream /v1/completions or /v1/chat/completions as server-sent events"


_TRIES, _TRY_EVERY = 3, 3.0
_COUNTS = 3
"""Times that a prompt is sent to be counted: some servers leave the usage out now and then."""
_NO_USAGE = "switch on usage in streams at the server (stream_options.include_usage), or use its native dialect"
_PASSING = (Outcome.CONNECT, Outcome.TLS, Outcome.TIMEOUT, Outcome.STREAM_ERROR, Outcome.TRUNCATED)
_BUSY = (408, 425, 429, 502, 503, 504)
"""What a server answers, or a gateway before it, that is not able to just now."""
_PROBE_ISL, _PROBE_OSL = 48, 16
TOKENS_PER_CHUNK = 1.25
"""More than this, in sixteen tokens, is no accident of a character cut in two."""
_LUMP = 2
"""A stream comes in more reads than this: a first token, others, the usage, the end."""
_IDS = ((1000, 30000), (300, 5000), (10, 500))
"""Ranges of token ids tried, widest first: in the common vocabularies special tokens are below 1000 or above 30000."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the checklist; a 'note' is neither good nor bad."""

    name: str
    state: Literal["ok", "note", "warn", "fail"]
    detail: str


@dataclass(frozen=True, slots=True)
class Preflight:
    """What is known of an endpoint before it is measured. `target` is settled: dialect, api and model are known.

    `ids` are the token ids a prompt may be made of (None: prompts are words); `rtt` is seconds of a small request;
    `probe` is the streamed request that was tried, `models` what the server lists (empty: it does not say), `version`
    what it answers on /version (None: nothing).
    """

    target: Target
    identity: str
    models: tuple[str, ...]
    max_model_len: int | None
    probe: Record
    honours_length: bool
    ids: tuple[int, int] | None
    rtt: float
    checks: tuple[Check, ...]
    version: str | None = None


async def preflight(
    target: Target, *, concurrency: int = 1, wait: float = 0.0, pick: bool = False, checks: list[Check] | None = None
) -> Preflight:
    """Ask the endpoint a few questions and settle the target. `wait`: seconds to wait for a server still loading.

    Of several models one must be named, unless `pick` lets the loaded one be taken. `checks` collects the answers as
    they come, also when they end in an error: MeasurementError, with a way out, when nothing could be measured, as the
    server cannot be reached or refuses, serves another model, does not stream or count tokens, or not enough files may
    be opened for the concurrency.
    """
    return await _Flight(target, [] if checks is None else checks, pick).run(concurrency, wait)


async def changed(found: Preflight) -> str | None:
    """What is different about the server since `found`, in words. None: nothing, or it does not answer now."""
    async with Client(found.target) as client:
        models, _ = models_of(answer(await client.get("/v1/models")))
        version = await _version(client)
    model = found.target.model
    if models and found.models and model in found.models and model not in models:
        return f"it served {found.target.said(str(model))} and now serves {_names(found.target, models)}"
    if version is not None and found.version is not None and version != found.version:
        return f"it was version {found.version} and is {version} now"
    return None


async def calibrate(found: Preflight, lengths: list[int]) -> Calibration:
    """How prompts reach the asked input lengths on this endpoint (exact where token ids are taken)."""
    if found.ids is not None:
        return Calibration(ids=found.ids)
    async with Client(found.target) as client, swept(client):

        async def count(content: Content) -> int:
            for _ in range(_COUNTS):
                record, exchange = await ask_patiently(client, found.target, content, 1)
                if record.outcome is not Outcome.OK:
                    wait = retry_after(exchange)
                    what = f"a prompt could not be counted: {record.error}"
                    raise MeasurementError(what, hint(record, wait), retry_after=wait)
                if record.prompt_tokens is not None:
                    return record.prompt_tokens
            raise MeasurementError(f"a prompt could not be counted: no usage in {_COUNTS} answers", _NO_USAGE)

        return await calibrate_words(count, max(lengths))


async def ask_once(
    client: Client, target: Target, content: Content, osl: int, salt: str | None = None, *, shares: bool = False
) -> tuple[Record, Exchange]:
    """One streamed request through the target's dialect and api."""
    dialect = DIALECTS[target.dialect or "openai"]
    ask = Ask(target.model or "", content, osl, target.ignore_eos, salt, shares, target.extra_body)
    exchange = await client.post(target.url(dialect.paths[target.api]), dialect.body(target.api, ask))
    reading = read_all(exchange, dialect, target.api)
    return to_record(reading, index=0, stream=0, isl=0, osl=osl, zero=exchange.sent), exchange


async def ask_patiently(client: Client, target: Target, content: Content, osl: int) -> tuple[Record, Exchange]:
    """As ask_once, asked again for a moment where the server, or a gateway before it, is not able to just now."""
    for left in reversed(range(_TRIES)):
        record, exchange = await ask_once(client, target, content, osl)
        if record.status not in _BUSY or (retry_after(exchange) or 0.0) > _TRY_EVERY or not left:
            break
        await asyncio.sleep(_TRY_EVERY / 3)
    return record, exchange


class _Flight:
    """One run through the questions; `checks` grows as they are answered."""

    def __init__(self, target: Target, checks: list[Check], pick: bool) -> None:
        self.target = target
        self.checks = checks
        self.pick = pick

    def note(self, name: str, good: bool, detail: str) -> None:
        self.checks.append(Check(name, "ok" if good else "warn", self.target.said(detail)))

    def remark(self, name: str, detail: str) -> None:
        self.checks.append(Check(name, "note", self.target.said(detail)))

    @property
    def _dialect(self) -> Dialect:
        return DIALECTS[self.target.dialect or "openai"]

    async def run(self, concurrency: int, wait: float) -> Preflight:
        needed = concurrency + 64
        if raise_fd_limit(needed) < needed:
            raise MeasurementError(
                f"{concurrency} connections need {needed} open files; this system's hard limit is lower",
                f"raise it with  ulimit -Hn {needed}  (as root) or lower the concurrency",
            )
        if (ports := local_ports()) is not None and ports < needed:
            raise MeasurementError(
                f"{concurrency} connections need {needed} local ports; this system has {ports}",
                "sysctl -w net.ipv4.ip_local_port_range='15000 65000'  (as root) or lower the concurrency",
            )
        async with Client(self.target) as client, swept(client):
            return await self._questions(client, wait)

    async def _questions(self, client: Client, wait: float) -> Preflight:
        exchange = await self._reach(client, wait)
        self._let_in(exchange)
        listed = answer(exchange)
        models, max_len = models_of(listed)
        identity = self.target.dialect or ""
        if self.target.dialect is None:
            found = await detect(client, listed)
            self.target = dataclasses.replace(self.target, dialect=found.dialect)
            identity = found.text
        server = exchange.headers.get("server")
        identity = self.target.said(identity if not server or server in identity else f"{identity} ({server})")
        self.note("engine", True, identity)
        await self._settle_model(client, models, max_len, exchange)
        version = await _version(client)
        rtt = min([await _time_of(client) for _ in range(3)])
        self.note("round trip", True, f"{format_seconds(rtt)} for a small question")
        record = await self._first_stream(client)
        self.note("authorisation", True, "the key is taken" if self.target.api_key else "no key is asked for")
        honours = self._judge(record)
        ids = await self._token_ids(client)
        return Preflight(self.target, identity, models, max_len, record, honours, ids, rtt, tuple(self.checks), version)

    async def _reach(self, client: Client, wait: float) -> Exchange:
        deadline = time.monotonic() + max(wait, 0.0)
        tries = 0
        while True:
            tries += 1
            exchange = await client.get("/v1/models", timeout=self.target.timeouts.connect + 5)
            if exchange.failure is None and exchange.status not in _BUSY:
                self.note("reachable", True, self.target.base_url)
                return exchange
            lasting = exchange.failure is not None and exchange.failure[0] is Outcome.TLS
            if lasting or (tries >= _TRIES and time.monotonic() >= deadline):
                raise unreachable(self.target.base_url, exchange, tries)
            await asyncio.sleep(_TRY_EVERY if wait else _TRY_EVERY / 3)

    def _let_in(self, exchange: Exchange) -> None:
        if exchange.status in (401, 403):
            self._refused(error_message(exchange))
        if exchange.status is not None and 300 <= exchange.status < 400:
            raise MeasurementError(
                f"{self.target.base_url} answers {error_message(exchange)}", "write the address it redirects to"
            )

    def _refused(self, said: str) -> None:
        raise refused(self.target.base_url, said, has_key=self.target.api_key is not None)

    async def _settle_model(
        self, client: Client, models: tuple[str, ...], max_len: int | None, listing: Exchange
    ) -> None:
        wanted = self.target.model
        if wanted is None:
            loaded = models
            if self.pick and len(models) > 1:
                loaded = await loaded_models(client, self._dialect.name, models)
            if len(loaded) != 1:
                raise unnamed(_names(self.target, models), self.target.url("/v1/models"), listing)
            self.target = dataclasses.replace(self.target, model=loaded[0])
        elif models and wanted not in models and f"{wanted}:latest" not in models:
            raise MeasurementError(
                f"the server does not serve {wanted!r}; it serves {_names(self.target, models)}",
                "copy the name as it is listed",
            )
        others = f", one of {len(models)}" if len(models) > 1 else ""
        context = f", context of {max_len:,} tokens" if max_len else ""
        self.note("model", True, f"{self.target.model}{others}{context}")

    async def _first_stream(self, client: Client) -> Record:
        """Try the apis in order of preference; the first that streams settles `target.api`.

        The next is tried only where a route is not there or cannot stream. A failure that passes says nothing of the
        route, and to go on would measure another api than the same server has measured at any other time.
        """
        wanted = self.target.api
        apis = ("completions", "chat") if wanted == "auto" else (wanted,)
        text = cast("str", random_prompts(Shape.of(_PROBE_ISL, _PROBE_OSL), seed=time.time_ns())(0).content)
        tried: list[Tried] = []
        for api in apis:
            self.target = dataclasses.replace(self.target, api=cast("Api", api))
            record, exchange = await ask_patiently(client, self.target, text, _PROBE_OSL)
            if exchange.status == 400 and "max_completion_tokens" in (record.error or ""):
                self.target = dataclasses.replace(self.target, dialect="openai_reasoning")
                record, exchange = await ask_once(client, self.target, text, _PROBE_OSL)
            if exchange.status in (401, 403):
                self._refused(record.error or "")
            if record.outcome is Outcome.OK:
                self.note("streams", True, f"{api}: {record.events} events in {record.reads} reads")
                return record
            tried.append(Tried(self._dialect.paths[api], record, exchange))
            if record.outcome in _PASSING or record.status in _BUSY:
                break
        raise unanswered(self.target.base_url, tried)

    def _judge(self, record: Record) -> bool:
        if record.completion_tokens is None or record.prompt_tokens is None:
            raise MeasurementError(
                "the server reports no token counts (usage) in its stream, so throughput cannot be measured", _NO_USAGE
            )
        self.note("usage", True, f"{record.prompt_tokens} tokens in, {record.completion_tokens} out")
        exact = record.completion_tokens == _PROBE_OSL
        length = f"asked {_PROBE_OSL} tokens, got {record.completion_tokens}"
        forced = self.target.ignore_eos and self._dialect.length_fields(_PROBE_OSL)
        if exact and not (forced or "ignore_eos" in self.target.extra_body):
            self.remark("output length", f"{length}; nothing forces it, so longer answers may end early")
        else:
            self.note(
                "output length", exact, length if exact else f"{length}: the shape's output length will not be met"
            )
        if record.events:
            per_chunk = record.completion_tokens / record.events
            several = "; gaps are between chunks, so judge by TPOT" if per_chunk > TOKENS_PER_CHUNK else ""
            self.note("tokens per chunk", not several, f"{per_chunk:.2f}{several}")
        lump = record.reads <= _LUMP and record.completion_tokens > 2 * _LUMP
        came = f"{record.completion_tokens} tokens in {record.reads} read{'s' if record.reads > 1 else ''}"
        self.note("unbuffered", not lump, f"{came}: something in between buffers the stream" if lump else came)
        if record.first is not None and record.last is not None and record.completion_tokens > 1:
            tpot = (record.last - record.first) / (record.completion_tokens - 1)
            self.note("speed", True, f"TTFT {record.first * 1e3:.1f} ms, TPOT {tpot * 1e3:.2f} ms")
        return exact

    async def _token_ids(self, client: Client) -> tuple[int, int] | None:
        """The widest range of token ids that the server takes and counts one for one."""
        if not self._dialect.token_ids or self.target.api != "completions":
            self.remark("exact input length", "prompts are words, their number fitted to the server's token count")
            return None
        for low, high in _IDS:
            prompts = random_prompts(Shape.of(64, 1), time.time_ns(), Calibration(ids=(low, high)))
            record, _ = await ask_once(client, self.target, prompts(0).content, 1)
            if record.outcome is Outcome.OK and record.prompt_tokens == 64:
                self.note("exact input length", True, f"prompts are token ids {low}..{high}")
                return low, high
        self.note("exact input length", False, "token-id prompts are not taken one for one; prompts are words")
        return None


@contextlib.asynccontextmanager
async def swept(client: Client) -> AsyncIterator[None]:
    """While inside, the client's time limits are kept."""

    async def keep() -> None:
        while True:
            await asyncio.sleep(0.25)
            client.sweep(client.clock())

    keeper = asyncio.create_task(keep())
    try:
        yield
    finally:
        keeper.cancel()


async def _version(client: Client) -> str | None:
    said = answer(await client.get("/version"))
    return (
        client.target.said(str(said["version"]), LONGEST_VERSION)
        if isinstance(said, dict) and said.get("version")
        else None
    )


async def _time_of(client: Client) -> float:
    exchange = await client.get("/v1/models")
    return exchange.end - exchange.sent


def models_of(listed: Any) -> tuple[tuple[str, ...], int | None]:
    """The models in the answer of /v1/models, and the shortest context among them, where it says so."""
    rows = listed_models(listed)
    lengths = [row["max_model_len"] for row in rows if isinstance(row.get("max_model_len"), int)]
    return tuple(row["id"] for row in rows), min(lengths, default=None)


def _names(target: Target, models: tuple[str, ...]) -> str:
    named = ", ".join(target.said(model, LONGEST_MODEL) for model in models[:5])
    return named + (f" and {len(models) - 5:,} more" if len(models) > 5 else "")
