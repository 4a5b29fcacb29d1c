"""A small Excel file, as xlsxwriter writes it: sheets, shared strings, numbers."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_HEAD = f'xmlns="{_MAIN}" xmlns:r="{_RELATIONS}"'


def write_excel(path: Path, sheets: Mapping[str, Sequence[Sequence[str | float]]]) -> None:
    """Write the sheets; an empty text is no cell, and rows may differ in length."""
    strings: dict[str, int] = {}

    def cell(value: str | float, place: str) -> str:
        if not isinstance(value, str):
            return f'<c r="{place}"><v>{value!r}</v></c>'
        number = strings.setdefault(value, len(strings))
        return f'<c r="{place}" t="s"><v>{number}</v></c>' if value else ""

    titles = "".join(f'<sheet name="{title}" sheetId="{n}" r:id="rId{n}"/>' for n, title in enumerate(sheets, 1))
    targets = "".join(
        f'<Relationship Id="rId{n}" Target="worksheets/sheet{n}.xml"/>' for n in range(1, len(sheets) + 1)
    )
    with zipfile.ZipFile(path, "w") as archive:
        for number, rows in enumerate(sheets.values(), 1):
            lines = (
                f'<row r="{r}">{"".join(cell(value, f"{chr(64 + c)}{r}") for c, value in enumerate(row, 1))}</row>'
                for r, row in enumerate(rows, 1)
            )
            text = f"<worksheet {_HEAD}><sheetData>{''.join(lines)}</sheetData></worksheet>"
            archive.writestr(f"xl/worksheets/sheet{number}.xml", text)
        archive.writestr("xl/workbook.xml", f"<workbook {_HEAD}><sheets>{titles}</sheets></workbook>")
        archive.writestr("xl/_rels/workbook.xml.rels", f'<Relationships xmlns="{_MAIN}">{targets}</Relationships>')
        parts = "".join(f"<si><t>{text}</t></si>" for text in strings)
        archive.writestr("xl/sharedStrings.xml", f"<sst {_HEAD}>{parts}</sst>")
