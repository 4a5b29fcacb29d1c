"""Shared concurrency: what to measure to prove one concurrency in all shapes of a deployment."""

import math
from collections.abc import Mapping, Sequence

from frontier.core.claim.changes import MOST_CHANGES, History, unchanged
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.loads import Concurrency, Load
from frontier.core.model.series import Series
from frontier.search.complete import window_of_proof
from frontier.search.next_trial import Ask
from frontier.search.place import LOWER
from frontier.search.series_history import SeriesHistory

SHARED = 3
"""The most concurrencies that are tried for one that all shapes share."""


def next_shared(
    tiers: Sequence[tuple[str, Sequence[Limit]]], histories: Mapping[Series, History]
) -> tuple[Series, Ask] | None:
    """The next window that proves one concurrency in all of these series of one deployment, whose
    server has one limit on requests in flight.

    Of each SLA the lowest of the operating points is proven in all series, and so is the lowest of
    all SLAs. None where that is done, where a series has no operating point, or where the server
    keeps changing.
    """
    limited = [tuple(limits) for _, limits in tiers if limits]
    if any(len(unchanged(h, limited[0]).changes) >= MOST_CHANGES for h in histories.values() if limited):
        return None
    lowest: dict[tuple[Limit, ...], Load] = {}
    for limits in limited:
        points = [SeriesHistory.of(limits, history).operating_point for history in histories.values()]
        known = [c for c in points if c is not None]
        if not known or len(known) < len(points):
            return None
        lowest[limits] = min(known)
    if len(histories) * len(limited) < 2:
        return None
    wanted = dict.fromkeys([*lowest.items(), *((limits, min(lowest.values())) for limits in limited)])
    asks = (_to_share(c, limits, histories) for limits, c in wanted)
    return next((ask for ask in asks if ask is not None), None)


def _to_share(c: Load, limits: tuple[Limit, ...], histories: Mapping[Series, History]) -> tuple[Series, Ask] | None:
    """The next window of a proof of this concurrency in every series; None when it is proven in
    all. Where it was given up in one series, a lower concurrency is tried, SHARED of them at most.
    """
    for _ in range(SHARED):
        standing = {series: SeriesHistory.of(limits, history).stands(c) for series, history in histories.items()}
        if Verdict.VIOLATES not in standing.values():
            left = next((series for series, verdict in standing.items() if verdict is not Verdict.MEETS), None)
            reason = f"{c.label} is to be proven in every shape, as a server has one limit"
            if left is None:
                return None
            return left, window_of_proof(c, SeriesHistory.of(limits, histories[left]), reason)
        if c == 1:
            return None
        c = Concurrency(max(1, math.floor(LOWER * c)))
    return None
