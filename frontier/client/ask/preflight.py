"""Preflight: the questions that an endpoint is asked before it is measured.

Is it there, does it let us in, does it serve the model, does it stream and count tokens?
`preflight` detects the engine and settles what the target left open (dialect, api, model). It
returns what it learned, or raises a MeasurementError with a hint. The module also fits prompt
lengths to the server's count, and finds the prefix cache's salt. What more `frontier probe` asks is
in its extra.
"""

import asyncio
import dataclasses
import secrets
import time
from dataclasses import dataclass
from typing import Literal

from frontier.client.ask import unmeasurable
from frontier.client.ask.identify import Served, context_of, detect, loaded_models, models_of, object_of, version_of
from frontier.client.ask.prompts import Calibration, calibrate_words, random_prompts
from frontier.client.ask.refused_fields import KEPT, OWN, refused_fields, wants_other_limit
from frontier.client.ask.replicas import several_processes
from frontier.client.ask.target import Api, Target
from frontier.client.ask.unmeasurable import FailedStream
from frontier.client.engines.request import Content, PreparedRequest, Prompt
from frontier.client.http.exchange import Exchange
from frontier.client.http.http_client import Client
from frontier.client.http.parse import error_message, parse_all, to_record
from frontier.client.http.retry_after import retry_after
from frontier.client.load.health import OTHER_FILES, Heartbeat, raise_fd_limit
from frontier.core.flags.stream_flags import IMPLAUSIBLE_TPOT
from frontier.core.model.errors import MeasurementError
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Outcome, Record
from frontier.core.model.units import format_seconds

TOKENS_PER_CHUNK = 1.25
"""Tokens per chunk from which chunks count as several tokens: in sixteen tokens, a character cut in
two does not explain more."""
_TRIES, _TRY_EVERY = 3, 3.0
_COUNTS = 3
"""Times that a prompt is sent to be counted: some servers leave the usage out now and then."""
_NO_USAGE = "have usage sent in streams (stream_options.include_usage), or name the server's dialect"
_USAGE_LATE = "have the server, or the gateway before it, send the usage chunk before [DONE]"
_PASSING = (Outcome.CONNECT, Outcome.TLS, Outcome.TIMEOUT, Outcome.STREAM_ERROR, Outcome.TRUNCATED)
_BUSY = (408, 425, 429, 502, 503, 504)
"""Statuses of a server, or of a gateway before it, that is temporarily unable to answer."""
PROBE_ISL, _PROBE_OSL = 48, 16
_REASONING = "openai_reasoning"
_LUMP = 2
"""A stream comes in more reads than this: a first token, others, the usage, the end."""
_IDS = ((1000, 30000), (300, 5000), (10, 500))
"""Ranges of token ids tried, widest first: in the common vocabularies special tokens are below 1000
or above 30000."""


# --- The questions.


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the checklist; a 'note' is neither good nor bad."""

    name: str
    state: Literal["ok", "note", "warn", "fail"]
    detail: str


@dataclass(frozen=True, slots=True)
class Preflight:
    """What is known of an endpoint before it is measured.

    - `target` is settled: dialect, api, model and identity are known.
    - `models`: the models that the server lists; empty: it does not say
    - `probe`: the streamed request that was tried
    - `ids`: the token ids a prompt may be made of; None: prompts are words
    - `version`: the answer on /version; None: there was none
    """

    target: Target
    models: tuple[str, ...]
    max_model_len: int | None
    probe: Record
    ids: tuple[int, int] | None
    checks: tuple[Check, ...]
    version: str | None = None

    @property
    def identity(self) -> str:
        """The identity of the server, in its own words."""
        return self.target.identity or ""


async def preflight(
    target: Target, *, concurrency: int = 1, wait: float = 0.0, pick: bool = False, checks: list[Check] | None = None
) -> Preflight:
    """Ask the endpoint a few questions and settle the target.

    `wait`: seconds to wait for a server that is still loading. Where the server has several models,
    one must be named, unless `pick` lets the loaded one be taken. `checks` collects the answers as
    they come, also when they end in an error.

    MeasurementError, with a hint, when nothing can be measured: the server cannot be reached,
    refuses, serves another model, or does not stream or count tokens; or not enough files may be
    opened for the concurrency.
    """
    return await _Questions(target, [] if checks is None else checks, pick).run(concurrency, wait)


async def ask_once(
    client: Client, target: Target, content: Content, osl: int, salt: str | None = None, *, shares: bool = False
) -> tuple[Record, Exchange]:
    """One streamed request through the target's dialect and api."""
    prompt = Prompt(content, 0, osl, salt, shares)
    request = PreparedRequest(0, target.request_body(prompt), osl, 0, prompt)
    exchange = await client.post(target.request_url, request.body, asked=osl)
    exchange.request = request
    return to_record(parse_all(exchange, target.engine, target.api), exchange.sent), exchange


