"""The numbers that a decision stands on, each with its bound and limit, and the tightest of
them.
"""

import math
from dataclasses import dataclass

from frontier.core.model.decisions import Decision, Limit, Verdict
from frontier.core.model.metrics import metric
from frontier.core.model.points import Estimate
from frontier.show.view.wording import beside_limit, bound_text, ci_text, deciding_bound, limit_value_text, value_text


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that a decision stands on. `headroom` is a share of the limit, measured from the
    bound that decides, or from the value without one. `tightest` marks the least headroom.
    """

    metric: str
    estimate: Estimate
    limit: Limit | None = None
    verdict: Verdict | None = None
    headroom: float | None = None
    tightest: bool = False

    @property
    def mark(self) -> str:
        """A check, a cross or a question mark; '' without a limit."""
        return "" if self.limit is None else _MARKS.get(self.verdict or Verdict.UNPROVEN, "?")


_MARKS = {Verdict.MEETS: "✓", Verdict.VIOLATES: "✗"}


def figures(decision: Decision) -> list[Figure]:
    """The throughput, the cost and every metric of the SLA at the operating point, or without one
    at the nearest setting.
    """
    limits = {limit.metric: limit for limit in decision.limits}
    judged = decision.judgement(decision.shown)
    verdicts = judged.per_metric if judged is not None else {}
    names = [n for n in dict.fromkeys(["output_throughput", "cost", *limits]) if n in decision.metrics]
    headroom = {name: _headroom(decision.metrics[name], limits[name]) for name in names if name in limits}
    known = {name: share for name, share in headroom.items() if share is not None}
    # What violates its limit comes before a wide bound of what may keep it.
    tightest = min(known, key=lambda n: (verdicts.get(n) is not Verdict.VIOLATES, known[n]), default=None)
    return [
        Figure(
            n,
            decision.metrics[n],
            limits.get(n),
            verdicts.get(n) if n in limits else None,
            headroom.get(n),
            n == tightest,
        )
        for n in names
    ]


def _headroom(estimate: Estimate, limit: Limit) -> float | None:
    """The headroom as a share of the limit; None where the value is infinite."""
    bound = deciding_bound(estimate, limit)
    margin = limit.margin(estimate.value if bound is None else bound)
    return margin if math.isfinite(margin) else None


def tightest_figure(decision: Decision) -> Figure | None:
    """The figure of the limit with the least headroom, otherwise of the binding one; None where
    nothing was measured.
    """
    limited = [figure for figure in figures(decision) if figure.limit is not None]
    binding = [figure for figure in limited if figure.tightest or figure.metric == decision.binding]
    return next(iter([*binding, *limited]), None)


def figure_row(figure: Figure, gpus: int | None) -> tuple[str, str, str, str, str]:
    """Name, value, bound (a CI where nothing is limited), limit and margin of a figure. A limit is
    of the whole deployment; so are the value and the bound beside it.
    """
    name, limit = figure.metric, figure.limit
    label = metric(name).label.partition(" (")[0].replace("per million output tokens", "of output")  # its unit says it
    if limit is None:
        return label, value_text(name, figure.estimate.value, gpus), ci_text(name, figure.estimate, gpus), "", ""
    value = beside_limit(figure.estimate.value, limit)
    promise = f"limit {limit_value_text(name, limit.promise)}"
    return label, value, bound_text(figure.estimate, limit), promise, _margin(figure)


def _margin(figure: Figure) -> str:
    """'5% headroom (tightest)', 'not proven', or by how much the limit is broken."""
    if figure.verdict is Verdict.VIOLATES:
        over = "too high" if figure.limit is not None and figure.limit.better == "lower" else "too low"
        return over if figure.headroom is None else f"{over} by {_share(-figure.headroom)}"
    if figure.verdict in (Verdict.MARGINAL, Verdict.UNPROVEN):
        return "not proven"
    if figure.headroom is None or figure.verdict is None:
        return ""
    return f"{_share(figure.headroom)} headroom" + (" (tightest)" if figure.tightest else "")


def _share(share: float) -> str:
    """'16%', '0.3%': a share that is more than nothing does not read as 0%."""
    if share == 0 or abs(share) >= _SHOWN_WHOLE:
        return f"{share:.0%}"
    return f"{share * 100:.1g}%" if abs(share) >= _LEAST_SHOWN else "under 0.01%"


_SHOWN_WHOLE, _LEAST_SHOWN = 0.005, 0.0001
