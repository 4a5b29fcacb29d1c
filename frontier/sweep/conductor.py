"""The conductor: for each trial of the plan, measure and store; then refine where the answer is still open.

Its state is the run directory. Interrupted at any moment and started again, it goes on where it was: finished trials
count by their fingerprint, and the search proposes from history alone.

A sweep from a program or a notebook: the same conductor without a terminal around it.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from frontier.budget import described_trials
from frontier.client.event_loop import run as run_loop
from frontier.config import Config, DeploymentConfig, load_config
from frontier.decide import search
from frontier.errors import FrontierError, MeasurementError, MemoryShortError, StoreError
from frontier.model import Flag, Shape, Trial
from frontier.plan import Plan, in_turn, make_plan, make_trial
from frontier.report.progress import Progress
from frontier.run import History, Run, Setting, load
from frontier.stats.sample_cache import load_sample
from frontier.store.files import read_config
from frontier.store.run_dir import RunDirectory
from frontier.sweep.backend import Backend, HttpBackend
from frontier.sweep.ledger import Ledger
from frontier.sweep.servers import LAST_LINES, Losses, Servers
from frontier.sweep.trial_runner import Attempts, Step
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
    histories: dict[Setting, History] = field(default_factory=dict)
    _losses: Losses = field(default_factory=Losses)
    _ledger: Ledger = field(init=False)
    _servers: Servers = field(init=False)
    _attempts: Attempts = field(init=False)

    def __post_init__(self) -> None:
        self._ledger = Ledger(self.config.budget, self.clock, self.wall)
        self._servers = Servers(
            self.run, self.backend, self.progress, self.stop, self.clock, self.ready_wait, self._losses
        )  # fmt: skip
        self._attempts = Attempts(
            self.config, self.plan, self.run, self.backend, self.progress, self.stop, self._ledger, self._losses,
            self._servers, self.histories,
        )  # fmt: skip

    async def conduct(self) -> SweepEnd:
        """Run what is left of the plan, then refine. Whatever the end, finished trials are on disk."""
        try:
            self._remember()
            step = await self._all()
            self._tell_dropped()
            gone, dropped = self._losses.gone, self._attempts.dropped
            end: SweepEnd = "interrupted" if step == "interrupted" else "server_lost" if gone else "finished"
            if end == "finished" and dropped:
                end = "budget"
            reason = {"reason": "; ".join(gone.values())} if gone else {}
            self.run.journal(end, spent=self._ledger.spent().tree(), **reason)
            return end
        except FrontierError as error:
            self._tell_failed(error)
            raise
        except MemoryError as error:
            short = MemoryShortError("this machine is out of memory", "finished trials are kept; free some and go on")
            self._tell_failed(short)
            raise short from error
        finally:
            await self._servers.close()
            await self.backend.close()

    def _tell_failed(self, error: FrontierError) -> None:
        with contextlib.suppress(StoreError):
            self.run.journal("failed", reason=error.what)

    def _remember(self) -> None:
        """Take over the finished trials that still count, by fingerprint, and what earlier sessions spent."""
        planned = {trial.key: trial.fingerprint for trial in self.plan.trials}
        finished = self.run.finished()
        self._ledger.recall(self.run.journal_lines(), {key: m.trial for key, m in finished.items()})
        for key, measurement in finished.items():
            trial = measurement.trial
            if planned.get(key, trial.fingerprint) != trial.fingerprint:
                self.progress.note(f"{key} was measured under other settings and is measured again")
                continue
            self._attempts.done.add(key)
            self._history(trial.deployment, trial.shape).append((trial, load_sample(self.run, measurement)))
        self._servers.done = self._attempts.done

    # -- the passes --------------------------------------------------------------------------------------------------

    async def _all(self) -> Step:
        todo = [trial for trial in self.plan.trials if trial.key not in self._attempts.done]
        self.progress.plan(len(self.plan.trials), len(self.plan.trials) - len(todo))
        self._attempts.tell_what_is_left()
        turns = in_turn(self.config, self.plan)
        wanted = [self._needed(group, todo) for group in turns]
        for i, (group, needed) in enumerate(zip(turns, wanted, strict=True)):
            if needed:
                self._ledger.charge(sum(d.price or 0.0 for d in needed))
                self._ledger.share(sum(len(later) for later in wanted[i:]) / len(needed))
            step = await self._turn(group, [t for t in todo if t.deployment in {d.name for d in group}])
            if step == "interrupted":
                return step
        return "done"

    async def _turn(self, group: Sequence[DeploymentConfig], todo: Sequence[Trial]) -> Step:
        """The deployments that are up at one time: those of the user together, each that we start alone.

        Where nothing is left to measure the passes tell why, and the server may be down.
        """
        needed = self._needed(group, todo)
        for deployment in needed:
            if not await self._servers.up(deployment) and self.stop.is_set():
                return "interrupted"
        there = [d for d in group if d.name not in self._losses.gone]
        if not there:
            reason = next(iter(self._losses.gone[d.name] for d in group)).splitlines()[0]
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
        left = [t for t in todo if t.deployment == deployment.name and self._hopeless(t) is None]
        asks = ((s, self._ask(self._history(deployment.name, s), s)) for s in self._shapes if self._refines)
        return left + [self._asked(deployment, shape, ask) for shape, ask in asks if isinstance(ask, search.Ask)]

    async def _passes(self, deployments: Sequence[DeploymentConfig], todo: Sequence[Trial]) -> Step:
        """The grid and then the search; with a budget the search comes before the later repeats, being worth more."""
        first = [trial for trial in todo if trial.repeat == 1 or not self.config.budget.limited]
        later = [trial for trial in todo if trial.repeat > 1 and self.config.budget.limited]
        for trials in (first, later) if later else (first,):
            if trials is later:
                self._warn_of_the_budget(later)
            step = await self._grid(trials)
            if step != "interrupted":
                step = await self._refine(deployments)
            if step == "interrupted":
                return step
        return "done"

    async def _grid(self, todo: Sequence[Trial]) -> Step:
        step, put_off = await self._pass(todo)
        if step != "interrupted" and any(trial.deployment not in self._losses.gone for trial in put_off):
            self.progress.note(f"{len(put_off)} put off after the server was lost; tried again now, the lowest first")
            self._losses.felled.clear()
            step, put_off = await self._pass(sorted(put_off, key=lambda trial: trial.concurrency))
        for trial in put_off if step != "interrupted" else ():
            self._skip(trial, self._losses.reason(trial) or "the server was lost under it")
        return step

    async def _pass(self, trials: Sequence[Trial]) -> tuple[Step, list[Trial]]:
        """Run these trials; and those that have to be put off because the server is lost under them."""
        put_off = []
        for trial in trials:
            if (reason := self._hopeless(trial)) is not None:
                self._skip(trial, reason)
                continue
            step: Step = "lost" if self._losses.reason(trial) else await self._attempts.measure(trial)
            if step == "lost":
                put_off.append(trial)
            elif step == "interrupted":
                return step, put_off
        return "done", put_off

    def _hopeless(self, trial: Trial) -> str | None:
        """Why, going by what was measured, the trial would tell nothing; None to run it."""
        history = self._history(trial.deployment, trial.shape)
        tiers = [limits for _, limits in self.config.tiers] or [()]
        reasons = [search.skip_reason(trial, history, limits) for limits in tiers]
        return reasons[-1] if None not in reasons else None  # what is hopeless for one tier another may want

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
            history = self._history(deployment.name, shape)
            ask = self._ask(history, shape)
            if isinstance(ask, search.Done):
                self.run.journal("search_done", deployment=deployment.name, shape=shape.label, reason=ask.reason)
                self.progress.note(f"{shape.label}: {ask.reason}")
                return "done"
            trial = self._asked(deployment, shape, ask)
            self.progress.note(f"refine  {shape.label} c={ask.concurrency}: {ask.reason}")
            self.run.journal("asked", trial=trial.key, reason=ask.reason)
            lost = self._losses.reason(trial)
            step: Step = "lost" if lost else await self._attempts.measure(trial)
            if step == "lost":
                self._skip(trial, lost or self._losses.reason(trial) or "the server was lost under it")
            if step != "done":  # the history is as it was, so the same would be asked again
                return step

    def _asked(self, deployment: DeploymentConfig, shape: Shape, ask: search.Ask) -> Trial:
        """The trial that answers the search's question."""
        history = self._history(deployment.name, shape)
        repeat = 1 + sum((t.concurrency, t.phase) == (ask.concurrency, ask.phase) for t, _ in history)
        return make_trial(self.config, deployment, shape, ask.concurrency, ask.phase, repeat, ask.requests)

    @property
    def _shapes(self) -> list[Shape]:
        return [shape for shape in self.config.shapes if shape.label in self.plan.shapes]

    @property
    def _refines(self) -> bool:
        return bool(self.config.refine and self.config.limits)

    def _ask(self, history: History, shape: Shape) -> search.Ask | search.Done:
        policy = search.SearchPolicy(self.config.refine, self.config.requests, max(self.config.concurrency))
        return search.next_ask(policy, shape, self.config.tiers, history)

    # -- what is not measured ----------------------------------------------------------------------------------------

    def _skip(self, trial: Trial, reason: str) -> None:
        self._attempts.skipped.add(trial.key)
        self.run.journal("skipped", trial=trial.key, reason=reason)
        self.progress.note(f"skipped {trial.shape.label} c={trial.concurrency}: {reason}")

    def _tell_dropped(self) -> None:
        by_limit: dict[str, list[Trial]] = {}
        for trial, limit in self._attempts.dropped.values():
            by_limit.setdefault(limit, []).append(trial)
        for limit, trials in by_limit.items():
            self._leave_out(trials, f"the budget had no room: {limit}")

    def _leave_out(self, trials: Sequence[Trial], reason: str) -> None:
        self.run.journal("dropped", reason=reason, trials=[trial.key for trial in trials])
        self.progress.note(f"not measured: {described_trials(trials)}; {reason}")

    def _warn_of_the_budget(self, todo: Sequence[Trial]) -> None:
        """Say early, while somebody may still be there, what will not be measured."""
        forecast, left = self._ledger.forecast(todo), self._ledger.pace.left(todo)
        if forecast.dropped and left is not None:
            text = f"{format_elapsed(left)} of trials are left; no room in the budget ({', '.join(forecast.by)}) for "
            text += described_trials(forecast.dropped)
            self.run.journal("warning", text=text)
            self.progress.note(text)

    def _history(self, deployment: str, shape: Shape) -> History:
        return self._attempts.history(deployment, shape)


