"""The conductor: for each trial of the plan, measure and store; then refine where the answer is still open.

Its state is the run directory. Interrupted at any moment and started again, it goes on where it was: finished trials
count by their fingerprint, and the search proposes from history alone.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from frontier.analyze import search
from frontier.analyze.sample import Sample
from frontier.analyze.validity import flags
from frontier.backend import Backend, Facts, HttpBackend
from frontier.config import Config, DeploymentConfig, load_config
from frontier.errors import AnotherServerError, MeasurementError
from frontier.losses import LIVES, Losses, Witness
from frontier.measure.runner import run as run_loop
from frontier.model import Measurement, Shape, Trial
from frontier.plan import Plan, make_plan, make_trial
from frontier.present.progress import Progress
from frontier.results import History, Run, Setting, load, load_sample
from frontier.store import RunDirectory
from frontier.units import format_elapsed

SweepEnd = Literal["finished", "interrupted", "server_lost", "budget"]

PATIENCE = 4
"""Busy trials in a row after which none is run again: the machine is not going to be quiet."""


@dataclass(slots=True)
class Conductor:
    """One sweep of one config into one run directory.

    `ready_wait` bounds the wait for a lost server, in seconds: long enough for a large model to be loaded again.
    """

    config: Config
    plan: Plan
    run: RunDirectory
    backend: Backend
    progress: Progress
    stop: asyncio.Event
    ready_wait: float = 900.0
    clock: Callable[[], float] = time.monotonic
    histories: dict[Setting, History] = field(default_factory=dict)
    facts: dict[str, Facts] = field(default_factory=dict)
    _losses: Losses = field(default_factory=Losses)
    _witness: Witness = field(default_factory=Witness)
    _done: set[str] = field(default_factory=set)
    _started: float = 0.0
    _before: float = 0.0
    _busy: int = 0

    async def conduct(self) -> SweepEnd:
        """Run what is left of the plan, then refine. Whatever the end, finished trials are on disk."""
        self._started = self.clock()
        self._remember()
        try:
            for deployment in self.config.deployments:
                await self._prepare(deployment)
            end = await self._grid()
            if end == "finished":
                end = await self._refine()
            if end == "finished" and self._losses.gone:
                end = "server_lost"
            self.run.journal(end, **({"reason": "; ".join(self._losses.gone.values())} if self._losses.gone else {}))
            return end
        finally:
            await self.backend.close()

    # -- the two passes ----------------------------------------------------------------------------------------------

    async def _grid(self) -> SweepEnd:
        todo = [trial for trial in self.plan.trials if trial.key not in self._done]
        self.progress.plan(len(self.plan.trials), len(self.plan.trials) - len(todo))
        end, put_off = await self._pass(todo)
        if end == "finished" and any(trial.deployment not in self._losses.gone for trial in put_off):
            self.progress.note(f"{len(put_off)} put off after the server was lost; tried again now, the lowest first")
            self._losses.felled.clear()
            end, put_off = await self._pass(sorted(put_off, key=lambda trial: trial.concurrency))
        for trial in put_off if end == "finished" else ():
            self._skip(trial, self._losses.reason(trial) or "the server was lost under it")
        return end

    async def _pass(self, trials: Sequence[Trial]) -> tuple[SweepEnd, list[Trial]]:
        """Run these trials; the end, and those that have to be put off because the server is lost under them."""
        put_off = []
        for trial in trials:
            history = self._history(trial.deployment, trial.shape)
            reason = search.skip_reason(trial, history, self.config.limits)
            if reason is not None:
                self._skip(trial, reason)
                continue
            end = "lost" if self._losses.reason(trial) else await self._measure(trial)
            if end == "lost":
                put_off.append(trial)
            elif end != "finished":
                return end, put_off
        return "finished", put_off

    def _skip(self, trial: Trial, reason: str) -> None:
        self.run.journal("skipped", trial=trial.key, reason=reason)
        self.progress.note(f"skipped {trial.shape.label} c={trial.concurrency}: {reason}")

    async def _refine(self) -> SweepEnd:
        if not self.config.refine or not self.config.limits:
            return "finished"
        for deployment in self.config.deployments:
            for shape in self.config.shapes:
                end = await self._search(deployment, shape)
                if end != "finished":
                    return end
        return "finished"

    async def _search(self, deployment: DeploymentConfig, shape: Shape) -> SweepEnd:
        policy = search.policy(self.config.refine, self.config.requests, max(self.config.concurrency))
        while True:
            history = self._history(deployment.name, shape)
            ask = search.next_ask(policy, shape, self.config.limits, history)
            if isinstance(ask, search.Done):
                self.run.journal("search_done", deployment=deployment.name, shape=shape.label, reason=ask.reason)
                self.progress.note(f"{shape.label}: {ask.reason}")
                return "finished"
            repeat = 1 + sum((t.concurrency, t.phase) == (ask.concurrency, ask.phase) for t, _ in history)
            trial = make_trial(self.config, deployment, shape, ask.concurrency, ask.phase, repeat, ask.requests)
            self.progress.note(f"refine  {shape.label} c={ask.concurrency}: {ask.reason}")
            self.run.journal("asked", trial=trial.key, reason=ask.reason)
            lost = self._losses.reason(trial)
            end = "lost" if lost else await self._measure(trial)
            if end == "lost":
                # The history is as it was, so the same would be asked again.
                self._skip(trial, lost or self._losses.reason(trial) or "the server was lost under it")
                return "finished"
            if end != "finished":
                return end

    # -- one trial ---------------------------------------------------------------------------------------------------

    async def _measure(self, trial: Trial) -> SweepEnd | Literal["lost"]:
        """Measure and store a trial. A lost server is waited for, and the whole trial tried again, never a request;
        "lost" when it was lost again, or did not come back.

        A trial in which this machine was too busy to measure is run once more, unless that no longer helps.
        """
        lives = again = 0
        while True:
            if self.stop.is_set():
                return "interrupted"
            if (spent := self._spent_budget()) is not None:
                self.progress.note(f"the budget's {spent} is spent")
                return "budget"
            try:
                measurement = await self._once(trial)
            except AnotherServerError as error:
                self._give_up(trial.deployment, error)
                return "lost"
            if measurement.ended == "interrupted":
                self.run.journal("interrupted", trial=trial.key)
                return "interrupted"
            if measurement.ended == "server_lost":
                lives += 1
                why = self._witness.account()
                self.run.journal("server_lost", trial=trial.key, life=lives, reason=why)
                self.progress.note(f"the server was lost during {trial.shape.label} c={trial.concurrency}: {why}")
                if not await self._await_server(trial.deployment):
                    return "interrupted" if self.stop.is_set() else "lost"
                if lives == LIVES:
                    self._losses.fell(trial, why)
                    return "lost"
                continue
            # From the file, not from memory: what is decided now is what a later look at the run will decide.
            sample = load_sample(self.run, measurement)
            busy = next((flag for flag in flags(sample) if flag.name == "client_bound"), None)
            self._busy = self._busy + 1 if busy else 0
            if busy and not again and self._busy <= PATIENCE:
                again = 1
                self.run.journal("measured_again", trial=trial.key, reason=busy.measured)
                self.progress.note(f"this machine was busy ({busy.measured}); the trial is measured once more")
                continue
            self._history(trial.deployment, trial.shape).append((trial, sample))
            self._done.add(trial.key)
            self.progress.trial_finished(trial, sample_line(sample))
            return "finished"

    async def _once(self, trial: Trial) -> Measurement:
        self.progress.trial_started(trial, len(self._done) + 1, max(len(self.plan.trials), len(self._done) + 1))
        with self.run.writer(trial) as writer:
            self._witness = Witness(writer.add)
            measurement = await self.backend.run(
                trial,
                expected_e2e=self._expected_e2e(trial),
                sink=self._witness,
                on_tick=self.progress.tick,
                stop=self.stop,
            )
            if measurement.ended in ("requests", "time"):
                writer.commit(measurement)
        return measurement

    def _expected_e2e(self, trial: Trial) -> float | None:
        """The mean E2E where this shape was measured nearest: how long to stagger the start over."""
        seen = [
            (abs(t.concurrency - trial.concurrency), float(s.e2e[s.ok].mean()))
            for t, s in self._history(trial.deployment, trial.shape)
            if s.ok.any()
        ]
        return min(seen)[1] if seen else None

    # -- around it ---------------------------------------------------------------------------------------------------

    def _remember(self) -> None:
        """Take over the finished trials that still count, by fingerprint."""
        planned = {trial.key: trial.fingerprint for trial in self.plan.trials}
        for key, measurement in self.run.finished().items():
            trial = measurement.trial
            if planned.get(key, trial.fingerprint) != trial.fingerprint:
                self.progress.note(f"{key} was measured under other settings and is measured again")
                continue
            self._done.add(key)
            self._history(trial.deployment, trial.shape).append((trial, load_sample(self.run, measurement)))
            self._before += measurement.window.end

    async def _prepare(self, deployment: DeploymentConfig) -> None:
        facts = await self.backend.prepare(deployment)
        before, now = self._identities().get(deployment.name), f"{facts.model} on {facts.identity}"
        if before is not None and before != now and self._done:
            raise AnotherServerError(
                f"another server answers at {facts.endpoint}: {before} when the run was begun, {now} now",
                "put the old server back, or begin a run of its own with  -o DIR",
            )
        self.facts[deployment.name] = facts
        self.run.journal("server", deployment=deployment.name, identity=facts.identity, model=facts.model)
        for note in facts.notes:
            self.progress.note(note)

    def _identities(self) -> Mapping[str, str]:
        """The model and server each deployment was begun with, from the journal."""
        lines = [line for line in self.run.journal_lines() if line["event"] == "server"]
        return {line["deployment"]: f"{line['model']} on {line['identity']}" for line in reversed(lines)}

    async def _await_server(self, name: str) -> bool:
        """Wait, bounded, for a lost server to answer again. When it does not, its deployment is given up."""
        deployment = next(d for d in self.config.deployments if d.name == name)
        deadline, pause = self.clock() + self.ready_wait, 1.0
        while not self.stop.is_set():
            try:
                await self._prepare(deployment)
            except AnotherServerError as error:
                self._give_up(name, error)
                return False
            except MeasurementError as error:
                if (left := deadline - self.clock()) <= 0:
                    self._give_up(name, error)
                    return False
                self.progress.note(f"waiting for the server, at most {format_elapsed(left)} more: {error.what}")
                await _sleep_or_stop(min(max(pause, error.retry_after or 0.0), left), self.stop)
                pause = min(2 * pause, 15.0)
            else:
                self.progress.note("the server is back")
                return True
        return False

    def _give_up(self, name: str, error: MeasurementError) -> None:
        """Run nothing more on a deployment in this session."""
        self._losses.gone[name] = error.what
        self.run.journal("given_up", deployment=name, reason=error.what)
        self.progress.note(f"nothing more is run on {name}: {error.what}")

    def _spent_budget(self) -> str | None:
        """Which part of the budget is spent, over all sessions of this run; None while there is some left."""
        budget, samples = self.config.budget, [s for h in self.histories.values() for _, s in h]
        hours = (self._before + self.clock() - self._started) / 3600
        spent = {
            "time": (3600 * hours, budget.time),
            "requests": (sum(sum(s.outcomes.values()) for s in samples), budget.requests),
            "tokens": (sum(float(np.nansum(s.completion_tokens)) for s in samples), budget.tokens),
            "cost": (hours * sum(d.price or 0.0 for d in self.config.deployments), budget.cost),
        }
        return next((name for name, (used, limit) in spent.items() if limit is not None and used >= limit), None)

    def _history(self, deployment: str, shape: Shape) -> History:
        return self.histories.setdefault((deployment, shape), [])


async def _sleep_or_stop(seconds: float, stop: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return


def sample_line(sample: Sample) -> dict[str, float | None]:
    """What the progress says of a finished trial: point values only, no claim."""
    from frontier.analyze.summarize import estimate

    names = ("output_throughput", "p50_ttft", "p99_ttft", "p99_tpot", "error_rate")
    found = {name: estimate(sample, name) for name in names}
    return {name: None if e is None else e.value for name, e in found.items()}


class Quiet:
    """A progress that says nothing: for notebooks and programs."""

    def plan(self, total: int, done: int) -> None: ...
    def trial_started(self, trial: Trial, number: int, total: int) -> None: ...
    def tick(self, tick: object) -> None: ...
    def trial_finished(self, trial: Trial, figures: Mapping[str, float | None]) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...


def run_sweep(config_file: str | Path, run: str | Path, environ: Mapping[str, str] | None = None) -> Run:
    """Run the sweep of a config into a run directory, or resume it, and read the result back.

    `environ` holds the variables the config names for keys (default: none). ConfigError, StoreError or
    MeasurementError when it cannot be run; MeasurementError also when the server was lost on the way.
    """
    text = Path(config_file).read_text()
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
