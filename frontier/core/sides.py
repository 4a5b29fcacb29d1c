"""The least and the most that the latency of each request may have been."""

import math

import numpy as np

from frontier.core.stream_flags import differing
from frontier.core.widening import widening
from frontier.core.window import Floats, WindowData


def sides(sample: WindowData, quantity: str) -> tuple[Floats, Floats]:
    """The least and the most that each request's latency may have been: the same array twice where
    it is known exactly.

    A TTFT is at most the time to the first visible character. A TPOT that is not known lies between
    0 and infinity. Where a count differs a little from the chunks (`differing`), the tokens were as
    many as one or the other. What a load slightly off leaves in doubt (`widening`) comes on top: of
    a TPOT, shared by the tokens.
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
    """Of an answer, on average; 1 where that is not known."""
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
    if not untimed.any() and not miscounted.any():
        return values, values
    best, worst = values.copy(), values.copy()
    best[untimed], worst[untimed] = 0.0, math.inf
    spans, chunks = sample.e2e[miscounted] - sample.ttft[miscounted], sample.events[miscounted] - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        by_chunks = np.where(chunks > 0, spans / chunks, math.inf)
    worst[miscounted] = np.maximum(values[miscounted], by_chunks)
    best[miscounted] = np.where(chunks > 0, np.minimum(values[miscounted], by_chunks), 0.0)
    return best, worst
