"""Contradictions in a run: where its records, their sums, its journal and its config say different
things.

Hashes show that a file was changed after they were made, but they can be made again with the
change. Much of a run is there twice, though: gaps add up to the time from the first token to the
last, a stream sends after its last answer, the window opens and closes by rules, seeds and lengths
follow from the config, the journal has sums. An edit of one contradicts the other. Nothing here is
a measurement: a run without contradictions may still be invented.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from frontier.client.prompts import PromptPlan, prompt_seed
from frontier.client.window_rules import WARMUP_SHARE
from frontier.config import Config
from frontier.model import Measurement, Outcome, Phase, Record, Shape, Trial
from frontier.pacing import first_length
from frontier.plan import make_trial
from frontier.run import Run
from frontier.stats.window import Floats
from frontier.store.run_dir import RunDirectory

_ROUNDING = 2e-6
"""Seconds: times are kept to the microsecond."""
_SLACK = 1.0
"""Seconds within which a window opens and closes after its rules say so."""
_LAST_READ = 0.3
"""Seconds by which the server's metrics may be read before a window's end. They may be read later
than that."""
_TRIED = 3
"""Seeds that the prompts of a trial may have: each takes a text to be made."""

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Journal:
    """What a journal says of finished trials: by key the line with the sums of each, and the salt
    of its prompts' seed with the number of trials that the session had begun; and the servers of
    each deployment.
    """

    sums: Mapping[str, Line]
    salts: Mapping[str, tuple[int, int]]
    servers: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, lines: Iterable[Line]) -> "Journal":
        sums: dict[str, Line] = {}
        salts: dict[str, tuple[int, int]] = {}
        servers: dict[str, tuple[str, ...]] = {}
        salt, begun = None, 0
        for line in lines:
            event = line["event"]
            if event in ("created", "resumed", "session"):
                salt, begun = line.get("salt"), 0
            elif event == "trial_begun":
                begun += 1
                salts.pop(line["trial"], None)
                if salt is not None:
                    salts[line["trial"]] = salt, begun
            elif event == "trial_done" and "sent" in line:
                sums[line["trial"]] = line
            elif event == "server":
                servers[line["deployment"]] = (*servers.get(line["deployment"], ()), line["identity"])
        return cls(sums, salts, servers)


def contradictions(run: Run) -> Iterator[str]:
    """What cannot be true of a run that was measured, in one sentence each. Every record is
    read.
    """
    if run.is_imported:
        return
    if run.manifest.get("identity") != run.config.identity():
        yield "manifest.json is of another config than config.yaml"
    directory = RunDirectory.read(run.path)
    journal = Journal.of(directory.journal_lines())
    evidences = directory.evidences()
    numbers = [evidence.number for evidence in evidences.values() if evidence.number]
    if len(set(numbers)) < len(numbers):
        yield "two trials were finished as one number"
    for key, evidence in evidences.items():
        measurement = evidence.measurement
        problems = Counter[str](_of_the_trial(run.config, measurement, journal))
        requested = _lengths(run.config, measurement.trial, journal.salts.get(key))
        table, tokens, resent = array("d"), 0, 0
        for record in directory.records(key, evidence):
            problems.update(_of_the_request(record, requested))
            due = record.sent if record.scheduled is None else record.scheduled
            table.extend((record.index, record.stream, record.sent, record.end, due, record.outcome is Outcome.OK))
            tokens += record.completion_tokens or 0
            resent += record.resent
        columns = np.frombuffer(table).reshape(-1, 6).T if table else np.zeros((6, 0))
        is_open = measurement.trial.rate is not None
        problems.update((_of_the_arrivals if is_open else _of_the_streams)(run.config, measurement, columns))
        problems.update(_of_the_window(measurement, columns, timetable="merged_from" in run.manifest))
        problems.update(_of_the_sums(measurement, journal.sums.get(key, {}), columns.shape[1], tokens, resent))
        for problem, times in problems.items():
            yield f"trial {key}: {problem}" + (f" ({times:,} requests)" if times > 1 else "")


# --- the trial against the config and the journal


def _of_the_trial(config: Config, measurement: Measurement, journal: Journal) -> Iterator[str]:
    """Its plan follows from the config; its server is one that the journal names."""
    trial = measurement.trial
    deployment = next((d for d in config.deployments if d.name == trial.deployment), None)
    if deployment is None or trial.shape not in config.shapes:
        yield "the config has no such deployment or shape"
        return
    warmup = 0.0 if trial.rate is None else trial.warmup
    setting = trial.concurrency, trial.phase, trial.repeat
    planned = make_trial(config, deployment, trial.shape, *setting, trial.requests, trial.seconds, warmup)
    if trial.seed != planned.seed:
        yield "its seed is not that of its setting"
    if replace(trial, seed=planned.seed) != planned:
        yield "it was not planned by this config"
    servers, identity = journal.servers.get(trial.deployment), measurement.server_identity
    if servers and identity is not None and not any(f"{identity}, ".startswith(f"{name}, ") for name in servers):
        yield "its server is none that the journal names"


def _of_the_sums(measurement: Measurement, done: Line, requests: int, tokens: int, resent: int) -> Iterator[str]:
    """The journal's line of a finished trial has its sums, and the client counted what it sent
    twice.
    """
    for what, stated, counted in (("requests", done.get("sent"), requests), ("tokens", done.get("tokens"), tokens)):
        if stated is not None and stated != counted:
            yield f"the journal has {stated:,.0f} {what}, its records {counted:,}"
    if done.get("ended", measurement.ended) != measurement.ended:
        yield f"it ended by {measurement.ended}, and by {done['ended']} in the journal"
    if measurement.health.resent != resent:
        yield f"{measurement.health.resent:,} requests were sent again, and {resent:,} by its records"


# --- requests


def _of_the_request(record: Record, requested: Callable[[Record], bool]) -> Iterator[str]:
    """What its own figures say of one another."""
    r = record
    times = [time for time in (r.sent, r.first, r.last, r.end) if time is not None]
    if any(later < earlier - _ROUNDING for earlier, later in pairwise(times)):
        yield "a request ends before it begins"
    if r.first is not None and r.last is not None:
        shown = [time for time in (r.visible, r.first_text) if time is not None]
        if any(not r.first - _ROUNDING <= time <= r.last + _ROUNDING for time in shown):
            yield "text is visible before the first token or after the last"
        if r.gaps and len(r.gaps) != r.events - 1:
            yield "the gaps of an answer are not one fewer than its chunks"
        if r.gaps and abs(sum(r.gaps) * 1e-6 - (r.last - r.first)) > _ROUNDING + 0.5e-6 * len(r.gaps):
            yield "the gaps of an answer do not add up to the time from its first token to its last"
    elif r.first is not None or r.last is not None or r.gaps:
        yield "an answer has a first token and no last one"
    if r.outcome is Outcome.OK and (r.first is None or r.error is not None or (r.status or 200) // 100 != 2):
        yield "an answer is a success and a failure"
    counts = (r.index, r.events, r.reads, r.text_chars, r.prompt_tokens or 0, r.completion_tokens or 0)
    if min(counts) < 0 or not 0 <= (r.cached_tokens or 0) <= (r.prompt_tokens or 0) or r.text_chars > r.text_bytes:
        yield "a count of a request is impossible"
    if not requested(r):
        yield "a request asks for other lengths than its trial's prompts have"


def _lengths(config: Config, trial: Trial, salted: tuple[int, int] | None) -> Callable[[Record], bool]:
    """Whether a request asked for the lengths that the seeds give it, as far as the seed of its
    prompts is known.

    That is made of the session's salt and of how many trials the session had sent: as many as it
    had begun, or fewer.
    """
    shape, isl, osl = trial.shape, trial.shape.isl, trial.shape.osl
    if shape.has_sessions:  # its lengths follow from answers of which the texts are not kept
        return lambda _: True
    fixed = is_fixed(shape)
    salt, begun = (0, 0) if salted is None or fixed or config.prompts != "random" else salted
    attempts = range(begun, max(begun - _TRIED, 0), -1)
    sources = [PromptPlan(shape, prompt_seed(salt, trial.seed, attempt)).source() for attempt in attempts]

    def as_asked(record: Record, isl_drawn: int, osl_drawn: int) -> bool:
        first = (
            trial.rate is None
            and record.index < trial.concurrency
            and record.asked_osl == first_length(osl_drawn, trial.seed, record.index)
        )
        return record.asked_isl in (0, isl_drawn) and (record.asked_osl in (0, osl_drawn) or first)

    def requested(record: Record) -> bool:
        if fixed:
            return as_asked(record, isl.low, osl.low)
        if config.prompts == "random" and not (record.asked_isl == 0 or isl.low <= record.asked_isl <= isl.high):
            return False
        if not sources:
            return True
        agree = [
            source
            for source in sources
            if as_asked(record, (prompt := source(record.index)).isl, prompt.osl)
            and record.class_index == (None if prompt.turn is None else prompt.turn.class_index)
        ]
        sources[:] = agree or sources  # one seed made all of them
        return bool(agree)

    return requested


def is_fixed(shape: Shape) -> bool:
    """Whether all requests of a shape ask for the same lengths."""
    return shape.isl.kind == shape.osl.kind == "fixed" and not shape.mix


# --- streams and window


def _of_the_arrivals(config: Config, measurement: Measurement, table: Floats) -> Iterator[str]:
    """Open loop: requests are due when the seed of their trial says, and none that was due in time
    is missing.
    """
    trial, (index, _, sent, _, due, _) = measurement.trial, table
    shape = next((shape for shape in config.shapes if shape == trial.shape), None)
    if shape is None or shape.arrivals is None or trial.rate is None:
        return
    if len(np.unique(index)) < len(index):
        yield "two requests have one number"
    # No more are in flight than there are streams, so no number is higher.
    most = len(index) + trial.streams
    expected = np.fromiter(shape.arrivals.times(trial.rate, trial.seed), np.float64, most)
    numbered = index < most
    if off := int(
        (np.abs(due[numbered] - expected[index[numbered].astype(int)]) > _ROUNDING).sum() + (~numbered).sum()
    ):
        yield f"{off:,} requests were not due when the trial's seed says"
    in_time = int(np.searchsorted(expected, measurement.window.end - _ROUNDING))
    if missing := in_time - len(np.unique(index[index < in_time])):
        yield f"{missing:,} requests that were due before its window ended are missing from its records"
    if early := int((sent < due - _ROUNDING).sum()):
        yield f"{early:,} requests were sent before they were due"


def _of_the_streams(_: Config, measurement: Measurement, table: Floats) -> Iterator[str]:
    """Closed loop: a stream has one request at a time, and every request has its number."""
    trial, (index, stream, sent, end, *_rest) = measurement.trial, table
    if not len(index):
        return
    if len(np.unique(index)) < len(index):
        yield "two requests have one number"
    if index.max() + 1 - len(index) > trial.concurrency and not measurement.workers:
        yield "requests are missing from its records"
    if stream.min() < 0 or stream.max() >= trial.concurrency:
        yield "a request is of a stream that it does not have"
    order = np.lexsort((sent, stream))
    same = stream[order][1:] == stream[order][:-1]
    if overlaps := int((same & (sent[order][1:] < end[order][:-1] - _ROUNDING)).sum()):
        yield f"{overlaps:,} requests were sent before their stream had its last answer"


def _of_the_window(measurement: Measurement, table: Floats, *, timetable: bool) -> Iterator[str]:
    """It opens when the streams are warm and closes when enough is sent, or time is over
    (`client.window_rules`). Where a `timetable` opened and closed it, only what was sent in it is
    looked at.
    """
    trial, window, (_, stream, sent, end, due, ok) = measurement.trial, measurement.window, table[:, table[1] >= 0]

    def sent_by(time: float) -> int:
        return int(((sent >= window.start) & (sent <= time)).sum())

    if measurement.ended == "requests" and sent_by(window.end) < trial.requests:
        yield f"its window has {sent_by(window.end):,} requests and ended by {trial.requests:,}"
    if timetable:
        return
    read = measurement.server
    if window.end > read.get("observed_until", np.inf) + _LAST_READ:
        yield "its window ends after the server's metrics were read for the last time"
    if window.start > read.get("observed_from", np.inf) + _LAST_READ:
        yield "its window opens after the server's metrics were read for the first time"
    late = window.end - _SLACK
    if sent_by(late) >= trial.requests and late - window.start >= trial.min_time:
        yield "its window goes on after enough was sent"
    if measurement.ended == "time":
        closes = min(trial.max_time, window.start + (trial.seconds or np.inf))
        if window.end < closes - _SLACK or (sent_by(closes) and window.end > closes + _SLACK):
            yield "its window did not end when its time was over"
    if not measurement.workers and len(end):
        ended = np.sort(end)
        order = np.lexsort((end, stream))
        first = end[order][np.unique(stream[order], return_index=True)[1]]  # of each stream
        warm = max(trial.warmup, first.max() if len(first) == trial.concurrency else np.inf)
        if trial.phase is not Phase.SCAN:
            warm = max(warm, ended[2 * trial.concurrency - 1] if len(ended) >= 2 * trial.concurrency else np.inf)
        if trial.rate is not None:  # it waits for a success alone, and for two latencies
            warm = max(trial.warmup, end[ok > 0].min(initial=np.inf))
        before = (end - due)[end <= window.start]
        latest, half = max(warm, 2 * before.max(initial=0.0)), WARMUP_SHARE * trial.max_time
        if not min(half, warm) - _SLACK <= window.start <= min(half, latest) + _SLACK:
            yield "its window did not open when its streams were warm"
