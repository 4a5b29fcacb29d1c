"""The contexts figure: operating points over the input length or the shared prefix."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from frontier.core.model.decisions import Decision, Verdict
from frontier.core.model.groups import by_key
from frontier.core.model.metrics import per_gpu
from frontier.core.model.text import clean_name
from frontier.core.model.units import format_number, format_share
from frontier.hardware.roofline import Roofline, limits_if_any
from frontier.show.picture.axes import bar_of, padded_axis
from frontier.show.picture.data import Axis, Bar, Line, Panel, Picture, Role
from frontier.show.view.series_view import SeriesView
from frontier.show.view.wording import limits_text, unit_text

LINES = ((Role.FRONTIER, "o"), (Role.OPERATING, "s"), (Role.THIRD, "^"), (Role.FOURTH, "D"))
"""Colour and marker of each line of the contexts figure."""
COUNTLESS = 10**7
"""A number of requests in flight that no memory holds: the memory alone then limits how
many run."""


# --- contexts: over the input length or the shared prefix


def contexts_figure(views: Sequence[SeriesView], rooflines: Mapping[str, Roofline | None]) -> Picture | None:
    """The throughput within the SLA, and the concurrency that the SLA admits, of all decided
    series. They lie below the roofline, and below the number of requests that the memory, or the
    batch cap, lets run at once. None without two lengths, or two shares of a common prefix, to
    compare.
    """
    decided = [view for view in views if view.decision is not None and view.frontier.shape.kind == "shape"]
    shapes = [view.frontier.shape for view in decided]
    by_length = len({shape.isl.mean for shape in shapes}) > 1
    if not by_length and len({shape.prefix for shape in shapes}) < 2:
        return None

    def across(view: SeriesView) -> float:
        return view.frontier.shape.isl.mean if by_length else view.frontier.shape.prefix * 100

    groups = by_key((_name(view, decided, by_length), view) for view in sorted(decided, key=across))
    shown = dict(list(groups.items())[: len(LINES)])
    lengths = sorted({across(view) for view in decided})
    if by_length:
        ticks = (lengths[0], lengths[-1], *lengths[1:-1])
        x = replace(padded_axis("input tokens, log scale", lengths, log=True), ticks=ticks)
    else:
        x = padded_axis("share of the prompt that is common to all (%)", lengths, log=False)
    roof, room = _bounds(shown, rooflines, across)
    drawn = {name: [view for view in group if _is_drawn(view.decision)] for name, group in shown.items()}
    rates = [_rate(view) for group in drawn.values() for view in group]
    unit = unit_text("output_throughput", decided[0].gpus)
    up = padded_axis(f"{unit}, log scale", [*rates, *(v for line in roof for _, v in line.points)], log=True)
    measured, admitted = [], []
    for (name, group), (ink, marker) in zip(drawn.items(), LINES, strict=False):
        throughput = tuple((across(view), _rate(view)) for view in group)
        in_flight = tuple((across(view), float(view.chosen or 0)) for view in group)
        measured.append(Line(name, throughput, ink, marker=marker, bars=tuple(_bar(view, up) for view in group)))
        admitted.append(Line(name, in_flight, ink, marker=marker))
    counts = [v for line in (*admitted, *room) for _, v in line.points]
    title = _fall(measured, unit, x)
    panels = (
        Panel("output throughput within the SLA", x, up, (*roof, *measured)),
        Panel(
            "requests in flight within the SLA",
            x,
            padded_axis("requests in flight, log scale", counts, log=True),
            (*room, *admitted),
        ),
    )
    notes = _context_notes([view for group in shown.values() for view in group])
    notes += [f"{len(shown)} of {len(groups)} lines are drawn."] if len(groups) > len(shown) else []
    sla = f"SLA {limits_text(decided[0].sla)}"
    described = f"{title}. {sla}."
    return Picture("contexts", title, panels, sla, notes=tuple(notes), description=described, columns=2, tall=300)


def _fall(lines: Sequence[Line], unit: str, across: Axis) -> str:
    """'Within the SLA output throughput goes from 10,200 tok/s/GPU with 512 to 46.1 with 65,536
    prompt tokens'; of several lines without their values.
    """
    of = "prompt tokens" if across.log else "% of common prefix"
    points = sorted(point for line in lines for point in line.points)
    if len(lines) > 1 or len(points) < 2:
        return f"Throughput and concurrency within the SLA, by {of}"
    (low, first), (high, last) = points[0], points[-1]
    goes = f"goes from {format_number(first)} {unit} with {low:,.0f} to {format_number(last)} with {high:,.0f}"
    return f"Within the SLA output throughput {goes} {of}"


def _name(view: SeriesView, among: Sequence[SeriesView], by_length: bool) -> str:
    """The name of a line by what differs: deployment, output length, shared prefix; 'within the
    SLA' where nothing does.
    """
    shape, shapes = view.frontier.shape, [other.frontier.shape for other in among]
    parts = [clean_name(view.frontier.deployment, 40)] if len({v.frontier.deployment for v in among}) > 1 else []
    parts += [f"{shape.osl} output tokens"] if len({s.osl for s in shapes}) > 1 else []
    parts += [f"prefix {format_share(shape.prefix)}"] if by_length and len({s.prefix for s in shapes}) > 1 else []
    return ", ".join(parts) or "within the SLA"


def _is_drawn(decision: Decision | None) -> bool:
    """Whether the answer of the SLA is known: a setting, or that none is within."""
    return decision is not None and (decision.load is not None or decision.verdict is Verdict.VIOLATES)


def _rate(view: SeriesView) -> float:
    """Output throughput at the operating point, per GPU where their number is known; 0 where no
    setting is within it.
    """
    decision = view.decision
    if decision is None or decision.load is None:
        return 0.0
    return decision.metrics["output_throughput"].value / per_gpu("output_throughput", view.gpus)


def _bar(view: SeriesView, axis: Axis) -> Bar | None:
    if not _rate(view) or view.decision is None:
        return None
    return bar_of(view.decision.metrics["output_throughput"].scaled(1, per_gpu("output_throughput", view.gpus)), axis)


def _bounds(
    groups: Mapping[str, Sequence[SeriesView]],
    rooflines: Mapping[str, Roofline | None],
    across: Callable[[SeriesView], float],
) -> tuple[list[Line], list[Line]]:
    """The rooflines at the highest measured concurrency, and the number of requests that run at
    once, of each described group.
    """
    roof, room = [], []
    for views in groups.values():
        roofline = rooflines.get(views[0].frontier.deployment)
        if roofline is None:
            continue
        top = max(p.load for view in views for p in view.points)
        ceiling, fitting = [], []
        for view in views:
            shape, share = view.frontier.shape, per_gpu("output_throughput", view.gpus)
            at_top, most = limits_if_any(roofline, shape, top), limits_if_any(roofline, shape, COUNTLESS)
            # Prompts that share a prefix share its memory too, which these bounds do not count.
            if at_top and (not shape.prefix or at_top.running == top):
                ceiling.append((across(view), at_top.throughput / share))
            if most and most.running < COUNTLESS and not shape.prefix:
                fitting.append((across(view), float(most.running)))
        roof += [Line(f"roofline at c={top}", tuple(ceiling), Role.ROOFLINE, "fit")] if len(ceiling) > 1 else []
        room += [Line("memory or batch cap allows", tuple(fitting), Role.QUIET, "fit")] if len(fitting) > 1 else []
    return roof, room


def _context_notes(views: Sequence[SeriesView]) -> list[str]:
    """Notes on what the lines do not show: settings at the end of the grid, lengths without an
    answer, missing proofs.
    """

    def named(chosen: Sequence[SeriesView]) -> str:
        return ", ".join(clean_name(view.frontier.series.label(longest=40), 80) for view in chosen)

    decided = [(view, view.decision) for view in views if view.decision is not None]
    none = [view for view, d in decided if d.load is None and d.verdict is Verdict.VIOLATES]
    unknown = [view for view, d in decided if not _is_drawn(d)]
    highest = [view for view, d in decided if d.load == max(p.load for p in view.points)]
    better = [(view, d.next_step) for view, d in decided if d.load is not None and d.next_step is not None]
    estimated = any(d.load is not None and not d.metrics["output_throughput"].has_interval for _, d in decided)
    notes = ["Between the points nothing was measured: the dotted lines only join them."]
    notes += [f"▽ at the lower edge, no setting is within the SLA: {named(none)}."] if none else []
    notes += [f"Not proven, and so not drawn: {named(unknown)}."] if unknown else []
    notes += (
        [f"Every measured concurrency was within the SLA: {named(highest)}. Measure higher ones."] if highest else []
    )
    may = "; ".join(f"{named([view])} at {step.load.label}" for view, step in better)
    notes += [f"Not proven, and may give more: {may}."] if better else []
    notes += ["Aggregates without intervals: these are their values, and nothing is proven."] if estimated else []
    return notes
