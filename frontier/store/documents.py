"""A foreign file as bounded data: JSON, JSON lines, YAML or CSV, and checked look-ups in it.

What other tools wrote is hostile until checked: numbers may be text, negative or infinite, text may
hold anything.
"""

import codecs
import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import yaml

from frontier.client.secrets import redact
from frontier.core.model.errors import UsageError
from frontier.core.model.text import one_line, shortened
from frontier.core.model.units import MOST_COUNT
from frontier.fields import is_number

MOST_BYTES = 256 * 2**20
MOST_ROWS = 1_000_000
LONGEST_TEXT = 80
LARGEST = 1e15
"""No time, count or rate is above this."""
INCOMPLETE = "check that the file is complete"
"""The hint of most errors about a value."""


def foreign_text(value: str, longest: int = LONGEST_TEXT) -> str:
    """Text of a foreign file as one clean line, with what looks like a key masked, cut."""
    return shortened(redact(one_line(value)), longest)


class ForeignFileError(UsageError):
    """A foreign file that cannot be used: which file, what is wrong where, and what to do."""

    def __init__(self, file: str, what: str, hint: str | None = None) -> None:
        super().__init__(f"{foreign_text(file, 300)}: {foreign_text(what, 1_000)}", hint)


@dataclass(frozen=True, slots=True)
class Document:
    """One file, parsed. `kind` is 'json', 'lines', 'table', 'yaml', 'metrics' or 'summary'.

    `objects` are the JSON object, or the items of a JSON list, of JSON lines, YAML documents or a
    table; never none. 'metrics' are tables of a metric a row, by its name; a 'summary' is lines of
    a name and a value, all as one object.
    """

    file: str
    kind: str
    objects: Sequence["Node"]

    @classmethod
    def listed(cls, file: str, kind: str, what: str, rows: Iterable[tuple[int, Any]]) -> "Document":
        """The document of numbered rows; messages call each row `what`. A row that is not an object
        is read as an empty one.
        """
        nodes = [Node(file, f"{what} {number}", row if isinstance(row, Mapping) else {}) for number, row in rows]
        return cls(file, kind, nodes or [Node(file, "", {})])

    @property
    def top(self) -> "Node":
        """The JSON object, or the first row."""
        return self.objects[0]


@dataclass(frozen=True, slots=True)
class Node:
    """An object inside a foreign file, read by key; a look-up of an impossible value refuses the
    file.
    """

    file: str
    where: str
    tree: Mapping[str, Any]

    def at(self, *keys: str) -> "Node":
        """The object below; an empty one where there is none."""
        below: Any = self.tree
        for key in keys:
            below = below.get(key) if isinstance(below, Mapping) else None
        return Node(self.file, self.place(*keys), below if isinstance(below, Mapping) else {})

    def items(self, key: str) -> list["Node"]:
        """The objects of a list below; none where there is no list."""
        listed = self.tree.get(key)
        if not isinstance(listed, list):
            return []
        place = self.place(key)
        return [Node(self.file, f"{place}[{i}]", item) for i, item in enumerate(listed) if isinstance(item, Mapping)]

    def number(self, key: str) -> float | None:
        """A number of 0 or more; None without one, and for the -1 that many tools write instead.
        Text that spells a number counts (tables, metadata).
        """
        value = self.tree.get(key)
        if isinstance(value, str):
            with suppress(ValueError):
                value = float(value)
        if not is_number(value) or (isinstance(value, float) and not math.isfinite(value)) or value == -1:
            return None
        if not 0 <= value <= LARGEST:
            raise self._impossible(key, value)
        return float(value)

    def count(self, key: str) -> int | None:
        """A whole number of 0 or more; None where there is none."""
        value = self.number(key)
        if value is None:
            return None
        if value != int(value) or value > MOST_COUNT:
            raise self._impossible(key, value, "which is impossible" if value == int(value) else "not a whole number")
        return int(value)

    def text(self, key: str, longest: int = LONGEST_TEXT) -> str | None:
        """Text, cleaned and cut; None where there is none."""
        value = self.tree.get(key)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return None
        return foreign_text(str(value)[: 10 * longest], longest) or None

    def numbers(self, key: str) -> list[float]:
        """A list of finite numbers; empty without a list, or where an item is not a number."""
        value = self.tree.get(key)
        if not isinstance(value, list) or not all(is_number(x) and abs(x) <= LARGEST for x in value):
            return []
        return [float(x) for x in value]

    def error(self, what: str, hint: str | None = None) -> ForeignFileError:
        """The error about this file."""
        return ForeignFileError(self.file, what, hint)

    def place(self, *keys: str) -> str:
        """The place of the value in the file, as 'line 3.p99_ttft_ms'."""
        return ".".join([part for part in (self.where, *keys) if part])

    def _impossible(self, key: str, value: float, why: str = "which is impossible") -> ForeignFileError:
        shown = f"{value:.6g}" if abs(value) < 1e300 else "a number out of range"
        return self.error(f"{self.place(key)} is {shown}, {why}", INCOMPLETE)


