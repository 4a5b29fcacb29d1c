"""Trend over dated runs: their common settings, and breaks where something else was measured.

Runs are cut into stretches of one key (device, engine, flags, model, load). Between two stretches
there is a break, as what was measured changed.
"""

import itertools
from collections.abc import Sequence

from frontier.core.model.series import Series
from frontier.core.model.text import clean
from frontier.extras.compare.gate import Measured, common_settings, has, key_changes
from frontier.show.view.comparison_view import TrendRow, TrendView
from frontier.show.view.rough import date_text


def trend(runs: Sequence[Measured], names: tuple[str, ...], series: Series, *, by_values: bool = False) -> TrendView:
    """The trend of one series over its runs. `by_values`: values alone decided which settings keep
    the SLA.
    """
    ordered = sorted(runs, key=lambda one: one.at)
    settings = common_settings(ordered, names)
    kept = [one for one in ordered if settings and has(one, settings, names)]
    breaks = {
        i: "; ".join(f"{name}: {text}" for name, text in differs.items())
        for i, (one, other) in enumerate(itertools.pairwise(kept), 1)
        if (differs := key_changes(one.key, other.key))
    }
    rows = tuple(
        TrendRow(
            one.at,
            one.name,
            one.key,
            sum(at <= i for at in breaks) + 1,
            i in breaks,
            one.proven,
            {name: one.mean(name, settings) for name in names},
        )
        for i, one in enumerate(kept)
    )
    ends = list(itertools.pairwise([0, *breaks, len(rows)])) if rows else []
    levels = {name: tuple(_level(rows, name, *each) for each in ends) for name in names}
    left_out = tuple(one.name for one in ordered if one not in kept)
    means = f"Geometric means over {', '.join(load.label for load in settings)}."
    notes = [f"{date_text(rows[at].at)}  break at {rows[at].run}, {text}" for at, text in breaks.items()]
    notes.append(means if settings else "No setting is usable in nearly all runs: name runs of one config.")
    if left_out:
        notes.append(f"Left out, without all of these settings: {clean(', '.join(left_out), 300)}.")
    chosen = "by_values" if by_values else "proven"
    return TrendView(series, names, settings, chosen, rows, tuple(breaks.items()), left_out, levels, tuple(notes))


def _level(rows: Sequence[TrendRow], name: str, first: int, after: int) -> tuple[int, int, float]:
    """A stretch of runs: its first, its last, and the mean of a metric over it."""
    values = [row.means[name].value for row in rows[first:after]]
    return first, after - 1, sum(values) / len(values)
