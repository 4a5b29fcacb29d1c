"""One trial: `run_trial` sends its load, gathers evidence beside it and returns both."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from frontier.client.ask.evidence import Evidence
from frontier.client.ask.facts import server_life, window_facts
from frontier.client.ask.prompts import PromptSource
from frontier.client.ask.target import Target
from frontier.client.http.http_client import Client
from frontier.client.load.health import HealthMonitor
from frontier.client.load.loop import ClosedLoop, TrialProgress
from frontier.client.load.open_loop import OpenLoop
from frontier.client.load.pipeline import RequestPipeline
from frontier.client.load.rules import WindowState, next_state
from frontier.core.model.trials import ClientHealth, Measurement, Record, Trial, Window, WorkerFacts


async def run_trial(
    trial: Trial,
    target: Target,
    prompts: PromptSource,
    *,
    on_record: Callable[[Record], None],
    expected_e2e: float | None = None,
    on_progress: Callable[[TrialProgress], None] | None = None,
    stop: asyncio.Event | None = None,
    whole: int = 1,
) -> Measurement:
    """Run one trial against a settled target (see preflight); each Record goes to `on_record` as it
    is parsed.

    The loop is closed; at a rate it is open, and a request belongs to the window if it was
    scheduled in it.

    The trial takes at most `trial.max_time` seconds, and warm-up at most half of them; then as long
    as the last request of the window needs. `expected_e2e` (seconds) spreads the first sends of a
    closed loop where the output length cannot be forced; without it stream 0's first request shows
    it. Setting `stop` ends the trial at once. The window closes after a multiple of `whole`
    requests. Failures of the server are records, never exceptions.
    MeasurementError when the target is not settled.
    """
    pipeline, decide = RequestPipeline(trial, target, prompts, on_record), partial(next_state, trial, whole=whole)
    async with Evidence(target) as evidence:
        with HealthMonitor(time.perf_counter) as monitor:
            async with Client(target) as client:
                kind = OpenLoop if trial.load.is_open else ClosedLoop
                loop = kind(trial, client, pipeline, monitor, decide, evidence)
                loop.spread = expected_e2e
                await loop.run(stop, on_progress)
                health = monitor.health(client.resent, client.opened, client.renewal)
            epoch, evidence.zero = time.time() - loop.now(), time.perf_counter() - loop.now()
        evidence.named = pipeline.named.counts()
        return await measurement(trial, epoch, loop.state, health, evidence)


async def measurement(
    trial: Trial,
    epoch: float,
    state: WindowState,
    health: ClientHealth,
    evidence: Evidence,
    workers: tuple[WorkerFacts, ...] = (),
) -> Measurement:
    """The measurement of a trial that has ended, with the evidence that was gathered beside it."""
    assert state.start is not None
    assert state.end is not None
    assert state.ended is not None
    changed = None
    if state.ended in ("requests", "time", "failing"):
        await evidence.settle()
        changed = await evidence.differences()
    readings = evidence.readings()
    identity = ", ".join(part for part in (evidence.target.identity, server_life(readings)) if part) or None
    window = Window(state.start, state.end)
    facts, settings = window_facts(readings), evidence.settings(readings)
    return Measurement(
        trial,
        epoch,
        window,
        state.ended,
        health,
        facts,
        identity,
        workers,
        readings,
        settings,
        evidence.named,
        changed,
    )


def measured_to_pass(measured: Measurement, sent: Iterable[float], whole: int) -> Measurement:
    """The measurement with its window ended after the last request of a whole pass over a file of
    `whole` prompts, as a few more are sent while a window closes. Of a window that a time closed,
    and of one without a whole pass, nothing is cut off.
    """
    window = measured.window
    inside = sorted(time for time in sent if window.start <= time <= window.end)
    counted = len(inside) // whole * whole
    if measured.ended != "requests" or counted in (0, len(inside)):
        return measured
    # Between two sends: records keep microseconds, and an end at a send might leave that out.
    return replace(measured, window=replace(window, end=(inside[counted - 1] + inside[counted]) / 2))