# --- bytes to documents


def read_document(file: str, data: bytes) -> Document:
    """The parsed bytes of a file. ForeignFileError when they are damaged, or of no known form."""
    return parsed(file, decoded(file, data))


def decoded(file: str, data: bytes) -> str:
    """The text of a file. Whoever lets go of `data` before `parsed` needs its memory only once."""
    if data[:4] == b"PK\x03\x04":
        raise ForeignFileError(file, "a zip or an Excel file", "unpack it, or save its sheet as CSV")
    try:
        if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return data.decode("utf-16")
        if b"\0" in data[:2]:  # of plain letters every other byte is 0
            return data.decode("utf-16-le" if data[1:2] == b"\0" else "utf-16-be")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        hint = "unpack it first if it is compressed, else save it as UTF-8"
        raise ForeignFileError(file, f"byte {error.start} is not {error.encoding.upper()} text", hint) from None


def parsed(file: str, text: str) -> Document:
    """The parsed text of a file. ForeignFileError when it is of no known form."""
    first = text.lstrip()[:1]
    if not first:
        raise ForeignFileError(file, "the file is empty", "check that the benchmark finished")
    if re.match(r"\s*<(?:!doctype|html|\?xml)", text, re.IGNORECASE):
        raise ForeignFileError(file, "a page in HTML or XML, no result", "download the file itself")
    if first in "{[":
        return _json_document(file, text)
    if re.search(r"^(version|benchmarks)\s*:", text, re.MULTILINE):
        return _yaml_document(file, text)
    if blocks := _SUMMARY.split(text)[1:]:
        return Document.listed(file, "summary", "block", enumerate(map(_pairs, blocks), 1))
    if re.match(r"\s*Metric\s*,", text):
        return _metrics(file, text)
    return _table(file, text)


_SUMMARY = re.compile(r"^\s*(?:=+ *\n *MLPerf Results Summary|=+ Serving Benchmark Result =+) *$", re.MULTILINE)
"""Where a summary begins in what a tool prints."""


def _pairs(text: str) -> dict[str, str]:
    """The names and values of lines such as 'Mean TTFT (ms):  72.0'."""
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _json_document(file: str, text: str) -> Document:
    """JSON, or JSON lines and other values one after the other."""
    try:
        tree = _parse_json(text)
    except ValueError as error:
        return Document.listed(file, "lines", "line", _json_lines(file, text, str(error)))
    if isinstance(tree, dict):
        return Document(file, "json", [Node(file, "", tree)])
    return Document.listed(file, "json", "item", enumerate(tree, 1))


def _json_lines(file: str, text: str, as_a_whole: str) -> list[tuple[int, Any]]:
    """The values one after the other, by the line that each begins in. `as_a_whole` is why the text
    is not one of JSON.
    """
    rows: list[tuple[int, Any]] = []
    _require_rows(file, text)
    decoder, place, number = json.JSONDecoder(), 0, 1
    while found := _NOT_SPACE.search(text, place):
        number += text.count("\n", place, found.start())
        try:
            value, place = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError) as error:
            words = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            why = f"line {number} is not JSON: {words}" if rows else f"not JSON: {as_a_whole}"
            raise ForeignFileError(file, foreign_text(why, 120), INCOMPLETE) from None
        rows.append((number, value))
        number += text.count("\n", found.start(), place)
    return rows


_NOT_SPACE = re.compile(r"\S")


def _parse_json(text: str) -> Any:
    """The value of a JSON text, which may hold the Infinity and NaN that Python writes. ValueError
    otherwise.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _require_rows(file: str, text: str) -> None:
    if text.count("\n") > MOST_ROWS:
        raise ForeignFileError(file, f"more than {MOST_ROWS:,} lines", "import the tool's summary, or a part of it")


class _WithoutAliases(yaml.SafeLoader):
    """Refuses aliases: a few lines of them can describe a tree of any size."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise ValueError("its aliases are to be written out")
        return super().compose_node(parent, index)


def _yaml_document(file: str, text: str) -> Document:
    """YAML, for llm-d's reports and GuideLLM's, whose writer makes aliases of equal parts."""
    try:
        loader = yaml.SafeLoader if re.search(r"^benchmarks\s*:", text, re.MULTILINE) else _WithoutAliases
        trees = list(yaml.load_all(text, loader))
    except (yaml.YAMLError, ValueError, RecursionError, TypeError) as error:
        raise ForeignFileError(file, f"not YAML: {foreign_text(str(error), 120)}", INCOMPLETE) from None
    return Document.listed(file, "yaml", "document", enumerate(trees, 1))


