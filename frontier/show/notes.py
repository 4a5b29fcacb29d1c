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
    """What one extra has to say of the series of a run: `title` and `legend` of a block, its lines
    by series, each a setting and a text; and its `trees` for JSON, one a series. On the page the
    lines stand below the detail figure `figure` too, where one is named.
    """

    title: str
    legend: str
    lines: Mapping[Series, Sequence[tuple[str, str]]]
    trees: Sequence[Any]
    figure: str = ""


def notes_of(run: "Run", points: Sequence[Point], decisions: Sequence[Decision]) -> dict[str, Noted]:
    """What each extra that is there says, by its name in JSON."""
    return {name: row.load()(run, points, decisions) for name, row in registry.installed(registry.NOTES)}
