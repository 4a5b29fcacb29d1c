"""SGLang's bench_multiturn: a line of summary a rate, in seconds, over all turns of its
conversations."""

import itertools

from frontier.extras.exchange.results import ImportedFile, Result, figure, merged, open_loop, rates
from frontier.store.documents import Document, Node

_RATES = {
    "request_throughput": "throughput",
    "input_throughput": "input_token_throughput",
    "output_throughput": "output_token_throughput",
}
_STATISTICS = {"mean": "average", "p50": "median", "p90": "p90", "p99": "p99"}
NOTES = ("all turns of a conversation count alike; later turns meet a prefix that is cached",)


def detect(document: Document) -> bool:
    """Whether its lines hold such summaries."""
    return (
        document.kind in ("json", "lines") and {"average_ttft", "throughput"} <= document.top.at("summary").tree.keys()
    )


def read(document: Document) -> ImportedFile:
    """Every summary of the file."""
    results = tuple(_result(node.at("summary")) for node in document.objects)
    return ImportedFile(document.file, "SGLang bench_multiturn", results, NOTES)


def _result(node: Node) -> Result:
    pairs = itertools.product((("ttft", "ttft"), ("e2e", "latency"), ("itl", "itl")), _STATISTICS.items())
    latencies = (figure(node, f"{theirs}_{key}", f"{ours}_{of}") for (of, key), (ours, theirs) in pairs)
    figures = merged((rates(node, _RATES), *latencies))
    load = open_loop(node, figures, node.number("request_rate"), "leave the line out")
    came = node.number("average_prompt_len"), node.number("average_output_len")
    ok = node.count("total_requests") or 0
    return Result(load.concurrency, figures, ok, came=came, rate=load.rate, notes=load.notes, place=node.where)
