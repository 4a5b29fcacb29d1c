"""Tokens found in the prefix cache and tokens drafted, as servers count them."""

from collections.abc import Callable, Sequence

from frontier.core.model.units import format_number, format_share
from frontier.core.window.window import WindowData

Watched = tuple[str, Callable[[WindowData], float | None], Callable[[float], str]]
"""One column of evidence: its head, the function that reads it from a window, and its format."""


def _cached(*samples: WindowData) -> float | None:
    """The share of prompt tokens that were found in the prefix cache."""
    return _of_totals("prefix_cache_hits_total", "prefix_cache_queries_total", samples)


def _per_step(*samples: WindowData) -> float | None:
    """Tokens per step and request under speculative decoding: the accepted drafts plus one."""
    accepted = _of_totals("spec_decode_num_accepted_tokens_total", "spec_decode_num_drafts_total", samples)
    return None if accepted is None else 1 + accepted


def _of_totals(part: str, whole: str, samples: Sequence[WindowData]) -> float | None:
    """One count of a server over another, each summed; None where one is missing or nothing was
    counted.
    """
    parts, wholes = ([m[name] for s in samples for m in s.server if name in m] for name in (part, whole))
    return sum(parts) / sum(wholes) if parts and sum(wholes) else None


FOUND_CACHED = ("prompt tokens found cached", _cached, format_share)
SPECULATED = ("tokens a step, speculating", _per_step, format_number)
