"""Results of `vllm bench serve` and of its descendants: SGLang's bench_serving, InferenceX's client, llm-optimizer.

One object per operating point, or one per line. Latencies end in _ms; InferenceX also writes them in seconds, bare.
With --save-detailed (SGLang: --output-details) the file holds every request; only with start times is it a trace.
"""

import re

from frontier.formats.documents import Document, Node, text
from frontier.formats.figures import agreed, statements, statistics
from frontier.formats.found import Found, Result, Trace, identity_flags, in_flight, open_loop_notes, rate_flags, steps
from frontier.model import Outcome, Record

_LATENCIES = {"ttft": ("ttft",), "tpot": ("tpot",), "itl": ("itl",), "e2e": ("e2el", "e2e_latency")}
DIFFERENT = (
    "throughput is over the whole run, ramp and drain included: low by about 7 % at ten prompts per user",
    "percentiles are interpolated, over the requests that succeeded, and cover the start burst and the drain",
)


def claims(document: Document) -> bool:
    """Looks like one of these."""
    return any(_is_result(node) for node in _points(document)[:3])


def _points(document: Document) -> list[Node]:
    if document.kind == "json" and isinstance(document.tree, dict):
        listed = document.top.items("test_results")  # llm-optimizer's final file
        return [node.at("results") for node in listed] if listed else [document.top]
    return list(document.nodes()) if document.kind in ("json", "lines") else []


def _is_result(node: Node) -> bool:
    keys = node.tree.keys()
    return {"max_concurrency", "completed", "duration"} <= keys and any("ttft" in key for key in keys)


def read(document: Document) -> Found:
    """Every point of the file."""
    results, traces = [], []
    for node in _points(document):
        if not _is_result(node):
            raise node.wrong(f"{node.where or 'the file'} is no result of a benchmark run", "leave it out")
        trace = _trace(node)
        if trace is not None:
            traces.append(trace)
        else:
            results.append(_result(node))
    title = "SGLang bench_serving" if any("accept_length" in n.tree for n in _points(document)) else "vLLM bench serve"
    return Found(document.file, title, tuple(results), tuple(traces), DIFFERENT if results else ())


def _result(node: Node) -> Result:
    completed = node.count("completed")
    if completed is None:
        raise node.wrong("completed is missing: how many requests succeeded is not known", "write the file anew")
    figures = _figures(node)
    failed = node.count("failed")
    if failed is None and (asked := node.count("num_prompts")) is not None and asked >= completed:
        failed = asked - completed
    concurrency, rate, notes = _load(node, figures, completed)
    tokens = _per(node.number("total_output_tokens"), completed)
    stated = _stated(node)
    isl, osl = stated or (_per(node.number("total_input_tokens"), completed), tokens)
    return Result(
        concurrency, figures, completed, failed, isl, osl, stated is not None, tokens,
        facts=_facts(node), model=_model(node), rate=rate,
        flags=(*identity_flags(figures, tokens), *rate_flags(rate, node.number("request_throughput"))), notes=notes,
        place=node.where,
    )  # fmt: skip


def _figures(node: Node) -> dict[str, float]:
    said = []
    for quantity, names in _LATENCIES.items():
        for name in names:
            said += statistics(node, quantity, 1e-3, f"{{}}_{name}_ms")
            said += statistics(node, quantity, 1.0, f"{{}}_{name}")
    for ours, theirs in (
        ("output_throughput", ("output_throughput",)),
        ("input_throughput", ("input_throughput",)),
        ("total_throughput", ("total_token_throughput", "total_throughput")),
        ("request_throughput", ("request_throughput",)),
    ):
        for key in theirs:
            said += statements(node, key, ours)
    return agreed(node, said)


def _load(node: Node, figures: dict[str, float], completed: int) -> tuple[int, float | None, tuple[str, ...]]:
    """The concurrency, the rate an open loop asked for, and what to know of it."""
    rate = node.number("request_rate")
    cap = node.count("max_concurrency")
    if cap and not rate:
        return cap, None, ()
    mean = in_flight(figures.get("request_throughput"), figures.get("mean_e2e"))
    if rate and mean is not None and (not cap or mean < 0.95 * cap):
        return mean, rate, open_loop_notes(rate)
    if cap:
        return cap, rate, ()
    if rate:
        raise node.wrong(
            "the load came at a rate, and without mean_e2el_ms the number in flight is not known",
            "run it with --max-concurrency, or with --percentile-metrics ttft,tpot,itl,e2el",
        )
    sent = node.count("num_prompts") or completed
    if not sent:
        raise node.wrong("max_concurrency is missing, and nothing was sent", "run it with --max-concurrency")
    return sent, None, ("all requests were sent at once: this is a burst of that many, not a steady concurrency",)


