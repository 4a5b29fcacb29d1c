"""Requests of vLLM's benchmark_serving_multi_turn.py: the sheet 'Raw data' of its Excel file, or a
list of such rows. Times are in milliseconds.

Each client sends one request at a time. Requests that failed are not in it.
"""

from frontier.core.model.trials import Outcome, Record
from frontier.extras.exchange.results import ImportedFile, Result
from frontier.store.documents import INCOMPLETE, Document, Node

_KEYS = {"start_time_ms", "ttft_ms", "latency_ms", "output_num_tokens", "client_id"}
NOTES = (
    "all turns of a conversation count alike; later turns meet a prefix that is cached",
    "requests that failed are not in the file, and tokens are counted by the client's tokenizer",
)


def detect(document: Document) -> bool:
    """Whether its rows are such requests."""
    return document.kind in ("json", "lines", "table") and _KEYS <= document.top.tree.keys()


def read(document: Document) -> ImportedFile:
    """The requests of the file, at as many in flight as it has clients."""
    rows = document.objects
    first = min(_seconds(row, "start_time_ms") for row in rows)
    records = [_record(i, row, first) for i, row in enumerate(rows)]
    clients = len({str(row.tree.get("client_id")) for row in rows})
    result = Result(clients, {}, len(records), records=records, command=_COMMAND)
    return ImportedFile(document.file, "vLLM multi-turn", (result,), NOTES)


_COMMAND = (
    "benchmark_serving_multi_turn.py --url URL --model MODEL --input-file CONVERSATIONS"
    " [--num-clients {concurrency}] --max-num-requests {requests} --excel-output"
)


def _seconds(row: Node, key: str) -> float:
    value = row.number(key)
    if value is None:
        raise row.error(f"{row.where}: {key} is not a time", INCOMPLETE)
    return value * 1e-3


def _record(index: int, row: Node, first: float) -> Record:
    sent = _seconds(row, "start_time_ms") - first
    ttft, e2e = _seconds(row, "ttft_ms"), _seconds(row, "latency_ms")
    tokens, before = row.count("output_num_tokens"), row.count("output_num_first_chunk_tokens")
    chunks = 1 + max(0, (tokens or 0) - (before or 1))  # how many came is not said: one a token
    return Record(
        index,
        -1,
        sent,
        Outcome.OK,
        sent + e2e,
        0,
        0,
        first=sent + ttft,
        last=sent + max(ttft, e2e),
        prompt_tokens=row.count("input_num_tokens") or None,
        completion_tokens=tokens or None,
        events=chunks,
        reads=chunks,
        first_tokens=before,
    )
