"""genai-bench: one JSON per operating point, with aggregates and the requests' figures but not
their times."""

import re

from frontier.formats.documents import INCOMPLETE, Document, Node
from frontier.formats.results import ImportedFile, Result
from frontier.formats.statements import agreed, statements, statistics

_LATENCIES = {"ttft": "ttft", "tpot": "tpot", "e2e": "e2e_latency"}
_RATES = (
    ("output_throughput", "mean_output_throughput_tokens_per_s", 1.0),
    ("input_throughput", "mean_input_throughput_tokens_per_s", 1.0),
    ("total_throughput", "mean_total_tokens_throughput_tokens_per_s", 1.0),
    ("request_throughput", "requests_per_second", 1.0),
    ("request_throughput", "requests_per_minute", 1 / 60),
)
NOTES = (
    "throughput counts the tokens of completed requests over the configured time of the run",
    "percentiles are interpolated and of the requests that succeeded; requests have no time stamps, so no window",
)


def detect(document: Document) -> bool:
    """Whether it looks like one of its results."""
    return document.kind == "json" and "num_concurrency" in document.top.at("aggregated_metrics").tree


def is_metadata(document: Document) -> bool:
    """Whether it is its experiment_metadata.json, which holds no result."""
    return document.kind == "json" and {"benchmark_version", "traffic_scenario"} <= document.top.tree.keys()


def read(document: Document) -> ImportedFile:
    """The point of the file."""
    top = document.top
    unit = top.text("_time_unit") or "s"
    if unit not in ("s", "ms"):
        raise top.error(f"_time_unit is {unit!r}", "s and ms are known")
    metrics, scale = top.at("aggregated_metrics"), 1.0 if unit == "s" else 1e-3
    concurrency = metrics.count("num_concurrency")
    if not concurrency:
        raise top.error("aggregated_metrics.num_concurrency is missing", INCOMPLETE)
    stated = [s for q, name in _LATENCIES.items() for s in statistics(metrics.at("stats", name), q, scale)]
    stated += [s for name, key, factor in _RATES for s in statements(metrics, key, name, factor)]
    figures = agreed(top, stated)
    tokens = metrics.at("stats", "num_output_tokens").number("mean")
    asked = _asked(metrics)
    isl, osl = asked or (metrics.at("stats", "num_input_tokens").number("mean"), tokens)
    result = Result(
        concurrency,
        figures,
        metrics.count("num_completed_requests") or 0,
        metrics.count("num_error_requests"),
        isl,
        osl,
        asked is not None,
        tokens,
    )
    return ImportedFile(document.file, "genai-bench", (result,), NOTES)


def _asked(metrics: Node) -> tuple[float, float] | None:
    """The lengths that deterministic scenarios, 'D(100,100)', name; others name means."""
    match = re.fullmatch(r"D\((\d{1,9}),\s*(\d{1,9})\)", metrics.text("scenario") or "")
    return (float(match[1]), float(match[2])) if match else None
