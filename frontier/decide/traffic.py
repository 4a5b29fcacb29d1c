"""The classes of a mix: how much of the load each is, and from which share of one class another
breaks its limits."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from frontier.metrics import metric
from frontier.model import Decision, Estimate, Judgement, Shape, Verdict, worst


@dataclass(frozen=True, slots=True)
class ClassShares:
    """A class's share of the sessions that are started, of the requests, and of the time in flight
    (None: unknown).
    """

    started: float
    requests: float
    in_flight: float | None


def class_shares(shape: Shape, metrics: Mapping[str, Estimate]) -> dict[str, ClassShares]:
    """The shares of each class of a mix, by what was measured; none of other shapes."""
    measured = {each.name: metrics.get(f"{each.name}.mean_e2e") for each in shape.mix}
    counts = {name: 0 if e2e is None else e2e.n for name, e2e in measured.items()}
    seconds = {name: 0.0 if e2e is None else e2e.n * e2e.value for name, e2e in measured.items()}
    requests, busy = sum(counts.values()), sum(seconds.values())
    known = 0 < busy < math.inf
    return {
        c.name: ClassShares(c.share, counts[c.name] / requests, seconds[c.name] / busy if known else None)
        for c in shape.mix
        if requests
    }


def shares_sentence(shape: Shape, metrics: Mapping[str, Estimate]) -> str:
    """The shares in words: 'chat: 70% of sessions, 70% of requests, 41% of requests in flight; rag:
    ...'.
    """
    parts = []
    for name, share in class_shares(shape, metrics).items():
        part = f"{name}: {_percent(share.started)} of sessions started, {_percent(share.requests)} of requests"
        parts.append(part if share.in_flight is None else f"{part}, {_percent(share.in_flight)} of those in flight")
    return f"{'; '.join(parts)}." if parts else ""


def class_verdicts(decision: Decision) -> dict[str, Verdict]:
    """How each class stands at the decision's setting, by the limits on its requests; classes
    without one left out.
    """
    judged = decision.judgement(decision.shown)
    of_class: dict[str, list[Verdict]] = {}
    for name, verdict in ({} if judged is None else judged.per_metric).items():
        of_class.setdefault((metric(name).group or "").partition(".")[0], []).append(verdict)
    return {each.name: worst(of_class[each.name]) for each in decision.shape.mix if each.name in of_class}


@dataclass(frozen=True, slots=True)
class ShareBreak:
    """At `concurrency`, all limits are proven with shares of the class `varied` up to `kept`; with
    `broken` the limit on `metric` is violated, at `violated_at` in flight already. None: no share
    of the sweep violates it.
    """

    deployment: str
    varied: str
    concurrency: int
    kept: float
    broken: float | None = None
    violated_at: int | None = None
    metric: str | None = None


def _percent(share: float) -> str:
    """'14.2%', as a config has a share."""
    return f"{share * 100:.3g}%"


def share_breaks(decisions: Sequence[Decision]) -> list[ShareBreak]:
    """For each deployment on which the share of a class was swept: at the operating point of the
    lowest share, between which shares the limits break. Nothing lies between the two but what was
    not measured, or is not proven.
    """
    breaks = []
    for deployment in dict.fromkeys(d.deployment for d in decisions):
        mine = [d for d in decisions if d.deployment == deployment]
        varied = varied_class([d.shape for d in mine])
        if varied is not None and (concurrency := mine[0].concurrency) is not None:
            by_share = [(share_of(varied, d.shape), d) for d in mine]
            breaks.append(_break(deployment, varied, concurrency, by_share))
    return breaks


def varied_class(shapes: Sequence[Shape]) -> str | None:
    """The class whose share was swept: that which rises from mix to mix. None where these are no
    such sweep.
    """
    names = {tuple(each.name for each in shape.mix) for shape in shapes}
    if len(names) != 1 or len(shapes) < 2:
        return None
    rising = (
        name for name in next(iter(names)) if all(share_of(name, a) < share_of(name, b) for a, b in pairwise(shapes))
    )
    return next(rising, None)


def share_of(name: str, mix: Shape) -> float:
    """The share of a class of a mix."""
    return next(each.share for each in mix.mix if each.name == name)


def _break(deployment: str, varied: str, concurrency: int, by_share: Sequence[tuple[float, Decision]]) -> ShareBreak:
    kept = by_share[0][0]
    for share, decision in by_share:
        violated = lowest_violation(decision)
        if violated is not None and violated.concurrency <= concurrency:
            at, which = violated.concurrency, violated.violated
            return ShareBreak(deployment, varied, concurrency, kept, share, at, which)
        judged = decision.judgement(concurrency)
        proven = decision.concurrency is not None and judged is not None and judged.verdict is Verdict.MEETS
        kept = share if proven else kept
    return ShareBreak(deployment, varied, concurrency, kept)


def lowest_violation(decision: Decision) -> Judgement | None:
    """The judgement of the lowest setting that violates a limit, and is not contradicted by a
    higher proven one.
    """
    violating = [j for j in decision.judgements if j.verdict is Verdict.VIOLATES]
    counted = [j for j in violating if j.concurrency not in decision.unconfirmed]
    return min(counted, key=lambda j: j.concurrency, default=None)


def break_sentence(found: ShareBreak) -> str:
    """The shares between which the limits break, in words."""
    if found.broken is None:
        return break_evidence(found)
    between = f"between {_percent(found.kept)} and {_percent(found.broken)}"
    return f"{break_evidence(found)} So the share at which it breaks is {between}."


def break_evidence(found: ShareBreak) -> str:
    """What is proven and what is violated."""
    at = f"At concurrency {found.concurrency} every limit is proven with {_percent(found.kept)} {found.varied}"
    if found.broken is None:
        return f"{at}; no higher share of the sweep is known to break one."
    broken = metric(found.metric).label if found.metric is not None else "a limit"
    where = "" if found.violated_at == found.concurrency else f", at concurrency {found.violated_at} already"
    return f"{at}; with {_percent(found.broken)} {broken} is violated{where}."


def break_title(found: ShareBreak) -> str:
    """The same in a few words, for the title of a picture."""
    if found.broken is None:
        kept = f"{_percent(found.kept)} {found.varied}"
        return f"At concurrency {found.concurrency} every class keeps its limits with {kept}"
    group = metric(found.metric).group if found.metric is not None else None
    which = f"{group} breaks its limits" if group is not None else "the limits break"
    between = f"between {_percent(found.kept)} and {_percent(found.broken)} {found.varied}"
    return f"At concurrency {found.concurrency} {which} {between}"
