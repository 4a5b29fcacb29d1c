"""A foreign file as bounded data: JSON, JSON lines, YAML or CSV, and checked look-ups in it.

What other tools wrote is hostile until checked: numbers may be text, negative or infinite, text may
hold anything.
"""

import csv
import io
import json
import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from frontier.errors import UsageError
from frontier.fields import is_number
from frontier.text import one_line, redact, short_hash, shortened
from frontier.units import MOST_COUNT

MOST_BYTES = 256 * 2**20
MOST_ROWS = 1_000_000
MOST_COLUMNS = 2_000
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
    """One file, parsed. `kind` is 'json', 'lines', 'table' or 'yaml'.

    `top` is the JSON object, an empty one where the file is none; `rows` are the objects of a JSON
    list, of JSON lines, YAML documents or a table.
    """

    file: str
    kind: str
    top: "Node"
    rows: Sequence["Node"] = ()

    @classmethod
    def listed(cls, file: str, kind: str, what: str, rows: Iterable[tuple[int, Any]]) -> "Document":
        """Of numbered rows, each of which is `what` in messages; those that are no objects are left
        out.
        """
        nodes = [Node(file, f"{what} {number}", row) for number, row in rows if isinstance(row, Mapping)]
        return cls(file, kind, Node(file, "", {}), nodes)

    @property
    def objects(self) -> Sequence["Node"]:
        """The JSON object, or the rows."""
        return self.rows or [self.top]


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
        """A number of 0 or more; None where there is none. Text that spells a number counts
        (tables, metadata).
        """
        value = self.tree.get(key)
        if isinstance(value, str):
            try:
                value = float(value) if value.strip() else None
            except ValueError:
                return None
        if not is_number(value) or (isinstance(value, float) and not math.isfinite(value)):
            return None
        if not 0 <= value <= LARGEST:
            raise self.error(f"{self.place(key)} is {_shown(value)}, which is impossible", INCOMPLETE)
        return float(value)

    def count(self, key: str) -> int | None:
        """A whole number of 0 or more; None where there is none."""
        value = self.number(key)
        if value is None:
            return None
        if value != int(value):
            raise self.error(f"{self.place(key)} is {_shown(value)}, not a whole number", INCOMPLETE)
        if value > MOST_COUNT:
            raise self.error(f"{self.place(key)} is {_shown(value)}, which is impossible", INCOMPLETE)
        return int(value)

    def text(self, key: str, longest: int = LONGEST_TEXT) -> str | None:
        """Text, cleaned and cut; None where there is none."""
        value = self.tree.get(key)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return None
        return foreign_text(str(value)[: 10 * longest], longest) or None

    def fact(self, key: str) -> str | None:
        """Text that distinguishes deployments: as `text`, but what is cut off stays in a short
        hash.
        """
        value = self.tree.get(key)
        text = self.text(key)
        if text is None or len(str(value)) <= LONGEST_TEXT:
            return text
        return f"{text[: LONGEST_TEXT - 9].rstrip('…')}~{short_hash(str(value))}"

    def facts(self, *keys: str) -> dict[str, str]:
        """Those of the facts that are there, by key."""
        return {key: value for key in keys if (value := self.fact(key)) is not None}

    def numbers(self, key: str) -> list[float]:
        """A list of finite numbers; empty where there is none or where an item is no number."""
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


def _shown(value: float) -> str:
    return f"{value:.6g}" if abs(value) < 1e300 else "a number out of range"


# --- bytes to documents


def read_document(file: str, data: bytes) -> Document:
    """The parsed bytes of a file. ForeignFileError when they are too many, damaged, or of no known
    form.
    """
    if len(data) > MOST_BYTES:
        size = f"{len(data) / 2**20:,.0f} MiB; the maximum is {MOST_BYTES // 2**20} MiB"
        raise ForeignFileError(file, f"the file has {size}", "import the tool's summary instead of its records")
    text = data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        raise ForeignFileError(file, "the file is empty", "check that the benchmark finished")
    if data[:4] == b"\x28\xb5\x2f\xfd" or data[:2] == b"\x1f\x8b":
        raise ForeignFileError(file, "the file is compressed", "unpack it first, with zstd -d or gunzip")
    if data[:4] == b"PK\x03\x04" or b"\x00" in data[:4096]:
        raise ForeignFileError(file, "the file is binary", "import the JSON or CSV the tool writes beside it")
    if text[:1] in b"{[":
        return _json_document(file, text, data[: len(data) - len(text)].count(b"\n") + 1)
    try:
        decoded = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ForeignFileError(file, f"byte {error.start} is not UTF-8 text", "save the file as UTF-8") from None
    if re.search(r"^version\s*:", decoded, re.MULTILINE):
        return _yaml_document(file, decoded)
    return _table(file, decoded)


class AmbiguousError(ValueError):
    """A text that readers take differently: a key given twice, of which most keep the last, or a
    YAML alias.
    """