def _table(file: str, text: str) -> Document:
    """Values with a header, between commas, semicolons, tabs or a page's bars. Before it may be a
    title, and lines that begin with #.
    """
    _require_rows(file, text)
    lines = text.splitlines(keepends=True)
    page = [line for line in lines if line.lstrip().startswith("|")]
    lines = _of_a_page(page) if page[2:] else lines
    before = next((i for i, line in enumerate(lines) if _has_cells(line)), 0)
    between = max(",;\t|", key=lines[before].count)
    reader = csv.reader(lines[before:], strict=True, delimiter=between)
    rows: list[tuple[int, Mapping[str, str]]] = []
    try:
        heads = _heads(file, reader)
        for cells in reader:
            number = before + reader.line_num
            if [cell.strip() for cell in cells] == heads:  # as in tables that are put together
                continue
            if cells and len(cells) != len(heads):
                what = f"line {number} has more or fewer cells than the header"
                raise ForeignFileError(file, what, f"{INCOMPLETE}; cells that hold commas are quoted")
            rows += [(number, dict(zip(heads, cells, strict=True)))] if cells else []
        rows = _with_points(rows) if between in ";\t|" and _has_decimal_commas(rows, between) else rows
    except csv.Error as error:
        raise ForeignFileError(file, f"not a CSV table: {foreign_text(str(error), 100)}", INCOMPLETE) from None
    return Document.listed(file, "table", "line", rows)


def _has_cells(line: str) -> bool:
    """Whether a line has two cells: it is no title, no comment and not empty."""
    return not line.lstrip().startswith("#") and sum(map(bool, map(str.strip, re.split(r"[,;\t|]", line)))) > 1


def _heads(file: str, rows: Iterator[list[str]]) -> list[str]:
    """The heads of a table. Where two are alike and no number follows, they go on in the next rows:
    'Time to First Token | Successful ms | Mean' of GuideLLM's.
    """
    heads = [head.strip() for head in next(rows, [])]
    while len(named := [head for head in heads if head]) > len(set(named)):
        below = [cell.strip() for cell in next(rows, [])]
        if len(below) != len(heads) or any(re.match(r"[-+.]?\d", cell) for cell in below):
            raise ForeignFileError(file, "two columns have one name", "rename one")
        heads = [" | ".join(filter(None, pair)) for pair in zip(heads, below, strict=True)]
    return heads


def _metrics(file: str, text: str) -> Document:
    """Tables of one metric a row, each below a row of heads that begins with 'Metric'."""
    found: dict[str, Mapping[str, str]] = {}
    heads: list[str] = []
    for cells in csv.reader(text.splitlines()):
        if cells and cells[0].strip() == "Metric":
            heads = cells
        elif cells and len(cells) == len(heads):
            found[cells[0].strip()] = dict(zip(heads, (cell.replace(",", "") for cell in cells), strict=True))
    return Document(file, "metrics", [Node(file, "", found)])


_DECIMAL_COMMA = re.compile(r"(?<![\w.,])-?\d+(?:\.\d{3})*,\d+(?![\d.,])")
_THOUSANDS_POINT = re.compile(r"(?<![\w.,])-?\d{1,3}(?:\.\d{3})+(?![\d.,])")


def _has_decimal_commas(rows: list[tuple[int, Mapping[str, str]]], between: str) -> bool:
    """Whether some cell has a comma that parts no thousands, and none a point behind a comma. Where
    each comma could part thousands, they do so between tabs, and beside decimal points.
    """
    cells = [cell.strip() for _, row in rows for cell in row.values()]
    if any(re.match(r"-?[\d,]+,\d{3}\.\d+", cell) for cell in cells):
        return False
    if any(re.match(r"-?\d+(?:\.\d{3})*,(?:\d\d?|\d{4,})(?![\d.,])", cell) for cell in cells):
        return True
    with_points = any(re.match(r"-?\d+\.(?:\d\d?|\d{4,})(?![\d.,])", cell) for cell in cells)
    return between == ";" and not with_points and any(map(_DECIMAL_COMMA.match, cells))


def _with_points(rows: list[tuple[int, Mapping[str, str]]]) -> list[tuple[int, Mapping[str, str]]]:
    """Rows of a table with decimal commas, with decimal points."""

    def pointed(cell: str) -> str:
        if not re.match(r"\s*[-~<>]?\d", cell):
            return cell
        whole = _THOUSANDS_POINT.sub(lambda found: found[0].replace(".", ""), cell)
        return _DECIMAL_COMMA.sub(lambda found: found[0].replace(".", "").replace(",", "."), whole)

    return [(number, {head: pointed(cell) for head, cell in cells.items()}) for number, cells in rows]


def _of_a_page(lines: list[str]) -> list[str]:
    """The rows of a table in Markdown, without its rule and the bars at its ends."""
    bare = (line.strip().strip("|").strip() for line in lines)
    return [re.sub(r"[ \t]*\|[ \t]*", "|", line) for line in bare if re.search(r"[^\s:|-]", line)]
