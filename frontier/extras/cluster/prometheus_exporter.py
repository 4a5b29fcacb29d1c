"""Prometheus metrics of a running sweep: its progress and its measured tail latencies, on this
machine only.

`Telemetry` is a progress that passes everything on to another. The event loop that measures answers
a scrape, which takes a fraction of a millisecond; nothing runs in a thread of its own.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from frontier.core.model.decisions import Decision, Judgement, Limit
from frontier.core.model.errors import UsageError
from frontier.core.model.points import Estimate, Flag
from frontier.core.model.series import Series
from frontier.core.model.trials import Trial
from frontier.planning.sweep_progress import HigherSetting, Progress, Stage
from frontier.planning.time_left import TimeLeft

if TYPE_CHECKING:
    from frontier.client.load.loop import TrialProgress

_SETTING = ("deployment", "shape", "concurrency")
_GAUGES = {
    "sweep_trials_planned": ("Trials of the grid.", ()),
    "sweep_trials_finished": ("Trials finished, of the grid and of the search, in this session and before.", ()),
    "sweep_seconds_left": ("Expected until the sweep is done: its scans, proofs and frontiers.", ()),
    "sweep_last_event_timestamp_seconds": ("When the sweep last reported anything.", ()),
    "trial_running": ("1 for the setting that is being measured.", _SETTING),
    "trial_stage": ("1 for the stage the running trial is in.", ("stage",)),
    "trial_in_flight": ("Requests in flight.", ()),
    "trial_window_requests_sent": ("Requests sent in the window of the running trial.", ()),
    "trial_window_requests_wanted": ("Requests the window is to hold at least.", ()),
    "trial_requests_failed": ("Requests of the running trial that failed.", ()),
    "trial_elapsed_seconds": ("Since the running trial began.", ()),
    "trial_output_tokens_per_second": ("Of the running trial's window so far; NaN: not known.", ()),
    "trial_ttft_seconds": ("TTFT in the window so far; NaN: not known.", ("quantile",)),
    "ttft_seconds": ("TTFT of the setting's last finished trial.", (*_SETTING, "quantile")),
    "tpot_seconds": ("TPOT of the setting's last finished trial.", (*_SETTING, "quantile")),
    "output_tokens_per_second": ("Of the setting's last finished trial.", _SETTING),
    "sla_limit": ("Limits of the SLA, in seconds, shares or per second.", ("metric",)),
    "sla_value": ("A limited metric of the setting's last finished trial, as its limit.", (*_SETTING, "metric")),
    "operating_point": ("The load that is proven now: concurrency, or rate per second.", ("deployment", "shape")),
    "operating_point_value": (
        "Output throughput and limited metrics of the operating point, by all that was measured of it.",
        ("deployment", "shape", "metric"),
    ),
    "operating_point_bound": ("The bound of it that the proof stands on.", ("deployment", "shape", "metric")),
    "error_ratio": ("Share of failed requests of the setting's last finished trial.", _SETTING),
}
_OF_A_TRIAL = {
    "p50_ttft": ("ttft_seconds", ("0.5",)),
    "p99_ttft": ("ttft_seconds", ("0.99",)),
    "p99_tpot": ("tpot_seconds", ("0.99",)),
    "output_throughput": ("output_tokens_per_second", ()),
    "error_rate": ("error_ratio", ()),
}
"""The gauge of each figure of a finished trial, and its label beside the setting."""
STAGES = ("ramp", "warmup", "window", "hold")


class Telemetry(Progress):
    """A progress that exports every report and passes it on to `inner`. Times are in seconds; a
    failed tail is +Inf.
    """

    def __init__(self, inner: Progress, limits: Sequence[Limit] = ()) -> None:
        self._inner = inner
        self._limits = limits
        self._running: tuple[str, str, str] | None = None
        self.registry = CollectorRegistry()
        self._gauges = {
            name: Gauge(f"frontier_{name}", meaning, labels, registry=self.registry)
            for name, (meaning, labels) in _GAUGES.items()
        }
        for limit in limits:
            self._gauges["sla_limit"].labels(limit.metric).set(limit.promise)
        self._notes = Counter("frontier_sweep_notes", "Things the sweep found worth a line.", registry=self.registry)

    def text(self) -> bytes:
        """The metrics as Prometheus reads them."""
        return generate_latest(self.registry)

    def plan(self, total: int, finished: int) -> None:
        self._inner.plan(total, finished)
        self._set(sweep_trials_planned=total, sweep_trials_finished=finished)

    def expect(self, left: TimeLeft) -> None:
        self._inner.expect(left)
        self._set(sweep_seconds_left=left.seconds)

    def trial_started(self, trial: Trial) -> None:
        self._inner.trial_started(trial)
        self._clear()
        self._running = _setting(trial)
        self._gauges["trial_running"].labels(*self._running).set(1)
        self._set(trial_window_requests_wanted=trial.requests)

    def tick(self, tick: "TrialProgress") -> None:
        self._inner.tick(tick)
        for stage in STAGES:
            self._gauges["trial_stage"].labels(stage).set(float(stage == tick.stage))
        for quantile, value in (("0.5", tick.p50_ttft), ("0.99", tick.p99_ttft)):
            self._gauges["trial_ttft_seconds"].labels(quantile).set(_or_nan(value))
        self._set(
            trial_in_flight=tick.in_flight,
            trial_window_requests_sent=tick.window_sent,
            trial_requests_failed=tick.failed,
            trial_elapsed_seconds=tick.elapsed,
            trial_output_tokens_per_second=tick.rate,
        )

    def trial_finished(self, trial: Trial, figures: Mapping[str, float | None], flags: Sequence[Flag] = ()) -> None:
        self._inner.trial_finished(trial, figures, flags)
        self._clear()
        for figure, (name, label) in _OF_A_TRIAL.items():
            if (value := figures.get(figure)) is not None:  # a figure without a value is not exported, rather than 0
                self._gauges[name].labels(*_setting(trial), *label).set(value)
        for limit in self._limits:
            if (value := figures.get(limit.metric)) is not None:
                self._gauges["sla_value"].labels(*_setting(trial), limit.metric).set(value)
        self._gauges["sweep_trials_finished"].inc()
        self._set()

    def stage(self, stage: Stage) -> None:
        self._inner.stage(stage)

    def judged(self, trial: Trial, judgement: Judgement, limit: Limit, estimate: Estimate) -> None:
        self._inner.judged(trial, judgement, limit, estimate)

    def announced(self, decision: Decision, seconds: float, better: HigherSetting | None) -> None:
        self._inner.announced(decision, seconds, better)
        self._operating_point(decision)

    def stands(self, decision: Decision) -> None:
        self._inner.stands(decision)
        self._operating_point(decision)

    def _operating_point(self, decision: Decision) -> None:
        where, load = (decision.deployment, decision.shape.label), decision.load
        self._gauges["operating_point"].labels(*where).set(_or_nan(None if load is None else load.amount))
        limits = {limit.metric: limit for limit in decision.limits}
        for name in dict.fromkeys(("output_throughput", *limits)):
            if (estimate := decision.metrics.get(name)) is not None:
                self._gauges["operating_point_value"].labels(*where, name).set(estimate.value)
                if name in limits:
                    self._gauges["operating_point_bound"].labels(*where, name).set(limits[name].bound(estimate))
        self._set()

    def corrected(self, series: Series) -> None:
        self._inner.corrected(series)
        for gauge in (each for name, each in self._gauges.items() if name.startswith("operating_point")):
            gauge.remove_by_labels({"deployment": series.deployment, "shape": series.shape.label})
        self._set()

    def note(self, text: str) -> None:
        self._inner.note(text)
        self._notes.inc()
        self._set()

    def close(self) -> None:
        self._inner.close()
        self._clear()

    def _clear(self) -> None:
        """Clear the gauges of a running trial."""
        if self._running is not None:
            self._gauges["trial_running"].remove(*self._running)
            self._running = None
        self._gauges["trial_stage"].clear()
        self._gauges["trial_ttft_seconds"].clear()
        self._set(
            trial_in_flight=0,
            trial_window_requests_sent=0,
            trial_window_requests_wanted=0,
            trial_requests_failed=0,
            trial_elapsed_seconds=0,
            trial_output_tokens_per_second=None,
        )

    def _set(self, **values: float | None) -> None:
        """Set gauges without labels, and the time of this report; None is NaN."""
        for name, value in values.items():
            self._gauges[name].set(_or_nan(value))
        self._gauges["sweep_last_event_timestamp_seconds"].set_to_current_time()


def _setting(trial: Trial) -> tuple[str, str, str]:
    return trial.deployment, trial.shape.label, str(trial.load)


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
            raise UsageError(
                f"cannot serve metrics on 127.0.0.1:{port}: {str(error.strerror).rpartition(': ')[2]}",
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
