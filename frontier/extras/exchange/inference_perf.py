"""inference-perf: stage_N_lifecycle_metrics.json, one operating point each; usually an open loop at
a rate."""

from frontier.extras.exchange.results import ImportedFile, Load, Result, open_loop, rate_flags, rates, statistics
from frontier.store.documents import Document, Node

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
NOTES = (
    "throughput is successes over the stage, drain included; percentiles are interpolated and of the successes",
    "a stage does not say whether its arrivals were even or at random: at random, as users are, waits are longer",
    (
        "tokens are counted by the client unless it was told otherwise, and old versions stamped events that hold "
        "none: a point whose E2E is not TTFT + (tokens - 1) x TPOT is flagged"
    ),
)


def detect(document: Document) -> bool:
    """Whether it looks like the metrics of a stage or a summary."""
    return document.kind == "json" and {"load_summary", "successes", "failures"} <= document.top.tree.keys()


def read(document: Document) -> ImportedFile:
    """The point of the file."""
    top = document.top
    summary, successes = top.at("load_summary"), top.at("successes")
    ok = successes.count("count")
    if ok is None:
        raise top.error("successes.count is missing", "check that the stage finished")
    figures = rates(successes.at("throughput"), _RATES)
    for quantity, name in _LATENCIES.items():
        figures |= statistics(successes.at("latency", name), quantity)
    concurrency, rate = summary.count("concurrency"), summary.number("requested_rate")
    load = Load(concurrency) if concurrency else open_loop(top, figures, rate, "leave the stage out")
    came = _mean(successes, "prompt_tokens", "prompt_len"), _mean(successes, "output_tokens", "output_len")
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


def _mean(successes: Node, new: str, old: str) -> float | None:
    """The mean of a length, wherever a version of the tool keeps it."""
    places = (successes.at(new, "total"), successes.at(new), successes.at(old))
    return next((mean for place in places if (mean := place.number("mean"))), None)
