"""llm-d's Benchmark Report, versions 0.1 and 0.2: one YAML document per operating point.

The format has one `time_per_output_token`, which tools define differently. Here it is (E2E - TTFT)
/ (tokens - 1), as for every tool but GuideLLM.
"""

from frontier.extras.exchange.results import (
    LONGEST_NAME,
    ImportedFile,
    Result,
    figure,
    stated_load,
    statistics,
    unit_scale,
)
from frontier.store.documents import Document, Node

_LATENCIES = {
    "ttft": "time_to_first_token",
    "tpot": "time_per_output_token",
    "itl": "inter_token_latency",
    "e2e": "request_latency",
}
_RATES = {
    "input_throughput": "input_token_rate",
    "output_throughput": "output_token_rate",
    "total_throughput": "total_token_rate",
    "request_throughput": "request_rate",
}
_RATES_0_1 = {
    "output_throughput": "output_tokens_per_sec",
    "total_throughput": "total_tokens_per_sec",
    "request_throughput": "requests_per_sec",
}
NOTES = (
    "the tool that made the load decides what its figures mean: standardized.tool names it",
    "GuideLLM's time_per_output_token includes TTFT and is not imported; its inter_token_latency is our TPOT",
)


def detect(document: Document) -> bool:
    """Whether it looks like a report of version 0.1 or 0.2."""
    return document.kind in ("yaml", "json") and _is_report(document.objects[0])


def read(document: Document) -> ImportedFile:
    """Every report of the file."""
    results = []
    for node in document.objects:
        if not _is_report(node):
            what = f"{node.where}: no Benchmark Report of version 0.1 or 0.2"
            raise node.error(what, "export it as version 0.2 or 0.2.1")
        results.append(_of_0_1(node) if "metrics" in node.tree else _result(node))
    return ImportedFile(document.file, "llm-d report", tuple(results), NOTES)


def _is_report(node: Node) -> bool:
    version = node.text("version") or ""
    if "request_performance" in node.at("results").tree:
        return version.startswith("0.2")
    return version.startswith("0.1") and {"requests", "latency"} <= node.at("metrics").tree.keys()


def _result(node: Node) -> Result:
    aggregate = node.at("results", "request_performance", "aggregate")
    asked = node.at("scenario", "load", "standardized")
    figures = _figures(aggregate, guidellm=(asked.text("tool") or "").lower() == "guidellm")
    requests = aggregate.at("requests")
    sent, failed = requests.count("total") or 0, requests.count("failures")
    rate, concurrency = asked.number("rate_qps"), asked.count("concurrency")
    load = stated_load(node, figures, rate, concurrency, "leave the report out")
    stack = node.at("scenario").items("stack")
    return Result(
        load.concurrency,
        figures,
        max(0, sent - (failed or 0)),
        failed,
        (asked.at("input_seq_len").number("value"), asked.at("output_seq_len").number("value")),
        (requests.at("input_length").number("mean"), requests.at("output_length").number("mean")),
        node.at("scenario", "load", "native", "config").text("deployment", LONGEST_NAME),
        next((name for part in stack if (name := part.at("standardized", "model").text("name", LONGEST_NAME))), None),
        rate=load.rate,
        notes=load.notes,
        place=node.where,
    )


def _of_0_1(node: Node) -> Result:
    """The result of a report of version 0.1, which states no load that all tools have."""
    metrics, scenario = node.at("metrics"), node.at("scenario")
    tool = (scenario.at("load").text("name") or "").lower()
    figures = _figures(metrics, guidellm=tool == "guidellm")
    for ours, name in _RATES_0_1.items():
        figures |= figure(metrics.at("throughput"), name, ours)
    requests, args = metrics.at("requests"), scenario.at("load", "args")
    sent, failed = requests.count("total") or 0, requests.count("failures")
    concurrency = args.count("max_concurrency") or args.count("concurrency")
    rate = args.number("qps_values") or args.number("request_rate")
    load = stated_load(node, figures, rate, concurrency, "leave the report out")
    return Result(
        load.concurrency,
        figures,
        max(0, sent - (failed or 0)),
        failed,
        came=(requests.at("input_length").number("mean"), requests.at("output_length").number("mean")),
        rate=load.rate,
        model=scenario.at("model").text("name", LONGEST_NAME),
        notes=load.notes,
        place=node.where,
    )


def _figures(aggregate: Node, *, guidellm: bool) -> dict[str, float]:
    figures: dict[str, float] = {}
    for quantity, name in _LATENCIES.items():
        if guidellm and quantity == "itl":
            continue
        latency = aggregate.at("latency", "inter_token_latency" if guidellm and quantity == "tpot" else name)
        if not latency.tree:
            continue
        figures |= statistics(latency, quantity, unit_scale(latency, f"mean_{quantity}", "units"))
    for ours, name in _RATES.items():
        rate = aggregate.at("throughput", name)
        figures |= figure(rate, "mean", ours, unit_scale(rate, ours, "units"))
    return figures