async def ask_patiently(client: Client, target: Target, content: Content, osl: int) -> tuple[Record, Exchange]:
    """As `ask_once`, with retries for a moment where the server, or a gateway before it, is
    temporarily unable to answer.
    """
    for left in reversed(range(_TRIES)):
        record, exchange = await ask_once(client, target, content, osl)
        if record.status not in _BUSY or (retry_after(exchange) or 0.0) > _TRY_EVERY or not left:
            break
        await asyncio.sleep(_TRY_EVERY / 3)
    return record, exchange


class _Questions:
    """One run through the questions; `checks` grows as they are answered."""

    def __init__(self, target: Target, checks: list[Check], pick: bool) -> None:
        self.target = target
        self.checks = checks
        self.pick = pick
        self._stood_still = 0.0

    def note(self, name: str, good: bool | None, detail: str) -> None:
        """Add a check; `good` None is neither good nor bad."""
        state: Literal["ok", "warn"] = "ok" if good else "warn"
        self.checks.append(Check(name, "note" if good is None else state, self.target.cleaned(detail)))

    async def run(self, concurrency: int, wait: float) -> Preflight:
        needed = concurrency + OTHER_FILES
        if (most := raise_fd_limit(needed)) < needed:
            raise MeasurementError(
                f"{concurrency:,} connections need {needed:,} open files; this system has {most:,}",
                f"raise it with  ulimit -Hn {needed}  (as root), or lower the concurrency",
            )
        async with Client(self.target) as client:
            return await self._questions(client, wait)

    async def _questions(self, client: Client, wait: float) -> Preflight:
        exchange = await self._reach(client, wait)
        self._admitted(exchange)
        listed = object_of(exchange)
        models = models_of(listed)
        identity = self.target.dialect or ""
        if self.target.dialect is None:
            dialect, identity = await detect(client, listed)
            self.target = dataclasses.replace(self.target, dialect=dialect)
        server = exchange.headers.get("server")
        identity = self.target.cleaned(identity if not server or server in identity else f"{identity} ({server})")
        self.target = dataclasses.replace(self.target, identity=identity)
        self.note("engine", True, identity)
        await self._settle_model(client, models, exchange)
        max_len = await context_of(client, self.target.engine.name, listed, self.target.model)
        others = f", one of {len(models)}" if len(models) > 1 else ""
        context = f", context of {max_len:,} tokens" if max_len else ""
        self.note("model", True, f"{self.target.model}{others}{context}")
        version = await version_of(client)
        record, answer = await self._first_stream(client)
        self.note("authorisation", True, "the key is taken" if self.target.api_key else "no key is asked for")
        self._check_stream(record, answer)
        max_len = await context_of(client, self.target.engine.name, listed, self.target.model)  # now it is loaded
        ids = await self._token_ids(client)
        if (replicas := await several_processes(self.target)) is not None:
            self.note("replicas", False, replicas)
        return Preflight(self.target, models, max_len, record, ids, tuple(self.checks), version)

    async def _reach(self, client: Client, wait: float) -> Exchange:
        deadline = time.monotonic() + max(wait, 0.0)
        tries = 0
        while True:
            tries += 1
            exchange = await client.ask("/v1/models", self.target.timeouts.connect + 5)
            if exchange.failure is None and exchange.status not in _BUSY:
                self.note("reachable", True, self.target.base_url)
                return exchange
            lasting = exchange.failure is not None and exchange.failure[0] is Outcome.TLS
            if lasting or (tries >= _TRIES and time.monotonic() >= deadline):
                raise unmeasurable.unreachable(self.target.base_url, exchange, tries)
            await asyncio.sleep(_TRY_EVERY if wait else _TRY_EVERY / 3)

    def _admitted(self, exchange: Exchange) -> None:
        if exchange.status in (401, 403):
            raise unmeasurable.refused(self.target, error_message(exchange))
        if exchange.status is not None and 300 <= exchange.status < 400:
            raise MeasurementError(
                f"{self.target.base_url} answers {error_message(exchange)}", "write the address it redirects to"
            )

    async def _settle_model(self, client: Client, models: tuple[str, ...], listing: Exchange) -> None:
        wanted = self.target.model
        if wanted is None:
            loaded = models
            if self.pick and len(models) > 1:
                loaded = await loaded_models(client, self.target.engine.name, models)
            if len(loaded) != 1:
                raise unmeasurable.unnamed_model(self.target, models, listing)
            self.target = dataclasses.replace(self.target, model=loaded[0])
        elif models and wanted not in models and f"{wanted}:latest" not in models:
            raise MeasurementError(
                f"the server does not serve {wanted!r}; it serves {unmeasurable.model_names(self.target, models)}",
                "copy the name as it is listed",
            )

    async def _first_stream(self, client: Client) -> tuple[Record, Exchange]:
        """Try the apis in order of preference; the first that streams settles `target.api`.

        The next is tried only where a route is not there or cannot stream. A temporary failure says
        nothing of the route. To go on then would measure another api than at any other time.
        """
        wanted = self.target.api
        apis: tuple[Api, ...] = ("completions", "chat") if wanted == "auto" else (wanted,)
        text = random_prompts(Shape.of(PROBE_ISL, _PROBE_OSL), seed=time.time_ns())(0).content
        failures: list[FailedStream] = []
        for api in apis:
            self.target = dataclasses.replace(self.target, api=api)
            for _ in range(_COUNTS):
                async with Heartbeat() as heart:
                    record, exchange = await self._with_fields_taken(client, text)
                self._stood_still = heart.longest
                counted = record.prompt_tokens and record.completion_tokens is not None
                if record.outcome is not Outcome.OK or (counted and not self._read_late(record)):
                    break
            if exchange.status in (401, 403):
                raise unmeasurable.refused(self.target, record.error or "")
            if record.outcome is Outcome.OK:
                self.note("streams", True, f"{api}: {record.events:,} events in {record.reads} reads")
                return record, exchange
            failures.append((self.target.engine.paths[api], record, exchange))
            if record.outcome in _PASSING or record.status in _BUSY:
                break
        raise unmeasurable.unanswered(self.target, failures)

    async def _with_fields_taken(self, client: Client, text: Content) -> tuple[Record, Exchange]:
        """A streamed request, asked again without the fields that the server refuses by name, once
        each. Fields of `extra_body` stay, as they are the user's; so does the temperature, which
        decides the answer.
        """
        while True:
            record, exchange = await ask_patiently(client, self.target, text, _PROBE_OSL)
            refused = refused_fields(exchange)
            if self.target.dialect != _REASONING and wants_other_limit(exchange, refused):
                self.target = dataclasses.replace(self.target, dialect=_REASONING)
                continue
            ours = refused - self.target.omitted - self.target.extra_body.keys() - KEPT
            if not ours or refused & OWN:
                return record, exchange
            self.target = dataclasses.replace(self.target, omitted=self.target.omitted | ours)
            self.note("request", None, f"sent without {', '.join(sorted(ours))}: {record.error}")

    def _read_late(self, record: Record) -> bool:
        """Whether the client may have made one read of a whole stream, as it stood still for longer
        than the fastest server takes to send it.
        """
        return record.reads <= _LUMP < record.events and self._stood_still > record.events * IMPLAUSIBLE_TPOT

    def _check_stream(self, record: Record, answer: Exchange) -> None:
        """The checks of one streamed answer. Raises without token counts."""
        if record.completion_tokens is None or record.prompt_tokens is None:
            hint = _USAGE_LATE if _after_done(answer) else _NO_USAGE
            raise MeasurementError(f"{self._uncounted(record, answer)}, so throughput cannot be measured", hint)
        self.note("usage", True, f"{record.prompt_tokens} tokens in, {record.completion_tokens} out")
        exact = record.completion_tokens == _PROBE_OSL
        forced = self.target.forces_length
        length = f"asked {_PROBE_OSL} tokens, got {record.completion_tokens}"
        if not exact:
            self.note("output length", False, f"{length}: the shape's output length will not be met")
        elif forced or "ignore_eos" in self.target.extra_body:
            self.note("output length", True, length)
        else:
            self.note("output length", None, f"{length}; nothing forces it, so longer answers may end early")
        if record.events:
            per_chunk = record.completion_tokens / record.events
            several = "; ITL is between chunks, and TPOT of the tokens after the first chunk"
            several = several if per_chunk > TOKENS_PER_CHUNK else ""
            self.note("tokens per chunk", not several, f"{per_chunk:.2f}{several}")
        lump = min(record.reads, record.events) <= _LUMP and record.completion_tokens > 2 * _LUMP
        came = f"{record.completion_tokens} tokens in {record.reads} read{'s' if record.reads > 1 else ''}"
        if record.events <= _LUMP < record.reads:
            came = f"{record.completion_tokens} tokens in {record.events:,} chunk{'s' if record.events > 1 else ''}"
        held = f"{came}: something holds the answer back; where most answers come so, judge by E2E, not by TPOT or ITL"
        late = f"{came}, as this machine was busy: its event loop stood still for {format_seconds(self._stood_still)}"
        if self._read_late(record):
            self.note(
                "unbuffered", None, f"{late}; whether the server streams is not known: probe again on an idle machine"
            )
        else:
            self.note("unbuffered", not lump, held if lump else came)
        if record.first is not None:
            tpot = _time_per_token(record)
            each = f", TPOT {tpot * 1e3:.2f} ms" if tpot > 0 else ""
            self.note("speed", True, f"TTFT {record.first * 1e3:.1f} ms{each}")

    def _uncounted(self, record: Record, answer: Exchange) -> str:
        """Which counts a stream lacks."""
        without = "" if "stream_options" not in self.target.omitted else " and refuses the stream_options that ask"
        usage = parse_all(answer, self.target.engine, self.target.api).state.usage
        lacks = "no token counts (usage) in its stream"
        if _after_done(answer):
            return "the server sends its token counts (usage) after [DONE], which ends the stream"
        if record.completion_tokens is not None:
            lacks = "no tokens of the prompt (prompt_tokens) in the usage of its stream"
        elif record.prompt_tokens is not None:
            lacks = "no tokens of the answer (completion_tokens) in the usage of its stream"
        elif usage:
            shown = self.target.cleaned(str(usage), 120)
            lacks = f"no counts of tokens in its usage ({shown})"
        return f"the server reports {lacks}{without}"

    async def _token_ids(self, client: Client) -> tuple[int, int] | None:
        """The widest range of token ids that the server takes and counts one for one."""
        if not self.target.engine.token_ids or self.target.api != "completions":
            self.note("exact input length", None, "prompts are words, their number fitted to the server's token count")
            return None
        for low, high in _IDS:
            prompts = random_prompts(Shape.of(64, 1), time.time_ns(), Calibration(ids=(low, high)))
            record, _ = await ask_once(client, self.target, prompts(0).content, 1)
            if record.outcome is Outcome.OK and record.prompt_tokens == 64:
                self.note("exact input length", True, f"prompts are token ids {low}..{high}")
                return low, high
        self.note("exact input length", False, "token-id prompts are not taken one for one; prompts are words")
        return None


