"""Notes that extras add to the series of a run: shown below a table, on the page and in JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frontier import registry
from frontier.core.model.decisions import Decision
from frontier.core.model.points import Point
from frontier.core.model.series import Series

if TYPE_CHECKING:
    from frontier.run import Run


@dataclass(frozen=True, slots=True)
class Noted:
    """The notes of one extra on the series of a run.

    - `title`, `legend`: of its block.
    - `lines`: by series, each a setting and a text.
    - `trees`: for JSON, one per series.
    - `figure`: the detail figure below which the lines also stand on the page; '' for none.
    """

    title: str
    legend: str
    lines: Mapping[Series, Sequence[tuple[str, str]]]
    trees: Sequence[Any]
    figure: str = ""


def notes_of(run: "Run", points: Sequence[Point], decisions: Sequence[Decision]) -> dict[str, Noted]:
    """The notes of each installed extra, by its name in JSON."""
    return {name: row.load()(run, points, decisions) for name, row in registry.installed(registry.NOTES)}
