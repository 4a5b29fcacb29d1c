"""A against B: did the frontier move up and to the left, by how much, and how sure is that.

The headline is the ratio of the areas under both staircases up to one reference, with a block-bootstrap interval. The
gain at equal latency is a bracket: a staircase is careful for one frontier but not for a ratio of two (it errs by -15
to +70 %), so each side is bounded by its staircase below and its next measured point above. The bootstrap sees what
varies within a run, not what varies between days: run A and B interleaved.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from frontier.decide import pareto, uncertainty
from frontier.decide.uncertainty import DRAWS, INDIFFERENCE, Replicates, replicates
from frontier.errors import ExitCode
from frontier.metrics import RATES, Metric, metric, per_gpu
from frontier.model import Estimate, Limit, Point, Shape
from frontier.stats.window_data import Floats, Sample

Answer = Literal["better", "no worse", "not resolved", "worse", "invalid"]
ORDER: tuple[Answer, ...] = ("better", "no worse", "not resolved", "worse", "invalid")
"""The answers, the worst last."""
Samples = Mapping[tuple[str, Shape], Mapping[int, Sample]]
Gpus = tuple[int | None, int | None]
"""How many GPUs each side has; None: not known."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Throughput of B over A at the same latency `at`: between `low` and `high`, what is measured in doubt.

    `low` is 0 or `high` infinite where a side has no setting on that side of `at`. `interpolated` reads both frontiers
    off straight lines between their settings: an estimate for the eye, None outside what both measured.
    """

    at: float
    low: float
    high: float
    interpolated: Estimate | None

    @property
    def resolved(self) -> bool:
        """The bracket excludes "no difference"."""
        return self.low > 1 or self.high < 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """B against A for one shape. `ratio` is area B over area A up to `reference` on the second objective.

    Where the sides have different numbers of GPUs, and both are known, all of it is per GPU. `absent` says what of each
    side takes no part, and why.
    """

    shape: Shape
    a: str
    b: str
    objectives: tuple[str, str]
    reference: float
    ratio: Estimate
    gains: tuple[Gain, ...]
    verdict: Answer
    notes: tuple[str, ...] = ()
    gpus: Gpus = (None, None)
    absent: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    @property
    def per_gpu(self) -> bool:
        """Rates were divided by each side's own GPUs, as these differ."""
        return _divides(self.objectives, self.gpus)


def compare(
    a: Sequence[Point],
    b: Sequence[Point],
    objectives: tuple[str, str],
    *,
    reference: float | None = None,
    at: Sequence[float] = (),
    a_samples: Mapping[int, Sample] | None = None,
    b_samples: Mapping[int, Sample] | None = None,
    limits: tuple[Limit, ...] = (),
    within: float | None = None,
    gpus: Gpus = (None, None),
    draws: int = DRAWS,
    seed: int = 0,
) -> Comparison:
    """B against A, both of one deployment and the same shape.

    `reference` is the worst value of the second objective that counts, usually the SLA's limit; by default the worst
    that both frontiers reach. `at` are latencies for the gains; by default the reference, where both measured beyond
    it. Only settings in the concurrency range of both take part. Without samples of both sides the doubt is not known,
    and the verdict stays "not resolved". Better or worse needs the ratio's interval on one side of 1 and the ratio
    itself 2 % away from it. `within` is the share that B may lose and still be "no worse", proven when the ratio's
    lower end is above that; B is then worse only when its loss is surely more. Of sides with different numbers of
    `gpus` rates are compared per GPU; the same concurrency is then another load, so every setting takes part, and the
    area ends at the worst that both reach where that is before the reference. A reference that is a rate is A's.
    ValueError when a side has no usable point.
    """
    one, other = metric(objectives[0]), metric(objectives[1])
    divides = _divides(objectives, gpus)
    share = gpus if divides else (None, None)
    kept = [[p for p in side if pareto.exclusion(p, (one, other)) is None] for side in (a, b)]
    sides = kept if divides else _in_the_range_of_both(a, b, kept)
    if not all(sides):
        raise ValueError("each side needs a usable point in a range of concurrency that both measured")
    better = (1.0 if one.better == "higher" else -1.0), (1.0 if other.better == "lower" else -1.0)
    signs = [(better[0] / per_gpu(one.name, of), better[1] / per_gpu(other.name, of)) for of in share]
    reference = None if reference is None else reference / per_gpu(other.name, share[0])
    tables = [_Side.of(side, objectives, turn) for side, turn in zip(sides, signs, strict=True)]
    reached = min(float(t.price.max()) for t in tables)
    worst = reached if reference is None else better[1] * reference
    worst = min(worst, reached) if divides else worst
    for table, samples, turn in zip(tables, (a_samples, b_samples), signs, strict=True):
        if samples is not None:
            chosen = {c: samples[c] for c in table.concurrencies if c in samples}
            table.draw(replicates(chosen, objectives, limits=limits, draws=draws, seed=seed), turn)
        seed += 1
    ratio = _ratio(tables[0], tables[1], better[0], worst)
    gains = tuple(_gain(tables[0], tables[1], better[1] * x, x) for x in (at or (better[1] * _within(tables, worst),)))
    return Comparison(
        shape=a[0].shape,
        a=a[0].deployment,
        b=b[0].deployment,
        objectives=objectives,
        reference=better[1] * worst,
        ratio=ratio,
        gains=gains,
        verdict=_verdict(ratio, within),
        notes=_notes(ratio, gains, other.format(better[1] * worst), kept, sides),
        absent=(_absent(a, (one, other)), _absent(b, (one, other))),
        gpus=gpus,
    )


