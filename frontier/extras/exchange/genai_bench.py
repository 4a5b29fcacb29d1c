"""genai-bench: one JSON per operating point, with aggregates and the requests' figures but no
times.
"""

import re

from frontier.extras.exchange.results import NO_LENGTHS, ImportedFile, Result, TokenLengths, figure, merged, statistics
from frontier.store.documents import INCOMPLETE, Document, Node

_LATENCIES = {"ttft": "ttft", "tpot": "tpot", "e2e": "e2e_latency"}
_RATES = (
    ("output_throughput", "mean_output_throughput_tokens_per_s", 1.0),
    ("input_throughput", "mean_input_throughput_tokens_per_s", 1.0),
    ("total_throughput", "mean_total_tokens_throughput_tokens_per_s", 1.0),
    ("request_throughput", "requests_per_minute", 1 / 60),
    ("request_throughput", "requests_per_second", 1.0),
)
NOTES = (
    "throughput counts the tokens of completed requests over the configured time of the run",
    "percentiles are interpolated and of the requests that succeeded; requests have no time stamps, so no window",
)


def detect(document: Document) -> bool:
    """Whether it looks like one of its results, or like its experiment_metadata.json."""
    aggregated = document.top.at("aggregated_metrics").tree
    return document.kind == "json" and ("num_concurrency" in aggregated or _is_metadata(document.top))


def _is_metadata(top: Node) -> bool:
    return {"benchmark_version", "traffic_scenario"} <= top.tree.keys()


def read(document: Document) -> ImportedFile:
    """The point of the file; none of the metadata."""
    top = document.top
    if _is_metadata(top):
        return ImportedFile(document.file, "genai-bench", notes=("experiment_metadata.json holds no result",))
    unit = top.text("_time_unit") or "s"
    if unit not in ("s", "ms"):
        raise top.error(f"_time_unit is {unit!r}", "s and ms are known")
    metrics, scale = top.at("aggregated_metrics"), 1.0 if unit == "s" else 1e-3
    concurrency = metrics.count("num_concurrency")
    if not concurrency:
        raise top.error("aggregated_metrics.num_concurrency is missing", INCOMPLETE)
    latencies = (statistics(metrics.at("stats", name), quantity, scale) for quantity, name in _LATENCIES.items())
    figures = merged((*latencies, *(figure(metrics, key, name, factor) for name, key, factor in _RATES)))
    isl, osl = (metrics.at("stats", f"num_{side}_tokens").number("mean") for side in ("input", "output"))
    ok, failed = metrics.count("num_completed_requests") or 0, metrics.count("num_error_requests")
    result = Result(concurrency, figures, ok, failed, _asked(metrics), (isl, osl))
    return ImportedFile(document.file, "genai-bench", (result,), NOTES)


def _asked(metrics: Node) -> TokenLengths:
    """The lengths that deterministic scenarios, 'D(100,100)', state; other scenarios state
    means.
    """
    match = re.fullmatch(r"D\((\d{1,9}),\s*(\d{1,9})\)", metrics.text("scenario") or "")
    return (float(match[1]), float(match[2])) if match else NO_LENGTHS
