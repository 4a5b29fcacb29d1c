"""A plain table, CSV, of one operating point a row: what `frontier export --csv` writes, or anybody by hand.

Columns: `concurrency`; `shape` ("1024/256") or `isl` and `osl`; then metrics by our names, in seconds, tokens per
second and shares, or with a unit behind: `p99_ttft_ms`. `n` (requests), `failed`, `deployment`, `model` and `gpus` if
known. Columns that say something else are not read.
"""

import itertools
import math
import re
from collections.abc import Mapping

from frontier.formats.documents import Document, Node, text
from frontier.formats.export import unguarded
from frontier.formats.figures import Stated, agreed, statements
from frontier.formats.found import Found, Result, identity_flags
from frontier.metrics import Unit, metric
from frontier.model import Flag

_UNITS = {
    Unit.SECONDS: {"_ms": 1e-3, "_us": 1e-6, "_s": 1.0, "_ns": 1e-9},
    Unit.SHARE: {"_pct": 0.01, "_percent": 0.01},
}
_NOTHING = ("", "nan", "none", "null", "-", "–", "inf", "infinity")
_DERIVED = ("goodput", "attainment", "cost", "energy", "tokens_per_joule")
"""Metrics that hold for an SLA, a price or a power that a table does not say."""
_SHAPE = re.compile(r"(\d{1,9})\s*/\s*(\d{1,9})")
DIFFERENT = ("figures are taken as they stand: seconds, tokens per second and shares, unless a column names its unit",)
DOUBT = "columns of intervals are not taken over: a table cannot prove them"


_READ = ("concurrency", "shape", "isl", "osl", "n", "failed", "deployment", "model", "gpus", "valid", "flags")
_OURS = ("on_frontier", "power_w", "power_source")
"""What else an export of ours has."""


def claims(document: Document) -> bool:
    """A table with a concurrency and at least one metric."""
    first = next(document.nodes(), None)
    if document.kind != "table" or first is None:
        return False
    names = [_plain(name) for name in first.tree]
    return "concurrency" in names and any(_column(name) for name in names)


def _plain(head: str) -> str:
    """A column's head in our spelling: 'P99 TTFT (ms)' as 'p99_ttft_ms'."""
    return re.sub(r"[\s()\[\]-]+", "_", head.strip().lower()).strip("_")


def _heads(document: Document, header: Mapping[str, object]) -> dict[str, str]:
    """Our spelling of each head, with what the file wrote. ForeignFileError where two are one column."""
    found: dict[str, str] = {}
    for head in header:
        name = _plain(head)
        if name in found and (name in _READ or _column(name)):
            raise document.top.wrong(f"two columns are {name}: {text(found[name])!r} and {text(head)!r}", "remove one")
        found[name] = head
    return found


def _column(name: str) -> tuple[str, float] | None:
    """The metric a column holds, one name for each, and the factor to its own unit; None for another column."""
    for unit in ("", *itertools.chain(*_UNITS.values())):
        bare = name.removesuffix(unit)
        if unit and bare == name:
            continue
        try:
            of = metric(bare)
        except ValueError:
            continue
        if of.name in _DERIVED or of.inverted:
            return None
        if unit and unit not in _UNITS.get(of.unit, ()):
            return None
        return (of.name if of.p is None else f"p{of.p * 100:g}_{of.quantity}"), _UNITS.get(of.unit, {}).get(unit, 1.0)
    return None


def read(document: Document) -> Found:
    """Every row."""
    rows = list(document.nodes())
    heads = _heads(document, rows[0].tree if rows else {})
    columns = {name: found for name in heads if (found := _column(name))}
    if "concurrency" not in heads or not columns:
        raise document.top.wrong(
            "the table needs a column concurrency and one of a metric",
            "as  concurrency,isl,osl,n,output_throughput,p99_ttft_ms",
        )
    results = tuple(
        _result(Node(row.file, row.where, {name: row.tree.get(head) for name, head in heads.items()}), heads, columns)
        for row in rows
    )
    return Found(document.file, "table", results, notes=(*DIFFERENT, *_unread(heads, columns)))