def _in_the_range_of_both(a: Sequence[Point], b: Sequence[Point], kept: list[list[Point]]) -> list[list[Point]]:
    """What of `kept` lies in the range of concurrency that both measured: who was swept further gains nothing by it."""
    low = max(min(p.concurrency for p in side) for side in (a, b)) if a and b else 0
    high = min(max(p.concurrency for p in side) for side in (a, b)) if a and b else 0
    return [[p for p in side if low <= p.concurrency <= high] for side in kept]


def _divides(objectives: tuple[str, str], gpus: Gpus) -> bool:
    """Whether rates are divided: between equal numbers of GPUs it would change nothing, without a number it cannot."""
    return None not in gpus and gpus[0] != gpus[1] and any(metric(name).unit in RATES for name in objectives)


class _Side:
    """One side's settings, turned so that gain is to be maximised and price to be minimised, and its draws.

    `signs` turn, and divide by the side's GPUs where that is asked.
    """

    def __init__(self, concurrencies: tuple[int, ...], gain: Floats, price: Floats) -> None:
        self.concurrencies, self.gain, self.price = concurrencies, gain, price
        self.drawn: tuple[Floats, Floats] | None = None

    @classmethod
    def of(cls, points: Sequence[Point], objectives: tuple[str, str], signs: tuple[float, float]) -> "_Side":
        gain, price = (
            np.array([sign * p.metrics[name].value for p in points])
            for name, sign in zip(objectives, signs, strict=True)
        )
        return cls(tuple(p.concurrency for p in points), gain, price)

    def draw(self, found: Replicates, signs: tuple[float, float]) -> None:
        if found.concurrencies == self.concurrencies:  # a setting without its sample would be missing from every draw
            self.drawn = signs[0] * found.gain, signs[1] * found.price

    def area(self, floor: float, worst: float) -> tuple[float, Floats | None]:
        value = pareto.hypervolume(self.gain, self.price, (floor, worst))
        if self.drawn is None:
            return value, None
        areas = []
        for gain, price in zip(*self.drawn, strict=True):
            ok = np.isfinite(gain) & np.isfinite(price)
            areas.append(pareto.hypervolume(gain[ok], price[ok], (floor, worst)))
        return value, np.array(areas)

    def bracket(self, at: float) -> tuple[float, float]:
        """The gain at price `at`: at least the staircase, at most the next measured setting beyond, if there is one.

        With draws the lower end is the 2.5 % quantile of theirs and the upper end the 97.5 % one.
        """
        stair, beyond = _bracket(self.gain, self.price, at)
        if self.drawn is None:
            return stair, beyond
        ends = np.array([_bracket(gain, price, at) for gain, price in zip(*self.drawn, strict=True)])
        low, high = (np.quantile(ends[:, side], q, method="inverted_cdf") for side, q in ((0, 0.025), (1, 0.975)))
        return min(stair, float(low)), max(beyond, float(high))


