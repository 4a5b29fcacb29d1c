"""A foreign file as data: JSON, JSON lines, YAML or a table, bounded in size, with every look into it checked.

What other tools wrote is hostile until looked at: numbers may be text, negative or endless, text may hold anything.
"""

import csv
import hashlib
import io
import itertools
import json
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from frontier.errors import UsageError
from frontier.text import redact
from frontier.units import MOST_COUNT

MOST_BYTES = 256 * 2**20
MOST_ROWS = 1_000_000
MOST_COLUMNS = 2_000
LARGEST = 1e15
"""No time, count or rate is above this."""
_SPACE = re.compile(rb"\s*")


class ForeignFileError(UsageError):
    """A foreign file that cannot be used: which one, what is wrong where, and the way out."""

    def __init__(self, file: str, what: str, hint: str | None = None) -> None:
        super().__init__(f"{text(file, 300)}: {what}", hint)


@dataclass(frozen=True, slots=True)
class Document:
    """One file, read. `tree` is the JSON value, or None; `rows` the objects of JSON lines, YAML documents or a table.

    `kind` says which: 'json', 'lines', 'table' or 'yaml'. `lines` are the rows' line numbers, where they have any.
    """

    file: str
    kind: str
    tree: Any = None
    rows: Sequence[Mapping[str, Any]] = ()
    lines: Sequence[int] = ()

    @property
    def top(self) -> "Node":
        """The tree to look into; an empty one where the top is not an object."""
        return Node(self.file, "", self.tree if isinstance(self.tree, dict) else {})

    def nodes(self) -> Iterator["Node"]:
        """The rows, or the objects of a JSON list, to look into."""
        listed = self.rows if self.kind != "json" else self.tree if isinstance(self.tree, list) else ()
        what = {"json": "item", "yaml": "document"}.get(self.kind, "line")
        for number, row in zip(self.lines or itertools.count(1), listed, strict=bool(self.lines)):
            if isinstance(row, Mapping):
                yield Node(self.file, f"{what} {number}", row)


@dataclass(frozen=True, slots=True)
class Node:
    """An object inside a foreign file, looked into by key; a look that finds something impossible refuses the file."""

    file: str
    where: str
    tree: Mapping[str, Any]

    def at(self, *keys: str) -> "Node":
        """The object below; an empty one where there is none."""
        found: Any = self.tree
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return Node(self.file, self.place(*keys), found if isinstance(found, Mapping) else {})

    def items(self, key: str) -> list["Node"]:
        """The objects of a list below; none where there is no list."""
        listed = self.tree.get(key)
        if not isinstance(listed, list):
            return []
        place = self.place(key)
        return [Node(self.file, f"{place}[{i}]", item) for i, item in enumerate(listed) if isinstance(item, Mapping)]

    def number(self, key: str) -> float | None:
        """A number of 0 or more; None where there is none. Text that spells a number counts (tables, metadata)."""
        value = self.tree.get(key)
        if isinstance(value, str):
            value = value.strip()
            try:
                value = float(value) if value else None
            except ValueError:
                return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        if isinstance(value, float) and not math.isfinite(value):
            return None
        if not 0 <= value <= LARGEST:
            raise self.wrong(f"{self.place(key)} is {_shown(value)}, which cannot be", "see whether the file is whole")
        return float(value)

    def count(self, key: str) -> int | None:
        """A whole number of 0 or more; None where there is none."""
        value = self.number(key)
        if value is not None and value != int(value):
            raise self.wrong(
                f"{self.place(key)} is {_shown(value)}, not a whole number", "see whether the file is whole"
            )
        if value is not None and value > MOST_COUNT:
            raise self.wrong(f"{self.place(key)} is {_shown(value)}, which cannot be", "see whether the file is whole")
        return None if value is None else int(value)

    def words(self, key: str, longest: int = 80) -> str | None:
        """Text, made harmless and cut; None where there is none."""
        value = self.tree.get(key)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return None
        return text(str(value)[: 10 * longest], longest) or None

    def fact(self, key: str, longest: int = 80) -> str | None:
        """Text that tells one thing from another: as `words`, but what is cut off stays in a short hash."""
        value = self.tree.get(key)
        found = self.words(key, longest)
        if found is None or len(str(value)) <= longest:
            return found
        return f"{found[: longest - 9].rstrip('…')}~{short_hash(str(value))}"

    def numbers(self, key: str) -> list[float]:
        """A list of finite numbers; empty where there is none or where one item is no number."""
        value = self.tree.get(key)
        if not isinstance(value, list) or not all(_is_finite(x) for x in value):
            return []
        return [float(x) for x in value]

    def wrong(self, what: str, hint: str | None = None) -> ForeignFileError:
        """The complaint about this place."""
        return ForeignFileError(self.file, what, hint)

    def place(self, *keys: str) -> str:
        """Where that is in the file, as 'line 3.p99_ttft_ms'."""
        return ".".join([part for part in (self.where, *keys) if part])


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _shown(value: float) -> str:
    return f"{value:.6g}" if abs(value) < 1e300 else "a number out of range"


