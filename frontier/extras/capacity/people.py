"""People and replicas on a terminal and as JSON: the answer of `frontier users`."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from frontier.core.model.units import format_number, trimmed
from frontier.extras.capacity.head_count import Users
from frontier.planning.sla_result import decided_on_values
from frontier.show.answer import decision_table
from frontier.show.table import Table, indented, to_text
from frontier.show.verbosity import Detail
from frontier.show.view.answer_view import answer_view
from frontier.show.view.json_out import tree_of
from frontier.show.view.limit_lines import knob_sentence
from frontier.show.view.sentences import claim_sentence
from frontier.show.view.wording import count, limit_value_text, value_text

USERS_SCHEMA = "frontier.users/1"


def users_text(
    answers: Sequence[Users], *, detail: Detail = Detail.USUAL, width: int = 100, colour: bool = False
) -> str:
    """Each operating point: people per replica, replicas, their cost, and the assumptions. Where
    all is asked for, also the operating point itself.
    """
    return "\n\n".join(_users(each, detail, width, colour) for each in answers)


def _users(users: Users, detail: Detail, width: int, colour: bool) -> str:
    """One answer as lines."""
    name = users.decision.series.label(longest=40)
    if not users.one.people:
        head = f"No head count is safe: requests at random may break the SLA with one person alone   {name}"
        why = "The limits are close to what the closed loop gives. This looks for a rate:  frontier verify --find"
        return to_text(Text(head, style="bold yellow"), Text(why), width=width, colour=colour)
    head = f"{about_people(users.one.people)} per replica, each asking again {_time(users.think)} after an answer"
    claim = users.decision.claim
    early = [f"Confidence {claim_sentence(users.decision)}"] if claim is not None and claim.stage == "early" else []
    limit = f"On each replica {knob_sentence(users.decision.engine, users.cap, users.decision.ranks)}."
    lines = [_basis(users), *early, limit, people_assumed(users)] if detail >= Detail.USUAL else [_basis(users), limit]
    if detail is Detail.ALL:
        lines += [*([f"Confidence {claim_sentence(users.decision)}"] if not early else []), "The operating point:"]
        lines.append(decision_table([answer_view(users.decision)], detail=Detail.ANSWER, width=width))
    return to_text(
        Text.assemble((head, "bold green"), f"   {name}"),
        indented(Table.of((), _rows(users)).drawn(width)),
        *map(Text, lines),
        width=width,
        colour=colour,
    )


def _rows(users: Users) -> list[tuple[str, str]]:
    """The figures of an answer, by name."""
    rows, fleet, shown = [], users.fleet, users.fleet or users.one
    if fleet is not None and users.people is not None:
        rows.append((_people(users.people), _replicas(fleet.replicas, users.spare)))
        if (alone := users.sticky or 0) > fleet.replicas:
            rows.append(("if each stays on one", _replicas(alone, users.spare)))
        rows.append(("headroom", f"{fleet.people / users.people - 1:.0%} on {count(fleet.replicas, 'replica')}"))
    load = f"{trimmed(format_number(shown.in_flight))} in flight, {_rate(shown.rate)}"
    waits = "" if shown.waiting is None else f"; {_share(shown.waiting)} wait for a slot"
    rows.append(("a full replica", load + waits))  # with all the people that it serves at most
    if users.cost is not None:
        person = users.cost / (users.people or users.one.people)
        total = f"${users.cost:,.2f}/h for {count(users.replicas, 'replica')}"
        rows.append(("cost", f"{total}, ${person:.3g} a person and hour"))
    return rows


def _people(number: int) -> str:
    """'1 person', '5,000 people'."""
    return f"{number:,} {'person' if number == 1 else 'people'}"


def about_people(number: int) -> str:
    """'about 5,700 people': an estimate, rounded down to two digits."""
    scale = 10 ** max(0, len(str(number)) - 2)
    return _people(number) if scale == 1 else f"about {_people(number // scale * scale)}"


def _time(seconds: float) -> str:
    return limit_value_text("mean_e2e", seconds)


def _share(share: float) -> str:
    """'42.1%', or that it is hardly any."""
    return value_text("error_rate", share) if share >= 0.001 else "under 0.1%"


def _rate(rate: float) -> str:
    """'9.5 requests/s'."""
    return f"{trimmed(format_number(rate))} requests/s"


def _replicas(needed: int, spare: int) -> str:
    """'9 replicas, 10 with one spare'."""
    more = f", {needed + spare:,} with {'one spare' if spare == 1 else f'{spare} spares'}" if spare else ""
    return f"{count(needed, 'replica')}{more}"


def _basis(users: Users) -> str:
    """The basis of the head count."""
    if users.verified is not None:
        return f"By the {_rate(users.verified.rate)} of independent users that are proven on one replica."
    how = "by values alone" if decided_on_values(users.decision) else "proven"
    estimate = f"Closed-loop estimate with {users.cap.label} {how}"
    return f"{estimate}; to measure it:  frontier verify --find"


def people_assumed(users: Users, shape: str = "") -> str:
    """The assumptions of the answer as a sentence, where `shape` is the name of its shape."""
    return f"Assumed: {'; '.join(_assumed(users, shape))}."


def _assumed(users: Users, shape: str = "") -> list[str]:
    """The assumptions of the answer."""
    alone = [
        "people act independently of each other (no rush)",
        f"think times are exponential or lognormal with a mean of {_time(users.think)}",
        f"{shape or users.decision.shape.label} alone, with prompts that meet no cache",
    ]
    if (users.fleet or users.one).replicas == 1:
        return alone
    fewest = "a router that sends each request to the replica with the fewest in flight"
    return [*alone, fewest if users.verified is None else "a router that gives each replica the same share"]


def users_json(answers: Sequence[Users]) -> dict[str, Any]:
    """The answer of `frontier users --json`."""
    return {"schema": USERS_SCHEMA, "shapes": [_users_json(each) for each in answers]}


def _users_json(users: Users) -> dict[str, Any]:
    """One answer."""
    decision = users.decision
    return {
        **{name: tree_of(getattr(decision, name)) for name in ("deployment", "shape", "concurrency", "limits")},
        **{name: tree_of(getattr(users, name)) for name in ("think", "one", "people", "fleet", "replicas", "spare")},
        "sticky_replicas": users.sticky,
        "cost_per_hour": users.cost,
        "basis": "closed_loop" if users.verified is None else "verified_rate",
        "engine": decision.engine,
        "set": knob_sentence(decision.engine, users.cap, decision.ranks),
        "assumed": _assumed(users),
    }
