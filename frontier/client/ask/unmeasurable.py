"""Errors of the preflight: why an endpoint cannot be measured, with a hint what to do."""

import re
from collections.abc import Sequence

from frontier.client.ask.identify import LONGEST_MODEL
from frontier.client.ask.refused_fields import refused_fields
from frontier.client.ask.target import Target
from frontier.client.engines.stream import SEVERAL
from frontier.client.http.exchange import Exchange
from frontier.client.http.parse import COMPRESSED, error_message, is_page
from frontier.client.http.retry_after import retry_after
from frontier.core.model.errors import MeasurementError
from frontier.core.model.groups import by_key
from frontier.core.model.text import some_of
from frontier.core.model.trials import Outcome, Record
from frontier.core.model.units import format_elapsed

NO_ROUTE = (404, 405)
"""What a server answers on a route that it does not have."""


FailedStream = tuple[str, Record, Exchange]
"""One streamed request that failed: the route, and what came of it."""


class NoAnswerError(MeasurementError):
    """Nothing answers at the endpoint."""


def model_names(target: Target, models: Sequence[str]) -> str:
    """The first models of a list, cleaned: 'llama-8b, qwen-7b and 3 more'."""
    return some_of([target.cleaned(model, LONGEST_MODEL) for model in models], 5)


def unreachable(url: str, exchange: Exchange, tries: int) -> MeasurementError:
    """No answer to a small question at `url`, or none that is ready."""
    kind, reason = exchange.failure or (Outcome.HTTP_ERROR, error_message(exchange))
    wait = f"frontier probe {url} --wait 10min"
    if kind is Outcome.HTTP_ERROR:
        what = f"{url} is not ready: {reason}{_after(tries)}"
        return MeasurementError(what, f"wait for it with  {wait}", retry_after=retry_after(exchange))
    plain = url.startswith("http:")
    hints = {
        "the proxy": "look at http_proxy, https_proxy and no_proxy, or do without:  proxy: none  in the config",
        "resolve|Name or service|nodename|DNS": "check the spelling of the address",
        "WRONG_VERSION_NUMBER|RECORD_LAYER": f"no TLS is spoken at that port: write  http{url.removeprefix('https')}",
        "expired": "renew the server's certificate (and look at this machine's clock)",
    }
    other = {
        Outcome.TLS: "name its authority with  tls: {ca: FILE},  or do without:  tls: {verify: false},  in the config",
        **dict.fromkeys(
            (Outcome.STREAM_ERROR, Outcome.PROTOCOL) if plain else (),
            f"if TLS is spoken there, write  https{url.removeprefix('http')}",
        ),
    }.get(kind, f"is the server still loading?   watch with:  {wait}")
    hint = next((hint for words, hint in hints.items() if re.search(words, reason)), other)
    reached = "no secure connection to" if kind is Outcome.TLS else "cannot reach"
    reason = "connection refused" if "Connect call failed" in reason else _CONNECTING.sub(r"\1", reason)
    error = MeasurementError if kind is Outcome.TLS else NoAnswerError
    return error(f"{reached} {url}: {reason}{_after(tries)}", hint)


_CONNECTING = re.compile(r"Cannot connect to host \S+ ssl:\w+ \[(.+)\]")
"""How the client's library says why it did not connect: in it stands what the system said."""


def _after(tries: int) -> str:
    """' (3 tries)'; '' after the first."""
    return f" ({tries} tries)" if tries > 1 else ""


def refused(target: Target, reason: str) -> MeasurementError:
    """It lets no request in without a key, or not with this one."""
    if target.api_key is not None:
        return MeasurementError(
            f"{target.base_url} refuses the key it was given: {reason}",
            _of_key(target.api_key),
        )
    return MeasurementError(
        f"{target.base_url} refuses a request without a key: {reason}",
        "name the variable that holds it:  --set api_key_env=NAME  (probe, quick:  --api-key-env NAME),\n"
        "  or in the config  api_key_env: NAME,  api_key_file: FILE  or  headers: {X-Api-Key: '${NAME}'}",
    )


def _of_key(key: str) -> str:
    """What to look at in a key that is refused; the key itself is not told."""
    for start, what in (('"', "with a quote"), ("'", "with a quote"), ("bearer ", "with the word Bearer")):
        if key.lower().startswith(start):
            return f"the variable or file of the key begins {what}: leave it out"
    return "look at what the variable or the file of the key holds"


