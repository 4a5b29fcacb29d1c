"""The windows of a hold: what is kept of each, in one line of the journal below the run.

Nothing else is kept of its requests: a hold of days takes no more memory, and on disk no more than
a line a window.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frontier.core.claim.levels import latencies
from frontier.core.estimates.estimate import estimate
from frontier.core.flags.flags import flags
from frontier.core.model.decisions import Decision, Limit
from frontier.core.model.trials import Measurement, Phase, Trial
from frontier.core.stats import intervals
from frontier.core.window.window import Floats, WindowData
from frontier.run import Run

EVENT = "held"
BEYOND = 5
"""Fewest requests of a window beyond the percentile that is followed; with few requests a lower
percentile is followed."""
FEWEST = 40
"""Fewest requests of a window."""
SHORTEST, LONGEST, PARTS = 10.0, 60.0, 60
"""A window lasts one of PARTS equal parts of the hold, but at least SHORTEST and at most LONGEST
seconds."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One window of a hold, from `begun` to `ended` (unix time), with `n` requests.

    - `values`: the metrics of the limits.
    - `over`: how many requests were over each limit.
    - `counts`: how many requests each limit is about: those of its class, with such a latency.
    - `levels`: the two logarithms of each limited latency.
    - `excluded`: why the window does not count.
    - `another`: the evidence that another server answered than the run was measured on.
    """

    begun: float
    ended: float
    n: int
    values: Mapping[str, float | None]
    over: Mapping[str, int]
    counts: Mapping[str, int]
    levels: Mapping[str, Sequence[float | None]]
    excluded: str = ""
    another: str = ""


def judged_limits(limits: Iterable[Limit]) -> list[Limit]:
    """The limits that are about a share of requests: on percentiles of a latency, and on errors."""
    return [li for li in limits if li.metric == "error_rate" or (li.of.p is not None and li.of.quantity is not None)]


def allowed(limit: Limit) -> float:
    """The share of requests that may be over a limit."""
    return limit.promise if limit.of.p is None else 1 - limit.of.p


def kept(measurement: Measurement, sample: WindowData, limits: Sequence[Limit]) -> Kept:
    """The record that is kept of a window."""
    values: dict[str, float | None] = {}
    over: dict[str, int] = {}
    counts: dict[str, int] = {}
    levels: dict[str, Sequence[float]] = {}
    for limit in limits:
        name, p = limit.metric, limit.of.p
        known = latencies(sample, limit)
        found = estimate(sample, name)
        values[name] = found.value if found is not None and math.isfinite(found.value) else None
        over[name] = int(_over(known, limit).sum())
        counts[name] = len(known)
        if p is not None and len(known) > 2 * BEYOND:
            levels[name] = logarithms(known, p)
    fatal = [flag for flag in flags(sample, tuple(limits)) if flag.fatal]
    restarted = any(server.get("restarts") for server in sample.server)
    another = next((f.measured for f in fatal if f.name == "server_changed" and not restarted), "")
    raised = [flag.measured for flag in fatal]
    begun = measurement.epoch + measurement.window.start
    ended = measurement.epoch + measurement.window.end
    excluded = "; ".join(raised) if raised or sample.n else "no request"
    return Kept(begun, ended, sample.n, values, over, counts, levels, excluded, another)


def _over(known: Floats, limit: Limit) -> NDArray[np.bool_]:
    """Which latencies are over a limit; for one on errors, which are failures."""
    if limit.of.p is None:
        return np.isinf(known)
    return known > (1 / limit.promise if limit.of.inverted else limit.promise)


def logarithms(values: Floats, p: float) -> tuple[float, float]:
    """The logarithms of a window's percentile and of its usual request (the mean of logarithms,
    without failures).
    """
    tail = intervals.quantile(values, min(p, 1 - BEYOND / len(values)))
    logs = np.log(values[np.isfinite(values) & (values > 0)])
    return math.log(tail) if tail > 0 else -math.inf, float(logs.mean()) if len(logs) else math.inf


def read(lines: Iterable[Mapping[str, Any]], hold: str) -> list[Kept]:
    """The windows of a hold, from the lines of a journal."""
    names = [name for name in Kept.__slots__ if name != "another"]  # which earlier versions did not write
    return [
        Kept(**{name: line[name] for name in names}, another=line.get("another", ""))
        for line in lines
        if line["event"] == EVENT and line.get("hold") == hold and all(name in line for name in names)
    ]


def window_trial(run: Run, decision: Decision, seconds: float, number: int, hold: str) -> Trial:
    """The trial of a window, with the load of the operating point, for `seconds` at the rate that
    was served.
    """
    load, rate = decision.load, decision.metrics.get("request_throughput")
    assert load is not None
    model = next(trial for trial, _ in reversed(run.histories[decision.series]) if trial.load == load)
    served = rate.value if rate is not None and rate.value > 0 else FEWEST / seconds
    streams = 1 if model.load.is_open else model.streams  # at a rate they bound what may be in flight
    requests = max(FEWEST, streams, math.ceil(served * seconds))
    digest = hashlib.sha256(f"{run.config.seed} {hold} {number}".encode()).hexdigest()
    # A recorded trial knows the name of its trace; the config of the run has its times.
    shape = next((s for s in run.config.shapes if s.label == model.shape.label), model.shape)
    return replace(
        model,
        shape=shape,
        repeat=number,
        phase=Phase.VISIT,
        requests=requests,
        seed=int(digest[:15], 16),
        min_time=0.0,
        seconds=None,
        max_time=max(run.config.trial_time, 10 * requests / served),
        fingerprint=digest[:16],
    )


def window_seconds(duration: float) -> float:
    """How long a window of a hold is to be."""
    return min(LONGEST, max(SHORTEST, duration / PARTS))
