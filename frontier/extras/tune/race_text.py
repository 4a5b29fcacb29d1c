"""The result of a race as text: the table of variants, and what they show."""

from frontier.show.table import Table, to_text
from frontier.show.verbosity import Detail
from frontier.show.view.comparison_view import ComparisonView

_HEADS = ("variant", "expected", "at", "proven", "at", "")


def race_text(view: ComparisonView, *, detail: Detail = Detail.USUAL, width: int, colour: bool) -> str:
    """The table of variants, the result, and the line to paste; where all is asked for, also a line
    for each variant.
    """
    table = Table.of(_HEADS, view.rows, right=(1, 2, 3, 4)).drawn(width)
    above = [f"{view.about} within the SLA", to_text(table, width=width, colour=colour).rstrip(), ""]
    return "\n".join(detail.of([*detail.of((), above), view.sentence], view.notes, view.more))