def _bracket(gain: Floats, price: Floats, at: float) -> tuple[float, float]:
    inside = gain[price <= at]
    stair = float(inside.max()) if inside.size else -math.inf
    beyond = np.flatnonzero(price > at)
    if not beyond.size:
        return stair, math.inf
    return stair, max(stair, float(gain[beyond[np.argmin(price[beyond])]]))


def _within(sides: Sequence[_Side], worst: float) -> float:
    """The reference where both sides have a setting beyond it, else the middle of the last step both have."""
    if all((side.price > worst).any() for side in sides):
        return worst
    last = min((np.sort(side.price)[-2:] for side in sides), key=lambda prices: float(prices[-1]))
    return float(last.mean())


def _ratio(a: _Side, b: _Side, sign: float, worst: float) -> Estimate:
    """Area over area. What is to be minimised has no natural zero to count from: the worst of both sides serves."""
    floor = 0.0 if sign > 0 else float(min(a.gain.min(), b.gain.min()))
    (area_a, draws_a), (area_b, draws_b) = a.area(floor, worst), b.area(floor, worst)
    value = area_b / area_a if area_a > 0 else (math.inf if area_b > 0 else math.nan)
    if draws_a is None or draws_b is None:
        return Estimate.without_interval(value, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return uncertainty.from_draws(value, draws_b / draws_a)


def _gain(a: _Side, b: _Side, at: float, shown: float) -> Gain:
    (low_a, high_a), (low_b, high_b) = a.bracket(at), b.bracket(at)
    usable = low_a > 0 and low_b > 0
    low = low_b / high_a if low_b > 0 and high_a > 0 else 0.0
    high = high_b / low_a if low_a > 0 else math.inf
    if not usable:
        return Gain(shown, low, high, None)
    value = _line(b.gain, b.price, at) / _line(a.gain, a.price, at)
    if math.isnan(value):
        return Gain(shown, low, high, None)
    if a.drawn is None or b.drawn is None:
        return Gain(shown, low, high, Estimate.without_interval(value, 0))
    draws = [
        _line(gain_b, price_b, at) / _line(gain_a, price_a, at)
        for gain_a, price_a, gain_b, price_b in zip(*a.drawn, *b.drawn, strict=True)
    ]
    known = np.array([d for d in draws if math.isfinite(d)])
    sure = len(known) >= 0.95 * len(draws)  # elsewhere the draws fall off the measured range too often to be trusted
    return Gain(shown, low, high, uncertainty.from_draws(value, known) if sure else None)


def _line(gain: Floats, price: Floats, at: float) -> float:
    """The frontier's gain at this price on straight lines between its settings; NaN outside them."""
    ok = np.isfinite(gain) & np.isfinite(price)
    gain, price = gain[ok], price[ok]
    if not gain.size:
        return math.nan
    keep = pareto.nondominated(gain, price)
    order = np.argsort(price[keep])
    return float(np.interp(at, price[keep][order], gain[keep][order], left=math.nan, right=math.nan))


def _verdict(ratio: Estimate, within: float | None) -> Answer:
    if ratio.low > 1 and ratio.value > 1 + INDIFFERENCE:
        return "better"
    if within is not None and ratio.low >= 1 - within:
        return "no worse"
    if ratio.high < 1 - (within or 0.0) and ratio.value < 1 - max(INDIFFERENCE, within or 0.0):
        return "worse"
    return "not resolved"


def _notes(
    ratio: Estimate, gains: Sequence[Gain], reference: str, kept: list[list[Point]], sides: list[list[Point]]
) -> tuple[str, ...]:
    notes = [f"The area counts up to {reference}."]
    if math.isinf(ratio.low) and math.isinf(ratio.high):
        notes.append("The doubt of one side is not known, so nothing is resolved.")
    elif abs(ratio.value - 1) <= INDIFFERENCE and not ratio.low <= 1 <= ratio.high:
        notes.append(f"A difference within {INDIFFERENCE:.0%} is less than two runs of one server can differ by.")
    if any(not g.resolved for g in gains):
        notes.append("At equal latency the bracket holds 1: add a concurrency on both sides of that latency.")
    dropped = sorted(
        {p.concurrency for k, s in zip(kept, sides, strict=True) for p in k} - {p.concurrency for s in sides for p in s}
    )
    if dropped:
        notes.append(f"Left out, as only one side reaches so far: c={', '.join(map(str, dropped))}.")
    return tuple(notes)


def _absent(points: Sequence[Point], objectives: tuple[Metric, Metric]) -> tuple[str, ...]:
    """What of a side takes no part, being excluded or without an axis: 'c=4, c=8 (invalid: lockstep)'."""
    reasons: dict[str, list[str]] = {}
    for p in sorted(points, key=lambda p: p.concurrency):
        if (why := pareto.exclusion(p, objectives)) is not None:
            reasons.setdefault(why, []).append(f"c={p.concurrency}")
    return tuple(f"{', '.join(at)} ({why})" for why, at in reasons.items())


def compare_all(
    a: Sequence[Point],
    b: Sequence[Point],
    objectives: tuple[str, str],
    *,
    a_samples: Samples | None = None,
    b_samples: Samples | None = None,
    reference: float | None = None,
    limits: tuple[Limit, ...] = (),
    within: float | None = None,
    a_gpus: Mapping[str, int | None] | None = None,
    b_gpus: Mapping[str, int | None] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[Comparison, ...]:
    """`compare` for each shape that both sides measured; where a side has no usable point the verdict is "invalid".

    Deployments are matched by name; when each side has only one, those two are matched whatever they are called.
    `a_gpus` and `b_gpus` say how many GPUs each deployment has.
    """
    left, right = _groups(a), _groups(b)
    axes = metric(objectives[0]), metric(objectives[1])
    single = len({d for d, _ in left}) == 1 and len({d for d, _ in right}) == 1
    found = []
    for (deployment, shape), points in left.items():
        partner = next(
            (key for key in right if key[1] == shape and (single or key[0] == deployment)),
            None,
        )
        if partner is None:
            continue
        gpus = (a_gpus or {}).get(deployment), (b_gpus or {}).get(partner[0])
        try:
            one = compare(
                points,
                right[partner],
                objectives,
                reference=reference,
                a_samples=(a_samples or {}).get((deployment, shape)),
                b_samples=(b_samples or {}).get(partner),
                limits=limits,
                within=within,
                gpus=gpus,
                draws=draws,
                seed=seed,
            )
        except ValueError as error:
            unknown = Estimate.without_interval(math.nan, 0)
            why = f"{error}."
            one = Comparison(
                shape, deployment, partner[0], objectives, math.nan, unknown, (), "invalid",
                (why[0].upper() + why[1:],), gpus, (_absent(points, axes), _absent(right[partner], axes)),
            )  # fmt: skip
        found.append(one)
    return tuple(found)


def _groups(points: Sequence[Point]) -> dict[tuple[str, Shape], list[Point]]:
    groups: dict[tuple[str, Shape], list[Point]] = {}
    for p in points:
        groups.setdefault((p.deployment, p.shape), []).append(p)
    return groups


def overall(comparisons: Sequence[Comparison]) -> Answer:
    """The worst of all shapes; "invalid" when nothing could be compared."""
    return max((c.verdict for c in comparisons), key=ORDER.index, default="invalid")


def exit_code(comparisons: Sequence[Comparison]) -> ExitCode:
    """0 when every shape is better or no worse, 3 when any is worse, 4 when any is not resolved, 5 when any is invalid.

    The worst counts, and no comparison at all is invalid.
    """
    return {
        "better": ExitCode.YES,
        "no worse": ExitCode.YES,
        "not resolved": ExitCode.NOT_PROVEN,
        "worse": ExitCode.NO,
        "invalid": ExitCode.FAILED,
    }[overall(comparisons)]
