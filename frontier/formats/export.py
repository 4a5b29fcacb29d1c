"""Points as rows: what every tabular export writes. SI units; what is not known is an empty cell.

Points in the Prometheus text format, for node_exporter's textfile collector or a push gateway.

Points as CSV, Parquet and Excel files. The last two need a library of an extra each.
"""

import csv
import importlib
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from frontier.errors import UsageError, install_command
from frontier.metrics import Unit, metric
from frontier.model import Decision, Frontier, Point, Verdict

Cell = str | int | float | bool | None
_FORMULA = ("=", "+", "-", "@")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Table:
    """A header and rows under it."""

    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


FIRST = ("deployment", "shape", "isl", "osl", "concurrency", "n", "valid", "on_frontier", "flags")


def table(points: Sequence[Point], frontiers: Sequence[Frontier]) -> Table:
    """One row per point: its setting (mean lengths), then NAME, NAME_low and NAME_high (95 %) of each metric.

    Where a power is known, its watts and whether it was measured or stated come before them. An endless end of an
    interval is empty: there is no such bound. An infinite value stays infinite.
    """
    names = sorted({name for point in points for name in point.metrics}, key=_order)
    on = {(f.deployment, f.shape): f for f in frontiers}
    powered = ("power_w", "power_source") if any(p.power for p in points) else ()
    header = (*FIRST, *powered, *(name + end for name in names for end in ("", "_low", "_high")))
    rows = []
    for p in points:
        frontier = on.get((p.deployment, p.shape))
        cells: list[Cell] = [
            p.deployment, p.shape.label, p.shape.isl.mean, p.shape.osl.mean, p.concurrency, p.n or None, p.valid,
            frontier is not None and p.concurrency in frontier.members, ", ".join(flag.name for flag in p.flags),
        ]  # fmt: skip
        if powered:
            cells += [p.power.watts, p.power.source] if p.power else [None, None]
        for name in names:
            e = p.metrics.get(name)
            cells += [None, None, None] if e is None else [_value(e.value), _end(e.low), _end(e.high)]
        rows.append(tuple(cells))
    return Table(header, tuple(rows))


def _order(name: str) -> tuple[bool, str, float]:
    """Rates and shares first, then each latency from its mean up."""
    of = metric(name)
    return of.quantity is not None, of.quantity or name, of.p or 0.0


def _value(value: float) -> float | None:
    return None if math.isnan(value) else value


def _end(value: float) -> float | None:
    return value if math.isfinite(value) else None


def guarded(text: str) -> str:
    """Text that no spreadsheet takes for a formula: an apostrophe before what would begin one (OWASP's rule).

    Control characters, which can end a cell or a line, become spaces.
    """
    line = _CONTROL.sub(" ", text)
    return f"'{line}" if line.lstrip().startswith(_FORMULA) else line


def unguarded(text: str) -> str:
    """The inverse of `guarded`."""
    return text[1:] if text.startswith("'") and text[1:].lstrip().startswith(_FORMULA) else text


_SUFFIX = {
    Unit.SECONDS: "_seconds",
    Unit.TOKENS_PER_SECOND: "_tokens_per_second",
    Unit.REQUESTS_PER_SECOND: "_requests_per_second",
    Unit.SHARE: "_ratio",
    Unit.TOKENS_PER_SECOND_PER_USER: "_tokens_per_second",
    Unit.DOLLARS_PER_MILLION_TOKENS: "_dollars_per_million_tokens",
    Unit.JOULES_PER_TOKEN: "_joules_per_token",
    Unit.TOKENS_PER_JOULE: "",
}
SETTING = ("deployment", "shape", "concurrency")
_ENDS = {"": "", "_low": " (lower end of the 95 % interval)", "_high": " (upper end of the 95 % interval)"}


def family_name(name: str, end: str = "") -> str:
    """The Prometheus name of a metric: 'p99_ttft' is 'frontier_p99_ttft_seconds'."""
    return f"frontier_{name.replace('.', '_')}{end}{_SUFFIX[metric(name).unit]}"


