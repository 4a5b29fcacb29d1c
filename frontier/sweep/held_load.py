"""A load that is held beside other requests: of a check, or the background of a trial."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from frontier.client.load.loop import TrialProgress
from frontier.core.model.loads import Concurrency
from frontier.core.model.trials import Measurement, Outcome, Record, Trial
from frontier.sweep.backend import Backend, OnRecord, OnTick

ENDLESS = 10**9
"""Requests and seconds of a trial that is ended from outside."""
_LOOK = 0.05
"""Seconds between two looks at whether the requests in flight have ended."""


@contextlib.asynccontextmanager
async def held_load(
    backend: Backend, trial: Trial, stop: asyncio.Event, *, on_record: OnRecord, on_tick: OnTick
) -> AsyncIterator["asyncio.Future[Measurement]"]:
    """The load of a trial without its ends, warm when it begins and until it ends. Where it ends by
    itself, its future is done.
    """
    trial = replace(trial, requests=ENDLESS, max_time=float(ENDLESS), min_time=0.0, seconds=None)
    halt, warm = asyncio.Event(), asyncio.Event()

    def tick(progress: TrialProgress) -> None:
        on_tick(progress)
        if progress.stage == "window":
            warm.set()
        if stop.is_set():
            halt.set()

    run = backend.run(trial, expected_e2e=None, on_record=on_record, on_tick=tick, stop=halt)
    loading, waiting = asyncio.ensure_future(run), asyncio.create_task(warm.wait())
    try:
        await asyncio.wait({loading, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        yield loading
    finally:
        halt.set()
        await asyncio.gather(loading, return_exceptions=True)


@dataclass(slots=True)
class BackgroundRecords:
    """The records of the background of a trial, and the load that makes them; None: there is
    none.
    """

    loading: "asyncio.Future[Measurement] | None" = None
    streams: int = 0
    records: list[Record] = field(default_factory=list)

    async def settle(self, stop: asyncio.Event) -> None:
        """Wait until the requests that are in flight have ended. Their tokens came in the trial's
        window too, and the server counts tokens only of an answer that is whole.
        """
        begun = len(self.records)
        while self.loading is not None and not (self.loading.done() or stop.is_set()):
            if len({record.stream for record in self.records[begun:]}) == self.streams:
                return
            await asyncio.sleep(_LOOK)

    def beside(self, measurement: Measurement) -> list[Record]:
        """The records on the clock of the trial that they were beside."""
        if self.loading is None:
            return []
        later = self.loading.result().epoch - measurement.epoch
        return [_shifted(record, later) for record in self.records]

    @property
    def failures(self) -> str:
        """'12 of 40 requests of the background failed: WHY'; '' where few did."""
        bad = [r for r in self.records if r.outcome not in (Outcome.OK, Outcome.CANCELLED)]
        if 10 * len(bad) <= len(self.records):
            return ""
        ((why, _),) = Counter(r.error or r.outcome.value for r in bad).most_common(1)
        return f"{len(bad):,} of {len(self.records):,} requests of the background failed: {why}"


def _shifted(record: Record, later: float) -> Record:
    """A record of a background, with the times of a clock that began `later` seconds before."""
    times = {name: getattr(record, name) for name in ("sent", "end", "first", "visible", "last", "first_text")}
    moved = {name: value + later for name, value in times.items() if value is not None}
    return replace(record, background=True, **moved)


@contextlib.asynccontextmanager
async def background_of(
    backend: Backend, trial: Trial, stop: asyncio.Event, *, on_record: OnRecord, on_tick: OnTick
) -> AsyncIterator[BackgroundRecords]:
    """The background of a trial, held while its requests are sent; nothing where it has none."""
    beside = trial.shape.background
    if beside is None or not beside.streams:
        yield BackgroundRecords()
        return
    load = replace(trial, shape=beside.shape, load=Concurrency(beside.streams))
    found = BackgroundRecords(streams=beside.streams)

    def record(each: Record) -> None:
        found.records.append(each)
        on_record(each)

    def tick(progress: TrialProgress) -> None:
        if found.loading is None:  # from then on the trial's own progress is shown
            on_tick(progress)

    async with held_load(backend, load, stop, on_record=record, on_tick=tick) as found.loading:
        yield found
