"""Notebook display: a run, its decisions and its picture as Jupyter shows them.

`frontier.load` returns `NotebookRun`. Drawing code is imported when something is shown: a program
that only reads numbers does not need it.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import escape

from frontier.core.model.decisions import Decision, Limit
from frontier.core.model.points import Point
from frontier.read_run import load as load_run
from frontier.run import Asked, Run
from frontier.show.point_rows import load_columns, table
from frontier.show.table import WIDE, as_html
from frontier.show.view.explain import with_notes
from frontier.show.view.series_view import series_views

if TYPE_CHECKING:
    import pandas as pd

    from frontier.show.picture.data import Picture, Theme

_REQUEST_COLUMNS = ("sent", "ok", "ttft", "tpot", "e2e", "prompt_tokens", "completion_tokens", "cached_tokens")


class Decisions(tuple[Decision, ...]):
    """Decisions, one per series: a tuple that a notebook shows as `frontier solve` prints it.
    `gpus` are the numbers of GPUs that rates are divided by, by deployment. A slice is a plain
    tuple.
    """

    gpus: Mapping[str, int | None]

    def __new__(cls, decisions: Iterable[Decision], gpus: Mapping[str, int | None]) -> "Decisions":
        made = super().__new__(cls, decisions)
        made.gpus = gpus
        return made

    def __getnewargs__(self) -> tuple[tuple[Decision, ...], Mapping[str, int | None]]:
        return tuple(self), self.gpus

    def _repr_html_(self) -> str:
        from frontier.show.answer import decision_table
        from frontier.show.view.answer_view import answer_view

        return as_html(decision_table([answer_view(d, gpus=self.gpus.get(d.deployment)) for d in self], width=WIDE))


@dataclass(frozen=True, slots=True)
class NotebookPicture:
    """A picture that a notebook shows, and that can be saved."""

    picture: "Picture"

    def __repr__(self) -> str:
        return f"<picture: {self.picture.title}>"

    def _repr_svg_(self) -> str | None:
        """The picture as SVG; None, with a warning, where it cannot be drawn. The notebook then
        shows its title.
        """
        try:
            from frontier.show.picture.draw import render

            return render(self.picture, "svg").decode()
        except Exception as error:  # noqa: BLE001  # whatever matplotlib fails with
            warnings.warn(f"the picture was not drawn: {error}", stacklevel=2)
            return None

    def save(self, path: str | Path, *, width: int | None = None, theme: "Theme" = "light") -> None:
        """Write the picture as the suffix says (png, svg, pdf); `width` in pixels enlarges a PNG
        for slides.
        """
        from frontier.show.picture.frontier_picture import save

        save(self.picture, Path(path), width=width, theme=theme)


class NotebookRun(Run):
    """A run that shows itself: its answer and points as HTML, its frontiers as a picture, its
    requests and points as tables for pandas.
    """

    @classmethod
    def of(cls, run: Run) -> "NotebookRun":
        """The same run with what a notebook shows."""
        return cls(*(getattr(run, f.name) for f in fields(run)))

    def solve(self, limits: Asked = None, **options: bool) -> Decisions:
        """The operating point of each series under `limits`. Options as for
        `core.claim.solver.solve`.
        """
        return Decisions(super().solve(limits, **options), self.gpus)

    def _decide(
        self, limits: tuple[Limit, ...], options: Mapping[str, bool]
    ) -> tuple[list[Point], tuple[Decision, ...]]:
        """As of any run, with the notes of each decision."""
        points, decisions = super()._decide(limits, options)
        return points, tuple(map(with_notes, decisions))

    def requests(self) -> "pd.DataFrame":
        """One row per request that counts: deployment, shape, concurrency, `sent` (unix seconds),
        `ok`, `ttft`, `tpot` and `e2e` (seconds; infinite for a failure, NaN where not defined), and
        the token counts of the server.
        """
        import pandas as pd

        parts = []
        for (deployment, shape), history in self.histories.items():
            for trial, sample in history:
                columns = {name: getattr(sample, name) for name in _REQUEST_COLUMNS}
                head = {"deployment": deployment, "shape": shape.label, **load_columns(trial.load)}
                parts.append(pd.DataFrame({**head, "phase": trial.phase.value, "repeat": trial.repeat, **columns}))
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def frame(self, limits: Asked = None) -> "pd.DataFrame":
        """One row per point, as `frontier export` has it: `deployment`, `shape`, `concurrency`, `n`
        (requests), `valid`, `flags`, `verdict` and more, and per metric `NAME`, `NAME_low`,
        `NAME_high` (the 95% interval). Times are seconds, rates per second, shares 0..1; the unit
        of each metric's columns is in `frame.attrs["units"]`.
        """
        points, wanted = self.points(limits), self.limits(limits)
        decisions = self.solve(wanted) if wanted else ()
        return table(series_views(points, self.frontiers(points, limits=limits), wanted, decisions))

    def picture(self, limits: Asked = None, objectives: tuple[str, str] | None = None) -> NotebookPicture:
        """The picture of `frontier plot`, without its foot; `.save(path)` writes it. ValueError
        without a frontier.
        """
        from frontier.show.picture.frontier_picture import small_multiples
        from frontier.show.view.selection import together_of, views_of

        wanted = self.limits(limits)
        if (together := together_of(self)) is not None:
            return NotebookPicture(replace(together([self], wanted, objectives), foot=""))
        return NotebookPicture(small_multiples(views_of(self, wanted, objectives)))

    def _repr_html_(self) -> str:
        """What the run found in a sentence, and its points."""
        from frontier.show.picture.labels import headline
        from frontier.show.tables import points_table
        from frontier.show.view.selection import views_of

        views = views_of(self, self.limits())
        sentence = headline(views) if views else "nothing measured yet"
        table = as_html(points_table(views, width=WIDE))
        return f"<p><b>{escape(sentence)}</b><br>{escape(self.path.name)}</p>" + table


def load(path: str | Path, settings: Sequence[str] = ()) -> NotebookRun:
    """The run in a directory. `settings` ('gpus=8', 'price=$12/h', 'hardware.power=700W/gpu')
    replace values of its config; the files stay as they are. Errors as of `frontier.read_run.load`.
    """
    return NotebookRun.of(load_run(path, settings))
