"""Flags on how the tokens came: events held back, impossible counts, first tokens of nothing."""

import math
from collections.abc import Iterator

import numpy as np

from frontier.core.flags.load_flags import median
from frontier.core.model.decisions import Limit
from frontier.core.model.points import Flag
from frontier.core.model.units import format_seconds, format_share
from frontier.core.stats import intervals
from frontier.core.window.window import Bools, Floats, WindowData, gaps

HOLLOW = 0.01
"""Share of answers whose first token shows nothing, beyond what answers usually hold back. Such a
silence is longer than this share of the TTFT."""


MISCOUNTED = 0.01
"""Where the token count of more than this share of answers cannot be true, the counts mean nothing.
"""


TELLING = 10
"""Fewest answers of one token per chunk that show how much text a token has, and fewest merged
answers that are judged by their text."""


TEXT_ERRORS = 4.0
"""Standard errors by which merged answers may have less text per token than others. The text varies
much: in answers of 64 tokens to random prompts, from 4.4 to 8.1 characters per token."""


SHARED_READS = 0.50
"""Where more than this share of chunks came together with the one before, the times of tokens mean
nothing."""


WAIT_SHARE = 0.90
"""A stream was held back where more than this share of an answer's time passed before its first
event."""


STREAM_EVENTS = 3
"""The fewest chunks that can show whether an answer was streamed: with two gaps, one may be chance.
"""


LUMPS, LONG = 2, 8
"""Chunks of an answer that was not streamed, and the tokens from which an answer is long enough to
show it."""


IMPLAUSIBLE_TPOT, FASTER = 0.001, 5
"""Seconds per token: no server is faster. How many times this others take, where some answers that
are faster were not made like them."""


TOKENS_PER_CHUNK = 1.05
"""Tokens per event above which gaps between events are not gaps between tokens."""


def share_above(hits: int, n: int, limit: float) -> bool:
    """Whether the share is above the limit by more than chance explains (one-sided 95%)."""
    return n > 0 and intervals.clopper_pearson(hits, n)[0] > limit


def stream(sample: WindowData, limits: tuple[Limit, ...] = ()) -> Iterator[Flag]:
    """The flag that answers were held back: in bursts, or as a whole in one or two chunks."""
    held = next(_in_bursts(sample), None) or next(_in_lumps(sample, limits), None)
    if held is not None:
        yield held


def _in_lumps(sample: WindowData, limits: tuple[Limit, ...]) -> Iterator[Flag]:
    """The flag that most answers came in one or two chunks.

    It is fatal where a limit needs the times between tokens: only the first and the last token come
    as a user sees them. A single event that takes time to arrive is not one chunk: the number of
    its chunks is not known. Where fewer came so, faster than any server makes tokens and than the
    others did, it is a warning: they may be repeated from a cache.
    """
    long = sample.ok & (sample.completion_tokens >= LONG)
    whole = (sample.events == LUMPS) | ((sample.events == 1) & (sample.e2e <= sample.ttft))
    share = float((whole & long).sum()) / max(int(long.sum()), 1)
    if share > SHARED_READS:
        yield Flag(
            "buffered_stream",
            f"{format_share(share)} of answers of {LONG} tokens or more came in one or two chunks",
            format_share(SHARED_READS),
            "no TPOT, ITL or rate per user can be measured: judge by E2E (a limit on p90_e2e), or turn off what holds "
            "whole answers back (a guardrail, a replayed stream, a long stream interval)",
            fatal=any(limit.of.quantity in ("tpot", "itl") for limit in limits),
        )
        return
    pace = (sample.e2e[long] - sample.ttft[long]) / (sample.completion_tokens[long] - 1)
    at_once = whole[long] | (pace < IMPLAUSIBLE_TPOT)
    usual = median(pace[~at_once]) or 0.0
    if usual > FASTER * IMPLAUSIBLE_TPOT and share_above(int(at_once.sum()), len(pace), MISCOUNTED):
        yield Flag(
            "buffered_stream",
            f"{format_share(float(at_once.mean()))} of answers of {LONG} tokens or more came at once, the others at "
            f"{format_seconds(usual)} per token",
            format_share(MISCOUNTED),
            "they may come from a cache of answers, or be held back: throughput and latencies count them, so turn that "
            "off for the test",
            fatal=False,
        )


