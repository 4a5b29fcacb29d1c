"""trtllm-bench's --report_json: one operating point, in milliseconds.

It states the mean number in flight, and not the concurrency that was asked for.
"""

import math

from frontier.extras.exchange.results import (
    LONGEST_NAME,
    ImportedFile,
    Result,
    figure,
    open_loop,
    rates,
    statistics,
)
from frontier.store.documents import Document

_RATES = {
    "output_throughput": "system_output_throughput_tok_s",
    "total_throughput": "system_total_throughput_tok_s",
    "request_throughput": "request_throughput_req_s",
}
NOTES = ("the concurrency is the mean in flight; the file does not keep the one that was asked for",)


def detect(document: Document) -> bool:
    """Whether it looks like its report."""
    return document.kind == "json" and {"engine", "request_info", "performance"} <= document.top.tree.keys()


def read(document: Document) -> ImportedFile:
    """The point of the file."""
    top = document.top
    performance, streamed, asked = (top.at(key) for key in ("performance", "streaming_metrics", "request_info"))
    figures = rates(performance, _RATES) | figure(performance, "avg_request_latency_ms", "mean_e2e", 1e-3)
    figures |= statistics(performance.at("request_latency_percentiles_ms"), "e2e", 1e-3)
    for quantity in ("ttft", "tpot"):
        figures |= figure(streamed, f"avg_{quantity}_ms", f"mean_{quantity}", 1e-3)
        figures |= statistics(streamed.at(f"{quantity}_percentiles"), quantity, 1e-3)
    mean = asked.number("avg_num_concurrent_requests")
    load = open_loop(top, figures, None, "run it with --streaming", mean)
    sizes = [top.at("world_info").count(key) for key in ("tp_size", "pp_size")]
    result = Result(
        load.concurrency,
        figures,
        asked.count("num_requests") or 0,
        came=(asked.number("avg_input_length"), asked.number("avg_output_length")),
        model=top.at("engine").text("model", LONGEST_NAME),
        gpus=math.prod(size or 1 for size in sizes) if any(sizes) else None,
        facts={"tensor_parallel_size": str(sizes[0]), "pipeline_parallel_size": str(sizes[1])},
    )
    return ImportedFile(document.file, "trtllm-bench", (result,), NOTES)
