"""Flags on how the tokens came: events held back, impossible counts, first tokens of nothing."""

from collections.abc import Iterator

import numpy as np

from frontier.core import intervals
from frontier.core.decisions import Limit
from frontier.core.load_flags import median
from frontier.core.points import Flag
from frontier.core.units import format_seconds, format_share
from frontier.core.window import Bools, Floats, WindowData, gaps

HOLLOW = 0.01
"""Share of answers whose first token shows nothing, beyond what answers usually hold back; and
the share of a TTFT that such a silence is longer than."""


MISCOUNTED = 0.01
"""Share of answers whose token count cannot be true above which counts mean nothing."""


TELLING = 10
"""Answers of one token per chunk needed to know how much text a token has."""


SHARED_READS = 0.50
"""Share of reads that brought several tokens above which their times are not their own."""


WAIT_SHARE = 0.90
"""Share of an answer's time before its first event above which the stream was held back."""


STREAM_EVENTS = 3
"""The fewest chunks that can show whether an answer was streamed: with two gaps, one may be chance.
"""


IMPLAUSIBLE_TPOT = 0.001
"""Seconds per token that no server is faster than."""


TOKENS_PER_CHUNK = 1.05
"""Tokens an event from which gaps between events are no gaps between tokens."""


def share_above(hits: int, n: int, limit: float) -> bool:
    """Whether the share is above the limit by more than chance explains (one-sided 95 %)."""
    return n > 0 and intervals.clopper_pearson(hits, n)[0] > limit


def stream(sample: WindowData) -> Iterator[Flag]:
    events = sample.events[sample.ok]
    many = events >= STREAM_EVENTS
    if not many.any():
        return
    pooled = gaps(sample)
    if pooled.count:
        shared = 1 - pooled.fraction_above(0.0)
    else:
        shared = float(np.clip(1 - sample.reads[sample.ok][many].sum() / events[many].sum(), 0, 1))
    waiting = median(sample.ttft[sample.ok][many] / np.maximum(sample.e2e[sample.ok][many], 1e-6)) or 0.0
    tpot = median(sample.tpot)
    burst = waiting > WAIT_SHARE and tpot is not None and tpot < IMPLAUSIBLE_TPOT
    if shared >= SHARED_READS or burst:
        measured = f"{format_share(shared)} of chunks came together with the one before"
        if burst:
            measured += f", {format_share(waiting)} of the time passed before the first"
        yield Flag(
            "buffered_stream",
            measured,
            f"{format_share(SHARED_READS)}, {format_share(WAIT_SHARE)}",
            "something between holds the stream back: turn off proxy buffering and compression, or go round the proxy",
        )


def chunks(sample: WindowData) -> Iterator[Flag]:
    known = sample.ok & ~np.isnan(sample.completion_tokens) & (sample.events > 0)
    tokens, events = float(sample.completion_tokens[known].sum()), float(sample.events[known].sum())
    if not events:
        return
    if tokens / events > TOKENS_PER_CHUNK:
        yield Flag(
            "coalesced",
            f"{tokens / events:.2f} tokens per chunk",
            f"{TOKENS_PER_CHUNK}",
            "gaps are between chunks, not tokens: judge by TPOT, and compare ITL only at equal tokens per chunk",
            fatal=False,
        )
    wrong, answers = _miscounted(sample), int(known.sum())
    if share_above(int(wrong.sum()), answers, MISCOUNTED):
        counted, chunks = np.median(sample.completion_tokens[wrong]), np.median(sample.events[wrong])
        yield Flag(
            "token_mismatch",
            f"{format_share(int(wrong.sum()) / answers)} of answers are counted otherwise than streamed "
            f"(median {counted:g} tokens in {chunks:g} chunks)",
            format_share(MISCOUNTED),
            "the server's usage does not count what it streamed: TPOT and throughput would be wrong",
        )


