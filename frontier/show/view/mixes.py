"""The classes of a mix: the share of the load that each is, and how each meets its own limits."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from frontier.core.model.decisions import Decision, Verdict, worst
from frontier.core.model.groups import by_key
from frontier.core.model.metrics import metric
from frontier.core.model.points import Estimate
from frontier.core.model.shapes import Shape


@dataclass(frozen=True, slots=True)
class ClassShares:
    """A class's share of the sessions started, of the requests, and of the time in flight (None:
    unknown).
    """

    started: float
    requests: float
    in_flight: float | None


def class_shares(shape: Shape, metrics: Mapping[str, Estimate]) -> dict[str, ClassShares]:
    """The measured shares of each class of a mix; empty for other shapes."""
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
    """How each class meets the limits on its requests at the decision's setting; classes without a
    limit are left out.
    """
    judged = decision.judgement(decision.shown)
    verdicts = {} if judged is None else judged.per_metric
    of_class = by_key(((metric(name).group or "").partition(".")[0], verdict) for name, verdict in verdicts.items())
    return {each.name: worst(of_class[each.name]) for each in decision.shape.mix if each.name in of_class}


def _percent(share: float) -> str:
    """'14.2%', as a config has a share."""
    return f"{share * 100:.3g}%"
