"""Imported requests with their times: the window in which the load was held, as a trial.

The requests that count are those sent in the window. It begins when every stream has finished its
first request. It ends so early that each of its requests ended while the load was still held: a
drain would make the last ones too fast.
"""

import dataclasses
import hashlib
import json
from collections.abc import Sequence

import numpy as np

from frontier.core.model.loads import Arrivals, Concurrency, Load, Rate
from frontier.core.model.shapes import MAX_TOKENS, Shape
from frontier.core.model.trials import Measurement, Phase, Record, Trial, Window
from frontier.core.window.window import Floats, Ints
from frontier.extras.exchange.results import LONGEST, NO_LENGTHS, Result, mean_lengths, rate_flags
from frontier.store.documents import INCOMPLETE, ForeignFileError

HELD = 0.95
"""The load is held while at least this share of the concurrency is in flight."""
MOST_CONCURRENCY = 1_000_000
"""Most requests in flight that a file may state."""
EVEN = 0.5
"""The coefficient of variation of gaps below which arrivals are even, whatever the file calls them;
that of a Poisson process is 1."""
OFF = 0.02
"""The share, or one token, by which observed lengths may differ from the ones asked for before they
replace them."""


# --- the window


def concurrency_of(records: Sequence[Record]) -> tuple[int, bool]:
    """The requests in flight: the level held longest, and whether it was held; otherwise their mean
    over time.
    """
    _, levels, seconds = _levels(records)
    if not len(seconds) or seconds.sum() <= 0:
        return max(1, len(records)), False
    at_level = np.bincount(levels, weights=seconds)
    longest = int(at_level.argmax())
    if longest and at_level[longest] >= 0.5 * float(seconds.sum()):
        return longest, True
    return max(1, round(float((levels * seconds).sum() / seconds.sum()))), False


def window_of(records: Sequence[Record], load: Load) -> Window | None:
    """The part of a run that counts; None without one, as in a run of few waves. At a rate, the
    load is held until the last send, and the first wave are those sent before the first answer.
    """
    open_loop = load.is_open
    if len(records) <= (1 if open_loop else load):
        return None
    sends, ends = np.array([r.sent for r in records]), np.array([r.end for r in records])
    order = np.argsort(sends, kind="stable")
    wave = int((sends <= ends.min()).sum()) if open_loop else load
    start = float(ends[order[:wave]].max())
    times, levels, seconds = _levels(records)
    high = np.flatnonzero((levels >= HELD * load) & (seconds > 0))
    held_until = float(times[high[-1]] + seconds[high[-1]]) if len(high) else -np.inf
    held_until = float(sends.max()) if open_loop else held_until
    # The latest send such that it and all before it had ended while the load was held.
    done = np.maximum.accumulate(ends[order])
    fit = sends[order][(done <= held_until) & (sends[order] >= start)]
    return Window(start, float(fit[-1])) if len(fit) and fit[-1] > start else None


def _levels(records: Sequence[Record]) -> tuple[Floats, Ints, Floats]:
    """Requests in flight as a step function: times, the level from each time on, and how long the
    level lasts.
    """
    steps = sorted([(r.sent, 1) for r in records] + [(r.end, -1) for r in records])
    times = np.array([t for t, _ in steps], dtype=np.float64)
    levels = np.cumsum([s for _, s in steps], dtype=np.int64)
    return times[:-1], levels[:-1], np.diff(times)


# --- trial or aggregate


def settled(file: str, result: Result) -> Result:
    """The result with its concurrency and the observed lengths. It keeps its requests where they
    have a window; otherwise its figures are the file's. ForeignFileError where a concurrency, a
    time or a token count is impossible, UnsteadyError where it has neither such requests nor
    figures.
    """
    _check_records(file, result)
    result, held = _observed(result), True
    if result.records and not result.concurrency:
        concurrency, held = concurrency_of(result.records)
        how = "the level that was held longest" if held else "the mean in flight"
        notes = (*result.notes, f"the concurrency is {how}, by the times of the requests")
        result = dataclasses.replace(result, concurrency=concurrency, notes=notes)
    if result.records and result.rate is not None:
        result, held = _at_its_rate(result, result.rate)
    if not 1 <= result.concurrency <= MOST_CONCURRENCY:
        raise result.error(file, f"a concurrency of {result.concurrency:,} is impossible", INCOMPLETE)
    load = Concurrency(result.concurrency) if result.rate is None else Rate.of(result.rate)
    if result.records and not (held and window_of(result.records, load)):
        if not result.figures:
            what = f"{result.place}: no part of its requests is under a steady load".removeprefix(": ")
            raise UnsteadyError(file, what, "import the tool's summary of the run")
        note = "its requests were not analysed: no part of them is under a steady load"
        result = dataclasses.replace(result, records=(), notes=(*result.notes, note))
    return result


