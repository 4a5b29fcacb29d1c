"""LLMPerf's *_summary.json: one operating point. Its requests have no time stamps, so its other
file adds nothing."""

from frontier.formats.documents import Document
from frontier.formats.results import ImportedFile, Result
from frontier.formats.statements import agreed, statistics

_LATENCIES = {"ttft": "results_ttft_s", "e2e": "results_end_to_end_latency_s"}
NOTES = (
    "its inter-token latency folds TTFT in and counts chunks: neither TPOT nor ITL is imported",
    "tokens are counted by one fixed tokenizer, whatever the model; throughput is over the whole run",
)


def detect(document: Document) -> bool:
    """Whether it looks like its summary."""
    return document.kind == "json" and {"num_concurrent_requests", "results_ttft_s_mean"} <= document.top.tree.keys()


def read(document: Document) -> ImportedFile:
    """The point of the file."""
    top = document.top
    concurrency, ok = top.count("num_concurrent_requests"), top.count("results_num_completed_requests")
    if not concurrency or ok is None:
        what = "num_concurrent_requests or results_num_completed_requests is missing"
        raise top.error(what, "check that the run finished")
    stated = []
    for quantity, name in _LATENCIES.items():
        stated += statistics(top, quantity, name=f"{name}_{{}}")
        stated += statistics(top, quantity, name=f"{name}_quantiles_{{}}")
    figures = agreed(top, stated)
    if (per_minute := top.number("results_num_completed_requests_per_min")) is not None:
        figures["request_throughput"] = per_minute / 60
    if (rate := top.number("results_mean_output_throughput_token_per_s")) is not None:
        figures["output_throughput"] = rate
    result = Result(
        concurrency,
        figures,
        ok,
        top.count("results_number_errors"),
        top.number("mean_input_tokens"),
        top.number("mean_output_tokens"),
        stated=True,
        tokens=top.number("results_number_output_tokens_mean"),
        facts=top.facts("model"),
    )
    return ImportedFile(document.file, "LLMPerf", (result,), NOTES)
