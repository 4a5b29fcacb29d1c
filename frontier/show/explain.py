"""Figures of a decision: the numbers that it stands on, which of them is nearest its limit, and
whether more than half of the throughput is undecided.
"""

import dataclasses
import math
from dataclasses import dataclass

from frontier.decide.verdict import deciding_bound
from frontier.model import Decision, Estimate, Limit, Verdict


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that a decision stands on. `bound` is the one-sided 95 % bound that decides: `upper`
    or `lower`, whichever is on the limit's side of the value; None without a limit, or where too
    few requests give none.

    `left` is the share of the limit that the bound (without one, the value) leaves; `tightest`
    marks the least.
    """

    metric: str
    estimate: Estimate
    limit: Limit | None = None
    verdict: Verdict | None = None
    left: float | None = None
    tightest: bool = False

    @property
    def bound(self) -> float | None:
        """The one-sided bound that decides."""
        return None if self.limit is None else deciding_bound(self.estimate, self.limit)


def figures(decision: Decision) -> list[Figure]:
    """The throughput, the cost and every metric of the SLA at the operating point, or at the
    setting nearest to one.
    """
    limits = {limit.metric: limit for limit in decision.limits}
    judged = decision.judgement(decision.shown)
    table = []
    for name in dict.fromkeys(["output_throughput", "cost", *limits]):
        if (estimate := decision.metrics.get(name)) is None:
            continue
        limit = limits.get(name)
        verdict = judged.per_metric.get(name) if judged and limit else None
        left = None
        if limit is not None:
            bound = deciding_bound(estimate, limit)
            margin = limit.margin(estimate.value if bound is None else bound)
            left = margin if math.isfinite(margin) else None
        table.append(Figure(name, estimate, limit, verdict, left))
    known = [figure for figure in table if figure.left is not None]
    tightest = min(known, key=lambda figure: figure.left or 0.0, default=None)
    return [dataclasses.replace(figure, tightest=figure is tightest) for figure in table]


def tightest_figure(decision: Decision) -> Figure | None:
    """The figure of the limit with the least headroom, else of the binding one; None where none was
    measured.
    """
    limited = [figure for figure in figures(decision) if figure.limit is not None]
    binding = [figure for figure in limited if figure.tightest or figure.metric == decision.binding]
    return next(iter([*binding, *limited]), None)


# --- what is said first


HALF_UNDECIDED = 1.0
"""The gain from which half of the throughput or more is not decided yet."""


def half_undecided(decision: Decision) -> bool:
    """Whether a setting that is not proven may give as much again as the operating point, or
    more.
    """
    step = decision.next_step
    return step is not None and (step.gain or 0.0) >= HALF_UNDECIDED


def binding_limit(decision: Decision) -> Limit | None:
    """The limit with the least headroom, else the first."""
    figure = tightest_figure(decision)
    if figure:
        return figure.limit
    return decision.limits[0] if decision.limits else None