def prometheus_text(points: Sequence[Point], frontiers: Sequence[Frontier], decisions: Sequence[Decision] = ()) -> str:
    """Gauges by setting, and the operating point of each (deployment, shape) where an SLA decided one."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Points(points, frontiers, decisions))
    return generate_latest(registry).decode()


class _Points(Collector):
    def __init__(self, points: Sequence[Point], frontiers: Sequence[Frontier], decisions: Sequence[Decision]) -> None:
        self.points, self.frontiers, self.decisions = points, frontiers, decisions

    def collect(self) -> Iterable[Metric]:
        """Every family."""
        on = {(f.deployment, f.shape): f for f in self.frontiers}
        requests = GaugeMetricFamily("frontier_point_requests", "Requests behind a point.", labels=SETTING)
        valid = GaugeMetricFamily("frontier_point_valid", "1 when no flag makes it meaningless.", labels=SETTING)
        member = GaugeMetricFamily("frontier_point_on_frontier", "1 when it is not dominated.", labels=SETTING)
        for p in self.points:
            frontier = on.get((p.deployment, p.shape))
            requests.add_metric(_setting(p), p.n)
            valid.add_metric(_setting(p), p.valid)
            member.add_metric(_setting(p), frontier is not None and p.concurrency in frontier.members)
        yield from (requests, valid, member)
        for name in sorted({name for p in self.points for name in p.metrics}):
            yield from self._metric(name)
        yield from self._decided()

    def _metric(self, name: str) -> Iterable[Metric]:
        of = metric(name)
        for end, said in _ENDS.items():
            family = GaugeMetricFamily(family_name(name, end), f"{of.label}{said}.", labels=SETTING)
            for p in self.points:
                if (e := p.metrics.get(name)) is not None:
                    family.add_metric(_setting(p), {"": e.value, "_low": e.low, "_high": e.high}[end])
            yield family

    def _decided(self) -> Iterable[Metric]:
        if not self.decisions:
            return
        labels = ("deployment", "shape")
        chosen = GaugeMetricFamily(
            "frontier_operating_point_concurrency", "The concurrency that keeps the SLA; absent when none does.",
            labels=labels,
        )  # fmt: skip
        verdict = GaugeMetricFamily(
            "frontier_verdict", "1 for the verdict about the SLA, 0 for the others.", labels=(*labels, "verdict")
        )
        for d in self.decisions:
            if d.concurrency is not None:
                chosen.add_metric((d.deployment, d.shape.label), d.concurrency)
            for each in Verdict:
                verdict.add_metric((d.deployment, d.shape.label, each.value), d.verdict is each)
        yield from (chosen, verdict)


def _setting(p: Point) -> tuple[str, str, str]:
    return p.deployment, p.shape.label, str(p.concurrency)


def csv_text(table: Table) -> str:
    """Comma-separated, with a header. Text that a spreadsheet would take for a formula is guarded."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.header)
    writer.writerows([_plain(cell) for cell in row] for row in table.rows)
    return out.getvalue()


def _plain(cell: Cell) -> Cell:
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return guarded(cell) if isinstance(cell, str) else cell


def parquet_bytes(table: Table) -> bytes:
    """One Parquet file; the units are in the columns' metadata. UsageError where pyarrow is not installed."""
    arrow = _library("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    fields, arrays = [], []
    for i, name in enumerate(table.header):
        values = [row[i] for row in table.rows]
        array = arrow.array(values, type=_arrow_type(arrow, values))
        arrays.append(array)
        fields.append(arrow.field(name, array.type, metadata={"unit": _unit(name)} if _unit(name) else None))
    out = io.BytesIO()
    parquet.write_table(arrow.Table.from_arrays(arrays, schema=arrow.schema(fields)), out)
    return out.getvalue()


def _arrow_type(arrow: Any, values: list[Cell]) -> Any:
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool) for value in known):
        return arrow.bool_()
    if known and all(isinstance(value, str) for value in known):
        return arrow.string()
    if known and all(isinstance(value, int) for value in known):
        return arrow.int64()
    return arrow.float64()


def _unit(name: str) -> str:
    """The unit of a metric's column, '' of any other."""
    try:
        return metric(name.removesuffix("_low").removesuffix("_high")).unit.value
    except ValueError:
        return ""


def excel_bytes(table: Table) -> bytes:
    """A workbook: the points, and what each column holds. UsageError where openpyxl is not installed."""
    _library("openpyxl")
    openpyxl: Any = importlib.import_module("openpyxl")
    styles: Any = importlib.import_module("openpyxl.styles")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "points"
    _write(sheet, [table.header, *table.rows], styles)
    sheet.freeze_panes = "F2"
    about = book.create_sheet("columns")
    heads = ("column", "unit", "better", "meaning")
    _write(about, [heads, *(_about(name) for name in table.header if not name.endswith(("_low", "_high")))], styles)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def _write(sheet: Any, rows: list[Any], styles: Any) -> None:
    for i, row in enumerate(rows, 1):
        for j, value in enumerate(row, 1):
            cell = sheet.cell(i, j)
            cell.value = _spelled(value)
            if isinstance(cell.value, str):
                cell.data_type = "s"  # text, whatever it begins with
            if i == 1:
                cell.font = styles.Font(bold=True)


def _spelled(value: Any) -> Any:
    """A workbook has no infinity, and text in it may not begin a formula."""
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    return guarded(value) if isinstance(value, str) else value


_ABOUT = {
    "deployment": "what was measured", "shape": "input/output tokens", "isl": "mean input tokens",
    "osl": "mean output tokens", "concurrency": "requests in flight", "n": "requests behind the figures",
    "valid": "no flag makes the figures meaningless", "on_frontier": "not dominated",
    "flags": "what is wrong or doubtful", "power_w": "watts behind the energy",
    "power_source": "whether the power was measured in the windows or stated in the config",
}  # fmt: skip


def _about(name: str) -> tuple[str, str, str, str]:
    if name in _ABOUT:
        return name, "", "", _ABOUT[name]
    of = metric(name)
    return name, of.unit.value, of.better, f"{of.label}; {name}_low and {name}_high: its 95 % interval"


def _library(name: str) -> ModuleType:
    """The library, or a plain word that it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"this export needs {name}, which is not installed", install_command(name)) from error
