"""`frontier workload`: the config of a service's own traffic."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from frontier.cli import common
from frontier.core.model.errors import ExitCode, UsageError
from frontier.core.model.units import format_elapsed, parse_duration, parse_share

if TYPE_CHECKING:
    from frontier.extras.workload.log_rows import LogRow
    from frontier.extras.workload.observed import Workload


@common.subcommand("workload")
@click.argument("sources", nargs=-1, metavar="[URL...|LOG]")
@click.option("--prometheus", metavar="URL", help="Read the counters of days past from this Prometheus.")
@click.option(
    "--range", "past", default="7d", show_default=True, metavar="TIME", help="How far back Prometheus is asked."
)
@click.option("--match", default="", metavar="LABELS", help="Which series, as 'model_name=\"llama\"'.")
@click.option(
    "--over", default="10min", show_default=True, metavar="TIME", help="How long a server's counters are watched."
)
@click.option(
    "--columns", metavar="WHAT=COLUMN,...", help="Columns of a log, and units: input=tokens_in,latency=took:ms, ..."
)
@click.option("--from", "from_", metavar="TIME", help="The requests of a log from then on, as 2026-11-24T08:00Z.")
@click.option("--to", metavar="TIME", help="The requests of a log before then.")
@click.option("--context", type=click.IntRange(2), metavar="TOKENS", help="The model's context; default: the server's.")
@click.option(
    "--replay", type=click.Path(path_type=Path), metavar="FILE", help="Keep each request of a log, and play them."
)
@click.option(
    "--share", metavar="SHARE", help="The share of the requests that --replay keeps, as 12.5% of eight replicas."
)
@click.option(
    "--sessions", type=click.Path(path_type=Path), metavar="FILE", help="Keep the sessions of a log, and play them."
)
@click.option("--api-key-env", metavar="NAME", help="The environment variable that holds the server's key.")
@click.option("--beside", type=common.RUN_PATH, metavar="RUN", help="Draw and say where production stands in this run.")
@common.run_options("detail", "as_json", more="The same as without it.")
def command(shown: common.RunOptions, sources: tuple[str, ...], beside: Path | None, **options: Any) -> int:
    """Print a config of the traffic that a service has: its lengths, rate, bursts and cache share.

    \b
    It is read from
      the address of a server's metrics  differences of its counters; of several
                                         addresses, as they are replicas
      --prometheus URL                   the same over days, with the busiest hour
      a log with a line per request      JSON lines, CSV, Parquet, OpenTelemetry
                                         spans, vLLM's own log

    Counts, lengths, times and cache shares are read, and no text of a prompt or an answer.

    \b
    Examples:
      frontier workload http://localhost:8000/metrics > sweep.yaml
      frontier workload --prometheus http://prometheus:9090 > sweep.yaml
      frontier workload access.jsonl > sweep.yaml
      frontier workload log.csv --columns input=tokens_in,output=tokens_out
      frontier workload access.jsonl --from 2026-11-24 --to 2026-11-25
      frontier workload trace.jsonl --replay kept.jsonl --share 12.5%
      frontier workload http://localhost:8000/metrics --beside runs/llama
    """
    from frontier.extras.workload.config_text import config_text
    from frontier.show.view.json_out import tree_of

    workload = _read(sources, **options)
    if not workload.joint and beside is None:
        workload = _with_edges(workload)
    for note in workload.notes:
        common.note(f"note: {note}")
    if beside is not None:
        return _beside(workload, beside, shown)
    if shown.as_json:
        common.answer({"schema": "frontier.workload/1", **tree_of(workload), "config": config_text(workload)})
    else:
        common.answer(config_text(workload).rstrip("\n"))
    return ExitCode.YES


def _with_edges(workload: "Workload") -> "Workload":
    """The workload with the range of the edge that counters leave open, and a note on it."""
    from frontier.extras.workload.config_text import today
    from frontier.extras.workload.pairing_edges import edges_said, pairing_edges

    edges = pairing_edges(workload, today(workload))
    if not edges:
        return workload
    workload = dataclasses.replace(workload, edges=edges)
    return dataclasses.replace(workload, notes=(*workload.notes, edges_said(workload)))


def _beside(workload: "Workload", path: Path, shown: common.RunOptions) -> int:
    """Print and draw where production stands beside a run."""
    from frontier.cli.plot import beside_an_answer, picture_files, save_pictures
    from frontier.extras.workload.beside import beside, beside_lines, beside_picture
    from frontier.show.view.selection import check_panels, provenance_of, views_of

    run = common.read_run(path)
    check_panels(run)
    views = views_of(run, run.limits())
    found = [beside(workload, view) for view in views]
    if shown.as_json:
        common.answer({"schema": "frontier.workload-beside/1", "series": [dataclasses.asdict(each) for each in found]})
    for each in () if shown.as_json else found:
        common.answer("\n".join(beside_lines(workload, each, shown.detail)))
    with beside_an_answer():
        picture = beside_picture(workload, views, provenance_of(run))
        if picture is not None:
            save_pictures([picture], picture_files(run, "production"))
    return ExitCode.YES


def _read(sources: Sequence[str], **options: Any) -> "Workload":
    if (options["prometheus"] is None) == (not sources):
        what = "name a server's metrics, a log, or a Prometheus" if not sources else "--prometheus stands alone"
        raise UsageError(what, "as  frontier workload http://localhost:8000/metrics")
    addresses = [source for source in sources if "://" in source]
    logs = [source for source in sources if "://" not in source]
    if addresses and logs:
        raise UsageError("an address and a file are two sources", "name one of them")
    of_logs = ("columns", "from_", "to", "replay", "share", "sessions")
    given = [name.rstrip("_") for name in of_logs if options[name] is not None]
    if given and not logs:
        raise UsageError(f"--{given[0]} is of a log", "name a file with a line per request")
    if options["match"] and sources:
        raise UsageError("--match is of the series of a Prometheus", "name its address, as  --prometheus URL")
    if addresses:
        return _of_counters(addresses, **options)
    if not sources:
        return _of_prometheus(**options)
    if len(logs) > 1:
        raise UsageError("several logs", "join them, as  cat a.jsonl b.jsonl > all.jsonl")
    return _of_log(Path(logs[0]), **options)


def _moment(option: str, text: str | None, unbounded: float) -> float:
    """The time of an option, in the form of a log's times; without the option there is no bound."""
    from frontier.extras.workload.arrival_files import seconds_of

    seconds = unbounded if text is None else seconds_of(text)
    if seconds is None:
        raise UsageError(f"{option}: {text!r} is no time", "write  2026-11-24T08:00Z,  or seconds as the log has them")
    return seconds


