"""SGLang's bench_one_batch and bench_one_batch_server: a line a static batch, in seconds.

All requests of a batch start at once and end together, so one latency is that of all.
"""

from frontier.extras.exchange.results import LONGEST_NAME, ImportedFile, Result, figure
from frontier.store.documents import INCOMPLETE, Document, Node

NOTES = (
    "a static batch: nothing arrives while it runs, so a server under load answers later",
    "throughput is output tokens over the whole latency; TTFT is that of the batch's last request, as its p99",
)


def detect(document: Document) -> bool:
    """Whether its lines hold such batches."""
    known = {"batch_size", "input_len", "output_len", "latency"} <= document.top.tree.keys()
    return document.kind in ("json", "lines") and known


def read(document: Document) -> ImportedFile:
    """Every batch of the file."""
    return ImportedFile(document.file, "SGLang one_batch", tuple(map(_result, document.objects)), NOTES)


def _result(node: Node) -> Result:
    batch, isl, osl = (node.count(key) for key in ("batch_size", "input_len", "output_len"))
    seconds = node.number("latency")
    if not batch or not isl or not osl or not seconds:
        what = f"{node.where}: batch_size, input_len, output_len or latency is missing"
        raise node.error(what.removeprefix(": "), INCOMPLETE)
    figures = {"request_throughput": batch / seconds, "output_throughput": batch * osl / seconds, "mean_e2e": seconds}
    ttft = node.number("last_ttft")
    if ttft and osl > 1 and ttft < seconds:
        figures["mean_tpot"] = (seconds - ttft) / (osl - 1)
    figures |= figure(node, "last_ttft", "p99_ttft")
    name = node.text("run_name", LONGEST_NAME)
    return Result(
        batch,
        figures,
        batch,
        asked=(isl, osl),
        came=(None, osl),
        deployment=None if name == "default" else name,
        place=node.where,
    )
