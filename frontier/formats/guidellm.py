"""GuideLLM's benchmarks.json, of both schemas: one operating point per item of `benchmarks`.

Its time_per_output_token_ms folds TTFT in and is not read; its inter_token_latency_ms is our TPOT.
"""

from frontier.formats.documents import Document, Node
from frontier.formats.figures import agreed, statistics
from frontier.formats.found import Found, Result, Trace, identity_flags, in_flight, open_loop_notes, rate_flags
from frontier.model import Outcome, Record

_LATENCIES = {
    "ttft": ("time_to_first_token_ms", 1e-3),
    "tpot": ("inter_token_latency_ms", 1e-3),
    "e2e": ("request_latency", 1.0),
}
DIFFERENT = (
    "inter_token_latency_ms is read as TPOT; its percentiles weigh each request by its tokens",
    "time_per_output_token_ms includes TTFT and is not taken over; gaps between chunks are not kept: no ITL",
    "throughput is successful tokens over the measured time, ramp and drain included unless a warm-up was set",
)


def claims(document: Document) -> bool:
    """Looks like benchmarks.json."""
    listed = document.top.items("benchmarks")
    return document.kind == "json" and bool(listed) and "metrics" in listed[0].tree and "time_to_first_token_ms" in (
        listed[0].at("metrics").tree
    )  # fmt: skip


def read(document: Document) -> Found:
    """Every benchmark of the file: as a trace when all of its requests are in it, else as a result."""
    top = document.top
    backend = top.at("config", "spec", "backend")
    model = backend.fact("model") or top.at("args").fact("model")
    asked = _asked(top)
    results, traces = [], []
    for node in top.items("benchmarks"):
        result = _result(node, model, asked)
        trace = _trace(node, result)
        traces += [trace] if trace is not None else []
        results += [result] if trace is None else []
    return Found(document.file, "GuideLLM", tuple(results), tuple(traces), DIFFERENT if results else ())


def _asked(top: Node) -> tuple[float, float] | None:
    for data in top.at("config", "spec").items("data"):
        isl, osl = data.number("prompt_tokens"), data.number("output_tokens")
        if isl and osl:
            return isl, osl
    return None


def _result(node: Node, model: str | None, asked: tuple[float, float] | None) -> Result:
    metrics = node.at("metrics")
    totals = metrics.at("request_totals")
    ok = totals.count("successful")
    if ok is None:
        ok = node.at("scheduler_state").count("successful_requests") or 0
    failed = totals.count("errored")
    figures: dict[str, float] = {}
    for quantity, (name, scale) in _LATENCIES.items():
        of = metrics.at(name, "successful")
        figures |= agreed(of, (one for one in statistics(of, quantity, scale) if one.name != f"p50_{quantity}"))
        figures |= {
            f"p{_share(key)}_{quantity}": value * scale
            for key in ("p50", "p75", "p90", "p95", "p99", "p999")
            if (value := of.at("percentiles").number(key))
        }
    seconds = _seconds(node)
    tokens = metrics.at("output_token_count", "successful").number("mean")
    prompt = metrics.at("prompt_token_count", "successful").number("mean")
    if seconds:
        figures["request_throughput"] = ok / seconds
        if tokens is not None:
            figures["output_throughput"] = ok * tokens / seconds
        if prompt is not None:
            figures["input_throughput"] = ok * prompt / seconds
        if tokens is not None and prompt is not None:
            figures["total_throughput"] = ok * (tokens + prompt) / seconds
    concurrency, rate, notes = _load(node, figures)
    isl, osl = asked or (prompt, tokens)
    achieved = (ok + (failed or 0)) / seconds if seconds else None
    return Result(
        concurrency, figures, ok, failed, isl, osl, asked is not None, tokens,
        facts={"model": model} if model else {}, model=model, rate=rate,
        flags=(*identity_flags(figures, tokens), *rate_flags(rate, achieved)), notes=notes,
        place=node.where,
    )  # fmt: skip


def _share(key: str) -> str:
    return "99.9" if key == "p999" else key[1:]


def _seconds(node: Node) -> float | None:
    scheduled = node.at("scheduler_metrics")
    start, end = scheduled.number("measure_start_time"), scheduled.number("measure_end_time")
    if start is not None and end is not None and end > start:
        return end - start
    return node.number("duration") or None


def _load(node: Node, figures: dict[str, float]) -> tuple[int, float | None, tuple[str, ...]]:
    strategy = node.at("config", "strategy")
    if not strategy.tree:
        strategy = node.at("scheduler", "strategy")
    kind = strategy.words("type_") or ""
    if kind == "synchronous":
        return 1, None, ()
    if kind == "concurrent" and (streams := strategy.count("streams")):
        return streams, None, ()
    of = node.at("metrics", "request_concurrency")
    mean = of.at("total").number("mean") or of.at("successful").number("mean")
    known = round(mean) if mean else in_flight(figures.get("request_throughput"), figures.get("mean_e2e"))
    if known is None:
        raise node.wrong(
            f"{node.where}: neither streams nor the mean concurrency is known", "run it with --profile concurrent"
        )
    rate = strategy.number("rate")
    return max(1, known), rate, open_loop_notes(rate)


# --- requests


def _trace(node: Node, result: Result) -> Trace | None:
    """The requests with their times, when every one of them was kept (it may be a sample) and has them."""
    kept = node.at("requests")
    ok, errored = kept.items("successful"), kept.items("errored")
    if not ok or len(ok) != result.ok or len(errored) != (result.failed or 0):
        return None
    rows = [*((item, True) for item in ok), *((item, False) for item in errored)]
    starts = [item.number("request_start_time") for item, _ in rows]
    if any(start is None for start in starts):
        return None
    zero = min(start for start in starts if start is not None)
    records = [
        _record(i, item, (start or zero) - zero, zero, succeeded)
        for i, ((item, succeeded), start) in enumerate(zip(rows, starts, strict=True))
    ]
    return Trace(
        result.concurrency, records, zero, result.isl, result.osl, result.stated, result.facts, result.model,
        rate=result.rate, notes=(*result.notes, "gaps between chunks are not kept: there is no ITL"),
        place=node.where, figures=result.figures,
    )  # fmt: skip


def _record(index: int, item: Node, sent: float, zero: float, succeeded: bool) -> Record:
    timings = item.at("info", "timings")
    ttft = item.number("time_to_first_token_ms")
    tokens, prompt = item.count("output_tokens"), item.count("prompt_tokens")
    ended = item.number("request_end_time")
    end = sent if ended is None else max(sent, ended - zero)
    last = timings.number("last_token_iteration")
    if not succeeded or ttft is None or not tokens:
        said = item.words("error", 200) or item.at("info").words("error", 200)
        return Record(index, -1, sent, Outcome.STREAM_ERROR, end, 0, 0, prompt_tokens=prompt, error=said or "failed")
    first = sent + ttft * 1e-3
    final = end if last is None else last - zero
    events = max(1, timings.count("token_iterations") or 1)
    return Record(
        index, -1, sent, Outcome.OK, max(end, final), 0, 0, first=first, last=max(first, final),
        prompt_tokens=prompt, completion_tokens=tokens, events=events, reads=events,
    )  # fmt: skip
