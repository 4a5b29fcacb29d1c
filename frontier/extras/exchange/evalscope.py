"""EvalScope's benchmark_summary.json: one operating point, in seconds, with means only.

Its keys name their units. The percentiles stand in another file, without the load.
"""

from frontier.extras.exchange.results import ImportedFile, Load, Result, open_loop, rates
from frontier.store.documents import Document

_MEANS = {
    "mean_ttft": "Average time to first token (s)",
    "mean_tpot": "Average time per output token (s)",
    "mean_itl": "Average inter-token latency (s)",
    "mean_e2e": "Average latency (s)",
}
_RATES = {
    "output_throughput": "Output token throughput (tok/s)",
    "total_throughput": "Total token throughput (tok/s)",
    "request_throughput": "Request throughput (req/s)",
}
NOTES = ("its summary has means only; throughput is over the whole run, ramp and drain included",)


def detect(document: Document) -> bool:
    """Whether it looks like its summary."""
    return document.kind == "json" and {"Number of concurrency", "Succeed requests"} <= document.top.tree.keys()


def read(document: Document) -> ImportedFile:
    """The point of the file. A concurrency of -1 is an open loop, a rate of -1 is none."""
    top = document.top
    figures = rates(top, _RATES) | rates(top, _MEANS)
    concurrency, rate = top.count("Number of concurrency"), top.number("Request rate (req/s)")
    load = Load(concurrency) if concurrency else open_loop(top, figures, rate, "run it with --parallel")
    lengths = tuple(top.number(f"Average {side} tokens per request") for side in ("input", "output"))
    result = Result(
        load.concurrency,
        figures,
        top.count("Succeed requests") or 0,
        top.count("Failed requests"),
        came=(lengths[0], lengths[1]),
        rate=load.rate,
        notes=load.notes,
    )
    return ImportedFile(document.file, "EvalScope", (result,), NOTES)