def _in_bursts(sample: WindowData) -> Iterator[Flag]:
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
        together = f"{format_share(shared)} of chunks came together with the one before", format_share(SHARED_READS)
        first = f"{format_share(waiting)} of the time passed before the first", format_share(WAIT_SHARE)
        over = [each for each, is_over in ((together, shared >= SHARED_READS), (first, burst)) if is_over]
        yield Flag(
            "buffered_stream",
            "; ".join(measured for measured, _ in over),
            ", ".join(limit for _, limit in over),
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
            "ITL is the time between chunks, and TPOT counts the tokens after the first chunk alone: compare both only "
            "at equal tokens per chunk",
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
    """Answers whose number of tokens may differ from the server's count.

    They have more chunks than counted tokens; or fewer, where a chunk is usually one token. Fewer
    by one token or 5% counts, as a count may include the end of the text. Fewer by more counts
    where the text of the answers does not bear the count out.
    """
    timed = sample.ok & ~np.isnan(sample.tpot)
    beyond = sample.completion_tokens - sample.events
    doubtful = (beyond <= _loose(sample)) | (bool(sample.text_chars.any()) and _text_of_merged(sample) is not True)
    few: Bools = timed & ((beyond < 0) | ((beyond > 0) & doubtful & (not _several(sample))))
    return few


def _loose(sample: WindowData) -> Floats:
    """The most tokens by which a count may differ from the chunks without contradicting them."""
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
    allow for. Chunks show it; for merged answers, their text (`_text_of_merged`).
    """
    counted, chunks, asked = sample.completion_tokens, sample.events, sample.asked_osl
    known = sample.ok & ~np.isnan(counted) & (chunks > 0)
    # Where no length was forced, max_tokens is the shape's longest; those of a file have their own.
    most = np.where(sample.asked_isl > 0, np.maximum(sample.shape.osl.high, TOKENS_PER_CHUNK * chunks), math.inf)
    most = np.where(asked > 0, asked, most)
    above_asked = (counted - 1 > (1 + MISCOUNTED) * np.maximum(most - 1, 0)) & (counted > chunks)
    fewer_counted = chunks - 1 > TOKENS_PER_CHUNK * np.maximum(counted - 1, 0)
    wrong: Bools = known & (above_asked | fewer_counted)
    return wrong | _merged(sample) if _text_of_merged(sample) is False else wrong


def _merged(sample: WindowData) -> Bools:
    """Answers with fewer chunks than tokens, as a busy server sends several at once."""
    known = sample.ok & ~np.isnan(sample.completion_tokens) & (sample.events > 0)
    merged: Bools = known & (sample.completion_tokens - sample.events > _loose(sample))
    return merged


def _text_of_merged(sample: WindowData) -> bool | None:
    """Whether the token counts of merged answers are right, by their text.

    True: they have as much text per counted token as answers of one token per chunk. False: they
    have only as much per chunk, so their count is wrong. None where that is not known: there are
    too few answers, or the difference is within the spread of text per token.
    """
    merged, counted = _merged(sample), sample.completion_tokens
    alone = sample.ok & (counted == sample.events) & (counted > 0)
    if min(int(merged.sum()), int(alone.sum())) < TELLING or not sample.text_chars[alone].any():
        return None
    usual = sample.text_chars[alone] / counted[alone]
    per_token = float(sample.text_chars[alone].sum() / counted[alone].sum())
    tokens, chunks = float(counted[merged].sum()), float(sample.events[merged].sum())
    text = float(sample.text_chars[merged].sum()) / per_token
    spread = float(usual.std()) / per_token * math.sqrt(1 / int(merged.sum()) + 1 / len(usual))
    error = TEXT_ERRORS * spread * tokens
    if text < (tokens + chunks) / 2:
        return False if tokens - text > error else None
    return True if text - chunks > error else None


def _usual_silences(sample: WindowData) -> float:
    """How many silences after a first token an honest server would have.

    Ordinary gaps show how often one is as long as that; the upper bound of this share counts.
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
