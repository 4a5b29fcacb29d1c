"""Contexts figure: throughput inside the SLA, and the concurrency that the SLA admits, against the input length; or
against the share of the prompt that is common to all, where only that varies. Above them the roofline, and how many
requests the memory, or the batch cap, lets run at once.
"""

from collections.abc import Callable, Mapping, Sequence

from frontier.decide.wording import clean_name, limits_text, setting, unit_text
from frontier.hardware.roofline import Limits, Roofline
from frontier.metrics import per_gpu
from frontier.model import Decision, Shape, Verdict
from frontier.plot.data import Axis, Bar, Line, Panel, Picture, Role, View, bar_of, padded_axis
from frontier.units import format_share

INKS = (Role.FRONTIER, Role.OPERATING, Role.THIRD, Role.FOURTH)
MARKERS = ("o", "s", "^", "D")
COUNTLESS = 10**7
"""Requests in flight that no memory holds: how many of them run is what the memory allows."""


def contexts_figure(views: Sequence[View], rooflines: Mapping[str, Roofline | None]) -> Picture | None:
    """The figure of all series that were decided; None without two lengths, or two shares, to compare."""
    decided = [view for view in views if view.decision is not None and view.frontier.shape.kind == "shape"]
    shapes = [view.frontier.shape for view in decided]
    by_length = len({shape.isl.mean for shape in shapes}) > 1
    if not by_length and len({shape.prefix for shape in shapes}) < 2:
        return None

    def across(shape: Shape) -> float:
        return shape.isl.mean if by_length else shape.prefix * 100

    groups: dict[str, list[View]] = {}
    for view in sorted(decided, key=lambda view: across(view.frontier.shape)):
        groups.setdefault(_name(view, decided, by_length), []).append(view)
    shown = dict(list(groups.items())[: len(INKS)])
    lengths = sorted({across(shape) for shape in shapes})
    label = "input tokens" if by_length else "share of the prompt that is common to all (%)"
    x = padded_axis(f"{label}, log scale" if by_length else label, lengths, log=by_length)
    if by_length:
        x = Axis(x.label, x.low, x.high, log=True, ticks=(lengths[0], lengths[-1], *lengths[1:-1]))
    rate, admitted = [], []
    for name, ink, marker in zip(shown, INKS, MARKERS, strict=False):
        place = [(across(view.frontier.shape), view) for view in shown[name] if _drawn(view.decision)]
        rate.append((Line(name, tuple((at, _rate(view)) for at, view in place), ink, marker=marker), place))
        points = tuple((at, float(view.decision.concurrency or 0)) for at, view in place if view.decision)
        admitted.append(Line(name, points, ink, marker=marker))
    roof, room = _bounds(shown, rooflines, across)
    unit = unit_text("output_throughput", decided[0].gpus)
    up = padded_axis(f"{unit}, log scale", [v for line, _ in rate for _, v in line.points] +
                     [v for line in roof for _, v in line.points], log=True)  # fmt: skip
    count = padded_axis("requests in flight, log scale", [v for line in (*admitted, *room) for _, v in line.points],
                        log=True)  # fmt: skip
    measured = [
        Line(line.name, line.points, line.role, marker=line.marker, bars=tuple(_bar(view, up) for _, view in place))
        for line, place in rate
    ]
    sla = limits_text(decided[0].sla)
    title = f"Throughput and concurrency inside {sla}, by {'input length' if by_length else 'shared prefix'}"
    panels = (
        Panel("output throughput inside the SLA", x, up, (*roof, *measured)),
        Panel("requests in flight inside the SLA", x, count, (*room, *admitted)),
    )
    notes = _notes([view for of_line in shown.values() for view in of_line])
    notes += [f"{len(shown)} of {len(groups)} lines are drawn."] if len(groups) > len(shown) else []
    return Picture("contexts", title, panels, notes=tuple(notes), description=f"{title}.", columns=2, tall=300)


