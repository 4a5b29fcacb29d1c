"""A plain CSV table, one operating point a row: what `frontier export --csv` writes, or one written
by hand.

Columns: `concurrency`; `shape` ("1024/256") or `isl` and `osl`; then metrics by our names, in
seconds, tokens per second and shares, or with a unit behind: `p99_ttft_ms`. `n` (requests),
`failed`, `deployment`, `model` and `gpus` if known. Other columns are not read.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from frontier.core.model.loads import POISSON, Arrivals
from frontier.core.model.metrics import metric
from frontier.core.model.points import Flag
from frontier.extras.exchange.checks import least_in_flight, mean_in_flight
from frontier.extras.exchange.column_heads import (
    SCALED,
    UNITS,
    ColumnHead,
    column_name,
    load_head,
    plain_load,
    plain_number,
    read_head,
    ungrouped,
)
from frontier.extras.exchange.results import (
    LONGEST_NAME,
    NO_LENGTHS,
    ImportedFile,
    Result,
    StatedLoad,
    TokenLengths,
    figure,
    gpus_of,
)
from frontier.show.point_rows import unguarded
from frontier.store.documents import Document, Node, foreign_text

_EMPTY = ("", "nan", "none", "null", "n/a", "na", "-", "–", "inf", "infinity")
_FLAG = re.compile(
    r"tp|pp|dp|ep|dcp|.*_parallel(_size)?|quant.*|precision|dtype|max_num_.*|max_batch.*|gpu_memory.*|block_size"
)
"""Columns of flags of a server, whose values may be numbers."""
_NO_FACT = re.compile(
    r"date|time|run|repeat|seed|file|note|remark|comment|^id$|_id$|index|low|high|status|profile|kind|objective|source|verdict|reason|power|frontier"
)
"""Columns of names that say nothing of how a model was served."""
_DERIVED = ("goodput", "attainment", "cost", "energy")
"""Metrics that depend on an SLA, a price or a power that is not in the table."""
_SHAPE = re.compile(
    r"(?:in|isl)?\s*=?\s*(\d{1,9})\s*(?:in)?\s*[/x×:,;|_-]\s*(?:out|osl)?\s*=?\s*(\d{1,9})\s*(?:out)?", re.I
)
_OVER_ROWS = re.compile(
    r"mean|avg|average|median|total|sum|all|overall|max|min|std|stdev|geo_?mean|gmean|summary", re.I
)
"""What stands in the cell of the load where a row sums up the others."""
_READ = frozenset(
    {"concurrency", "in_flight", "rate", "shape", "isl", "osl", "n", "failed", "deployment", "model", "gpus", "valid"}
    | {"flags", "arrivals", "ok", "success_rate"}
)
_SIDES = ("isl", "osl")
_LOADS = ("concurrency", "rate", "in_flight")
_COUNTS = frozenset({*_LOADS, "isl", "osl", "n", "ok", "failed", "gpus"})
_EXPORTED = ("on_frontier", "objectives", "power_w", "power_source")
"""Further columns of our own export."""
NOTES = ("figures are taken as they stand: seconds, tokens per second and shares, unless a column names its unit",)
NO_INTERVALS = "columns of intervals are not imported: a table cannot prove them"


def detect(document: Document) -> bool:
    """Whether it is a table with a concurrency and at least one metric, or one that lies on its
    side.
    """
    table = _as_table(document)
    if table is None:
        return False
    table = _wide(table)
    upright = _upright(table)
    names = _names(_with_units(upright))
    return bool(names - _READ) and (upright is not table or not names.isdisjoint(_LOADS))


def lacks_load(document: Document) -> bool:
    """Whether it is a table with metrics and without a load."""
    names = _names(document) if document.kind == "table" else set()
    return bool(names - _READ) and names.isdisjoint(_LOADS)


def read(document: Document, given: Mapping[str, ColumnHead] | None = None) -> ImportedFile:
    """Every row of the table. `given` are the columns that the user names, by their heads."""
    document = _wide(_as_table(document) or document)
    upright = _upright(document)
    what, example = "column", "as  concurrency,isl,osl,n,output_throughput,p99_ttft_ms"
    if upright is not document:
        what, example = "row", "as  concurrency,1,2,4,8  where the metrics stand below each other"
    document = _with_units(upright)
    columns = _columns(document, given or {})
    if columns.keys().isdisjoint(_LOADS) or not columns.keys() - _READ:
        raise document.top.error(f"the table needs a {what} concurrency and one of a metric", example)
    load = next(columns[name][0] for name in _LOADS if name in columns)
    summed = [row for row in document.objects if _sums_up(row, load)]
    document = replace(document, objects=[row for row in document.objects if row not in summed])
    renamed = [
        Node(row.file, row.where, {name: _plain(name, row.tree[head]) for name, (head, _) in columns.items()})
        for row in document.objects
    ]
    facts = _facts(document, columns)
    renamed = [_with_gpus(row, of) for row, of in zip(renamed, facts, strict=True)]
    results = tuple(_result(row, columns, of) for row, of in zip(renamed, facts, strict=True))
    _require_units(document.top, columns, results)
    sums = [f"{row.where} is left out: it sums up other rows" for row in summed]
    return ImportedFile(document.file, "table", results, (*NOTES, *sums, *_unread(document, columns)))


def _sums_up(row: Node, load: str) -> bool:
    """Whether a row says in the cell of its load, or in another of a row without one, that it sums
    up others.
    """
    cell = str(row.tree[load] or "").strip()
    cells = row.tree.values() if cell.lower() in _EMPTY else (cell,)
    return any(_OVER_ROWS.fullmatch(str(of or "").strip()) for of in cells)


def _with_gpus(row: Node, facts: Mapping[str, str]) -> Node:
    """The row with its number of GPUs, which follows from its columns of TP, PP and DP."""
    gpus = row.count("gpus") or gpus_of(Node(row.file, row.where, facts))
    return Node(row.file, row.where, {**row.tree, "gpus": gpus})


def _plain(name: str, cell: object) -> object:
    if name not in _COUNTS:
        return cell
    text = ungrouped(str(cell or "").strip())
    return plain_load(text, name) if name in _LOADS else text


def _names(document: Document) -> set[str]:
    """What the columns hold that are read."""
    return {head.name for head in map(read_head, document.top.tree) if head is not None}


def _as_table(document: Document) -> Document | None:
    """The document where it is a table; rows or columns of plain values in JSON as one, otherwise
    None. Values one level below a row have both names: 'p99 ttft'.
    """
    if document.kind == "table":
        return document
    if document.kind not in ("json", "lines"):
        return None
    rows = _rows(document)
    flat: list[dict[str, object]] = []
    for row in rows:
        below = {head: value for head, value in row.tree.items() if isinstance(value, Mapping)}
        plain = {str(head): value for head, value in row.tree.items() if head not in below}
        flat.append(plain | {f"{head} | {name}": x for head, value in below.items() for name, x in value.items()})
    if any(isinstance(value, dict | list) for row in flat for value in row.values()):
        return None
    heads = dict.fromkeys(head for row in flat for head in row)
    texts = [{head: "" if (cell := row.get(head)) is None else str(cell) for head in heads} for row in flat]
    return replace(document, kind="table", objects=[Node(r.file, r.where, t) for r, t in zip(rows, texts, strict=True)])


def _rows(document: Document) -> Sequence[Node]:
    """The rows in JSON: its objects, those of its only list with what stands beside it, or those of
    columns, as pandas writes them.
    """
    top = document.top
    if len(document.objects) > 1:
        return document.objects
    listed = [key for key in top.tree if top.items(key)]
    if len(listed) == 1:
        beside = {key: value for key, value in top.tree.items() if not isinstance(value, Mapping | list)}
        return [Node(row.file, row.where, {**beside, **row.tree}) for row in top.items(listed[0])]
    return _of_columns(top) or document.objects


def _of_columns(top: Node) -> list[Node]:
    """The rows of an object of columns, or of rows by their names; none of another."""
    columns: dict[str, Mapping[Any, Any]] = {
        head: dict(enumerate(value)) if isinstance(value, list) else value
        for head, value in top.tree.items()
        if isinstance(value, list | Mapping)
    }
    keys = next((tuple(column) for column in columns.values()), ())
    if not keys or len(columns) < len(top.tree) or any(tuple(column) != keys for column in columns.values()):
        return []
    if not any(map(read_head, map(str, columns))):  # a row by its name, as 'c=16'
        return [Node(top.file, str(name), {**_load_of(str(name), row), **row}) for name, row in columns.items()]
    return [Node(top.file, f"row {key}", {head: of[key] for head, of in columns.items()}) for key in keys]


def _load_of(name: str, row: Mapping[Any, Any]) -> dict[str, str]:
    """The load in the name of a row that states none itself."""
    load, heads = load_head(name), map(read_head, map(str, row))
    return {load[0]: load[1]} if load and all(of is None or of.name not in _LOADS for of in heads) else {}


def _wide(document: Document) -> Document:
    """The table with a row per setting, where it has a row per metric, with its name, and perhaps
    its statistic and unit, in columns of their own.
    """
    heads = {column_name(head): head for head in document.top.tree}
    name = next((heads[head] for head in ("metric", "metric_name", "measure", "variable") if head in heads), None)
    if name is None or "value" not in heads or _names(document) - _READ:
        return document
    more = [heads[head] for head in ("statistic", "stat", "percentile", "quantile") if head in heads]
    parts = {name, heads["value"], *more, *(heads[head] for head in ("unit", "units") if head in heads)}
    rows: dict[tuple[str, ...], Node] = {}
    for row in document.objects:
        kept = {head: str(cell) for head, cell in row.tree.items() if head not in parts}
        cells = rows.setdefault(tuple(kept.values()), Node(row.file, row.where, kept)).tree
        unit = next((str(row.tree[heads[head]]) for head in ("unit", "units") if head in heads), "")
        of = " ".join(str(row.tree[head] or "") for head in (*more, name))
        rows[tuple(kept.values())] = Node(
            row.file,
            row.where,
            {**cells, f"{of} ({unit})" if unit in SCALED else of: row.tree[heads["value"]]},
        )
    every = dict.fromkeys(head for row in rows.values() for head in row.tree)
    return replace(
        document,
        objects=[Node(row.file, row.where, {head: row.tree.get(head, "") for head in every}) for row in rows.values()],
    )


def _upright(document: Document) -> Document:
    """The table with its columns as rows, where the metrics stand below each other in its first
    column, as LLMPerf and people write it.
    """
    first, *others = document.top.tree or ("",)
    if not others:
        return document
    names = [str(row.tree[first] or "").strip() for row in document.objects]
    below = {head.name for head in map(read_head, names) if head is not None}
    if _names(document) - _READ or not below - _READ or len(set(names)) < len(names):
        return document
    stated = [load_head(head) for head in others]
    rows = []
    for head, load in zip(others, stated, strict=True):
        cells = dict(zip(names, (row.tree[head] for row in document.objects), strict=True))
        if read_head(first):  # 'concurrency' before 1, 2, 4
            cells[first] = head
        elif load and all(stated):
            cells[load[0]] = load[1]
        rows.append(Node(document.file, f"column {head!r}", cells))
    return replace(document, objects=rows)


def _with_units(document: Document) -> Document:
    """The table with the units of its first row behind its heads, where that row has nothing else:
    'p99 ttft' above 'ms' is 'p99 ttft (ms)'.
    """
    first = {head: str(cell or "").strip().strip("[]()").lower() for head, cell in document.top.tree.items()}
    units = set(filter(None, first.values()))
    if not units or not units <= UNITS or len(document.objects) < 2:
        return document
    heads = {head: f"{head} ({unit})" if unit in SCALED else head for head, unit in first.items()}
    rows = [Node(r.file, r.where, {heads[head]: r.tree[head] for head in heads}) for r in document.objects[1:]]
    return replace(document, objects=rows)


def _facts(document: Document, columns: Mapping[str, tuple[str, ColumnHead]]) -> list[dict[str, str]]:
    """How each row was served: its cells in columns of flags, and in others that hold names."""
    read = {head for head, _ in columns.values()}
    names = {head: column_name(head) for head in document.top.tree if head.strip() and head not in read}

    def tells(head: str, name: str) -> bool:
        cells = [str(row.tree[head] or "x") for row in document.objects]
        words = not _NO_FACT.search(name) and all(re.search("[A-Za-z]", cell) for cell in cells)
        return words or _FLAG.fullmatch(name) is not None

    heads = {head: name[:40] for head, name in names.items() if tells(head, name)}
    return [{name: fact for head, name in heads.items() if (fact := row.text(head, 40))} for row in document.objects]


def _require_units(top: Node, columns: Mapping[str, tuple[str, ColumnHead]], results: Sequence[Result]) -> None:
    """Ask for the unit of latencies that by Little's law cannot be seconds, but can be
    milliseconds. ForeignFileError.
    """
    latencies = {name: head for name, head in columns.items() if name not in _READ and metric(name).quantity}
    bare = [name for name, (_, head) in latencies.items() if not head.stated]

    def off(result: Result, scale: float) -> bool:
        figures = {name: value * (scale if name in bare else 1.0) for name, value in result.figures.items()}
        return least_in_flight(figures, result.came[1]) > 1.5 * result.concurrency

    wrong = [result for result in results if result.rate is None and off(result, 1.0) and not off(result, 1e-3)]
    if bare and 2 * len(wrong) > len(results):
        head = foreign_text(columns[bare[0]][0], 60)
        value = wrong[0].figures.get(bare[0], math.nan)
        what = f"{wrong[0].place}: {head} of {value:.4g} s does not fit the throughput"
        raise top.error(what, f"is it in ms? call the column {bare[0]}_ms, or give  --columns '{bare[0]}={head}:ms'")


def _columns(document: Document, given: Mapping[str, ColumnHead]) -> dict[str, tuple[str, ColumnHead]]:
    """The head of each column that is read, by what it holds. ForeignFileError where two columns
    hold the same.
    """
    columns: dict[str, tuple[str, ColumnHead]] = {}
    if missing := [head for head in given if head not in document.top.tree]:
        what = f"it has no column {foreign_text(missing[0])!r}"
        raise document.top.error(what, f"its columns: {', '.join(foreign_text(h, 40) for h in document.top.tree)}")
    taken = {of.name for of in given.values()}
    for head in document.top.tree:
        holds = given.get(head) or read_head(head)
        if holds is None or (holds.name in taken and head not in given):
            continue
        if holds.name in columns:
            both = f"{foreign_text(columns[holds.name][0])!r} and {foreign_text(head)!r}"
            raise document.top.error(f"two columns are {holds.name}: {both}", "remove one")
        columns[holds.name] = (head, holds)
    return columns


def _unread(document: Document, columns: Mapping[str, tuple[str, ColumnHead]]) -> tuple[str, ...]:
    """Notes on the columns that are not imported."""
    read = {head for head, _ in columns.values()}
    rest = {head: column_name(head) for head in document.top.tree if head.strip() and head not in read}
    intervals = [head for head, name in rest.items() if name.endswith(("_low", "_high"))]
    known = {*_EXPORTED, *_DERIVED}
    others = [
        foreign_text(head, 40)
        for head, name in rest.items()
        if head not in intervals and name not in known and "_interactivity" not in name
    ]
    notes = [NO_INTERVALS] if intervals else []
    bare = {head: mean for head in rest if not read_head(head) and (mean := read_head(f"mean {head}"))}
    for head, mean in list(bare.items())[:1]:
        column = f"{mean.name}={foreign_text(head, 40)}{'' if mean.stated else ':ms'}"
        notes.append(f"{foreign_text(head, 40)!r} names no statistic: if it is the mean, give  --columns '{column}'")
    if others:
        more = f" and {len(others) - 8} more" if len(others) > 8 else ""
        notes.append(f"columns not read: {', '.join(others[:8])}{more}")
    return tuple(notes)


def _result(row: Node, columns: Mapping[str, tuple[str, ColumnHead]], facts: Mapping[str, str]) -> Result:
    figures: dict[str, float] = {}
    for name in [name for name in columns if name not in _READ]:
        figures |= _cell(row, name, *columns[name])
    n, failed = _counted(row, figures.pop("error_rate", None))
    isl, osl = _lengths(row)
    observed = any("mean" in head or "avg" in head for head in (columns[s][0].lower() for s in _SIDES if s in columns))
    load = _load(row, mean_in_flight(figures, osl))
    return Result(
        load.concurrency,
        figures,
        max(0, (n or 0) - (failed or 0)),
        failed,
        NO_LENGTHS if observed else (isl, osl),
        (isl if observed else None, osl),
        unguarded(row.text("deployment", LONGEST_NAME) or "") or None,
        unguarded(row.text("model", LONGEST_NAME) or "") or None,
        row.count("gpus"),
        load.rate,
        facts,
        flags=tuple(_flags(row)),
        notes=load.notes,
        arrivals=Arrivals(0.0) if row.text("arrivals") == "constant" else POISSON,
        place=row.where,
    )


def _load(row: Node, mean: float | None) -> StatedLoad:
    """The load of a row: its concurrency, its rate, or the mean that was in flight. `mean` is that
    by Little's law. ForeignFileError for a row without any.
    """
    stated, rate, in_flight = (row.number(name) for name in _LOADS)
    if stated and stated > 1 and not stated.is_integer():  # an observed mean
        stated, in_flight = None, in_flight or stated
    if stated and (concurrency := row.count("concurrency")):
        return StatedLoad(concurrency)
    if rate:
        return StatedLoad(max(1, round(in_flight or mean or 1)), rate)
    if in_flight:
        return StatedLoad(max(1, round(in_flight)), None, (f"the concurrency is the mean in flight, {in_flight:.4g}",))
    what = f"{row.where}: concurrency is {row.text('concurrency')!r}"
    raise row.error(what, "write a whole number, 1 or more; or a rate in a column of that name")


def _cell(row: Node, name: str, head: str, holds: ColumnHead) -> dict[str, float]:
    """The value of a cell for its metric. ForeignFileError for text that is neither a number nor
    empty.
    """
    written = str(row.tree[name] or "").strip().lower()
    if written in ("inf", "infinity") and metric(name).quantity:
        return {name: math.inf}
    if written in _EMPTY:
        return {}
    number, unit = plain_number(written, name, stated=holds.stated)
    gpus = row.count("gpus") if holds.per_gpu else 1
    if gpus is None:
        raise row.error(f"{row.where}: {foreign_text(head, 60)!r} needs the number of GPUs", "add a column gpus, or tp")
    row = Node(row.file, row.where, {**row.tree, name: number})
    if row.number(name) is None:
        what = f"{row.where}: {foreign_text(head, 60)} is {row.text(name)!r}, not a number"
        raise row.error(what, "write a number, inf, or nothing")
    return figure(row, name, name, holds.scale * unit * gpus)


def _counted(row: Node, share: float | None) -> tuple[int | None, int | None]:
    """Requests and failed requests, as counts or as a share. ForeignFileError for
    impossible ones.
    """
    n, ok, failed = (row.count(name) for name in ("n", "ok", "failed"))
    if n is not None and ok is not None and failed is None:
        failed = max(0, n - ok)
    n = ok + (failed or 0) if n is None and ok is not None else n
    served = Node(row.file, row.where, {"": (row.text("success_rate") or "").removesuffix("%").strip()}).number("")
    if share is None and served is not None:
        share = 1 - (served / 100 if served > 1 else served)
    if share is not None and share > 1:
        raise row.error(f"{row.where}: error_rate is {share:g}, above 1", "call a column of percent error_rate_pct")
    if n is not None and failed is not None and failed > n:
        raise row.error(f"{row.where}: {failed:,} of {n:,} requests failed", "n counts all requests, failed ones too")
    if failed is None and share is not None and n:
        failed = round(share * n)
    return n, failed


def _lengths(row: Node) -> TokenLengths:
    """Input and output tokens, from the shape or from their columns."""
    if shape := _SHAPE.fullmatch(row.text("shape") or ""):
        return float(shape[1]), float(shape[2])
    for side in _SIDES:
        if re.fullmatch(r"[1-9]\.[0-9]{3}", written := row.text(side) or ""):
            what = f"{row.where}: {side} is {written}, a thousand or so with a dot in it"
            raise row.error(what, f"write {written.replace('.', '')}, and other numbers without dots between thousands")
    return row.number("isl"), row.number("osl")


def _flags(row: Node) -> Iterator[Flag]:
    """The flag of a row whose own column `valid` says no."""
    if (row.text("valid") or "").lower() in ("false", "0", "no"):
        reason = row.text("flags") or "no reason given"
        yield Flag("marked_invalid", reason, "valid", "the table itself marks this row as not valid")
