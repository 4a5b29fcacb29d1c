"""Results of `vllm bench serve` and its descendants: SGLang's bench_serving, InferenceX's client,
llm-optimizer.

A file has one object per operating point, or one per line. Latencies end in their unit; InferenceX
also writes them in seconds, without a suffix. With --save-detailed (SGLang: --output-details) the
file holds every request; some versions also keep when it was sent.
"""

import dataclasses
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from frontier.core.model.loads import Arrivals
from frontier.core.model.points import Flag
from frontier.core.model.trials import Outcome, Record
from frontier.extras.exchange.checks import mean_in_flight
from frontier.extras.exchange.column_heads import UNIT_SUFFIXES
from frontier.extras.exchange.results import (
    LONGEST_NAME,
    NO_LENGTHS,
    ImportedFile,
    Result,
    StatedLoad,
    TokenLengths,
    gpus_of,
    microseconds,
    open_loop,
    rate_flags,
    rates,
    stated_load,
    statistics,
)
from frontier.store.documents import INCOMPLETE, Document, Node, foreign_text

_LATENCIES = {"ttft": ("ttft",), "tpot": ("tpot",), "itl": ("itl",), "e2e": ("e2el", "e2e_latency")}
_RATES = {
    "output_throughput": "output_throughput",
    "input_throughput": "input_throughput",
    "total_throughput": "total_throughput",
    "request_throughput": "request_throughput",
}
_NO_FLAG = re.compile(
    r"date|label|tag|.*_id|num_prompts|request_rate|burstiness|max_concurrency|run_?(number|id)?|seed|duration|completed|"
    r"failed|errors|total_.*|.*throughput.*|.*goodput.*|.*_ms|.*_(ttft|tpot|itl|e2el|rate)|.*_len(gth)?|endpoint_type|"
    r"dataset.*|random.*|sharegpt.*|ramp_up.*|concurrency|accept_length|.*range_ratio|peak_.*|max_concurrent.*|rtfx|"
    r"server_info|.*_s|.*retokenized|num_requests|isl|osl|"
)
"""The keys of a result that say how it was measured; others say how the model was served."""
_SERVER_INFO = {
    "tp_size": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "dp_size": "data_parallel_size",
    "ep_size": "expert_parallel_size",
    "model_path": "model_id",
    **{key: key for key in ("quantization", "kv_cache_dtype", "attention_backend", "speculative_algorithm")},
    **{key: key for key in ("chunked_prefill_size", "max_running_requests", "mem_fraction_static")},
}
"""What SGLang's file says of its server, by vLLM's names."""
_PRINTED = {
    "Successful requests": "completed",
    "Failed requests": "failed",
    "Maximum request concurrency": "max_concurrency",
    "Max request concurrency": "max_concurrency",
    "Request rate configured (RPS)": "request_rate",
    "Traffic request rate": "request_rate",
    "Benchmark duration (s)": "duration",
    "Total input tokens": "total_input_tokens",
    "Total generated tokens": "total_output_tokens",
    "Request throughput (req/s)": "request_throughput",
    "Output token throughput (tok/s)": "output_throughput",
    "Concurrency": "in_flight",
}
"""What `bench serve` and SGLang print, by the keys of their files."""
_HUGGING_FACE_CACHE = re.compile(r"(?:^|/)models--([A-Za-z0-9._-]+?)--([A-Za-z0-9._-]+?)/")
NOTES = (
    "throughput is over the whole run, ramp and drain included: low by about 7% at ten prompts per user",
    "percentiles are interpolated, over the requests that succeeded, and cover the start burst and the drain",
)
NOT_DUE = "at a rate, latency counts from when a request was sent: the file does not keep when it was due"


def detect(document: Document) -> bool:
    """Whether it looks like one of these."""
    kinds = ("json", "lines", "table", "summary")
    return document.kind in kinds and any(map(_is_result, _points(document)[:3]))