def _stated(node: Node) -> tuple[float, float] | None:
    """The lengths asked for: SGLang and vLLM's sweeps keep them, as the user typed the keys."""
    pairs = [("random_input_len", "random_output_len"), ("random-input-len", "random-output-len")]
    for first, second in pairs:
        isl, osl = node.number(first), node.number(second)
        if isl and osl and node.number("random_range_ratio") in (None, 1.0):
            return isl, osl
    return None


_CACHED = re.compile(r"(?:^|/)models--([A-Za-z0-9._-]+?)--([A-Za-z0-9._-]+?)/")


def _model(node: Node) -> str | None:
    """The model's name; of a path into Hugging Face's cache the name it stands for."""
    cached = _CACHED.search(node.words("model_id", 400) or "")
    return f"{cached[1]}/{cached[2]}" if cached else node.fact("model_id")


def _facts(node: Node) -> dict[str, str]:
    known = {"model": _model(node), "label": node.fact("label"), "tag": node.fact("tag")}
    return {key: value for key, value in known.items() if value}


def _per(total: float | None, n: int) -> float | None:
    return None if total is None or not n else total / n


def _trace(node: Node) -> Trace | None:
    """The requests with their times, when the file has them whole."""
    starts, ttfts = node.numbers("start_times"), node.numbers("ttfts")
    inputs, outputs = node.numbers("input_lens"), node.numbers("output_lens")
    itls = node.tree.get("itls")
    n = len(starts)
    if (
        not n
        or any(len(part) != n for part in (ttfts, inputs, outputs))
        or not isinstance(itls, list)
        or len(itls) != n
    ):
        return None
    raised = node.tree.get("errors")
    errors = [text(str(e)[:2000], 200) for e in raised] if isinstance(raised, list) and len(raised) == n else [""] * n
    zero = min(starts)
    records = []
    for i in range(n):
        gaps = itls[i] if isinstance(itls[i], list) else []
        if not all(isinstance(gap, int | float) and 0 <= gap < 1e6 for gap in gaps):
            raise node.wrong(f"itls[{i}] holds something that is no time", "see whether the file is whole")
        records.append(_record(i, starts[i] - zero, ttfts[i], gaps, int(inputs[i]), int(outputs[i]), errors[i]))
    figures = _figures(node)
    concurrency, rate, notes = _load(node, figures, sum(r.outcome is Outcome.OK for r in records))
    stated = _stated(node)
    ok = [r for r in records if r.outcome is Outcome.OK]
    isl, osl = stated or (_mean([r.prompt_tokens or 0 for r in ok]), _mean([r.completion_tokens or 0 for r in ok]))
    return Trace(
        concurrency, records, isl=isl, osl=osl, stated=stated is not None, facts=_facts(node),
        model=_model(node), rate=rate, notes=notes, place=node.where, figures=figures,
    )  # fmt: skip


def _mean(values: list[int]) -> float | None:
    return sum(values) / len(values) if values else None


def _record(
    index: int, sent: float, ttft: float, itls: list[float], prompt: int, completion: int, error: str
) -> Record:
    """One request. A failed one has no first token, an output length of 0 or an error."""
    if error or not completion or not ttft:
        return Record(
            index, -1, sent, Outcome.STREAM_ERROR, sent + ttft, 0, 0, prompt_tokens=prompt or None,
            error=error or "no output",
        )  # fmt: skip
    last = sent + ttft + sum(itls)
    if len(itls) == completion:  # the chat client also stamps the closing event, which brings no token
        itls = itls[:-1]
    gaps = steps(itls, 1.0)
    return Record(
        index, -1, sent, Outcome.OK, last, 0, 0, first=sent + ttft, last=last, prompt_tokens=prompt or None,
        completion_tokens=completion, events=len(itls) + 1, reads=len(itls) + 1, gaps=gaps,
    )  # fmt: skip
