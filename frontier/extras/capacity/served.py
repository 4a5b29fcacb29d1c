"""The people that a run's operating point serves, by the rate that was proven or the closed
loop."""

from frontier import registry
from frontier.core.model.decisions import Decision
from frontier.core.model.errors import UsageError
from frontier.extras.capacity.head_count import Users, Verified, users
from frontier.extras.capacity.people import about_people, people_assumed
from frontier.planning.arrivals import replica_of
from frontier.run import Run
from frontier.store.run_dir import RunDirectory


def served(run: Run, decision: Decision, think: float, people: int | None = None, spare: int = 0) -> Users:
    """The answer for one operating point. UsageError where people cannot be counted."""
    return users(
        decision,
        replica_of(decision, *run.measured(decision)),
        think,
        people=people,
        spare=spare,
        verified=_verified(run, decision),
        price=run.config.deployment(decision.deployment).price,
    )


def _verified(run: Run, decision: Decision) -> Verified | None:
    """The rate that `verify --find` proved of this operating point; None where there is none."""
    checked = not run.is_imported and RunDirectory.read_checks(run.path).finished()
    rates_found = registry.FOUND_RATES.find() if checked else None
    for found in rates_found(run, decision.limits) if rates_found is not None else ():
        e2e = found.point.metrics.get("mean_e2e") if found.point is not None else None
        if found.decision.series == decision.series and found.done.proven is not None and e2e is not None:
            return Verified(found.done.proven, e2e.value)
    return None


def require_in_flight(decision: Decision) -> None:
    """UsageError where a decision is not of requests in flight alone."""
    if decision.shape.arrivals is not None:
        what = "people are counted from requests in flight, and this run proved a rate of arrivals"
        raise UsageError(what, "sweep with  concurrency: 1..128; replicas are peak rate / proven rate")
    if decision.shape.background is not None:
        what = "people are counted of a shape alone, and this run proved one beside a background"
        raise UsageError(what, "sweep a copy of its config without  background:")


def people_words(run: Run, decision: Decision, think: float) -> tuple[str, str] | None:
    """'about 5,700 people', and how that was counted; None where they cannot be."""
    try:
        require_in_flight(decision)
        answer = served(run, decision, think)
    except UsageError:
        return None
    safe = about_people(answer.one.people) if answer.one.people else "none safely"
    how = "are an estimate from the closed loop; frontier verify --find measures a rate"
    if answer.verified is not None:
        how = "follow from the rate of independent users that frontier verify --find proved"
    return safe, f"People {how}. {people_assumed(answer, 'each shape')}"