class UnsteadyError(ForeignFileError):
    """Requests without a load that was held, and without a summary."""


def _at_its_rate(result: Result, rate: float) -> tuple[Result, bool]:
    """The result with its arrivals as they came and the flag of a rate that was not sent, and
    whether it was sent.
    """
    sends = sorted(r.sent for r in result.records)
    seconds = sends[-1] - sends[0]
    gaps = np.diff(sends)
    if len(gaps) and gaps.std() < EVEN * gaps.mean():
        result = dataclasses.replace(result, arrivals=Arrivals(0.0))
    flags = tuple(rate_flags(rate, (len(sends) - 1) / seconds if seconds else None, len(sends)))
    kept = tuple(flag for flag in result.flags if flag.name != "under_rate")
    return dataclasses.replace(result, flags=(*kept, *flags)), not flags


def _check_records(file: str, result: Result) -> None:
    """Check that every request was sent, answered and ended in this order, in finite time, with
    possible token counts.
    """
    for number, r in enumerate(result.records, 1):
        first = r.sent if r.first is None else r.first
        last = first if r.last is None else r.last
        due = r.sent if r.scheduled is None else r.scheduled
        in_order = -LONGEST <= due <= r.sent and 0 <= r.sent <= first <= last <= LONGEST and r.sent <= r.end <= LONGEST
        gaps = min(r.gaps, default=0) >= 0 and sum(r.gaps) <= LONGEST * 1e6
        tokens = all(0 <= n <= MAX_TOKENS for n in (r.prompt_tokens, r.completion_tokens) if n is not None)
        if not (in_order and gaps and tokens):
            what = "tokens" if in_order and gaps else "times"
            raise result.error(file, f"request {number} has impossible {what}", INCOMPLETE)


def _observed(result: Result) -> Result:
    """The result with the observed lengths, and without the ones asked for where they differ. The
    mean input of an aggregate is not compared: each tool counts it by a tokenizer of its own.
    """
    means = mean_lengths(result.records) if result.records else result.came
    isl, osl = result.asked
    if not isl or not osl:
        return dataclasses.replace(result, asked=NO_LENGTHS, came=(means[0] or isl, means[1] or osl))
    came = (means[0] or isl if result.records else isl, means[1] or osl)
    if abs(came[0] - isl) <= max(1.0, OFF * isl) and abs(came[1] - osl) <= max(1.0, OFF * osl):
        return result
    note = f"{isl:g}/{osl:g} tokens were asked for, {came[0]:.4g}/{came[1]:.4g} came"
    return dataclasses.replace(result, asked=NO_LENGTHS, came=came, notes=(*result.notes, note))


def trial_of(
    deployment: str, shape: Shape, load: Load, repeat: int, result: Result
) -> tuple[Measurement, Sequence[Record]]:
    """A result with requests as a trial."""
    window = window_of(result.records, load)
    assert window is not None
    isl, osl = (round(shape.isl.mean), round(shape.osl.mean)) if all(result.asked) else (0, 0)
    due = result.rate is not None
    records = [
        dataclasses.replace(r, asked_isl=isl, asked_osl=osl, scheduled=r.scheduled if due else None)
        for r in result.records
    ]
    facts = [dataclasses.asdict(shape), load, [r.sent for r in records[:1000]]]
    fingerprint = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    trial = Trial(
        deployment,
        shape,
        load,
        repeat,
        Phase.GRID,
        len(records),
        0,
        window.start,
        0.0,
        window.end,
        fingerprint,
    )
    return Measurement(trial, result.epoch, window, "requests"), records
