"""The conductor: for each trial of the plan, measure and store; then refine where the answer is still open.

Its state is the run directory. Interrupted at any moment and started again, it goes on where it was: finished trials
count by their fingerprint, and the search proposes from history alone.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from frontier.budget import described_trials, parts_left
from frontier.config import Config, DeploymentConfig
from frontier.decide import search
from frontier.errors import FrontierError, MemoryShortError, StoreError
from frontier.model import Series, Shape, Trial
from frontier.plan import Plan, Progress, in_turn, make_trial, search_policy
from frontier.run import History
from frontier.stats.window_cache import load_window_data
from frontier.store.run_dir import RunDirectory
from frontier.sweep.backend import Backend
from frontier.sweep.ledger import Ledger
from frontier.sweep.servers import LAST_LINES, ServerFailures, Servers
from frontier.sweep.trial_runner import Step, TrialRunner
from frontier.units import format_elapsed

SweepEnd = Literal["finished", "interrupted", "server_lost", "budget"]


@dataclass(slots=True)
class Conductor:
    """One sweep of one config into one run directory.

    `ready_wait` bounds the wait for a lost server, in seconds: long enough for a large model to be loaded again.
    `clock` counts seconds, `wall` is unix time: a budget's deadline is kept by it.
    """

    config: Config
    plan: Plan
    run: RunDirectory
    backend: Backend
    progress: Progress
    stop: asyncio.Event
    ready_wait: float = 900.0
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    histories: dict[Series, History] = field(default_factory=dict)
    _failures: ServerFailures = field(default_factory=ServerFailures)
    _ledger: Ledger = field(init=False)
    _servers: Servers = field(init=False)
    _runner: TrialRunner = field(init=False)

    def __post_init__(self) -> None:
        self._ledger = Ledger(self.config.budget, self.clock, self.wall)
        self._servers = Servers(
            self.run, self.backend, self.progress, self.stop, self.clock, self.ready_wait, self._failures
        )
        self._runner = TrialRunner(
            self.config, self.plan, self.run, self.backend, self.progress, self.stop, self._ledger, self._failures,
            self._servers, self.histories,
        )  # fmt: skip

    async def conduct(self) -> SweepEnd:
        """Run what is left of the plan, then refine. Whatever the end, finished trials are on disk."""
        try:
            self._resume()
            step = await self._measure_all()
            self._report_dropped()
            gone = self._failures.given_up
            end: SweepEnd = "interrupted" if step == "interrupted" else "server_lost" if gone else "finished"
            if end == "finished" and self._runner.dropped:
                end = "budget"
            reason = {"reason": "; ".join(gone.values())} if gone else {}
            self.run.journal(end, spent=self._ledger.spent().tree(), **reason)
            return end
        except FrontierError as error:
            self._journal_failure(error)
            raise
        except MemoryError as error:
            short = MemoryShortError("this machine is out of memory", "finished trials are kept; free some and go on")
            self._journal_failure(short)
            raise short from error
        finally:
            await self._servers.close()
            await self.backend.close()

    def _journal_failure(self, error: FrontierError) -> None:
        with contextlib.suppress(StoreError):
            self.run.journal("failed", reason=error.what)

    def _resume(self) -> None:
        """Take over the finished trials that still count, by fingerprint, and what earlier sessions spent."""
        planned = {trial.key: trial.fingerprint for trial in self.plan.trials}
        finished = self.run.finished()
        self._ledger.recall(self.run.journal_lines(), {key: m.trial for key, m in finished.items()})
        for key, measurement in finished.items():
            trial = measurement.trial
            if planned.get(key, trial.fingerprint) != trial.fingerprint:
                self.progress.note(f"{key} was measured under other settings and is measured again")
                continue
            self._runner.done.add(key)
            self._runner.history(trial.series).append((trial, load_window_data(self.run, measurement)))
        self._servers.done = self._runner.done

    # -- the passes --------------------------------------------------------------------------------------------------

    async def _measure_all(self) -> Step:
        todo = [trial for trial in self.plan.trials if trial.key not in self._runner.done]
        self.progress.plan(len(self.plan.trials), len(self.plan.trials) - len(todo))
        self._runner.report_time_left()
        turns = in_turn(d for d in self.config.deployments if d.name in self.plan.deployments)
        needed = [self._needed(group, todo) for group in turns]
        for i, group in enumerate(turns):
            if needed[i]:
                self._ledger.begin_turn(needed[i], parts_left(needed[i:]))
            step = await self._turn(group, [t for t in todo if t.deployment in {d.name for d in group}])
            if step == "interrupted":
                return step
        return "done"

    async def _turn(self, group: Sequence[DeploymentConfig], todo: Sequence[Trial]) -> Step:
        """Measure deployments that are up at one time: those of the user together, each that the sweep starts alone.

        Where nothing is left to measure the passes report why, and the server may be down.
        """
        needed = self._needed(group, todo)
        for deployment in needed:
            if not await self._servers.up(deployment) and self.stop.is_set():
                return "interrupted"
        there = [d for d in group if d.name not in self._failures.given_up]
        if not there:
            reason = next(iter(self._failures.given_up[d.name] for d in group)).splitlines()[0]
            self._leave_out(todo, reason.removesuffix(LAST_LINES))
            return "done"
        step = await self._passes(there, todo)
        for deployment in needed:
            await self._servers.down(deployment.name)
        return step

    def _needed(self, group: Sequence[DeploymentConfig], todo: Sequence[Trial]) -> list[DeploymentConfig]:
        """Those on which something is left to measure; none when the budget has no room for any of it."""
        left = {d.name: self._left(d, todo) for d in group}
        room = any(self._ledger.refuses(trial) is None for trials in left.values() for trial in trials)
        return [d for d in group if room and left[d.name]]

    def _left(self, deployment: DeploymentConfig, todo: Sequence[Trial]) -> list[Trial]:
        """What would be measured on it next, of the grid and of the search."""
        left = [t for t in todo if t.deployment == deployment.name and self._reason_to_skip(t) is None]
        asks = ((shape, self._ask(deployment, shape)) for shape in self._shapes if self._refines)
        return left + [self._trial_for(deployment, shape, ask) for shape, ask in asks if isinstance(ask, search.Ask)]

    async def _passes(self, deployments: Sequence[DeploymentConfig], todo: Sequence[Trial]) -> Step:
        """The grid and then the search; with a budget the search comes before the later repeats, being worth more."""
        first = [trial for trial in todo if trial.repeat == 1 or not self.config.budget.limited]
        later = [trial for trial in todo if trial.repeat > 1 and self.config.budget.limited]
        for trials in (first, later) if later else (first,):
            if trials is later:
                self._warn_of_budget(later)
            step = await self._grid(trials)
            if step != "interrupted":
                step = await self._refine(deployments)
            if step == "interrupted":
                return step
        return "done"

    async def _grid(self, todo: Sequence[Trial]) -> Step:
        step, put_off = await self._pass(todo)
        if step != "interrupted" and any(trial.deployment not in self._failures.given_up for trial in put_off):
            self.progress.note(f"{len(put_off)} put off after the server was lost; tried again now, the lowest first")
            self._failures.failed_at.clear()
            step, put_off = await self._pass(sorted(put_off, key=lambda trial: trial.concurrency))
        for trial in put_off if step != "interrupted" else ():
            self._skip(trial, self._failures.reason_to_skip(trial) or "the server was lost under it")
        return step

    async def _pass(self, trials: Sequence[Trial]) -> tuple[Step, list[Trial]]:
        """Run these trials. Also returned: those that are put off because the server was lost under them."""
        put_off = []
        for trial in trials:
            if (reason := self._reason_to_skip(trial)) is not None:
                self._skip(trial, reason)
                continue
            step: Step = "lost" if self._failures.reason_to_skip(trial) else await self._runner.measure(trial)
            if step == "lost":
                put_off.append(trial)
            elif step == "interrupted":
                return step, put_off
        return "done", put_off

    def _reason_to_skip(self, trial: Trial) -> str | None:
        """Why the trial would show nothing new, going by what was measured; None to run it."""
        history = self._runner.history(trial.series)
        tiers = [limits for _, limits in self.config.tiers] or [()]
        reasons = [search.skip_reason(trial, history, limits) for limits in tiers]
        return reasons[-1] if None not in reasons else None  # another tier may want what one does not

    async def _refine(self, deployments: Sequence[DeploymentConfig]) -> Step:
        if not self._refines:
            return "done"
        for deployment in deployments:
            for shape in self._shapes:
                step = await self._search(deployment, shape)
                if step == "interrupted":
                    return step
        return "done"

    async def _search(self, deployment: DeploymentConfig, shape: Shape) -> Step:
        while True:
            ask = self._ask(deployment, shape)
            if isinstance(ask, search.Done):
                self.run.journal("search_done", deployment=deployment.name, shape=shape.label, reason=ask.reason)
                self.progress.note(f"{shape.label}: {ask.reason}")
                return "done"
            trial = self._trial_for(deployment, shape, ask)
            self.progress.note(f"refine  {shape.label} c={ask.concurrency}: {ask.reason}")
            self.run.journal("asked", trial=trial.key, reason=ask.reason)
            lost = self._failures.reason_to_skip(trial)
            step: Step = "lost" if lost else await self._runner.measure(trial)
            if step == "lost":
                self._skip(trial, lost or self._failures.reason_to_skip(trial) or "the server was lost under it")
            if step != "done":  # the history is as it was, so the same would be asked again
                return step

    def _trial_for(self, deployment: DeploymentConfig, shape: Shape, ask: search.Ask) -> Trial:
        """The trial that the search asks for."""
        history = self._runner.history(Series(deployment.name, shape))
        repeat = 1 + sum((t.concurrency, t.phase) == (ask.concurrency, ask.phase) for t, _ in history)
        return make_trial(self.config, deployment, shape, ask.concurrency, ask.phase, repeat, ask.requests)

    @property
    def _shapes(self) -> list[Shape]:
        return [shape for shape in self.config.shapes if shape.label in self.plan.shapes]

    @property
    def _refines(self) -> bool:
        return self.config.searches

    def _ask(self, deployment: DeploymentConfig, shape: Shape) -> search.Ask | search.Done:
        history = self._runner.history(Series(deployment.name, shape))
        policy = search_policy(self.config)
        return search.next_ask(policy, shape, self.config.tiers, history)

    # -- what is not measured ----------------------------------------------------------------------------------------

    def _skip(self, trial: Trial, reason: str) -> None:
        self._runner.skipped.add(trial.key)
        self.run.journal("skipped", trial=trial.key, reason=reason)
        self.progress.note(f"skipped {trial.shape.label} c={trial.concurrency}: {reason}")

    def _report_dropped(self) -> None:
        by_limit: dict[str, list[Trial]] = {}
        for trial, limit in self._runner.dropped.values():
            by_limit.setdefault(limit, []).append(trial)
        for limit, trials in by_limit.items():
            self._leave_out(trials, f"the budget had no room: {limit}")

    def _leave_out(self, trials: Sequence[Trial], reason: str) -> None:
        self.run.journal("dropped", reason=reason, trials=[trial.key for trial in trials])
        self.progress.note(f"not measured: {described_trials(trials)}; {reason}")

    def _warn_of_budget(self, todo: Sequence[Trial]) -> None:
        """Report early, while the user may still be there, what will not be measured."""
        fit, left = self._ledger.fit(todo), self._runner.estimator.left(todo, self._ledger.times, self.histories)
        if fit.dropped and left is not None:
            text = f"{format_elapsed(left)} of trials are left; no room in the budget ({', '.join(fit.by)}) for "
            text += described_trials(fit.dropped)
            self.run.journal("warning", text=text)
            self.progress.note(text)
