"""The rules that a measured trial keeps, checked on a finished run.

An oracle for executors and sweeps: the records of a trial must agree with each other, with the
window's rules, with the seeds of the plan and with the journal's sums.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from frontier.client.load.rules import WARMUP_SHARE
from frontier.config import Config
from frontier.core.model.trials import Measurement, Outcome, Phase, Record
from frontier.planning.plan import make_trial
from frontier.run import Run
from frontier.store.run_dir import RunDirectory

ROUNDING = 2e-6
"""Seconds: times are kept to the microsecond."""
SLACK = 1.0
"""Seconds within which a window opens and closes after its rules say so."""


def broken_rules(run: Run) -> Iterator[str]:
    """What cannot be true of a run that was measured, in one sentence each."""
    directory = RunDirectory.read(run.path)
    done = {line["trial"]: line for line in directory.journal_lines() if line["event"] == "trial_done"}
    evidences = directory.evidences()
    assert evidences
    for key, evidence in evidences.items():
        measurement, records = evidence.measurement, list(directory.records(key, evidence))
        of_the_load = _of_the_arrivals if measurement.trial.load.is_open else _of_the_streams
        broken = [
            *_of_the_trial(run.config, measurement),
            *(problem for record in records for problem in _of_the_request(record)),
            *_of_the_sums(measurement, done[key], records),
            *_of_the_window(measurement, records),
            *of_the_load(run.config, measurement, records),
        ]
        yield from (f"trial {key}: {problem}" for problem in broken)


def _of_the_trial(config: Config, measurement: Measurement) -> Iterator[str]:
    trial = measurement.trial
    (deployment,) = (d for d in config.deployments if d.name == trial.deployment)
    warmup = trial.warmup if trial.load.is_open else 0.0
    setting = trial.load, trial.phase, trial.repeat
    if trial != make_trial(config, deployment, trial.shape, *setting, trial.requests, trial.seconds, warmup):
        yield "it was not planned by this config"


def _of_the_sums(measurement: Measurement, done: Mapping[str, Any], records: Sequence[Record]) -> Iterator[str]:
    if done["sent"] != len(records):
        yield "the journal has another number of requests"
    if done["tokens"] != sum(record.completion_tokens or 0 for record in records):
        yield "the journal has another number of tokens"
    if measurement.health.resent != sum(record.resent for record in records):
        yield "the client counted other requests that were sent again"


def _of_the_request(r: Record) -> Iterator[str]:
    times = [time for time in (r.sent, r.first, r.last, r.end) if time is not None]
    if any(later < earlier - ROUNDING for earlier, later in pairwise(times)):
        yield "a request ends before it begins"
    if (r.first is None) != (r.last is None):
        yield "an answer has a first token and no last one"
    if r.gaps and r.first is not None and r.last is not None:
        if len(r.gaps) != r.events - 1:
            yield "the gaps of an answer are not one fewer than its chunks"
        if abs(sum(r.gaps) * 1e-6 - (r.last - r.first)) > ROUNDING + 0.5e-6 * len(r.gaps):
            yield "the gaps of an answer do not add up to the time from its first token to its last"
    if r.outcome is Outcome.OK and (r.first is None or r.error is not None):
        yield "an answer is a success and a failure"


def _of_the_arrivals(config: Config, measurement: Measurement, records: Sequence[Record]) -> Iterator[str]:
    """Open loop: requests are due when the seed of their trial says, and none that was due in the
    window is missing. The times of a trace are in the config's shape alone.
    """
    trial = measurement.trial
    (shape,) = (shape for shape in config.shapes if shape == trial.shape)
    assert shape.arrivals is not None
    assert trial.load.per_second is not None
    due = np.fromiter(shape.arrivals.times(trial.load.per_second, trial.seed), float, len(records) + trial.streams)
    scheduled = {record.index: record.scheduled for record in records}
    if len(scheduled) < len(records):
        yield "two requests have one number"
    if any(time is None or abs(time - due[index]) > ROUNDING for index, time in scheduled.items()):
        yield "requests were not due when the trial's seed says"
    if {i for i, time in enumerate(due) if time < measurement.window.end - ROUNDING} - scheduled.keys():
        yield "requests that were due before its window ended are missing"
    if any(record.scheduled is None or record.sent < record.scheduled - ROUNDING for record in records):
        yield "requests were sent before they were due"


def _of_the_streams(_: Config, measurement: Measurement, records: Sequence[Record]) -> Iterator[str]:
    """Closed loop: a stream has one request at a time, and every request has its number."""
    trial, numbers = measurement.trial, {record.index for record in records}
    if len(numbers) < len(records):
        yield "two requests have one number"
    if max(numbers) + 1 - len(numbers) > trial.load and not measurement.workers:
        yield "requests are missing from its records"
    if not {record.stream for record in records} <= set(range(trial.load)):
        yield "a request is of a stream that it does not have"
    by_stream = sorted(records, key=lambda record: (record.stream, record.sent))
    if any(a.stream == b.stream and b.sent < a.end - ROUNDING for a, b in pairwise(by_stream)):
        yield "requests were sent before their stream had its last answer"


def _of_the_window(measurement: Measurement, records: Sequence[Record]) -> Iterator[str]:
    """It opens when the streams are warm and closes when enough is sent, or time is over."""
    trial, window = measurement.trial, measurement.window

    def sent_by(time: float) -> int:
        return sum(window.start <= record.sent <= time for record in records if record.stream >= 0)

    if measurement.ended == "requests" and sent_by(window.end) < trial.requests:
        yield "its window ended before enough was sent"
    late = window.end - SLACK
    if sent_by(late) >= trial.requests and late - window.start >= trial.min_time:
        yield "its window goes on after enough was sent"
    if measurement.ended == "time":
        closes = min(trial.max_time, window.start + (trial.seconds or np.inf))
        if window.end < closes - SLACK or (sent_by(closes) and window.end > closes + SLACK):
            yield "its window did not end when its time was over"
    if not measurement.workers and not _opens_warm(measurement, records):
        yield "its window did not open when its streams were warm"


def _opens_warm(measurement: Measurement, records: Sequence[Record]) -> bool:
    trial, start = measurement.trial, measurement.window.start
    ended = sorted(record.end for record in records)
    first: dict[int, float] = {}
    for record in sorted(records, key=lambda record: record.end):
        first.setdefault(record.stream, record.end)
    warm = max(trial.warmup, max(first.values()) if len(first) == trial.load else np.inf)
    if trial.phase is not Phase.SCAN:
        warm = max(warm, ended[2 * trial.load - 1] if len(ended) >= 2 * trial.load else np.inf)
    if trial.load.is_open:  # it waits for a success alone, and for two latencies
        warm = max(trial.warmup, min((r.end for r in records if r.outcome is Outcome.OK), default=np.inf))
    before = [r.end - (r.sent if r.scheduled is None else r.scheduled) for r in records if r.end <= start]
    half, latest = WARMUP_SHARE * trial.max_time, max(warm, 2 * max(before, default=0.0))
    events = (time for record in records for time in (record.sent, record.end))
    heard = min((time for time in events if time >= min(half, latest)), default=np.inf)  # virtual time goes by events
    return min(half, warm) - SLACK <= start <= heard + SLACK