class Quiet:
    """A progress that says nothing: for notebooks and programs."""

    def plan(self, total: int, done: int) -> None: ...
    def expect(self, seconds: float | None) -> None: ...
    def trial_started(self, trial: Trial, number: int, total: int) -> None: ...
    def tick(self, tick: object) -> None: ...
    def trial_finished(self, trial: Trial, figures: Mapping[str, float | None], flags: Sequence[Flag] = ()) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...


def run_sweep(config_file: str | Path, run: str | Path, environ: Mapping[str, str] | None = None) -> Run:
    """Run the sweep of a config into a run directory, or resume it, and read the result back.

    `environ` holds the variables the config names for keys (default: none). ConfigError, StoreError or
    MeasurementError when it cannot be run; MeasurementError also when the server was lost on the way.
    """
    text = read_config(Path(config_file))
    config = load_config(text, str(config_file))
    with RunDirectory.open_for_sweep(
        Path(run), identity=config.identity(), canonical=config.canonical(), config_text=text, facts={}
    ) as opened:

        async def go() -> SweepEnd:
            backend = HttpBackend(config, environ or {}, time.time_ns())
            return await Conductor(config, make_plan(config), opened, backend, Quiet(), asyncio.Event()).conduct()

        if run_loop(go()) == "server_lost":
            raise MeasurementError("the server was lost and did not come back", "call it again to go on")
    return load(run)
