"""Ratio of the areas under two frontiers up to one reference, with a block-bootstrap interval: how
much better one is over all latencies, for programs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from frontier.core import pareto, uncertainty
from frontier.core.bounds import from_draws
from frontier.core.metrics import per_gpu
from frontier.core.points import Estimate, Point
from frontier.core.window import Floats
from frontier.extras.compare.contest import Contest, Gpus, Rules, Side, divides


def area_ratio(contest: Contest) -> tuple[float, Estimate]:
    """The reference on the second objective, and area B over area A up to it; NaN where a side has
    no usable point.
    """
    curves, rules = _curves(contest), contest.rules
    if curves is None:
        return math.nan, Estimate.without_interval(math.nan, 0)
    gain, price = rules.metrics
    worst = _worst(curves, rules, (contest.sides[0].gpus, contest.sides[1].gpus))
    return -price.sign * worst, _ratio(*curves, worst, floor=0.0 if gain.higher_is_better else None)


@dataclass(frozen=True, slots=True, eq=False)
class _Curve:
    """One side's settings, turned so that gain is to be maximised and price to be minimised, and
    the bootstrap draws.

    `draws` are the turned gain and price as arrays of (draws, settings); None where a setting has
    no window data.
    """

    gain: Floats
    price: Floats
    draws: tuple[Floats, Floats] | None

    @classmethod
    def of(cls, side: Side, points: Sequence[Point], rules: Rules, turn: tuple[float, float], seed: int) -> "_Curve":
        gain, price = (
            np.array([sign * p.metrics[name].value for p in points])
            for name, sign in zip(rules.objectives, turn, strict=True)
        )
        chosen = {p.concurrency: side.samples[p.concurrency] for p in points if p.concurrency in side.samples}
        drawn = uncertainty.replicates(chosen, rules.objectives, limits=rules.limits, draws=rules.draws, seed=seed)
        # A setting without its sample would be missing from every draw: then there is no interval
        # at all.
        complete = drawn.concurrencies == tuple(p.concurrency for p in points)
        return cls(gain, price, (turn[0] * drawn.gain, turn[1] * drawn.price) if complete else None)

    def area(self, corner: tuple[float, float]) -> tuple[float, Floats | None]:
        """The area up to `corner` = (least gain, worst price), and that of each draw."""
        value = hypervolume(self.gain, self.price, corner)
        return value, None if self.draws is None else hypervolumes(*self.draws, corner)


def _curves(contest: Contest) -> tuple[_Curve, _Curve] | None:
    """Both sides' settings in the range of concurrency that both measured, as a side that was swept
    further gains nothing by it; per GPU all of them, as the same concurrency is then another load.
    None where a side has none.
    """
    (a, b), rules = contest.sides, contest.rules
    divided = divides(rules.objectives, (a.gpus, b.gpus))
    low = max(min(p.concurrency for p in side.points) for side in (a, b))
    high = min(max(p.concurrency for p in side.points) for side in (a, b))
    gain, price = rules.metrics
    made = []
    for i, side in enumerate((a, b)):
        usable = [p for p in side.points if pareto.exclusion(p, rules.metrics) is None]
        points = [p for p in usable if divided or low <= p.concurrency <= high]
        if not points:
            return None
        # Both axes are turned so that more gain and less price are better, and divided by the
        # side's own GPUs.
        gpus = side.gpus if divided else None
        turn = gain.sign / per_gpu(gain.name, gpus), -price.sign / per_gpu(price.name, gpus)
        made.append(_Curve.of(side, points, rules, turn, rules.seed + i))
    return made[0], made[1]


def _worst(curves: tuple[_Curve, _Curve], rules: Rules, gpus: Gpus) -> float:
    """The price up to which areas count, turned: the reference, and per GPU no more than both
    reach.
    """
    divided = divides(rules.objectives, gpus)
    reached = min(float(curve.price.max()) for curve in curves)
    if rules.reference is None:
        return reached
    price = rules.metrics[1]
    reference = -price.sign * rules.reference / per_gpu(price.name, gpus[0] if divided else None)
    return min(reference, reached) if divided else reference


def _ratio(a: _Curve, b: _Curve, worst: float, floor: float | None) -> Estimate:
    """Area over area. A gain that is to be minimised has no natural zero: `floor` None is the worst
    of both sides.
    """
    least = float(min(a.gain.min(), b.gain.min())) if floor is None else floor
    (area_a, draws_a), (area_b, draws_b) = a.area((least, worst)), b.area((least, worst))
    value = math.inf if area_b > 0 else math.nan
    if area_a > 0:
        value = area_b / area_a
    if draws_a is None or draws_b is None:
        return Estimate.without_interval(value, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return from_draws(value, draws_b / draws_a)


def hypervolume(maximise: ArrayLike, minimise: ArrayLike, reference: tuple[float, float]) -> float:
    """The area a frontier dominates, up to `reference` = (least of the maximised axis, most of the
    minimised axis).

    Points beyond the reference add nothing. Comparable only between frontiers of the same reference
    and metrics. In the units of both axes multiplied. ValueError for an infinite reference. Tested
    equal to moocore's.
    """
    return float(hypervolumes(np.asarray(maximise)[np.newaxis], np.asarray(minimise)[np.newaxis], reference)[0])


def hypervolumes(maximise: Floats, minimise: Floats, reference: tuple[float, float]) -> Floats:
    """The `hypervolume` of each row; a point of which either coordinate is NaN or infinite adds
    nothing.
    """
    floor, limit = reference
    if not (math.isfinite(floor) and math.isfinite(limit)):
        raise ValueError("the hypervolume needs a finite reference point; the SLA's limit is the usual one")
    inside = (maximise > floor) & (minimise < limit) & np.isfinite(maximise) & np.isfinite(minimise)
    low = np.where(inside, minimise, limit)  # what lies outside comes last, and is of no width
    order = np.argsort(low, axis=1)
    low, high = np.take_along_axis(low, order, 1), np.take_along_axis(np.where(inside, maximise, floor), order, 1)
    widths = np.diff(low, append=limit)
    areas: Floats = np.sum((np.maximum.accumulate(high, axis=1) - floor) * widths, axis=1)
    return areas
