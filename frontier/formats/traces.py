"""A window in requests somebody else sent: where the load was what it should be, ramp and drain outside.

The requests that count are those sent in the window. It begins when every stream has finished its first request, and
ends so early that each of them ended while the load was still held: a drain would make the last ones too fast.

Requests somebody else sent: a trial with its window where there is one, else the aggregate they amount to.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from frontier.formats.figures import LONGEST
from frontier.formats.found import IDENTITY, Result, Trace, wrong
from frontier.metrics import metric
from frontier.model import MAX_TOKENS, Measurement, Outcome, Phase, Record, Shape, Trial, Window

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


HELD = 0.95
"""The load is held while at least this share of the concurrency is in flight."""


def concurrency_of(records: Sequence[Record]) -> tuple[int, bool]:
    """How many were in flight: the level held longest, and whether it was held (else their mean over time)."""
    _, levels, seconds = _levels(records)
    if not len(seconds) or seconds.sum() <= 0:
        return max(1, len(records)), False
    at = np.bincount(levels, weights=seconds)
    most = int(at.argmax())
    if most and at[most] >= 0.5 * float(seconds.sum()):
        return most, True
    return max(1, round(float((levels * seconds).sum() / seconds.sum()))), False


def window_of(records: Sequence[Record], concurrency: int) -> Window | None:
    """The part of a closed loop that counts; None when there is none, as in a run of few waves."""
    if len(records) <= concurrency:
        return None
    sends, ends = np.array([r.sent for r in records]), np.array([r.end for r in records])
    order = np.argsort(sends, kind="stable")
    start = float(ends[order[:concurrency]].max())
    held = _held_until(records, concurrency)
    # The latest send such that it and all before it had ended while the load was held.
    done = np.maximum.accumulate(ends[order])
    fit = sends[order][(done <= held) & (sends[order] >= start)]
    return Window(start, float(fit[-1])) if len(fit) and fit[-1] > start else None


def _levels(records: Sequence[Record]) -> tuple[Floats, Ints, Floats]:
    """Requests in flight as a step function: times, the level from each on, and how long it lasts."""
    steps = sorted([(r.sent, 1) for r in records] + [(r.end, -1) for r in records])
    times = np.array([t for t, _ in steps], dtype=np.float64)
    levels = np.cumsum([s for _, s in steps], dtype=np.int64)
    return times[:-1], levels[:-1], np.diff(times)


def _held_until(records: Sequence[Record], concurrency: int) -> float:
    """When the load was last as high as it should be."""
    times, levels, seconds = _levels(records)
    high = np.flatnonzero((levels >= HELD * concurrency) & (seconds > 0))
    return float(times[high[-1]] + seconds[high[-1]]) if len(high) else -np.inf


MOST_CONCURRENCY = 1_000_000
OFF = 0.02
"""Lengths may be this share off, or one token, before what came counts instead of what was asked for."""


def settled(file: str, what: Result | Trace) -> Result | Trace:
    """A trace whose window can be found stays one; any other becomes the aggregate it amounts to.

    ForeignFileError where a concurrency, a time or a token count cannot be.
    """
    if isinstance(what, Trace):
        _check_records(file, what)
        if said := differences(what.figures, what):
            raise wrong(file, what, said, "see whether the summary is of these requests")
    what = _observed(what)
    if isinstance(what, Result):
        _check_concurrency(file, what, what.concurrency)
        return what
    held, closed = (what.concurrency, what.rate is None) if what.concurrency else concurrency_of(what.records)
    _check_concurrency(file, what, held)
    what = dataclasses.replace(what, concurrency=held)
    if closed and window_of(what.records, held) is not None:
        return what
    why = "it is too short to have a steady part" if closed else "it is an open loop"
    return summed(what, f"the requests were summed up, not analysed: {why}")


def differences(figures: Mapping[str, float], trace: Trace) -> str:
    """Where a summary says something else of TTFT and E2E than the requests themselves; empty where it does not.

    Means may differ by IDENTITY. Every way to interpolate a percentile lies between the requests around it.
    """
    ok = [r for r in trace.records if r.outcome is Outcome.OK and r.first is not None and r.last is not None]
    said = []
    for quantity, end in (("ttft", "first"), ("e2e", "last")):
        values = sorted(getattr(r, end) - r.sent for r in ok)
        for name, told in figures.items():
            of = metric(name)
            if of.quantity != quantity or not values:
                continue
            mean = float(np.mean(values))
            low, high = (mean, mean) if of.p is None else _around(values, of.p)
            if not low * (1 - IDENTITY) <= told <= high * (1 + IDENTITY):
                said.append(f"{of.label} is {of.format(told)} in the summary, {of.format(low)} over its requests")
    return "; ".join(said[:2])


def _around(ordered: Sequence[float], p: float) -> tuple[float, float]:
    """The values two ranks below and above a percentile."""
    rank = p * len(ordered)
    return ordered[max(0, math.floor(rank) - 2)], ordered[min(len(ordered) - 1, math.ceil(rank) + 1)]


def _check_concurrency(file: str, what: Result | Trace, concurrency: int) -> None:
    if not 1 <= concurrency <= MOST_CONCURRENCY:
        raise wrong(file, what, f"a concurrency of {concurrency:,} cannot be", "see whether the file is whole")


def _check_records(file: str, trace: Trace) -> None:
    """Every request was sent, answered and ended in this order, in finite time, with tokens there can be."""
    for number, r in enumerate(trace.records, 1):
        first = r.sent if r.first is None else r.first
        last = first if r.last is None else r.last
        in_order = 0 <= r.sent <= first <= last <= LONGEST and r.sent <= r.end <= LONGEST
        gaps = all(gap >= 0 for gap in r.gaps) and sum(r.gaps) <= LONGEST * 1e6
        tokens = all(0 <= n <= MAX_TOKENS for n in (r.prompt_tokens, r.completion_tokens) if n is not None)
        if not (in_order and gaps and tokens):
            what = "tokens" if in_order and gaps else "times"
            raise wrong(file, trace, f"request {number} has {what} that cannot be", "see whether the file is whole")


def _observed(what: Result | Trace) -> Result | Trace:
    """Lengths asked for that were not what came give way to what came: a shape says what was measured."""
    if not what.stated or not what.isl or not what.osl:
        return what
    isl, osl = (None, what.tokens) if isinstance(what, Result) else _mean_lengths(what.records)
    came = (isl or what.isl, osl or what.osl)
    if all(abs(a - b) <= max(1.0, OFF * b) for a, b in zip(came, (what.isl, what.osl), strict=True)):
        return what
    said = f"{what.isl:g}/{what.osl:g} tokens were asked for, {came[0]:.4g}/{came[1]:.4g} came"
    return dataclasses.replace(what, isl=came[0], osl=came[1], stated=False, notes=(*what.notes, said))


def _mean_lengths(records: Sequence[Record]) -> tuple[float | None, float | None]:
    """Mean input and output tokens of the successes, as far as they were counted."""
    ok = [r for r in records if r.outcome is Outcome.OK]
    sides = ([r.prompt_tokens for r in ok if r.prompt_tokens], [r.completion_tokens for r in ok if r.completion_tokens])
    isl, osl = (float(np.mean(side)) if side else None for side in sides)
    return isl, osl


def summed(trace: Trace, note: str) -> Result:
    """The whole trace as an aggregate: percentiles are observed values, of the successes, over the whole run."""
    ok = [r for r in trace.records if r.outcome is Outcome.OK and r.first is not None and r.last is not None]
    failed = sum(r.outcome not in (Outcome.OK, Outcome.CANCELLED) for r in trace.records)
    values: dict[str, list[float]] = {"ttft": [], "tpot": [], "e2e": []}
    for r in ok:
        assert r.first is not None
        assert r.last is not None
        values["ttft"].append(r.first - r.sent)
        values["e2e"].append(r.last - r.sent)
        if r.completion_tokens and r.completion_tokens > 1:
            values["tpot"].append((r.last - r.first) / (r.completion_tokens - 1))
    figures: dict[str, float] = {}
    for quantity, each in values.items():
        if each:
            figures[f"mean_{quantity}"] = float(np.mean(each))
            for p in (50, 90, 95, 99):
                figures[f"p{p}_{quantity}"] = float(np.percentile(each, p, method="inverted_cdf"))
    seconds = max((r.end for r in trace.records), default=0.0) - min((r.sent for r in trace.records), default=0.0)
    if seconds > 0:
        output, prompt = (
            float(sum(getattr(r, f"{side}_tokens") or 0 for r in ok)) for side in ("completion", "prompt")
        )
        figures["request_throughput"] = len(ok) / seconds
        figures["output_throughput"] = output / seconds
        if all(r.prompt_tokens for r in ok):
            figures |= {"input_throughput": prompt / seconds, "total_throughput": (output + prompt) / seconds}
    return Result(
        trace.concurrency, figures, len(ok), failed, trace.isl, trace.osl, trace.stated, facts=trace.facts,
        model=trace.model, gpus=trace.gpus, rate=trace.rate, notes=(*trace.notes, note),
        place=trace.place,
    )  # fmt: skip


def trials(traces: Iterable[tuple[str, Shape, Trace]]) -> Iterable[tuple[Measurement, Sequence[Record]]]:
    """Each trace of a deployment and shape as a trial, the repeats of a setting numbered."""
    seen: dict[tuple[str, Shape, int], int] = {}
    for deployment, shape, trace in traces:
        window = window_of(trace.records, trace.concurrency)
        assert window is not None
        key = (deployment, shape, trace.concurrency)
        seen[key] = seen.get(key, 0) + 1
        asked = (round(shape.isl.mean), round(shape.osl.mean)) if trace.stated else (0, 0)
        records = [dataclasses.replace(r, asked_isl=asked[0], asked_osl=asked[1]) for r in trace.records]
        trial = Trial(
            deployment, shape, trace.concurrency, seen[key], Phase.GRID, len(records), 0, window.start, 0.0,
            window.end, _digest([dataclasses.asdict(shape), trace.concurrency, [r.sent for r in records[:1000]]]),
        )  # fmt: skip
        yield Measurement(trial, trace.epoch, window, "requests"), records


def _digest(tree: object) -> str:
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]
