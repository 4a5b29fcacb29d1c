"""Comparison of two frontiers: is B's better than A's, by how much, and how sure is that.

The headline is the ratio of the areas under both staircases up to one reference, with a
block-bootstrap interval. The gain at equal latency is a bracket: a staircase is careful for one
frontier but not for a ratio of two (it errs by -15 to +70 %), so each side is bounded by its
staircase below and its next measured point above. The bootstrap sees what varies within a run, not
what varies between days: run A and B interleaved.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from frontier.decide import pareto, uncertainty
from frontier.decide.difference import INDIFFERENCE, ORDER, Answer
from frontier.decide.uncertainty import DRAWS
from frontier.metrics import RATES, Metric, Unit, metric, per_gpu
from frontier.model import Estimate, Limit, Point, Series, Shape, by_series, listed, setting
from frontier.stats.bounds import from_draws
from frontier.stats.window import Floats, WindowData
from frontier.text import told_apart
from frontier.units import count

SAME_TOKENS = 0.05
"""Tokens of two sides whose lengths in characters differ by no more than this share count as alike.
"""
Gpus = tuple[int | None, int | None]
"""How many GPUs each side has; None: not known."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How two frontiers are compared.

    `reference` is the worst value of the second objective that counts, usually the SLA's limit; by
    default the worst that both frontiers reach. One that is a rate is A's. `at` are latencies for
    the gains; by default the reference, where both measured beyond it. `limits` are needed for
    goodput and attainment. `within` is the share that B may lose and still be "no worse", proven
    when the ratio's lower end is above that; B is then worse only when its loss is surely more.
    `draws` and `seed` are of the bootstrap.
    """

    objectives: tuple[str, str]
    reference: float | None = None
    at: tuple[float, ...] = ()
    limits: tuple[Limit, ...] = ()
    within: float | None = None
    draws: int = DRAWS
    seed: int = 0

    @property
    def metrics(self) -> tuple[Metric, Metric]:
        """Both objectives."""
        return metric(self.objectives[0]), metric(self.objectives[1])


@dataclass(frozen=True, slots=True)
class Side:
    """What was measured on one side: the points, and per series the window data by concurrency and
    the GPUs by name.

    Without samples of every point the ratio has no interval; without the GPUs rates are compared as
    they are.
    """

    points: Sequence[Point]
    samples: Mapping[Series, Mapping[int, WindowData]] = field(default_factory=dict)
    gpus: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gain:
    """Throughput of B over A at the same latency `at`: between `low` and `high`, the uncertainty
    included.

    `low` is 0 or `high` infinite where a side has no setting on that side of `at`. `interpolated`
    reads both frontiers off straight lines between their settings: an estimate for the eye, None
    outside what both measured.
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
    """B against A for one shape. `ratio` is area B over area A up to `reference` on the second
    objective.

    Where the sides have different numbers of GPUs, and both are known, all of it is per GPU.
    `absent` says what of each side takes no part, and why. `proven` says who carries the most
    inside the SLA, by what is proven. `characters_per_token` is how long the answers' tokens are,
    None where the requests of a side are not known.
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
    proven: str = ""
    characters_per_token: tuple[float | None, float | None] = (None, None)

    @property
    def per_gpu(self) -> bool:
        """Rates were divided by each side's own GPUs, as these differ."""
        return _divides(self.objectives, self.gpus)


