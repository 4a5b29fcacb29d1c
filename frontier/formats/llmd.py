"""llm-d's Benchmark Report, version 0.2: one YAML document per operating point, written and read.

The format has one `time_per_output_token` for tools that mean different things by it; ours, and what is read here of
other tools than GuideLLM, is (E2E - TTFT) / (tokens - 1).
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from frontier.formats.documents import Document, Node
from frontier.formats.figures import agreed, statistics
from frontier.formats.found import Found, Result, identity_flags, in_flight, open_loop_notes, rate_flags
from frontier.model import Lengths, Point, file_label

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
DIFFERENT = (
    "the tool that made the load decides what its figures mean: standardized.tool names it",
    "GuideLLM's time_per_output_token includes TTFT and is not taken over; its inter_token_latency is our TPOT",
)


# --- writing


def documents(
    points: Sequence[Point],
    *,
    run: str,
    tool_version: str,
    models: Mapping[str, str | None],
) -> list[tuple[str, dict[str, Any]]]:
    """(file name, report) of each point. `run` is common to all, `models` is by deployment.

    Latencies need a mean in this format: a quantity without one is left out. Infinite figures (failures) are `.inf`.
    """
    return [_document(p, run, tool_version, models.get(p.deployment)) for p in points]


def _document(p: Point, run: str, tool_version: str, model: str | None) -> tuple[str, dict[str, Any]]:
    name = f"{file_label(p.deployment)}-{p.shape.file_label}-c{p.concurrency:04d}"
    latency = {theirs: s for q, (theirs, unit) in _LATENCIES.items() if (s := _latency(p, q, unit))}
    throughput = {
        theirs: {"units": unit, "mean": p.metrics[ours].value}
        for ours, (theirs, unit) in _RATES.items() if ours in p.metrics
    }  # fmt: skip
    share = p.metrics.get("error_rate")
    requests: dict[str, Any] = {"total": p.n}
    if share is not None:
        requests["failures"] = round(share.value * p.n)
    said = [f"deployment {p.deployment}"] + ([f"model {model}"] if model else [])
    said += [f"not valid: {', '.join(flag.name for flag in p.flags if flag.fatal)}"] if not p.valid else []
    return f"{name}.yaml", {
        "version": VERSION,
        "run": {
            "uid": hashlib.sha256(f"{run} {name}".encode()).hexdigest()[:32],
            "eid": run,
            "description": "; ".join(said),
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
                    "concurrency": p.concurrency,
                },
                "native": {"config": {"deployment": p.deployment, "flags": [flag.name for flag in p.flags]}},
            }
        },
        "results": {
            "request_performance": {"aggregate": {"requests": requests, "latency": latency, "throughput": throughput}}
        },
    }


def _latency(p: Point, quantity: str, unit: str) -> dict[str, Any] | None:
    found = {
        theirs: e.value
        for ours, theirs in _STATISTICS.items()
        if (e := p.metrics.get(f"{ours}_{quantity}")) is not None and not math.isnan(e.value)
    }
    return {"units": unit, **found} if "mean" in found else None


def _length(of: Lengths) -> dict[str, Any]:
    if of.kind == "fixed":
        return {"distribution": "fixed", "value": of.low}
    if of.kind == "uniform":
        return {"distribution": "uniform", "value": of.mean, "min": of.low, "max": of.high}
    return {"distribution": "gaussian", "value": of.mean, "std_dev": of.sd, "min": of.low, "max": of.high}


def yaml_text(reports: Sequence[dict[str, Any]]) -> str:
    """The reports as YAML, a document each."""
    import yaml

    return yaml.safe_dump_all(reports, sort_keys=False, allow_unicode=True, width=120, explicit_start=len(reports) > 1)


# --- reading


def claims(document: Document) -> bool:
    """Looks like a report of version 0.2."""
    return document.kind in ("yaml", "json") and any(_is_report(node) for node in _reports(document)[:1])


def _reports(document: Document) -> list[Node]:
    if document.kind == "yaml":
        return list(document.nodes())
    return [document.top] if isinstance(document.tree, dict) else []


def _is_report(node: Node) -> bool:
    return "request_performance" in node.at("results").tree and (node.words("version") or "").startswith("0.2")


def read(document: Document) -> Found:
    """Every report of the file."""
    results = []
    for node in _reports(document):
        if not _is_report(node):
            raise node.wrong(f"{node.where}: no Benchmark Report of version 0.2", "export it as version 0.2 or 0.2.1")
        results.append(_result(node))
    return Found(document.file, "llm-d report", tuple(results), notes=DIFFERENT)


def _result(node: Node) -> Result:
    of = node.at("results", "request_performance", "aggregate")
    load = node.at("scenario", "load", "standardized")
    guidellm = (load.words("tool") or "").lower() == "guidellm"
    figures: dict[str, float] = {}
    for quantity, (name, _) in _LATENCIES.items():
        key = "inter_token_latency" if guidellm and quantity == "tpot" else name
        if not (guidellm and quantity == "itl"):
            figures |= _statistics(of.at("latency", key), quantity)
    for ours, (name, _) in _RATES.items():
        if (value := of.at("throughput", name).number("mean")) is not None:
            figures[ours] = value
    requests = of.at("requests")
    total, failed = requests.count("total"), requests.count("failures")
    tokens = requests.at("output_length").number("mean")
    isl = load.at("input_seq_len").number("value") or requests.at("input_length").number("mean")
    osl = load.at("output_seq_len").number("value")
    rate, concurrency = load.number("rate_qps"), load.count("concurrency")
    notes: tuple[str, ...] = ()
    if not concurrency:
        concurrency = in_flight(figures.get("request_throughput"), figures.get("mean_e2e"))
        notes = open_loop_notes(rate)
    if not concurrency:
        raise node.wrong("neither the concurrency nor the mean number in flight is known", "leave the report out")
    facts = {"deployment": deployment} if (deployment := _deployment(node)) else {}
    sent = total or 0
    return Result(
        concurrency, figures, max(0, sent - (failed or 0)), failed, isl, osl or tokens, bool(isl and osl), tokens,
        facts=facts, model=_model(node), rate=rate,
        flags=(*identity_flags(figures, tokens), *rate_flags(rate, figures.get("request_throughput"))), notes=notes,
        place=node.where,
    )  # fmt: skip


def _statistics(node: Node, quantity: str) -> dict[str, float]:
    if not node.tree:
        return {}
    unit = node.words("units") or ""
    if unit not in _SCALES:
        raise node.wrong(f"{node.where} is in {unit!r}", "s, ms, s/token and ms/token are known")
    renamed = {ours: node.tree[theirs] for ours, theirs in _STATISTICS.items() if theirs in node.tree}
    return agreed(node, statistics(Node(node.file, node.where, renamed), quantity, _SCALES[unit]))


def _deployment(node: Node) -> str | None:
    return node.at("scenario", "load", "native", "config").fact("deployment")


def _model(node: Node) -> str | None:
    stack = node.at("scenario").items("stack")
    return next((name for part in stack if (name := part.at("standardized", "model").fact("name"))), None)
