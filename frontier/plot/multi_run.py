"""Several frontiers on the same axes: two that are compared, or up to four runs or deployments side by side."""

import dataclasses
import math
from collections.abc import Sequence

from frontier.decide.compare import Comparison
from frontier.decide.wording import (
    Names,
    Provenance,
    apart,
    clean,
    clean_name,
    comparison_sentence,
    count,
    flag_kinds,
    gpus_note,
    left_out,
    limits_text,
    names_of,
    setting,
)
from frontier.metrics import RATES, metric, per_gpu
from frontier.model import Estimate, Limit, Point
from frontier.plot.annotate import annotated
from frontier.plot.data import (
    NBSP,
    SEPARATOR,
    SURE,
    TOGETHER,
    View,
    breaks,
    doubt_words,
    foot_line,
    hidden_limits,
    unstarred,
    view_sentence,
)
from frontier.plot.layout import Rect, fit_middle, line_height, wrap
from frontier.plot.picture import (
    FOOT,
    NOTE,
    SUBTITLE,
    TITLE,
    WIDTH,
    attained,
    axes_of,
    boxes,
    mark_of,
    region_of,
    rules_of,
    staircase,
    text_lines,
)
from frontier.plot.picture_model import Mark, Panel, Picture, Role, Stair
from frontier.plot.winner import Group, title_of

ROLES = (Role.FRONTIER, Role.OTHER, Role.THIRD, Role.FOURTH)
"""By colour and by the shape of the mark; more than four in a panel cannot be told apart."""
SIGNS = dict(zip(ROLES, "●■▲◆", strict=True))
FEW = 10
"""Up to so many settings of a staircase are all numbered."""


def overlay(
    a: View, b: View, comparison: Comparison, *, names: Names | None = None, footer: Provenance | None = None,
    more: Sequence[str] = (),
) -> Picture:  # fmt: skip
    """What `compare` shows: A in blue with dots, B in orange with squares. The title is the verdict, with the interval
    it stands on. ValueError when the objectives differ.
    """
    if a.gpus != b.gpus and not comparison.per_gpu:  # then whole deployments were compared
        a, b = dataclasses.replace(a, gpus=None), dataclasses.replace(b, gpus=None)
    group = Group(names_of(comparison, names), (a, b))
    note = gpus_note(comparison, names)
    return _picture([group], comparison_sentence(comparison, names), footer, [*([note] if note else []), *more])


def together(groups: Sequence[Group], *, footer: Provenance | None = None, more: Sequence[str] = ()) -> Picture:
    """Up to four frontiers in one panel per shape. Only what intervals separate is called the most. `more` are notes.

    ValueError without a group, with more than four in one, or when objectives differ.
    """
    if not groups:
        raise ValueError("a picture needs at least one frontier")
    notes = _undivided(groups)
    if notes:
        groups = [
            Group(group.names, tuple(dataclasses.replace(view, gpus=None) for view in group.views)) for group in groups
        ]
    return _picture(groups, title_of(groups), footer, [*notes, *more])


def _undivided(groups: Sequence[Group]) -> list[str]:
    """Why no rate is per GPU, where some but not all say how many GPUs they have; empty where all do, or none."""
    counts = list(dict.fromkeys((n, v.gpus) for group in groups for n, v in zip(group.names, group.views, strict=True)))
    unknown = [name for name, gpus in counts if gpus is None]
    if not unknown or len(unknown) == len(counts) or not any(metric(n).unit in RATES for n in groups[0].views[0].axes):
        return []
    return [f"whole deployments, not per GPU: the number of GPUs is not known of {', '.join(unknown)}"]


def _said(groups: Sequence[Group]) -> list[tuple[str, Role]]:
    """What each frontier says, under its mark and in its colour: with that its name is told even where the panel has no
    room for it. Where their GPUs differ, so is their number.
    """
    found = []
    differ = len({view.gpus for group in groups for view in group.views}) > 1
    for group in groups:
        for name, view, role in zip(group.names, group.views, ROLES, strict=False):
            of = f"   ({clean_name(view.frontier.shape.label)})" if len(groups) > 1 else ""
            size = f" ({count(view.gpus, 'GPU')})" if differ and view.gpus else ""
            found.append((f"{SIGNS[role]} {name}{size}: {view_sentence(view)}{of}", role))
            found += [(f"{SIGNS[role]} {name}{of}, {line}", Role.QUIET) for line in _absent(view)]
    return found


