"""LLMPerf's *_summary.json: one operating point. Its requests have no time stamps, so its other
file adds nothing."""

from frontier.extras.exchange.results import LONGEST_NAME, ImportedFile, Result, figure, rates, statistics
from frontier.store.documents import Document

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
    figures = rates(top, {"output_throughput": "results_mean_output_throughput_token_per_s"})
    figures |= figure(top, "results_num_completed_requests_per_min", "request_throughput", 1 / 60)
    for quantity, name in _LATENCIES.items():
        figures |= statistics(top, quantity, key=f"{name}_{{}}")
        figures |= statistics(top, quantity, key=f"{name}_quantiles_{{}}")
    result = Result(
        concurrency,
        figures,
        ok,
        top.count("results_number_errors"),
        (top.number("mean_input_tokens"), top.number("mean_output_tokens")),
        (None, top.number("results_number_output_tokens_mean")),
        model=top.text("model", LONGEST_NAME),
    )
    return ImportedFile(document.file, "LLMPerf", (result,), NOTES)
