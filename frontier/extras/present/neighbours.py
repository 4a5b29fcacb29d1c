"""The settings around an operating point, each with why it is or is not chosen."""

from frontier.core.model.decisions import Cause, Reason
from frontier.core.model.metrics import metric
from frontier.show.view.explain import sentence, words_of
from frontier.show.view.series_view import SeriesView
from frontier.show.view.wording import bound_text, interval_text, limit_value_text

HEADS = ("concurrency", "verdict", "deciding metric", "value", "bound", "limit", "why or why not")


def neighbours(view: SeriesView) -> list[tuple[str, ...]]:
    """A row for each setting around the operating point (or the candidate), by HEADS; empty for a
    single setting.
    """
    decision = view.decision
    reasons = decision.explanation.settings if decision is not None else ()
    places = [i for i, r in enumerate(reasons) if decision is not None and r.settings == (decision.shown,)]
    if decision is None or not places or len(decision.judgements) < 2:
        return []
    words = {each.load: each.words for each in view.settings}
    around = reasons[max(0, places[0] - 2) : places[0] + 4]
    return [_neighbour(reason, words.get(reason.settings[0], "not proven")) for reason in around]


def _neighbour(reason: Reason, verdict: str) -> tuple[str, ...]:
    """One setting: its verdict, the metric that decides with its value, and why it is or is not
    chosen.
    """
    name, estimate, limit = reason.metric, reason.estimate, reason.limit
    name = limit.metric if limit else name
    bound = interval_text(name, estimate) if name and estimate and not limit else "–"
    return (
        reason.settings[0].label,
        verdict,
        metric(name).label if name else "–",
        words_of(reason)["value"],
        bound_text(estimate, limit) if estimate and limit else bound or "not known",
        limit_value_text(limit.metric, limit.promise) if limit else "–",
        "chosen" if reason.cause is Cause.CHOSEN else sentence(reason),
    )
