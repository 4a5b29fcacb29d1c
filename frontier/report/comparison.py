"""A comparison in words, as a table and as JSON."""

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from frontier.decide.compare import Comparison, Gain, overall
from frontier.decide.wording import clean, clean_name, count, limit_value_text, told_apart
from frontier.metrics import RATES, metric
from frontier.model import Estimate
from frontier.report.json_out import estimate_tree, number
from frontier.report.tables import to_text

COMPARE_SCHEMA = "frontier.compare/1"
_STYLES = {"better": "green", "no worse": "green", "not resolved": "yellow", "worse": "red", "invalid": "red"}
Names = tuple[str, str]


def names_of(comparison: Comparison, names: Names | None = None) -> Names:
    """What the sides are called: as asked, by their deployments, or A and B where those are the same."""
    if names is not None:
        a, b = told_apart(names, 40)
    elif comparison.a == comparison.b:
        a, b = "A", "B"
    else:
        a, b = told_apart((comparison.a, comparison.b), 40)
    return a, b


def ratio_text(ratio: Estimate) -> str:
    """'1.12× [1.08, 1.16]'."""
    known = math.isfinite(ratio.low) and math.isfinite(ratio.high)
    return f"{ratio.value:.3g}×" + (f" [{ratio.low:.3g}, {ratio.high:.3g}]" if known else " (doubt not known)")


def _until(comparison: Comparison) -> str:
    other = comparison.objectives[1]
    return f"{metric(other).label} {limit_value_text(other, comparison.reference)}"


def comparison_sentence(comparison: Comparison, names: Names | None = None) -> str:
    """'fp8 is better than bf16: 1.12× [1.08, 1.16] the area up to p99 TTFT 500 ms', per GPU where it is that."""
    a, b = names_of(comparison, names)
    ratio = f"{ratio_text(comparison.ratio)} the area up to {_until(comparison)}"
    per = " per GPU" if comparison.per_gpu else ""
    if comparison.verdict == "invalid":
        return f"{b} against {a} cannot be told: no usable measurement"
    if comparison.verdict == "not resolved":
        return f"{b} against {a}{per} is not resolved: {ratio}"
    return f"{b} is {comparison.verdict} than {a}{per}: {ratio}"


def gpus_note(comparison: Comparison, names: Names | None = None) -> str | None:
    """How the GPUs of both sides count: divided by, or why not; None where there is nothing to say.

    Of rates divided by GPUs it also says what the whole deployments come to, as the ratio times their GPUs.
    """
    (a, b), (of_a, of_b) = names_of(comparison, names), comparison.gpus
    if comparison.per_gpu:
        said = f"Per GPU: {a} has {count(of_a or 0, 'GPU')}, {b} {of_b}."
        whole = comparison.ratio.value * (of_b or 0) / (of_a or 1)
        rates = [metric(name).unit in RATES for name in comparison.objectives]
        if rates == [True, False] and metric(comparison.objectives[0]).better == "higher" and math.isfinite(whole):
            said += f" As whole deployments {b} is {whole:.3g}× {a}."
        return said
    if of_a == of_b or not any(metric(name).unit in RATES for name in comparison.objectives):
        return None
    known, unknown, side = (a, b, "b") if of_b is None else (b, a, "a")
    return (
        f"Whole deployments, not per GPU: {known} has {count(of_a or of_b or 0, 'GPU')}, how many {unknown} has is not "
        f"known; say it with  --set-{side} gpus=N."
    )


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
            rows.add_row(f"area up to {_until(comparison)}", ratio_text(comparison.ratio))
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
