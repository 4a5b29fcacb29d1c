"""Trend over dated runs: change points of throughput and latencies, and breaks where another thing
was measured.

Runs are cut into stretches of one key (device, engine, flags, model, load); between two stretches
there is a break, never a regression. Within a stretch change points are found by circular binary
segmentation (Olshen and others, Biostatistics 2004) with a t-test in place of permutations: of all
sections of a series, the one that differs most from the rest, if its p-value times the number of
sections is within the error; then the same in each part. A section may reach to an end, which is a
step, or not, which is a change that was mended later. No part has fewer than LEAST runs: one odd
night is no change.

Neighbouring nights are correlated, and a correlated series looks as if it had steps where nothing
changed. So the t-test assumes a first-order autoregression (AR(1)): it takes the variance of the
difference, and the degrees of freedom, of such a series. The correlation is estimated from the
series, corrected for its length, and raised by MARGIN standard errors, up to PERSISTENCE. Up to
there a series without a change shows one with probability ALARM at most, by simulation
(benchmarks/gate.py). The price: a small step needs more nights.
"""

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from frontier.decide.compare import Answer
from frontier.decide.gate import ALARM, Measured, common_settings, has, key_changes, worse_share
from frontier.metrics import metric
from frontier.model import OfSeries, Series, Shape
from frontier.stats.window import Bools, Floats

LEAST = 3
"""Fewest runs before and after a change."""
PERSISTENCE = 0.8
"""The highest correlation of neighbouring runs that is allowed for."""
MARGIN = 2.0
"""Standard errors by which the correlation is taken to be higher than it is seen."""
OUTLIER = 3.0
"""Standard deviations at which a run's distance from the median of its part is cut off."""


@dataclass(frozen=True, slots=True)
class Step:
    """A change point: the `metric` changed by the share `change` (above 0 is worse) with run number
    `at`.
    """

    metric: str
    at: int
    change: float

    @property
    def text(self) -> str:
        """As it is drawn: '−6.2%' for a loss of throughput, '+6.2%' for a latency that grew."""
        return f"{-self.change if metric(self.metric).higher_is_better else self.change:+.1%}".replace("-", "−")


@dataclass(frozen=True, slots=True)
class Trend(OfSeries):
    """The dated runs of one series, oldest first. `breaks` are (number of the first run after it,
    what changed).

    "worse" when the last change point of the last stretch is for the worse, in any metric; "not
    resolved" when that stretch has too few runs to show one, else "no worse".
    """

    deployment: str
    shape: Shape
    metrics: tuple[str, ...]
    settings: tuple[int, ...]
    runs: tuple[Measured, ...]
    left_out: tuple[str, ...]
    breaks: tuple[tuple[int, str], ...]
    steps: tuple[Step, ...]
    verdict: Answer

    @property
    def stretches(self) -> list[range]:
        """The run numbers of each stretch."""
        return self._cut({at for at, _ in self.breaks})

    def levels(self, name: str) -> list[range]:
        """The run numbers between neighbouring breaks and change points of a metric."""
        return self._cut({at for at, _ in self.breaks} | {step.at for step in self.steps if step.metric == name})

    def _cut(self, cuts: Collection[int]) -> list[range]:
        return [range(a, b) for a, b in itertools.pairwise([0, *sorted(cuts), len(self.runs)])]


def change_points(values: Floats, noise: float, level: float) -> list[int]:
    """The places where the mean of `values` changes, each the index of the first value after it.

    `noise` is the variance of one value as it is known otherwise; the spread is never taken to be
    less. `level` is the chance of any place when there is no change.
    """
    n = len(values)
    edges = np.array([i for i in range(n + 1) if i in (0, n) or LEAST <= i <= n - LEAST])
    begins, ends = (side.ravel() for side in np.meshgrid(edges, edges, indexing="ij"))
    wide = ends - begins
    # A section that begins at 0 is the rest of one that ends with the series. There are many that
    # do neither: of a few runs, one outlier would make such a section.
    allowed = (begins > 0) & (wide >= np.where(ends == n, LEAST, 2 * LEAST)) & (n - wide >= LEAST)
    begins, ends, wide = begins[allowed], ends[allowed], wide[allowed]
    if not len(wide):
        return []
    centred = values - values.mean()  # sums of squares of nearly equal numbers would cancel
    sums = np.concatenate(([0.0], np.cumsum(centred)))
    inside = sums[ends] - sums[begins]
    steps = inside / wide - (sums[-1] - inside) / (n - wide)
    weights = 1 / wide + 1 / (n - wide)
    variances = np.maximum(((centred**2).sum() - steps**2 / weights) / (n - 2), noise)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.nan_to_num(np.abs(steps) / np.sqrt(variances * weights), nan=0.0)
    begin, end = int(begins[best := int(t.argmax())]), int(ends[best])
    section = (np.arange(n) >= begin) & (np.arange(n) < end)
    if _p_value(centred, section, noise) * len(t) > level:
        return []
    cuts = [0, begin, *([end] if end < n else []), n]
    within = [at + k for at, to in itertools.pairwise(cuts) for k in change_points(values[at:to], noise, level)]
    return sorted([*cuts[1:-1], *within])


