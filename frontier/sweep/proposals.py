"""Proposals: the next trial that finds, proves or completes something. They follow from the
measured history, and so does the time left.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from frontier.client.load.health import most_connections
from frontier.config import DeploymentConfig
from frontier.core.claim.changes import History
from frontier.core.model.decisions import Decision
from frontier.core.model.series import Series
from frontier.core.model.trials import Phase, Trial
from frontier.planning.plan import grid_size, make_trial, search_policy
from frontier.planning.sweep_progress import HigherSetting
from frontier.planning.time_left import TimeLeft, of_sweep, series_of, to_come, until_decided
from frontier.search import complete, scan, shared
from frontier.search.auto import MOST
from frontier.search.scan import Ask, Done, SearchPolicy
from frontier.search.series_history import SeriesHistory
from frontier.sweep.sweep_state import SweepState

T = TypeVar("T")


@dataclass(slots=True)
class Proposals:
    """Proposes what a sweep measures next in each series."""

    sweep: SweepState
    _known: dict[tuple[str, Series], tuple[object, Any]] = field(default_factory=dict)

    def every_series(self) -> list[Series]:
        """The series of the plan."""
        return series_of(self.sweep.config, self.sweep.plan)

    def series(self, deployments: Sequence[DeploymentConfig]) -> list[Series]:
        """The series of the plan on these deployments."""
        names = {deployment.name for deployment in deployments}
        return [series for series in self.every_series() if series.deployment in names]

    def to_search(self, series: Series) -> Ask | Done:
        """The next trial that finds and proves the operating point; `Done` without one."""
        if not (self.sweep.config.searches or self.sweep.prove) or series.deployment in self.sweep.failures.given_up:
            return Done("there is nothing to search for")

        def ask(policy: SearchPolicy, history: History) -> Ask | Done:
            if not (policy.prove if self.sweep.prove else policy.grid):
                return Done("nothing is left")
            return scan.next_ask(policy, series.shape, self.sweep.config.tiers, history)

        return self._remembered("search", series, ask)

    def to_complete(self, series: Series) -> Ask | Done:
        """The next trial that completes the frontier of a series; `Done` without one."""
        if series.deployment in self.sweep.failures.given_up:
            return Done("the plan is measured")
        if self.sweep.prove or self.sweep.config.refine == 0:
            return self._remembered("completion", series, partial(self._last, series))

        def ask(policy: SearchPolicy, history: History) -> Ask | Done:
            if not policy.grid:
                return Done("nothing is left")
            within = self.sweep.ledger.seconds_left()
            return complete.next_ask(policy, series.shape, self.sweep.config.tiers, history, within=within)

        return self._remembered("completion", series, ask)

    def _last(self, series: Series, policy: SearchPolicy, history: History) -> Ask | Done:
        """The last trials of a series that has no frontier to complete: new proofs where the server
        changed, and a window of the chosen setting.
        """
        gone = {*self.sweep.done, *self.sweep.dropped, *self.sweep.skipped}
        left = not self.sweep.prove and any(t.series == series and t.key not in gone for t in self.sweep.plan.trials)
        if left or not history or (self.sweep.prove and not policy.prove):
            return Done("the plan is measured")
        ask = self.to_search(series) if self.sweep.prove else None
        if isinstance(ask, Ask):
            return ask
        last = complete.last_ask(self.sweep.config.tiers, history, marginal_gain=self.sweep.config.marginal_gain)
        return last or Done("the plan is measured")

    def to_share(self, deployment: str, series: Sequence[Series]) -> tuple[Series, Ask] | None:
        """The next trial that proves one concurrency in all shapes and under all SLAs of a
        deployment. None where that is done, or not asked for.
        """
        mine = [one for one in series if one.deployment == deployment and one.shape.arrivals is None]
        asked = self.sweep.config.searches and self.sweep.config.refine != 0 and not self.sweep.prove
        histories = {one: self.sweep.history(one) for one in mine}
        if not asked or deployment in self.sweep.failures.given_up or not all(histories.values()):
            return None
        found = shared.next_shared(self.sweep.config.tiers, histories)
        return None if found is None or found[1].concurrency >= self._policy(found[0]).lost else found

    def asks(self, series: Series) -> list[Ask]:
        """The trials that the search and the completion ask for."""
        return [ask for ask in (self.to_search(series), self.to_complete(series)) if isinstance(ask, Ask)]

    def in_first_pass(self, trial: Trial) -> bool:
        """Whether a trial is the grid's first of its setting; those come before the search."""
        return trial.phase is Phase.GRID and self.sweep.plan.sized and trial.repeat == 1

    def trial(self, series: Series, ask: Ask) -> Trial:
        """The trial that is asked for, under the lowest free number."""
        history, deployment = self.sweep.history(series), self.sweep.config.deployment(series.deployment)
        taken = {t.repeat for t, _ in history if (t.concurrency, t.phase) == (ask.concurrency, ask.phase)}
        # A removed trial leaves its number free: counted on, the next would replace a finished one.
        repeat = next(number for number in itertools.count(1) if number not in taken)
        size = ask.requests, ask.seconds
        if ask.phase is Phase.GRID and self.sweep.plan.sized:
            size = grid_size(self.sweep.config, ask.concurrency)
        setting = ask.concurrency, ask.phase, repeat
        return make_trial(self.sweep.config, deployment, series.shape, *setting, *size, warmup=ask.warmup)

    def once_more(self, trial: Trial) -> Trial:
        """The same trial under a free number, which no planned trial has."""
        alike = [*self.sweep.plan.trials, *(t for t, _ in self.sweep.history(trial.series))]
        place = trial.series, trial.concurrency, trial.phase
        taken = [t.repeat for t in alike if (t.series, t.concurrency, t.phase) == place]
        deployment = self.sweep.config.deployment(trial.deployment)
        size = trial.requests, trial.seconds
        setting = trial.concurrency, trial.phase, 1 + max(taken)
        return make_trial(self.sweep.config, deployment, trial.shape, *setting, *size, warmup=trial.warmup)

    def reason_to_skip(self, trial: Trial) -> str | None:
        """Why the trial would show nothing new, going by what was measured; None to run it."""
        return complete.skip_reason(trial.concurrency, self.sweep.config.tiers, self.sweep.history(trial.series))

    def better(self, series: Series, decision: Decision) -> HigherSetting | None:
        """The higher setting that is proven next, if there is one: what it may gain, and the time
        that would decide.
        """
        ask = next((ask for ask in self.asks(series) if ask.phase is Phase.PROVE), None)
        if ask is None or ask.concurrency <= (decision.concurrency or 0):
            return None
        history = self.sweep.history(series)
        gain = SeriesHistory.of(self.sweep.config.limits, history).gain(ask.concurrency)
        left = until_decided(self.sweep.config, series, history, ask).seconds(self.sweep.ledger.times)
        return (
            HigherSetting(ask.concurrency, gain, left.seconds if left is not None else None)
            if gain > complete.WORTH_NAMING
            else None
        )

    def time_left(self) -> TimeLeft | None:
        """What is left of the sweep, within the budget; None while nothing is measured."""
        left = [series for series in self.every_series() if series.deployment not in self.sweep.failures.given_up]
        each = {one: self._remembered("time left", one, partial(self._time_left, one)) for one in left}
        total = of_sweep(each, self.sweep.ledger.times)
        return None if total is None else total.within(self.sweep.ledger.seconds_left())

    def _time_left(self, series: Series, policy: SearchPolicy, history: History) -> TimeLeft | None:
        """The time left in a series."""
        gone = {*self.sweep.done, *self.sweep.dropped, *self.sweep.skipped}
        todo = [trial for trial in self.sweep.plan.trials if trial.key not in gone]
        ask = self.to_search(series) if history or self.sweep.prove else None
        later = self.to_complete(series) if isinstance(ask, Done) else None
        return to_come(self.sweep.config, series, todo, history, policy, ask, later).seconds(self.sweep.ledger.times)

    def _policy(self, series: Series) -> SearchPolicy:
        """The policy of the search. Where the server was lost under a setting, only lower settings
        are allowed.
        """
        prove = self.sweep.prove.of(series)
        policy = search_policy(self.sweep.config, most_connections(MOST), prove, series.deployment)
        lost, _ = self.sweep.failures.failed_at.get(series, (math.inf, ""))
        below = [tuple(c for c in settings if c < lost) for settings in (policy.grid, policy.prove)]
        return replace(policy, grid=below[0], prove=below[1], lost=lost)

    def _remembered(self, what: str, series: Series, work: Callable[[SearchPolicy, History], T]) -> T:
        """A result that follows from a history, computed again only after another trial, because
        that takes a while.
        """
        policy, history = self._policy(series), self.sweep.history(series)
        gone = len(self.sweep.dropped), len(self.sweep.skipped)
        state = policy, gone, tuple((trial.key, id(sample)) for trial, sample in history)
        before = self._known.get((what, series))
        if before is not None and before[0] == state:
            found: T = before[1]
            return found
        found = work(policy, history)
        self._known[what, series] = state, found
        return found