def _after_done(answer: Exchange) -> bool:
    """Whether a usage came behind the end of the stream."""
    return b'"usage"' in b"".join(answer.reads).partition(b"[DONE]")[2]


def _time_per_token(record: Record) -> float:
    """Seconds per token after the first chunk, roughly: that has its share of the text. 0 where
    nothing came after it.
    """
    tokens, share = record.completion_tokens or 0, (record.first_chars or 0) / max(record.text_chars, 1)
    first = 1.0 if tokens <= record.events else max(1.0, tokens * share)
    return ((record.last or 0.0) - (record.first or 0.0)) / max(tokens - first, 1.0)


# --- Between trials.


async def changed(found: Preflight) -> str | None:
    """The difference of the server since `found`, in words. None: nothing, or it does not answer
    now.
    """
    async with Client(found.target) as client:
        now = await Served.ask(client, 5.0)
    model = found.target.model
    if now.models and found.models and model in found.models and model not in now.models:
        served = unmeasurable.model_names(found.target, sorted(now.models))
        return f"it served {found.target.cleaned(str(model))} and now serves {served}"
    if now.version is not None and found.version is not None and now.version != found.version:
        return f"it was version {found.version} and is {now.version} now"
    return None


async def calibrate(found: Preflight, lengths: list[int], *, words: bool = False, natural: bool = False) -> Calibration:
    """How prompts reach the asked input lengths on this endpoint (exact where token ids are taken).
    With `words` what words make is learned even so: sessions are of texts, and so are `natural`
    prompts.
    """
    if found.ids is not None and not (words or natural):
        return Calibration(ids=found.ids)
    async with Client(found.target) as client:

        async def count(content: Content) -> int:
            for _ in range(_COUNTS):
                record, exchange = await ask_patiently(client, found.target, content, 1)
                # The one token may be half a character, which servers hold back; the usage counts
                # the prompt even so.
                if record.outcome in (Outcome.OK, Outcome.EMPTY) and record.prompt_tokens is not None:
                    return record.prompt_tokens
                if record.outcome is not Outcome.OK:
                    wait = retry_after(exchange)
                    what = f"a prompt could not be counted: {record.error}"
                    raise MeasurementError(what, unmeasurable.stream_hint(record, wait), retry_after=wait)
            raise MeasurementError(f"a prompt could not be counted: no usage in {_COUNTS} answers", _NO_USAGE)

        learned = await calibrate_words(count, max(lengths), natural=natural)
        return learned if natural else dataclasses.replace(learned, ids=found.ids)


async def settle_salt(found: Preflight) -> Preflight:
    """The same with `target.salted` False where the server does not take a salt."""
    if not found.target.engine.salted:
        return found
    async with Client(found.target) as client:
        text = random_prompts(Shape.of(32, 1), secrets.randbits(64))(0).content
        record, _ = await ask_once(client, found.target, text, 1, f"frontier-{secrets.token_hex(8)}")
    if record.outcome is Outcome.OK:
        return found
    return dataclasses.replace(found, target=dataclasses.replace(found.target, salted=False))
