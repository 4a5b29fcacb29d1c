"""What a reader of an answer feels: the first visible token, the second token, whether the text
ever runs dry.

A reader begins at the first visible token and reads on at a steady speed. Text in bursts is as good
as a steady stream while enough of it has arrived before. Only a reader who has read all of it, and
waits for more, notices. The measure is that of a player whose buffer runs empty, as in Andes (arXiv
2404.16283). Each answer is measured by the fastest reading that it stays ahead of, so that any
reading speed can be judged later.
"""

from collections.abc import Mapping

import numpy as np

from frontier.core.window.window import Floats, Ints

_MICRO = 1e-6
_TOGETHER = 1e-5
"""Events within this many seconds came together, or within this share of the time since the first
token: gaps and times are kept to the microsecond, and their errors add up."""


def felt(columns: Mapping[str, Floats], gaps: Ints, counts: Ints, since: Floats) -> Floats:
    """Three rows with a figure per record, of the records' columns. They are the seconds from
    `since` to the first visible token, those to the second token, and the fastest reading, in
    tokens per second, that never waits for text. NaN where not known. `gaps` are those of all
    records in a row, in microseconds, as many of each as `counts` says.

    Events are what is timed. The second token is taken to come with the second event, or with the
    only one where that brought several. The tokens of an answer are spread evenly over its events;
    each brought at least one.
    """
    first, visible, tokens, events = (columns[name] for name in ("first", "visible", "completion_tokens", "events"))
    second = np.where((events == 1) & (tokens > 1), first, np.nan)
    has = counts > 0
    second[has] = first[has] + gaps[(counts.cumsum() - counts)[has]] * _MICRO
    each = np.where(np.isnan(tokens), 1.0, tokens / np.maximum(counts + 1, 1))
    pace = _pace(gaps, counts, visible - first, each)
    pace[~has & (events > 1)] = np.nan  # the gaps were not kept
    return np.stack([visible - since, second - since, pace])


def _pace(gaps: Ints, counts: Ints, begins: Floats, each: Floats) -> Floats:
    """The fastest reading of each answer that never waits.

    After the reader began, each event gives a speed: the tokens that came before it, over the time
    since. The lowest of these is the answer's. It is inf where all tokens came at once, and NaN
    where it is not known when the reader began.

    `gaps` are those of all answers in a row, as many for each as `counts` says. `begins` is counted
    from the first event of an answer; `each` are the tokens of an event.
    """
    before = counts.cumsum() - counts
    passed = np.concatenate([[0], gaps.cumsum()])
    waited = (passed[1:] - np.repeat(passed[before], counts)) * _MICRO - np.repeat(begins, counts)
    together = _TOGETHER * (1 + begins)
    # The first event of the text is the first one that came no earlier than the reader began.
    early = np.concatenate([[0], (waited < np.repeat(-together, counts)).cumsum()])
    hidden = early[before + counts] - early[before] + (begins > together)
    arrived = (np.arange(len(gaps)) - np.repeat(before - 1 + hidden, counts)) * np.repeat(each, counts)
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = np.where(waited > np.repeat(together, counts), arrived / waited, np.inf)
    pace = np.full(len(counts), np.inf)
    if len(gaps):
        pace[counts > 0] = np.minimum.reduceat(kept, before[counts > 0])
    return np.where(np.isnan(begins), np.nan, pace)
