"""The report as GitHub-flavoured Markdown, for a pull request."""

import re
from collections.abc import Sequence

from frontier.report.report import KEY, Report, Section, page_of
from frontier.report.tables import SIGNS, Cell

_SPECIAL = re.compile(r"([\\`*_\[\]|~$]|^[#+-])")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")


def escape_markdown(text: str) -> str:
    """Plain text as Markdown that reads the same: no markup, no HTML, no table cell broken, no link or mention made."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")
    return _NUMBERED.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", plain))


def report_markdown(report: Report, picture: str | None = None) -> str:
    """The report as GitHub-flavoured Markdown. `picture` is the address of the picture, if any."""
    page = page_of(report)
    parts = [f"# {escape_markdown(page.title)}"]
    if page.unfinished:
        parts.append(f"**{escape_markdown(page.unfinished)}**")
    if picture is not None:
        parts.append(f"![{escape_markdown(page.title)}](<{picture.replace('>', '%3E').replace('<', '%3C')}>)")
    for section in page.sections:
        parts += _section(section, len(page.sections) > 1)
    parts += ["## Quality of the data", _list(page.health)]
    if page.provenance:
        parts += ["## Provenance", _list([f"{name}: {text}" for name, text in page.provenance])]
    if page.commands or page.config_text:
        parts.append("## How to reproduce")
        parts += [_fenced("\n".join(page.commands), "console")] if page.commands else []
        parts += [_fenced(page.config_text, "yaml")] if page.config_text else []
    parts += ["## What this does not cover", _list(page.not_said)]
    parts += ["## Glossary", _list([f"{term}: {meaning}" for term, meaning in page.glossary])]
    return "\n\n".join(parts) + "\n"


def _section(section: Section, several: bool) -> list[str]:
    """One series."""
    parts = [f"## {escape_markdown(section.name)}"] if several else []
    if section.verdict:
        parts.append(f"**{escape_markdown(section.verdict)}**")
    words, command = section.step
    parts += [escape_markdown(words)] if words else []
    parts += [_fenced(command, "console")] if command else []
    if section.figures:
        parts.append(_table(("", "value", "bound", "limit", ""), section.figures, "-:---"))
    parts += [escape_markdown(section.legend)] if section.legend else []
    lines = [*(f"{question}: {reason}" for question, reason in section.why), *section.production]
    parts += [_list(lines)] if lines else []
    parts += [_list(section.notes)] if section.notes else []
    rows = [[_cell(cell, role in ("chosen", "frontier")) for cell in cells] for _, role, cells in section.rows]
    parts += [_table(section.heads, rows, "-" + ":" * (len(section.heads) - 1), escaped=True), KEY]
    for grid in ([section.neighbours] if section.neighbours else []) + list(section.evidence):
        parts += [f"**{escape_markdown(grid.caption)}**", _table(grid.heads, grid.rows)]
    return parts


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], align: str = "", *, escaped: bool = False) -> str:
    """A table; `align` has ':' for each column set to the right. `escaped`: the cells are Markdown already."""
    rules = ["--:" if align[i : i + 1] == ":" else "---" for i in range(len(heads))]
    cells = rows if escaped else [[escape_markdown(cell) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in [[escape_markdown(h) for h in heads], rules, *cells])


def _cell(cell: Cell, strong: bool) -> str:
    """A value with its interval; a value on the frontier is bold, a sign never."""
    value = escape_markdown(cell.value)
    bold = f"**{value}**" if strong and value not in {sign for sign, *_ in SIGNS.values()} else value
    return f"{bold} {escape_markdown(cell.interval)}".rstrip()


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {escape_markdown(line)}" for line in lines)


def _fenced(text: str, language: str) -> str:
    """A code block whose fence is longer than any inside."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
