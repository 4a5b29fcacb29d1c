"""inference-perf: stage_N_lifecycle_metrics.json, one operating point each; usually an open loop at a rate."""

from frontier.formats.documents import Document, Node
from frontier.formats.figures import agreed, statistics
from frontier.formats.found import Found, Result, identity_flags, in_flight, open_loop_notes, rate_flags

_LATENCIES = {
    "ttft": "time_to_first_token",
    "tpot": "time_per_output_token",
    "itl": "inter_token_latency",
    "e2e": "request_latency",
}
DIFFERENT = (
    "throughput is successes over the stage, drain included; percentiles are interpolated and of the successes",
    (
        "tokens are counted by the client unless it was told otherwise, and old versions stamped events that hold "
        "none: a point whose E2E is not TTFT + (tokens - 1) x TPOT is flagged"
    ),
)


def claims(document: Document) -> bool:
    """Looks like a stage's or a summary's metrics."""
    return document.kind == "json" and {"load_summary", "successes", "failures"} <= document.top.tree.keys()


def read(document: Document) -> Found:
    """The point of the file."""
    top = document.top
    load, of = top.at("load_summary"), top.at("successes")
    ok = of.count("count")
    if ok is None:
        raise top.wrong("successes.count is missing", "see whether the stage ended")
    failed = top.at("failures").count("count")
    latency = of.at("latency")
    figures = agreed(top, [s for q, name in _LATENCIES.items() for s in statistics(latency.at(name), q, 1.0)])
    rates = {
        "output_throughput": "output_tokens_per_sec",
        "input_throughput": "input_tokens_per_sec",
        "total_throughput": "total_tokens_per_sec",
        "request_throughput": "requests_per_sec",
    }
    figures |= {ours: v for ours, name in rates.items() if (v := of.at("throughput").number(name)) is not None}
    tokens, prompt = _mean(of, "output_tokens", "output_len"), _mean(of, "prompt_tokens", "prompt_len")
    concurrency = load.count("concurrency")
    rate = None if concurrency else load.number("requested_rate")
    notes: tuple[str, ...] = ()
    if not concurrency:
        concurrency = in_flight(figures.get("request_throughput"), figures.get("mean_e2e"))
        notes = open_loop_notes(rate)
    if concurrency is None:
        raise top.wrong("neither the concurrency nor the mean number in flight is known", "leave the stage out")
    flags = (*identity_flags(figures, tokens), *rate_flags(rate, load.number("achieved_rate")))
    result = Result(
        concurrency, figures, ok, failed, prompt, osl=tokens, tokens=tokens, rate=rate, flags=flags, notes=notes
    )
    return Found(document.file, "inference-perf", (result,), notes=DIFFERENT)


def _mean(of: Node, new: str, old: str) -> float | None:
    return of.at(new, "total").number("mean") or of.at(new).number("mean") or of.at(old).number("mean")
