"""Episodes: spans in which a whole server works at a clearly lower speed, whatever its load.

An episode hits every load alike, as other work on the server's machine does. A load whose own
windows met none would have met one later. So the spans are counted over all windows of a series.
The most time that may be slow follows from their number, as Poisson's law bounds it: three spans
seen may be eight. A stall is no episode: it hits the requests in flight, and none after them.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from frontier.core.stats import laws, wander
from frontier.core.window.held import held_alone
from frontier.core.window.window import Bools, Episodes, Floats, WindowData

CLEAR, APART = math.log(1.2), 4.5
"""Blocks of time are slow whose levels are this far (in ln) from those of the others, and this many
standard deviations of theirs. The halves of one normal law are 2.7 apart."""
FEWEST, ENOUGH = 8, 4
"""Blocks in which slow ones can be told from the others, and requests in each of them."""
LOW = 0.25
"""The level of a block is this quantile of its requests: nearly all are slow in an episode."""
LASTS = 1.2
"""A slow span has this many times the requests in flight: a stall makes no more than those slow."""
STEP = 0.1
"""The logarithms of the share and of the slowdown are rounded up to multiples of it, so that few
windows change the bounds of all."""
GOLDEN = 0.6180339887498949
"""Multiples of it, without their whole parts, lie evenly between 0 and 1, in no order."""


@held_alone
def slow_blocks(sample: WindowData) -> tuple[wander.TimeBlocks, Bools, dict[str, float]]:
    """The time blocks of one load, which of them belong to episodes, and by how much (in ln) each
    latency is longer in these.

    All latencies are longer in these, and one window at least has both kinds of blocks: each run
    may have a speed of its own.
    """
    blocks = wander.time_blocks(sample, shortest=min(1.0, ENOUGH / sample.streams))
    levels = {name: _levels(getattr(sample, name), blocks) for name in wander.BASIC}
    beyond, above, surest = max((*_cut(levels[name]), name) for name in wander.BASIC)
    slow = levels[surest] > above
    mixed = np.intersect1d(blocks.windows[slow], blocks.windows[~slow])
    if beyond <= 1 or sample.open_loop or not len(mixed) or min(_shifts(levels, slow).values()) < CLEAR:
        return blocks, np.zeros(len(slow), np.bool_), {}
    span = (np.diff(slow, prepend=False) | (np.diff(blocks.windows, prepend=0) > 0)).cumsum()
    requests = np.bincount(span[blocks.of_request], minlength=span[-1] + 1)
    slow &= requests[span] >= LASTS * sample.streams
    return blocks, slow, _shifts(levels, slow)


def _levels(x: Floats, blocks: wander.TimeBlocks) -> Floats:
    """The quantile LOW of the logarithms of each block; NaN without a value."""
    known = np.isfinite(x) & (x > 0)
    block, logs = blocks.of_request[known], np.log(x[known])
    counts = np.bincount(block, minlength=len(blocks.middles))
    place = counts.cumsum() - counts + (LOW * np.maximum(0, counts - 1)).astype(np.int64)
    levels = np.full(len(counts), np.nan)
    levels[counts > 0] = logs[np.lexsort((logs, block))][place[counts > 0]]
    return levels


def _cut(levels: Floats) -> tuple[float, float]:
    """How far beyond what is needed the slow blocks are, as a factor, and the level above which
    they are; 0 for too few blocks. Half of the blocks or more are not slow.
    """
    x = np.sort(levels[~np.isnan(levels)])
    n = len(x)
    if n < FEWEST:
        return 0.0, math.inf
    k = np.arange(-(-n // 2), n)
    sums, squares = x.cumsum(), (x * x).cumsum()
    usual = sums[k - 1] / k
    deviation = np.sqrt(np.maximum(0.0, squares[k - 1] - k * usual**2) / (k - 1))
    beyond = ((sums[-1] - sums[k - 1]) / (n - k) - usual) / np.maximum(CLEAR, APART * deviation)
    best = int(np.argmax(beyond))
    return float(beyond[best]), float(x[k[best] - 1])


def _shifts(levels: Mapping[str, Floats], slow: Bools) -> dict[str, float]:
    """By how much (in ln) each latency is longer in the slow blocks, where it is known in both."""
    sides = {name: (x[slow & ~np.isnan(x)], x[~slow & ~np.isnan(x)]) for name, x in levels.items()}
    return {name: float(np.median(x) - np.median(y)) for name, (x, y) in sides.items() if len(x) and len(y)}


def seen(loads: Sequence[WindowData]) -> Episodes | None:
    """The episodes that the windows of a series show, those of each load joined; None without any.
    A span that goes on in the next window counts once.
    """
    every, shifts = [np.empty((3, 0))], []
    for sample in loads:
        blocks, slow, longer = slow_blocks(sample)
        counts = np.bincount(blocks.windows)
        seconds = ((sample.ends - sample.starts) / counts)[blocks.windows]
        into = np.arange(len(slow)) - (counts.cumsum() - counts)[blocks.windows]
        every.append(np.stack([sample.starts[blocks.windows] + into * seconds, seconds, slow]))
        if slow.any():
            shifts.append((int(slow.sum()), longer))
    if not shifts:
        return None
    starts, seconds, marks = np.concatenate(every, axis=1)
    slow = marks[np.argsort(starts, kind="stable")] > 0
    spans = int((np.diff(slow, prepend=False) & slow).sum())
    share = float(seconds @ marks) * most_times(spans) / float(seconds.sum())
    known = {name: [(of[name], number) for number, of in shifts if name in of] for name in wander.BASIC}
    means = {name: sum(by * n for by, n in x) / sum(n for _, n in x) for name, x in known.items() if x}
    rounded = {name: STEP * math.ceil(by / STEP) for name, by in means.items()}
    # A slow server is sent fewer requests, as each stream waits for its answers.
    sent = min(1.0, share) * math.exp(-rounded.get("e2e", 0.0))
    share = math.exp(STEP * math.ceil(math.log(sent / (sent + 1 - min(1.0, share))) / STEP))
    return Episodes(share, tuple(rounded.items()), spans)


def most_times(spans: float) -> float:
    """How many times as many spans there may be as were seen."""
    return laws.chi_square_quantile(wander.SURELY, 2 * spans + 2) / 2 / spans


def at_share(sample: WindowData, quantity: str, values: Floats, share: float) -> Floats:
    """The latencies as if this share of the requests had come in episodes, instead of those that
    did.
    """
    if sample.episodes is None:
        return values
    shifts = dict(sample.episodes.shifts)
    blocks, slow, _ = slow_blocks(sample)
    chosen = np.modf(np.arange(sample.n) * GOLDEN)[0] < share
    moved = chosen.astype(np.float64) - slow[blocks.of_request]
    slowed: Floats = values * np.exp(moved * shifts.get(quantity, max(shifts.values())))
    return slowed
