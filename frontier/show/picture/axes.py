"""Axes of figures and the intervals on them: their range and their scale."""

import math
from collections.abc import Sequence

from frontier.core.model.metrics import LATENCIES, RATES, Unit, metric
from frontier.show.picture.data import Axis, Bar
from frontier.show.view.axis_units import display
from frontier.show.view.series_view import Estimate

RATIOS = (Unit.SECONDS, Unit.DOLLARS_PER_MILLION_TOKENS, Unit.JOULES_PER_TOKEN)
"""Units that are compared by factors, and therefore drawn on a logarithmic axis."""
SMALL_RANGE = 3.0
"""The ratio of largest to smallest value below which a logarithmic axis has too few round ticks to
be read; a linear one is used then."""
REACH = 8.0
"""The factor from every point beyond which a limit is named, not drawn: it would squeeze the
picture."""
STUB = 0.028
"""Length of an interval that is drawn without an end, as a share of the axis."""


def metric_axis(
    name: str, values: Sequence[float], bars: Sequence[float], limits: Sequence[float], gpus: int | None
) -> Axis:
    """The axis over these values (in the metric's own unit), with the interval ends and limits that
    are near.
    """
    scale, unit = display(name, values, gpus)
    shown = [v * scale for v in values if math.isfinite(v)] or [v * scale for v in limits] or [1.0]
    shown += [v * scale for v in limits if min(shown) / REACH <= v * scale <= max(shown) * REACH]
    low, high = min(shown), max(shown)
    log = metric(name).unit in RATIOS and low > 0 and high / low >= SMALL_RANGE
    low, high = _widened(low, high, [b * scale for b in bars if math.isfinite(b)], log=log)
    return _named(name, f"{unit}, log scale" if log else unit, gpus, low, high, scale, log=log)


def rising_axis(name: str, values: Sequence[float], gpus: int | None, head: float) -> Axis:
    """The vertical axis, from 0 for rates. `head` is the share at the top that is kept free for
    words.
    """
    if metric(name).better == "lower" or metric(name).unit is Unit.SCORE:
        return metric_axis(name, values, (), (), gpus)
    scale, unit = display(name, values, gpus)
    top = max((v * scale for v in values if math.isfinite(v)), default=0.0) or 1.0
    return _named(name, unit, gpus, 0.0, top / (1 - head), scale, log=False)


def _named(name: str, unit: str, gpus: int | None, low: float, high: float, scale: float, *, log: bool) -> Axis:
    """The axis with its names, in full and short: 'p99 time to first token (ms)' and 'p99 TTFT
    (ms)'.
    """
    of = metric(name)
    per = " per GPU" if gpus and of.unit in RATES else ""
    full = of.label
    if of.quantity is not None and not of.inverted:
        full = of.label.replace(of.quantity.upper(), LATENCIES[of.quantity])
    return Axis(
        f"{full}{per} ({unit})",
        low,
        high,
        log,
        metric=name,
        scale=scale,
        short_label=f"{of.label}{per} ({unit})",
        rising_is_better=of.higher_is_better,
    )


def _widened(low: float, high: float, bars: Sequence[float], *, log: bool) -> tuple[float, float]:
    """The range with room around the values; interval ends may extend it by up to an eighth of the
    span.
    """
    if log:
        span = math.log(high / low)
        inner, pad = math.exp(0.125 * span), max(math.exp(0.055 * span), 1.08 if span else 1.3)
        near = [b for b in bars if low / inner <= b <= high * inner]
        return min([low, *near]) / pad, max([high, *near]) * pad
    span = (high - low) or abs(high) or 1.0
    near = [b for b in bars if low - span / 4 <= b <= high + span / 4]
    least, most = min([low, *near]) - 0.08 * span, max([high, *near]) + 0.08 * span
    return (max(-0.02 * span, least) if low >= 0 else least), most


def padded_axis(label: str, values: Sequence[float], *, log: bool) -> Axis:
    """An axis over these values with some room. Infinite values, and 0 on a logarithmic axis, lie
    beyond it.
    """
    usable = [v for v in values if math.isfinite(v) and (v > 0 or not log)] or [1.0]
    return Axis(label, *_widened(min(usable), max(usable), (), log=log), log)


def bar_of(estimate: Estimate, axis: Axis) -> Bar | None:
    """The interval on an axis; None where none is known.

    An end without a bound, or beyond the axis, is open: a bar to the panel's edge would look like a
    measured end. The lower end 0 of a rate or a latency only says that it is not negative, so it is
    open too.
    """
    if not estimate.has_interval or estimate.low == estimate.high or axis.off(estimate.value):
        return None
    zero_is_open = not axis.metric or metric(axis.metric).unit is not Unit.SHARE
    middle = axis.fraction(axis.shown(estimate.value * axis.scale))
    low, high = estimate.low * axis.scale, estimate.high * axis.scale
    open_low = not axis.holds(low) or (low <= 0 < estimate.value and zero_is_open)
    open_high = not axis.holds(high)
    return Bar(
        axis.value(max(0.0, middle - STUB)) if open_low else low,
        axis.value(min(1.0, middle + STUB)) if open_high else high,
        open_low,
        open_high,
    )