def unnamed_model(target: Target, models: tuple[str, ...], listing: Exchange) -> MeasurementError:
    """The error that no model was named, and that none can be picked from the server's list."""
    hint = "name one:  --set model=NAME  (probe, quick:  --model NAME),  or in the config  model: NAME"
    if models:
        return MeasurementError(f"no model was named, and {target.base_url} serves {model_names(target, models)}", hint)
    where, said = target.url("/v1/models"), error_message(listing)
    if listing.status == 200 and is_page(listing):
        what = f"{where} is a web page ({said.partition(': ')[2]}), no list of models"
        return MeasurementError(what, "write the address of the API, as  http://host:8000/v1")
    if listing.status == 404:
        hint += (
            "\n  or is the address another one? without /v1, write it with its route:  http://host/llm/chat/completions"
        )
    return MeasurementError(f"no model was named, and {where} lists none: {said}", hint)


def unanswered(target: Target, failures: Sequence[FailedStream]) -> MeasurementError:
    """It answers, and no request was streamed to its end."""
    routes = by_key((record.error or "", path) for path, record, _ in failures)
    reasons = "; ".join(f"{' and '.join(paths)}: {error}" for error, paths in routes.items())
    records = [record for _, record, _ in failures]
    telling = next((n for n, record in enumerate(records) if record.status not in NO_ROUTE), 0)
    wait = max((wait for _, _, exchange in failures if (wait := retry_after(exchange)) is not None), default=None)
    hint = _field_hint(target, failures[telling][2]) or stream_hint(records[telling], wait)
    return MeasurementError(f"no streamed answer from {target.base_url}: {reasons}", hint, retry_after=wait)


def _field_hint(target: Target, exchange: Exchange) -> str | None:
    """The key of the config that changes or removes a field that the server refuses; None where it
    names none.
    """
    refused = refused_fields(exchange)
    if own := sorted(refused & target.extra_body.keys()):
        return f"change or remove  {', '.join(own)}  under  extra_body:  in the config"
    if "temperature" in refused:
        return "write  extra_body: {temperature: 1}  in the config (null leaves it out),  or  dialect: openai_reasoning"
    return None


_BY_STATUS = {
    **dict.fromkeys(range(300, 400), "write the address it redirects to"),
    **dict.fromkeys(
        (400, 422),
        "it does not take what it was sent: see its log, name its engine with  dialect: NAME  in the config, or leave "
        "a field out:  extra_body: {stream_options: null}",
    ),
    413: "something before the server limits the size of a request: raise that, or ask for shorter prompts",
    **dict.fromkeys((429, 503), "it is still loading, overloaded, or limits its callers: try again "),
    504: "something before the server gives up on its answers: raise that limit, as nginx's proxy_read_timeout",
}


def stream_hint(record: Record, wait: float | None) -> str:
    """What to do about a plain request that failed; `wait` is how many seconds the server asks to
    be left alone.
    """
    status = record.status or 0
    if record.outcome is Outcome.TIMEOUT:
        return "is it overloaded? else give it longer with  timeouts: {first_byte: 10min, total: 30min}  in the config"
    if status == 404 and "model" in (record.error or "").lower():
        return "does the server know the model by another name?  --set model=NAME  (probe, quick:  --model NAME)"
    if status in (429, 503):
        return _BY_STATUS[status] + ("later" if wait is None else f"in {format_elapsed(wait)}, as it asks")
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500 or record.outcome is Outcome.STREAM_ERROR:
        return "the server fails at a plain request: its log says why"
    if record.outcome is Outcome.TRUNCATED:
        return "the server fails, or something before it closes the stream: see the logs of both"
    if record.outcome is Outcome.PROTOCOL and (record.error or "").startswith(COMPRESSED):
        return "something before the server compresses the stream: switch that off for this route"
    if record.outcome is Outcome.EMPTY:
        return "its events hold no text where the API has it (choices[0].delta.content): look at one with  curl -N"
    if record.outcome is Outcome.PROTOCOL and record.error == SEVERAL:
        return "write  extra_body: {n: 1}  in the config"
    return "the endpoint must stream /v1/completions or /v1/chat/completions as server-sent events"
