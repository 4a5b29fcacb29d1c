"""A plain CSV table, one operating point a row: what `frontier export --csv` writes, or one written
by hand.

Columns: `concurrency`; `shape` ("1024/256") or `isl` and `osl`; then metrics by our names, in
seconds, tokens per second and shares, or with a unit behind: `p99_ttft_ms`. `n` (requests),
`failed`, `deployment`, `model` and `gpus` if known. Other columns are not read.
"""

import itertools
import math
import re
from collections.abc import Iterator, Mapping

from frontier.core.model.metrics import Unit, metric
from frontier.core.model.points import Flag
from frontier.extras.exchange.results import LONGEST_NAME, ImportedFile, Result, TokenLengths, figure
from frontier.show.point_rows import unguarded
from frontier.store.documents import Document, Node, foreign_text

_UNITS = {
    Unit.SECONDS: {"_ms": 1e-3, "_us": 1e-6, "_s": 1.0, "_ns": 1e-9},
    Unit.SHARE: {"_pct": 0.01, "_percent": 0.01},
}
_EMPTY = ("", "nan", "none", "null", "-", "–", "inf", "infinity")
_DERIVED = ("goodput", "attainment", "cost", "energy")
"""Metrics that depend on an SLA, a price or a power that is not in the table."""
_SHAPE = re.compile(r"(\d{1,9})\s*/\s*(\d{1,9})")
_READ = frozenset(
    {"concurrency", "shape", "isl", "osl", "n", "failed", "deployment", "model", "gpus", "valid", "flags"}
)
_EXPORTED = ("on_frontier", "objectives", "power_w", "power_source")
"""Further columns of our own export."""
NOTES = ("figures are taken as they stand: seconds, tokens per second and shares, unless a column names its unit",)
NO_INTERVALS = "columns of intervals are not imported: a table cannot prove them"


def detect(document: Document) -> bool:
    """Whether it is a table with a concurrency and at least one metric."""
    names = [_column_name(head) for head in document.objects[0].tree] if document.kind == "table" else []
    return "concurrency" in names and any(map(_column, names))


def read(document: Document) -> ImportedFile:
    """Every row of the table."""
    columns = _columns(document)
    if "concurrency" not in columns or not columns.keys() - _READ:
        example = "as  concurrency,isl,osl,n,output_throughput,p99_ttft_ms"
        raise document.top.error("the table needs a column concurrency and one of a metric", example)
    renamed = [
        Node(row.file, row.where, {name: row.tree[head] for name, (head, _) in columns.items()})
        for row in document.objects
    ]
    results = tuple(_result(row, columns) for row in renamed)
    return ImportedFile(document.file, "table", results, (*NOTES, *_unread(document, columns)))


def _column_name(head: str) -> str:
    """A column's head in our spelling: 'P99 TTFT (ms)' as 'p99_ttft_ms'."""
    return re.sub(r"[\s()\[\]-]+", "_", head.strip().lower()).strip("_")


def _columns(document: Document) -> dict[str, tuple[str, float]]:
    """The head of each column that is read, by what it holds, and the factor to our unit.
    ForeignFileError where two columns hold the same.
    """
    columns: dict[str, tuple[str, float]] = {}
    for head in document.top.tree:
        name = _column_name(head)
        holds, scale = (name, 1.0) if name in _READ else _column(name) or ("", 0.0)
        if not holds:
            continue
        if holds in columns:
            both = f"{foreign_text(columns[holds][0])!r} and {foreign_text(head)!r}"
            raise document.top.error(f"two columns are {holds}: {both}", "remove one")
        columns[holds] = (head, scale)
    return columns