def _absent(view: View) -> list[str]:
    """What of a frontier is not drawn: its excluded points, those without an axis, and an operating point off them."""
    flagged = [kind.text(most=6) for kind in flag_kinds(view.mine) if kind.fatal]
    found = [f"excluded and not drawn: {'; '.join(flagged)}"] if flagged else []
    return [*found, *(f"not drawn, {line}" for line in left_out(view.mine, view.frontier)), *unstarred(view)]


def _picture(groups: Sequence[Group], title: str, footer: Provenance | None, more: Sequence[str]) -> Picture:
    one = len(groups) == 1
    columns = 1 if one else 2
    head = wrap(TOGETHER.sub(NBSP, title), TITLE, WIDTH - 28, lines=4, bold=True)
    views = [view for group in groups for view in group.views]
    signs = {part: None for view in views for part in _signs(view)}
    parts = ["staircases = measured frontiers", "number = concurrency", doubt_words(views), *signs]
    key = " · ".join(parts)
    shape = views[0].frontier.shape
    key = f"ISL {shape.isl} / OSL {shape.osl} · {key}" if one else key
    parts = [part.replace(" ", NBSP) for part in clean(key, 400).split(" · ")]
    keys = wrap(SEPARATOR.join(parts), SUBTITLE, WIDTH - 128, lines=3)
    key_tall = len(keys) * line_height(SUBTITLE)
    foot = wrap(foot_line(views, footer), FOOT, WIDTH - 28, lines=3)
    rows, tall = math.ceil(len(groups) / columns), 505.0 if one else 300.0
    row_tall = tall + 62 + (0 if one else 48)
    top = 14 + len(head) * line_height(TITLE) + 12

    def laid_out(notes: Sequence[tuple[str, Role]], done: Sequence[Panel] = ()) -> Picture:
        lines = [(line, role) for note, role in notes for line in wrap(note, NOTE, WIDTH - 28, lines=2)]
        below = 16 + len(foot) * line_height(FOOT) + len(lines) * line_height(NOTE) + (6 if lines else 0)
        height = math.ceil(top + key_tall + 8 + rows * row_tall + below)
        places = boxes(len(groups), columns, WIDTH, height - top - key_tall - 8, tall, row_tall, one)
        panels = tuple(p.raised(box.y0 - p.box.y0) for p, box in zip(done, places, strict=bool(done))) or tuple(
            _panel(group, box, alone=one) for group, box in zip(groups, places, strict=True)
        )
        labels = (
            *text_lines(head, 14, height - 14, TITLE, Role.TEXT, bold=True),
            *text_lines(keys, panels[0].box.x0, height - top, SUBTITLE, Role.QUIET),
            *(
                label
                for i, (line, role) in enumerate(lines)
                for label in text_lines([line], 14, below - 2 - i * line_height(NOTE), NOTE, role)
            ),
            *text_lines(foot, 14, 12 + len(foot) * line_height(FOOT), FOOT, Role.QUIET),
        )
        return Picture(title, WIDTH, height, panels, labels, f"{title}.")  # fmt: skip

    whole = [limit for limit in _whole(views[0]) if limit.metric in views[0].axes]
    more = [*more, *([f"not drawn, being of a whole deployment: {limits_text(whole)}"] if whole else [])]
    said = [*_said(groups), *((note, Role.QUIET) for note in more)]
    found = laid_out(said)
    crowded = sorted({c for panel in found.panels for c in panel.unlabelled})
    unnumbered = f"too crowded to be numbered: {', '.join(map(setting, crowded))}"
    return laid_out([*said, (unnumbered, Role.QUIET)], found.panels) if crowded else found


def _signs(view: View) -> list[str]:
    """What the signs on this frontier mean, in the order of the key."""
    decided = view.decision is not None and view.decision.concurrency is not None
    open_ended = [
        e for p in view.mine for name in view.axes if (e := p.metrics.get(name)) is not None
        and math.isinf(e.low) != math.isinf(e.high)
    ]  # fmt: skip
    doubtful = any(view.frontier.probability.get(c, 1.0) < SURE for c in view.frontier.members)
    struck = any(breaks(p, limit) for p in view.mine for limit in hidden_limits(view) if _is_drawn(p, view))
    return [
        *(["★ = operating point"] if decided else []), *(["arrow = no bound"] if open_ended else []),
        *(["pale = may be dominated"] if doubtful else []),
        *(["struck = breaks a limit not on these axes"] if struck else []),
        *(["shade = 90% of resamples"] if view.band else []),
    ]  # fmt: skip