def _name(view: View, among: Sequence[View], by_length: bool) -> str:
    """What tells a line from the others: deployment, output length, shared prefix; 'measured' where nothing does."""
    shape, shapes = view.frontier.shape, [other.frontier.shape for other in among]
    parts = [clean_name(view.frontier.deployment, 40)] if len({v.frontier.deployment for v in among}) > 1 else []
    parts += [f"{shape.osl} output tokens"] if len({s.osl for s in shapes}) > 1 else []
    parts += [f"prefix {format_share(shape.prefix)}"] if by_length and len({s.prefix for s in shapes}) > 1 else []
    return ", ".join(parts) or "measured"


def _drawn(decision: Decision | None) -> bool:
    """Whether it is known what the SLA admits: a setting, or that none is inside."""
    return decision is not None and (decision.concurrency is not None or decision.verdict is Verdict.VIOLATES)


def _rate(view: View) -> float:
    """Output throughput at the operating point, per GPU where their number is known; 0 where no setting is inside."""
    decision = view.decision
    if decision is None or decision.concurrency is None:
        return 0.0
    return decision.metrics["output_throughput"].value / per_gpu("output_throughput", view.gpus)


def _bar(view: View, axis: Axis) -> Bar | None:
    if not _rate(view) or view.decision is None:
        return None
    return bar_of(view.decision.metrics["output_throughput"].scaled(1, per_gpu("output_throughput", view.gpus)), axis)


def _bounds(
    groups: Mapping[str, Sequence[View]], rooflines: Mapping[str, Roofline | None], across: Callable[[Shape], float]
) -> tuple[list[Line], list[Line]]:
    """The rooflines at the highest concurrency measured, and how many requests run at once, of each described group."""
    roof, room = [], []
    for views in groups.values():
        light = rooflines.get(views[0].frontier.deployment)
        if light is None:
            continue
        top = max(p.concurrency for view in views for p in view.mine)
        ceiling, fitting = [], []
        for view in views:
            shape, share = view.frontier.shape, per_gpu("output_throughput", view.gpus)
            at_top, most = _limits(light, shape, top), _limits(light, shape, COUNTLESS)
            # Prompts that share a prefix share its memory too, which these bounds do not count.
            if at_top and (not shape.prefix or at_top.running == top):
                ceiling.append((across(shape), at_top.throughput / share))
            if most and most.running < COUNTLESS and not shape.prefix:
                fitting.append((across(shape), float(most.running)))
        roof += [Line(f"roofline at c={top}", tuple(ceiling), Role.ROOFLINE, "fit")] if len(ceiling) > 1 else []
        room += [Line("run at once at most", tuple(fitting), Role.QUIET, "fit")] if len(fitting) > 1 else []
    return roof, room


def _limits(light: Roofline, shape: Shape, concurrency: int) -> Limits | None:
    """The bounds of a setting; None where not one request fits."""
    try:
        return light.limits(shape, concurrency)
    except ValueError:
        return None


def _notes(views: Sequence[View]) -> list[str]:
    """What the lines do not show: settings at the end of the grid, lengths that nothing is known of, missing proofs."""

    def named(chosen: Sequence[View]) -> str:
        return ", ".join(clean_name(view.frontier.series.label(longest=40), 80) for view in chosen)

    decided = [(view, view.decision) for view in views if view.decision is not None]
    none = [view for view, d in decided if d.concurrency is None and d.verdict is Verdict.VIOLATES]
    unknown = [view for view, d in decided if not _drawn(d)]
    highest = [view for view, d in decided if d.concurrency == max(p.concurrency for p in view.mine)]
    better = [(view, d.next_step) for view, d in decided if d.concurrency is not None and d.next_step is not None]
    estimated = any(d.concurrency is not None and not d.metrics["output_throughput"].has_interval for _, d in decided)
    notes = ["Between the points nothing was measured: the dotted lines only join them."]
    notes += [f"▽ at the lower edge, no setting is inside the SLA: {named(none)}."] if none else []
    notes += [f"Not proven, and so not drawn: {named(unknown)}."] if unknown else []
    notes += [f"The highest concurrency measured is inside, so more may be: {named(highest)}."] if highest else []
    may = "; ".join(f"{named([view])} at {setting(step.concurrency)}" for view, step in better)
    notes += [f"Not proven, and may give more: {may}."] if better else []
    notes += ["Aggregates without intervals: these are their values, and nothing is proven."] if estimated else []
    return notes
