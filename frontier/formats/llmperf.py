"""LLMPerf's *_summary.json: one operating point. Its requests have no time stamps, so its other file adds nothing."""

from frontier.formats.documents import Document
from frontier.formats.figures import agreed, statistics
from frontier.formats.found import Found, Result

_LATENCIES = {"ttft": "results_ttft_s", "e2e": "results_end_to_end_latency_s"}
DIFFERENT = (
    "its inter-token latency folds TTFT in and counts chunks: neither TPOT nor ITL is taken over",
    "tokens are counted by one fixed tokenizer, whatever the model; throughput is over the whole run",
)


def claims(document: Document) -> bool:
    """Looks like its summary."""
    return document.kind == "json" and {"num_concurrent_requests", "results_ttft_s_mean"} <= document.top.tree.keys()


def read(document: Document) -> Found:
    """The point of the file."""
    top = document.top
    concurrency, ok = top.count("num_concurrent_requests"), top.count("results_num_completed_requests")
    if not concurrency or ok is None:
        raise top.wrong(
            "num_concurrent_requests or results_num_completed_requests is missing", "see whether the run ended"
        )
    said = []
    for quantity, name in _LATENCIES.items():
        said += statistics(top, quantity, 1.0, f"{name}_{{}}")
        said += statistics(top, quantity, 1.0, f"{name}_quantiles_{{}}")
    figures = agreed(top, said)
    if (per_minute := top.number("results_num_completed_requests_per_min")) is not None:
        figures["request_throughput"] = per_minute / 60
    if (rate := top.number("results_mean_output_throughput_token_per_s")) is not None:
        figures["output_throughput"] = rate
    model = top.fact("model")
    result = Result(
        concurrency, figures, ok, top.count("results_number_errors"), top.number("mean_input_tokens"),
        top.number("mean_output_tokens"), stated=True, tokens=top.number("results_number_output_tokens_mean"),
        facts={"model": model} if model else {}, model=model,
    )  # fmt: skip
    return Found(document.file, "LLMPerf", (result,), notes=DIFFERENT)
