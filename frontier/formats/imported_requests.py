"""Imported requests with their times: the window in which the load was held, as a trial; else their
aggregate.

The requests that count are those sent in the window. It begins when every stream has finished its
first request, and ends so early that each of them ended while the load was still held: a drain
would make the last ones too fast.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from frontier.formats.documents import INCOMPLETE
from frontier.formats.results import Result, mean_lengths, successes
from frontier.formats.statements import IDENTITY, LONGEST
from frontier.metrics import metric
from frontier.model import MAX_TOKENS, Measurement, Outcome, Phase, Record, Shape, Trial, Window
from frontier.stats.from_records import summary
from frontier.stats.window import Floats, Ints

HELD = 0.95
"""The load is held while at least this share of the concurrency is in flight."""
MOST_CONCURRENCY = 1_000_000
OFF = 0.02
"""Lengths may be this share off, or one token, before what came counts instead of what was asked
for."""


# --- the window


def concurrency_of(records: Sequence[Record]) -> tuple[int, bool]:
    """How many were in flight: the level held longest, and whether it was held (else their mean
    over time).
    """
    _, levels, seconds = _levels(records)
    if not len(seconds) or seconds.sum() <= 0:
        return max(1, len(records)), False
    at_level = np.bincount(levels, weights=seconds)
    longest = int(at_level.argmax())
    if longest and at_level[longest] >= 0.5 * float(seconds.sum()):
        return longest, True
    return max(1, round(float((levels * seconds).sum() / seconds.sum()))), False


def window_of(records: Sequence[Record], concurrency: int) -> Window | None:
    """The part of a closed loop that counts; None when there is none, as in a run of few waves."""
    if len(records) <= concurrency:
        return None
    sends, ends = np.array([r.sent for r in records]), np.array([r.end for r in records])
    order = np.argsort(sends, kind="stable")
    start = float(ends[order[:concurrency]].max())
    times, levels, seconds = _levels(records)
    high = np.flatnonzero((levels >= HELD * concurrency) & (seconds > 0))
    held_until = float(times[high[-1]] + seconds[high[-1]]) if len(high) else -np.inf
    # The latest send such that it and all before it had ended while the load was held.
    done = np.maximum.accumulate(ends[order])
    fit = sends[order][(done <= held_until) & (sends[order] >= start)]
    return Window(start, float(fit[-1])) if len(fit) and fit[-1] > start else None


def _levels(records: Sequence[Record]) -> tuple[Floats, Ints, Floats]:
    """Requests in flight as a step function: times, the level from each on, and how long it
    lasts.
    """
    steps = sorted([(r.sent, 1) for r in records] + [(r.end, -1) for r in records])
    times = np.array([t for t, _ in steps], dtype=np.float64)
    levels = np.cumsum([s for _, s in steps], dtype=np.int64)
    return times[:-1], levels[:-1], np.diff(times)


# --- trial or aggregate


def settled(file: str, result: Result) -> Result:
    """The result with its concurrency and the lengths that came. It keeps its requests where they
    have a window.

    ForeignFileError where a concurrency, a time or a token count is impossible, or the summary is
    not of the requests.
    """
    if result.records:
        _check_records(file, result)
        if different := differences(result.figures, result.records):
            raise result.error(file, different, "check that the summary is of these requests")
    result, closed = _observed(result), result.rate is None
    if result.records and not result.concurrency:
        concurrency, closed = concurrency_of(result.records)
        result = dataclasses.replace(result, concurrency=concurrency)
    if not 1 <= result.concurrency <= MOST_CONCURRENCY:
        raise result.error(file, f"a concurrency of {result.concurrency:,} is impossible", INCOMPLETE)
    if not result.records or (closed and window_of(result.records, result.concurrency) is not None):
        return result
    why = "it is too short to have a steady part" if closed else "it is an open loop"
    return summed(result, f"the requests were summed up, not analysed: {why}")


def _check_records(file: str, result: Result) -> None:
    """Every request was sent, answered and ended in this order, in finite time, with possible token
    counts.
    """
    for number, r in enumerate(result.records, 1):
        first = r.sent if r.first is None else r.first
        last = first if r.last is None else r.last
        in_order = 0 <= r.sent <= first <= last <= LONGEST and r.sent <= r.end <= LONGEST
        gaps = all(gap >= 0 for gap in r.gaps) and sum(r.gaps) <= LONGEST * 1e6
        tokens = all(0 <= n <= MAX_TOKENS for n in (r.prompt_tokens, r.completion_tokens) if n is not None)
        if not (in_order and gaps and tokens):
            what = "tokens" if in_order and gaps else "times"
            raise result.error(file, f"request {number} has impossible {what}", INCOMPLETE)


def _observed(result: Result) -> Result:
    """The result with the lengths that came, where they are not those asked for."""
    if not result.stated or not result.isl or not result.osl:
        return result
    isl, osl = mean_lengths(result.records) if result.records else (None, result.tokens)
    came = (isl or result.isl, osl or result.osl)
    if all(abs(a - b) <= max(1.0, OFF * b) for a, b in zip(came, (result.isl, result.osl), strict=True)):
        return result
    note = f"{result.isl:g}/{result.osl:g} tokens were asked for, {came[0]:.4g}/{came[1]:.4g} came"
    return dataclasses.replace(result, isl=came[0], osl=came[1], stated=False, notes=(*result.notes, note))


def differences(figures: Mapping[str, float], records: Sequence[Record]) -> str:
    """Where a summary contradicts the TTFT and E2E of the requests themselves; empty where it does
    not.

    Means may differ by IDENTITY. Every way to interpolate a percentile lies between the requests
    around it.
    """
    seconds = {quantity: sorted(values) for quantity, values in _latencies(records).items() if quantity != "tpot"}
    different = []
    for name, stated in figures.items():
        of = metric(name)
        values = seconds.get(of.quantity or "", [])
        if not values:
            continue
        mean = float(np.mean(values))
        low, high = (mean, mean) if of.p is None else _around(values, of.p)
        if not low * (1 - IDENTITY) <= stated <= high * (1 + IDENTITY):
            different.append(f"{of.label} is {of.format(stated)} in the summary, {of.format(low)} over its requests")
    return "; ".join(different[:2])


def _around(ordered: Sequence[float], p: float) -> tuple[float, float]:
    """The values two ranks below and above a percentile."""
    rank = p * len(ordered)
    return ordered[max(0, math.floor(rank) - 2)], ordered[min(len(ordered) - 1, math.ceil(rank) + 1)]


def _latencies(records: Sequence[Record]) -> dict[str, list[float]]:
    """TTFT, TPOT and E2E of the successes."""
    values: dict[str, list[float]] = {"ttft": [], "tpot": [], "e2e": []}
    for r in successes(records):
        if r.first is None or r.last is None:
            continue
        values["ttft"].append(r.first - r.sent)
        values["e2e"].append(r.last - r.sent)
        if r.completion_tokens and r.completion_tokens > 1:
            values["tpot"].append((r.last - r.first) / (r.completion_tokens - 1))
    return values


def summed(result: Result, note: str) -> Result:
    """Its requests as an aggregate: percentiles are observed values, of the successes, over the
    whole run.
    """
    records = result.records
    ok = [r for r in successes(records) if r.first is not None and r.last is not None]
    failed = sum(r.outcome not in (Outcome.OK, Outcome.CANCELLED) for r in records)
    figures = summary({name: np.array(values) for name, values in _latencies(records).items()}, "inverted_cdf")
    seconds = max(r.end for r in records) - min(r.sent for r in records)
    if seconds > 0:
        output, prompt = (float(sum(getattr(r, f"{s}_tokens") or 0 for r in ok)) for s in ("completion", "prompt"))
        figures["request_throughput"] = len(ok) / seconds
        figures["output_throughput"] = output / seconds
        if all(r.prompt_tokens for r in ok):
            figures |= {"input_throughput": prompt / seconds, "total_throughput": (output + prompt) / seconds}
    return dataclasses.replace(
        result,
        figures=figures,
        ok=len(ok),
        failed=failed,
        tokens=None,
        flags=(),
        notes=(*result.notes, note),
        records=(),
        epoch=0.0,
    )


def trials(traces: Iterable[tuple[str, Shape, Result]]) -> Iterator[tuple[Measurement, Sequence[Record]]]:
    """Each result with requests, of a deployment and shape, as a trial; the repeats of a setting
    are numbered.
    """
    repeats: dict[tuple[str, Shape, int], int] = {}
    for deployment, shape, result in traces:
        window = window_of(result.records, result.concurrency)
        assert window is not None
        setting = (deployment, shape, result.concurrency)
        repeats[setting] = repeats.get(setting, 0) + 1
        isl, osl = (round(shape.isl.mean), round(shape.osl.mean)) if result.stated else (0, 0)
        records = [dataclasses.replace(r, asked_isl=isl, asked_osl=osl) for r in result.records]
        facts = [dataclasses.asdict(shape), result.concurrency, [r.sent for r in records[:1000]]]
        fingerprint = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
        trial = Trial(
            deployment,
            shape,
            result.concurrency,
            repeats[setting],
            Phase.GRID,
            len(records),
            0,
            window.start,
            0.0,
            window.end,
            fingerprint,
        )
        yield Measurement(trial, result.epoch, window, "requests"), records
