"""The picture of a background: its throughput against the limiting latency beside it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from frontier.core.model.series import unnamed
from frontier.core.model.text import clean_name
from frontier.planning.most_background import RATE, MostBackground
from frontier.show.picture.axes import bar_of, metric_axis, rising_axis
from frontier.show.picture.data import SERIES, Axis, Line, Mark, Panel, Picture, Role
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
    first, name = answers[0], _limiting(answers[0])
    settings = {view.series: view.settings[0] for view in views}
    amounts = [
        _Amount(of, role, streams, settings[decision.series])
        for of, role in zip(answers, SERIES, strict=False)
        for streams, decision in zip(of.streams, of.decisions, strict=True)
    ]
    drawn = [each for each in amounts if each.has(name)]
    limits = [limit.promise for limit in views[0].sla if limit.metric == name]
    x = metric_axis(name, [each.value(name) for each in drawn], (), limits, None)
    y = rising_axis(RATE, [each.value(RATE) for each in drawn], None, HEAD)
    lines = _staircases(drawn, views[0], x, y)
    marks = tuple(each.mark(x, y) for each in drawn)
    panel = Panel("", x, y, lines, marks, rules_of(views[0], x, y), region_of(views[0], x, y), compass=True)
    title = f"{clean_name(first.shape.label, 40)} in the background: {_most(first)}"
    notes = [*map(background_note, answers)]
    notes += [f"{each.name} is not drawn: {each.point.words}" for each in amounts if not each.has(name)]
    legend = f"number: requests of the background in flight. SLA {limits_text(views[0].sla)}"
    described = f"{title}. {' '.join(notes)}"
    return Picture("frontier", title, (panel,), legend, (), tuple(notes), foot_line(footer), described)


@dataclass(frozen=True, slots=True)
class _Amount:
    """One amount of the background of a deployment, and the setting measured beside it."""

    of: MostBackground
    role: Role
    streams: int
    point: SettingView

    def has(self, latency: str) -> bool:
        """Whether it has both values to be drawn by."""
        return all(math.isfinite(self.value(each)) for each in (latency, RATE))

    def value(self, metric: str) -> float:
        """The value of a metric; NaN where it is not known."""
        return self.point.point.value(metric)

    @property
    def name(self) -> str:
        """'background 16', with the deployment where it has a name."""
        where = "" if unnamed(self.of.deployment) else f" on {clean_name(self.of.deployment, 40)}"
        return f"background {self.streams}{where}"

    def mark(self, x: Axis, y: Axis) -> Mark:
        """Its mark."""
        across, up = self.point.metrics[x.metric], self.point.metrics[RATE]
        return Mark(
            self.streams,
            across.value * x.scale,
            up.value * y.scale,
            self.role if self.point.usable else Role.FLAGGED,
            bar_of(across, x),
            bar_of(up, y),
            f"{self.streams}",
            sign=self.point.sign,
            star=Role.OPERATING if self.streams == self.of.most else None,
            tooltip=f"{self.name}: {self.point.words}",
        )


def _staircases(drawn: Sequence[_Amount], view: SeriesView, x: Axis, y: Axis) -> tuple[Line, ...]:
    """The frontier of each deployment, of its amounts that are not excluded."""
    lines = list[Line]()
    for of, role in dict.fromkeys((each.of.deployment, each.role) for each in drawn):
        mine = [each for each in drawn if each.of.deployment == of and each.point.usable]
        members = [each.mark(x, y) for each in mine if each.streams in each.of.frontier(x.metric)]
        lines += staircase(members, view, x, y, role, clean_name(of, 40))
    return tuple(lines)


def _limiting(of: MostBackground) -> str:
    """The latency across: the one that binds the answer, else the first that is limited."""
    latencies = [limit.metric for limit in of.chosen.limits if limit.of.quantity is not None]
    binding = of.chosen.binding
    return binding if binding in latencies else latencies[0]


def _most(of: MostBackground) -> str:
    """'16 beside c=32 are proven to keep the SLA'."""
    return "none is proven" if of.most is None else f"{of.most} beside c={of.chosen.load} are proven to keep the SLA"
