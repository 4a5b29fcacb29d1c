"""People and replicas on a terminal and as JSON: the answer of `frontier users`."""

from collections.abc import Sequence
from typing import Any

from rich.padding import Padding
from rich.text import Text

from frontier.decide.knobs import knob_sentence
from frontier.decide.users import Users
from frontier.decide.wording import count, setting
from frontier.report.json_out import number, tree_of
from frontier.report.tables import text_grid, to_text
from frontier.units import format_number, format_seconds, trimmed

USERS_SCHEMA = "frontier.users/1"


def users_text(answers: Sequence[Users], *, width: int = 100, colour: bool = False) -> str:
    """Each operating point: people per replica, replicas, what they cost, and what is assumed."""
    return "\n\n".join(_users(each, width, colour) for each in answers)


def _users(users: Users, width: int, colour: bool) -> str:
    """One answer as lines."""
    name, think = users.decision.series.label(longest=40), trimmed_seconds(users.think)
    if not users.one.people:
        head = f"No head count is safe: bunched arrivals may break the SLA with one person alone   {name}"
        why = "The limits are close to what the closed loop gives. This proves a rate:  frontier verify --find"
        return to_text(Text(head, style="bold yellow"), Text(why), width=width, colour=colour)
    head = f"{people_words(users.one.people)} per replica, each asking again {think} after an answer"
    lines = [basis_sentence(users), f"On each replica {knob_sentence(users.decision.engine, _cap(users))}.",
             f"Assumed: {'; '.join(assumed(users))}."]  # fmt: skip
    return to_text(
        Text.assemble((head, "bold green"), f"   {name}"), Padding(text_grid(_rows(users)), (0, 0, 0, 2)),
        *map(Text, lines), width=width, colour=colour,
    )  # fmt: skip


def people_words(number: int) -> str:
    """'1 person', '5,000 people'."""
    return f"{number:,} {'person' if number == 1 else 'people'}"


def trimmed_seconds(seconds: float) -> str:
    """'45 s' rather than '45.0 s'."""
    value, _, unit = format_seconds(seconds).partition(" ")
    return f"{trimmed(value)} {unit}"


def _cap(users: Users) -> int:
    assert users.decision.concurrency is not None
    return users.decision.concurrency


def _rows(users: Users) -> list[tuple[str, str]]:
    """The figures of an answer, by name."""
    rows, fleet = [], users.fleet
    if fleet is not None and users.people is not None:
        rows.append(
            (people_words(users.people), f"{count(fleet.replicas, 'replica')}{_with_spare(users, fleet.replicas)}")
        )
        sticky = -(-users.people // users.one.people)
        if sticky > fleet.replicas:
            rows.append(("sticking", f"{_with_spare(users, sticky)}, where each person stays on one replica"))
        rows.append(("head-room", f"{share_words(headroom(users))}: up to {fleet.people:,} on {fleet.replicas:,}"))
    shown = fleet or users.one
    in_flight, rate = (trimmed(format_number(value)) for value in (shown.in_flight, shown.rate))
    load = f"{in_flight} in flight on average, {rate} requests/s"
    if shown.waiting is not None:
        load += f"; {share_words(shown.waiting)} of requests wait for a slot"
    rows.append(("each replica", load))
    if users.cost is not None:
        person = users.cost / (users.people or users.one.people)
        rows.append(
            ("cost", f"${users.cost:,.2f}/h for {count(users.replicas, 'replica')}, ${person:.3g} a person and hour")
        )
    return rows


def _with_spare(users: Users, needed: int) -> str:
    """'9 replicas; 10 to run, so that 1 may be down'."""
    more = f"; {needed + users.spare:,} to run, so that {users.spare} may be down" if users.spare else ""
    return f"{count(needed, 'replica')}{more}"


def share_words(share: float) -> str:
    """'0.52%', '5.5%', '16%'."""
    return f"{share:.0%}" if share >= 0.1 else f"{100 * share:.2g}%"


def headroom(users: Users) -> float:
    """How many more people the replicas serve than asked for, as a share, with the spare ones down."""
    assert users.fleet is not None
    assert users.people is not None
    return users.fleet.people / users.people - 1


def basis_sentence(users: Users) -> str:
    """What the head count stands on."""
    if users.verified is not None:
        rate = trimmed(format_number(users.verified.rate))
        return f"By the {rate} requests/s of independent users that are proven on one replica."
    return (
        f"An estimate from the closed loop, with {setting(_cap(users))} proven; frontier verify --find proves a rate, "
        "and this command then counts by it."
    )


def assumed(users: Users) -> list[str]:
    """What the answer holds for."""
    alone = [
        "people act independently of each other (no rush)",
        f"think times are exponential or lognormal with a mean of {trimmed_seconds(users.think)}",
        f"{users.decision.shape.label} alone, with prompts that meet no cache",
    ]
    if (users.fleet or users.one).replicas == 1:
        return alone
    if users.verified is not None:
        return [*alone, "a router that gives each replica the same share"]
    return [*alone, "a router that sends each request to the replica with the fewest in flight"]


def users_json(answers: Sequence[Users]) -> dict[str, Any]:
    """The answer of `frontier users --json`."""
    return {"schema": USERS_SCHEMA, "shapes": [_users_json(each) for each in answers]}


def _users_json(users: Users) -> dict[str, Any]:
    """One answer."""
    decision = users.decision
    return {
        "deployment": decision.deployment,
        "shape": decision.shape.label,
        "concurrency": decision.concurrency,
        "limits": tree_of(decision.limits),
        "think": users.think,
        "basis": "closed_loop" if users.verified is None else "verified_rate",
        "per_replica": tree_of(users.one),
        "people": users.people,
        "replicas": users.replicas if users.one.people else None,
        "spare": users.spare,
        "fleet": tree_of(users.fleet),
        "headroom": None if users.fleet is None else number(headroom(users)),
        "cost_per_hour": users.cost,
        "engine": decision.engine,
        "set": knob_sentence(decision.engine, _cap(users)),
        "assumed": assumed(users),
    }
