"""Baseline: the figures of the last accepted run beside those of the run under review."""

import math
from collections.abc import Iterator, Sequence

from frontier.core.model.decisions import Limit
from frontier.core.model.errors import UsageError
from frontier.core.model.text import clean
from frontier.run import Run
from frontier.show.table import Table
from frontier.show.view.selection import views_of
from frontier.show.view.series_view import SeriesView
from frontier.show.view.wording import limits_text

HEADS = ("", "this run", "before", "change of the value")


def baseline_tables(views: Sequence[SeriesView], old: Run, limits: Sequence[Limit], *, asked: bool) -> list[Table]:
    """A table for each series of the run, beside the same series of the `old` one. `asked`: the
    limits are not those of the configs. UsageError where the old one has another SLA or no such
    shape.
    """
    if not limits:
        raise UsageError("there is no SLA by which to set a run beside another", "name one:  --sla 'p99_ttft<=500ms'")
    if not asked and old.limits() != tuple(limits):
        theirs = limits_text(old.limits()) or "none"
        what = f"{old.path} has another SLA: {theirs}; this run has {limits_text(limits)}"
        raise UsageError(what, "judge both by one:  --sla 'p99_ttft<=500ms'")
    before = views_of(old, limits)
    return [_table(view, _partner(view, views, before, old), old) for view in views]


def _partner(view: SeriesView, views: Sequence[SeriesView], before: Sequence[SeriesView], old: Run) -> SeriesView:
    """The same series before; of single deployments whatever their names."""
    single = all(len({v.frontier.deployment for v in side}) == 1 for side in (views, before))
    mine = [v for v in before if v.series.shape == view.series.shape and (single or v.series == view.series)]
    if not mine:
        known = ", ".join(dict.fromkeys(v.series.label() for v in before)) or "none"
        raise UsageError(f"{old.path} has no {view.series.label()} to stand beside", f"it has {known}")
    return mine[0]


def _table(view: SeriesView, before: SeriesView, old: Run) -> Table:
    beside = f"{view.series.label()}: this run beside {clean(old.path.name, 100)}"
    verdict = "frontier compare  tells a difference from noise"
    return Table.of(HEADS, list(_rows(view, before)), f"{beside}. {verdict}")


def _rows(view: SeriesView, before: SeriesView) -> Iterator[tuple[str, ...]]:
    yield ("answer", _answer(view), _answer(before), "")
    new, old = _figures(view), _figures(before)
    for name, (label, text, value) in new.items():
        _, text_before, value_before = old.get(name, ("", "–", math.nan))
        change = value / value_before - 1 if value_before else math.nan
        yield (label, text, text_before, f"{change:+.1%}" if math.isfinite(change) and change else "")


def _figures(view: SeriesView) -> dict[str, tuple[str, str, float]]:
    """The label, the text and the value of each figure of an answer, by its metric."""
    if view.answer is None:
        return {}
    pairs = view.answer.figures
    return {f.metric: (row[0], ", ".join(filter(None, row[1:3])), f.estimate.value) for f, row in pairs}


def _answer(view: SeriesView) -> str:
    """'c=45', or that nothing is proven."""
    answer = view.answer
    if answer is None or answer.shown is None:
        return "none"
    return answer.shown.label if answer.proven else f"{answer.shown.label}, {answer.star or 'not proven'}"
