"""MLPerf's mlperf_log_summary.txt of LoadGen: one operating point, in nanoseconds, at the rate that
the Server scenario was given.

It keeps no lengths of inputs and no number of requests.
"""

from frontier.core.model.points import Flag
from frontier.extras.exchange.checks import mean_in_flight
from frontier.extras.exchange.results import ImportedFile, Result, figure, open_loop, rates
from frontier.store.documents import Document, Node

_RATES = {"request_throughput": "Completed samples per second", "output_throughput": "Completed tokens per second"}
_LATENCIES = {"ttft": "first token latency", "tpot": "time to output token", "e2e": "latency"}
_MEANS = {"ttft": "Mean First Token latency", "tpot": "Mean Time to Output Token", "e2e": "Mean latency"}
_PERCENTILES = {"50.00": "p50", "90.00": "p90", "95.00": "p95", "99.00": "p99", "99.90": "p99.9"}
NOTES = (
    "latency counts from the scheduled arrival; the arrivals are a Poisson process",
    "the summary keeps no lengths of inputs: give the shape; and no number of requests",
)


def detect(document: Document) -> bool:
    """Whether it looks like the summary."""
    return document.kind == "summary" and "Scenario" in document.top.tree


def read(document: Document) -> ImportedFile:
    """The point of the file. ForeignFileError for a scenario without a load."""
    top = document.top
    scenario = top.text("Scenario") or ""
    if scenario != "Server":
        what = f"the scenario {scenario} states no load and no latency of single requests"
        raise top.error(what, "import a run of the Server scenario")
    figures = rates(top, _RATES)
    for quantity, name in _LATENCIES.items():
        figures |= figure(top, f"{_MEANS[quantity]} (ns)", f"mean_{quantity}", 1e-9)
        for theirs, ours in _PERCENTILES.items():
            figures |= figure(top, f"{theirs} percentile {name} (ns)", f"{ours}_{quantity}", 1e-9)
    requests, tokens = figures.get("request_throughput"), figures.get("output_throughput")
    osl = tokens / requests if tokens and requests else None
    rate = top.number("target_qps") or top.number("Scheduled samples per second") or requests
    load = open_loop(
        top, figures, rate, "import its detailed log's summary, with latencies", mean_in_flight(figures, osl)
    )
    result = Result(load.concurrency, figures, 0, came=(None, osl), rate=load.rate, notes=load.notes, flags=_flags(top))
    return ImportedFile(document.file, "MLPerf", (result,), NOTES)


def _flags(top: Node) -> tuple[Flag, ...]:
    """The flag of a run that LoadGen itself calls invalid."""
    if top.text("Result is") != "INVALID":
        return ()
    failed = [key for key in top.tree if key.endswith("satisfied") and (top.text(key) or "").lower() == "no"]
    advice = "the run itself is marked as not valid"
    return (Flag("marked_invalid", ", ".join(failed) or "no reason given", "VALID", advice),)
