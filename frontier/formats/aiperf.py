"""AIPerf: `profile_export_aiperf.json` (one operating point) and `profile_export.jsonl` (its requests).

Its inter_token_latency is our TPOT, its inter_chunk_latency our ITL, its request_latency our E2E.
"""

from typing import Any

from frontier.formats.documents import Document, Node
from frontier.formats.figures import agreed, statements, statistics
from frontier.formats.found import IDENTITY, Found, Result, Trace, identity_flags, in_flight, open_loop_notes, steps
from frontier.model import Flag, Outcome, Record

_LATENCIES = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",
    "itl": "inter_chunk_latency",
    "e2e": "request_latency",
}
_SCALES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}
_NS = 1e-9
DIFFERENT = (
    "throughput is over the whole run, first fill and drain included",
    "percentiles are of the requests that succeeded; where AIPerf gives its adj_ ones (failures infinite), those count",
    "inter_token_latency is read as TPOT, inter_chunk_latency as ITL",
)


def claims(document: Document) -> bool:
    """Looks like one of the two."""
    if document.kind == "lines":
        first = next(document.nodes(), None)
        return first is not None and {"metadata", "metrics"} <= first.tree.keys() and "request_start_ns" in str(
            list(first.at("metadata").tree)[:40]
        )  # fmt: skip
    top = document.top
    return document.kind == "json" and ("aiperf_version" in top.tree or "input_config" in top.tree) and "unit" in (
        top.at("request_throughput").tree or top.at("request_count").tree
    )  # fmt: skip


def read(document: Document) -> Found:
    """The point of a summary, or the trace of the records."""
    if document.kind == "lines":
        return Found(document.file, "AIPerf records", traces=(_trace(document),))
    return Found(document.file, "AIPerf", results=(_result(document.top),), notes=DIFFERENT)


def _result(top: Node) -> Result:
    if "aggregation_type" in top.at("metadata").tree:
        raise top.wrong("an aggregate over runs, not one run", "import the profile_export_aiperf.json of each run")
    ok, failed = (int(_avg(top, name) or 0) for name in ("request_count", "error_request_count"))
    figures: dict[str, float] = {}
    for quantity, name in _LATENCIES.items():
        for key in (name, f"adj_{name}"):
            node = top.at(key)
            if node.tree:  # an adj_ percentile replaces the plain one: in it failures are infinite
                said = statistics(node, quantity, _scale(node))
                said += statements(node, "avg", f"mean_{quantity}", _scale(node)) if key == name else []
                figures |= agreed(node, said)
    for ours, theirs in (
        ("output_throughput", "output_token_throughput"),
        ("total_throughput", "total_token_throughput"),
        ("request_throughput", "request_throughput"),
    ):
        if (value := _avg(top, theirs)) is not None:
            figures[ours] = value
    tokens = _avg(top, "output_sequence_length")
    isl, osl = _asked(top)
    flags = (*identity_flags(figures, tokens), *_token_flags(tokens, _avg(top, "usage_completion_tokens")))
    stated = isl is not None and osl is not None
    concurrency, rate, notes = _load(top, figures)
    if top.tree.get("was_cancelled") is True:
        notes = (*notes, "the run was cancelled before its end")
    return Result(
        concurrency, figures, ok, failed,
        isl if stated else _avg(top, "input_sequence_length"), osl if stated else tokens, stated, tokens,
        facts=_facts(top), model=_model(top), rate=rate, flags=flags, notes=notes,
    )  # fmt: skip


def _token_flags(counted: float | None, served: float | None) -> tuple[Flag, ...]:
    """Answers that AIPerf's tokenizer counts otherwise than the server: TPOT and throughput are in other tokens."""
    if not counted or not served or abs(counted - served) <= IDENTITY * served:
        return ()
    return (
        Flag(
            "token_mismatch", f"{counted:g} tokens per answer by AIPerf's tokenizer, {served:g} by the server",
            f"±{IDENTITY:.0%}",
            "give AIPerf the model's own tokenizer, or import profile_export.jsonl, which has the server's counts",
        ),
    )  # fmt: skip


def _avg(top: Node, name: str) -> float | None:
    return top.at(name).number("avg")


def _scale(node: Node) -> float:
    unit = node.words("unit") or ""
    if unit not in _SCALES:
        raise node.wrong(f"{node.where} is in {unit!r}, a unit that is not known", "see whether this is AIPerf's file")
    return _SCALES[unit]


def _model(top: Node) -> str | None:
    items = top.at("input_config", "models").items("items")
    return items[0].fact("name") if items else None


