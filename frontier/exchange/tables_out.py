"""Points as CSV, Parquet and Excel files. The last two need a library of an extra each."""

import csv
import importlib
import io
import math
from types import ModuleType
from typing import Any

from frontier.errors import MisaskedError, install_command
from frontier.exchange.rows import Cell, Table, guarded
from frontier.metrics import metric


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
    """One Parquet file; the units are in the columns' metadata. MisaskedError where pyarrow is not installed."""
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
    """A workbook: the points, and what each column holds. MisaskedError where openpyxl is not installed."""
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
        raise MisaskedError(f"this export needs {name}, which is not installed", install_command(name)) from error
