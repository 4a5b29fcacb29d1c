"""Verification under open-loop (Poisson) load, as independent users make it, of the operating point
or of any rate.

A closed loop of N callers never queues more than N; independent users do. `verify` sends the rate
that the answer estimated for independent users, as a Poisson process with at most the operating
point's N in flight. Requests beyond N wait at the client, as they would at a gateway or an engine
with that limit. Latency counts from each arrival, so the wait counts; the same rules judge it. The
records are kept under the run's `verify/`.
"""

import asyncio
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from frontier.client.ask.same_server import compared
from frontier.client.ask.unmeasurable import NoAnswerError
from frontier.client.load.loop import TrialProgress
from frontier.config import Config
from frontier.core.claim.verdict import judge
from frontier.core.estimates import estimate
from frontier.core.flags.load_flags import DRIFT
from frontier.core.model.decisions import Decision, Judgement, Limit, Verdict
from frontier.core.model.errors import MeasurementError, UsageError
from frontier.core.model.loads import CappedRate, Rate
from frontier.core.model.metrics import claim_floor, metric
from frontier.core.model.points import Point
from frontier.core.model.trials import Measurement, Phase, Record, Trial
from frontier.core.window.from_records import window_data
from frontier.core.window.window import WindowData
from frontier.planning.sla_result import Checked, OpenLoopCheck
from frontier.run import Run
from frontier.search.next_trial import Ask
from frontier.search.rate_policy import RatePolicy, proof_size, rate_of
from frontier.store.run_dir import RunDirectory
from frontier.sweep.backend import Backend, OnTick
from frontier.sweep.servers import require_same_server
from frontier.sweep.trial_runner import recorded

START = 0.5
"""The share of the closed loop's rate that is sent, and at which a search begins, where no rate is
estimated."""


@dataclass(frozen=True, slots=True)
class Search:
    """One operating point whose highest rate under open-loop load is searched for."""

    decision: Decision
    policy: RatePolicy


def checks(
    run: Run, limits: Sequence[Limit], *, load: float | None = None, requests: int | None = None
) -> list[OpenLoopCheck]:
    """The operating points of a run, with the rate of each check: the one estimated for independent
    users, or `load` times the rate that it served.

    Unless stated, the number of requests is what a proof takes at that rate, and what the closed
    loop's claim rests on. UsageError when the run was imported.
    """
    wanted = []
    for search in searches(run, limits):
        decision, policy = search.decision, search.policy
        rate = policy.start if load is None else load * policy.top
        enough = max(_enough(decision, limits), proof_size(policy, decision.limits, rate), 1)
        share = rate / policy.top if load is None else load
        wanted.append(OpenLoopCheck(decision, rate, share, requests or enough, policy.settled(rate), load is not None))
    return wanted


def searches(run: Run, limits: Sequence[Limit]) -> list[Search]:
    """The operating points of a run, with the rate at which each search begins. UsageError for an
    import.
    """
    wanted = []
    for decision, top in _served(run, limits):
        assert decision.load is not None
        estimated = run.arrival_rates([decision]).get(decision.series)
        start = START * top if estimated is None else estimated.rate
        e2e = _mean_e2e(decision) or decision.load / top
        policy = RatePolicy(start, top, decision.load, e2e, max(run.config.warmup, 2 * e2e))
        wanted.append(Search(decision, policy))
    return wanted


def _served(run: Run, limits: Sequence[Limit]) -> list[tuple[Decision, float]]:
    """The operating points of a run, with the request rate each served in closed loop."""
    if run.is_imported:
        raise UsageError(f"{run.path} was imported: there is no server to send to", "sweep it:  frontier init URL")
    if others := [shape for shape in run.config.shapes if shape.kind != "shape"]:
        what = f"{others[0].label} is a {others[0].kind}, and verify sends single requests of one shape at random"
        raise UsageError(what, "frontier solve has what is proven in closed loop; to verify a shape, sweep it alone")
    if any(shape.arrivals is not None for shape in run.config.shapes):
        raise UsageError("this run was measured at rates, so its answer is of open loop already", "see  frontier solve")
    rates = [(decision, decision.metrics.get("request_throughput")) for decision in run.solve(limits)]
    return [(d, rate.value) for d, rate in rates if d.load is not None and rate is not None and rate.value > 0]


def _mean_e2e(decision: Decision) -> float:
    """Mean seconds of a request in the closed loop; 0 where that is not known."""
    e2e = decision.metrics.get("mean_e2e")
    return e2e.value if e2e is not None and math.isfinite(e2e.value) else 0.0


def _enough(decision: Decision, limits: Sequence[Limit]) -> int:
    """The number of requests for a proof as strong as the closed loop's."""
    assert decision.load is not None
    floors = [claim_floor(p, decision.load) for limit in limits if (p := metric(limit.metric).p) is not None]
    behind = [decision.metrics[limit.metric].n for limit in limits if limit.metric in decision.metrics]
    return max([*floors, *behind], default=1_000)


class OutcomeWatch(Protocol):
    """Ends a trial early: sets `halt` when its outcome is clear."""

    halt: asyncio.Event

    def tick(self, progress: TrialProgress, stopped: bool) -> None:
        """Take the trial's state, and whether the user stopped it."""

    def record(self, record: Record) -> None:
        """Take a request that has ended."""


