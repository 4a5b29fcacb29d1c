"""Levels of windows: how long their latencies are, and whether they grow over a series.

The *level* of a window is the mean logarithm of its latencies. Levels of one load have a noise of
two parts: the scatter of whole windows, to which NOISE adds as much prior knowledge as PRIOR
windows would, and the uncertainty that the requests within each window leave.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from frontier.core.claim import tails
from frontier.core.model.decisions import Limit
from frontier.core.stats import laws
from frontier.core.window import window
from frontier.core.window.held import held_alone
from frontier.core.window.window import Floats, WindowData

NOISE, PRIOR = 0.05, 4
"""Expected standard deviation (in ln) of the levels of windows of an unchanged server, and how many
windows this knowledge weighs as much as."""
BATCHES = 10
"""Parts of a window whose means show how sure its level is."""
MOST_AUTOCORRELATION = 0.9
"""The most correlation of neighbouring parts of a window: ten parts cannot show more."""
FEWEST, GROWS = 4, 0.005
"""Fewest windows from which growth is concluded, where all are of one load, and the error of that
conclusion.
"""


@dataclass(frozen=True, slots=True)
class Level:
    """The mean logarithm of a window's latencies, the means of its parts relative to it, when the
    window ended, the latencies in the order of sending, and the numbers of those beyond the limit
    and of their runs.
    """

    mean: float
    parts: Floats
    at: float
    values: Floats
    runs: tuple[int, int]


Levels = tuple[Level | None, ...]
"""The levels of a window in what each limit is on."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A latency that grows by `rate` (in ln) per second, at whatever load."""

    limit: Limit
    rate: float

    @property
    def per_minute(self) -> float:
        """The share that is added in a minute."""
        return math.expm1(60 * self.rate)


def latencies(sample: WindowData, limit: Limit) -> Floats:
    """The known per-request values of the limited latency; of E2E for a limit on ITL or on no
    latency.
    """
    mine = window.narrowed(sample, limit.of.group)
    values: Floats = getattr(mine, limit.of.quantity or "e2e", mine.e2e)
    return values[~np.isnan(values)]


@held_alone
def level(sample: WindowData, limit: Limit) -> Level | None:
    """The level of a window in what a limit is on; None where too few requests succeeded."""
    values = latencies(sample, limit)
    logs = np.log(values[np.isfinite(values) & (values > 0)])
    if len(logs) < 2 * BATCHES:
        return None
    means = np.array([part.mean() for part in np.array_split(logs, BATCHES)])
    return Level(float(logs.mean()), means - means.mean(), float(sample.ends[-1]), values, tails.runs(values, limit))


def within(levels: Sequence[Level]) -> float:
    """The variance of a window's level that comes from its requests. Neighbouring parts that are
    alike show a speed that wanders slowly; a whole window then says little more than one part.
    """
    parts = np.array([x.parts for x in levels])
    own = float((parts**2).sum()) / (len(levels) * (BATCHES - 1))
    if own <= 0:
        return 0.0
    autocorrelation = float((parts[:, 1:] * parts[:, :-1]).sum()) / (len(levels) * (BATCHES - 1)) / own
    autocorrelation = min(
        MOST_AUTOCORRELATION, max(0.0, autocorrelation + (1 + 3 * max(0.0, autocorrelation)) / BATCHES)
    )
    return own * (1 + autocorrelation) / (1 - autocorrelation) / BATCHES


def growths(loads: Iterable[Sequence[Levels]], limits: tuple[Limit, ...]) -> tuple[Growth, ...]:
    """The limited latencies that surely grow, by the levels of the windows of each load.

    All loads show one growth, each by how its own windows differ from each other. What a single
    step explains as well is no growth; a step comes in all latencies at one time.
    """
    complete = ([each for levels in seen if len(each := [x for x in levels if x]) == len(limits)] for seen in loads)
    series = [seen for seen in complete if limits and len(seen) > 1]
    every = [levels for seen in series for levels in seen]
    freedom = len(every) - len(series) - 1
    if freedom < FEWEST - 2:
        return ()
    ends = np.array([levels[0].at for levels in every])
    columns = [_columns(seen, ends) for seen in series]
    if any((np.diff(mine[:, 0]) <= 0).any() for mine in columns):
        return ()  # clocks can be set
    times, means, steps = np.split(np.concatenate(columns), (1, 1 + len(limits)), axis=1)
    length = float((times**2).sum())
    rates = (times * means).sum(axis=0) / length
    by_requests = np.array([within(levels) for levels in zip(*every, strict=True)])
    rest = ((means - times * rates) ** 2).sum(axis=0)
    variances = (PRIOR * NOISE**2 + rest) / (PRIOR + freedom) + by_requests
    steps = steps[:, steps.any(axis=0)]
    by_step = ((steps.T @ means) ** 2 / variances).sum(axis=1) / (steps**2).sum(axis=0)
    if (rates**2 / variances).sum() * length <= by_step.max():
        return ()
    reach = np.sqrt(variances / length) * laws.t_quantile(1 - GROWS / len(limits), PRIOR + freedom)
    return tuple(
        Growth(limit, float(rate)) for limit, rate, sure in zip(limits, rates, rates > reach, strict=True) if sure
    )


def _columns(seen: Sequence[Sequence[Level]], ends: Floats) -> Floats:
    """Of each window of a load its time, its levels, and whether it ended at each of these times or
    later; each column around its mean.
    """
    times = np.array([[levels[0].at] for levels in seen])
    columns = np.hstack((times, [[x.mean for x in levels] for levels in seen], times >= ends))
    around: Floats = columns - columns.mean(axis=0)
    return around
