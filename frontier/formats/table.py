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

from frontier.formats.documents import Document, Node, foreign_text
from frontier.formats.export import unguarded
from frontier.formats.results import ImportedFile, Result
from frontier.formats.statements import Stated, agreed, identity_flags, statements
from frontier.metrics import Unit, metric
from frontier.model import Flag

_UNITS = {
    Unit.SECONDS: {"_ms": 1e-3, "_us": 1e-6, "_s": 1.0, "_ns": 1e-9},
    Unit.SHARE: {"_pct": 0.01, "_percent": 0.01},
}
_EMPTY = ("", "nan", "none", "null", "-", "–", "inf", "infinity")
_DERIVED = ("goodput", "attainment", "cost", "energy", "tokens_per_joule")
"""Metrics that hold for an SLA, a price or a power that is not in the table."""
_SHAPE = re.compile(r"(\d{1,9})\s*/\s*(\d{1,9})")
_READ = ("concurrency", "shape", "isl", "osl", "n", "failed", "deployment", "model", "gpus", "valid", "flags")
_EXPORTED = ("on_frontier", "power_w", "power_source")
"""What else our own export has."""
NOTES = ("figures are taken as they stand: seconds, tokens per second and shares, unless a column names its unit",)
NO_INTERVALS = "columns of intervals are not imported: a table cannot prove them"
_CORRECT = "remove or correct one of the two"


def detect(document: Document) -> bool:
    """Whether it is a table with a concurrency and at least one metric."""
    names = [_column_name(head) for head in document.objects[0].tree] if document.kind == "table" else []
    return "concurrency" in names and any(map(_column, names))


def read(document: Document) -> ImportedFile:
    """Every row of the table."""
    rows = document.rows
    heads = _heads(document, document.objects[0].tree)
    columns = {name: column for name in heads if (column := _column(name))}
    if "concurrency" not in heads or not columns:
        example = "as  concurrency,isl,osl,n,output_throughput,p99_ttft_ms"
        raise document.top.error("the table needs a column concurrency and one of a metric", example)
    renamed = [Node(row.file, row.where, {name: row.tree.get(head) for name, head in heads.items()}) for row in rows]
    results = tuple(_result(row, heads, columns) for row in renamed)
    return ImportedFile(document.file, "table", results, (*NOTES, *_unread(heads, columns)))


def _column_name(head: str) -> str:
    """A column's head in our spelling: 'P99 TTFT (ms)' as 'p99_ttft_ms'."""
    return re.sub(r"[\s()\[\]-]+", "_", head.strip().lower()).strip("_")


def _heads(document: Document, header: Mapping[str, object]) -> dict[str, str]:
    """The heads of the file by our spelling. ForeignFileError where two are one column."""
    heads: dict[str, str] = {}
    for head in header:
        name = _column_name(head)
        if name in heads and (name in _READ or _column(name)):
            both = f"{foreign_text(heads[name])!r} and {foreign_text(head)!r}"
            raise document.top.error(f"two columns are {name}: {both}", "remove one")
        heads[name] = head
    return heads


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
        if of.name in _DERIVED or of.inverted or (suffix and suffix not in known):
            return None
        return (of.name if of.p is None else f"p{of.p * 100:g}_{of.quantity}"), known.get(suffix, 1.0)
    return None


def _unread(heads: Mapping[str, str], columns: Mapping[str, object]) -> tuple[str, ...]:
    """Notes on the columns that are not imported."""
    intervals = [name for name in heads if name.endswith(("_low", "_high"))]
    known = {*_READ, *_EXPORTED, *columns, *intervals, *_DERIVED}
    others = [
        foreign_text(head, 40)
        for name, head in heads.items()
        if head.strip() and name not in known and "_interactivity" not in name
    ]
    notes = [NO_INTERVALS] if intervals else []
    if others:
        more = f" and {len(others) - 8} more" if len(others) > 8 else ""
        notes.append(f"columns not read: {', '.join(others[:8])}{more}")
    return tuple(notes)


def _result(row: Node, heads: Mapping[str, str], columns: Mapping[str, tuple[str, float]]) -> Result:
    concurrency = row.count("concurrency")
    if not concurrency:
        what = f"{row.where}: concurrency is {row.text('concurrency')!r}"
        raise row.error(what, "write a whole number, 1 or more")
    stated: list[Stated] = []
    for column, (name, scale) in columns.items():
        stated += _cell(row, column, f"{row.where}: {foreign_text(heads[column], 60)}", name, scale)
    figures = agreed(row, stated)
    n, failed = _counted(row, figures.pop("error_rate", None))
    isl, osl = _lengths(row)
    facts = {key: unguarded(name) for key, name in row.facts("deployment", "model").items()}
    gpus = row.count("gpus")
    return Result(
        concurrency,
        figures,
        max(0, (n or 0) - (failed or 0)),
        failed,
        isl,
        osl,
        isl is not None and osl is not None,
        facts=facts | ({"gpus": str(gpus)} if gpus else {}),
        gpus=gpus,
        flags=(*identity_flags(figures, osl), *_flags(row)),
        place=row.where,
    )


def _cell(row: Node, column: str, place: str, name: str, scale: float) -> list[Stated]:
    """What a cell states of its metric. ForeignFileError for what is neither a number nor empty."""
    written = str(row.tree.get(column) or "").strip().lower()
    if written in ("inf", "infinity") and metric(name).quantity:
        return [Stated(name, math.inf, place)]
    if row.number(column) is None and written not in _EMPTY:
        raise row.error(f"{place} is {row.text(column)!r}, not a number", "write a number, inf, or nothing")
    return statements(row, column, name, scale, place)


def _counted(row: Node, share: float | None) -> tuple[int | None, int | None]:
    """Requests, and failed ones, as counted or as their share. ForeignFileError where these
    contradict.
    """
    n, failed = row.count("n"), row.count("failed")
    if share is not None and share > 1:
        raise row.error(f"{row.where}: error_rate is {share:g}, above 1", "call a column of percent error_rate_pct")
    if n is not None and failed is not None and failed > n:
        raise row.error(f"{row.where}: {failed:,} of {n:,} requests failed", "n counts all requests, failed ones too")
    if share is not None and n and failed is not None and abs(failed / n - share) > 0.5 / n + 0.005:
        raise row.error(f"{row.where}: error_rate says {share:.2%} and failed {failed:,} of {n:,}", _CORRECT)
    if failed is None and share is not None and n:
        failed = round(share * n)
    return n, failed


def _lengths(row: Node) -> tuple[float | None, float | None]:
    """Input and output tokens, from their columns or from the shape. ForeignFileError where the two
    differ.
    """
    isl, osl = row.number("isl"), row.number("osl")
    shape = _SHAPE.fullmatch(row.text("shape") or "")
    if shape is None:
        return isl or None, osl or None
    for name, length, written in (("isl", isl, shape[1]), ("osl", osl, shape[2])):
        if length and length != float(written):
            raise row.error(f"{row.where}: shape says {shape[0]} and {name} says {length:g}", _CORRECT)
    return float(shape[1]), float(shape[2])


def _flags(row: Node) -> Iterator[Flag]:
    """The flag of a row whose own column `valid` says no."""
    if (row.text("valid") or "").lower() in ("false", "0", "no"):
        reason = row.text("flags") or "no reason given"
        yield Flag("marked_invalid", reason, "valid", "the table itself marks this row as not valid")