def _unread(heads: Mapping[str, str], columns: Mapping[str, object]) -> tuple[str, ...]:
    """What to know of columns that are not taken over."""
    doubted = [name for name in heads if name.endswith(("_low", "_high"))]
    others = [
        text(head, 40) for name, head in heads.items()
        if head.strip() and name not in (*_READ, *_OURS, *columns, *doubted, *_DERIVED) and "_interactivity" not in name
    ]  # fmt: skip
    found = [DOUBT] if doubted else []
    if others:
        more = f" and {len(others) - 8} more" if len(others) > 8 else ""
        found.append(f"columns not read: {', '.join(others[:8])}{more}")
    return tuple(found)


def _result(node: Node, heads: Mapping[str, str], columns: Mapping[str, tuple[str, float]]) -> Result:
    concurrency = node.count("concurrency")
    if not concurrency:
        raise node.wrong(
            f"{node.where}: concurrency is {node.words('concurrency')!r}", "write a whole number, 1 or more"
        )
    said: list[Stated] = []
    for column, (ours, scale) in columns.items():
        said += _cell(node, column, f"{node.where}: {text(heads[column], 60)}", ours, scale)
    figures = agreed(node, said)
    share = figures.pop("error_rate", None)
    n, failed = _counted(node, share)
    isl, osl = _lengths(node)
    facts = {key: unguarded(name) for key in ("deployment", "model") if (name := node.fact(key)) is not None}
    gpus = node.count("gpus")
    model = facts.get("model")
    return Result(
        concurrency, figures, max(0, (n or 0) - (failed or 0)), failed, isl, osl, isl is not None and osl is not None,
        facts=facts | ({"gpus": str(gpus)} if gpus else {}), model=model, gpus=gpus,
        flags=(*identity_flags(figures, osl), *_flags(node)), place=node.where,
    )  # fmt: skip


def _cell(node: Node, name: str, place: str, ours: str, scale: float) -> list[Stated]:
    """What a cell says of its metric; ForeignFileError for what is neither a number nor nothing."""
    written = str(node.tree.get(name) or "").strip().lower()
    if written in ("inf", "infinity") and metric(ours).quantity:
        return [Stated(ours, math.inf, place)]
    if node.number(name) is None and written not in _NOTHING:
        raise node.wrong(f"{place} is {node.words(name)!r}, not a number", "write a number, inf, or nothing")
    return statements(node, name, ours, scale, place)


def _counted(node: Node, share: float | None) -> tuple[int | None, int | None]:
    """Requests, and those that failed, as counted or as their share. ForeignFileError where these contradict."""
    n, failed = node.count("n"), node.count("failed")
    if share is not None and share > 1:
        raise node.wrong(f"{node.where}: error_rate is {share:g}, above 1", "call a column of percent error_rate_pct")
    if n is not None and failed is not None and failed > n:
        raise node.wrong(f"{node.where}: {failed:,} of {n:,} requests failed", "n counts all requests, failed ones too")
    if share is not None and n and failed is not None and abs(failed / n - share) > 0.5 / n + 0.005:
        raise node.wrong(
            f"{node.where}: error_rate says {share:.2%} and failed {failed:,} of {n:,}",
            "remove or correct one of the two",
        )
    if failed is None and share is not None and n:
        failed = round(share * n)
    return n, failed


def _lengths(node: Node) -> tuple[float | None, float | None]:
    """Input and output tokens, from their columns or from the shape. ForeignFileError where the two differ."""
    isl, osl = node.number("isl"), node.number("osl")
    found = _SHAPE.fullmatch(node.words("shape") or "")
    if found is None:
        return isl or None, osl or None
    for name, there, written in (("isl", isl, found[1]), ("osl", osl, found[2])):
        if there and there != float(written):
            raise node.wrong(
                f"{node.where}: shape says {found[0]} and {name} says {there:g}", "remove or correct one of the two"
            )
    return float(found[1]), float(found[2])


def _flags(node: Node) -> tuple[Flag, ...]:
    """A row whose own column `valid` says no stays out."""
    if (node.words("valid") or "").lower() not in ("false", "0", "no"):
        return ()
    said = node.words("flags") or "no reason given"
    return (Flag("marked_invalid", said, "valid", "the table itself marks this row as not valid"),)
