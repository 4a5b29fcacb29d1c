"""AIPerf: `profile_export_aiperf.json` (one operating point) and `profile_export.jsonl` (its
requests).

Its inter_token_latency is our TPOT, its inter_chunk_latency our ITL, its request_latency our E2E.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from frontier.core.model.loads import POISSON, Arrivals
from frontier.core.model.points import Flag
from frontier.core.model.trials import Outcome, Record
from frontier.extras.exchange.checks import mean_in_flight
from frontier.extras.exchange.results import (
    LONGEST_NAME,
    NO_LENGTHS,
    STATISTICS,
    ImportedFile,
    Result,
    StatedLoad,
    TokenLengths,
    figure,
    microseconds,
    stated_load,
    statistics,
    successes,
    unit_scale,
)
from frontier.store.documents import INCOMPLETE, Document, Node, foreign_text

_LATENCIES = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",
    "itl": "inter_chunk_latency",
    "e2e": "request_latency",
}
_RATES = {
    "output_throughput": "output_token_throughput",
    "total_throughput": "total_token_throughput",
    "request_throughput": "request_throughput",
}
TOKENS_OFF = 0.05
"""AIPerf's count of tokens may differ by this share from the server's."""
NOTES = (
    "throughput is over the whole run, first fill and drain included",
    "percentiles are of the requests that succeeded; where AIPerf gives its adj_ ones (failures infinite), those count",
    "inter_token_latency is read as TPOT, inter_chunk_latency as ITL",
)


def detect(document: Document) -> bool:
    """Whether the document looks like one of the two files."""
    if document.kind == "lines":
        first = document.objects[0]
        return "metrics" in first.tree and "request_start_ns" in first.at("metadata").tree
    if document.kind == "metrics":
        return any(name.startswith("Request Throughput") for name in document.top.tree)
    top = document.top
    throughput = top.at("request_throughput").tree or top.at("request_count").tree
    known = bool({"aiperf_version", "input_config"} & top.tree.keys()) and "unit" in throughput
    of_runs = "aggregation_type" in top.at("metadata").tree and bool(top.at("metrics").tree)
    return known or (document.kind == "json" and (of_runs or bool(top.items("per_combination_metrics"))))


def read(document: Document) -> ImportedFile:
    """The point of a summary, or the point of the records."""
    if document.kind == "lines":
        return ImportedFile(document.file, "AIPerf records", (_of_requests(document),))
    if document.kind == "metrics":
        return ImportedFile(document.file, "AIPerf table", (_result(_of_table(document.top)),), NOTES, again=True)
    combinations = document.top.items("per_combination_metrics")
    if "aggregation_type" in document.top.at("metadata").tree and not combinations:
        combinations = [document.top]
    if combinations:
        return ImportedFile(document.file, "AIPerf sweep", tuple(map(_of_sweep, combinations)), NOTES, again=True)
    config = document.top.at("input_config").tree
    title = "GenAI-Perf" if {"perf_analyzer", "formatted_model_name"} & config.keys() else "AIPerf"
    return ImportedFile(document.file, title, (_result(document.top),), NOTES)


def _of_table(top: Node) -> Node:
    """The tables of profile_export_aiperf.csv, and GenAI-Perf's, as its JSON: 'Time to First Token
    (ms)' is time_to_first_token. They hold no load and no lengths that were asked for.
    """
    tree: dict[str, Any] = {}
    for name, cells in top.tree.items():
        plain, _, unit = name.partition(" (")
        tree[plain.lower().replace(" ", "_")] = {"avg": cells.get("Value"), **cells, "unit": unit.rstrip(")")}
    return Node(top.file, "", tree)


def _of_sweep(node: Node) -> Result:
    """A combination of the aggregate of a sweep, or the aggregate of several runs: its metrics, at
    the load and the lengths among its parameters.
    """
    given = node.at("parameters").tree or node.at("metadata", "variation_values").tree
    varied = {str(key).rpartition(".")[2]: value for key, value in given.items()}
    lengths = {f"{side}_tokens": {"mean": varied.get(key)} for side, key in (("input", "isl"), ("output", "osl"))}
    config = {**varied, "input": {"prompt": lengths}}
    tree = {**_of_one_run(node.at("metrics").tree), "input_config": config}
    return replace(_result(Node(node.file, node.where, tree)), place=node.where)


def _of_one_run(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of an aggregate in the form of one run's: of several runs 'request_latency_p99'
    has the mean of their p99.
    """
    tree: dict[str, Any] = {}
    for key, value in metrics.items():
        name, _, statistic = key.rpartition("_")
        if statistic in STATISTICS and isinstance(value, Mapping) and "mean" in value:
            tree.setdefault(name, {"unit": value.get("unit")})[statistic] = value["mean"]
        else:
            tree[key] = value
    return tree