def _facts(top: Node) -> dict[str, str]:
    model = _model(top)
    return {"model": model} if model else {}


def _asked(top: Node) -> tuple[float | None, float | None]:
    """ISL and OSL of the first data set, as {"mean": x} or {"value": x}."""
    sets = top.at("input_config").items("datasets")
    if not sets:
        return None, None
    isl, osl = (sets[0].at("prompts", side) for side in ("isl", "osl"))
    return isl.number("mean") or isl.number("value"), osl.number("mean") or osl.number("value")


def _load(top: Node, figures: dict[str, float]) -> tuple[int, float | None, tuple[str, ...]]:
    phases = top.at("input_config").items("phases")
    profiling = [p for p in phases if p.words("kind") == "profiling"] or phases
    values = top.at("run_info", "variation_values")
    told = [(node, "concurrency") for node in profiling[:1]]
    told += [(values, str(key)) for key in values.tree if str(key).split(".")[-1] == "concurrency"]
    said = [one for node, key in told if node.count(key) for one in statements(node, key, "concurrency")]
    if said:
        return round(agreed(top, said)["concurrency"]), None, ()
    mean = in_flight(figures.get("request_throughput"), figures.get("mean_e2e"))
    if mean is None:
        raise top.wrong("the concurrency is not in input_config.phases", "run it with --concurrency")
    rate = profiling[0].number("rate") or profiling[0].number("request_rate") if profiling else None
    return mean, rate, open_loop_notes(rate)


# --- requests


def _trace(document: Document) -> Trace:
    rows = [node for node in document.nodes() if _counts(node)]
    if not rows:
        raise document.top.wrong("no request of the profiling phase is in it", "import the file of a finished run")
    starts = [_ns(node, "request_start_ns") for node in rows]
    zero = min(starts)
    records = [_record(i, node, start - zero) for i, (node, start) in enumerate(zip(rows, starts, strict=True))]
    ok = [r for r in records if r.outcome is Outcome.OK]
    isl = sum(r.prompt_tokens or 0 for r in ok) / len(ok) if ok else None
    osl = sum(r.completion_tokens or 0 for r in ok) / len(ok) if ok else None
    return Trace(0, records, epoch=zero, isl=isl or None, osl=osl or None)


def _counts(node: Node) -> bool:
    phase = node.at("metadata").words("benchmark_phase") or node.at("metadata").words("phase_kind")
    return phase in (None, "profiling")


def _ns(node: Node, key: str) -> float:
    value: Any = node.at("metadata").tree.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e20:
        raise node.wrong(f"{node.where}: metadata.{key} is not a time", "see whether the file is whole")
    return float(value) * _NS


def _record(index: int, node: Node, sent: float) -> Record:
    metrics = node.at("metrics")

    def seconds(name: str) -> float | None:
        of = metrics.at(name)
        value = of.number("value")
        return None if value is None else value * _scale(of)

    ttft, e2e = seconds("time_to_first_token"), seconds("request_latency")
    tokens = metrics.at("usage_completion_tokens").count("value") or metrics.at("output_sequence_length").count("value")
    prompt = metrics.at("usage_prompt_tokens").count("value") or metrics.at("input_sequence_length").count("value")
    error = node.at("error")
    if error.tree or ttft is None or e2e is None or not tokens:
        said = " ".join(filter(None, (error.words("code"), error.words("type"), error.words("message", 120))))
        return Record(
            index, -1, sent, Outcome.CANCELLED if node.at("metadata").tree.get("was_cancelled") is True
            else Outcome.HTTP_ERROR if error.number("code") else Outcome.STREAM_ERROR,
            max(sent, sent + (_ns(node, "request_end_ns") - _ns(node, "request_start_ns"))), 0, 0,
            prompt_tokens=prompt or None, status=_status(error), error=said or "no output",
        )  # fmt: skip
    chunk = metrics.at("inter_chunk_latency")
    gaps = chunk.numbers("value")
    between = steps(gaps, _scale(chunk)) if gaps else ()
    return Record(
        index, -1, sent, Outcome.OK, sent + e2e, 0, 0, first=sent + ttft, last=sent + max(ttft, e2e),
        prompt_tokens=prompt or None, completion_tokens=tokens, events=len(gaps) + 1, reads=len(gaps) + 1, gaps=between,
    )  # fmt: skip


def _status(error: Node) -> int | None:
    code = error.number("code")
    return int(code) if code is not None and 100 <= code <= 599 else None
