"""Flags of the prefix cache: prompts that were known before, and histories that were read again.

One is about preempted requests, which count as found in the cache.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from frontier.core.model.points import Flag
from frontier.core.model.trials import CACHED_ANEW, REPEATED_PROMPTS, SHARE_ANEW
from frontier.core.model.units import format_share
from frontier.core.window.window import WindowData

CACHED = 0.02
"""Share of the prompt tokens read from a cache, beyond what the workload shares, that is worth a
flag."""
CACHE_BLOCK = 16
"""Tokens of a cache block of most engines."""
RECOMPUTED = 10.0
"""How many times all tokens of a preempted request may be counted as found: it is looked up again
at each step until it fits."""

OTHERS = 2.0
"""How many times our prompts' tokens the server looks up where others use it as well, and their
prompts decide what its counters say."""


def cache(sample: WindowData) -> Iterator[Flag]:
    """What the prompts of a window had from a cache, or lacked."""
    known = sample.ok & ~np.isnan(sample.cached_tokens) & (sample.prompt_tokens > 0)
    hits = queries = recomputed = 0.0
    if known.any():
        cached = float(sample.cached_tokens[known].sum() / sample.prompt_tokens[known].sum())
    else:
        hits, queries, recomputed = _by_counters(sample)
        cached = hits / queries if queries > 0 else 0.0
    expected, missed = sample.shape.prefix, 0.0
    turns = sample.ok & (sample.prompt_tokens > 0)
    if len(sample.reusable) and turns.any():
        reusable, prompts = np.nan_to_num(sample.reusable[turns]), float(sample.prompt_tokens[turns].sum())
        expected = float(reusable.sum()) / prompts
        # Reuse is in whole blocks, so that up to one block of each prompt is read again.
        missed = expected - CACHE_BLOCK * len(reusable) / prompts - cached
    counted = bool(known.any()) or queries > 0
    if counted and missed > CACHED:
        yield Flag(
            "history_read_again",
            f"{format_share(cached)} of prompt tokens came from the cache, {format_share(expected)} were known from "
            "earlier turns or the common beginning",
            format_share(cached + missed - CACHED),
            "the server has no prefix cache or drops what sessions said before their next turn (too little KV memory, "
            "or another replica answers); or its template or its own answers differ when they come back as history",
            fatal=False,
        )
    if not counted and any(REPEATED_PROMPTS in server for server in sample.server):
        yield Flag(
            "cache_contaminated",
            "the file's prompts come again, and the server does not say what a cache answered",
            "each prompt once",
            "TTFT may be of the cache: right if your users' prompts come again as often, else give more of them",
            fatal=False,
        )
    if cached - expected > CACHED and hits - expected * queries < recomputed:
        yield Flag(
            "recomputed",
            f"{format_share(cached)} of prompt tokens came from the cache by the server's counters, which rise as "
            "preempted requests are computed again",
            format_share(expected + CACHED),
            "no prompt was known before; a lower concurrency or more KV memory avoids preemptions",
            fatal=False,
        )
    elif cached - expected > CACHED:
        # Prompts of a user's file have no asked length; what they have in common belongs to the
        # load.
        of_trace = sample.shape.pairs is not None and sample.shape.pairs.block > 0
        of_user = of_trace or not (sample.asked_isl > 0).any()
        yield Flag(
            "cache_contaminated",
            f"{format_share(cached)} of prompt tokens came from the cache",
            f"{format_share(expected + CACHED)}",
            "the file's prompts begin alike, or come again: right if your users' do, else give more of them"
            if of_user
            else "restart the server or reset its prefix cache, and let each trial have fresh prompts",
            fatal=not of_user,
        )


def _by_counters(sample: WindowData) -> tuple[float, float, float]:
    """The prompt tokens that the server's counters found in the cache, beyond its template, those
    looked up, and how many of them may be of preempted requests. Nothing where a share of new
    prompts is called cached, as the counters call it so, too; nor where most prompts are others'.
    """
    if any(SHARE_ANEW in s for s in sample.server):
        return 0.0, 0.0, 0.0
    hits, queries, preempted = (
        sum(_counter(s, name) for s in sample.server)
        for name in ("prefix_cache_hits", "prefix_cache_queries", "num_preemptions")
    )
    known = sample.prompt_tokens[sample.prompt_tokens > 0]
    if len(known) and not preempted and queries > OTHERS * sample.n * float(known.mean()):
        return 0.0, 0.0, 0.0
    template = max((s.get(CACHED_ANEW, 0.0) for s in sample.server), default=0.0) * sample.n
    longest = float(np.nan_to_num(sample.prompt_tokens + sample.completion_tokens).max(initial=0.0))
    return max(0.0, hits - template), queries, RECOMPUTED * preempted * longest


def _counter(server: Mapping[str, float], name: str) -> float:
    """A server counter under its old or new name (Prometheus clients append _total)."""
    return server.get(f"{name}_total", server.get(name, 0.0))
