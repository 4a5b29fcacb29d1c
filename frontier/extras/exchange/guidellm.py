"""GuideLLM's benchmarks.json or .yaml, of each schema: one operating point per item of
`benchmarks`.

Before 0.4 the counts stand beside `metrics`, the strategy in `args` and the model in `worker`.

Its time_per_output_token_ms folds TTFT in and is not read; its inter_token_latency_ms is our TPOT.
"""

import dataclasses
import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from frontier.core.model.loads import POISSON, Arrivals
from frontier.core.model.trials import Outcome, Record
from frontier.extras.exchange.results import (
    LONGEST_NAME,
    NO_LENGTHS,
    ImportedFile,
    Result,
    StatedLoad,
    TokenLengths,
    merged,
    open_loop,
    rate_flags,
    statistics,
)
from frontier.store.documents import Document, Node, foreign_text

_LATENCIES = {
    "ttft": ("time_to_first_token_ms", 1e-3),
    "tpot": ("inter_token_latency_ms", 1e-3),
    "e2e": ("request_latency", 1.0),
}
NO_GAPS = "time_per_output_token_ms includes TTFT and is not imported; gaps between chunks are not kept: no ITL"
NOTES = (
    "inter_token_latency_ms is read as TPOT; its percentiles weigh each request by its tokens",
    NO_GAPS,
    "throughput is successful tokens over the measured time, ramp and drain included unless a warm-up was set",
)


_STRATEGY = "Benchmark | Strategy"
_COLUMNS = {
    "Request Latency | Successful Sec": "request_latency",
    "Time to First Token | Successful ms": "time_to_first_token_ms",
    "Inter Token Latency | Successful ms": "inter_token_latency_ms",
    "Token Metrics | Successful Input Tokens": "prompt_token_count",
    "Token Metrics | Successful Output Tokens": "output_token_count",
    "Server Throughput | Successful Concurrency": "request_concurrency",
}
"""The columns of benchmarks.csv, by the names of benchmarks.json."""
_PERCENTILES = ("min", "p001", "p01", "p05", "p10", "p25", "p75", "p90", "p95", "p99", "max")
"""What a cell of percentiles lists."""


def detect(document: Document) -> bool:
    """Whether it looks like benchmarks.json, or its table."""
    if document.kind == "table":
        return _STRATEGY in document.top.tree
    listed = document.top.items("benchmarks")
    return bool(listed) and "time_to_first_token_ms" in listed[0].at("metrics").tree


def read(document: Document) -> ImportedFile:
    """Every benchmark of the file, with its requests when all of them are in it."""
    if document.kind == "table":
        rows = tuple(_of_row(row, place) for place, row in enumerate(document.objects))
        return ImportedFile(document.file, "GuideLLM table", rows, NOTES, again=True)
    top = document.top
    backend = top.at("config", "spec", "backend")
    model = backend.text("model", LONGEST_NAME) or top.at("args").text("model", LONGEST_NAME)
    asked = _asked(top)
    results = []
    for node in top.items("benchmarks"):
        result = _result(node, model or node.at("worker").text("backend_model", LONGEST_NAME), asked)
        results.append(_with_requests(node, result, top) or result)
    notes = NOTES if any(not r.records for r in results) else (NO_GAPS,)
    return ImportedFile(document.file, "GuideLLM", tuple(results), notes)


def _of_row(row: Node, place: int) -> Result:
    """A row of benchmarks.csv, read as an item of benchmarks.json. The loads of all rows are listed
    in each row's profile.
    """
    metrics: dict[str, Any] = {}
    for columns, name in _COLUMNS.items():
        mean, median, cell = (row.tree.get(f"{columns} | {stat}") for stat in ("Mean", "Median", "Percentiles"))
        listed = _json(cell)
        percentiles = dict(zip(_PERCENTILES, listed if isinstance(listed, list) else (), strict=False))
        metrics[name] = {"successful": {"mean": mean, "percentiles": {**percentiles, "p50": median}}}
    totals = {key.lower(): row.tree.get(f"Request Counts | {key}") for key in ("Successful", "Errored", "Incomplete")}
    if _STRATEGY not in row.tree:
        raise row.error(f"{row.where}: it has no column {_STRATEGY}", "name the benchmarks.csv that GuideLLM wrote")
    written = (_json(row.tree.get(f"Run Info | {key}")) for key in ("Profile", "Backend"))
    profile, backend = (each if isinstance(each, dict) else {} for each in written)
    loads = {key: profile.get(key) for key in ("streams", "rate")}
    load = {key: of[place] for key, of in loads.items() if isinstance(of, list) and place < len(of)}
    tree = {
        "config": {"strategy": {"type_": row.tree[_STRATEGY], **load}},
        "metrics": {**metrics, "request_totals": totals},
        "duration": row.tree.get("Timings | Duration | Sec"),
    }
    return _result(Node(row.file, row.where, tree), Node(row.file, "", backend).text("model", LONGEST_NAME), NO_LENGTHS)


