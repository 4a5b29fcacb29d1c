"""EvalScope's performance runs: benchmark_summary.json, one operating point, and
benchmark_percentile.json beside it.

Older versions write keys out, newer ones are short, and in ms.
"""

from frontier.extras.exchange.results import STATISTICS, ImportedFile, Result, figure, merged, rates, stated_load
from frontier.store.documents import Document, Node

_QUANTITIES = {"TTFT": "ttft", "TPOT": "tpot", "ITL": "itl", "Latency": "e2e"}
_LONG = {
    "TTFT (s)": "Average time to first token (s)",
    "TPOT (s)": "Average time per output token (s)",
    "ITL (s)": "Average inter-token latency (s)",
    "Latency (s)": "Average latency (s)",
    "Avg Latency (s)": "Average latency (s)",
    "Output Throughput (tok/s)": "Output token throughput (tok/s)",
    "Total Throughput (tok/s)": "Total token throughput (tok/s)",
    "Req Throughput (req/s)": "Request throughput (req/s)",
    "Concurrency": "Number of concurrency",
    "Request Rate (req/s)": "Request rate (req/s)",
    "Success Requests": "Succeed requests",
    "Failed Requests": "Failed requests",
    "Avg Input Tokens": "Average input tokens per request",
    "Avg Output Tokens": "Average output tokens per request",
}
"""The older keys, by the newer ones."""
_RATES = {
    "output_throughput": "Output Throughput (tok/s)",
    "total_throughput": "Total Throughput (tok/s)",
    "request_throughput": "Req Throughput (req/s)",
}
PERCENTILES = "its percentiles are in benchmark_percentile.json: without it there are means only"
WHOLE_RUN = "throughput is over the whole run, ramp and drain included"


def detect(document: Document) -> bool:
    """Whether it looks like its summary or its percentiles."""
    return document.kind == "json" and bool(_loads(document.top) or "Percentiles" in document.top.tree)


def _loads(top: Node) -> bool:
    return any({load, ok} <= top.tree.keys() for load, ok in (("Concurrency", "Success Requests"), _OLD))


_OLD = ("Number of concurrency", "Succeed requests")


def read(document: Document) -> ImportedFile:
    """The point of the file. A concurrency of -1 is an open loop, a rate of -1 is none."""
    if not _loads(document.top):
        return ImportedFile(document.file, "EvalScope percentiles", beside=_percentiles(document))
    tree = document.top.tree
    top = Node(document.file, "", {**{new: tree[old] for new, old in _LONG.items() if old in tree}, **tree})
    means = (*_QUANTITIES.items(), ("Avg Latency", "e2e"))
    figures = merged((rates(top, _RATES), *(_latency(top, name, f"mean_{quantity}") for name, quantity in means)))
    rate = top.number("Request Rate (req/s)")
    load = stated_load(top, figures, rate, top.count("Concurrency"), "run it with --parallel")
    result = Result(
        load.concurrency,
        figures,
        top.count("Success Requests") or 0,
        top.count("Failed Requests"),
        came=(top.number("Avg Input Tokens"), top.number("Avg Output Tokens")),
        rate=load.rate,
        notes=load.notes,
    )
    return ImportedFile(document.file, "EvalScope", (result,), (WHOLE_RUN, PERCENTILES))


def _percentiles(document: Document) -> dict[str, float]:
    """The percentiles of latencies, a row each."""
    ranks = ((row, STATISTICS.get(f"p{(row.text('Percentiles') or '').removesuffix('%')}")) for row in document.objects)
    return merged(
        _latency(row, name, f"{rank}_{of}") for row, rank in ranks if rank for name, of in _QUANTITIES.items()
    )


def _latency(node: Node, name: str, ours: str) -> dict[str, float]:
    return figure(node, f"{name} (s)", ours) | figure(node, f"{name} (ms)", ours, 1e-3)
