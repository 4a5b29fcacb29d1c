"""Why an endpoint cannot be measured, with the way out: the errors `preflight` ends in."""

from collections.abc import Sequence
from dataclasses import dataclass

from frontier.errors import MeasurementError
from frontier.measure.client import Exchange
from frontier.measure.reading import error_message, retry_after
from frontier.model import Outcome, Record
from frontier.units import format_elapsed

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
        way_out = "look at http_proxy, https_proxy and no_proxy, or do without:  proxy: none  in the config"
        return MeasurementError(f"cannot reach {url}: {said}", way_out)
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
    way_out = "name one with  model: NAME  in the config, or with  --model NAME  for probe and quick"
    if models:
        return MeasurementError(f"no model was named, and it serves {models}", way_out)
    if listing.status == 200:
        return MeasurementError("no model was named, and it does not list its models", way_out)
    astray = f"; or is the address another one? nothing is at {url}" if listing.status == 404 else ""
    said = f"no model was named, and it does not list its models ({error_message(listing)})"
    return MeasurementError(said, way_out + astray)


def unanswered(url: str, tried: Sequence[Tried]) -> MeasurementError:
    """It answers, and no request was streamed to its end."""
    routes: dict[str, list[str]] = {}
    for one in tried:
        routes.setdefault(one.record.error or "", []).append(one.path)
    said = "; ".join(f"{' and '.join(paths)}: {error}" for error, paths in routes.items())
    telling = next((one for one in tried if one.record.status not in _MISSING), tried[0])
    waits = [wait for one in tried if (wait := retry_after(one.exchange)) is not None]
    wait = max(waits, default=None)
    return MeasurementError(f"no streamed answer from {url}: {said}", way_out(telling.record, wait), retry_after=wait)


def way_out(record: Record, wait: float | None) -> str:
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