def _column(name: str) -> tuple[str, float] | None:
    """The metric a column holds, in its one spelling, and the factor to its own unit; None for
    another column.
    """
    for suffix in ("", *itertools.chain(*_UNITS.values())):
        if not name.endswith(suffix):
            continue
        try:
            of = metric(name.removesuffix(suffix))
        except ValueError:
            continue
        known = _UNITS.get(of.unit, {})
        if of.name in _DERIVED or of.inverted or of.group is not None or (suffix and suffix not in known):
            return None
        return (of.name if of.p is None else f"p{of.p * 100:g}_{of.quantity}"), known.get(suffix, 1.0)
    return None


def _unread(document: Document, columns: Mapping[str, tuple[str, float]]) -> tuple[str, ...]:
    """Notes on the columns that are not imported."""
    read = {head for head, _ in columns.values()}
    rest = {head: _column_name(head) for head in document.top.tree if head.strip() and head not in read}
    intervals = [head for head, name in rest.items() if name.endswith(("_low", "_high"))]
    known = {*_EXPORTED, *_DERIVED}
    others = [
        foreign_text(head, 40)
        for head, name in rest.items()
        if head not in intervals and name not in known and "_interactivity" not in name
    ]
    notes = [NO_INTERVALS] if intervals else []
    if others:
        more = f" and {len(others) - 8} more" if len(others) > 8 else ""
        notes.append(f"columns not read: {', '.join(others[:8])}{more}")
    return tuple(notes)


def _result(row: Node, columns: Mapping[str, tuple[str, float]]) -> Result:
    concurrency = row.count("concurrency")
    if not concurrency:
        what = f"{row.where}: concurrency is {row.text('concurrency')!r}"
        raise row.error(what, "write a whole number, 1 or more; a point at a rate is not imported")
    figures: dict[str, float] = {}
    for name in [name for name in columns if name not in _READ]:
        figures |= _cell(row, name, *columns[name])
    n, failed = _counted(row, figures.pop("error_rate", None))
    isl, osl = _lengths(row)
    return Result(
        concurrency,
        figures,
        max(0, (n or 0) - (failed or 0)),
        failed,
        (isl, osl),
        (None, osl),
        unguarded(row.text("deployment", LONGEST_NAME) or "") or None,
        unguarded(row.text("model", LONGEST_NAME) or "") or None,
        row.count("gpus"),
        flags=tuple(_flags(row)),
        place=row.where,
    )


def _cell(row: Node, name: str, head: str, scale: float) -> dict[str, float]:
    """The value of a cell for its metric. ForeignFileError for text that is neither a number nor
    empty.
    """
    written = str(row.tree[name] or "").strip().lower()
    if written in ("inf", "infinity") and metric(name).quantity:
        return {name: math.inf}
    if row.number(name) is None and written not in _EMPTY:
        what = f"{row.where}: {foreign_text(head, 60)} is {row.text(name)!r}, not a number"
        raise row.error(what, "write a number, inf, or nothing")
    return figure(row, name, name, scale)


def _counted(row: Node, share: float | None) -> tuple[int | None, int | None]:
    """Requests and failed requests, as counts or as a share. ForeignFileError for
    impossible ones.
    """
    n, failed = row.count("n"), row.count("failed")
    if share is not None and share > 1:
        raise row.error(f"{row.where}: error_rate is {share:g}, above 1", "call a column of percent error_rate_pct")
    if n is not None and failed is not None and failed > n:
        raise row.error(f"{row.where}: {failed:,} of {n:,} requests failed", "n counts all requests, failed ones too")
    if failed is None and share is not None and n:
        failed = round(share * n)
    return n, failed


def _lengths(row: Node) -> TokenLengths:
    """Input and output tokens, from the shape or from their columns."""
    shape = _SHAPE.fullmatch(row.text("shape") or "")
    return (float(shape[1]), float(shape[2])) if shape else (row.number("isl"), row.number("osl"))


def _flags(row: Node) -> Iterator[Flag]:
    """The flag of a row whose own column `valid` says no."""
    if (row.text("valid") or "").lower() in ("false", "0", "no"):
        reason = row.text("flags") or "no reason given"
        yield Flag("marked_invalid", reason, "valid", "the table itself marks this row as not valid")
