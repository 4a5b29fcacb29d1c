"""A plain table, CSV, of one operating point a row: what `frontier export --csv` writes, or anybody by hand.

Columns: `concurrency`; `shape` ("1024/256") or `isl` and `osl`; then metrics by our names, in seconds, tokens per
second and shares, or with a unit behind: `p99_ttft_ms`. `n` (requests), `failed`, `deployment`, `model` and `gpus` if
known. Columns that say something else are not read.
"""

import math
import re
from collections.abc import Mapping

from frontier.exchange.documents import Document, Node
from frontier.exchange.found import Found, Result, identity_flags
from frontier.exchange.rows import unguarded
from frontier.metrics import metric
from frontier.model import Flag

_UNITS = {"_ms": 1e-3, "_us": 1e-6, "_s": 1.0, "_pct": 0.01}
_NOTHING = ("", "nan", "none", "null", "-", "–", "inf", "infinity")
_DERIVED = ("goodput", "attainment", "cost", "energy", "tokens_per_joule")
"""Metrics that hold for an SLA, a price or a power that a table does not say."""
_SHAPE = re.compile(r"(\d{1,9})\s*/\s*(\d{1,9})")
DIFFERENT = ("figures are taken as they stand: seconds, tokens per second and shares, unless a column names its unit",)
DOUBT = "columns of intervals are not taken over: a table cannot prove them"


def claims(document: Document) -> bool:
    """A table with a concurrency and at least one metric."""
    first = next(document.nodes(), None)
    if document.kind != "table" or first is None:
        return False
    return "concurrency" in first.tree and any(_column(name) for name in first.tree)


def _column(name: str) -> tuple[str, float] | None:
    """The metric a column holds and the factor to its own unit; None for another column."""
    for unit, scale in (("", 1.0), *_UNITS.items()):
        bare = name.removesuffix(unit)
        if unit and bare == name:
            continue
        try:
            of = metric(bare)
        except ValueError:
            continue
        if of.name in _DERIVED or of.inverted:
            return None
        return of.name, scale
    return None


def read(document: Document) -> Found:
    """Every row."""
    rows = list(document.nodes())
    header: Mapping[str, object] = rows[0].tree if rows else {}
    columns = {name: found for name in header if (found := _column(name))}
    if "concurrency" not in header or not columns:
        raise document.top.wrong(
            "the table needs a column concurrency and one of a metric",
            "as  concurrency,isl,osl,n,output_throughput,p99_ttft_ms",
        )
    doubted = any(name.endswith(("_low", "_high")) for name in header)
    results = tuple(_result(node, columns) for node in rows)
    return Found(document.file, "table", results, notes=(*DIFFERENT, *((DOUBT,) if doubted else ())))


def _result(node: Node, columns: Mapping[str, tuple[str, float]]) -> Result:
    concurrency = node.count("concurrency")
    if not concurrency:
        raise node.wrong(
            f"{node.where}: concurrency is {node.words('concurrency')!r}", "write a whole number, 1 or more"
        )
    figures = {}
    for name, (ours, scale) in columns.items():
        written = str(node.tree.get(name) or "").strip().lower()
        value = math.inf if written in ("inf", "infinity") and metric(ours).quantity else node.number(name)
        if value is None and written not in _NOTHING:
            raise node.wrong(
                f"{node.where}: {name} is {node.words(name)!r}, not a number", "write a number, inf, or nothing"
            )
        if value is not None:
            figures[ours] = value * scale
    share = figures.pop("error_rate", None)
    n = node.count("n")
    failed = node.count("failed")
    if failed is None and share is not None and n:
        failed = round(share * n)
    isl, osl = _lengths(node)
    stated = isl is not None and osl is not None
    facts = {key: unguarded(said) for key in ("deployment", "model") if (said := node.words(key)) is not None}
    return Result(
        concurrency, figures, max(0, (n or 0) - (failed or 0)), failed, isl, osl, stated, facts=facts,
        model=facts.get("model"), gpus=node.count("gpus"),
        flags=(*identity_flags(figures, osl), *_flags(node)),
    )  # fmt: skip


def _lengths(node: Node) -> tuple[float | None, float | None]:
    isl, osl = node.number("isl"), node.number("osl")
    if isl and osl:
        return isl, osl
    found = _SHAPE.fullmatch(node.words("shape") or "")
    return (float(found[1]), float(found[2])) if found else (None, None)


def _flags(node: Node) -> tuple[Flag, ...]:
    """A row whose own column `valid` says no stays out."""
    if (node.words("valid") or "").lower() not in ("false", "0", "no"):
        return ()
    said = node.words("flags") or "no reason given"
    return (Flag("marked_invalid", said, "valid", "the table itself marks this row as not valid"),)
