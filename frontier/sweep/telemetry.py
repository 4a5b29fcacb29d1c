"""Prometheus metrics of a running sweep: its progress and the tail latencies it measures, on this machine only.

`Telemetry` is a progress that passes everything on to another. A scrape is answered by the event loop that measures, as
it takes a fraction of a millisecond; nothing runs in a thread of its own.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from frontier.errors import UsageError
from frontier.model import Flag, Trial
from frontier.plan import Progress

if TYPE_CHECKING:
    from frontier.client.loop import Progress as Tick

_SETTING = ("deployment", "shape", "concurrency")
_TAILS = {"p50_ttft": ("ttft", "0.5"), "p99_ttft": ("ttft", "0.99"), "p99_tpot": ("tpot", "0.99")}
STAGES = ("ramp", "warmup", "window", "hold")


class Telemetry(Progress):
    """A progress that exports what is reported, and reports it to `inner`. Times in seconds; a failed tail is +Inf."""

    def __init__(self, inner: Progress) -> None:
        self._inner = inner
        self._labels: tuple[str, str, str] | None = None
        self.registry = registry = CollectorRegistry()

        def gauge(name: str, help_: str, labels: Sequence[str] = ()) -> Gauge:
            return Gauge(f"frontier_{name}", help_, labels, registry=registry)

        self._planned = gauge("sweep_trials_planned", "Trials of the grid.")
        self._finished = gauge("sweep_trials_finished", "Trials finished, in this session and before.")
        self._left = gauge("sweep_seconds_left", "Expected until the grid is done; NaN while not known.")
        self._last_event = gauge("sweep_last_event_timestamp_seconds", "When the sweep last said anything.")
        self._notes = Counter("frontier_sweep_notes", "Things the sweep found worth a line.", registry=registry)
        self._running = gauge("trial_running", "1 for the setting that is being measured.", _SETTING)
        self._stage = gauge("trial_stage", "1 for the stage the running trial is in.", ("stage",))
        self._in_flight = gauge("trial_in_flight", "Requests in flight.")
        self._sent = gauge("trial_window_requests_sent", "Requests sent in the window of the running trial.")
        self._planned_requests = gauge("trial_window_requests_wanted", "Requests the window is to hold at least.")
        self._failed = gauge("trial_requests_failed", "Requests of the running trial that failed.")
        self._elapsed = gauge("trial_elapsed_seconds", "Since the running trial began.")
        self._rate = gauge("trial_output_tokens_per_second", "Of the running trial's window so far; NaN: not known.")
        self._so_far = gauge("trial_ttft_seconds", "TTFT in the window so far; NaN: not known.", ("quantile",))
        self._ttft = gauge("ttft_seconds", "TTFT of the setting's last finished trial.", (*_SETTING, "quantile"))
        self._tpot = gauge("tpot_seconds", "TPOT of the setting's last finished trial.", (*_SETTING, "quantile"))
        self._throughput = gauge("output_tokens_per_second", "Of the setting's last finished trial.", _SETTING)
        self._errors = gauge("error_ratio", "Share of failed requests of the setting's last finished trial.", _SETTING)
        self._left.set(math.nan)

    def text(self) -> bytes:
        """The metrics as Prometheus reads them."""
        return generate_latest(self.registry)

    def plan(self, total: int, done: int) -> None:
        self._inner.plan(total, done)
        self._planned.set(total)
        self._finished.set(done)
        self._touch()

    def expect(self, seconds: float | None) -> None:
        self._inner.expect(seconds)
        self._left.set(_or_nan(seconds))

    def trial_started(self, trial: Trial, number: int, total: int) -> None:
        self._inner.trial_started(trial, number, total)
        self._idle()
        self._labels = (trial.deployment, trial.shape.label, str(trial.concurrency))
        self._running.labels(*self._labels).set(1)
        self._planned_requests.set(trial.requests)
        self._touch()

    def tick(self, tick: "Tick") -> None:
        self._inner.tick(tick)
        for stage in STAGES:
            self._stage.labels(stage).set(float(stage == tick.stage))
        self._in_flight.set(tick.in_flight)
        self._sent.set(tick.window_sent)
        self._failed.set(tick.failed)
        self._elapsed.set(tick.elapsed)
        self._rate.set(_or_nan(tick.rate))
        self._so_far.labels("0.5").set(_or_nan(tick.p50_ttft))
        self._so_far.labels("0.99").set(_or_nan(tick.p99_ttft))
        self._touch()

    def trial_finished(self, trial: Trial, figures: Mapping[str, float | None], flags: Sequence[Flag] = ()) -> None:
        # A figure that there is none of is not exported, rather than 0.
        self._inner.trial_finished(trial, figures, flags)
        self._idle()
        setting = (trial.deployment, trial.shape.label, str(trial.concurrency))
        for name, (metric, quantile) in _TAILS.items():
            if (value := figures.get(name)) is not None:
                {"ttft": self._ttft, "tpot": self._tpot}[metric].labels(*setting, quantile).set(value)
        for name, gauge in (("output_throughput", self._throughput), ("error_rate", self._errors)):
            if (value := figures.get(name)) is not None:
                gauge.labels(*setting).set(value)
        self._finished.inc()
        self._touch()

    def note(self, text: str) -> None:
        self._inner.note(text)
        self._notes.inc()
        self._touch()

    def close(self) -> None:
        self._inner.close()
        self._idle()

    def _idle(self) -> None:
        if self._labels is not None:
            self._running.remove(*self._labels)
            self._labels = None
        for gauge in (self._in_flight, self._sent, self._planned_requests, self._failed, self._elapsed):
            gauge.set(0)
        self._stage.clear()
        self._so_far.clear()
        self._rate.set(math.nan)

    def _touch(self) -> None:
        self._last_event.set_to_current_time()


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


class Exporter:
    """Serves `text()` at http://127.0.0.1:PORT/metrics until `close`; port 0 takes a free one."""

    def __init__(self, text: Callable[[], bytes]) -> None:
        self._text = text
        self._runner: web.AppRunner | None = None

    async def start(self, port: int) -> str:
        """The address it serves. UsageError when the port is taken."""
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, "127.0.0.1", port).start()
        except OSError as error:
            await self.close()
            raise UsageError(
                f"cannot serve metrics on 127.0.0.1:{port}: {error.strerror}",
                "choose another port with  --prometheus,  or 0 for a free one",
            ) from error
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/metrics"

    async def _answer(self, _: web.Request) -> web.Response:
        return web.Response(body=self._text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def close(self) -> None:
        """Stop serving."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
