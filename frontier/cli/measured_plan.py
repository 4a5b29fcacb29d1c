"""The plan of a sweep after quick looks: where each answer is expected and how long it takes. Also
what fits into the budget, and what a p95 would save.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rich.text import Text

from frontier.client.load.health import most_connections
from frontier.config import Config
from frontier.config.sla import Tiers
from frontier.core.claim.changes import History
from frontier.core.claim.proof import SCANS
from frontier.core.flags.flags import flags
from frontier.core.model.loads import Load
from frontier.core.model.series import Series
from frontier.core.model.trials import Phase, Trial
from frontier.core.model.units import count, format_elapsed
from frontier.planning.budget import TrialTimes, price_of
from frontier.planning.next_step import ENOUGH, with_budget
from frontier.planning.plan import Plan, runs_grid, search_policy
from frontier.planning.time_left import (
    TimeLeft,
    ToCome,
    completing,
    of_sweep,
    series_of,
    stated,
    trial_of,
    until_decided,
)
from frontier.search import complete, scan
from frontier.search.auto import MOST
from frontier.search.next_trial import Ask
from frontier.search.series_history import SeriesHistory
from frontier.show.table import Table, to_text
from frontier.show.view.rough import format_range, format_rough
from frontier.show.view.wording import flag_kind
from frontier.store.journal import Amount
from frontier.sweep.ledger import Ledger
from frontier.world import world

_P99 = re.compile(r"\bp99(\.\d+)?_")


@dataclass(frozen=True, slots=True)
class MeasuredPlan:
    """The plan of a sweep after a number of short `trials`.

    - `seconds`: how long the trials took; None: the run had them before.
    - `near`: the setting near which each series' answer is expected; None: see `nowhere`.
    - `nowhere`: what is written in place of a setting, by series.
    - `coming`: the trials to come, by series.
    - `left`: the time that they take, by series; `in_all`: their sum.
    - `with_p95`: the time of all answers with a p95 in place of each p99; None: no p99 is limited.
    - `refused`: the limit of the budget that has no room for the answers, and the one that has no
      room for everything; None: there is room.
    - `command`: the command with a budget that has room; None: the config has no budget.
    """

    trials: int
    seconds: float | None
    near: Mapping[Series, Load | None]
    nowhere: Mapping[Series, str]
    coming: Mapping[Series, ToCome]
    left: Mapping[Series, TimeLeft | None]
    in_all: TimeLeft | None
    with_p95: TimeLeft | None
    refused: tuple[str | None, ...]
    command: str | None

    def text(self, *, width: int, colour: bool) -> str:
        """A row per series, what fits into the budget, and what a p95 would save."""
        took = "" if self.seconds is None else f" in {format_elapsed(self.seconds)}, of which nothing is kept"
        head = f"By {count(self.trials, 'quick look')}{took}:"
        among = list(self.left)
        rows = [
            (
                series.label(among, longest=40, keep_shape=True),
                self.nowhere[series] if (near := self.near[series]) is None else near.label,
                *_times(self.left[series]),
            )
            for series in among
        ]
        table = Table.of(("", "answer near", "to the answer", "then the frontier"), rows, right=(1, 2, 3))
        lines = [Text(line) for line in (self._p95_line(), self._budget_line()) if line]
        command = f"\n  {self.command}" if self.refused[0] else ""
        return to_text(Text(head), table.drawn(width), *lines, width=width, colour=colour) + command

    def _budget_line(self) -> str:
        """What the budget has room for."""
        answers, rest = self.refused
        if self.command is None:
            return ""
        if answers is not None:
            return f"The budget ({answers}) may have no room for the answers; this has:"
        if rest is not None:
            return f"The budget has room for the answers, and not for all of the frontier ({rest})."
        return "The budget has room for all of it."

    def _p95_line(self) -> str:
        """What a lower percentile would save."""
        now, then = self.in_all, self.with_p95
        if now is None or then is None:
            return ""
        saved = now.answer - then.answer
        less = "no less" if saved < 0.1 * now.answer else f"about {format_rough(saved)} less"
        return f"With p95 in place of p99 the answer takes {_range(then.answer)}, {less}."

    def tree(self) -> dict[str, Any]:
        """For JSON."""
        left = [
            {
                "deployment": one.deployment,
                "shape": one.shape.label,
                "near": self.near[one],
                "expected": None if each is None else each.tree(),
            }
            for one, each in self.left.items()
        ]
        p95 = None if self.with_p95 is None else self.with_p95.answer
        fits = {"answers": self.refused[0] is None, "all": self.refused == (None, None)}
        return {"trials": self.trials, "seconds": self.seconds, "series": left, "fits": fits, "p95_answer_seconds": p95}


def _range(seconds: float) -> str:
    return format_range(*TimeLeft(seconds).range) if seconds else "no time"


def _times(left: TimeLeft | None) -> tuple[str, str]:
    return ("–", "–") if left is None else (_range(left.answer), _range(left.rest))


def measured_plan(
    config: Config,
    plan: Plan,
    ledger: Ledger,
    histories: Mapping[Series, History],
    again: str,
    seconds: float | None,
) -> MeasuredPlan:
    """The plan after these trials; `again` is the command of the sweep itself."""
    near, coming = _expected(config, plan, histories, config.tiers)
    left = {series: each.seconds(ledger.times) for series, each in coming.items()}
    lower, p95 = _with_p95(config.tiers), None
    if lower != config.tiers:
        other = _expected(config, plan, histories, lower)[1]
        p95 = of_sweep({series: each.seconds(ledger.times) for series, each in other.items()}, ledger.times)
    answers, rest = (_need(coming, ledger.times, config, part) for part in ("answer", "rest"))
    caps, spent = ledger.whole, ledger.spent()
    refused = tuple(caps.refuses(spent, need, world().wall()) for need in (answers, answers + rest))
    command = with_budget(again, config, (answers + rest) * ENOUGH + spent) if caps.words else None
    trials = sum(len(history) for history in histories.values())
    nowhere = {series: _nowhere(config, histories.get(series, ())) for series in near}
    in_all = of_sweep(left, ledger.times)
    return MeasuredPlan(trials, seconds, near, nowhere, coming, left, in_all, p95, refused, command)


def _nowhere(config: Config, history: History) -> str:
    """What is known where no setting is expected; that what was measured is over the limits."""
    if not (config.searches and config.limits):
        return "–"
    raised = [[flag for flag in flags(sample, config.limits) if flag.fatal] for _, sample in history]
    if not history:
        return "not known: no trial was finished"
    if all(raised):
        return f"not known: {flag_kind(raised[0][0].name)}"
    return "none is within the limits"


def _expected(
    config: Config, plan: Plan, histories: Mapping[Series, History], tiers: Tiers
) -> tuple[dict[Series, Load | None], dict[Series, ToCome]]:
    """Where each answer is expected, and the trials to come."""
    found = {}
    for series in series_of(config, plan):
        history = histories.get(series, ())
        planned = plan.left({trial.key: trial for trial, _ in history})
        found[series] = after_a_scan(config, series, planned, tiers, history)
    return {s: near for s, (near, _) in found.items()}, {s: coming for s, (_, coming) in found.items()}


def after_a_scan(
    config: Config, series: Series, planned: Iterable[Trial], tiers: Tiers, history: History
) -> tuple[Load | None, ToCome]:
    """The setting that is expected to be proven under these SLAs, and the trials to come if it is;
    quick looks alone decide. None for the setting: no measured one keeps the first SLA.

    The proof is taken to be decided at its second judgement, as half of them are.
    """
    policy = search_policy(config, most_connections(MOST), (), series.deployment)
    listed = [t for t in planned if t.series == series] if runs_grid(config) else []
    first, rest = stated(config, listed)
    if config.refine == 0 or not history:
        return None, ToCome(bool(history), False, tuple(first), tuple(rest))
    known = SeriesHistory.of(tiers[0][1] if tiers else (), history)
    near, ask = known.operating_point if tiers else None, scan.next_ask(policy, series.shape, tiers, history)
    if near is None and isinstance(ask, Ask):
        looks, proof = ask.phase in SCANS, ask
        near = known.edge() if looks else ask.load
        first += [(trial_of(config, series, ask), 1.0)] if looks else []
        if looks and near is not None and not near.is_open:
            proof = complete.window_of_proof(near, known)
        first += until_decided(config, series, history, proof).answer if proof.phase is Phase.PROVE else ()
    rest += completing(config, series, policy, tiers, history, near, listed)
    return near, ToCome(True, False, tuple(first), tuple(rest))


def _with_p95(tiers: Tiers) -> Tiers:
    """The same limits with p95 in place of each p99."""
    return tuple(
        (name, tuple(replace(limit, metric=_P99.sub("p95_", limit.metric)) for limit in limits))
        for name, limits in tiers
    )


def _need(coming: Mapping[Series, ToCome], times: TrialTimes, config: Config, part: str) -> Amount:
    """The amount that the answers, or the rest of the trials, take."""
    rate = price_of(config.deployments)
    trials = [each for one in coming.values() for each in getattr(one, part)]
    return sum((times.need(trial, rate) * number for trial, number in trials), Amount())
