"""Tokens that were timed: those of an answer after its first chunk, whose own came before the clock
started.

TPOT is the time from the first chunk to the last, divided by the tokens that came in it. Where a
chunk is a token these are all but one. With a stream interval, block diffusion or a gateway that
holds text back the first chunk brings several. A running count of usage or token ids give their
number; else the first chunk's share of the answer's text estimates it.
"""

import numpy as np

from frontier.core.window.window import UNSTREAMED, Floats, Ints


def first_tokens(columns: dict[str, Floats], gaps: Ints, counts: Ints) -> Floats:
    """Tokens that came with the first chunk of each answer, or in one read with it; 0 where its
    text does not tell, NaN where that was not kept. `gaps` are those of all answers in a row, in
    microseconds, as many of each as `counts` says.

    A chunk brings at least one token, so the number of later chunks limits the tokens of the first.
    """
    tokens, events, text = (columns[name] for name in ("completion_tokens", "events", "text_chars"))
    chars, counted = columns["first_chars"], columns["first_tokens"]
    told = ~np.isnan(chars)
    together = np.where(told, 1.0 + _leading_zeros(gaps, counts), 1.0)
    most = tokens - (events - together)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_text = tokens * chars / text
        count = np.where((counted >= together) & (counted <= most), counted, by_text)
    known = np.where(count > 0, np.clip(count, together, most), np.where(told, 0.0, np.nan))
    return np.where(tokens - events > UNSTREAMED, known, together)


def seconds_per_token(columns: dict[str, Floats]) -> Floats:
    """TPOT of each answer; NaN where none was timed. Where the first chunk's tokens are not known
    they are taken to be one.
    """
    tokens, first = columns["completion_tokens"], columns["first_tokens"]
    span = columns["last"] - columns["first"]
    at_once = (span <= 0) & ((tokens - columns["events"] > UNSTREAMED) | ~np.isnan(columns["first_chars"]))
    with np.errstate(divide="ignore", invalid="ignore"):
        timed = tokens - np.where(first > 0, first, 1.0)
        return np.where((tokens > 1) & (timed > 0) & ~at_once, span / timed, np.nan)


def _leading_zeros(gaps: Ints, counts: Ints) -> Ints:
    """How many gaps of each answer are 0 before its first other one: chunks in one read with the
    first.
    """
    ends = counts.cumsum()
    starts = ends - counts
    has = counts > 0
    zeros = np.zeros(len(counts), np.int64)
    if len(gaps) and not gaps[starts[has]].all():
        others = np.append(np.flatnonzero(gaps), len(gaps))
        zeros = np.minimum(others[np.searchsorted(others, starts)], ends) - starts
    return zeros
