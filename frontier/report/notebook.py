"""Decisions as a tuple that shows itself in a notebook. What draws is imported when something is shown.

How a run and its picture show themselves in a notebook.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import escape

from frontier.model import Decision, Frontier, Limit, Point
from frontier.plot.data import Picture, Theme, View
from frontier.plot.draw import render
from frontier.plot.labels import headline
from frontier.plot.picture import save, small_multiples
from frontier.report.tables import Gpus, gpus_of, points_table

WIDE = 110
PRE = '<pre style="line-height:1.35;white-space:pre;overflow-x:auto">{}</pre>'


class Decisions(tuple[Decision, ...]):
    """Decisions, one per (deployment, shape): a tuple that a notebook shows as `frontier solve` prints it."""

    gpus: Mapping[str, int | None] | None = None

    @classmethod
    def of(cls, decisions: Iterable[Decision], gpus: Mapping[str, int | None] | None) -> "Decisions":
        """With the GPUs that rates are divided by, by deployment."""
        found = cls(decisions)
        found.gpus = gpus
        return found

    def _repr_html_(self) -> str:
        from markupsafe import escape

        from frontier.report.answer import decision_table

        return PRE.format(escape(decision_table(self, gpus=self.gpus, width=WIDE)))


@dataclass(frozen=True, slots=True)
class Shown:
    """A picture that a notebook shows, and that can be saved."""

    picture: Picture

    def __repr__(self) -> str:
        return f"<picture: {self.picture.title}>"

    def _repr_svg_(self) -> str:
        return render(self.picture, "svg").decode()

    def save(self, path: str | Path, *, width: int | None = None, theme: Theme = "light") -> None:
        """Write it as the suffix says (png, svg, pdf); `width` in pixels enlarges a PNG for slides."""
        save(self.picture, Path(path), width=width, theme=theme)


def shown(views: Sequence[View]) -> Shown:
    """The picture of these frontiers. ValueError without one."""
    return Shown(small_multiples(views))


def run_html(
    name: str, points: Sequence[Point], frontiers: Sequence[Frontier], decisions: Sequence[Decision],
    limits: Sequence[Limit], gpus: Gpus,
) -> str:  # fmt: skip
    """A run: what it found in a sentence, and its points."""
    decided = {(d.deployment, d.shape): d for d in decisions}
    views = [
        View(points, f, decided.get((f.deployment, f.shape)), limits, gpus=gpus_of(gpus, f.deployment))
        for f in frontiers
    ]
    said = headline(views) if views else "nothing measured yet"
    table = points_table(points, frontiers, limits, decisions=decisions, gpus=gpus, width=WIDE)
    return f"<p><b>{escape(said)}</b><br>{escape(name)}</p>" + PRE.format(escape(table))