def compare(a: Side, b: Side, rules: Rules) -> Comparison:
    """B against A, each of one deployment and both of the same shape.

    Only settings in the concurrency range of both take part. Without samples of both sides no
    interval is known, and the verdict stays "not resolved". Better or worse needs the ratio's
    interval on one side of 1 and the ratio itself 2 % away from it. Of sides with different numbers
    of GPUs rates are compared per GPU; the same concurrency is then another load, so every setting
    takes part, and the area ends at the worst that both reach where that is before the reference.
    Where a side has no usable point the verdict is "invalid".
    """
    gain, price = rules.metrics
    gpus = _gpus(a), _gpus(b)
    divides = _divides(rules.objectives, gpus)
    divisor = gpus if divides else (None, None)
    usable = [[p for p in side.points if pareto.exclusion(p, rules.metrics) is None] for side in (a, b)]
    taking_part = usable if divides else _in_the_range_of_both(a.points, b.points, usable)
    about = partial(
        Comparison,
        shape=a.points[0].shape,
        a=a.points[0].deployment,
        b=b.points[0].deployment,
        objectives=rules.objectives,
        gpus=gpus,
        absent=(_absent(a.points, rules.metrics), _absent(b.points, rules.metrics)),
    )
    if not all(taking_part):
        why = "Each side needs a usable point in a range of concurrency that both measured."
        unknown = Estimate.without_interval(math.nan, 0)
        return about(reference=math.nan, ratio=unknown, gains=(), verdict="invalid", notes=(why,))
    # Both axes are turned so that more gain and less price are better, and divided by the side's
    # own GPUs.
    turns = [(gain.sign / per_gpu(gain.name, n), -price.sign / per_gpu(price.name, n)) for n in divisor]
    curve_a = _Curve.of(a, taking_part[0], rules, turns[0], rules.seed)
    curve_b = _Curve.of(b, taking_part[1], rules, turns[1], rules.seed + 1)
    worst = min(float(curve_a.price.max()), float(curve_b.price.max()))
    if rules.reference is not None:
        reference = -price.sign * (rules.reference / per_gpu(price.name, divisor[0]))
        worst = min(reference, worst) if divides else reference
    ratio = _ratio(curve_a, curve_b, worst, floor=0.0 if gain.higher_is_better else None)
    latencies = rules.at or (-price.sign * _within((curve_a, curve_b), worst),)
    gains = [_gain(curve_a, curve_b, -price.sign * x, x) for x in latencies]
    characters = _characters_per_token(a), _characters_per_token(b)
    return about(
        reference=-price.sign * worst,
        ratio=ratio,
        gains=tuple(gains),
        verdict=_verdict(ratio, rules.within),
        notes=(
            *_notes(ratio, gains, price.format(-price.sign * worst), usable, taking_part),
            *_token_notes(characters, ratio if gain.unit is Unit.TOKENS_PER_SECOND else None),
        ),
        characters_per_token=characters,
    )


def _gpus(side: Side) -> int | None:
    return side.gpus.get(side.points[0].deployment)


def _in_the_range_of_both(a: Sequence[Point], b: Sequence[Point], kept: list[list[Point]]) -> list[list[Point]]:
    """What of `kept` lies in the range of concurrency that both measured: a side swept further
    gains nothing by it.
    """
    low = max(min(p.concurrency for p in side) for side in (a, b))
    high = min(max(p.concurrency for p in side) for side in (a, b))
    return [[p for p in side if low <= p.concurrency <= high] for side in kept]


def _divides(objectives: tuple[str, str], gpus: Gpus) -> bool:
    """Whether rates are divided: between equal numbers of GPUs it would change nothing, without a
    number it cannot.
    """
    return None not in gpus and gpus[0] != gpus[1] and any(metric(name).unit in RATES for name in objectives)


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
        samples = side.samples.get(points[0].series, {})
        chosen = {p.concurrency: samples[p.concurrency] for p in points if p.concurrency in samples}
        drawn = uncertainty.replicates(chosen, rules.objectives, limits=rules.limits, draws=rules.draws, seed=seed)
        # A setting without its sample would be missing from every draw: then there is no interval
        # at all.
        complete = drawn.concurrencies == tuple(p.concurrency for p in points)
        return cls(gain, price, (turn[0] * drawn.gain, turn[1] * drawn.price) if complete else None)

    def area(self, corner: tuple[float, float]) -> tuple[float, Floats | None]:
        """The area up to `corner` = (least gain, worst price), and that of each draw."""
        value = pareto.hypervolume(self.gain, self.price, corner)
        return value, None if self.draws is None else pareto.hypervolumes(*self.draws, corner)

    def bracket(self, at: float) -> tuple[float, float]:
        """The gain at price `at`: at least the staircase, at most the next measured setting beyond,
        if there is one.

        With draws the lower end is the 2.5 % quantile of theirs and the upper end the 97.5 % one.
        """
        stair, beyond = _bracket(self.gain, self.price, at)
        if self.draws is None:
            return stair, beyond
        ends = np.array([_bracket(gain, price, at) for gain, price in zip(*self.draws, strict=True)])
        low, high = (np.quantile(ends[:, side], q, method="inverted_cdf") for side, q in ((0, 0.025), (1, 0.975)))
        return min(stair, float(low)), max(beyond, float(high))