def text(value: str, longest: int = 80) -> str:
    """Outside text as one line without control or format characters, what looks like a key masked, cut."""
    kept = "".join(" " if ch.isspace() else ch for ch in value if ch.isspace() or unicodedata.category(ch)[0] != "C")
    line = redact(" ".join(kept.split()))
    return line if len(line) <= longest else line[: longest - 1] + "…"


def short_hash(value: str) -> str:
    """Eight digits that tell long texts apart which begin alike."""
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def read_document(file: str, data: bytes) -> Document:
    """The file's bytes as data. ForeignFileError when they are too many, damaged, or of no form we know."""
    if len(data) > MOST_BYTES:
        raise ForeignFileError(
            file, f"{len(data) / 2**20:,.0f} MiB is more than the {MOST_BYTES // 2**20} MiB that are read",
            "import the tool's summary instead of its records",
        )  # fmt: skip
    start = data[_end(data) : _end(data) + 4]
    if not start:
        raise ForeignFileError(file, "the file is empty", "see whether the benchmark ended")
    if data[:4] == b"\x28\xb5\x2f\xfd" or data[:2] == b"\x1f\x8b":
        raise ForeignFileError(file, "the file is compressed", "unpack it first, with zstd -d or gunzip")
    if data[:4] == b"PK\x03\x04" or b"\x00" in data[:4096]:
        raise ForeignFileError(file, "the file is binary", "import the JSON or CSV the tool writes beside it")
    if start[:1] in b"{[":
        return _json(file, data)
    try:
        decoded = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ForeignFileError(file, f"byte {error.start} is not UTF-8 text", "save the file as UTF-8") from None
    if re.search(r"^version\s*:", decoded, re.MULTILINE):
        return _yaml(file, decoded)
    return _table(file, decoded)


def _end(data: bytes) -> int:
    """Where the text begins, behind a byte order mark and white space."""
    skip = 3 if data[:3] == b"\xef\xbb\xbf" else 0
    found = _SPACE.match(data, skip)
    return found.end() if found else skip


def _json(file: str, data: bytes) -> Document:
    body = data[_end(data) :]
    try:
        return Document(file, "json", _loads(body))
    except RepeatedKeyError as error:
        raise ForeignFileError(file, str(error), "remove one of the two") from None
    except ValueError as error:
        before = data[: len(data) - len(body)].count(b"\n")
        lines = [(number, line) for number, line in enumerate(body.split(b"\n"), before + 1) if line.strip()]
        if len(lines) < 2 or not lines[0][1].rstrip().endswith(b"}"):
            raise _damaged(file, error) from None
    if len(lines) > MOST_ROWS:
        raise ForeignFileError(file, f"more than {MOST_ROWS:,} lines", "import the tool's summary instead")
    rows = [_line(file, number, line, last=number == lines[-1][0]) for number, line in lines]
    return Document(file, "lines", rows=rows, lines=[number for number, _ in lines])


def _line(file: str, number: int, line: bytes, *, last: bool) -> Mapping[str, Any]:
    """One line of JSON lines: an object."""
    try:
        row = _loads(line)
    except RepeatedKeyError as error:
        raise ForeignFileError(file, f"line {number}: {error}", "remove one of the two") from None
    except ValueError as error:
        torn = ", the last: it was torn off" if last else ""
        raise ForeignFileError(
            file,
            f"line {number} is not JSON ({text(str(error), 80)}){torn}",
            "remove that line, or write the file anew",
        ) from None
    if not isinstance(row, dict):
        raise ForeignFileError(file, f"line {number} is not a JSON object", "see whether this is the right file")
    return row


