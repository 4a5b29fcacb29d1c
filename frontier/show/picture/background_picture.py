"""The picture of a background: its throughput against the limiting latency beside it."""

import math
from collections.abc import Sequence

from frontier.core.claim.pareto import nondominated
from frontier.core.model.series import unnamed
from frontier.core.model.text import clean_name
from frontier.planning.most_background import RATE, MostBackground
from frontier.show.picture.axes import bar_of, metric_axis, rising_axis
from frontier.show.picture.data import SERIES, Axis, Mark, Panel, Picture, Role
from frontier.show.picture.frontier_picture import region_of, rules_of, staircase
from frontier.show.picture.labels import foot_line
from frontier.show.view.background_view import background_note
from frontier.show.view.series_view import SeriesView, SettingView
from frontier.show.view.wording import Provenance, limits_text

HEAD = 0.15
"""The share of the panel above the highest throughput, for words."""


def background_picture(
    views: Sequence[SeriesView], answers: Sequence[MostBackground], footer: Provenance | None = None
) -> Picture:
    """One panel of all deployments: an amount of the background is a mark with its number. What
    cannot be drawn is named below.
    """
    first, measured = answers[0], {view.series: view.settings[0] for view in views}
    name = _limiting(first)
    amounts = [
        (of, role, streams, measured[decision.series])
        for of, role in zip(answers, SERIES, strict=False)
        for streams, decision in zip(of.streams, of.decisions, strict=True)
    ]
    drawn = [each for each in amounts if _has(each[-1], name)]
    latencies, rates = ([point.metrics[of].value for *_, point in drawn] for of in (name, RATE))
    promised = [limit.promise for limit in views[0].sla if limit.metric == name]
    x, y = metric_axis(name, latencies, (), promised, None), rising_axis(RATE, rates, None, HEAD)
    marks = [(of, role, _mark(of, streams, point, x, y, role)) for of, role, streams, point in drawn]
    lines = []
    for of, role in zip(answers, SERIES, strict=False):
        mine = [mark for each, _, mark in marks if each is of and mark.role is role]
        members = nondominated([mark.y for mark in mine], [mark.x for mark in mine])
        attained = [mark for mark, member in zip(mine, members, strict=True) if member]
        lines += staircase(attained, views[0], x, y, role, clean_name(of.deployment, 40))
    panel = Panel(
        "",
        x,
        y,
        tuple(lines),
        tuple(mark for *_, mark in marks),
        rules_of(views[0], x, y),
        region_of(views[0], x, y),
        compass=True,
    )
    title = f"{clean_name(first.shape.label, 40)} in the background: {_most(first)}"
    notes = [background_note(of) for of in answers]
    notes += [
        f"{_of(of, streams)} is not drawn: {point.words}" for of, _, streams, point in amounts if not _has(point, name)
    ]
    legend = f"number: requests of the background in flight. SLA {limits_text(views[0].sla)}"
    described = f"{title}. {' '.join(notes)}"
    return Picture("frontier", title, (panel,), legend, (), tuple(notes), foot_line(footer), described)


def _limiting(of: MostBackground) -> str:
    """The latency across: the one that binds the answer, else the first that is limited."""
    latencies = [limit.metric for limit in of.chosen.limits if limit.of.quantity is not None]
    binding = of.chosen.binding
    return binding if binding in latencies else latencies[0]


def _has(point: SettingView, name: str) -> bool:
    """Whether a setting has both values to be drawn by."""
    return all(math.isfinite(point.point.value(each)) for each in (name, RATE))


def _mark(of: MostBackground, streams: int, point: SettingView, x: Axis, y: Axis, role: Role) -> Mark:
    across, up = point.metrics[x.metric], point.metrics[RATE]
    return Mark(
        streams,
        across.value * x.scale,
        up.value * y.scale,
        role if point.usable else Role.FLAGGED,
        bar_of(across, x),
        bar_of(up, y),
        f"{streams}",
        sign=point.sign,
        star=Role.OPERATING if streams == of.most else None,
        tooltip=f"{_of(of, streams)}: {point.words}",
    )


def _of(of: MostBackground, streams: int) -> str:
    """'background 16', with the deployment where it has a name."""
    return f"background {streams}{'' if unnamed(of.deployment) else f' on {clean_name(of.deployment, 40)}'}"


def _most(of: MostBackground) -> str:
    """'at most 16 beside c=32 keep the SLA'."""
    return (
        "none is proven"
        if of.most is None
        else f"{of.most} beside c={of.chosen.concurrency} are proven to keep the SLA"
    )
