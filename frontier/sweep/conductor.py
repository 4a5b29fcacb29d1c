"""The conductor runs a sweep: it picks the next trial, has it measured, and goes on to the end.

In: a config, its plan and a run directory, empty or of an earlier session. Out: finished trials and
journal lines in the run directory, and a `SweepEnd`. In the turn of each deployment the operating
points are proven first, then the frontiers are completed.

Subtle: the conductor keeps no state file. After a restart finished trials count by their
fingerprint, and `Proposals` follow from that history alone. So a trial that adds nothing to it
would be proposed without end: every loop stops when a proposal comes back unchanged.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from frontier import registry
from frontier.client.ask.same_server import journalled
from frontier.config import Config, DeploymentConfig
from frontier.core.claim.changes import PROOFS
from frontier.core.claim.proof import SCANS
from frontier.core.model.errors import FrontierError, MemoryShortError, StoreError
from frontier.core.model.groups import by_key
from frontier.core.model.series import Series
from frontier.core.model.trials import Phase, Trial
from frontier.core.stats import laws
from frontier.planning.budget import described_trials, parts_left
from frontier.planning.plan import NO_PROOFS, Plan, ToProve, grid_size, in_turn, make_trial, proofs_of, runs_grid
from frontier.planning.sweep_progress import Progress
from frontier.search.next_trial import Ask
from frontier.store.run_dir import RunDirectory
from frontier.store.window_cache import load_window_data
from frontier.sweep.announcements import Announcer
from frontier.sweep.backend import Backend
from frontier.sweep.ledger import Ledger
from frontier.sweep.proposals import Proposals
from frontier.sweep.servers import Servers
from frontier.sweep.start.started_server import LAST_LINES
from frontier.sweep.sweep_state import SweepState
from frontier.sweep.trial_runner import TrialEnd, TrialRunner
from frontier.world import world

SweepEnd = Literal["finished", "interrupted", "server_lost", "budget"]
MOST_REPEATS = 2
"""How often a trial whose numbers mean nothing is measured again."""
PATIENCE = 4
"""After this many repeats in a row whose numbers again mean nothing, no other trial is repeated:
the reason will not go away."""


Course = Callable[["Conductor"], Awaitable[None]]
"""Measures all there is in an order of its own, by `start_anew` and `run_ask` of the conductor."""


class _Interrupted(Exception):  # noqa: N818
    """Raised when the user stops the sweep."""


@dataclass
class Conductor:
    """One sweep of one config into one run directory; with a `course`, in the order of the course.

    `prove`: settings to prove, and nothing else. `ready_wait`: the longest wait for a lost server,
    in seconds. `clock` counts seconds; `wall` is unix time, by which a budget's deadline is kept.
    """

    config: Config
    plan: Plan
    run: RunDirectory
    backend: Backend
    progress: Progress
    stop: asyncio.Event
    prove: ToProve = NO_PROOFS
    ready_wait: float = 900.0
    clock: Callable[[], float] = field(default_factory=lambda: world().clock)
    wall: Callable[[], float] = field(default_factory=lambda: world().wall)
    course: Course | None = None
    state: SweepState = field(default_factory=SweepState)
    ledger: Ledger = field(init=False)
    _servers: Servers = field(init=False)
    _runner: TrialRunner = field(init=False)
    _proposals: Proposals = field(init=False)
    _announcer: Announcer = field(init=False)
    _repeats: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _in_vain: int = 0
    _completing: dict[Series, float] = field(default_factory=lambda: defaultdict(float))

    def __post_init__(self) -> None:
        config, run, progress, state = self.config, self.run, self.progress, self.state
        if any(deployment.apply is not None for deployment in config.deployments):
            self.backend, self.course = registry.KNOB.require("apply:").turned(self)
        self.prove = proofs_of(config, self.prove)
        self.ledger = ledger = Ledger(config.budget, self.clock, self.wall)
        self._servers = Servers(
            run, self.backend, progress, self.stop, self.clock, self.ready_wait, state.failures, state.done
        )
        self._runner = TrialRunner(config, run, self.backend, progress, self.stop, ledger, self._servers, state)
        self._proposals = Proposals(config, self.plan, self.prove, ledger, state)
        self._announcer = Announcer(
            config, run, progress, self.prove, ledger, self._proposals, state.histories, state.forecast
        )

    async def conduct(self) -> SweepEnd:
        """Run what is left of the plan. Whatever the end, finished trials are on disk."""
        end: SweepEnd = "finished"
        try:
            laws.load()
            self._resume()
            self._report_unproven()
            try:
                await (self.measure_all() if self.course is None else self.course(self))
            except _Interrupted:
                end = "interrupted"
                await self._servers.close()
            self._report_dropped()
            gone = self.state.failures.given_up if self.course is None else {}
            if end == "finished" and (gone or self.state.dropped):
                end = "server_lost" if gone else "budget"
            self.run.journal(end, spent=self.ledger.spent().tree(), **self.state.failures.facts())
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
        """Take over the finished trials that still count, by fingerprint, and what earlier sessions
        spent.
        """
        finished = self.run.finished()
        trials = {key: measurement.trial for key, measurement in finished.items()}
        lines = self.run.journal_lines()
        self.ledger.recall(lines, trials)
        self.state.identities.update(journalled(lines))
        self._servers.tell_left(lines)
        stale = {trial.key for trial in self.plan.left(trials)}
        for key, measurement in finished.items():
            if key in stale:
                self.progress.note(f"{key} was measured under other settings and is measured again")
                continue
            self._runner.recall(measurement.trial, load_window_data(self.run, measurement))
        for line in lines:
            if line["event"] == "measured_again":
                self._count_repeat(line["trial"], line.get("under", line["trial"]))

    def _report_unproven(self) -> None:
        """Report the series in which the run given to --prove proved no setting."""
        for series in self._proposals.every_series() if self.prove else ():
            if not self.prove.of(series):
                self.progress.note(f"{series.label(keep_shape=True)}: {self.prove.named} proved nothing")

    # -- turns

    async def measure_all(self) -> None:
        """Measure all there is, the answers first."""
        todo = [trial for trial in self.plan.trials if trial.key not in self.state.done]
        self.progress.plan(len(self.plan.trials), len(self.state.done))
        self._announcer.time_left()
        turns = in_turn(d for d in self.config.deployments if d.name in self.plan.deployments)
        needed = [self._needed(group, todo) for group in turns]
        for i, group in enumerate(turns):
            if needed[i]:
                self.ledger.begin_turn(needed[i], parts_left(needed[i:]))
            await self._turn(group, [t for t in todo if t.deployment in {d.name for d in group}])

    async def _turn(self, group: Sequence[DeploymentConfig], todo: Sequence[Trial]) -> None:
        """Measure the deployments that are up at the same time: the user's own servers together,
        and each server that the sweep starts by itself.

        Where nothing is left to measure, the passes report why, and the server may be down.
        """
        needed = self._needed(group, todo)
        for deployment in needed:
            if not await self._servers.up(deployment) and self.stop.is_set():
                raise _Interrupted
        there = [d for d in group if d.name not in self.state.failures.given_up]
        if not there:
            reason = next(iter(self.state.failures.given_up[d.name].why for d in group)).splitlines()[0]
            self._leave_out(todo, reason.removesuffix(LAST_LINES))
            return
        await self._passes(there, todo)
        for deployment in needed:
            await self._servers.down(deployment.name)

    def _needed(self, group: Sequence[DeploymentConfig], todo: Sequence[Trial]) -> list[DeploymentConfig]:
        """The deployments with something left to measure; none where the budget has no room."""
        left = {d.name: self._left(d, todo) for d in group}
        room = any(self.ledger.refuses(trial) is None for trials in left.values() for trial in trials)
        return [d for d in group if room and left[d.name]]

    def _left(self, deployment: DeploymentConfig, todo: Sequence[Trial]) -> list[Trial]:
        """The trials that a deployment needs next: the plan's, those that the search or the
        completion asks for, and repeats.
        """
        mine = [t for t in todo if t.deployment == deployment.name and self._by_plan(t)]
        left = [t for t in mine if self._proposals.reason_to_skip(t) is None]
        for series in self._proposals.series([deployment]):
            left += [self._proposals.trial(series, ask) for ask in self._proposals.asks(series)]
            excluded = self._to_repeat(series)
            left += [excluded] if excluded is not None else []
        return left

    def _by_plan(self, trial: Trial) -> bool:
        """Whether a trial of the grid is run because the config says so; otherwise only the
        completion may ask for it.
        """
        return runs_grid(self.config) and not self.prove and trial.key not in self.state.done

    async def start_anew(self, deployment: str) -> bool:
        """Stop what runs and start this deployment from scratch. False when it is given up."""
        up = await self._servers.anew(self.config.deployment(deployment))
        if self.stop.is_set():
            raise _Interrupted
        return up

    # -- the passes of a turn

    async def _passes(self, deployments: Sequence[DeploymentConfig], todo: Sequence[Trial]) -> None:
        """Measure one turn, the answers first.

        1. Each setting of the grid once, where the config states the size of its trials. 2. The
        search of every series. 3. The rest of the plan, and what completes the frontiers.
        """
        planned = [trial for trial in todo if self._by_plan(trial)]
        first = [trial for trial in planned if self._proposals.in_first_pass(trial)]
        later = [trial for trial in planned if trial not in first]
        series = self._proposals.series(deployments)
        await self._grid(first)
        await self._answer_all(series)
        await self._share(series)
        if later:
            await self._grid(later)
        await self._complete(series)
        while await self._share(series):  # operating points may be higher by now
            await self._complete(series)  # a series ends with a window of what it names

    async def _grid(self, todo: Sequence[Trial]) -> None:
        put_off = await self._pass(todo)
        if any(trial.deployment not in self.state.failures.given_up for trial in put_off):
            self.progress.note(f"{len(put_off)} put off after a loss; tried again now, the lowest first")
            self.state.failures.failed_at.clear()
            put_off = await self._pass(sorted(put_off, key=lambda trial: trial.load))
        for trial in put_off:
            self._skip(trial, self.state.failures.reason_to_skip(trial))

    async def _pass(self, trials: Sequence[Trial]) -> list[Trial]:
        """Run these trials. Returns those that are put off because a server was lost under them."""
        put_off = []
        for trial in trials:
            if trial.key in self.state.done:
                continue
            if (reason := self._proposals.reason_to_skip(trial)) is not None:
                self._skip(trial, reason)
                continue
            if self.state.failures.reason_to_skip(trial) or await self._measure(trial) == "lost":
                put_off.append(trial)
        return put_off

    async def _answer_all(self, series: Sequence[Series]) -> None:
        """Find and prove the operating point of each series in turn. Each may take an equal part of
        the time; what one leaves goes to series that had too little.
        """
        for again in (False, True):
            left = [one for one in series if isinstance(self._proposals.to_search(one), Ask) or not again]
            for i, one in enumerate(left):
                self.ledger.begin_share(float(len(left) - i) if not again else 1.0)
                await self._answer(one)
        self.ledger.begin_share()

    async def _answer(self, series: Series) -> None:
        """Scan and prove one series, until the search asks for no more or the budget has no
        room.
        """
        while isinstance(ask := self._proposals.to_search(series), Ask):
            step = await self.run_ask(series, ask)
            if step == "dropped" or series.deployment in self.state.failures.given_up:
                return
            if step == "lost" and self._proposals.to_search(series) == ask:
                return  # it would be asked for again without end
            if ask.phase in (*PROOFS, Phase.VISIT):
                self._announcer.operating_point(series)
        self._announcer.operating_point(series)
        if (excluded := self._to_repeat(series)) is not None:
            if await self._repeat(excluded) == "done":
                await self._answer(series)
            return
        if (self.config.searches or self.prove) and self.state.histories[series]:
            facts = {"deployment": series.deployment, "shape": series.shape.label, "reason": ask.reason}
            self.run.journal("search_done", **facts)
            if ask.proven is None:  # a proof has its line
                self.progress.note(f"{series.label(keep_shape=True)}: {ask.reason}")

    async def _share(self, series: Sequence[Series]) -> bool:
        """Prove one concurrency in all shapes and under all SLAs of each deployment, as far as
        there is room. True when anything was measured.
        """
        measured = False
        for deployment in dict.fromkeys(one.deployment for one in series):
            while (found := self._proposals.to_share(deployment, series)) is not None:
                if await self.run_ask(*found) != "done":
                    break
                measured = True
        return measured

    async def _complete(self, series: Sequence[Series]) -> None:
        """Complete the frontiers, the most valuable trial next. Of equal trials, the series that
        had the least time comes first.
        """
        left = list(series)
        while left:
            asks = {one: self._proposals.to_complete(one) for one in left}
            for one, ask in asks.items():
                if isinstance(ask, Ask):
                    continue
                excluded = self._to_repeat(one)
                if excluded is None or await self._repeat(excluded) != "done":
                    left.remove(one)
                    self._report_skipped(one)
            known = {one: ask for one, ask in asks.items() if isinstance(ask, Ask)}
            if not known:
                continue
            one = max(known, key=lambda s: (known[s].value, -self._completing[s]))
            began = self.ledger.spent().seconds
            step = await self.run_ask(one, known[one])
            self._completing[one] += self.ledger.spent().seconds - began
            if step == "done":
                if known[one].phase is not Phase.FRONTIER:
                    self._announcer.operating_point(one)
            elif step == "dropped" or self._proposals.to_complete(one) == known[one]:
                left.remove(one)  # the history is as it was, so the same would be asked again

    async def run_ask(self, series: Series, ask: Ask) -> TrialEnd:
        """Measure the trial that is asked for, and journal why."""
        trial = self._proposals.trial(series, ask)
        facts = {"deployment": trial.deployment, "shape": trial.shape.label, **trial.load.facts}
        size = {"phase": ask.phase.value, "requests": ask.requests, "seconds": ask.seconds}
        left = self.ledger.seconds_left()
        self.run.journal("asked", trial=trial.key, reason=ask.reason, within=left, **size, **facts)
        lost = self.state.failures.reason_to_skip(trial)
        if (step := "lost" if lost else await self._measure(trial)) == "lost":
            self._skip(trial, lost or self.state.failures.reason_to_skip(trial))
        return step

    async def _measure(self, trial: Trial, *, in_place: bool = False) -> TrialEnd:
        """Measure a trial and report on it. Where a gateway answered all the time that its server
        is away, repeat it once the server is back.
        """
        self._announcer.stage(trial)
        step = await self._runner.measure(trial)
        if step == "interrupted":
            raise _Interrupted
        if step == "done":
            self._announcer.judged(trial)
            if self.course is None:
                self._announcer.time_left()
            found = self.state.excluded.get(trial.key)
            if found is not None and found.away and self._stays_open(trial.key) and not in_place:
                return await self._after_absence(trial)
        return step

    async def _after_absence(self, trial: Trial) -> TrialEnd:
        """Wait for the server behind a gateway, and measure the trial once more."""
        if await self._servers.back(self.config.deployment(trial.deployment)):
            return await self._repeat(trial)
        if self.stop.is_set():
            raise _Interrupted
        return "lost"

    # -- numbers that mean nothing

    def _to_repeat(self, series: Series) -> Trial | None:
        """A trial whose numbers mean nothing, by what may pass; its setting has no valid one."""
        if self._in_vain >= PATIENCE or series.deployment in self.state.failures.given_up:
            return None
        excluded, history = self.state.excluded, self.state.histories[series]
        valid = {trial.load for trial, _ in history if trial.key not in excluded}
        open_ = [
            trial
            for trial, _ in history
            if trial.key in excluded
            and excluded[trial.key].may_pass
            and self._stays_open(trial.key)
            and (trial.phase not in SCANS or trial.load not in valid)
        ]
        return min(open_, key=lambda t: (t.phase not in (*PROOFS, Phase.VISIT), t.load, t.repeat), default=None)

    def _stays_open(self, key: str) -> bool:
        """Whether a trial, itself no repeat, has few repeats and the last of them means nothing."""
        repeats = self._repeats.get(key, [])
        in_place = any(key in others and key != first for first, others in self._repeats.items())
        return not in_place and len(repeats) < MOST_REPEATS and (not repeats or repeats[-1] in self.state.excluded)

    async def _repeat(self, trial: Trial) -> TrialEnd:
        """Repeat a trial under a number of its own: nothing measured is thrown away."""
        last = next(reversed(self._repeats.get(trial.key, [])), trial.key)
        reason, again = self.state.excluded[last].why, self._proposals.once_more(trial)
        if trial.key not in self._repeats and self.state.excluded[last].away:  # others were said to be excluded
            self.progress.note(f"{trial.load.label} measured again: {reason}")
        step = await self._measure(again, in_place=True)
        if not self.state.excluded[last].cut_off or trial.key in self.state.dropped:
            self.state.dropped.pop(again.key, None)  # without room it counts as it is
        if step == "done":
            self.run.journal("measured_again", trial=trial.key, under=again.key, reason=reason)
            self._count_repeat(trial.key, again.key)
        return step

    def _count_repeat(self, key: str, again: str) -> None:
        self._repeats[key].append(again)
        self._in_vain = self._in_vain + 1 if again in self.state.excluded else 0

    # -- what is reported

    def _report_skipped(self, series: Series) -> None:
        """Report the settings that the completion left out, since they show nothing new."""
        known = {trial.load for trial, _ in self.state.histories[series]}
        for c in (c for c in self.config.loads if c not in known):
            size, deployment = grid_size(self.config, c), self.config.deployment(series.deployment)
            trial = make_trial(self.config, deployment, series.shape, c, Phase.GRID, 1, *size)
            if trial.key not in self.state.skipped and (why := self._proposals.reason_to_skip(trial)):
                self._skip(trial, why)

    def _skip(self, trial: Trial, reason: str | None) -> None:
        reason = reason or "the server was lost under it"
        self.state.skipped.add(trial.key)
        self.run.journal("skipped", trial=trial.key, reason=reason)
        if trial.repeat == 1 or replace(trial, repeat=1).key not in self.state.skipped:
            self.progress.note(f"skipped {trial.shape.label} {trial.load.label}: {reason}")

    def _report_dropped(self) -> None:
        for limit, trials in by_key((limit, trial) for trial, limit in self.state.dropped.values()).items():
            self._leave_out(trials, f"the budget had no room ({limit})")

    def _leave_out(self, trials: Sequence[Trial], reason: str) -> None:
        need = asdict(self.ledger.need(trials))
        self.run.journal("dropped", reason=reason, trials=[trial.key for trial in trials], need=need)
        self.progress.note(f"skipped: {described_trials(trials)}; {reason}")
