"""A series as every output shows it: its settings with their verdicts, its frontier, limits and
answer.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from frontier.core.model.decisions import Cause, Decision, Judgement, Reason, Verdict
from frontier.core.model.decisions import Limit as Limit
from frontier.core.model.loads import Load
from frontier.core.model.metrics import metric
from frontier.core.model.points import OVERLOADED, Frontier, Point
from frontier.core.model.points import Estimate as Estimate
from frontier.core.model.series import Series, by_series
from frontier.planning.sla_result import ArrivalRate
from frontier.show.view.answer_view import AnswerView, answer_view
from frontier.show.view.sentences import reason_words
from frontier.show.view.wording import VERDICT_WORDS, bound_text, flag_kind, interval_text, told

Sign = Literal["", "meets", "open", "over", "violates", "excluded"]
"""How a setting stands to the SLA: filled, a ring, a cross, or a hollow diamond in a picture; ''
without an SLA."""
_SIGNS: dict[Verdict, Sign] = {Verdict.MEETS: "meets", Verdict.VIOLATES: "violates"}
FrontierPlace = Literal["", "member", "dominated", "left out"]
"""Where a setting lies: on its frontier, below it, or left out of it; '' without a frontier."""

DeploymentGpus = Mapping[str, int | None] | None
"""The number of GPUs that each deployment's rates are divided by; None where it is not stated."""


@dataclass(frozen=True, slots=True)
class SettingView:
    """A setting as every output shows it.

    - `words`: its verdict in words, 'not proven: p95 TPOT needs about 2,000 requests'; without an
      SLA its place on the frontier.
    - `verdict`, `reason`: the same as codes, as JSON has them; None where it was not judged.
    - `over`: the metrics whose values break their limits.
    - `broken`: the limit that it violates, or by its value, where no axis shows that.
    """

    point: Point
    words: str
    verdict: str | None = None
    reason: str | None = None
    sign: Sign = ""
    place: FrontierPlace = ""
    over: frozenset[str] = frozenset()
    broken: str | None = None
    chosen: bool = False

    @property
    def load(self) -> Load:
        """The concurrency, or the rate."""
        return self.point.load

    @property
    def metrics(self) -> Mapping[str, Estimate]:
        """The estimate of each known metric."""
        return self.point.metrics

    @property
    def usable(self) -> bool:
        """Whether it is neither excluded nor left out of the frontier."""
        return self.point.valid and self.place != "left out"


@dataclass(frozen=True, slots=True)
class DrawnRoofline:
    """The roofline: the highest throughput that the hardware allows, in the metric's own unit, and
    on what assumption.

    `curve` holds (x, y) in the metrics' own units where it depends on latency; without it the
    roofline is a level line. `stated` is the data sheet's roofline, where this one is of measured
    figures.
    """

    ceiling: float
    assumption: str
    curve: tuple[tuple[float, float], ...] = ()
    stated: "DrawnRoofline | None" = None


@dataclass(frozen=True, slots=True)
class SeriesView:
    """A series as every output shows it; a panel of the frontier picture, a section of the page, a
    table.

    - `settings`: ascending by load.
    - `sla`: the limits that are drawn and judged by.
    - `band`: the attainment band, ascending in x: (x, low, high) in the metrics' own units, each
      holding from its x to the next worse one.
    - `expected`: predictions, (concurrency, x, y) in the metrics' own units. They are drawn dashed;
      their intervals are the bands of the prediction.
    """

    settings: tuple[SettingView, ...]
    frontier: Frontier
    answer: AnswerView | None = None
    sla: tuple[Limit, ...] = ()
    roofline: DrawnRoofline | None = None
    gpus: int | None = None
    band: Sequence[tuple[float, float, float]] = ()
    expected: Sequence[tuple[float, Estimate, Estimate]] = ()

    @property
    def series(self) -> Series:
        """The deployment and the shape."""
        return self.frontier.series

    @property
    def decision(self) -> Decision | None:
        """The decision, for what works with it further."""
        return None if self.answer is None else self.answer.decision

    @property
    def points(self) -> list[Point]:
        """The points, for what works with them further."""
        return [each.point for each in self.settings]

    @property
    def drawable(self) -> list[SettingView]:
        """The settings that have a value on both axes."""
        return [each for each in self.settings if all(name in each.metrics for name in self.axes)]

    @property
    def chosen(self) -> Load | None:
        """The load of the operating point; None without one."""
        return None if self.answer is None else self.answer.chosen

    @property
    def hidden_limits(self) -> tuple[Limit, ...]:
        """The limits on metrics that are on neither axis; the shaded region does not show them."""
        return tuple(limit for limit in self.sla if limit.metric not in self.axes)

    @property
    def axes(self) -> tuple[str, str]:
        """The (horizontal, vertical) metrics. Horizontal is the objective that is better low,
        otherwise the second.
        """
        first, second = self.frontier.objectives[:2]
        turned = metric(first).better == "lower" and metric(second).better == "higher"
        return (first, second) if turned else (second, first)

    def doubt(self, name: str, estimate: Estimate) -> str:
        """The bound that decides, of a limited value; of any other its interval."""
        limit = next((limit for limit in self.sla if limit.metric == name), None)
        if limit is None:
            return interval_text(name, estimate, self.gpus)
        return bound_text(estimate, limit) if estimate.has_bound or estimate.has_interval else ""

    @property
    def top(self) -> SettingView | None:
        """The setting of the frontier that is best upwards; None without one."""
        up = metric(self.axes[1])
        ends = [each for each in self.drawable if each.place == "member"]
        return max(ends, key=lambda each: up.sign * each.metrics[up.name].value, default=None)


