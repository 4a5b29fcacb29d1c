"""`frontier quick`: a plain answer in about a minute, and what a minute cannot prove."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from frontier.cli.common import RunOptions, answer, answer_prose, layout, note, run_options, subcommand
from frontier.core.model.decisions import Verdict
from frontier.core.model.errors import ExitCode, MeasurementError
from frontier.core.model.groups import by_key
from frontier.core.model.loads import Load
from frontier.core.model.metrics import metric
from frontier.core.model.points import Point
from frontier.core.model.trials import Record
from frontier.core.model.units import count, format_number, format_seconds, format_share
from frontier.show.verbosity import Detail
from frontier.show.view.wording import flag_kind, told

if TYPE_CHECKING:
    from frontier.client.ask.preflight import Preflight
    from frontier.run import Run

SIMULATOR = "simulator"
USERS: tuple[int, ...] = (1, 4, 16, 64)
READY_WAIT = 5.0
"""Seconds to wait for a server that was lost."""
SECONDS = 11
"""Seconds per setting: all settings and the overhead then take about a minute."""
REQUESTS, MOST_SECONDS = 4, 90
"""Where REQUESTS requests, one after another, take longer than SECONDS, each setting takes that
long, up to MOST_SECONDS."""
OUTPUT = 64
"""Mean output tokens of a request."""
CHAT = "chat"
"""The preset of the SLA that users are to fit."""

_SWEEP = "frontier init {} > sweep.yaml && frontier sweep sweep.yaml"

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
sla: {chat}
"""


@subcommand("quick")
@click.argument("url", required=False)
@click.option("--model", help="The model to ask for; default: the one the server lists.")
@click.option("--api-key-env", metavar="NAME", help="The environment variable that holds the key.")
@run_options("detail", "as_json")
def command(options: RunOptions, url: str | None, model: str | None, api_key_env: str | None) -> int:
    """How fast is the server at URL for one user, and how many users fit a chat? Takes about a
    minute.

    Without URL the usual ports of this machine are tried; without --model the loaded one is taken;
    `simulator` is the embedded engine. Nothing is kept.

    \b
    Examples:
      frontier quick
      frontier quick http://localhost:8000/v1
    """
    from frontier.cli.given_server import find_server
    from frontier.show.tables import points_table
    from frontier.show.view.json_out import tree_of
    from frontier.show.view.series_view import series_views

    address, each = url or find_server(), SECONDS
    if address != SIMULATOR:
        server = look(address, model, api_key_env)
        model, each = server.target.model, seconds_for(server.probe)
        if model is not None and not model.isprintable():
            what = f"its model's name holds characters that cannot be written: {server.target.cleaned(model)}"
            raise MeasurementError(what, f"sweep it:  {_SWEEP.format(address)}")
    users, duration = USERS, "about a minute: a few"
    if each != SECONDS:  # on a slow server the most users would take the longest, and say the least
        users, duration = USERS[:-1], f"it is slow: {each} or more"
    text = config_text(address, model, api_key_env, users, each)
    note(f"{duration} seconds each with " + ", ".join(map(str, users)) + " users")
    with tempfile.TemporaryDirectory(prefix="frontier-quick-") as here:
        run = _measure(text, Path(here) / "run", quiet=options.detail is Detail.ANSWER)
    if run is None:
        return ExitCode.INTERRUPTED
    points = run.points()
    findings = findings_of(points)
    if findings is None:
        flags = dict.fromkeys(flag_kind(flag.name) for p in points for flag in told(p.fatal))
        raise MeasurementError(
            f"nothing measured in this minute can be relied on: {', '.join(flags) or 'no request succeeded'}",
            f"look closer with  frontier probe {address}",
        )
    if options.as_json:
        answer({"schema": "frontier.quick/1", "url": address, **tree_of(findings)})
    else:
        of_server = {int(t.load): window.server[0] for history in run.histories.values() for t, window in history}
        answer_prose("\n".join(sentences(findings, address, of_server, options.detail)))
    if options.detail is Detail.ALL:
        answer("\n" + points_table(series_views(points, run.frontiers(points), run.limits()), below=True, **layout()))
    return ExitCode.YES