def _of_log(path: Path, *, columns: str | None, context: int | None, **options: Any) -> "Workload":
    from frontier.extras.workload.kept_files import ReplayWriter, cut_to, session_lines
    from frontier.extras.workload.log_rows import given_columns, given_units, log_rows
    from frontier.extras.workload.log_summary import rows_between, summary
    from frontier.store.documents import foreign_text
    from frontier.store.files import write_output

    replay, sessions, share = options["replay"], options["sessions"], options["share"]
    if share is not None and replay is None:
        raise UsageError("--share is of the requests that --replay keeps", "add  --replay FILE")
    if replay is not None and sessions is not None:
        raise UsageError("--replay and --sessions are two ways to play a log", "give one of them")
    part = 1.0 if share is None else common.parsed("--share", share, parse_share)
    rows: Iterable[LogRow | None] = log_rows(path, given_columns(columns), given_units(columns))
    begin, end = _moment("--from", options["from_"], -math.inf), _moment("--to", options["to"], math.inf)
    if math.isfinite(begin) or math.isfinite(end):
        rows = rows_between(rows, begin, end)
    name = foreign_text(path.name)
    if replay is not None:
        writer = ReplayWriter(replay, part)
        workload, _ = summary(name, rows, context, lambda row: writer.add(cut_to(row, context)))
        return writer.written(workload)
    workload, kept = summary(name, rows, context)
    lines = session_lines([cut_to(row, context) for row in kept])
    if sessions is not None:
        if not lines:
            raise UsageError(
                "--sessions: no session of the log has a second turn", "leave it out: the requests are single"
            )
        write_output(sessions, b"\n".join(lines) + b"\n")
        return dataclasses.replace(workload, sessions=str(sessions))
    if lines:
        note = f"Its requests are in {len(lines):,} sessions: --sessions FILE keeps them, and plays each as it was."
        return dataclasses.replace(workload, notes=(*workload.notes, note))
    return workload


def _span(text: str) -> float:
    """Seconds of '7d', as Prometheus writes days, or of another duration; ValueError below one."""
    days = text.removesuffix("d")
    seconds = 86_400.0 * int(days) if days.isdecimal() and days != text else parse_duration(text)
    if seconds < 1:
        raise ValueError(f"{text!r} is too short: at least 1s")
    return seconds


def _of_prometheus(
    *, prometheus: str, past: str, match: str, context: int | None, api_key_env: str | None, **_: Any
) -> "Workload":
    from frontier.cli.given_server import read_key
    from frontier.client.http.http_client import run
    from frontier.extras.workload.prometheus_range import watched_in

    seconds = common.parsed("--range", past, _span)
    return run(watched_in(prometheus, seconds, match, read_key(api_key_env), context))


def _of_counters(
    addresses: Sequence[str], *, over: str, context: int | None, api_key_env: str | None, **_: Any
) -> "Workload":
    from frontier.cli.given_server import read_key
    from frontier.client.ask.found_servers import ask_server
    from frontier.client.http.http_client import run
    from frontier.extras.workload.counter_watch import base_of, watch

    key, seconds = read_key(api_key_env), common.parsed("--over", over, _span)
    endpoint = base_of(addresses[0])
    server = run(ask_server(endpoint, key))
    common.note(f"watching the counters of {', '.join(addresses)} for {format_elapsed(seconds)}")
    workload = run(watch(addresses, seconds, key, context or (server.max_model_len if server else None)))
    models = server.models if server is not None else ()
    return dataclasses.replace(workload, endpoint=endpoint, model=workload.model or (models[0] if models else None))