def series_view(  # noqa: PLR0913
    points: Sequence[Point],
    frontier: Frontier,
    decision: Decision | None = None,
    limits: Sequence[Limit] = (),
    roofline: DrawnRoofline | None = None,
    gpus: int | None = None,
    band: Sequence[tuple[float, float, float]] = (),
    expected: Sequence[tuple[float, Estimate, Estimate]] = (),
    arrivals: ArrivalRate | None = None,
) -> SeriesView:
    """The series of a frontier, with those of the points that are its own; by default under the
    decision's limits.
    """
    mine = sorted((p for p in points if p.series == frontier.series), key=lambda p: p.load)
    sla = tuple(limits) or (decision.limits if decision is not None else ())
    answer = None if decision is None else answer_view(decision, arrivals, gpus)
    settings = tuple(_setting(point, frontier, sla, decision) for point in mine)
    return SeriesView(settings, frontier, answer, sla, roofline, gpus, band, expected)


def changed(view: SeriesView, **facts: Any) -> SeriesView:
    """The view with some facts replaced, by their names in `series_view`."""
    known = {name: getattr(view, name) for name in ("points", "frontier", "decision", *_PASSED)}
    return series_view(**({**known, "limits": view.sla} | facts))


_PASSED = ("roofline", "gpus", "band", "expected")


def series_views(
    points: Sequence[Point],
    frontiers: Sequence[Frontier] = (),
    limits: Sequence[Limit] = (),
    decisions: Sequence[Decision] = (),
    gpus: DeploymentGpus = None,
) -> list[SeriesView]:
    """The series of these points, in their order."""
    frontier, decided = {f.series: f for f in frontiers}, {d.series: d for d in decisions}
    return [
        series_view(
            group,
            frontier.get(series, Frontier(series.deployment, series.shape, (), (), ())),
            decided.get(series),
            limits,
            gpus=(gpus or {}).get(series.deployment),
        )
        for series, group in by_series(points).items()
    ]


def _setting(point: Point, frontier: Frontier, sla: Sequence[Limit], decision: Decision | None) -> SettingView:
    load, judged, reason = point.load, None, None
    if decision is not None:
        judged = decision.judgement(load)
        reason = next((reason for reason in decision.explanation.settings if reason.settings == (load,)), None)
    measured = [limit for limit in sla if limit.metric in point.metrics]
    broken = [limit for limit in measured if limit.breaks(point.metrics[limit.metric].value)]
    broken.sort(key=lambda limit: limit.margin(point.metrics[limit.metric].value))
    words, verdict, cause = _stand(point, frontier, sla, reason)
    over = frozenset(limit.metric for limit in broken)
    sign = _sign(point, sla, judged, over)
    return SettingView(
        point,
        words,
        verdict,
        cause,
        sign,
        _place(load, frontier),
        over,
        _hidden(sign, judged, broken, frontier.objectives[:2]),
        decision is not None and load == decision.load,
    )


def _sign(point: Point, sla: Sequence[Limit], judged: Judgement | None, over: Collection[str]) -> Sign:
    """How a setting stands to the SLA; one that only a search looked at is not proven. What is not
    proven may be over a limit by its value.
    """
    if not point.valid or (point.overloaded and judged is None):
        return "excluded"
    if not sla:
        return ""
    sign: Sign = "open" if judged is None else _SIGNS.get(judged.verdict, "open")
    return "over" if sign == "open" and over else sign


def _hidden(sign: Sign, judged: Judgement | None, broken: Sequence[Limit], axes: Sequence[str]) -> str | None:
    """The limit that a setting violates, or by its value, where none is on these axes."""
    if sign == "over":
        return None if any(limit.metric in axes for limit in broken) else broken[0].metric
    if judged is None or sign != "violates" or any(judged.per_metric.get(name) is Verdict.VIOLATES for name in axes):
        return None
    return judged.violated


def _place(load: Load, frontier: Frontier) -> FrontierPlace:
    if not frontier.objectives:
        return ""
    if load in frontier.excluded:
        return "left out"
    return "member" if load in frontier.members else "dominated"


def _stand(
    point: Point, frontier: Frontier, sla: Sequence[Limit], reason: Reason | None
) -> tuple[str, str | None, str | None]:
    """How a setting stands to the SLA: 'meets', 'not proven (quick look)', 'violates p95 TPOT',
    'excluded: this machine was busy'; its verdict and the reason as codes, None where it was not
    judged. Without an SLA the words are of its place on the frontier.
    """
    excluded = Verdict.INVALID.value, Cause.EXCLUDED.value
    if not point.valid:
        return f"excluded: {', '.join(dict.fromkeys(flag_kind(flag.name) for flag in told(point.fatal)))}", *excluded
    codes = None if reason is None else ((reason.verdict or Verdict.UNPROVEN).value, reason.cause.value)
    if point.overloaded:
        judged = reason is not None and reason.verdict is Verdict.VIOLATES
        word = VERDICT_WORDS[Verdict.VIOLATES] if judged else "excluded"
        return f"{word}: {flag_kind(OVERLOADED)}", *(codes or excluded)
    if reason is not None and codes is not None:
        return reason_words(reason), *codes
    placed = frontier.objectives and not sla
    return _PLACES[_place(point.load, frontier)] if placed else "not proven", None, None


_PLACES: dict[FrontierPlace, str] = {
    "left out": "not on these axes",
    "member": "on the frontier",
    "dominated": "dominated",
}