def _json(cell: Any) -> Any:
    """The value of a cell that holds JSON; None where it holds none."""
    with suppress(ValueError):
        return json.loads(str(cell))
    return None


def _asked(top: Node) -> TokenLengths:
    for data in top.at("config", "spec").items("data"):
        isl, osl = data.number("prompt_tokens"), data.number("output_tokens")
        if isl and osl:
            return isl, osl
    return NO_LENGTHS


def _result(node: Node, model: str | None, asked: TokenLengths) -> Result:
    metrics = node.at("metrics")
    ok, failed, sent = _counts(node)
    tokens = metrics.at("output_token_count", "successful").number("mean")
    prompt = metrics.at("prompt_token_count", "successful").number("mean")
    seconds = _seconds(node)
    figures = _latencies(metrics)
    if seconds:
        figures["request_throughput"] = ok / seconds
        lengths = {"output": tokens, "input": prompt}
        if tokens is not None and prompt is not None:
            lengths["total"] = tokens + prompt
        figures |= {f"{side}_throughput": ok * n / seconds for side, n in lengths.items() if n is not None}
    load = _load(node, figures)
    achieved = sent / seconds if seconds else None
    return Result(
        load.concurrency,
        figures,
        ok,
        failed,
        asked,
        (prompt, tokens),
        model=model,
        rate=load.rate,
        arrivals=Arrivals(0.0) if _kind(node) == "constant" else POISSON,
        flags=tuple(rate_flags(load.rate, achieved, sent)),
        notes=load.notes,
        place=node.where,
    )


def _counts(node: Node) -> tuple[int, int | None, int]:
    """The requests that succeeded, that failed, and that were sent, with those under way at the
    end. ForeignFileError where their number is not known, or is 0 beside latencies.
    """
    metrics, state = node.at("metrics"), node.at("scheduler_state")
    places = metrics.at("request_totals"), node.at("request_totals"), node.at("scheduler_metrics", "requests_made")
    totals = next((t for t in places if t.tree), node.at("none"))
    ok = totals.count("successful")
    ok = state.count("successful_requests") if ok is None else ok
    counted = metrics.at("time_to_first_token_ms", "successful").count("count")
    if ok is None or (not ok and counted):
        what = f"{node.where}: {ok or 'no'} successful requests, and latencies of {counted or 'an unknown number'}"
        keys = ", ".join(map(str, list(node.tree)[:8]))
        raise node.error(f"{what} (it has {keys})", "write it with GuideLLM 0.2 or later, whole")
    failed = totals.count("errored")
    return ok, failed, ok + (failed or 0) + (totals.count("incomplete") or 0)


def _latencies(metrics: Node) -> dict[str, float]:
    stated = ((q, scale, metrics.at(name, "successful")) for q, (name, scale) in _LATENCIES.items())
    # The median is replaced: p50 is there too, by another interpolation.
    return merged(
        statistics(each, q, scale) | statistics(each.at("percentiles"), q, scale) for q, scale, each in stated
    )


def _seconds(node: Node) -> float | None:
    """The measured time."""
    scheduled = node.at("scheduler_metrics")
    start, end = scheduled.number("measure_start_time"), scheduled.number("measure_end_time")
    if start is not None and end is not None and end > start:
        return end - start
    return node.number("duration") or None


def _strategy(node: Node) -> Node:
    """How requests were sent, wherever a version of the tool keeps it."""
    places = (node.at(place, "strategy") for place in ("config", "scheduler", "args"))
    return next((found for found in places if found.tree), node.at("none"))


def _kind(node: Node) -> str:
    strategy = _strategy(node)
    return strategy.text("type_") or strategy.text("kind") or ""


