"""Two frontiers on the same axes: what `compare` shows. The title is the verdict, with the interval it stands on."""

import dataclasses
import math

from frontier.analyze.compare import Comparison
from frontier.present.annotate import annotated
from frontier.present.captions import NBSP, TOGETHER, View, foot_line
from frontier.present.comparison import Names, comparison_sentence, names_of
from frontier.present.drawn import Mark, Panel, Picture, Role, Stair
from frontier.present.layout import Rect, line_height, wrap
from frontier.present.picture import (
    FOOT,
    SUBTITLE,
    TITLE,
    WIDTH,
    attained,
    axes_of,
    mark_of,
    region_of,
    rules_of,
    staircase,
    text_lines,
)
from frontier.present.wording import Provenance, clean

_ROLES = (Role.FRONTIER, Role.OTHER)


def overlay(
    a: View, b: View, comparison: Comparison, *, names: Names | None = None, footer: Provenance | None = None
) -> Picture:
    """A in blue with dots, B in orange with squares, frontier members only. ValueError when the objectives differ."""
    if a.axes != b.axes:
        raise ValueError(f"the frontiers have different axes: {a.axes} and {b.axes}")
    title = comparison_sentence(comparison, names)
    head = wrap(TOGETHER.sub(NBSP, title), TITLE, WIDTH - 28, lines=3, bold=True)
    shape = a.frontier.shape
    key = f"ISL {shape.isl} / OSL {shape.osl} · staircases = measured frontiers · number = concurrency · bars = 95% CI"
    key += " · shade = 90% of resamples" if a.band or b.band else ""
    foot = wrap(foot_line([a, b], footer), FOOT, WIDTH - 28, lines=2)
    below = 16 + len(foot) * line_height(FOOT)
    top = 14 + len(head) * line_height(TITLE) + 12
    height = math.ceil(top + line_height(SUBTITLE) + 8 + 505 + 62 + below)
    plot_top = height - top - line_height(SUBTITLE) - 8
    panel = _panel(a, b, names_of(comparison, names), Rect(102, plot_top - 505, 1074, plot_top))
    labels = (
        *text_lines(head, 14, height - 14, TITLE, Role.TEXT, bold=True),
        *text_lines((clean(key, 200),), panel.box.x0, height - top, SUBTITLE, Role.QUIET),
        *text_lines(foot, 14, 12 + len(foot) * line_height(FOOT), FOOT, Role.QUIET),
    )
    return Picture(title, WIDTH, height, (panel,), labels, f"{title}.")


def _panel(a: View, b: View, names: tuple[str, str], box: Rect) -> Panel:
    across, up = a.axes
    both = dataclasses.replace(a, points=[*a.mine, *b.mine])
    points = [p for p in both.points if across in p.metrics and up in p.metrics and p.valid]
    x, y = axes_of(both, points, across, up, head=44 / (box.y1 - box.y0))
    marks: list[Mark] = []
    stairs: list[Stair] = []
    for view, name, role in zip((a, b), names, _ROLES, strict=True):
        found = [mark_of(p, view.frontier, x, y) for p in view.mine if across in p.metrics and up in p.metrics]
        members = [dataclasses.replace(m, role=role) for m in found if m is not None and m.role is Role.FRONTIER]
        marks += members
        stairs += staircase(members, x, y, role, name, attained(view, x, y))
    panel = Panel(
        " and ".join(names), box, x, y, tuple(marks), tuple(stairs), region=region_of(a, x, y), rules=rules_of(a, x, y)
    )
    return annotated(panel, None, points, a.sla, None, a.gpus, None)
