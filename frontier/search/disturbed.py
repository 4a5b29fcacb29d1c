"""Looks that other work on the machine disturbed, and windows of a server that wanders.

A look is too short for other work to average out.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from frontier.core.claim.changes import History
from frontier.core.claim.levels import latencies
from frontier.core.claim.proof import FRESH, SCANS, WANDERED, by_concurrency, spread
from frontier.core.model.decisions import Limit
from frontier.core.model.loads import Load
from frontier.core.model.trials import Phase
from frontier.core.stats.laws import normal_quantile
from frontier.core.window.window import Floats, WindowData
from frontier.search.curves import FAR, RUN_TO_RUN, Curve, logs_over

CONTRADICTS = 3.0
"""Where a setting is slower than a higher one by this many standard errors, one of the two is
wrong."""


def contradicted(curves: Iterable[Curve]) -> frozenset[Load]:
    """The settings whose median is above that of a higher setting by more than noise. Other work on
    the machine can make a look too slow, but never too fast.
    """
    return frozenset(c for curve in curves for c in _too_slow(curve))


def _too_slow(curve: Curve) -> Iterator[Load]:
    errors = {c: curve.standard_error(c) for c in curve.medians}
    for (c, slow), (k, fast) in itertools.combinations(sorted(curve.medians.items()), 2):
        if slow - fast > CONTRADICTS * math.hypot(errors[c], errors[k]):
            yield c


def left_out(limits: tuple[Limit, ...], history: History) -> History:
    """The history without looks that are slower than another look at the same setting by more than
    noise. A look of a few seconds is too short for other work on the machine to average out.
    """
    looks = by_concurrency([(trial, sample) for trial, sample in history if trial.phase in (*SCANS, Phase.GRID)])
    slow = {id(sample) for parts in looks.values() if len(parts) > 1 for sample in _slower(limits, parts)}
    return [(trial, sample) for trial, sample in history if id(sample) not in slow] if slow else history


def _slower(limits: tuple[Limit, ...], looks: Sequence[WindowData]) -> Iterable[WindowData]:
    """The looks at one setting whose median is above that of the quickest look by more than
    noise.
    """
    for limit in limits:
        if limit.of.p is None or limit.of.quantity in (None, "itl") or limit.of.inverted:
            continue
        known = [(look, logs_over(latencies(look, limit), limit.promise)) for look in looks]
        medians = [(look, float(np.median(x)), _noise(x)) for look, x in known if len(x)]
        _, least, noise = min(medians, key=lambda each: each[1], default=(None, math.inf, 0.0))
        yield from (look for look, median, own in medians if median - least > CONTRADICTS * math.hypot(noise, own))


def _noise(logs: Floats) -> float:
    """The standard error of a look's median, with the difference from run to run."""
    with np.errstate(invalid="ignore"):  # infinite where most failed
        spread = float(np.median(np.abs(logs - np.median(logs)))) / normal_quantile(0.75)
    return math.hypot((spread if math.isfinite(spread) else FAR) * math.sqrt(1.57 / len(logs)), RUN_TO_RUN)


def wanders(limits: tuple[Limit, ...], history: History) -> bool:
    """Whether the windows of some proof differ by more than noise."""
    proofs = by_concurrency([(trial, sample) for trial, sample in history if trial.phase in FRESH])
    spreads = (spread(parts, limits) for parts in proofs.values() if len(parts) > 1)
    return any(worst - middle > WANDERED for middle, worst in spreads)
