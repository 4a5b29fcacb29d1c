"""What is undecided: which setting may be a better answer though it is not proven, and why not."""

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from frontier.core.claim.verdict import inside, judge
from frontier.core.model.decisions import Cause, Decision, EndedEarly, Limit, NextStep, Reason, RejectedStep, Verdict
from frontier.core.model.loads import Load
from frontier.core.model.metrics import APART
from frontier.core.model.points import Flag, Point

CLEARLY_MORE = 0.10
"""The gain in throughput from which an undecided higher setting is named in the headline."""
OPEN = (Verdict.MARGINAL, Verdict.UNPROVEN)
UNDECIDED = (
    Cause.STALE,
    Cause.DOUBTED,
    Cause.CROSSES,
    Cause.TOO_FEW,
    Cause.NO_INTERVAL,
    Cause.SCANNED,
)
"""Why a setting is neither within nor over its limit."""
PASSING = frozenset(
    {
        "lockstep",
        "non_stationary",
        "under_concurrency",
        "over_concurrency",
        "littles_law",
        "client_bound",
        "resent",
        "too_few_connections",
        "too_few_samples",
        "server_lost",
        "server_restarted",
        "cut_off",
    }
)
"""Flags that may be gone when a setting is measured again, and that leave its values some meaning.
"""


def widened(point: Point | None) -> tuple[Flag, ...]:
    """The flag of a busy client that widened the bounds of a setting."""
    return tuple(flag for flag in point.flags if flag.name == "client_bound" and not flag.fatal) if point else ()


def may_pass(fatal: Iterable[Flag]) -> bool:
    """Whether all fatal flags may be gone next time and leave the values some meaning."""
    return all(flag.name in PASSING for flag in fatal)


def requests_to_decide(point: Point, limits: Sequence[Limit]) -> int | None:
    """How many requests would decide a setting: `Judgement.need`. An excluded setting is judged as
    if it had no flags. If that decides it, it needs as many requests as it had; None where it had
    none.
    """
    judged = judge(dataclasses.replace(point, flags=()), limits)
    return judged.need if judged.verdict in OPEN else point.n or None


def next_step(
    decision: Decision,
    points: Mapping[Load, Point],
    settings: Sequence[Reason],
    unworthy: Collection[int],
    preferred: Mapping[Load, RejectedStep],
) -> NextStep | None:
    """The unproven setting that is worth deciding next; None without one.

    It lies below every violation, its values keep every limit, and it would give clearly more
    throughput than the operating point, or is `preferred` to it for its tail. Settings that
    can be decided come first. Then, without an operating point: valid settings, those whose proof
    was begun, and the one closest to being decided. With one: those with the most throughput. A
    setting that was given up cannot be decided; more requests do not decide one that depends on
    what is measured apart.
    """
    below = decision.first_fail if decision.first_fail is not None else math.inf
    steps = []
    for reason in settings:
        (c,) = reason.settings
        point, step = points.get(c), preferred.get(c)
        above = c >= below and c != decision.candidate
        if point is None or reason.cause not in (*UNDECIDED, Cause.EXCLUDED) or above or reason.metric in APART:
            continue
        gains = step is not None or (c not in unworthy and (reason.gain or 0.0) >= CLEARLY_MORE)
        worth = decision.load is None or gains
        if not (worth and inside(point, decision.limits) and may_pass(point.fatal)):
            continue
        requests = None if reason.cut == EndedEarly("given_up") else requests_to_decide(point, decision.limits)
        busy = widened(point) if reason.cause is Cause.CROSSES or requests is None else ()
        speed = point.value("output_throughput")
        throughput = speed if math.isfinite(speed) else None
        steps.append(NextStep(c, reason.gain, throughput, point.fatal, requests, widened=busy, tail=_tail(step)))
    return max(steps, default=None, key=lambda step: _order(step, points, settings, decision.load))


def _order(
    step: NextStep, points: Mapping[Load, Point], settings: Sequence[Reason], chosen: int | None
) -> tuple[bool, bool, bool, float, float]:
    """What of two next steps the greater one is the first for."""
    begun = any(reason.settings == (step.load,) and reason.cut is not None for reason in settings)
    return (
        step.requests is not None,
        chosen is not None or not step.flags,
        chosen is not None or begun,
        step.gain or -(step.requests or 0) / max(1, points[step.load].n),
        step.throughput or 0.0,
    )


def _tail(step: RejectedStep | None) -> tuple[str, float] | None:
    """The tail of the lower setting of a step, as a share of that of the higher one."""
    return None if step is None else (step.metric, 1 / step.cost)