def _load(node: Node, figures: Mapping[str, float]) -> StatedLoad:
    strategy, kind = _strategy(node), _kind(node)
    if kind == "synchronous":
        return StatedLoad(1)
    if kind == "concurrent" and (streams := strategy.count("streams")):
        return StatedLoad(streams)
    concurrency = node.at("metrics", "request_concurrency")
    mean = concurrency.at("total").number("mean") or concurrency.at("successful").number("mean")
    return open_loop(node, figures, strategy.number("rate"), "run it with --profile concurrent", mean)


# --- requests


def _with_requests(node: Node, result: Result, top: Node) -> Result | None:
    """The point with its requests, when the file has every one of them (it may hold a sample) with
    its times.
    """
    kept = node.at("requests")
    ok, errored = kept.items("successful"), kept.items("errored")
    if not ok or len(ok) != result.ok or len(errored) != (result.failed or 0):
        return None
    rows = [*((item, True) for item in ok), *((item, False) for item in errored)]
    starts = [start for item, _ in rows if (start := _stamp(item, "start_time")) is not None]
    if len(starts) < len(rows):
        return None
    first = min(starts)
    records = [_record(i, *row, start, first) for i, (row, start) in enumerate(zip(rows, starts, strict=True))]
    command = _command(node, result, top)
    stated = result.rate is not None or _kind(node) != "throughput"
    if not stated:  # the mean of a run with ramp and drain is below what it held
        result = dataclasses.replace(result, concurrency=0, notes=())
    return dataclasses.replace(result, records=records, epoch=first, command=command)


def _command(node: Node, result: Result, top: Node) -> str:
    """The command that sends more of the same, of 0.7 and later or of before."""
    kind = "constant" if _kind(node) == "constant" else "poisson"
    if "spec" in top.at("config").tree:
        isl, osl = result.asked
        sizes = f"kind=synthetic_text,prompt_tokens={isl:g},output_tokens={osl:g}" if isl and osl else "DATA"
        backend = shlex.quote(f"kind=openai_http,target=URL,model={result.model or 'MODEL'}")
        load = f"[--profile kind=concurrent,streams={{concurrency}}][--profile kind={kind},rate={{rate}}]"
        return (
            f"guidellm run --backend {backend} {load} --constraint kind=max_requests,count={{requests}} --data {sizes}"
        )
    listed = top.at("args").tree.get("data")
    data = listed[0] if isinstance(listed, list) and listed else node.at("request_loader").text("data", LONGEST_NAME)
    stated = shlex.quote(foreign_text(data, LONGEST_NAME)) if isinstance(data, str) and data else "DATA"
    load = f"[--profile concurrent --rate {{concurrency}}][--profile {kind} --rate {{rate}}]"
    return f"guidellm benchmark --target URL {load} --max-requests {{requests}} --data {stated}"


def _stamp(item: Node, key: str) -> float | None:
    """A time of a request, by its key of now or of before 0.4."""
    now = item.number(f"request_{key}")
    return item.number(key) if now is None else now


def _record(index: int, item: Node, succeeded: bool, start: float, first: float) -> Record:
    timings = item.at("info", "timings")
    sent = start - first
    due = timings.number("targeted_start") or item.at("scheduler_info").number("targeted_start_time")
    scheduled = None if due is None else min(sent, due - first)
    ttft = item.number("time_to_first_token_ms")
    tokens, prompt = item.count("output_tokens"), item.count("prompt_tokens")
    ended = _stamp(item, "end_time")
    end = sent if ended is None else max(sent, ended - first)
    if not succeeded or ttft is None or not tokens:
        error = item.text("error", 200) or item.at("info").text("error", 200) or "failed"
        return Record(
            index, -1, sent, Outcome.STREAM_ERROR, end, 0, 0, prompt_tokens=prompt, error=error, scheduled=scheduled
        )
    first_token = sent + ttft * 1e-3
    iteration = timings.number("last_token_iteration") or item.number("last_token_time")
    last_token = end if iteration is None else iteration - first
    events = max(1, timings.count("token_iterations") or (1 if timings.tree else tokens))  # not kept before 0.4
    return Record(
        index,
        -1,
        sent,
        Outcome.OK,
        max(end, last_token),
        0,
        0,
        first=first_token,
        last=max(first_token, last_token),
        prompt_tokens=prompt,
        completion_tokens=tokens,
        events=events,
        reads=events,
        scheduled=scheduled,
    )
