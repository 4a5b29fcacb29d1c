"""The page as GitHub-flavoured Markdown, for a pull request."""

import re
from collections.abc import Sequence

from frontier.report.report import KEY, Cell, Report, Section, page_of
from frontier.report.report_tables import Grid

_SPECIAL = re.compile(r"([\\`*_\[\]|~$]|^[#+-])")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")


def escape_markdown(text: str) -> str:
    """Plain text as Markdown that reads the same: no markup, no HTML, no table cell broken, no link or mention made."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")
    return _NUMBERED.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", plain))


def report_markdown(report: Report, picture: str | None = None) -> str:
    """The page as GitHub-flavoured Markdown, for a pull request. `picture` is the address of the picture, if any."""
    page = page_of(report)
    parts = [f"# {escape_markdown(page.title)}"]
    if page.unfinished:
        parts.append(f"**{escape_markdown(page.unfinished)}**")
    if picture is not None:
        parts.append(f"![{escape_markdown(page.title)}](<{picture.replace('>', '%3E').replace('<', '%3C')}>)")
    for section in page.sections:
        parts += _section_markdown(section, len(page.sections) > 1)
    parts += ["## Health of the data", _list(page.health)]
    if page.provenance:
        parts += ["## Provenance", _list([f"{name}: {text}" for name, text in page.provenance])]
    if page.commands or page.config_text:
        parts.append("## How to reproduce")
        parts += [_fenced("\n".join(page.commands), "console")] if page.commands else []
        parts += [_fenced(page.config_text, "yaml")] if page.config_text else []
    parts += ["## What this does not say", _list(page.not_said)]
    return "\n\n".join(parts) + "\n"


def _section_markdown(section: Section, several: bool) -> list[str]:
    parts = [f"## {escape_markdown(section.name)}"] if several else []
    if section.verdict:
        parts.append(f"**{escape_markdown(section.verdict)}**")
    if section.figures:
        rows = ["| | value | 95% interval | |", "|---|--:|---|---|"]
        rows += ["| " + " | ".join(escape_markdown(cell) for cell in figure) + " |" for figure in section.figures]
        parts.append("\n".join(rows))
    if section.notes:
        parts.append(_list(section.notes))
    lines = ["| " + " | ".join(escape_markdown(head) for head in section.heads) + " |"]
    lines.append("|---|" + "--:|" * (len(section.heads) - 1))
    for row in section.rows:
        cells = [_cell_markdown(cell, row.strong) for cell in row.cells]
        lines.append(f"| {row.sign} | " + " | ".join(cells) + " |")
    parts.append("\n".join(lines))
    parts.append(KEY)
    for grid in ([section.neighbours] if section.neighbours else []) + list(section.evidence):
        parts += [f"**{escape_markdown(grid.caption)}**", _grid_markdown(grid)]
    return parts


def _grid_markdown(grid: Grid) -> str:
    rows = (grid.heads, ("---",) * len(grid.heads), *grid.rows)
    return "\n".join("| " + " | ".join(escape_markdown(c) if c != "---" else c for c in row) + " |" for row in rows)


def _cell_markdown(cell: Cell, strong: bool) -> str:
    value = escape_markdown(cell.value)
    bold = f"**{value}**" if strong else value
    return f"{bold} {escape_markdown(cell.interval)}".rstrip()


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {escape_markdown(line)}" for line in lines)


def _fenced(text: str, language: str) -> str:
    """A code block whose fence is longer than any inside."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
