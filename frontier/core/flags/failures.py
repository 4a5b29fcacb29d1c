"""Failed requests of a setting: their flag, and what is said of them in the server's words."""

from collections.abc import Iterator, Sequence

import numpy as np

from frontier.core.flags.load_flags import ERRORS
from frontier.core.model.decisions import Limit
from frontier.core.model.points import Flag
from frontier.core.model.units import format_share
from frontier.core.window.window import WindowData, narrowed

_NOT_THE_SERVER = ("client", "cancelled")
_REFUSED = "the server or a gateway limits requests or tokens (HTTP 429): raise that limit, or stay below it"
_BEYOND = "see the server's log: the setting may be beyond what it takes"
_MOST_WORDS = 120
"""Characters of a server's words that a sentence has room for."""


def errors(sample: WindowData, limits: tuple[Limit, ...]) -> Iterator[Flag]:
    """Fatal unless the limits themselves say no: a percentile or mean that failures make infinite,
    or an error rate.
    """
    failed = int((~sample.ok).sum())
    judged = [(limit.of, narrowed(sample, limit.of.group).ok) for limit in limits]
    caught = any(
        m.name == "error_rate"
        or (not ok.all() and m.is_mean)
        or (m.p is not None and (~ok).sum() > (1 - m.p) * len(ok))
        for m, ok in judged
    )
    if failed > ERRORS * sample.n:
        words = failure_words(sample)
        why = _REFUSED if words.startswith("HTTP 429") else _BEYOND
        yield Flag(
            "errors",
            f"{format_share(failed / sample.n)} failed, mostly {words}",
            format_share(ERRORS),
            f"{why}. Where some may fail, say how many: error_rate: 5%  in the sla",
            fatal=not caught,
        )


def failure_words(sample: WindowData) -> str:
    """What most requests failed of, in the server's words: 'HTTP 503: overloaded'; the outcome
    where none are known.
    """
    kinds = sample.failures or {name: n for name, n in sample.outcomes.items() if name not in ("ok", *_NOT_THE_SERVER)}
    most = max(kinds, key=lambda name: kinds[name], default="failed").strip()
    return most if len(most) <= _MOST_WORDS else f"{most[:_MOST_WORDS].rstrip()}…"


def failed_trials(samples: Sequence[WindowData]) -> str:
    """'1 of 2 trials had 9% failures: HTTP 503: overloaded'; '' where no trial of a setting had
    more than ERRORS of them. Trials that do not count for latency do for this.
    """
    windows = [(n, part) for part in samples for n in _failed_shares(part)]
    failing = [(share, part) for share, part in windows if share > ERRORS]
    if not failing or len(windows) < 2:
        return ""
    worst, part = max(failing, key=lambda each: each[0])
    several = "had up to" if len(failing) > 1 else "had"
    return (
        f"{len(failing):,} of {len(windows):,} trials {several} {format_share(worst)} failures: {failure_words(part)}"
    )


def _failed_shares(sample: WindowData) -> list[float]:
    """The share of failed requests in each window that has any."""
    sent = np.bincount(sample.window, minlength=len(sample.starts))
    failed = np.bincount(sample.window, ~sample.ok, minlength=len(sample.starts))
    return [float(f / n) for f, n in zip(failed, sent, strict=True) if n]