def read(document: Document) -> ImportedFile:
    """Every point of the file."""
    points = _points(document)
    for node in points:
        if not _is_result(node):
            raise node.error(f"{node.where or 'the file'} is no result of a benchmark run", "leave it out")
    results = tuple(map(_result, points))
    sglang = any({"accept_length", "sharegpt_output_len"} & n.tree.keys() for n in points)
    title = "SGLang bench_serving" if sglang else "vLLM bench serve"
    notes = NOTES if any(not r.records for r in results) else ()
    late = (NOT_DUE,) if any(r.records and r.rate for r in results) else ()
    return ImportedFile(document.file, title, results, (*notes, *late))


def _points(document: Document) -> Sequence[Node]:
    """The results, which llm-optimizer's final file has below `test_results`, with the flags that
    each was served with.
    """
    if document.kind == "summary":
        return [_of_print(node) for node in document.objects]
    tests = [(node.at("config", "server_args").tree, node.at("results")) for node in document.top.items("test_results")]
    flagged = [Node(node.file, node.where, {**flags, **node.tree}) for flags, node in tests]
    return flagged or [_with_server(node) for node in document.top.items("results") or document.objects]


def _with_server(node: Node) -> Node:
    """The result with what SGLang says of its server. DP attention takes no GPUs of its own."""
    info = node.at("server_info").tree
    stated = {ours: info[theirs] for theirs, ours in _SERVER_INFO.items() if info.get(theirs) is not None}
    if info.get("enable_dp_attention") is True:
        stated.pop("data_parallel_size", None)
    return Node(node.file, node.where, {**stated, **node.tree})


def _of_print(node: Node) -> Node:
    """What the tool printed, with the keys of its file: 'P99 TTFT (ms)' is p99_ttft_ms. Without a
    load in it, it was the mean in flight.
    """
    tree: dict[str, Any] = {key: node.tree[name] for name, key in _PRINTED.items() if name in node.tree}
    for name, value in node.tree.items():
        if found := re.fullmatch(r"(Mean|Median|P[\d.]+) (TTFT|TPOT|ITL|E2EL|E2E Latency) \(ms\)", name):
            tree[f"{found[1].lower()}_{found[2].lower().replace(' ', '_')}_ms"] = value
    return Node(node.file, node.where, {"max_concurrency": None, **tree} if tree else {})


def _is_result(node: Node) -> bool:
    keys = node.tree.keys()
    load = bool({"max_concurrency", "request_rate"} & keys)
    return load and {"completed", "duration"} <= keys and any("ttft" in key or "e2el" in key for key in keys)


def _result(node: Node) -> Result:
    completed = node.count("completed")
    if completed is None:
        raise node.error("completed is missing: how many requests succeeded is not known", "write the file again")
    failed = node.count("failed")
    if failed is None and (asked := node.count("num_prompts")) is not None and asked >= completed:
        failed = asked - completed
    prompt, tokens = (
        None if not completed or (total := node.number(f"total_{side}_tokens")) is None else total / completed
        for side in ("input", "output")
    )
    figures = _figures(node)
    load = _load(node, figures, completed, tokens)
    sent = completed + (failed or 0)
    label = node.text("label", LONGEST_NAME) or node.text("tag", LONGEST_NAME)
    result = Result(
        load.concurrency,
        figures,
        completed,
        failed,
        _asked(node),
        (prompt, tokens),
        label,
        _model(node),
        gpus_of(node),
        rate=load.rate,
        arrivals=Arrivals((node.number("burstiness") or 1.0) ** -0.5),
        facts=_facts(node),
        flags=(*rate_flags(load.rate, _achieved(figures, sent, node.number("duration")), sent), *_ramp_flags(node)),
        notes=load.notes,
        place=node.where,
    )
    records, notes = _requests(node), result.notes
    if node.numbers("ttfts") and not records:
        notes = (*notes, "its requests have no start times: no window of them proves anything")
    return dataclasses.replace(result, records=records, notes=notes, command=_command(node))


