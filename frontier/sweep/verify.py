"""Verification of an operating point under open-loop (Poisson) load, as independent users make it.

A closed loop of N callers never queues more than N; independent users do. So the rate that the operating point served
is sent again as a Poisson process, latency counted from each arrival, and judged by the same rules. The records are
kept under the run's `verify/`.
"""

import asyncio
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from frontier.config import Config
from frontier.decide.verdict import judge
from frontier.errors import MeasurementError, UsageError
from frontier.metrics import DEFAULT_METRICS, claim_floor, metric
from frontier.model import Decision, Judgement, Limit, Measurement, Phase, Point, Trial, Verdict
from frontier.run import Run
from frontier.stats import estimate, window
from frontier.stats.load_flags import DRIFT
from frontier.stats.window import WindowData
from frontier.store.run_dir import RunDirectory
from frontier.sweep.backend import HttpBackend, OnTick
from frontier.sweep.servers import require_same_server

CAP = 8
"""Requests in flight are capped at this many times the operating point's concurrency: far above what a Poisson process
of the same mean reaches, low enough for the client's sockets. What is turned away by it is counted as waiting."""
LEAST_CAP = 64
LEAST_LOAD, MOST_LOAD = 0.01, 10.0
"""Shares of the operating point's rate that are worth sending: below, the requests of a claim take days to arrive."""
FULL = 0.9
"""The cap was reached when this share of it was in flight on average."""


@dataclass(frozen=True, slots=True)
class Check:
    """One operating point to be checked: `rate` requests per second, `requests` of them, about `seconds` long."""

    decision: Decision
    rate: float
    load: float
    requests: int

    @property
    def seconds(self) -> float:
        """How long the arrivals take, without warm-up."""
        return self.requests / self.rate


@dataclass(frozen=True, slots=True)
class Checked:
    """The answer: the open loop's point beside the closed loop's, and the verdict of the open loop."""

    check: Check
    point: Point
    judgement: Judgement
    in_flight: float
    notes: tuple[str, ...] = ()


def checks(run: Run, limits: Sequence[Limit], *, load: float = 1.0, requests: int | None = None) -> list[Check]:
    """The operating points of a run, with what each is to be checked at: `load` times the rate it served.

    As many requests as the closed loop's claim rests on, unless said. UsageError when the run was imported, has no
    operating point, or the load is out of reason.
    """
    if run.is_imported:
        raise UsageError(f"{run.path} was imported: there is no server to send to", "sweep it:  frontier init URL")
    if not LEAST_LOAD <= load <= MOST_LOAD:
        raise UsageError("--load is a share of the rate that the operating point served", "as  --load 80%")
    wanted = []
    for decision in run.solve(limits):
        rate = decision.metrics.get("request_throughput")
        if decision.concurrency is None or rate is None or not rate.value > 0:
            continue
        enough = requests or max(_enough(decision, limits), 1)
        wanted.append(Check(decision, rate.value * load, load, enough))
    return wanted


def _enough(decision: Decision, limits: Sequence[Limit]) -> int:
    """Requests for a proof as strong as the closed loop's."""
    assert decision.concurrency is not None
    floors = [claim_floor(p, decision.concurrency) for limit in limits if (p := metric(limit.metric).p) is not None]
    behind = [decision.metrics[limit.metric].n for limit in limits if limit.metric in decision.metrics]
    return max([*floors, *behind], default=1_000)


async def verify(
    run: Run, wanted: Sequence[Check], backend: HttpBackend, store: RunDirectory, *, on_tick: OnTick,
    stop: asyncio.Event,
) -> list[Checked]:  # fmt: skip
    """Send the arrivals of each check and judge them. MeasurementError when a server cannot be measured or is another.

    Ends early, with what was finished, when `stop` is set.
    """
    done: list[Checked] = []
    prepared: set[str] = set()
    journal = RunDirectory.read(run.path).journal_lines()
    try:
        for check in wanted:
            name = check.decision.deployment
            if name not in prepared:
                facts = await backend.prepare(run.config.deployment(name))
                require_same_server(journal, facts, "put the old server back, or sweep this one")
                prepared.add(name)
            trial = open_trial(run.config, check, repeat=1 + len(store.finished()))
            with store.writer(trial) as writer:
                measurement = await backend.run_open(
                    trial, check.rate, on_record=writer.add, on_tick=on_tick, stop=stop
                )
                if measurement.ended == "server_lost":
                    raise MeasurementError("the server was lost under the load", "see why, and run it again")
                if measurement.ended not in ("requests", "time"):
                    return done
                writer.commit(measurement)
            done.append(judged(check, measurement, store))
    finally:
        await backend.close()
    return done


def open_trial(config: Config, check: Check, repeat: int) -> Trial:
    """The trial of a check. Its concurrency is the cap on requests in flight."""
    decision = check.decision
    assert decision.concurrency is not None
    e2e = decision.metrics.get("mean_e2e")
    usual = e2e.value if e2e is not None and math.isfinite(e2e.value) else 0.0
    mark = f"{config.seed} {decision.deployment} {decision.shape} {check.rate!r} {check.requests} {repeat}"
    digest = hashlib.sha256(mark.encode()).hexdigest()
    return Trial(
        deployment=decision.deployment,
        shape=decision.shape,
        concurrency=max(LEAST_CAP, CAP * decision.concurrency),
        repeat=repeat,
        phase=Phase.CONFIRM,
        requests=check.requests,
        seed=int(digest[:15], 16),
        warmup=config.warmup,
        min_time=0.0,
        max_time=max(config.trial_time, 2 * (config.warmup + check.seconds + 4 * usual)),
        fingerprint=digest[:16],
    )


def judged(check: Check, measurement: Measurement, store: RunDirectory) -> Checked:
    """The open loop's point and what the SLA says of it."""
    limits, decision = check.decision.limits, check.decision
    assert decision.concurrency is not None
    sent = window.window_data(measurement, store.records(measurement.trial.key), open_loop=True)
    sample = replace(sent, concurrency=decision.concurrency)
    names = tuple(dict.fromkeys((*DEFAULT_METRICS, *(limit.metric for limit in limits))))
    point = estimate.point(sample, names=names, limits=limits)
    in_flight = float(sample.in_flight.mean()) if len(sample.in_flight) else 0.0
    verdict, notes = _verdict(point, limits, _growing(sample))
    if in_flight > FULL * measurement.trial.concurrency:
        notes = (
            *notes,
            f"nearly all the time {measurement.trial.concurrency} were in flight, the most that is allowed",
        )
    return Checked(check, point, verdict, in_flight, notes)


def _growing(sample: WindowData) -> bool:
    """Latency rises through the window: more arrives than is served."""
    half = sample.n // 2
    if not half:
        return False
    return float(np.median(sample.e2e[half:])) > (1 + DRIFT) * float(np.median(sample.e2e[:half]))


def _verdict(point: Point, limits: Sequence[Limit], growing: bool) -> tuple[Judgement, tuple[str, ...]]:
    """A queue that grows makes the window unsteady, which is no fault of the measurement but its answer: no.

    Its requests depend on each other so much that no bound exists; that values beyond a limit still rise is enough.
    """
    unsteady = [flag for flag in point.flags if flag.name == "non_stationary"]
    rest = replace(point, flags=tuple(flag for flag in point.flags if flag not in unsteady))
    without = judge(rest, limits, point_estimates=True)
    if not growing or without.verdict is not Verdict.VIOLATES:
        return judge(point, limits), ()
    measured = f": {unsteady[0].measured}" if unsteady else ""
    return without if unsteady else judge(point, limits), (f"more arrives than the server keeps up with{measured}",)
