"""genai-bench: one JSON per operating point, with aggregates and the requests' figures but not their times."""

import re

from frontier.formats.documents import Document, Node
from frontier.formats.figures import agreed, statements, statistics
from frontier.formats.found import Found, Result, identity_flags

_LATENCIES = {"ttft": "ttft", "tpot": "tpot", "e2e": "e2e_latency"}
DIFFERENT = (
    "throughput counts the tokens of completed requests over the configured time of the run",
    "percentiles are interpolated and of the requests that succeeded; requests have no time stamps, so no window",
)


def claims(document: Document) -> bool:
    """Looks like one of its results."""
    return document.kind == "json" and "num_concurrency" in document.top.at("aggregated_metrics").tree


def is_companion(document: Document) -> bool:
    """Its experiment_metadata.json: nothing in it is a result."""
    return document.kind == "json" and {"benchmark_version", "traffic_scenario"} <= document.top.tree.keys()


def read(document: Document) -> Found:
    """The point of the file."""
    top = document.top
    unit = top.words("_time_unit") or "s"
    if unit not in ("s", "ms"):
        raise top.wrong(f"_time_unit is {unit!r}", "s and ms are known")
    of = top.at("aggregated_metrics")
    concurrency = of.count("num_concurrency")
    if not concurrency:
        raise top.wrong("aggregated_metrics.num_concurrency is missing", "see whether the file is whole")
    ok, failed = of.count("num_completed_requests") or 0, of.count("num_error_requests")
    scale = 1.0 if unit == "s" else 1e-3
    said = [one for quantity, name in _LATENCIES.items() for one in statistics(of.at("stats", name), quantity, scale)]
    for name, key, share in (
        ("output_throughput", "mean_output_throughput_tokens_per_s", 1.0),
        ("input_throughput", "mean_input_throughput_tokens_per_s", 1.0),
        ("total_throughput", "mean_total_tokens_throughput_tokens_per_s", 1.0),
        ("request_throughput", "requests_per_second", 1.0),
        ("request_throughput", "requests_per_minute", 1 / 60),
    ):
        said += statements(of, key, name, share)
    figures = agreed(top, said)
    tokens = of.at("stats", "num_output_tokens").number("mean")
    prompt = of.at("stats", "num_input_tokens").number("mean")
    asked = _asked(of)
    isl, osl = asked or (prompt, tokens)
    result = Result(
        concurrency, figures, ok, failed, isl, osl, asked is not None, tokens,
        flags=identity_flags(figures, tokens),
    )  # fmt: skip
    return Found(document.file, "genai-bench", (result,), notes=DIFFERENT)


def _asked(of: Node) -> tuple[float, float] | None:
    """Deterministic scenarios, 'D(100,100)', name their lengths; others are means."""
    found = re.fullmatch(r"D\((\d{1,9}),\s*(\d{1,9})\)", of.words("scenario") or "")
    return (float(found[1]), float(found[2])) if found else None