def look(address: str, model: str | None, api_key_env: str | None) -> "Preflight":
    """The server as preflight finds it, with the model that is named or the one that it has loaded.
    MeasurementError as of preflight.
    """
    from frontier.cli.given_server import read_key
    from frontier.client.ask.preflight import preflight
    from frontier.client.ask.target import Target
    from frontier.client.http.http_client import run

    target = Target(address, model=model, api_key=read_key(api_key_env))
    try:
        server = run(preflight(target, pick=True))
    except MeasurementError as error:
        raise MeasurementError(target.secrets.redact(error.what), error.hint) from None
    note(f"model   {target.cleaned(server.target.model or '')} on {server.identity}")
    return server


def seconds_for(probe: "Record") -> int:
    """Seconds for each setting, by one short request: time for a few requests of the minute's own,
    one after another. The request's time per token counts, as the first token of a cold server says
    nothing.
    """
    if probe.first is None or probe.last is None or not probe.completion_tokens or probe.completion_tokens < 2:
        return SECONDS
    e2e = OUTPUT * (probe.last - probe.first) / (probe.completion_tokens - 1)
    return max(SECONDS, min(MOST_SECONDS, round(REQUESTS * e2e)))


def config_text(
    address: str, model: str | None, api_key_env: str | None, users: Sequence[int] = USERS, each: int = SECONDS
) -> str:
    """The config of the minute, with `each` seconds for a setting. Names are written as JSON
    strings, which are YAML too.
    """
    given = {"model": model, "api_key_env": api_key_env}
    more = "".join(f"{key}: {json.dumps(value)}\n" for key, value in given.items() if value)
    patience = 60 + 4 * (each - SECONDS)
    return CONFIG.format(
        endpoint=json.dumps(address), more=more, users=list(users), seconds=each, patience=patience, chat=CHAT
    )


def _measure(text: str, path: Path, *, quiet: bool = False) -> "Run | None":
    """The run of a config, swept into `path`; None when it was interrupted."""
    from frontier.cli.measuring import measure
    from frontier.config import load_config
    from frontier.config.config_file import open_run
    from frontier.planning.plan import make_plan
    from frontier.read_run import load

    config = load_config(text, "quick")
    with open_run(path, config, text, {}) as directory:
        end = measure(config, make_plan(config), directory, ready_wait=READY_WAIT, quiet=quiet, announces=False)
    return None if end == "interrupted" else load(path)


