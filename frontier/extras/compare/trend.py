"""Trend over dated runs: their common settings, and breaks where something else was measured.

Runs are cut into stretches of one key (device, engine, flags, model, load). Between two stretches
there is a break, as what was measured changed.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from frontier.core.model.series import HasSeries, Series
from frontier.core.model.shapes import Shape
from frontier.extras.compare.gate import Measured, common_settings, has, key_changes


@dataclass(frozen=True, slots=True)
class Trend(HasSeries):
    """The dated runs of one series, oldest first. `breaks` are (number of the first run after it,
    what changed). `by_values`: values alone decided which settings keep the SLA.
    """

    deployment: str
    shape: Shape
    metrics: tuple[str, ...]
    settings: tuple[int, ...]
    runs: tuple[Measured, ...]
    left_out: tuple[str, ...]
    breaks: tuple[tuple[int, str], ...]
    by_values: bool = False

    @property
    def chosen(self) -> str:
        """What its operating points are called: 'proven', or that values alone decided."""
        return "by_values" if self.by_values else "proven"

    @property
    def stretches(self) -> list[range]:
        """The run numbers of each stretch."""
        return [range(a, b) for a, b in itertools.pairwise([0, *(at for at, _ in self.breaks), len(self.runs)])]


def trend(runs: Sequence[Measured], names: tuple[str, ...], series: Series) -> Trend:
    """The trend of one series over its runs."""
    ordered = sorted(runs, key=lambda one: one.at)
    settings = common_settings(ordered, names)
    kept = [one for one in ordered if settings and has(one, settings, names)]
    breaks = tuple(
        (i, "; ".join(f"{name}: {text}" for name, text in differs.items()))
        for i, (one, other) in enumerate(itertools.pairwise(kept), 1)
        if (differs := key_changes(one.key, other.key))
    )
    left_out = tuple(one.name for one in ordered if one not in kept)
    return Trend(*series, names, settings, tuple(kept), left_out, breaks)
