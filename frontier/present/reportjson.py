"""The page for machines: everything it says, as one JSON-ready tree. Changes only add keys."""

from frontier.present.jsonout import Tree, decisions_json, points_json
from frontier.present.report import Report, page_of

REPORT_SCHEMA = "frontier.report/1"


def report_json(report: Report) -> Tree:
    """`frontier report -o FILE.json`: the answers of `solve --json` and `show --json` with what surrounds them."""
    page = page_of(report)
    return {
        "schema": REPORT_SCHEMA,
        "title": page.title,
        "unfinished": report.standing,
        "solve": decisions_json(report.decisions),
        "show": points_json(report.points, report.frontiers),
        "sections": [
            {
                "name": section.name,
                "verdict": section.verdict,
                "notes": list(section.notes),
                "neighbours": _grid(section.neighbours.heads, section.neighbours.rows) if section.neighbours else [],
                "evidence": [
                    {"caption": grid.caption, "rows": _grid(grid.heads, grid.rows)} for grid in section.evidence
                ],
            }
            for section in page.sections
        ],
        "health": list(page.health),
        "provenance": dict(page.provenance),
        "commands": list(page.commands),
        "config": page.config_text,
        "not_said": list(page.not_said),
    }


def _grid(heads: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> list[dict[str, str]]:
    return [dict(zip(heads, row, strict=True)) for row in rows]
