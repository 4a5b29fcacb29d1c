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
from frontier.config import Config, DeploymentConfig
from frontier.core.claim.changes import History
from frontier.core.model.decisions import Decision
from frontier.core.model.series import Series
from frontier.core.model.trials import Phase, Trial
from frontier.planning.plan import Plan, ToProve, grid_size, make_trial, search_policy
from frontier.planning.sweep_progress import HigherSetting
from frontier.planning.time_left import TimeLeft, of_sweep, series_of, to_come, until_decided
from frontier.search import complete, scan, shared
from frontier.search.auto import MOST
from frontier.search.next_trial import Ask, Done
from frontier.search.scan import SearchPolicy
from frontier.search.series_history import SeriesHistory
from frontier.sweep.ledger import Ledger
from frontier.sweep.sweep_state import SweepState

T = TypeVar("T")


@dataclass(slots=True)
class Proposals:
    """Proposes what a sweep measures next in each series."""

    config: Config
    plan: Plan
    prove: ToProve
    ledger: Ledger
    state: SweepState
    _known: dict[tuple[str, Series], tuple[object, Any]] = field(default_factory=dict)

    def every_series(self) -> list[Series]:
        """The series of the plan."""
        return series_of(self.config, self.plan)

    def series(self, deployments: Sequence[DeploymentConfig]) -> list[Series]:
        """The series of the plan on these deployments."""
        names = {deployment.name for deployment in deployments}
        return [series for series in self.every_series() if series.deployment in names]

    def to_search(self, series: Series) -> Ask | Done:
        """The next trial that finds and proves the operating point; `Done` without one."""
        if not (self.config.searches or self.prove) or series.deployment in self.state.failures.given_up:
            return Done("there is nothing to search for")

        def ask(policy: SearchPolicy, history: History) -> Ask | Done:
            if not (policy.prove if self.prove else policy.grid):
                return Done("nothing is left")
            return scan.next_ask(policy, series.shape, self.config.tiers, history, within=self.ledger.seconds_left())

        return self._remembered("search", series, ask)

    def to_complete(self, series: Series) -> Ask | Done:
        """The next trial that completes the frontier of a series; `Done` without one."""
        if series.deployment in self.state.failures.given_up:
            return Done("the plan is measured")
        if self.prove or self.config.refine == 0:
            return self._remembered("completion", series, partial(self._last, series))

        def ask(policy: SearchPolicy, history: History) -> Ask | Done:
            if not policy.grid:
                return Done("nothing is left")
            within = self.ledger.seconds_left()
            return complete.next_ask(policy, series.shape, self.config.tiers, history, within=within)

        return self._remembered("completion", series, ask)

    def _last(self, series: Series, policy: SearchPolicy, history: History) -> Ask | Done:
        """The last trials of a series that has no frontier to complete: new proofs where the server
        changed, and a window of the chosen setting.
        """
        left = not self.prove and any(trial.series == series for trial in self.state.left(self.plan.trials))
        if left or not history or (self.prove and not policy.prove):
            return Done("the plan is measured")
        ask = self.to_search(series) if self.prove else None
        if isinstance(ask, Ask):
            return ask
        last = complete.last_ask(self.config.tiers, history, marginal_gain=self.config.marginal_gain)
        return last or Done("the plan is measured")

    def to_share(self, deployment: str, series: Sequence[Series]) -> tuple[Series, Ask] | None:
        """The next trial that proves one concurrency in all shapes and under all SLAs of a
        deployment. None where that is done, or not asked for.
        """
        mine = [one for one in series if one.deployment == deployment and one.shape.arrivals is None]
        asked = self.config.searches and self.config.refine != 0 and not self.prove
        histories = {one: self.state.histories[one] for one in mine}
        if not asked or deployment in self.state.failures.given_up or not all(histories.values()):
            return None
        found = shared.next_shared(self.config.tiers, histories)
        return None if found is None or found[1].load >= self._policy(found[0]).lost else found

    def asks(self, series: Series) -> list[Ask]:
        """The trials that the search and the completion ask for."""
        return [ask for ask in (self.to_search(series), self.to_complete(series)) if isinstance(ask, Ask)]

    def in_first_pass(self, trial: Trial) -> bool:
        """Whether a trial is the grid's first of its setting; those come before the search."""
        return trial.phase is Phase.GRID and self.plan.sized and trial.repeat == 1

    def trial(self, series: Series, ask: Ask) -> Trial:
        """The trial that is asked for, under the lowest free number."""
        history, deployment = self.state.histories[series], self.config.deployment(series.deployment)
        taken = {t.repeat for t, _ in history if (t.load, t.phase) == (ask.load, ask.phase)}
        # A removed trial leaves its number free: counted on, the next would replace a finished one.
        repeat = next(number for number in itertools.count(1) if number not in taken)
        size = ask.requests, ask.seconds
        if ask.phase is Phase.GRID and self.plan.sized:
            size = grid_size(self.config, ask.load)
        setting = ask.load, ask.phase, repeat
        return make_trial(self.config, deployment, series.shape, *setting, *size, warmup=ask.warmup)

    def once_more(self, trial: Trial) -> Trial:
        """The same trial under a free number, which no planned trial has."""
        alike = [*self.plan.trials, *(t for t, _ in self.state.histories[trial.series])]
        place = trial.series, trial.load, trial.phase
        taken = [t.repeat for t in alike if (t.series, t.load, t.phase) == place]
        deployment = self.config.deployment(trial.deployment)
        size = trial.requests, trial.seconds
        setting = trial.load, trial.phase, 1 + max(taken)
        return make_trial(self.config, deployment, trial.shape, *setting, *size, warmup=trial.warmup)

    def reason_to_skip(self, trial: Trial) -> str | None:
        """Why the trial would show nothing new, going by what was measured; None to run it."""
        return complete.skip_reason(trial.load, self.config.tiers, self.state.histories[trial.series])

    def better(self, series: Series, decision: Decision) -> HigherSetting | None:
        """The higher setting that is proven next, if there is one: what it may gain, and the time
        that would decide.
        """
        ask = next((ask for ask in self.asks(series) if ask.phase is Phase.PROVE), None)
        if ask is None or ask.load <= (decision.load or 0):
            return None
        history = self.state.histories[series]
        gain = SeriesHistory.of(self.config.limits, history).gain(ask.load)
        left = until_decided(self.config, series, history, ask).seconds(self.ledger.times)
        return (
            HigherSetting(ask.load, gain, left.seconds if left is not None else None)
            if gain > complete.WORTH_NAMING
            else None
        )

    def time_left(self) -> TimeLeft | None:
        """What is left of the sweep, within the budget; None while nothing is measured."""
        left = [series for series in self.every_series() if series.deployment not in self.state.failures.given_up]
        each = {one: self._remembered("time left", one, partial(self._time_left, one)) for one in left}
        total = of_sweep(each, self.ledger.times)
        return None if total is None else total.within(self.ledger.whole_seconds_left())

    def _time_left(self, series: Series, policy: SearchPolicy, history: History) -> TimeLeft | None:
        """The time left in a series."""
        todo = self.state.left(self.plan.trials)
        ask = self.to_search(series) if history or self.prove else None
        later = self.to_complete(series) if isinstance(ask, Done) else None
        return to_come(self.config, series, todo, history, policy, ask, later).seconds(self.ledger.times)

    def _policy(self, series: Series) -> SearchPolicy:
        """The policy of the search. Where the server was lost under a setting, only lower settings
        are allowed.
        """
        prove = self.prove.of(series)
        policy = search_policy(self.config, most_connections(MOST), prove, series.deployment)
        lost, _ = self.state.failures.failed_at.get(series, (math.inf, ""))
        below = [tuple(c for c in settings if c < lost) for settings in (policy.grid, policy.prove)]
        return replace(policy, grid=below[0], prove=below[1], lost=lost)

    def _remembered(self, what: str, series: Series, work: Callable[[SearchPolicy, History], T]) -> T:
        """A result that follows from a history and its share of the budget, computed again only
        after another trial or for another share, because that takes a while.
        """
        policy, history = self._policy(series), self.state.histories[series]
        gone = len(self.state.dropped), len(self.state.skipped)
        state = policy, self.ledger.caps, gone, tuple((trial.key, sample) for trial, sample in history)
        before = self._known.get((what, series))
        if before is not None and before[0] == state:
            found: T = before[1]
            return found
        found = work(policy, history)
        self._known[what, series] = state, found
        return found