def _bracket(gain: Floats, price: Floats, at: float) -> tuple[float, float]:
    inside = gain[price <= at]
    stair = float(inside.max()) if inside.size else -math.inf
    beyond = np.flatnonzero(price > at)
    if not beyond.size:
        return stair, math.inf
    return stair, max(stair, float(gain[beyond[np.argmin(price[beyond])]]))


def _within(sides: Sequence[_Curve], worst: float) -> float:
    """The reference where both sides have a setting beyond it, else the middle of the last step
    both have.
    """
    if all((side.price > worst).any() for side in sides):
        return worst
    last = min((np.sort(side.price)[-2:] for side in sides), key=lambda prices: float(prices[-1]))
    return float(last.mean())


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


def _gain(a: _Curve, b: _Curve, at: float, shown: float) -> Gain:
    (low_a, high_a), (low_b, high_b) = a.bracket(at), b.bracket(at)
    low = low_b / high_a if low_b > 0 and high_a > 0 else 0.0
    high = high_b / low_a if low_a > 0 else math.inf
    if low_a <= 0 or low_b <= 0:
        return Gain(shown, low, high, None)
    value = _line(b.gain, b.price, at) / _line(a.gain, a.price, at)
    if math.isnan(value):
        return Gain(shown, low, high, None)
    if a.draws is None or b.draws is None:
        return Gain(shown, low, high, Estimate.without_interval(value, 0))
    draws = [
        _line(gain_b, price_b, at) / _line(gain_a, price_a, at)
        for gain_a, price_a, gain_b, price_b in zip(*a.draws, *b.draws, strict=True)
    ]
    known = np.array([d for d in draws if math.isfinite(d)])
    sure = len(known) >= 0.95 * len(draws)  # elsewhere the draws fall off the measured range too often to be trusted
    return Gain(shown, low, high, from_draws(value, known) if sure else None)


def _line(gain: Floats, price: Floats, at: float) -> float:
    """The frontier's gain at this price on straight lines between its settings; NaN outside
    them.
    """
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
        notes.append("No confidence interval is known for one side, so nothing is resolved.")
    elif abs(ratio.value - 1) <= INDIFFERENCE and not ratio.low <= 1 <= ratio.high:
        notes.append(f"A difference within {INDIFFERENCE:.0%} is less than two runs of one server can differ by.")
    if any(not g.resolved for g in gains):
        notes.append("At equal latency the bracket holds 1: add a concurrency on both sides of that latency.")
    dropped = sorted(
        {p.concurrency for k, s in zip(kept, sides, strict=True) for p in k} - {p.concurrency for s in sides for p in s}
    )
    if dropped:
        notes.append(f"Left out, as only one side reaches so far: {listed(dropped)}.")
    return tuple(notes)


def _characters_per_token(side: Side) -> float | None:
    """Of the answers of a side whose tokens were counted; None where the requests, or their text,
    are not known.
    """
    samples = side.samples.get(side.points[0].series, {}).values()
    counted = [(s, s.ok & ~np.isnan(s.completion_tokens)) for s in samples]
    characters = sum(int(s.text_chars[ok].sum()) for s, ok in counted)
    tokens = sum(float(s.completion_tokens[ok].sum()) for s, ok in counted)
    return characters / tokens if characters and tokens else None


def _token_notes(characters: tuple[float | None, float | None], ratio: Estimate | None) -> tuple[str, ...]:
    """The warning that a token is not as much text on both sides; `ratio` is that of areas in
    tokens per second.
    """
    a, b = characters
    if a is None or b is None or abs(b / a - 1) <= SAME_TOKENS:
        return ()
    counted = f" In characters per second the ratio of {ratio.value:.3g} is {ratio.value * b / a:.3g}." if ratio else ""
    lengths = f"A's have {a:.3g} characters on average, B's {b:.3g}"
    return (f"Tokens differ: {lengths} (another tokenizer, or other text).{counted}",)


