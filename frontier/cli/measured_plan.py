"""`frontier sweep --dry-run --measure`: a minute of scan, and the time that the sweep takes by it.

Nothing of it stays: the trials are made in a folder that is removed. Where the run has finished
trials the time is known by them, and nothing is sent.
"""

import re
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from frontier.cli.common import RunOptions, layout, note
from frontier.cli.consent import consent_to_sweep
from frontier.cli.dry_run import Measured, Outlook, expected_json, print_plan, remaining
from frontier.config import BudgetConfig, Config
from frontier.core.errors import MeasurementError
from frontier.core.loads import setting
from frontier.core.series import Series
from frontier.core.units import count, format_elapsed
from frontier.planning.budget import TrialTimes, price_of
from frontier.planning.next_step import ENOUGH, with_budget
from frontier.planning.plan import NO_PROOFS, Plan
from frontier.planning.time_left import TimeLeft, ToCome, after_a_scan, of_sweep, series_of
from frontier.show.rough import format_range, format_rough
from frontier.show.table import Table, to_text
from frontier.show.verbosity import Detail
from frontier.store.journal import Amount

if TYPE_CHECKING:
    from frontier.cli.sweep_request import SweepRequest
    from frontier.config.sla import Tiers
    from frontier.core.changes import History

MINUTE = 60.0
"""Seconds of the scan, beside the starts of servers."""
_P99 = re.compile(r"\bp99(\.\d+)?_")


@dataclass(frozen=True, slots=True)
class MeasuredPlan:
    """What short trials tell of a sweep: the `seconds` that they took (None: the run had them
    before), the setting `near` which each series' answer is expected, or `nowhere`, the time of
    each series, and that of all answers with a p95 in place of each p99 (None: no p99 is limited).
    `refused` is the limit of the budget without room for the answers, or for all, `command` one
    that has it.
    """

    outlook: Outlook
    trials: int
    seconds: float | None
    near: "Mapping[Series, int | None]"
    nowhere: str
    left: "Mapping[Series, TimeLeft | None]"
    with_p95: TimeLeft | None
    refused: tuple[str | None, ...]
    command: str

    def text(self, *, width: int, colour: bool) -> str:
        """A row per series, what fits into the budget, and what a p95 would save."""
        took = "" if self.seconds is None else f" in {format_elapsed(self.seconds)}, of which nothing is kept"
        head = f"By {count(self.trials, 'short trial')}{took}:"
        among = list(self.left)
        rows = [
            (
                series.label(among, longest=40, keep_shape=True),
                self.nowhere if (near := self.near[series]) is None else setting(near),
                *_times(self.left[series]),
            )
            for series in among
        ]
        table = Table.of(("", "answer near", "to the answer", "then the frontier"), rows, right=(1, 2, 3))
        lines = [Text(line) for line in (self._p95_line(), self._budget_line()) if line]
        command = f"\n  {self.command}" if self.refused[0] else ""
        return to_text(Text(head), table.drawn(width), *lines, width=width, colour=colour) + command

    def _budget_line(self) -> str:
        """What has room."""
        answers, rest = self.refused
        if not self.outlook.ledger.whole.words:
            return ""
        if answers is not None:
            return f"The budget ({answers}) may have no room for the answers; this has:"
        if rest is not None:
            return f"The budget has room for the answers, and not for all of the frontier ({rest})."
        return "The budget has room for all of it."

    def _p95_line(self) -> str:
        """What a lower percentile would save."""
        now, then = self.outlook.left, self.with_p95
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
                "expected": None if each is None else expected_json(each),
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


def print_measured(
    request: "SweepRequest", plan: Plan, facts: "Mapping[str, Any]", shown: RunOptions, measure: "Callable[..., str]"
) -> int:
    """Print the plan with what a minute of scan says of it; `measure` as of `cli.sweep`."""
    found = _measured_plan(request, plan, facts, shown.detail, measure)
    told = Measured(found.outlook, found.text(**layout()), found.tree())
    return print_plan(request.config, plan, request.run, shown, NO_PROOFS, told)


