"""A comparison in words, as a table and as JSON."""

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from frontier.decide.compare import Comparison, Gain, overall
from frontier.decide.wording import clean, clean_name, limit_value_text
from frontier.metrics import RATES, metric
from frontier.plot.multi_run import Names, area_text, gpus_note, names_of, ratio_text
from frontier.report.json_out import estimate_tree, number
from frontier.report.tables import to_text

COMPARE_SCHEMA = "frontier.compare/1"
_STYLES = {"better": "green", "no worse": "green", "not resolved": "yellow", "worse": "red", "invalid": "red"}


def _notes(comparison: Comparison, names: Names | None) -> list[str]:
    said = gpus_note(comparison, names)
    absent = [
        f"Of {name} takes no part: {'; '.join(reasons)}."
        for name, reasons in zip(names_of(comparison, names), comparison.absent, strict=True)
        if reasons
    ]
    return [*([said] if said else []), *comparison.notes, *absent]


def comparison_table(
    comparisons: Sequence[Comparison], *, names: Names | None = None, width: int = 80, colour: bool = False
) -> str:
    """Each shape's verdict, the ratio of the areas, and the gain at equal latency as a bracket."""
    blocks: list[RenderableType] = []
    several = len({comparison.a for comparison in comparisons}) > 1
    for comparison in comparisons:
        a, b = names_of(comparison, names)
        blocks += [Text("")] if blocks else []
        per = " per GPU" if comparison.per_gpu else ""
        head = Text.assemble((comparison.verdict, f"bold {_STYLES[comparison.verdict]}"), "   ",
                             (f"{b} against {a}", "bold"), per, f"   {_of(comparison, several)}")  # fmt: skip
        rows = Table.grid(padding=(0, 2, 0, 0))
        if comparison.verdict != "invalid":
            rows.add_row(f"area up to {area_text(comparison)}", ratio_text(comparison.ratio))
        for gain in comparison.gains:
            name = comparison.objectives[0]
            label = metric(name).label + (per if metric(name).unit in RATES else "")
            at = f"{metric(comparison.objectives[1]).label} {limit_value_text(comparison.objectives[1], gain.at)}"
            rows.add_row(f"{label} at {at}", _gain_text(gain))
        notes = [Padding(Text(clean(note, 400), style="dim"), (0, 0, 0, 2)) for note in _notes(comparison, names)]
        blocks += [head, Padding(rows, (0, 0, 0, 2)), *notes]
    return to_text(Group(*blocks), width=width, colour=colour) if blocks else "nothing to compare"


def _of(comparison: Comparison, several: bool) -> str:
    """The workload, and where several deployments are compared with their namesakes also which."""
    shape = clean_name(comparison.shape.label)
    return f"{clean_name(comparison.a, 60)} · {shape}" if several and comparison.a == comparison.b else shape


def _gain_text(gain: Gain) -> str:
    if gain.low > 0 and math.isfinite(gain.high):
        between = f"between {gain.low:.3g}× and {gain.high:.3g}×"
    elif gain.low > 0:
        between = f"at least {gain.low:.3g}×"
    elif math.isfinite(gain.high):
        between = f"at most {gain.high:.3g}×"
    else:
        between = "not known: too few settings around that latency"
    return between if gain.interpolated is None else f"{between}   (by straight lines {ratio_text(gain.interpolated)})"


def comparisons_json(comparisons: Sequence[Comparison], names: Names | None = None) -> dict[str, Any]:
    """The answer of `frontier compare --json`: the worst verdict, and one entry per shape."""
    return {
        "schema": COMPARE_SCHEMA,
        "verdict": overall(comparisons),
        "shapes": [_tree(comparison, names) for comparison in comparisons],
    }


def _tree(comparison: Comparison, names: Names | None) -> dict[str, Any]:
    a, b = names_of(comparison, names)
    return {
        "shape": comparison.shape.label,
        "a": a,
        "b": b,
        "deployments": [comparison.a, comparison.b],
        "verdict": comparison.verdict,
        "objectives": list(comparison.objectives),
        "reference": number(comparison.reference),
        "ratio": estimate_tree(comparison.ratio),
        "gains": [
            {
                "at": number(gain.at),
                "low": number(gain.low),
                "high": number(gain.high),
                "resolved": gain.resolved,
                "interpolated": gain.interpolated and estimate_tree(gain.interpolated),
            }
            for gain in comparison.gains
        ],
        "gpus": list(comparison.gpus),
        "per_gpu": comparison.per_gpu,
        "notes": _notes(comparison, names),
    }