def _absent(points: Sequence[Point], objectives: tuple[Metric, Metric]) -> tuple[str, ...]:
    """What of a side takes no part, being excluded or without an axis: 'c=4, c=8 (invalid:
    lockstep)'.
    """
    reasons: dict[str, list[str]] = {}
    for p in sorted(points, key=lambda p: p.concurrency):
        if (why := pareto.exclusion(p, objectives)) is not None:
            reasons.setdefault(why, []).append(setting(p.concurrency))
    return tuple(f"{', '.join(at)} ({why})" for why, at in reasons.items())


def compare_all(a: Side, b: Side, rules: Rules) -> tuple[Comparison, ...]:
    """`compare` for each shape that both sides measured.

    Deployments are matched by name; when each side has only one, those two are matched whatever
    they are called.
    """
    series_a, series_b = by_series(a.points), by_series(b.points)
    single = len({s.deployment for s in series_a}) == 1 and len({s.deployment for s in series_b}) == 1
    comparisons = []
    for series, points in series_a.items():
        partner = next(
            (other for other in series_b if other.shape == series.shape and (single or other == series)),
            None,
        )
        if partner is not None:
            comparisons.append(compare(replace(a, points=points), replace(b, points=series_b[partner]), rules))
    return tuple(comparisons)


def overall(comparisons: Sequence[Comparison]) -> Answer:
    """The worst of all shapes; "invalid" when nothing could be compared."""
    return max((c.verdict for c in comparisons), key=ORDER.index, default="invalid")


# --- in words

Names = tuple[str, str]


def names_of(comparison: Comparison, names: Names | None = None) -> Names:
    """What the sides are called: as asked, by their deployments, or A and B where those are the
    same.
    """
    if names is None and comparison.a == comparison.b:
        return "A", "B"
    a, b = told_apart(names or (comparison.a, comparison.b), 40)
    return a, b


def ratio_text(ratio: Estimate) -> str:
    """'1.12× [1.08, 1.16]'."""
    known = math.isfinite(ratio.low) and math.isfinite(ratio.high)
    return f"{ratio.value:.3g}×" + (f" [{ratio.low:.3g}, {ratio.high:.3g}]" if known else " (no interval)")


def until_text(comparison: Comparison) -> str:
    """Up to which value of the second objective the areas count: 'p99 TTFT 500 ms'."""
    other = comparison.objectives[1]
    return f"{metric(other).label} {metric(other).format_trimmed(comparison.reference)}"


def comparison_sentence(comparison: Comparison, names: Names | None = None) -> str:
    """'fp8 is better than bf16: 1.12× [1.08, 1.16] the area up to p99 TTFT 500 ms', per GPU where
    it is that.
    """
    a, b = names_of(comparison, names)
    ratio = f"{ratio_text(comparison.ratio)} the area up to {until_text(comparison)}"
    per = " per GPU" if comparison.per_gpu else ""
    if comparison.verdict == "invalid":
        return f"{b} against {a} cannot be compared: no usable measurement"
    if comparison.verdict == "not resolved":
        return f"{b} against {a}{per} is not resolved: {ratio}"
    return f"{b} is {comparison.verdict} than {a}{per}: {ratio}"


def gpus_note(comparison: Comparison, names: Names | None = None) -> str | None:
    """How the GPUs of both sides count: divided by, or why not; None where there is nothing to say.

    Of rates divided by GPUs it also says what the whole deployments come to, as the ratio times
    their GPUs.
    """
    (a, b), (of_a, of_b) = names_of(comparison, names), comparison.gpus
    if comparison.per_gpu:
        text = f"Per GPU: {a} has {count(of_a or 0, 'GPU')}, {b} {of_b}."
        whole = comparison.ratio.value * (of_b or 0) / (of_a or 1)
        rates = [metric(name).unit in RATES for name in comparison.objectives]
        if rates == [True, False] and metric(comparison.objectives[0]).better == "higher" and math.isfinite(whole):
            text += f" As whole deployments {b} is {whole:.3g}× {a}."
        return text
    if of_a == of_b or not any(metric(name).unit in RATES for name in comparison.objectives):
        return None
    known, unknown, side = (a, b, "b") if of_b is None else (b, a, "a")
    return (
        f"Whole deployments, not per GPU: {known} has {count(of_a or of_b or 0, 'GPU')}, that of {unknown} "
        f"is not known; give it with  --set-{side} gpus=N."
    )