def differing(sample: WindowData) -> Bools:
    """Answers that may have had a few tokens more or fewer than the server counts: there were more
    chunks, or, where a chunk is a token, up to one or 5 % fewer, as when a count includes the end
    of the text.
    """
    timed = sample.ok & ~np.isnan(sample.tpot)
    beyond = sample.completion_tokens - sample.events
    few: Bools = timed & ((beyond < 0) | ((beyond > 0) & (beyond <= _loose(sample)) & (not _several(sample))))
    return few


def _loose(sample: WindowData) -> Floats:
    """By how many tokens a count may differ from the chunks before it counts as a contradiction."""
    return np.maximum(1.0, (TOKENS_PER_CHUNK - 1) * sample.completion_tokens)


def _several(sample: WindowData) -> bool:
    """Whether a chunk holds several tokens in most answers, as with a stream interval or
    speculation.
    """
    timed = sample.ok & ~np.isnan(sample.tpot)
    counted, chunks = sample.completion_tokens[timed], np.maximum(sample.events[timed], 1)
    return (median(counted / chunks) or 1.0) > TOKENS_PER_CHUNK and (median(counted - chunks) or 0.0) > 1


def _miscounted(sample: WindowData) -> Bools:
    """Answers whose count contradicts what was asked or streamed, by more than the bounds of a TPOT
    make up for.

    Some answers have fewer chunks than tokens because a busy server sends several at once. Then
    they have as much text per token counted as the others; where they have as much per chunk
    instead, it is the count that is wrong.
    """
    counted, chunks, asked = sample.completion_tokens, sample.events, sample.asked_osl
    known = sample.ok & ~np.isnan(counted) & (chunks > 0)
    above_asked = (asked > 0) & (counted - 1 > (1 + MISCOUNTED) * np.maximum(asked - 1, 0)) & (counted > chunks)
    fewer_counted = chunks - 1 > TOKENS_PER_CHUNK * np.maximum(counted - 1, 0)
    wrong: Bools = known & (above_asked | fewer_counted)
    together, alone = known & (counted - chunks > _loose(sample)), known & (counted == chunks)
    if together.any() and alone.sum() >= TELLING and sample.text_chars[alone].any():
        per_token = sample.text_chars[alone].sum() / counted[alone].sum()
        text = sample.text_chars[together].sum() / per_token
        if text < (counted[together].sum() + chunks[together].sum()) / 2:
            wrong |= together
    return wrong


def _usual_silences(sample: WindowData) -> float:
    """How many of the silences after a first token an honest server would have: as often as
    ordinary gaps are as long, at the upper end of what these show.
    """
    after = sample.silence > 0
    known = ~np.isnan(sample.irregular)
    control = sample.irregular[known & ~after]
    if len(control) < TELLING:
        control = sample.irregular[known & after]
    if not len(control):
        return 0.0
    return float(after.sum()) * intervals.clopper_pearson(float(control.sum()), len(control))[1]


def hollow_first(sample: WindowData, limits: tuple[Limit, ...]) -> Iterator[Flag]:
    """Answers whose first token shows nothing. Fatal where a TTFT is claimed, and where no limits
    are known.
    """
    late, answers = int(sample.hollow.sum()), int(sample.ok.sum())
    usual = _usual_silences(sample) / answers if late else 0.0
    if share_above(late, answers, HOLLOW + usual):
        first, silence = median(sample.ttft[sample.hollow]), median(sample.silence[sample.hollow])
        yield Flag(
            "hollow_first",
            f"the first token of {format_share(late / answers)} of answers shows nothing "
            f"({format_seconds(first)}; the first visible character came {format_seconds(silence)} later)",
            format_share(HOLLOW),
            "a space or an empty token is sent ahead of the answer, and TTFT measures that: limit p99_e2e, or turn it "
            "off in the server or gateway",
            fatal=not limits or any(limit.of.quantity == "ttft" for limit in limits),
        )
