"""The files of an import: those that are named, and those in a folder, a zip or an Excel file."""

import csv
import io
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET  # expat bounds how far entities grow

from frontier.store.documents import MOST_BYTES, ForeignFileError
from frontier.store.files import read_given

MOST_FILES = 5_000
"""Files of a folder or a zip."""
_RESULTS = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".yaml", ".yml", ".xlsx")
_SUMMARY = "mlperf_log_summary.txt"
_HINT = "name files, as  results/*.json"


class FoundFile(NamedTuple):
    """A file by the name that messages give it, and how to read its bytes."""

    name: str
    read: Callable[[], bytes]
    named: bool = False


def files_of(name: str) -> Iterator[FoundFile]:
    """The file of a name; of a folder or a zip all files in it that may hold results, in order; of
    an Excel file its sheets, as CSV. ForeignFileError where it cannot be read.
    """
    path = Path(name)
    if path.is_dir():
        found = (p for p in path.rglob("*") if _may_hold(p) and p.is_file() and not p.is_symlink())
        inside = sorted(p for p in found if not _is_hidden(p.relative_to(path)))
        _require_some(name, len(inside))
        yield from (found for p in inside for found in _sheets_or_itself(str(p), lambda p=p: _bytes(str(p))))  # type: ignore[misc]
    elif path.suffix.lower() == ".zip" and path.is_file():
        yield from _of_zip(name)
    else:
        yield from _sheets_or_itself(name, lambda: _bytes(name), named=True)


def _may_hold(path: Path) -> bool:
    return path.suffix.lower() in _RESULTS or path.name == _SUMMARY


def _is_hidden(path: Path) -> bool:
    """Whether a part of a path begins with a dot, or is what macOS and Excel add."""
    return any(part.startswith((".", "~$", "__MACOSX")) for part in path.parts)


def _bytes(name: str) -> bytes:
    try:
        return read_given(Path(name), MOST_BYTES)
    except OSError as error:
        raise ForeignFileError(name, f"it cannot be read: {error.strerror}", _HINT) from None


def _require_some(name: str, number: int) -> None:
    if not 0 < number <= MOST_FILES:
        raise ForeignFileError(name, f"{number:,} files of results are in it", _HINT)


def _of_zip(name: str) -> Iterator[FoundFile]:
    try:
        archive = zipfile.ZipFile(io.BytesIO(_bytes(name)))
    except zipfile.BadZipFile as error:
        raise ForeignFileError(name, f"not a zip: {error}", "unpack it, and name the folder") from None
    named = ((Path(i.filename), i) for i in archive.infolist())
    inside = sorted((i for p, i in named if _may_hold(p) and not _is_hidden(p)), key=lambda i: i.filename)
    _require_some(name, len(inside))
    if sum(each.file_size for each in inside) > MOST_BYTES:
        raise ForeignFileError(name, f"more than {MOST_BYTES:,} bytes are in it", "unpack it, and name a part")
    for each in inside:
        yield from _sheets_or_itself(f"{name}/{each.filename}", lambda each=each: archive.read(each))  # type: ignore[misc]


# --- Excel

_SPACE = re.compile(r"\{[^}]*\}")


def _sheets_or_itself(name: str, read: Callable[[], bytes], *, named: bool = False) -> Iterator[FoundFile]:
    """The file, or the sheets of an Excel file as CSV."""
    if not name.lower().endswith(".xlsx"):
        yield FoundFile(name, read, named)
        return
    try:
        sheets = _sheets(zipfile.ZipFile(io.BytesIO(read())))
    except (zipfile.BadZipFile, KeyError, ValueError, ET.ParseError) as error:
        raise ForeignFileError(name, f"not an Excel file: {error}", "save its sheet as CSV") from None
    for title, text in sheets.items():
        yield FoundFile(f"{name}/{title}", text.encode, named and len(sheets) == 1)


def _sheets(archive: zipfile.ZipFile) -> dict[str, str]:
    """Each sheet by its title, as CSV. ValueError for one that is too large."""
    if sum(each.file_size for each in archive.infolist()) > MOST_BYTES // 4:  # a tree of XML is large
        raise ValueError(f"more than {MOST_BYTES // 4:,} bytes are in it")
    relations = {of.get("Id"): of.get("Target", "") for of in _xml(archive, "xl/_rels/workbook.xml.rels")}
    shared = "xl/sharedStrings.xml"
    strings = [_text(item) for item in _xml(archive, shared)] if shared in archive.namelist() else []
    sheets = {}
    for sheet in _xml(archive, "xl/workbook.xml").iter("sheet"):
        target = relations[next(value for key, value in sheet.attrib.items() if key.endswith("id"))]
        rows = _xml(archive, f"xl/{target.removeprefix('/xl/')}").iter("row")
        sheets[sheet.get("name", target)] = _csv([_cells(row, strings) for row in rows])
    return sheets


def _xml(archive: zipfile.ZipFile, name: str) -> ET.Element:
    """The root of a part, with names that lack their name space."""
    root = ET.fromstring(archive.read(name))  # noqa: S314  # as above
    for element in root.iter():
        element.tag = _SPACE.sub("", element.tag)
    return root


def _text(element: ET.Element) -> str:
    return "".join(part.text or "" for part in element.iter("t"))


def _cells(row: ET.Element, strings: list[str]) -> dict[int, str]:
    """The texts of a row by their column."""
    cells: dict[int, str] = {}
    for cell in row.iter("c"):
        column = 0
        for letter in re.sub(r"\d", "", cell.get("r", "")):
            column = 26 * column + ord(letter) - 64
        value = cell.findtext("v") or ""
        shared = cell.get("t") == "s" and value
        cells[column or len(cells) + 1] = strings[int(value)] if shared else value or _text(cell)
    return cells


def _csv(rows: list[dict[int, str]]) -> str:
    """Rows of cells as CSV, each as long as the longest."""
    last = max((max(row) for row in rows if row), default=0)
    lines = io.StringIO()
    csv.writer(lines).writerows([row.get(i, "") for i in range(1, last + 1)] for row in rows if any(row.values()))
    return lines.getvalue()