def _measured_plan(
    request: "SweepRequest", plan: Plan, facts: "Mapping[str, Any]", detail: Detail, measure: "Callable[..., str]"
) -> MeasuredPlan:
    """What a minute of scan tells, or the finished trials of the run."""
    from frontier.read_run import load

    if request.run is not None and (histories := load(request.run).histories):
        return _by(request, plan, histories, remaining(request.config, plan, request.run)[0].times, None)
    with tempfile.TemporaryDirectory(prefix="frontier-minute-") as here:
        path = Path(here) / "run"
        seconds = _scan(request, plan, path, facts, detail, measure)
        histories = load(path).histories
        if not histories:
            raise MeasurementError("no trial was finished in this minute", "look closer with  frontier probe")
        return _by(request, plan, histories, remaining(request.config, plan, path)[0].times, seconds)


def _scan(
    request: "SweepRequest",
    plan: Plan,
    path: Path,
    facts: "Mapping[str, Any]",
    detail: Detail,
    measure: "Callable[..., str]",
) -> float:
    """Measure for a minute into `path`; the seconds that it took."""
    from frontier.config.config_file import open_run
    from frontier.sweep.scan_course import ScanCourse

    consent_to_sweep(request.file, request.config)
    note(f"about {format_elapsed(MINUTE)} of short trials, to know how long the sweep takes; nothing of them is kept")
    config = request.config.model_copy(update={"budget": BudgetConfig()})
    with open_run(path, request.config, request.text, facts) as run:
        quiet, course = detail is Detail.ANSWER, ScanCourse(MINUTE)
        if measure(config, plan, run, {}, request.facts, quiet=quiet, course=course) == "interrupted":
            raise KeyboardInterrupt
        return Amount.of(run.journal_lines()).seconds


def _by(
    request: "SweepRequest", plan: Plan, histories: "Mapping[Series, History]", times: TrialTimes, seconds: float | None
) -> MeasuredPlan:
    """The plan with what these trials tell."""
    config = request.config
    ledger, todo = remaining(config, plan, request.run)
    ledger.times = times
    near, coming = _expected(config, plan, histories, config.tiers)
    left = {series: each.seconds(times) for series, each in coming.items()}
    lower, p95 = _with_p95(config.tiers), None
    if lower != config.tiers:
        other = _expected(config, plan, histories, lower)[1]
        p95 = of_sweep({series: each.seconds(times) for series, each in other.items()}, times)
    answers, rest = (_need(coming, times, config, part) for part in ("answer", "rest"))
    caps, spent = ledger.whole, ledger.spent()
    refused = tuple(caps.refuses(spent, need, time.time()) for need in (answers, answers + rest))
    command = with_budget(request.again, config, (answers + rest) * ENOUGH + spent)
    outlook = Outlook(ledger, len(plan.trials) - len(todo), coming, of_sweep(left, times))
    trials = sum(len(history) for history in histories.values())
    nowhere = "none is inside" if config.searches and config.limits else "–"
    return MeasuredPlan(outlook, trials, seconds, near, nowhere, left, p95, refused, command)


def _expected(
    config: Config, plan: Plan, histories: "Mapping[Series, History]", tiers: "Tiers"
) -> "tuple[dict[Series, int | None], dict[Series, ToCome]]":
    """Where each answer is expected, and the trials to come."""
    found = {}
    for series in series_of(config, plan):
        history = histories.get(series, ())
        planned = plan.left({trial.key: trial for trial, _ in history})
        found[series] = after_a_scan(config, series, planned, tiers, history)
    return {s: near for s, (near, _) in found.items()}, {s: coming for s, (_, coming) in found.items()}


def _with_p95(tiers: "Tiers") -> "Tiers":
    """The same promises of a p95 where they are of a p99."""
    return tuple(
        (name, tuple(replace(limit, metric=_P99.sub("p95_", limit.metric)) for limit in limits))
        for name, limits in tiers
    )


def _need(coming: "Mapping[Series, ToCome]", times: TrialTimes, config: Config, part: str) -> Amount:
    """What the answers, or the rest, take."""
    rate = price_of(config.deployments)
    trials = [each for one in coming.values() for each in getattr(one, part)]
    return sum((times.need(trial, rate) * number for trial, number in trials), Amount())
