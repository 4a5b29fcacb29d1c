"""Latencies of a file that no figure was read from: other names, other units, another build of the
tool.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from frontier.extras.exchange.results import ImportedFile
from frontier.store.documents import Document, foreign_text

_NAMES = {
    "ttft": re.compile(r"(?<![a-z])(ttft|time_?to_?first_?token|first_?token_?latency)", re.I),
    "e2e": re.compile(r"(?<![a-z])(e2el?|end_?to_?end|request_?latency)(?![a-z])", re.I),
}
"""How tools call the latencies whose meaning all agree on."""
_DEEPEST, _MOST = 6, 2_000
"""The levels of a file, and the keys of it, that are looked at."""


def with_unread(document: Document, file: ImportedFile) -> ImportedFile:
    """The file, with a note on TTFT and E2E that it has under names that were not read."""
    if not file.results or any(result.records for result in file.results):
        return file
    read = {name.rpartition("_")[2] for result in file.results for name in result.figures}
    keys = [key for _, key in zip(range(_MOST), _keys(document.top.tree, 0), strict=False)]
    notes = [
        f"{quantity.upper()} is not read: {', '.join(found[:3])} is no name or unit of the tool's files"
        for quantity, pattern in _NAMES.items()
        if quantity not in read and (found := [foreign_text(key, 60) for key in keys if pattern.search(key)])
    ]
    return replace(file, notes=(*file.notes, *notes))


def _keys(tree: Mapping[str, Any], depth: int, place: str = "") -> Iterator[str]:
    """The places of what is filled in, however deep."""
    for key, value in tree.items():
        where = f"{place}{key}"
        if isinstance(value, Mapping) and depth < _DEEPEST:
            yield from _keys(value, depth + 1, f"{where}.")
        elif value and not isinstance(value, bool):
            yield where