@dataclass(slots=True)
class Sender:
    """Sends open-loop trials to the servers of a run and keeps them in `store`, until `stop` is
    set.
    """

    run: Run
    backend: Backend
    store: RunDirectory
    on_tick: OnTick
    stop: asyncio.Event
    _prepared: set[str] = field(default_factory=set)

    async def prepare(self, deployment: str) -> None:
        """Check that the deployment's server is there and is the one that the run was begun with. A
        server that the sweep started is not started here.
        """
        if deployment not in self._prepared:
            config = self.run.config.deployment(deployment)
            try:
                facts = await self.backend.prepare(config)
            except NoAnswerError as error:
                if config.start is None:
                    raise
                hint = f"the sweep started this server and ended it; start it yourself:\n  {config.start}"
                raise MeasurementError(error.what, hint) from None
            journal = RunDirectory.read(self.run.path).journal_lines()
            require_same_server(journal, facts, "put the old server back, or sweep this one")
            self._prepared.add(deployment)

    async def send(self, trial: Trial, watch: OutcomeWatch | None = None) -> Measurement | None:
        """Send a trial, finished or ended by `watch`, and keep it; None when it was stopped.

        MeasurementError when the server cannot be measured, is lost, or is not the one that the run
        was begun with.
        """
        await self.prepare(trial.deployment)
        if self.stop.is_set():
            return None

        def tick(progress: TrialProgress) -> None:
            self.on_tick(progress)
            if watch is not None:
                watch.tick(progress, self.stop.is_set())

        def kept_with(measurement: Measurement) -> Mapping[str, Any] | None:
            if measurement.ended == "server_lost":
                raise MeasurementError("the server was lost under the load", "see why, and run it again")
            stopped = self.stop.is_set() or (measurement.ended == "interrupted" and watch is None)
            return None if stopped else {}

        measurement = await recorded(
            self.store,
            self.backend,
            trial,
            self.stop if watch is None else watch.halt,
            on_record=(lambda _: None) if watch is None else watch.record,
            on_tick=tick,
            kept_with=kept_with,
        )
        return None if kept_with(measurement) is None else measurement


async def verify(sender: Sender, wanted: Sequence[OpenLoopCheck]) -> list[Checked]:
    """Send the arrivals of each check and judge them. When it is stopped it ends early with what
    was finished.
    """
    done: list[Checked] = []
    for check in wanted:
        trial = open_trial(sender.run.config, check, repeat=1 + len(sender.store.finished()))
        measurement = await sender.send(trial)
        if measurement is None:
            return done
        done.append(judged(check, measurement, sender))
    return done


def open_trial(config: Config, check: OpenLoopCheck, repeat: int) -> Trial:
    """The trial of a check. At most the operating point's concurrency is in flight, as production
    would set it.
    """
    decision = check.decision
    assert decision.load is not None
    mark = f"{config.seed} {decision.deployment} {decision.shape} {check.rate!r} {check.requests} {repeat}"
    ask = Ask(Rate.of(check.rate), Phase.PROVE, check.requests, "", warmup=max(check.warmup, config.warmup))
    trial = open_loop_trial(config, decision, decision.load, ask, repeat, mark)
    return replace(trial, load=CappedRate.at(check.rate, decision.load))  # exactly


def open_loop_trial(config: Config, decision: Decision, cap: int, ask: Ask, repeat: int, mark: str) -> Trial:
    """An open-loop trial; `mark` holds everything that decides its numbers."""
    digest, rate = hashlib.sha256(mark.encode()).hexdigest(), rate_of(ask.load)
    return Trial(
        deployment=decision.deployment,
        shape=decision.shape,
        load=CappedRate.at(rate.per_second, cap),
        repeat=repeat,
        phase=ask.phase,
        requests=ask.requests,
        seed=int(digest[:15], 16),
        warmup=ask.warmup,
        min_time=0.0,
        max_time=max(config.trial_time, 2 * (ask.warmup + ask.requests / rate.per_second + 4 * _mean_e2e(decision))),
        fingerprint=digest[:16],
    )


# --- judging a check


def judged(check: OpenLoopCheck, measurement: Measurement, sender: Sender) -> Checked:
    """The open loop's point and its verdict under the SLA."""
    limits, decision = check.decision.limits, check.decision
    assert decision.load is not None
    sent = window_data(measurement, sender.store.records(measurement.trial.key))
    sample = replace(compared(sender.run.identities, sent), load=decision.load)
    point = estimate.point(sample, limits=limits)
    in_flight = float(sample.in_flight.mean()) if len(sample.in_flight) else 0.0
    verdict, notes = _verdict(point, limits, _growing(sample))
    return Checked(check, point, verdict, in_flight, measurement.trial.load, notes)


def _growing(sample: WindowData) -> bool:
    """Whether latency rises through the window: more requests arrive than are served."""
    half = sample.n // 2
    if not half:
        return False
    return float(np.median(sample.e2e[half:])) > (1 + DRIFT) * float(np.median(sample.e2e[:half]))


def _verdict(point: Point, limits: Sequence[Limit], growing: bool) -> tuple[Judgement, tuple[str, ...]]:
    """The verdict of an open loop.

    A queue that grows makes the window unsteady. That is no fault of the measurement but its
    answer: no. Its requests then depend on each other so much that no bound exists; it is enough
    that values beyond a limit still rise.
    """
    unsteady = [flag for flag in point.flags if flag.name == "non_stationary"]
    rest = replace(point, flags=tuple(flag for flag in point.flags if flag not in unsteady))
    without = judge(rest, limits, point_estimates=True)
    if not growing or without.verdict is not Verdict.VIOLATES:
        return judge(point, limits), ()
    measured = f": {unsteady[0].measured}" if unsteady else ""
    return without if unsteady else judge(point, limits), (f"more arrives than the server keeps up with{measured}",)
