"""Completion: what to measure once the operating point is known, in the order of its value; pure, as the search.

The answer comes first (`search`); what is left of the time goes to visits of the operating point, by which its claim
covers more of the night; to candidates that may give more; to the settings of the config that were only scanned; and to
the gaps of the frontier between them.
"""

import math
from collections.abc import Mapping, Sequence

from frontier.decide import operating_point, search
from frontier.decide.claim import claim_of, proof_windows
from frontier.decide.proof import (
    PROOFS,
    WINDOWS,
    History,
    claim_points,
    joined,
    nearest,
    pilot_point,
    violation,
    window_size,
)
from frontier.decide.search import Ask, Done, SearchPolicy, between, longer, settings_beyond, widest_gap
from frontier.model import Limit, Phase, Point, Shape

FRONTIER_SETTINGS = 4
"""Settings between those of the config that are measured for the frontier, where the config does not say."""
VISIT_TURNS, VISIT_SECONDS = 30, 120.0
"""A visit lasts this many turns of the operating point, or this long."""
MOST_TURNS = 600
"""A claim that is not final after twice the turns of a p99 stays early: something rare is there that more may not rule
out soon."""
GRID_SECONDS = 60.0
"""A setting of the config is measured for this long, where the config does not say; its claim may need less."""
LATER_WORTH = 0.001
"""The share of throughput for which one more window of a proof is measured once there is an answer."""


def next_ask(
    policy: SearchPolicy, shape: Shape, tiers: Sequence[tuple[str, Sequence[Limit]]], history: History
) -> Ask | Done:
    """The next trial that completes the frontier of one series; Done when there is none. The same history gives the
    same trial. Without limits only the frontier is completed.

    Visits and other trials take turns, so that the visits are spread over the time that the rest takes.
    """
    limits = tuple(tiers[0][1]) if tiers else ()
    rest = _rest(policy, shape, tiers, limits, history)
    visit = next_visit(limits, history) if limits else None
    if visit is not None and (rest is None or _visit_is_due(history)):
        return visit
    return rest or Done("the frontier is complete")


def _visit_is_due(history: History) -> bool:
    """Whether the last trial was no visit."""
    return bool(history) and history[-1][0].phase is not Phase.VISIT


def operating_concurrency(limits: tuple[Limit, ...], history: History) -> int | None:
    """The operating point by what may be claimed so far; None where there is none."""
    names = ("output_throughput", *(limit.metric for limit in limits))
    points = claim_points(history, limits, names=names)
    return operating_point.solve(points, limits).concurrency if points else None


def next_visit(limits: tuple[Limit, ...], history: History) -> Ask | None:
    """Another visit of the operating point, until its claim is final."""
    c = operating_concurrency(limits, history)
    if c is None:
        return None
    claim = claim_of(proof_windows(history, c), limits)
    if claim is None or claim.stage == "final" or claim.turns >= MOST_TURNS:
        return None
    reason = f"the claim of c={c} covers {claim.turns} turns; visiting it again"
    seconds = longer(VISIT_SECONDS, c, _points(limits, history))
    return Ask(c, Phase.VISIT, VISIT_TURNS * c, reason, seconds)


def _rest(
    policy: SearchPolicy, shape: Shape, tiers: Sequence[tuple[str, Sequence[Limit]]], limits: tuple[Limit, ...],
    history: History,
) -> Ask | None:  # fmt: skip
    if limits:
        better = search.next_ask(policy, shape, tiers, history, window_worth=LATER_WORTH)
        if isinstance(better, Ask):
            return better
    return _setting(policy, limits, history) or _gap(policy, limits, history)


def _setting(policy: SearchPolicy, limits: tuple[Limit, ...], history: History) -> Ask | None:
    """A setting of the config that was only scanned or not seen, the one next to the SLA's edge first."""
    measured = {trial.concurrency for trial, _ in history if trial.phase in (*PROOFS, Phase.GRID)}
    left = [c for c in policy.grid if c not in measured]
    if not left:
        return None
    edge = _edge(limits, history) or max(policy.grid)
    c = min(left, key=lambda c: (abs(math.log(c / edge)), c))
    requests = policy.requests or (
        WINDOWS * window_size(nearest(joined(history, tuple(Phase)), c), limits, c) if limits else 20 * c
    )
    seconds = None if policy.requests else longer(GRID_SECONDS, c, _points(limits, history))
    return Ask(c, Phase.GRID, requests, f"c={c} is a setting of the config", seconds)


def _edge(limits: tuple[Limit, ...], history: History) -> int | None:
    points = _points(limits, history)
    inside = [c for c, p in points.items() if (x := violation(p, limits)) is not None and x <= 0]
    return max(inside, default=None)


def _points(limits: tuple[Limit, ...], history: History) -> Mapping[int, Point]:
    return {c: pilot_point(sample, limits) for c, sample in joined(history, tuple(Phase)).items()}


def _gap(policy: SearchPolicy, limits: tuple[Limit, ...], history: History) -> Ask | None:
    """A setting where the frontier is least known, while settings beyond the config's are left."""
    if policy.refine is None:
        room = len({t.concurrency for t, _ in history if t.phase is Phase.FRONTIER}) < FRONTIER_SETTINGS
    else:
        room = len(settings_beyond(policy, history)) < policy.refine
    gap = widest_gap(_points(limits, history), limits) if room else None
    if gap is None:
        return None
    low, high = gap
    c = between(low, high)
    reason = f"the frontier is widest between c={low} and c={high}"
    requests = policy.requests or 20 * c
    seconds = None if policy.requests else longer(GRID_SECONDS, c, _points(limits, history))
    return Ask(c, Phase.FRONTIER, requests, reason, seconds)
