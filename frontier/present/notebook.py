"""How a run and its picture show themselves in a notebook."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import escape

from frontier.model import Decision, Frontier, Limit, Point
from frontier.present.captions import View, headline
from frontier.present.drawn import Picture, Theme
from frontier.present.figure import render
from frontier.present.kept import save
from frontier.present.picture import small_multiples
from frontier.present.shown import PRE, WIDE
from frontier.present.tables import Gpus, gpus_of, points_table


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
