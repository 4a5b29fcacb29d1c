"""The least and the most that the latency of each request may have been."""

import math

import numpy as np

from frontier.core.estimates.widening import widening
from frontier.core.flags.stream_flags import differing
from frontier.core.window.held import held_alone
from frontier.core.window.window import UNSTREAMED, Bools, Floats, WindowData

TEXT_OFF = 0.2
"""Share by which the text of a token in first chunks may differ from that in others, all answers
together."""


@held_alone
def sides(sample: WindowData, quantity: str) -> tuple[Floats, Floats]:
    """The least and the most that each request's latency may have been: the same array twice where
    it is known exactly.

    A TTFT is at most the time to the first visible character. An unknown TPOT lies between 0 and
    the whole E2E over the tokens; without a count its upper end is infinite. Where chunks brought
    several tokens, the first chunk's share of the text gives about how many were its own
    (`_lumped`). Where that text was not kept, the first chunk had between one token and those of an
    average chunk. Where it had no text, each later chunk had at least one timed token. Where a
    count differs from the chunks (`differing`), or the usage can be read in two ways, one of the
    two numbers is right. The uncertainty of a load slightly off (`widening`) comes on top; for a
    TPOT the tokens share it.
    """
    best, worst = _as_measured(sample, quantity)
    slack = widening(sample)
    if not slack.longer and not slack.shorter and not slack.pause:
        return best, worst
    each = np.fmax(sample.completion_tokens - 1, 1) if quantity == "tpot" else 1.0
    mean = tokens_after_first(sample) if quantity == "tpot" else 1.0
    less, more = (slack.pause / each + seconds / mean for seconds in (slack.shorter, slack.longer))
    return np.maximum(best - less, 0.0), worst + more


def tokens_after_first(sample: WindowData) -> float:
    """The mean number of tokens after the first in an answer; 1 where that is not known."""
    known = sample.completion_tokens[sample.completion_tokens > 1]
    return float(known.mean()) - 1 if len(known) else 1.0


def _as_measured(sample: WindowData, quantity: str) -> tuple[Floats, Floats]:
    """`sides` of the load that was measured."""
    values: Floats = getattr(sample, quantity)
    if quantity == "ttft":
        return values, values + sample.silence if sample.silence.any() else values
    if quantity == "second":  # with several tokens in an event it may have come with the first
        several = (sample.completion_tokens > sample.events) & ~np.isnan(values)
        return (np.where(several, sample.ttft, values), values) if several.any() else (values, values)
    if quantity != "tpot":
        return values, values
    untimed, miscounted = sample.untimed, differing(sample)
    timed = sample.ok & ~np.isnan(values)
    lumped = timed & (sample.events > 1) & (sample.completion_tokens - sample.events > UNSTREAMED)
    twofold = timed & (sample.most_tokens > sample.completion_tokens)
    if not (untimed | miscounted | lumped | twofold).any():
        return values, values
    best, worst = values.copy(), values.copy()
    after = sample.completion_tokens[untimed] - 1
    best[untimed] = 0.0
    worst[untimed] = np.where(after > 0, sample.e2e[untimed] / np.fmax(after, 1.0), math.inf)
    best[lumped], worst[lumped] = _lumped(sample, lumped)
    best[twofold] = _spans(sample, twofold) / (sample.most_tokens[twofold] - 1)
    spans, chunks = _spans(sample, miscounted), sample.events[miscounted] - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        by_chunks = np.where(chunks > 0, spans / chunks, math.inf)
    worst[miscounted] = np.maximum(worst[miscounted], by_chunks)
    best[miscounted] = np.where(chunks > 0, np.minimum(best[miscounted], by_chunks), 0.0)
    return best, worst


def _spans(sample: WindowData, which: Bools) -> Floats:
    """Seconds from the first chunk to the last."""
    spans: Floats = sample.e2e[which] - sample.ttft[which]
    return spans


def _lumped(sample: WindowData, which: Bools) -> tuple[Floats, Floats]:
    """The least and the most TPOT of answers whose chunks brought several tokens.

    The first chunk's tokens are known by their text, but the text per token varies with the words.
    So as few, or as many, tokens as in the first chunks of the other answers are allowed for too,
    give or take TEXT_OFF.
    """
    spans, tokens, chunks = _spans(sample, which), sample.completion_tokens[which], sample.events[which]
    values, first, average = sample.tpot[which], sample.first_tokens[which], tokens / chunks
    told = first > 0
    usual = average * (first[told].sum() / average[told].sum()) if told.any() else average
    fewest = np.maximum(np.minimum(first, usual) * (1 - TEXT_OFF), 1.0)
    most = np.maximum(first, np.minimum(usual * (1 + TEXT_OFF), tokens - chunks + 1))
    most = np.where(first == 0, tokens - chunks + 1, np.where(told, most, average))
    best = spans / (tokens - np.where(told, fewest, 1.0))
    return np.minimum(values, best), np.maximum(values, spans / (tokens - most))