_LOAD = "[--max-concurrency {concurrency}][--request-rate {rate}]"
_SIZES = ("random-input-len", "random-output-len", "random-range-ratio")


def _command(node: Node) -> str:
    """The command that sends more of the same; SGLang's states its data set."""
    sizes = "".join(f" --{key} {of:g}" for key in _SIZES if (of := _option(node, key)))
    data = node.text("dataset_name") or ("random" if sizes else "DATASET")
    sizes = sizes if data.startswith("random") else ""
    backend = node.text("backend") or node.text("endpoint_type")
    client = f" --backend {shlex.quote(backend)}" if backend else ""
    burstiness = node.number("burstiness") or 1.0
    more = f" --burstiness {burstiness:g}" if burstiness != 1 and node.number("request_rate") else ""
    load = f"{_LOAD}{more} --num-prompts {{requests}}"
    ask = f"{client} --base-url URL --model {shlex.quote(_model(node) or 'MODEL')} --dataset-name {shlex.quote(data)}"
    if "sharegpt_output_len" in node.tree:
        return f"python -m sglang.bench_serving{ask}{sizes} {load} --output-details"
    path = " --endpoint /v1/chat/completions" if backend == "openai-chat" else ""
    return f"vllm bench serve{ask}{path}{sizes} {load} --save-result --save-detailed"


def _option(node: Node, key: str) -> float | None:
    """An option of the tool that its file keeps, as SGLang's and vLLM's sweeps do."""
    stated = node.number(key.replace("-", "_"))
    return node.number(key) if stated is None else stated


def _figures(node: Node) -> dict[str, float]:
    figures = rates(node, {"total_throughput": "total_token_throughput"}) | rates(node, _RATES)
    for quantity, names in _LATENCIES.items():
        for name in names:
            for suffix, scale in UNIT_SUFFIXES.items():
                figures |= statistics(node, quantity, scale, f"{{}}_{name}{suffix}")
    completed, seconds = node.number("completed"), node.number("duration")
    if "request_throughput" not in figures and completed and seconds:  # SGLang 0.4
        figures["request_throughput"] = completed / seconds
    return figures


def _load(node: Node, figures: Mapping[str, float], completed: int, tokens: float | None) -> StatedLoad:
    """The load. Without a cap and a rate all requests were sent at once."""
    rate, cap = node.number("request_rate"), node.count("max_concurrency")
    if node.text("ramp_up_strategy"):
        load = open_loop(node, figures, None, "run it at one rate", mean_in_flight(figures, tokens))
        ends = " to ".join(f"{node.number(f'ramp_up_{end}_rps') or 0:g}" for end in ("start", "end"))
        return load._replace(notes=(f"its rate ramped from {ends} requests/s",))
    if cap or rate:
        hint = "mean_e2el_ms would tell: use --max-concurrency, or --percentile-metrics ttft,tpot,itl,e2el"
        return stated_load(node, figures, rate, cap, hint)
    if "num_prompts" not in node.tree and "request_rate" not in node.tree:
        return open_loop(node, figures, None, "give the file of  --save-result", mean_in_flight(figures, tokens))
    sent = node.count("num_prompts") or completed
    if not sent:
        raise node.error("max_concurrency is missing, and nothing was sent", "run it with --max-concurrency")
    return StatedLoad(
        sent, None, ("all requests were sent at once: this is a burst of that many, not a steady concurrency",)
    )


def _ramp_flags(node: Node) -> Iterator[Flag]:
    """The flag of a run whose rate ramped up."""
    if kind := node.text("ramp_up_strategy"):
        yield Flag("under_rate", f"its rate ramped up ({kind})", "one load", "run it at one rate, or at a concurrency")


def _achieved(figures: Mapping[str, float], sent: int, seconds: float | None) -> float | None:
    """The most requests/s that can have been sent: the time ends with the last answer, which took
    as long as the slowest. Where a queue grew, that is twice the mean.
    """
    slowest = max([value for name, value in figures.items() if name.endswith("_e2e")], default=0.0)
    sending = (seconds or 0.0) - max(slowest, 2 * figures.get("mean_e2e", 0.0))
    return sent / sending if sending > 0 else None


