"""`frontier quick`: a plain answer in about a minute, and what a minute cannot prove."""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import click

from frontier.cli.common import answer_json, answer_prose, json_option, say
from frontier.errors import ExitCode, MeasurementError

if TYPE_CHECKING:
    from frontier.client.preflight import Preflight
    from frontier.model import Estimate, Point, Record
    from frontier.run import Run

SIMULATOR = "simulator"
USERS = (1, 4, 16, 64)
PATIENCE = 5.0
"""Seconds that a lost server is waited for."""
SECONDS = 11
"""Per setting, so that all of them and what is around them take about a minute."""
REQUESTS, MOST_SECONDS = 4, 90
"""A server on which so many requests, one after the other, take longer is given longer for each setting, up to this."""
OUTPUT = 64
"""Tokens out, on average."""
CHAT = {"p90_ttft": 1.0, "p90_tpot": 0.05}
"""What a chat user puts up with: the first token within a second, then at least twenty tokens a second."""

CONFIG = """\
name: quick
endpoint: {endpoint}
{more}shapes: [{{isl: {{uniform: [192, 320]}}, osl: {{uniform: [48, 80]}}}}]
concurrency: {users}
requests: 100
repeats: 1
refine: 0
warmup: 500ms
max_time: {seconds}s
timeouts: {{total: {patience}s, first_byte: {patience}s}}
sla: {{p90_ttft: 1s, p90_tpot: 50ms}}
"""


@click.command("quick")
@click.argument("url", required=False)
@click.option("--model", help="The model to ask for; default: the one the server lists.")
@click.option("--api-key-env", metavar="NAME", help="The environment variable that holds the key.")
@json_option
def command(url: str | None, model: str | None, api_key_env: str | None, as_json: bool) -> int:
    """Measure the server at URL for about a minute: how fast is one user, and how many fit a chat?

    Without URL the usual ports of this machine are tried; without --model the loaded one is taken; `simulator` is the
    embedded engine. Nothing is kept.

    \b
    Examples:
      frontier quick
      frontier quick http://localhost:8000/v1
    """
    from frontier.cli.probe import find_server

    address, each = url or find_server(), SECONDS
    if address != SIMULATOR:
        found = look(address, model, api_key_env)
        model, each = found.target.model, seconds_for(found.probe)
        if model is not None and not model.isprintable():
            what = f"its model's name holds characters that cannot be written: {found.target.cleaned(model)}"
            raise MeasurementError(
                what, f"sweep it:  frontier init {address} > sweep.yaml && frontier sweep sweep.yaml"
            )
    # On a slow server the most users would take the longest, and say the least.
    users, took = (USERS, "about a minute: a few") if each == SECONDS else (USERS[:-1], f"it is slow: {each} or more")
    text = config_text(address, model, api_key_env, users, each)
    say(f"{took} seconds each with " + ", ".join(map(str, users)) + " users")
    with tempfile.TemporaryDirectory(prefix="frontier-quick-") as here:
        run = _measure(text, Path(here) / "run")
    points = {p.concurrency: p for p in run.points()}
    told = findings(points)
    seen = {trial.concurrency: sample.server[0] for history in run.histories.values() for trial, sample in history}
    if told is None:
        flags = {flag.name for p in points.values() for flag in p.flags if flag.fatal}
        raise MeasurementError(
            "nothing measured in this minute can be relied on: " + (", ".join(sorted(flags)) or "no request succeeded"),
            f"look closer with  frontier probe {address}",
        )
    if as_json:
        answer_json({"schema": "frontier.quick/1", "url": address, **told.tree()})
    else:
        answer_prose("\n".join(words(told, address, seen)))
    return ExitCode.YES


def look(address: str, model: str | None, api_key_env: str | None) -> "Preflight":
    """The server as preflight finds it, with the model named or the one it has loaded. MeasurementError as of it."""
    from frontier.cli.probe import read_key
    from frontier.client.event_loop import run
    from frontier.client.preflight import preflight
    from frontier.client.target import Target

    target = Target(address, model=model, api_key=read_key(api_key_env))
    try:
        found = run(preflight(target, pick=True))
    except MeasurementError as error:
        raise MeasurementError(target.secrets.redact(error.what), error.hint) from None
    say(f"model   {target.cleaned(found.target.model or '')} on {found.identity}")
    return found


def seconds_for(probe: "Record") -> int:
    """How long each setting takes, by one short request: long enough for a few of the minute's own, one by one. By its
    pace, as the first token of a cold server says nothing."""
    if probe.first is None or probe.last is None or not probe.completion_tokens or probe.completion_tokens < 2:
        return SECONDS
    e2e = OUTPUT * (probe.last - probe.first) / (probe.completion_tokens - 1)
    return max(SECONDS, min(MOST_SECONDS, round(REQUESTS * e2e)))


def config_text(
    address: str, model: str | None, api_key_env: str | None, users: Sequence[int] = USERS, each: int = SECONDS
) -> str:
    """The minute as a config; names as JSON strings, which are YAML's too. `each` setting has so many seconds."""
    given = {"model": model, "api_key_env": api_key_env}
    more = "".join(f"{key}: {json.dumps(value)}\n" for key, value in given.items() if value)
    patience = 60 + 4 * (each - SECONDS)
    return CONFIG.format(endpoint=json.dumps(address), more=more, users=list(users), seconds=each, patience=patience)