@dataclass(frozen=True, slots=True)
class Findings:
    """What a minute shows, in SI units.

    - `users`: the fewest users that could be measured, with their median TTFT and speed.
    - `fit`: the most users that fit a chat; None: none do.
    - `binding`: the metric that is over its limit with more users; None: none was, up to `highest`.
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
    invalid: Mapping[Load, tuple[str, ...]]


def findings_of(points: "Sequence[Point]") -> Findings | None:
    """The findings of a run's points, decided as `solve --point-estimates` does, since a minute
    gives no bounds. None when no valid point says anything about one user.
    """
    from frontier.config import parse_sla
    from frontier.core.claim.solver import solve

    points = sorted(points, key=lambda p: p.load)
    valid = [p for p in points if p.valid and {"p50_ttft", "p50_tpot", "output_throughput"} <= p.metrics.keys()]
    if not valid:
        return None
    decision = solve(valid, parse_sla(CHAT), point_estimates=True)
    violated = next((j.per_metric for j in decision.judgements if j.load == decision.first_fail), {})
    best = max(valid, key=lambda p: p.metrics["output_throughput"].value)
    return Findings(
        users=valid[0].load,
        ttft=valid[0].metrics["p50_ttft"].value,
        tok_s_user=1 / valid[0].metrics["p50_tpot"].value,
        fit=decision.last_pass,
        highest=valid[-1].load,
        binding=next((name for name, verdict in violated.items() if verdict is Verdict.VIOLATES), None),
        best_throughput=best.metrics["output_throughput"].value,
        best_at=best.load,
        requests={p.load: p.n for p in points},
        invalid={p.load: tuple(f.name for f in p.fatal) for p in points if not p.valid},
    )


def sentences(
    findings: Findings,
    address: str,
    server: "Mapping[int, Mapping[str, float]] | None" = None,
    detail: Detail = Detail.USUAL,
) -> list[str]:
    """The findings in plain words, with what they do not prove. `server`: its own metrics by number
    of users.
    """
    who = "One user" if findings.users == 1 else f"Each of {findings.users:,} users"
    few = dict.fromkeys(f"{number:,}" for number in (min(findings.requests.values()), max(findings.requests.values())))
    ttft, speed = format_seconds(findings.ttft), format_number(findings.tok_s_user)
    throughput, highest = format_number(findings.best_throughput), count(findings.highest, "user")
    answers = [
        f"{who} waits {ttft} for the first token and then reads {speed} tokens a second.",
        _chat(findings),
        f"The highest output throughput was {throughput} tokens a second, with {count(findings.best_at, 'user')}.",
    ]
    more = [
        *server_shortages(server or {}),
        *_not_counted(findings),
        f"About 256 tokens in, 64 out, {' to '.join(few)} requests per setting, up to {highest}.",
        "A minute cannot bound a p99, and says nothing about your lengths or an hour of load. A sweep proves it:",
        f"  {_SWEEP.format(address)}",
    ]
    return detail.of(answers, more)


def server_shortages(server: "Mapping[int, Mapping[str, float]]") -> list[str]:
    """What was short at the most users by the server's own metrics; empty where they show no
    shortage.
    """
    most = max(server, default=0)
    metrics = server.get(most, {})
    short = []
    if (waiting := metrics.get("num_requests_waiting", 0.0)) >= 1:
        short.append(f"{format_number(waiting)} requests waiting on average")
    if (full := metrics.get("kv_cache_usage_perc_max", 0.0)) >= 0.9:
        short.append(f"its KV cache {format_share(full)} full")
    if preempted := metrics.get("num_preemptions_total", 0.0):
        short.append(f"{preempted:,.0f} requests preempted")
    return [f"With {most:,} users the server had {' and '.join(short)}."] if short else []


def _chat(findings: Findings) -> str:
    from frontier.config import parse_sla
    from frontier.show.view.wording import limits_text

    chat = limits_text(parse_sla(CHAT))
    if findings.fit is None:
        return f"Not even {count(findings.users, 'user')} {'fits' if findings.users == 1 else 'fit'} a chat ({chat})."
    users, fit = count(findings.fit, "user"), "fits" if findings.fit == 1 else "at once fit"
    if findings.binding is not None:
        name = metric(findings.binding).label
        return f"About {users} {fit} a chat ({chat}); with more, {name} exceeds its limit first."
    if any(c > findings.fit for c in findings.invalid):
        return f"{users} {fit} a chat ({chat}); nothing can be said about more."
    return f"{users} {fit} a chat ({chat}), the most that were tried."


def _not_counted(findings: Findings) -> list[str]:
    """The measured settings that cannot be relied on, grouped by their reason."""
    by_reason = by_key((why, c) for c, why in findings.invalid.items())
    hints = {
        "client_bound": ": this machine was too busy to measure them.",
        "no_requests": ": no request was sent and answered in the time they had.",
    }
    return [
        f"Not counted: {', '.join(map(str, counts))} users" + hints.get(why[0], f": {', '.join(map(flag_kind, why))}.")
        for why, counts in by_reason.items()
    ]
