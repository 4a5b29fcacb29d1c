"""A companion of the picture: latency percentiles against concurrency, with the limits, for one (deployment, shape)."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from frontier.metrics import LATENCIES, metric
from frontier.model import Estimate, Limit, Point
from frontier.present.axes import ticks_of
from frontier.present.captions import View
from frontier.present.figure import COLOURS, blend, defaults
from frontier.present.wording import limit_value_text

_QUANTITIES = ("ttft", "tpot", "e2e")
_STATISTICS = (("p50", "o", 0.55), ("p99", "s", 1.0))


@dataclass(frozen=True, slots=True)
class Series:
    """One statistic of one quantity: (concurrency, estimate) of the valid points, ascending."""

    statistic: str
    values: tuple[tuple[int, Estimate], ...]


@dataclass(frozen=True, slots=True)
class LatencyPanel:
    """One quantity: its series without flagged points, and the limits on it."""

    quantity: str
    series: tuple[Series, ...]
    limits: tuple[Limit, ...]


def latency_panels(points: Sequence[Point], limits: Sequence[Limit]) -> list[LatencyPanel]:
    """What is drawn, as data: TTFT, TPOT and E2E where they were measured and finite."""
    found = []
    ordered = sorted((p for p in points if p.valid), key=lambda p: p.concurrency)
    for quantity in _QUANTITIES:
        series = []
        for statistic, *_ in _STATISTICS:
            name = f"{statistic}_{quantity}"
            known = [(p.concurrency, p.metrics[name]) for p in ordered if name in p.metrics]
            finite = tuple((c, e) for c, e in known if math.isfinite(e.value) and e.value > 0)
            if finite:
                series.append(Series(statistic, finite))
        if series:
            mine = tuple(limit for limit in limits if metric(limit.metric).quantity == quantity)
            found.append(LatencyPanel(quantity, tuple(series), tuple(m for m in mine if not metric(m.metric).inverted)))
    return found


def render_latencies(view: View, form: str = "svg") -> bytes | None:
    """The companion of one view, None where no latency is known."""
    panels = latency_panels(view.mine, view.sla)
    if not panels:
        return None
    out = io.BytesIO()
    chosen = view.decision.concurrency if view.decision else None
    with defaults():
        figure = Figure(figsize=(11, 3.3), dpi=100, facecolor="white")
        FigureCanvasAgg(figure)
        for i, panel in enumerate(panels):
            axes = figure.add_axes((0.07 + i * 0.32, 0.17, 0.25, 0.68))
            _draw(axes, panel, chosen)
        figure.savefig(out, format=form, metadata={"Date": None, "Creator": "frontier"} if form == "svg" else None)
    return out.getvalue()


def _draw(axes: Axes, panel: LatencyPanel, chosen: int | None) -> None:
    colours = COLOURS["light"]
    values = [e.value for s in panel.series for _, e in s.values] + [limit.promise for limit in panel.limits]
    scale, unit = (1.0, "s") if min(values) >= 1 else (1e3, "ms")
    low, high = min(values) * scale / 1.4, max(values) * scale * 1.4
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    blue = colours["frontier"]
    signs = {statistic: (marker, blend(blue, "#FFFFFF", share)) for statistic, marker, share in _STATISTICS}
    for series in panel.series:
        marker, colour = signs[series.statistic]
        xs = [c for c, _ in series.values]
        ys = [e.value * scale for _, e in series.values]
        axes.plot(xs, ys, color=colour, lw=0.9, ls=(0, (1, 2)))
        axes.plot(xs, ys, marker, color=colour, ms=5)
        for x, (_, e) in zip(xs, series.values, strict=True):
            ends = [min(max(b * scale, low), high) for b in (e.low, e.high)]
            if not (math.isinf(e.low) and math.isinf(e.high)):
                axes.plot([x, x], ends, color=colour, lw=1.2)
        axes.annotate(
            series.statistic, (xs[-1], ys[-1]), xytext=(7, -3), textcoords="offset points", fontsize=9,
            color=colours["frontier"], annotation_clip=False,
        )  # fmt: skip
    for limit in panel.limits:
        axes.axhline(limit.promise * scale, color=colours["sla"], lw=1.3)
        axes.annotate(
            f"{metric(limit.metric).label} ≤ {limit_value_text(limit.metric, limit.promise)}",
            (0.02, limit.promise * scale), xycoords=("axes fraction", "data"), xytext=(0, 3),
            textcoords="offset points", fontsize=8.5, color=colours["sla"],
        )  # fmt: skip
    if chosen is not None:
        axes.axvline(chosen, color=colours["operating"], lw=1.2, ls=(0, (4, 2)), zorder=0.5)
    _dress(axes, panel, unit, low, high)


def _dress(axes: Axes, panel: LatencyPanel, unit: str, low: float, high: float) -> None:
    colours = COLOURS["light"]
    settings = sorted({c for s in panel.series for c, _ in s.values})
    powers = [c for c in settings if c & (c - 1) == 0] or settings[:: max(1, len(settings) // 6)]
    axes.xaxis.set_major_locator(FixedLocator(powers))
    axes.xaxis.set_major_formatter(FixedFormatter([str(c) for c in powers]))
    axes.xaxis.set_minor_locator(NullLocator())
    ticks = ticks_of(low, high, log=True)
    axes.yaxis.set_major_locator(FixedLocator([at for at, _ in ticks]))
    axes.yaxis.set_major_formatter(FixedFormatter([text for _, text in ticks]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(True, color=colours["grid"], lw=0.8)
    axes.set_axisbelow(True)
    axes.set_title(f"{LATENCIES[panel.quantity]} ({unit})", fontsize=10, loc="left")
    axes.set_xlabel("concurrency", fontsize=9.5)
    axes.tick_params(labelsize=9)
    for name in ("top", "right"):
        axes.spines[name].set_visible(False)