def _asked(node: Node) -> TokenLengths:
    """The lengths asked for, if they were all alike. SGLang keeps them beside any data set."""
    isl, osl, ratio = (_option(node, key) for key in _SIZES)
    is_random = (node.text("dataset_name") or "random").startswith("random")
    return (isl, osl) if isl and osl and ratio in (None, 1.0) and is_random else NO_LENGTHS


def _facts(node: Node) -> dict[str, str]:
    """How the model was served: the backend, and what a sweep of flags or --metadata adds."""
    keys = map(str, node.tree)
    names = [key for key in keys if not _NO_FLAG.fullmatch(re.sub(r"[- ]", "_", key.lower()))]
    return {name[:60]: fact for name in names if (fact := _scalar(node, name)) is not None}


def _scalar(node: Node, key: str) -> str | None:
    value = node.tree.get(key)
    return str(value).lower() if isinstance(value, bool) else node.text(key, 40)


def _model(node: Node) -> str | None:
    """The model; for a path into Hugging Face's cache, the name of the model there."""
    model = node.text("model_id", LONGEST_NAME)
    cached = _HUGGING_FACE_CACHE.search(model or "")
    return f"{cached[1]}/{cached[2]}" if cached else model


# --- requests


def _requests(node: Node) -> Sequence[Record]:
    """The requests, when the file has all of them with their times."""
    starts, ttfts = node.numbers("start_times"), node.numbers("ttfts")
    inputs, outputs = node.numbers("input_lens"), node.numbers("output_lens")
    itls, errors = node.tree.get("itls"), node.tree.get("errors")
    n = len(starts)
    if not n or not isinstance(itls, list) or any(len(part) != n for part in (ttfts, inputs, outputs, itls)):
        return ()
    errors = errors if isinstance(errors, list) and len(errors) == n else [""] * n
    first = min(starts)
    records = []
    for i in range(n):
        # The file's own gaps are let go of as they are used: they are most of its memory, and the
        # records take as much again.
        gaps, itls[i] = itls[i] if isinstance(itls[i], list) else [], None
        if not _are_times(gaps):
            raise node.error(f"itls[{i}] has an item that is not a time", INCOMPLETE)
        error = foreign_text(str(errors[i])[:2000], 200)
        records.append(_record(i, starts[i] - first, ttfts[i], gaps, int(inputs[i]), int(outputs[i]), error))
    return records


def _are_times(gaps: Sequence[Any]) -> bool:
    """Whether all of these items of a file are seconds, from 0 to less than a million."""
    if not gaps:
        return True
    if not set(map(type, gaps)) <= {float, int, bool}:
        return False
    return bool(0 <= min(gaps) and max(gaps) < 1e6 and not math.isnan(sum(gaps)))


def _record(
    index: int, sent: float, ttft: float, itls: Sequence[float], prompt: int, completion: int, error: str
) -> Record:
    """One request. A failed one has no first token, an output length of 0 or an error."""
    if error or not completion or not ttft:
        return Record(
            index,
            -1,
            sent,
            Outcome.STREAM_ERROR,
            sent + ttft,
            0,
            0,
            prompt_tokens=prompt or None,
            error=error or "no output",
        )
    first = sent + ttft
    last = end = first + sum(itls)
    if len(itls) == completion:
        # The chat client also stamps an event without a token: that of the role, right before the
        # first token, or the closing one, right after the last.
        if itls[0] <= itls[-1]:
            first, itls = first + itls[0], itls[1:]
        else:
            last, itls = last - itls[-1], itls[:-1]
    return Record(
        index,
        -1,
        sent,
        Outcome.OK,
        end,
        0,
        0,
        first=first,
        last=max(first, last),
        prompt_tokens=prompt or None,
        completion_tokens=completion,
        events=len(itls) + 1,
        reads=len(itls) + 1,
        gaps=microseconds(itls),
    )