def _measure(text: str, path: Path) -> "Run":
    from frontier.client.event_loop import run as run_loop
    from frontier.config import load_config
    from frontier.plan import make_plan
    from frontier.report.progress import make_progress
    from frontier.run import load
    from frontier.store.run_dir import RunDirectory
    from frontier.sweep.backend import HttpBackend
    from frontier.sweep.conductor import Conductor, SweepEnd

    config = load_config(text, "quick")
    run = RunDirectory.open_for_sweep(
        path, identity=config.identity(), canonical=config.canonical(), config_text=text, facts={}
    )

    async def go() -> "SweepEnd":
        progress = make_progress(sys.stderr)
        backend = HttpBackend(config, os.environ, time.time_ns())
        try:
            plan, stop = make_plan(config), asyncio.Event()
            return await Conductor(config, plan, run, backend, progress, stop, ready_wait=PATIENCE).conduct()
        finally:
            progress.close()

    with run:
        run_loop(go())
    return load(path)


@dataclass(frozen=True, slots=True)
class Findings:
    """What a minute shows, in SI units. `users` is the fewest that could be measured, with their median TTFT and speed;
    `fit` the most that fit a chat, `binding` what goes over first (None: nothing did, up to `highest`).
    """

    users: int
    ttft: float
    tok_s_user: float
    fit: int | None
    highest: int
    binding: str | None
    best_throughput: float
    best_at: int
    requests: Mapping[int, int]
    invalid: Mapping[int, tuple[str, ...]]

    def tree(self) -> dict[str, object]:
        """JSON-able."""
        tree = {field.name: getattr(self, field.name) for field in fields(self)}
        return tree | {name: {str(c): x for c, x in tree[name].items()} for name in ("requests", "invalid")}


def findings(points: "Mapping[int, Point]") -> Findings | None:
    """None when no valid point says anything about one user."""
    valid = {c: p for c, p in sorted(points.items()) if p.valid and "p50_ttft" in p.metrics and "p50_tpot" in p.metrics}
    if not valid:
        return None
    first = valid[min(valid)]
    fit, binding = None, None
    for c, point in valid.items():
        over = [name for name, limit in CHAT.items() if _value(point.metrics.get(name)) > limit]
        if over:
            binding = over[0]
            break
        fit = c
    best = max(valid.values(), key=lambda p: _value(p.metrics.get("output_throughput"), 0.0))
    return Findings(
        users=min(valid),
        ttft=first.metrics["p50_ttft"].value,
        tok_s_user=1 / first.metrics["p50_tpot"].value,
        fit=fit,
        highest=max(valid),
        binding=binding,
        best_throughput=_value(best.metrics.get("output_throughput"), 0.0),
        best_at=best.concurrency,
        requests={c: p.n for c, p in sorted(points.items())},
        invalid={c: tuple(f.name for f in p.flags if f.fatal) for c, p in sorted(points.items()) if not p.valid},
    )


def behind(server: "Mapping[int, Mapping[str, float]]") -> list[str]:
    """What the server's own metrics say of the most users, where they say that something was short."""
    from frontier.units import format_number, format_share

    most = max(server, default=0)
    told = server.get(most, {})
    short = []
    if (waiting := told.get("num_requests_waiting", 0.0)) >= 1:
        short.append(f"{format_number(waiting)} requests waiting on average")
    if (full := told.get("kv_cache_usage_perc_max", 0.0)) >= 0.9:
        short.append(f"its KV cache {format_share(full)} full")
    if preempted := told.get("num_preemptions_total", 0.0):
        short.append(f"{preempted:g} requests preempted")
    return [f"With {most} users the server had {' and '.join(short)}."] if short else []


def _value(estimate: "Estimate | None", missing: float = float("inf")) -> float:
    return missing if estimate is None else estimate.value


def words(told: Findings, address: str, server: "Mapping[int, Mapping[str, float]] | None" = None) -> list[str]:
    """The findings as a person would say them, with what they do not prove. `server`: its own metrics by users."""
    from frontier.units import format_number, format_seconds

    who = "One user" if told.users == 1 else f"Each of {told.users} users"
    counts = told.requests.values()
    return [
        (
            f"{who} waits {format_seconds(told.ttft)} for the first token and then reads "
            f"{format_number(told.tok_s_user)} tokens a second."
        ),
        _chat(told),
        *behind(server or {}),
        f"The most output seen was {format_number(told.best_throughput)} tokens a second, with {_users(told.best_at)}.",
        *_not_counted(told),
        f"About 256 tokens in, 64 out, {min(counts)} to {max(counts)} requests a setting, to {_users(told.highest)}.",
        "A minute cannot bound a p99, nor say how it is with your lengths, or after an hour. That is proven with",
        f"  frontier init {address} > sweep.yaml && frontier sweep sweep.yaml",
    ]


def _users(count: int) -> str:
    return "1 user" if count == 1 else f"{count} users"


def _chat(told: Findings) -> str:
    from frontier.metrics import metric

    chat = "first token within 1 s, then 20 tokens a second, for 9 in 10 requests"
    if told.fit is None:
        return f"Not even {_users(told.users)} fit a chat ({chat})."
    if told.binding is not None:
        name = metric(told.binding).label
        return f"About {_users(told.fit)} at once fit a chat ({chat}); more, and {name} goes over first."
    if any(c > told.fit for c in told.invalid):
        return f"{_users(told.fit)} at once fit a chat ({chat}); of more, nothing can be said."
    return f"All {_users(told.fit)} tried at once fit a chat ({chat}); the limit is above."


def _not_counted(told: Findings) -> list[str]:
    """The settings that were measured and cannot be relied on, together where the reason is the same."""
    by_reason: dict[tuple[str, ...], list[int]] = {}
    for c, why in told.invalid.items():
        by_reason.setdefault(why, []).append(c)
    return [
        f"Not counted: {', '.join(map(str, counts))} users ({', '.join(why)})" + _HINTS.get(why[0], ".")
        for why, counts in by_reason.items()
    ]


_HINTS = {
    "client_bound": ": this machine was too busy to measure them.",
    "no_requests": ": no request was sent and answered in the time they had.",
}