class RepeatedKeyError(ValueError):
    """An object that gives one key twice: a reader keeps the last and says nothing."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the key {text(key)!r} is given twice in one object")


def _once(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise RepeatedKeyError(key)
        seen.add(key)


def _loads(data: bytes) -> Any:
    """Strict JSON, or the dialect with Infinity and NaN that Python writes. ValueError otherwise.

    Read a second time only for its keys: orjson keeps the last of two equal ones silently.
    """
    try:
        tree = orjson.loads(data)
        json.loads(data, object_pairs_hook=_once, parse_int=float)
    except orjson.JSONDecodeError:
        if b"Infinity" not in data and b"NaN" not in data:
            raise
    except RecursionError:
        raise ValueError("nested too deeply") from None
    else:
        return tree
    try:
        json.loads(data, object_pairs_hook=_once, parse_int=float)
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _damaged(file: str, error: Exception) -> ForeignFileError:
    return ForeignFileError(file, f"not JSON: {text(str(error), 100)}", "see whether the file is whole")


def _yaml(file: str, decoded: str) -> Document:
    """YAML, for llm-d's reports. Aliases are refused: a few lines of them can describe a tree of any size."""
    import yaml

    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(decoded, yaml.SafeLoader)):
            raise ForeignFileError(file, "YAML aliases are not read", "write the report without anchors and aliases")
        for node in yaml.compose_all(decoded, yaml.SafeLoader):
            _once_in_yaml(file, node)
        found = [tree for tree in yaml.safe_load_all(decoded) if tree is not None]
        return Document(file, "yaml", rows=[tree for tree in found if isinstance(tree, dict)])
    except (yaml.YAMLError, ValueError, RecursionError, TypeError) as error:
        raise ForeignFileError(file, f"not YAML: {text(str(error), 120)}", "see whether the file is whole") from None


def _once_in_yaml(file: str, top: Any) -> None:
    """ForeignFileError for a mapping that gives one key twice."""
    import yaml

    todo = [top]
    while todo:
        node = todo.pop()
        if isinstance(node, yaml.SequenceNode):
            todo += node.value
        elif isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in seen:
                    where = f"line {key.start_mark.line + 1}"
                    raise ForeignFileError(file, f"{where}: {text(key.value)!r} is given twice", "remove one of them")
                seen.add(str(key.value))
                todo += [key, value]


def _table(file: str, decoded: str) -> Document:
    """Comma-separated values with a header; lines that begin with # before it are comments."""
    lines = decoded.splitlines(keepends=True)
    before = 0
    while before < len(lines) and (lines[before].lstrip().startswith("#") or not lines[before].strip()):
        before += 1
    try:
        reader = csv.reader(io.StringIO("".join(lines[before:])), strict=True)
        header = [name.strip() for name in next(reader, [])]
        if len(header) < 2 or len(header) > MOST_COLUMNS:
            raise ForeignFileError(
                file, "neither JSON nor a CSV table with a header", "name the file a benchmark tool wrote"
            )
        twice = next((name for i, name in enumerate(header) if name and name in header[:i]), None)
        if twice is not None:
            raise ForeignFileError(file, f"two columns are called {text(twice)!r}", "rename one")
        rows: list[Mapping[str, Any]] = []
        numbers: list[int] = []
        for cells in reader:
            if len(rows) >= MOST_ROWS:
                raise ForeignFileError(file, f"more than {MOST_ROWS:,} rows", "import a part of it")
            if any(cell.strip() for cell in cells):
                if len(cells) != len(header):
                    raise ForeignFileError(
                        file, f"line {before + reader.line_num} has {len(cells)} cells under {len(header)} heads",
                        "quote cells that hold commas" if len(cells) > len(header) else "see whether the file is whole",
                    )  # fmt: skip
                rows.append(dict(zip(header, cells, strict=True)))
                numbers.append(before + reader.line_num)
    except csv.Error as error:
        raise ForeignFileError(file, f"not a CSV table: {text(str(error), 100)}", "see whether it is whole") from None
    return Document(file, "table", rows=rows, lines=numbers)
