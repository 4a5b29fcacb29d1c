"""Time breakdown figure: mean TTFT and mean E2E latency against concurrency, each a stack of where the time went."""

from collections.abc import Mapping, Sequence

from frontier.decide.wording import PART_WORDS, setting
from frontier.model import Point, TimeBreakdown, amount
from frontier.plot.data import Line, Panel, Picture, Role, View, axis_from_zero, concurrency_axis
from frontier.plot.series_figure import chosen_rule, excluded_notes, series_figure, valid_points
from frontier.units import format_share, seconds_axis

UNEXPLAINED = "unexplained"
INKS = {
    "connect": Role.QUIET, "network": Role.OTHER, "front_end": Role.THIRD, "queue": Role.OPERATING,
    "prefill": Role.FRONTIER, "decode": Role.SLA, UNEXPLAINED: Role.FOURTH,
}  # fmt: skip
THIN = 0.01
"""A layer that is a smaller share of every bar is not seen, and would only lengthen the legend."""

Bars = Mapping[int, Mapping[str, float]]
"""Seconds of each layer, by setting."""


def time_figure(view: View) -> Picture | None:
    """The stacks of every valid setting whose time breakdown is known; None where there is none."""
    points = valid_points(view)
    known = {p.concurrency: p.time for p in points if p.time is not None and not p.time.refused}
    if not known:
        return None
    first = {c: layers(time, time.ttft, [name for name in time.parts if name != "decode"]) for c, time in known.items()}
    whole = {c: layers(time, time.e2e, list(time.parts)) for c, time in known.items()}
    panels = [
        panel for title, bars in (("time to first token", first), ("end-to-end latency", whole))
        if (panel := _panel(view, f"mean {title}", bars)) is not None
    ]  # fmt: skip
    notes = ["Means over the window, from the server's histograms and the client's stamps; a percentile has no parts."]
    return series_figure("time", view, "where the time goes", panels, (*notes, *_notes(points, known),
                         *excluded_notes(view)))  # fmt: skip


def layers(time: TimeBreakdown, total: float, names: Sequence[str]) -> dict[str, float]:
    """The parts of a total, and what is left of it."""
    parts = {name: time.parts[name] for name in names}
    return {**parts, UNEXPLAINED: max(0.0, total - sum(parts.values()))}


def _panel(view: View, title: str, bars: Bars) -> Panel | None:
    tops = {c: sum(parts.values()) for c, parts in bars.items()}
    if not any(tops.values()):
        return None
    drawn = [n for n in INKS if any(parts.get(n, 0.0) >= THIN * tops[c] > 0 for c, parts in bars.items())]
    scale, unit = seconds_axis(list(tops.values()))
    lines, below = [], dict.fromkeys(bars, 0.0)
    for name in drawn:
        band = []
        for c, parts in bars.items():
            low, below[c] = below[c], below[c] + parts.get(name, 0.0) * scale
            band.append((amount(c), low, below[c]))
        lines.append(Line(PART_WORDS.get(name, name), (), INKS[name], "layer", band=tuple(band)))
    y = axis_from_zero(unit, [top * scale for top in tops.values()])
    return Panel(title, concurrency_axis(list(bars)), y, tuple(lines), rules=chosen_rule(view))


def _notes(points: Sequence[Point], known: Mapping[int, TimeBreakdown]) -> list[str]:
    """What the stacks do not show."""
    missing = list(dict.fromkeys(PART_WORDS[name] for time in known.values() for name in time.missing))
    notes = [f"The server's metrics do not tell {', '.join(missing)}: it is in what is unexplained."] if missing else []
    over = [f"{format_share(-time.rest / time.e2e)} at {setting(c)}" for c, time in known.items()
            if time.rest < -THIN * time.e2e]  # fmt: skip
    notes += [f"The parts add up to more than was measured: by {', '.join(over)}."] if over else []
    absent = [setting(p.concurrency) for p in points if p.concurrency not in known]
    return [*notes, *([f"Not known, and so not drawn: {', '.join(absent)}."] if absent else [])]
