"""Several frontiers on the same axes: two that are compared, or up to four runs or deployments side by side."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from frontier.analyze.compare import Comparison
from frontier.metrics import metric
from frontier.model import Verdict
from frontier.present.annotate import annotated
from frontier.present.captions import NBSP, TOGETHER, View, foot_line, view_sentence
from frontier.present.comparison import Names, comparison_sentence, names_of
from frontier.present.drawn import Mark, Panel, Picture, Role, Stair
from frontier.present.layout import Rect, fit, line_height, wrap
from frontier.present.picture import (
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
from frontier.present.wording import Provenance, clean, limits_text, named_value, per_gpu, setting

ROLES = (Role.FRONTIER, Role.OTHER, Role.THIRD, Role.FOURTH)
"""By colour and by the shape of the mark; more than four in a panel cannot be told apart."""


@dataclass(frozen=True, slots=True)
class Group:
    """What shares a panel: views of one shape, and what each is called."""

    names: tuple[str, ...]
    views: tuple[View, ...]


def overlay(
    a: View, b: View, comparison: Comparison, *, names: Names | None = None, footer: Provenance | None = None
) -> Picture:
    """What `compare` shows: A in blue with dots, B in orange with squares. The title is the verdict, with the interval
    it stands on. ValueError when the objectives differ.
    """
    group = Group(names_of(comparison, names), (a, b))
    return _picture([group], comparison_sentence(comparison, names), (), footer)


def together(groups: Sequence[Group], *, footer: Provenance | None = None) -> Picture:
    """Up to four frontiers in one panel per shape. Only what intervals separate is called the most.

    ValueError without a group, with more than four in one, or when objectives differ.
    """
    if not groups:
        raise ValueError("a picture needs at least one frontier")
    notes = [
        f"{name}: {view_sentence(view)}" + (f"   ({clean(view.frontier.shape.label, 40)})" if len(groups) > 1 else "")
        for group in groups for name, view in zip(group.names, group.views, strict=True)
    ]  # fmt: skip
    title = _best_sentence(groups[0]) if len(groups) == 1 else _names_sentence(groups)
    return _picture(groups, title, notes, footer)


def _picture(groups: Sequence[Group], title: str, notes: Sequence[str], footer: Provenance | None) -> Picture:
    one = len(groups) == 1
    columns = 1 if one else 2
    head = wrap(TOGETHER.sub(NBSP, title), TITLE, WIDTH - 28, lines=3, bold=True)
    views = [view for group in groups for view in group.views]
    key = "staircases = measured frontiers · number = concurrency · bars = 95% CI"
    key += " · shade = 90% of resamples" if any(view.band for view in views) else ""
    shape = views[0].frontier.shape
    key = f"ISL {shape.isl} / OSL {shape.osl} · {key}" if one else key
    foot = wrap(foot_line(views, footer), FOOT, WIDTH - 28, lines=2)
    rows, tall = math.ceil(len(groups) / columns), 505.0 if one else 300.0
    row_tall = tall + 62 + (0 if one else 48)
    top = 14 + len(head) * line_height(TITLE) + 12

    def laid_out(notes: Sequence[str]) -> Picture:
        lines = [line for note in notes for line in wrap(note, NOTE, WIDTH - 28, lines=2)]
        below = 16 + len(foot) * line_height(FOOT) + len(lines) * line_height(NOTE) + (6 if lines else 0)
        height = math.ceil(top + line_height(SUBTITLE) + 8 + rows * row_tall + below)
        places = boxes(len(groups), columns, WIDTH, height - top - line_height(SUBTITLE) - 8, tall, row_tall, one)
        panels = tuple(_panel(group, box, alone=one) for group, box in zip(groups, places, strict=True))
        labels = (
            *text_lines(head, 14, height - 14, TITLE, Role.TEXT, bold=True),
            *text_lines((clean(key, 200),), panels[0].box.x0, height - top, SUBTITLE, Role.QUIET),
            *text_lines(lines, 14, below - 2, NOTE, Role.QUIET),
            *text_lines(foot, 14, 12 + len(foot) * line_height(FOOT), FOOT, Role.QUIET),
        )
        return Picture(title, WIDTH, height, panels, labels, f"{title}.")

    found = laid_out(notes)
    crowded = sorted({c for panel in found.panels for c in panel.unlabelled})
    return laid_out([*notes, f"too crowded to be numbered: {', '.join(map(setting, crowded))}"]) if crowded else found


def _panel(group: Group, box: Rect, *, alone: bool) -> Panel:
    first = group.views[0]
    across, up = first.axes
    for view in group.views[1:]:
        if view.axes != first.axes:
            raise ValueError(f"the frontiers have different axes: {first.axes} and {view.axes}")
    if len(group.views) > len(ROLES):
        raise ValueError(f"{len(group.views)} frontiers in one panel cannot be told apart; at most {len(ROLES)} can")
    both = dataclasses.replace(first, points=[p for view in group.views for p in view.mine])
    points = [p for p in both.points if across in p.metrics and up in p.metrics and p.valid]
    x, y = axes_of(both, points, across, up, head=44 / (box.y1 - box.y0))
    marks: list[Mark] = []
    stairs: list[Stair] = []
    for view, name, role in zip(group.views, group.names, ROLES, strict=False):
        found = [mark_of(p, view.frontier, x, y) for p in view.mine if across in p.metrics and up in p.metrics]
        members = [dataclasses.replace(m, role=role) for m in found if m is not None and m.role is Role.FRONTIER]
        marks += members
        stairs += staircase(members, x, y, role, fit(name, 11, (box.x1 - box.x0) / 2), attained(view, x, y))
    panel = Panel(
        " and ".join(group.names), box, x, y, tuple(marks), tuple(stairs),
        region=region_of(first, x, y), rules=rules_of(first, x, y),
    )  # fmt: skip
    title = None if alone else clean(first.frontier.shape.label, 60)
    return annotated(panel, None, points, first.sla, None, first.gpus, title)


def _names_sentence(groups: Sequence[Group]) -> str:
    names = list(dict.fromkeys(name for group in groups for name in group.names))
    return (
        f"The frontiers of {', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else f"The frontier of {names[0]}"
    )


def _best_sentence(group: Group) -> str:
    """Whose operating point carries surely most, where the intervals separate it from every other."""
    found = []
    for name, view in zip(group.names, group.views, strict=True):
        decision, up = view.decision, view.axes[1]
        if decision is not None and decision.verdict is Verdict.MEETS and up in decision.metrics:
            share, estimate = 1 / per_gpu(up, view.gpus), decision.metrics[up]
            found.append((estimate.value * share, estimate.low * share, estimate.high * share, name, view))
    if not found or metric(group.views[0].axes[1]).better != "higher":
        return _names_sentence([group])
    found.sort(key=lambda item: -item[0])
    _, low, _, name, view = found[0]
    assert view.decision is not None
    promise = limits_text(view.decision.limits)
    best = view.decision.metrics[view.axes[1]].value
    said = f"{named_value(view.axes[1], best, view.gpus)} at concurrency {view.decision.concurrency}"
    if len(found) > 1 and low <= max(high for _, _, high, *_ in found[1:]):
        return f"No clear winner inside {promise}: {name} carries {said}, within the doubt of the next"
    return f"{name} carries the most inside {promise}: {said}"
