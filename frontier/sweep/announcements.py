"""Announcements: what a running sweep reports of its decisions, to the progress and to the journal.

They are the operating point as soon as it is proven, how each setting stands after a trial, and the
time left.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from frontier.config import Config
from frontier.core.claim import proof
from frontier.core.claim.verdict import judge
from frontier.core.model.decisions import Judgement, Limit, Verdict
from frontier.core.model.loads import Load, load_of
from frontier.core.model.points import Point
from frontier.core.model.series import Series
from frontier.core.model.trials import Phase, Trial
from frontier.core.window.window import join
from frontier.planning.plan import ToProve
from frontier.planning.standing import limit_texts, proven_settings
from frontier.planning.sweep_progress import Progress, Stage
from frontier.run import GrowingHistory, Run
from frontier.search.auto import SETTINGS
from frontier.search.next_trial import Ask
from frontier.search.series_history import SeriesHistory
from frontier.store.journal import last_session
from frontier.store.run_dir import RunDirectory
from frontier.sweep.ledger import Ledger
from frontier.sweep.proposals import Proposals

_WORDS: dict[Phase, Literal["grid", "scan", "prove", "complete"]] = {
    Phase.SCAN: "scan",
    Phase.LOCATE: "scan",
    Phase.PROVE: "prove",
    Phase.CONFIRM: "prove",
    Phase.GRID: "complete",
    Phase.VISIT: "complete",
    Phase.FRONTIER: "complete",
}


@dataclass(slots=True)
class Announcer:
    """Reports what the trials of a sweep show. It remembers the operating points that it
    announced.
    """

    config: Config
    run: RunDirectory
    progress: Progress
    prove: ToProve
    ledger: Ledger
    proposals: Proposals
    histories: defaultdict[Series, GrowingHistory]
    forecast: dict[str, float]
    _announced: dict[Series, Load] = field(default_factory=dict)

    def stage(self, trial: Trial) -> None:
        """Report what a trial is run for."""
        every = self.proposals.every_series()
        word = _WORDS[trial.phase]
        if self.proposals.in_first_pass(trial) and trial.series not in self._announced:
            word = "grid"
        own = {t.load for t, _ in self.histories[trial.series] if t.phase not in proof.SCANS}
        settings = self.config.loads
        number = every.index(trial.series) + 1
        measured, in_all = len(own & set(settings)), len(settings)
        if self.config.auto:
            measured, in_all = len(own), SETTINGS
        self.progress.stage(Stage(word, number, len(every), measured, in_all))

    def judged(self, trial: Trial) -> None:
        """Report how a setting stands: by the trials that support a claim; else by all of its
        trials, which prove nothing.
        """
        limits = self.config.limits
        history = self.histories[trial.series]
        if not limits:
            return
        claims = () if trial.phase in proof.SCANS else SeriesHistory.of(limits, history).claims
        claimed = next((p for p in claims if p.load == trial.load), None)
        point = claimed or proof.pilot_point(join([s for t, s in history if t.load == trial.load]), limits)
        judgement = judge(point, limits)
        if (shown := deciding_limit(point, judgement, limits)) is not None:
            if claimed is None and judgement.verdict is Verdict.MEETS:
                judgement = replace(judgement, verdict=Verdict.UNPROVEN)
            self.progress.judged(trial, judgement, shown, point.metrics[shown.metric])

    def operating_point(self, series: Series) -> None:
        """Report the operating point as soon as it is proven, and when it is another one."""
        history, config, run = self.histories[series], self.config, self.run
        if not config.limits or not history or self.prove:
            return
        ask = self.proposals.to_search(series)
        if isinstance(ask, Ask) and any(t.phase is ask.phase and t.load == ask.load for t, _ in history):
            return  # a proof goes on: what its windows say meanwhile is no judgement
        decisions = Run(run.path, config, run.manifest, {series: history}).solve(config.limits)
        if not decisions:
            return  # every setting was only scanned, and excluded
        (decision,) = decisions
        before = self._announced.get(series)
        if decision.verdict is not Verdict.MEETS or decision.load is None:
            if before is not None:
                del self._announced[series]
                what = f"{before.label} is no longer proven, by what was measured since"
                run.journal("corrected", deployment=series.deployment, shape=series.shape.label, reason=what)
                self.progress.corrected(series)
                self.progress.note(f"corrected: {what}")
            return
        if decision.load == before:
            self.progress.stands(decision)
            return
        self._announced[series] = decision.load
        seconds = self._proven_before(series, decision.load) or round(self.ledger.spent().seconds, 1)
        run.journal(
            "proven",
            deployment=series.deployment,
            shape=series.shape.label,
            after=seconds,
            limits=limit_texts(config.limits),
            **decision.load.facts,
        )
        self.progress.announced(decision, seconds, self.proposals.better(series, decision))

    def _proven_before(self, series: Series, c: Load) -> float | None:
        """Seconds after which an earlier session proved a setting; None once this session has
        finished a trial.
        """
        lines = self.run.journal_lines()
        if any(line["event"] == "trial_done" for line in last_session(lines)):
            return None
        where = series.deployment, series.shape.label, c
        proven = proven_settings(lines, self.config.limits)
        mine = [line["after"] for line in proven if (line["deployment"], line["shape"], load_of(line)) == where]
        return mine[-1] if mine else None

    def time_left(self) -> None:
        """Tell the progress and the journal how long the sweep may still take, budget included."""
        if (left := self.proposals.time_left()) is None:
            return
        low, high = left.range
        known = {"left": low} if math.isinf(high) else {"left": left.seconds, "left_at_most": high}
        self.forecast.clear()
        self.forecast.update({name: round(seconds, 1) for name, seconds in known.items()})
        self.progress.expect(left)


def deciding_limit(point: Point, judgement: Judgement, limits: Sequence[Limit]) -> Limit | None:
    """The limit by which a setting is reported. It is the one that binds, as in the table, where
    the value of a setting that is not decided is over it. Otherwise, of the limits with its
    verdict, it is the one that needs most requests to have a bound, else the nearest.
    """
    known = [limit for limit in limits if limit.metric in point.metrics]
    same = [limit for limit in known if judgement.per_metric[limit.metric] is judgement.verdict]
    binding = [limit for limit in known if limit.metric == judgement.binding]
    over = [limit for limit in binding if limit.breaks(point.metrics[limit.metric].value)]
    wanted = over if over and judgement.verdict is not Verdict.VIOLATES else same or known
    needs = {limit: (point.metrics[limit.metric].need or 0, limit.metric == judgement.binding) for limit in wanted}
    return max(wanted, key=lambda limit: needs[limit], default=None)