def _json_document(file: str, text: bytes, first: int) -> Document:
    """JSON, or JSON lines, of a text that begins on the line `first`."""
    try:
        tree = _parse_json(text)
    except AmbiguousError as error:
        raise ForeignFileError(file, str(error), "remove one of the two") from None
    except ValueError as error:
        lines = [(number, line) for number, line in enumerate(text.split(b"\n"), first) if line.strip()]
        if len(lines) < 2 or not lines[0][1].rstrip().endswith(b"}"):
            raise ForeignFileError(file, f"not JSON: {foreign_text(str(error), 100)}", INCOMPLETE) from None
    else:
        if isinstance(tree, dict):
            return Document(file, "json", Node(file, "", tree))
        return Document.listed(file, "json", "item", enumerate(tree, 1))
    if len(lines) > MOST_ROWS:
        raise ForeignFileError(file, f"more than {MOST_ROWS:,} lines", "import the tool's summary instead")
    rows = ((number, _json_line(file, number, line, last=number == lines[-1][0])) for number, line in lines)
    return Document.listed(file, "lines", "line", rows)


def _json_line(file: str, number: int, line: bytes, *, last: bool) -> Mapping[str, Any]:
    """One line of JSON lines: an object."""
    try:
        row = _parse_json(line)
    except AmbiguousError as error:
        raise ForeignFileError(file, f"line {number}: {error}", "remove one of the two") from None
    except ValueError as error:
        cut_off = ", the last: it was cut off" if last else ""
        what = f"line {number} is not JSON ({foreign_text(str(error), 80)}){cut_off}"
        raise ForeignFileError(file, what, "remove that line, or write the file again") from None
    if not isinstance(row, dict):
        raise ForeignFileError(file, f"line {number} is not a JSON object", "check that this is the right file")
    return row


def _parse_json(data: bytes) -> Any:
    """The value of a JSON text, which may hold the Infinity and NaN that Python writes. ValueError
    otherwise.
    """
    try:
        return json.loads(data.decode(), object_pairs_hook=_unique_keys)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for i, key in enumerate(keys) if key in keys[:i])
        raise AmbiguousError(f"the key {foreign_text(repeated)!r} is given twice in one object")
    return tree


class _StrictLoader(yaml.SafeLoader):
    """Refuses repeated keys, and aliases: a few lines of them can describe a tree of any size."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise AmbiguousError("YAML aliases are not read")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in keys:
                    what = f"{foreign_text(key.value)!r} is given twice"
                    raise AmbiguousError(f"line {key.start_mark.line + 1}: {what}")
                keys.add(key.value)
        return super().construct_mapping(node, deep)


def _yaml_document(file: str, decoded: str) -> Document:
    """YAML, for llm-d's reports."""
    try:
        trees = list(yaml.load_all(decoded, _StrictLoader))  # a SafeLoader
    except AmbiguousError as error:
        raise ForeignFileError(file, str(error), "write each key once, without anchors and aliases") from None
    except (yaml.YAMLError, ValueError, RecursionError, TypeError) as error:
        raise ForeignFileError(file, f"not YAML: {foreign_text(str(error), 120)}", INCOMPLETE) from None
    return Document.listed(file, "yaml", "document", enumerate(trees, 1))


def _table(file: str, decoded: str) -> Document:
    """Comma-separated values with a header; lines that begin with # before it are comments."""
    lines = decoded.splitlines(keepends=True)
    before = 0
    while before < len(lines) and (lines[before].lstrip().startswith("#") or not lines[before].strip()):
        before += 1
    rows: list[tuple[int, Mapping[str, str]]] = []
    try:
        reader = csv.reader(io.StringIO("".join(lines[before:])), strict=True)
        header = _header(file, next(reader, []))
        for cells in reader:
            number = before + reader.line_num
            if len(rows) >= MOST_ROWS:
                raise ForeignFileError(file, f"more than {MOST_ROWS:,} rows", "import a part of it")
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                hint = "quote cells that hold commas" if len(cells) > len(header) else INCOMPLETE
                what = f"line {number} has {len(cells)} cells under {len(header)} column names"
                raise ForeignFileError(file, what, hint)
            rows.append((number, dict(zip(header, cells, strict=True))))
    except csv.Error as error:
        raise ForeignFileError(file, f"not a CSV table: {foreign_text(str(error), 100)}", INCOMPLETE) from None
    return Document.listed(file, "table", "line", rows)


def _header(file: str, cells: Sequence[str]) -> list[str]:
    """The column names. ForeignFileError where they are none."""
    header = [name.strip() for name in cells]
    if not 2 <= len(header) <= MOST_COLUMNS:
        hint = "name a file that a benchmark tool wrote"
        raise ForeignFileError(file, "neither JSON nor a CSV table with a header", hint)
    repeated = next((name for i, name in enumerate(header) if name and name in header[:i]), None)
    if repeated is not None:
        raise ForeignFileError(file, f"two columns are called {foreign_text(repeated)!r}", "rename one")
    return header
