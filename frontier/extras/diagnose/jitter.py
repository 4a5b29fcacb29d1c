"""Jitter: why some gaps between tokens are long, from the records of one trial.

An engine makes tokens in steps, and every request that decodes gets its token when a step ends. So
the arrivals of a trial fall into groups, one per step. A long gap is one of these:

- prefill: a step that read prompts of other requests. First tokens arrive at its end, and it was
  longer by as much as other prompts of that length take in this trial;
- stall: a step that took longer than that, or a long step without any prompt: all streams stood
  still;
- preemption: several steps, while other streams got tokens, where the engine's counter says that it
  preempts. The request's recomputation holds up the others likewise;
- client: a gap of all streams after which each got several tokens at once. The server had gone on,
  and the tokens were held up in the client or before it.

Any other gap is unexplained. Nothing here comes from an engine's own clocks.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from frontier.core.model.trials import Outcome, Record, Window
from frontier.core.model.units import format_seconds
from frontier.core.window.window import Bools, Floats, Ints

LONG = 2.0
"""Multiple of the median gap from which a gap is long: the pause shows against the pace of the
answer. The same factor tells hollow first tokens from a busy server's gaps
(`core.window.from_records`)."""
RAISED = 1.5
"""Multiple of the median gap from which a step before a first token may have read a part of its
prompt. It is half-way to a long gap, as the parts of one prompt lie on both sides of any limit."""
APART = 0.25
"""Least distance of arrivals of two steps, as a share of the median gap. Arrivals of one step leave
the server within a few milliseconds."""
BURST = 1.5
"""Mean number of tokens per stream at the end of a gap from which they came at once: a step brings
one."""
NARROW = 0.5
"""Longest time between the first and the last arrival of a step, as a share of the median gap.
Arrivals of streams without common steps lie so close that they chain into one long step."""
IN_STEP = 0.8
"""The share of ordinary gaps that must be one narrow step long. Below it streams do not share
steps, as behind two replicas, and no cause can be told."""
LEAST_LONG = 20
"""The number of long gaps from which causes are counted; fewer give no share within 10 points."""
_MICRO = 1e-6


class GapCause(StrEnum):
    """Why a gap is long."""

    PREFILL = "prefill"
    PREEMPTION = "preemption"
    STALL = "stall"
    CLIENT = "client"
    UNEXPLAINED = "unexplained"


_CAUSES = tuple(GapCause)
_CODE = {cause: code for code, cause in enumerate(_CAUSES)}


@dataclass(frozen=True, slots=True)
class Jitter:
    """The long gaps of a window.

    - `gaps`: the number of all gaps; `long`: of long ones; `moments`: at how many moments these
      fell.
    - `median`, `longest`: seconds.
    - `shares`: the share of each cause among the long gaps; `unknown`: why there are none.
    """

    gaps: int
    long: int
    moments: int
    median: float
    longest: float
    shares: Mapping[GapCause, float]
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class _Gaps:
    """Every gap of a trial between two chunks of a request.

    - `ends`, `lengths`: its end and its length in seconds.
    - `owner`: the request.
    - `lasts`: the steps that it lasts; `step`: the step that ends it.
    - `burst`: whether another token came with that step.
    """

    ends: Floats
    lengths: Floats
    owner: Ints
    lasts: Ints
    step: Ints
    burst: Bools


@dataclass(frozen=True, slots=True)
class _Steps:
    """The steps of a trial.

    - `ends`: when the arrivals of each step end; `lasted`: how long they came; `took`: the seconds
      since those of the step before began.
    - `tokens`: the tokens that it brought for each request in it.
    - `prompt`: the prompt tokens of the first tokens that came with it.
    - `again`: the tokens that a preempted request recomputed before it.
    - `since`: the earliest time at which these prompts were sent.
    """

    ends: Floats
    lasted: Floats
    took: Floats
    tokens: Floats
    prompt: Floats
    again: Floats
    since: Floats


def jitter_of(records: Iterable[Record], window: Window, preemptions: float | None) -> Jitter | None:
    """The causes of the long gaps that end in the window; None where no request has two chunks.
    `preemptions` is the engine's count in the window; None: it does not count them.
    """
    seen = [r for r in records if r.first is not None and r.gaps and r.outcome is not Outcome.CLIENT]
    lengths = np.concatenate([np.array(r.gaps, dtype=np.float64) for r in seen] or [np.zeros(0)]) * _MICRO
    if not len(lengths) or not (median := float(np.median(lengths))) > 0:
        return None
    gaps, steps = _in_steps(seen, lengths, APART * median)
    inside = (gaps.ends >= window.start) & (gaps.ends <= window.end)
    long = inside & (gaps.lengths > LONG * median)
    narrow = (steps.lasted <= NARROW * median)[gaps.step]
    count, ordinary = int(long.sum()), inside & ~long & ~(gaps.burst & narrow)
    moments = len(np.unique(gaps.step[long]))
    facts = (int(inside.sum()), count, moments, median, float(gaps.lengths[inside].max(initial=0.0)))
    if count < LEAST_LONG:
        what = f"{count:,} gaps are over {LONG:g} times the median of {format_seconds(median)}: too few to count causes"
        return Jitter(*facts, {}, what)
    if ordinary.any() and float((narrow & (gaps.lasts <= 1))[ordinary].mean()) < IN_STEP:
        return Jitter(
            *facts, {}, "tokens of different requests do not come in common steps, as behind several replicas"
        )
    causes = _causes(gaps, long, _with_recomputed(steps, gaps, long, seen, preemptions), median, preemptions)
    shares = np.bincount(causes, minlength=len(_CAUSES)) / count
    return Jitter(*facts, dict(zip(_CAUSES, shares.tolist(), strict=True)))


def _in_steps(seen: Sequence[Record], lengths: Floats, apart: float) -> tuple[_Gaps, _Steps]:
    """The gaps and the steps of a trial."""
    counts = np.array([len(r.gaps) for r in seen])
    firsts = np.array([r.first for r in seen], dtype=np.float64)
    owner = np.repeat(np.arange(len(seen)), counts)
    passed = lengths.cumsum()
    before = passed[counts.cumsum() - counts] - lengths[counts.cumsum() - counts]
    later = firsts[owner] + passed - before[owner]
    times, of = np.concatenate([firsts, later]), np.concatenate([np.arange(len(seen)), owner])
    order = np.argsort(times, kind="stable")
    number = np.empty(len(times), dtype=np.int64)
    number[order] = np.concatenate([[0], np.cumsum(np.diff(times[order]) > apart)])
    steps = int(number.max()) + 1
    begins, ends = np.full(steps, math.inf), np.full(steps, -math.inf)
    np.minimum.at(begins, number, times)
    np.maximum.at(ends, number, times)
    streams = np.bincount(np.unique(number * len(seen) + of) // len(seen), minlength=steps)
    at_first, at_later = number[: len(seen)], number[len(seen) :]
    came_from = np.concatenate([at_first, at_later])[_previous(counts, len(seen))]
    lasts = at_later - came_from
    next_one = np.append(lengths[1:], math.inf)
    next_one[counts.cumsum() - 1] = math.inf
    prompt, since = np.zeros(steps), np.full(steps, math.inf)
    np.add.at(prompt, at_first, [max(1, (r.prompt_tokens or r.asked_isl) - (r.cached_tokens or 0)) for r in seen])
    np.minimum.at(since, at_first, [r.sent for r in seen])
    gaps = _Gaps(later, lengths, owner, lasts, at_later, next_one < apart)
    took = np.diff(begins, prepend=-math.inf)
    return gaps, _Steps(ends, ends - begins, took, np.bincount(number) / streams, prompt, np.zeros(steps), since)


def _previous(counts: Ints, requests: int) -> Ints:
    """The index of the arrival before each gap; first tokens come before all later ones."""
    places = requests + np.arange(int(counts.sum())) - 1
    places[counts.cumsum() - counts] = np.arange(requests)
    return places


def _alone(gaps: _Gaps, long: Bools) -> Bools:
    """Long gaps during which other streams went on and no token was held up."""
    return long & (gaps.lasts > 1) & ~gaps.burst


def _with_recomputed(
    steps: _Steps, gaps: _Gaps, long: Bools, seen: Sequence[Record], preemptions: float | None
) -> _Steps:
    """The steps with the tokens that preempted requests recompute."""
    if preemptions:
        starts = gaps.ends - gaps.lengths
        for place in np.flatnonzero(_alone(gaps, long)).tolist():
            request, step = seen[gaps.owner[place]], gaps.step[place]
            made = place - int(np.searchsorted(gaps.owner, gaps.owner[place]))
            steps.again[step] += (request.prompt_tokens or request.asked_isl) + made
            steps.since[step] = min(steps.since[step], starts[place])
    return steps


def _causes(gaps: _Gaps, long: Bools, steps: _Steps, median: float, preemptions: float | None) -> Ints:
    """The code of the cause of each long gap."""
    causes = _step_causes(steps, median)[gaps.step[long]]
    alone = _alone(gaps, long)[long]
    causes[gaps.lasts[long] > 1] = _CODE[GapCause.UNEXPLAINED]
    counted = np.flatnonzero(alone)[: math.ceil(preemptions or 0.0)]
    causes[counted] = _CODE[GapCause.PREEMPTION]
    return causes


def _step_causes(steps: _Steps, median: float) -> Ints:
    """The code of the cause of each step, should it be long."""
    codes = np.full(len(steps.took), _CODE[GapCause.STALL])
    read = steps.prompt + steps.again
    plain = steps.took[(read == 0) & np.isfinite(steps.took)]
    base = float(np.median(plain)) if len(plain) else median
    runs = [_run(steps, last, RAISED * median) for last in np.flatnonzero(read).tolist() if last > 0]
    over = [np.maximum(0.0, steps.took[run] - base) for run in runs]
    prices = [float(more.sum()) / read[run[-1]] for run, more in zip(runs, over, strict=True)]
    price = float(np.median(prices)) if prices else 0.0
    for run, more in zip(runs, over, strict=True):
        last = run[-1]
        fresh = steps.prompt[last] >= steps.again[last]
        codes[run] = _CODE[GapCause.PREFILL if fresh else GapCause.PREEMPTION]
        expected, left = price * read[last], float(more.sum())
        # A step is a stall where more of it is a pause than reading: the longest ones, until what
        # is left is about what such prompts take.
        for place in np.argsort(-more).tolist():
            if left - expected <= expected / len(run):
                break
            codes[run[place]] = _CODE[GapCause.STALL]
            left -= float(more[place])
    codes[steps.tokens >= BURST] = _CODE[GapCause.CLIENT]
    return codes


def _run(steps: _Steps, last: int, longer: float) -> Ints:
    """The steps that read the prompts whose first tokens came at the end of step `last`: the raised
    steps right before it, as far back as the prompt had arrived.
    """
    first = last
    while (
        first > 1
        and steps.took[first - 1] > longer
        and not steps.prompt[first - 1] + steps.again[first - 1]
        and steps.since[last] <= steps.ends[first - 2]
    ):
        first -= 1
    return np.arange(first, last + 1)


# --- in words

_WORDS = {
    GapCause.PREFILL: "the prefill of other requests",
    GapCause.PREEMPTION: "preemptions, with what is computed again",
    GapCause.STALL: "stalls of all streams",
    GapCause.CLIENT: "the client or the network: the next tokens came at once",
    GapCause.UNEXPLAINED: "unexplained",
}
SAID = 0.05
"""The share of the long gaps below which the sentence does not name a cause; JSON has all."""


def jitter_sentence(jitter: Jitter) -> str:
    """The long gaps and the share of each cause, as a sentence."""
    if jitter.unknown:
        return f"not known: {jitter.unknown}."
    ranked = sorted(jitter.shares.items(), key=lambda pair: -pair[1])
    named = "; ".join(f"{share:.0%} {_WORDS[cause]}" for cause, share in ranked if share >= SAID)
    return (
        f"{jitter.long:,} of {jitter.gaps:,} gaps, at {jitter.moments:,} "
        f"moments, are over {LONG:g} times the median of {format_seconds(jitter.median)} (longest "
        f"{format_seconds(jitter.longest)}): {named}."
    )