def _is_drawn(point: Point, view: View) -> bool:
    """On the frontier, or the operating point: what of several frontiers is drawn."""
    chosen = view.decision is not None and view.decision.concurrency == point.concurrency
    return (chosen or point.concurrency in view.frontier.members) and all(name in point.metrics for name in view.axes)


def _panel(group: Group, box: Rect, *, alone: bool) -> Panel:
    views = [_per_gpu(view) for view in group.views]
    first = views[0]
    across, up = first.axes
    for view in views[1:]:
        if view.axes != first.axes:
            raise ValueError(f"the frontiers have different axes: {first.axes} and {view.axes}")
    if len(group.views) > len(ROLES):
        raise ValueError(f"{len(group.views)} frontiers in one panel cannot be told apart; at most {len(ROLES)} can")
    both = dataclasses.replace(first, points=[p for view in views for p in view.mine])
    points = [p for p in both.points if across in p.metrics and up in p.metrics and p.valid]
    x, y = axes_of(both, points, box, alone=alone)
    marks: list[Mark] = []
    stairs: list[Stair] = []
    numbered: list[Mark] = []
    for whole, view, name, role in zip(group.views, views, apart(group.names), ROLES, strict=False):
        struck = {p.concurrency for p in whole.mine if any(breaks(p, limit) for limit in hidden_limits(whole))}
        chosen = view.decision.concurrency if view.decision else None
        found = [mark_of(p, view.frontier, x, y) for p in view.mine if _is_drawn(p, view)]
        drawn = [
            dataclasses.replace(m, role=role, chosen=m.concurrency == chosen, struck=m.concurrency in struck)
            for m in found if m is not None
        ]  # fmt: skip
        marks += drawn
        numbered += _telling(drawn)
        stair_name = fit_middle(name, 11, (box.x1 - box.x0) / 3)
        members = [m for m in drawn if m.concurrency in view.frontier.members]
        stairs += staircase(members, x, y, role, stair_name, attained(view, x, y))
    panel = Panel(
        " and ".join(group.names), box, x, y, tuple(marks), tuple(stairs),
        region=region_of(first, x, y), rules=rules_of(first, x, y),
    )  # fmt: skip
    title = None if alone else clean(first.frontier.shape.label, 60)
    return annotated(panel, None, points, first.sla, None, first.gpus, title, numbered)


def _per_gpu(view: View) -> View:
    """The view with its rates divided by its own GPUs: one axis cannot divide by the different counts of several."""
    gpus = view.gpus
    if not gpus:
        return view
    across, up = (per_gpu(name, gpus) for name in view.axes)
    points = [
        dataclasses.replace(p, metrics={name: _divided(e, per_gpu(name, gpus)) for name, e in p.metrics.items()})
        for p in view.points
    ]
    limits = [limit for limit in view.sla if limit not in _whole(view)]
    band = [(x / across, low / up, high / up) for x, low, high in view.band]
    decision = view.decision and dataclasses.replace(view.decision, limits=tuple(limits))
    return dataclasses.replace(view, points=points, decision=decision, limits=limits, band=band, gpus=1)


def _whole(view: View) -> list[Limit]:
    """Limits on a rate of the whole deployment, which on an axis per GPU would be elsewhere for each."""
    return [limit for limit in view.sla if view.gpus and metric(limit.metric).unit in RATES]


def _divided(estimate: Estimate, by: float) -> Estimate:
    sides = ("value", "low", "high", "lower", "upper")
    return dataclasses.replace(estimate, **{side: getattr(estimate, side) / by for side in sides})


def _telling(marks: Sequence[Mark]) -> list[Mark]:
    """The marks of one of several staircases that are numbered: of many only the ends, the powers of two and the chosen
    one, as four times forty numbers could not be read.
    """
    ends = {m.concurrency for m in (*marks[:1], *marks[-1:])}
    few = len(marks) <= FEW
    return [m for m in marks if few or m.chosen or m.concurrency in ends or m.concurrency & (m.concurrency - 1) == 0]
