"""inference-perf: stage_N_lifecycle_metrics.json, one operating point each, usually an open loop at
a rate; and per_request_lifecycle_metrics.json, the requests of all stages.
"""

from itertools import pairwise

from frontier.core.model.trials import Outcome, Record
from frontier.extras.exchange.column_heads import UNIT_SUFFIXES
from frontier.extras.exchange.results import (
    ImportedFile,
    Result,
    StatedLoad,
    microseconds,
    open_loop,
    rate_flags,
    rates,
    statistics,
    successes,
)
from frontier.store.documents import INCOMPLETE, Document, Node

_LATENCIES = {
    "ttft": "time_to_first_token",
    "tpot": "time_per_output_token",
    "itl": "inter_token_latency",
    "e2e": "request_latency",
}
_RATES = {
    "output_throughput": "output_tokens_per_sec",
    "input_throughput": "input_tokens_per_sec",
    "total_throughput": "total_tokens_per_sec",
    "request_throughput": "requests_per_sec",
}
_REQUEST = {"start_time", "end_time", "info", "error"}
"""Keys of a request."""
NOTES = (
    "throughput is successes over the stage, drain included; percentiles are interpolated and of the successes",
    "a stage does not say whether its arrivals were even or at random: at random, as users are, waits are longer",
    (
        "tokens are counted by the client unless it was told otherwise, and old versions stamped events that hold "
        "none: a point whose E2E is not TTFT + (tokens - 1) x TPOT is flagged"
    ),
)


def detect(document: Document) -> bool:
    """Whether it looks like the metrics of a stage or a summary, or like requests."""
    keys = document.top.tree.keys()
    return document.kind == "json" and ({"load_summary", "successes", "failures"} <= keys or keys >= _REQUEST)


def read(document: Document) -> ImportedFile:
    """The point of the file, or its requests."""
    top = document.top
    if top.tree.keys() >= _REQUEST:
        return ImportedFile(document.file, "inference-perf requests", (_of_requests(document),), single_stage=True)
    summary, succeeded = top.at("load_summary"), top.at("successes")
    ok = succeeded.count("count")
    if ok is None:
        raise top.error("successes.count is missing", "check that the stage finished")
    figures = rates(succeeded.at("throughput"), _RATES)
    for quantity, name in _LATENCIES.items():
        for suffix, scale in UNIT_SUFFIXES.items():
            figures |= statistics(succeeded.at("latency", f"{name}{suffix}"), quantity, scale)
    concurrency, rate = summary.count("concurrency"), summary.number("requested_rate")
    load = StatedLoad(concurrency) if concurrency else open_loop(top, figures, rate, "leave the stage out")
    came = _mean(succeeded, "prompt_tokens", "prompt_len"), _mean(succeeded, "output_tokens", "output_len")
    result = Result(
        load.concurrency,
        figures,
        ok,
        top.at("failures").count("count"),
        came=came,
        rate=load.rate,
        flags=tuple(rate_flags(load.rate, summary.number("achieved_rate"), ok)),
        notes=load.notes,
    )
    of_stages = not (concurrency or rate)  # the summary of a run states no load
    return ImportedFile(document.file, "inference-perf", (result,), NOTES, again=of_stages)


def _mean(succeeded: Node, new: str, old: str) -> float | None:
    """The mean of a length, wherever a version of the tool keeps it."""
    places = (succeeded.at(new, "total"), succeeded.at(new), succeeded.at(old))
    return next((mean for place in places if (mean := place.number("mean"))), None)


# --- requests


def _of_requests(document: Document) -> Result:
    """The requests without their load, which the file of their stage states."""
    starts = [node.number("start_time") for node in document.objects]
    if any(start is None for start in starts):
        raise document.top.error("a request has no start_time", INCOMPLETE)
    first = min(start for start in starts if start is not None)
    records = [
        _record(i, node, (start or 0.0) - first)
        for i, (node, start) in enumerate(zip(document.objects, starts, strict=True))
    ]
    ok = len(successes(records))
    return Result(0, {}, ok, len(records) - ok, records=records)


def _record(index: int, node: Node, sent: float) -> Record:
    info, begun = node.at("info"), (node.number("start_time") or 0.0) - sent
    answer = info.at("response_metrics")
    usage = answer.at("server_usage")
    prompt = usage.count("prompt_tokens") or info.at("request_metrics", "text").count("input_tokens")
    prompt = prompt or info.count("input_tokens") or None
    tokens = usage.count("completion_tokens") or answer.count("output_tokens")
    end = max(sent, (node.number("end_time") or 0.0) - begun)
    stamps = sorted({time - begun for time in answer.numbers("output_token_times")})  # those of a chunk are alike
    if node.at("error").tree or not tokens or not stamps:
        error = node.at("error").text("error_type", 200) or "no output"
        return Record(index, -1, sent, Outcome.STREAM_ERROR, end, 0, 0, prompt_tokens=prompt, error=error)
    return Record(
        index,
        -1,
        sent,
        Outcome.OK,
        max(end, stamps[-1]),
        0,
        0,
        first=stamps[0],
        last=stamps[-1],
        prompt_tokens=prompt,
        completion_tokens=tokens,
        events=len(stamps),
        reads=len(stamps),
        gaps=microseconds([b - a for a, b in pairwise(stamps)]),
    )
