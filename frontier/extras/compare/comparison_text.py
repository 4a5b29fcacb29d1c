"""Comparisons, gates and trends as text, as JSON and as CSV."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from frontier.core.model.metrics import metric
from frontier.core.model.text import clean
from frontier.show.table import Table, indented, to_text
from frontier.show.verbosity import Detail
from frontier.show.view.comparison_view import ComparisonView, TrendView
from frontier.show.view.json_out import Tree, number, tree_of
from frontier.show.view.rough import date_text
from frontier.show.view.wording import count, interval_text, value_text

if TYPE_CHECKING:
    import pandas as pd

_STYLES = {"better": "green", "no worse": "green", "not resolved": "yellow", "worse": "red", "invalid": "red"}


def comparisons_text(
    views: Sequence[ComparisonView], *, detail: Detail = Detail.USUAL, width: int = 80, colour: bool = False
) -> str:
    """Each verdict with its sentence, and the evidence: a row for each figure, and notes. Notes on
    all of several comparisons stand once, below the last.
    """
    blocks = []
    shared = set.intersection(*({*view.notes, *view.more} for view in views)) if len(views) > 1 else set()
    for view in views:
        head = Text.assemble(
            (view.verdict, f"bold {_STYLES[view.verdict]}"), "   ", (view.title, "bold"), f"   {view.about}"
        )
        rows: list[RenderableType] = [Table.of((), view.rows).drawn(width)] if view.rows else []
        notes, more = (
            [line for line in lines if view is views[-1] or line not in shared] for lines in (view.notes, view.more)
        )
        lines: list[RenderableType] = detail.of(
            [Text(view.sentence)] if view.sentence else [], [*rows, *map(_note, notes)], map(Text, more)
        )
        blocks.append(to_text(head, *map(indented, lines), width=width, colour=colour))
    return "\n\n".join(blocks) or "nothing to compare"


def _note(note: str) -> Text:
    """A line below the rows; one that ends with a command is never broken."""
    if "  frontier " in note:
        return Text(clean(note, 600), style="dim", no_wrap=True, overflow="ignore")
    return Text(clean(note, 600), style="dim")


def comparisons_json(schema: str, verdict: str, views: Iterable[ComparisonView], **more: Any) -> Tree:
    """The answer for programs: the worst verdict of all, and one entry per shape."""
    return {"schema": schema, "verdict": verdict, **more, "shapes": [dict(view.tree) for view in views]}


# --- trends


def trends_text(
    trends: Sequence[TrendView], *, detail: Detail = Detail.USUAL, width: int = 80, colour: bool = False
) -> str:
    """Each series' breaks in words, and a row per run. Where all is asked for, also the
    intervals.
    """
    blocks: list[RenderableType] = []
    for one in trends:
        blocks.append(Text.assemble((one.series.label(), "bold"), f"   {count(len(one.rows), 'run')}"))
        blocks += [indented(clean(line, 600)) for line in one.notes if detail >= Detail.USUAL]
        heads = ["date", "run", *(metric(name).label for name in one.metrics), one.chosen.replace("_", " ")]
        heads += [""] * any(row.begins for row in one.rows)
        rows = [
            [
                date_text(row.at),
                row.run,
                *(value_text(name, mean.value) for name, mean in row.means.items()),
                row.chosen.label if row.chosen else "–",
                "break" if row.begins else "",
            ][: len(heads)]
            for row in one.rows
        ]
        figures = range(2, 2 + len(one.metrics))
        blocks.append(Table.of(heads, rows, right=(*figures, figures.stop), spared=figures).drawn(width))
        if detail is Detail.ALL:
            heads = ["run", *(f"{metric(name).label}, 95% CI" for name in one.metrics)]
            rows = [[row.run, *(interval_text(name, mean) for name, mean in row.means.items())] for row in one.rows]
            blocks.append(Table.of(heads, rows).drawn(width))
    return to_text(*blocks, width=width, colour=colour) if blocks else "no run"


def trend_frame(trends: Sequence[TrendView]) -> "pd.DataFrame":
    """One row per run and series: date, key, NAME with NAME_low and NAME_high in SI units."""
    import pandas as pd

    return pd.DataFrame([row for one in trends for row in _rows(one)])


def _rows(one: TrendView) -> list[Tree]:
    return [
        {
            "date": datetime.fromtimestamp(row.at, UTC).isoformat(),
            "run": row.run,
            "deployment": one.series.deployment,
            "shape": one.series.shape.label,
            "stretch": row.stretch,
            **row.key,
            one.chosen: row.chosen.amount if row.chosen else None,
        }
        | {
            name + end: value
            for name, e in row.means.items()
            for end, value in (("", e.value), ("_low", number(e.low)), ("_high", number(e.high)))
        }
        for row in one.rows
    ]


def trends_json(trends: Sequence[TrendView]) -> Tree:
    """The answer of `frontier trend --json`: per series the rows of the table, and its breaks."""
    shapes = [
        {
            "shape": one.series.shape.label,
            "deployment": one.series.deployment,
            "runs": _rows(one),
            "settings": tree_of(one.settings),
            "left_out": list(one.left_out),
            "breaks": [{"run": one.rows[at].run, "changed": text} for at, text in one.breaks],
        }
        for one in trends
    ]
    return {"schema": "frontier.trend/1", "shapes": shapes}
