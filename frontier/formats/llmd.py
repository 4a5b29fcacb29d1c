"""llm-d's Benchmark Report, version 0.2: one YAML document per operating point, written and read.

The format has one `time_per_output_token`, by which tools mean different things. Here it is (E2E -
TTFT) / (tokens - 1), as written by us and as read of every tool but GuideLLM.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import yaml

from frontier.formats.documents import Document, Node
from frontier.formats.results import LONGEST_NAME, ImportedFile, Load, Result, figure, open_loop, rate_flags, statistics
from frontier.model import Lengths, Point, file_label, load_columns

VERSION = "0.2"
_LATENCIES = {
    "ttft": ("time_to_first_token", "s"),
    "tpot": ("time_per_output_token", "s/token"),
    "itl": ("inter_token_latency", "s/token"),
    "e2e": ("request_latency", "s"),
}
_RATES = {
    "input_throughput": ("input_token_rate", "tokens/s"),
    "output_throughput": ("output_token_rate", "tokens/s"),
    "total_throughput": ("total_token_rate", "tokens/s"),
    "request_throughput": ("request_rate", "queries/s"),
}
_STATISTICS = {"mean": "mean", "p50": "p50", "p75": "p75", "p90": "p90", "p95": "p95", "p99": "p99", "p99.9": "p99p9"}
_SCALES = {"s": 1.0, "ms": 1e-3, "s/token": 1.0, "ms/token": 1e-3}
NOTES = (
    "the tool that made the load decides what its figures mean: standardized.tool names it",
    "GuideLLM's time_per_output_token includes TTFT and is not imported; its inter_token_latency is our TPOT",
)


# --- writing


def report(p: Point, run: str, tool_version: str, model: str | None) -> tuple[str, dict[str, Any]]:
    """The file name and the report of a point. `run` is common to all points of a run.

    Latencies need a mean in this format: a quantity without one is left out. Infinite figures
    (failures) are `.inf`.
    """
    load = load_columns(p.concurrency)
    at = f"rate{load['rate']:g}" if "rate" in load else f"c{p.concurrency:04d}"
    name = f"{file_label(p.deployment)}-{p.shape.file_label}-{at}"
    description = [f"deployment {p.deployment}"] + ([f"model {model}"] if model else [])
    description += [f"not valid: {', '.join(flag.name for flag in p.fatal)}"] if not p.valid else []
    return f"{name}.yaml", {
        "version": VERSION,
        "run": {
            "uid": hashlib.sha256(f"{run} {name}".encode()).hexdigest()[:32],
            "eid": run,
            "description": "; ".join(description),
            "keywords": ["frontier", p.deployment, p.shape.label],
        },
        "scenario": {
            "load": {
                "metadata": {"schema_version": "0.0.1"},
                "standardized": {
                    "tool": "frontier",
                    "tool_version": tool_version,
                    "parallelism": 1,
                    "source": "unknown",
                    "stage": 0,
                    "input_seq_len": _length(p.shape.isl),
                    "output_seq_len": _length(p.shape.osl),
                    **({"rate_qps": load["rate"]} if "rate" in load else load),
                },
                "native": {"config": {"deployment": p.deployment, "flags": [flag.name for flag in p.flags]}},
            }
        },
        "results": {"request_performance": {"aggregate": _aggregate(p)}},
    }


def _aggregate(p: Point) -> dict[str, Any]:
    """The figures of a point."""
    requests: dict[str, Any] = {"total": p.n}
    if (share := p.metrics.get("error_rate")) is not None:
        requests["failures"] = round(share.value * p.n)
    rates = {
        theirs: {"units": unit, "mean": p.metrics[ours].value}
        for ours, (theirs, unit) in _RATES.items()
        if ours in p.metrics
    }
    latencies = {}
    for quantity, (name, unit) in _LATENCIES.items():
        values = {
            theirs: e.value
            for ours, theirs in _STATISTICS.items()
            if (e := p.metrics.get(f"{ours}_{quantity}")) is not None and not math.isnan(e.value)
        }
        if "mean" in values:
            latencies[name] = {"units": unit, **values}
    return {"requests": requests, "latency": latencies, "throughput": rates}


def _length(lengths: Lengths) -> dict[str, Any]:
    """A distribution of lengths, as the format has it."""
    if lengths.kind == "fixed":
        return {"distribution": "fixed", "value": lengths.low}
    span = {"min": lengths.low, "max": lengths.high}
    if lengths.kind == "uniform":
        return {"distribution": "uniform", "value": lengths.mean, **span}
    return {"distribution": "gaussian", "value": lengths.mean, "std_dev": lengths.sd, **span}


def yaml_text(reports: Sequence[dict[str, Any]]) -> str:
    """The reports as YAML, a document each."""
    return yaml.safe_dump_all(reports, sort_keys=False, allow_unicode=True, width=120, explicit_start=len(reports) > 1)


# --- reading


def detect(document: Document) -> bool:
    """Whether it looks like a report of version 0.2."""
    return document.kind in ("yaml", "json") and _is_report(document.objects[0])


def read(document: Document) -> ImportedFile:
    """Every report of the file."""
    results = []
    for node in document.objects:
        if not _is_report(node):
            raise node.error(f"{node.where}: no Benchmark Report of version 0.2", "export it as version 0.2 or 0.2.1")
        results.append(_result(node))
    return ImportedFile(document.file, "llm-d report", tuple(results), NOTES)


def _is_report(node: Node) -> bool:
    return "request_performance" in node.at("results").tree and (node.text("version") or "").startswith("0.2")


def _result(node: Node) -> Result:
    aggregate = node.at("results", "request_performance", "aggregate")
    asked = node.at("scenario", "load", "standardized")
    figures = _figures(aggregate, guidellm=(asked.text("tool") or "").lower() == "guidellm")
    requests = aggregate.at("requests")
    sent, failed = requests.count("total") or 0, requests.count("failures")
    rate, concurrency = asked.number("rate_qps"), asked.count("concurrency")
    load = Load(concurrency, rate) if concurrency else open_loop(node, figures, rate, "leave the report out")
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
        rate=rate,
        notes=load.notes,
        place=node.where,
        flags=tuple(rate_flags(rate, figures.get("request_throughput"))),
    )


def _figures(aggregate: Node, *, guidellm: bool) -> dict[str, float]:
    figures: dict[str, float] = {}
    for quantity, (name, _) in _LATENCIES.items():
        if guidellm and quantity == "itl":
            continue
        latency = aggregate.at("latency", "inter_token_latency" if guidellm and quantity == "tpot" else name)
        if not latency.tree:
            continue
        unit = latency.text("units") or ""
        if unit not in _SCALES:
            raise latency.error(f"{latency.where} is in {unit!r}", "s, ms, s/token and ms/token are known")
        figures |= statistics(latency, quantity, _SCALES[unit])
    for ours, (name, _) in _RATES.items():
        figures |= figure(aggregate.at("throughput", name), "mean", ours)
    return figures