def _result(top: Node) -> Result:
    ok, failed = int(_average(top, "request_count") or 0), _failures(top)
    figures = _latencies(top)
    for ours, name in _RATES.items():
        figures |= figure(top.at(name), "avg", ours, unit_scale(top.at(name), ours))
    prompt, tokens = _average(top, "input_sequence_length"), _average(top, "output_sequence_length")
    if tokens is None and (requests := figures.get("request_throughput")) and "output_throughput" in figures:
        tokens = figures["output_throughput"] / requests
    load = _load(top, figures, mean_in_flight(figures, tokens))
    cancelled = ("the run was cancelled before its end",) if top.tree.get("was_cancelled") is True else ()
    models = top.at("input_config", "models").items("items")
    return Result(
        load.concurrency,
        figures,
        ok,
        failed,
        _asked(top),
        (prompt, tokens),
        model=models[0].text("name", LONGEST_NAME) if models else _model(top.at("input_config")),
        rate=load.rate,
        arrivals=Arrivals(0.0) if _pattern(top) == "constant" else POISSON,
        notes=(*load.notes, *cancelled),
        flags=tuple(_token_flags(tokens, _average(top, "usage_completion_tokens"))),
    )


def _failures(top: Node) -> int | None:
    """The failed requests: their count, or the sum of the summary. Without both, none of AIPerf
    since 0.9; None before.
    """
    if (failed := _average(top, "error_request_count")) is not None:
        return int(failed)
    if not isinstance(top.tree.get("error_summary"), list):
        return 0 if top.text("aiperf_version") else None
    return sum(error.count("count") or 0 for error in top.items("error_summary"))


def _model(config: Node) -> str | None:
    """The model, where AIPerf before 0.9 and GenAI-Perf keep it."""
    for node, key in ((config.at("endpoint"), "model_names"), (config, "model"), (config, "model_names")):
        names = node.tree.get(key)
        if isinstance(names, list) and len(names) == 1 and isinstance(names[0], str):
            return foreign_text(names[0], LONGEST_NAME)
    return config.text("formatted_model_name", LONGEST_NAME)


def _latencies(top: Node) -> dict[str, float]:
    figures: dict[str, float] = {}
    for quantity, name in _LATENCIES.items():
        for key in (name, f"adj_{name}"):
            latency = top.at(key)
            if latency.tree:  # an adj_ percentile replaces the plain one: in it failures are infinite
                stated = statistics(latency, quantity, unit_scale(latency, f"mean_{quantity}"))
                figures |= {ours: x for ours, x in stated.items() if key == name or not ours.startswith("mean")}
    return figures


def _token_flags(counted: float | None, served: float | None) -> Iterator[Flag]:
    """The flag of answers whose tokens AIPerf's tokenizer counts otherwise than the server."""
    if counted and served and abs(counted - served) > TOKENS_OFF * served:
        measured = f"{counted:g} tokens per answer by AIPerf's tokenizer, {served:g} by the server"
        advice = "give AIPerf the model's own tokenizer, or import profile_export.jsonl, which has the server's counts"
        yield Flag("token_mismatch", measured, f"±{TOKENS_OFF:.0%}", advice)


def _average(top: Node, name: str) -> float | None:
    return top.at(name).number("avg")


def _asked(top: Node) -> TokenLengths:
    """ISL and OSL of the first data set, as {"mean": x} or {"value": x}."""
    config = top.at("input_config")
    prompts = [data.at("prompts") for data in config.items("datasets")[:1]]
    before = config.at("input", "prompt")  # AIPerf before 0.9
    sides = [(node.at("isl"), node.at("osl")) for node in prompts]
    sides += [(before.at("input_tokens"), before.at("output_tokens"))]
    for isl, osl in sides:
        lengths = isl.number("mean") or isl.number("value"), osl.number("mean") or osl.number("value")
        if all(lengths):
            return lengths
    return NO_LENGTHS


def _profiling(top: Node) -> list[Node]:
    """The phases that count."""
    phases = top.at("input_config").items("phases")
    profiling = [p for p in phases if "profiling" in (p.text("kind"), p.text("name"))]
    return profiling or [p for p in phases if p.tree.get("exclude_from_results") is not True]