def _p_value(values: Floats, section: Bools, noise: float) -> float:
    """The chance that a section chosen beforehand differs so much from the rest, if neighbouring
    runs are as alike as they may be by these values.
    """
    n, parts = len(values), (section, ~section)
    medians = np.where(section, *(np.median(values[part]) for part in parts))
    cut = OUTLIER * (values - medians).std()
    values = medians + np.clip(values - medians, -cut, cut)
    means = [float(values[part].mean()) for part in parts]
    rest = values - np.where(section, *means)
    squares, step = float(rest @ rest), abs(means[0] - means[1])
    alike = _correlation(rest, squares) ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    # What the means leave of that correlation says how much less the rest varies than a run does.
    left = alike - sum(np.outer(part, part @ alike) / part.sum() for part in parts)
    weights = section / section.sum() - ~section / (~section).sum()
    trace = float(np.trace(left))
    variance = max(squares / trace, noise) * float(weights @ alike @ weights)
    if step == 0 or variance == 0:
        return 1.0 if step == 0 else 0.0
    freedom = trace**2 / float((left * left.T).sum())  # Satterthwaite
    return 2 * float(stats.t.sf(step / math.sqrt(variance), freedom))


def _correlation(rest: Floats, squares: float) -> float:
    """The highest correlation of neighbours that the deviations from two means leave room for, up
    to PERSISTENCE.

    It comes out too low in a short series, by about (1 + 4 r) / n, and by about 5 / n more where
    the section is the one that differs most. A change that is not found yet raises it.
    """
    n, r = len(rest), float(rest[1:] @ rest[:-1]) / squares if squares else 0.0
    return min(PERSISTENCE, max(0.0, (n * r + 6) / (n - 4) + MARGIN / math.sqrt(n)))


def _steps(runs: Sequence[Measured], name: str, settings: Sequence[int], stretch: range, family: int) -> list[Step]:
    """The change points of a metric within one stretch, each with the change from the level before
    to the one after.
    """
    inside = [runs[i] for i in stretch]
    values = np.array([one.level(name, settings) for one in inside])
    noise = float(np.mean([one.noise(name, settings) for one in inside])) if inside else 0.0
    edges = [0, *change_points(values, noise, ALARM / family), len(inside)]
    means = [float(values[a:b].mean()) for a, b in itertools.pairwise(edges)] if inside else []
    pairs = zip(edges[1:], itertools.pairwise(means), strict=False)
    return [Step(name, stretch.start + at, worse_share(name, after - before)) for at, (before, after) in pairs]


def trend(runs: Sequence[Measured], names: tuple[str, ...], family: int, series: Series) -> Trend:
    """The trend of one series over its runs. `family` is how many metrics of how many series share
    the error.
    """
    ordered = sorted(runs, key=lambda one: one.at)
    settings = common_settings(ordered, names)
    kept = [one for one in ordered if settings and has(one, settings, names)]
    breaks = tuple(
        (i, "; ".join(f"{name}: {text}" for name, text in differs.items()))
        for i, (one, other) in enumerate(itertools.pairwise(kept), 1)
        if (differs := key_changes(one.key, other.key))
    )
    left_out = tuple(one.name for one in ordered if one not in kept)
    made = Trend(*series, names, settings, tuple(kept), left_out, breaks, (), "not resolved")
    steps = [s for name in names for stretch in made.stretches for s in _steps(kept, name, settings, stretch, family)]
    last = made.stretches[-1]
    ends = {step.metric: step for step in sorted(steps, key=lambda step: step.at) if step.at > last.start}
    enough: Answer = "no worse" if len(last) >= 2 * LEAST else "not resolved"
    verdict = "worse" if any(step.change > 0 for step in ends.values()) else enough
    return replace(made, steps=tuple(sorted(steps, key=lambda step: step.at)), verdict=verdict)
