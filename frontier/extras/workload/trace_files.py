"""Request traces: the lengths, arrivals and shared prompt blocks of recorded requests.

Known formats are the files of `arrival_files` whose rows have both lengths: Azure LLM
(ContextTokens, GeneratedTokens), BurstGPT (Request tokens, Response tokens), Mooncake and Bailian
(input_length, output_length, hash_ids), and the files of `frontier workload --replay`. A request
without an answer failed. It did arrive, so it asks for one token.
"""

import functools
from collections.abc import Sequence

from frontier.core.model.length_pairs import LengthPairs, RequestLengths
from frontier.core.model.shapes import Shape
from frontier.extras.workload.arrival_files import arrivals_of, given_rows, stamps_of
from frontier.extras.workload.log_rows import BLOCK, FINER_BLOCK
from frontier.extras.workload.log_summary import BlockReuse
from frontier.extras.workload.session_files import state_of
from frontier.store.documents import ForeignFileError, Node

LENGTHS = (
    ("input_length", "output_length"),
    ("ContextTokens", "GeneratedTokens"),
    ("Request tokens", "Response tokens"),
)
"""The columns of the two lengths: Mooncake, Bailian and ours; Azure LLM; BurstGPT."""


def read_requests(path: str) -> Shape:
    """The shape, without a name, of the requests of a trace. UsageError where it has none."""
    return _read(path, state_of(path))


@functools.lru_cache(maxsize=4)
def _read(path: str, _state: tuple[int, int] | None) -> Shape:
    """As read_requests, cached, since a sweep reads its config several times."""
    document = given_rows(path)[1]
    trace = arrivals_of(document).trace
    assert trace is not None
    rows, first = document.objects, document.top.tree
    columns = next((each for each in LENGTHS if each[0] in first and each[1] in first), None)
    if columns is None:
        what = "it has no lengths: no input_length and output_length, ContextTokens or Request tokens"
        raise ForeignFileError(path, what, "write  arrivals: {trace: FILE}  to play its times alone")
    # In the order of the arrivals: the k-th has the k-th row.
    ordered = [row for _, row in sorted(zip(stamps_of(document), rows, strict=True), key=lambda each: each[0])]
    requests = [_request(row, columns) for row in ordered]
    size = FINER_BLOCK if "chat_id" in first else BLOCK
    block = size if any(request.blocks for request in requests) else 0
    pairs = LengthPairs.of(requests, times=trace.digest, block=block, path=path)
    reuse = BlockReuse(block)
    for request in requests if block else ():
        reuse.add(request)
    return Shape.of_pairs(pairs, "trace", min(0.99, reuse.share or 0.0))


def _request(row: Node, columns: Sequence[str]) -> RequestLengths:
    isl, osl = (row.count(column) for column in columns)
    if isl is None or osl is None:
        raise row.error(f"{row.place(columns[isl is not None])} is missing", "check that the file is complete")
    return RequestLengths(max(1, isl), max(1, osl), blocks=tuple(map(int, row.numbers("hash_ids"))))