def _pattern(top: Node) -> str | None:
    """How the requests of an open loop came: 'constant', 'poisson'."""
    before = top.at("input_config", "loadgen").text("arrival_pattern")
    return next((pattern for phase in _profiling(top) if (pattern := phase.text("type"))), before)


def _load(top: Node, figures: Mapping[str, float], mean: float | None) -> StatedLoad:
    profiling = _profiling(top)
    varied = top.at("run_info", "variation_values")
    places = [(node, "concurrency") for node in profiling[:1]]
    places += [(varied, str(key)) for key in varied.tree if str(key).split(".")[-1] == "concurrency"]
    # AIPerf before 0.9, and GenAI-Perf late and early.
    config = top.at("input_config")
    before = config.at("loadgen"), config.at("perf_analyzer", "stimulus"), config
    places += [(node, "concurrency") for node in before]
    cap = next((concurrency for node, key in places if (concurrency := node.count(key))), None)
    rates = [node.number(key) for node in (*profiling[:1], *before) for key in ("rate", "request_rate")]
    return stated_load(top, figures, next(filter(None, rates), None), cap, "run it with --concurrency", mean)


# --- requests


def _of_requests(document: Document) -> Result:
    rows = [node for node in document.objects if _phase(node) in (None, "profiling")]
    if not rows:
        raise document.top.error("no request of the profiling phase is in it", "import the file of a finished run")
    starts = [_time(node, "request_start_ns") for node in rows]
    first = min(starts)
    records = [
        replace(_record(i, node, start - first), scheduled=_due(node, start, first))
        for i, (node, start) in enumerate(zip(rows, starts, strict=True))
    ]
    ok = len(successes(records))
    load = "[--concurrency {concurrency}][--request-rate {rate}] --request-count {requests}"
    command = f"aiperf profile --url URL --model MODEL --streaming {load} --export-level records"
    return Result(0, {}, ok, len(records) - ok, records=records, epoch=first, command=command)


def _due(node: Node, start: float, first: float) -> float | None:
    """When a request was due, where the file keeps it; a worker sends it later."""
    if "credit_issued_ns" not in node.at("metadata").tree:
        return None
    return min(start, _time(node, "credit_issued_ns")) - first


def _phase(node: Node) -> str | None:
    metadata = node.at("metadata")
    return metadata.text("benchmark_phase") or metadata.text("phase_kind")


def _time(node: Node, key: str) -> float:
    """A time stamp in seconds."""
    value: Any = node.at("metadata").tree.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e20:
        raise node.error(f"{node.where}: metadata.{key} is not a time", INCOMPLETE)
    return float(value) * 1e-9


def _record(index: int, node: Node, sent: float) -> Record:
    metrics = node.at("metrics")

    def seconds(name: str) -> float | None:
        value = metrics.at(name).number("value")
        return None if value is None else value * unit_scale(metrics.at(name), "mean_e2e")

    ttft, e2e = seconds("time_to_first_token"), seconds("request_latency")
    tokens = metrics.at("usage_completion_tokens").count("value") or metrics.at("output_sequence_length").count("value")
    prompt = metrics.at("usage_prompt_tokens").count("value") or metrics.at("input_sequence_length").count("value")
    if node.at("error").tree or ttft is None or e2e is None or not tokens:
        return _failed(index, node, sent, prompt)
    chunk = metrics.at("inter_chunk_latency")
    gaps = chunk.numbers("value")
    return Record(
        index,
        -1,
        sent,
        Outcome.OK,
        sent + e2e,
        0,
        0,
        first=sent + ttft,
        last=sent + max(ttft, e2e),
        prompt_tokens=prompt or None,
        completion_tokens=tokens,
        events=len(gaps) + 1,
        reads=len(gaps) + 1,
        gaps=microseconds(gaps, unit_scale(chunk, "mean_itl")) if gaps else (),
    )


def _failed(index: int, node: Node, sent: float, prompt: int | None) -> Record:
    error = node.at("error")
    code = error.number("code")
    words = " ".join(filter(None, (error.text("code"), error.text("type"), error.text("message", 120))))
    cancelled = node.at("metadata").tree.get("was_cancelled") is True
    outcome = Outcome.HTTP_ERROR if code else Outcome.STREAM_ERROR
    if cancelled:
        outcome = Outcome.CANCELLED
    end = max(sent, sent + (_time(node, "request_end_ns") - _time(node, "request_start_ns")))
    status = int(code) if code is not None and 100 <= code <= 599 else None
    return Record(
        index, -1, sent, outcome, end, 0, 0, prompt_tokens=prompt or None, status=status, error=words or "no output"
    )
