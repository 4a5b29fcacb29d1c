"""The most background: which amount is named, and where the sequence of tests ends."""

from dataclasses import replace

from frontier.core.model.decisions import Decision, Verdict
from frontier.core.model.shapes import Background, Shape
from frontier.planning.most_background import MostBackground, most_background
from frontier.show.view.background_view import background_note
from tests.kit.toy import toy_decision, toy_points

CHAT, BATCH = Shape.of(512, 256), Shape.of(8192, 512)
MEETS, NOT, OPEN = Verdict.MEETS, Verdict.VIOLATES, Verdict.UNPROVEN


def beside(streams: int) -> Shape:
    return replace(CHAT, name=f"chat background {streams}", background=Background(BATCH, streams))


def decided(streams: int, verdict: Verdict, deployment: str = "default") -> Decision:
    decision = toy_decision(toy_points((32,), shape=beside(streams), deployment=deployment))
    return replace(decision, verdict=verdict, load=32 if verdict is MEETS else None)


def answer(amounts: tuple[int, ...] = (0, 8, 16, 32), **of: Verdict) -> MostBackground:
    decisions = [decided(int(name[1:]), verdict) for name, verdict in of.items()]
    (found,) = most_background(decisions, [beside(amount) for amount in amounts])
    return found


def test_it_is_the_highest_amount_up_to_which_every_one_is_proven() -> None:
    found = answer(_0=MEETS, _8=MEETS, _16=NOT, _32=NOT)
    assert (8, 16) == (found.most, found.ends and found.ends[0])
    assert "8 of 8192/512" in background_note(found)


def test_an_amount_above_one_that_is_not_proven_is_not_named() -> None:
    assert 0 == answer(_0=MEETS, _8=OPEN, _16=MEETS, _32=NOT).most
    assert 0 == answer(_0=MEETS, _8=NOT, _16=MEETS, _32=MEETS).most


def test_an_amount_that_was_not_measured_ends_the_sequence() -> None:
    found = answer(_0=MEETS, _16=MEETS, _32=MEETS)
    assert (0, 8, None) == (found.most, found.missing, found.ends)
    assert "Beside 8 nothing" in background_note(found)


def test_without_a_proof_of_the_least_amount_there_is_none() -> None:
    found = answer(_0=NOT, _8=MEETS)
    assert found.most is None
    assert Verdict.VIOLATES is found.chosen.verdict
    assert "No background" in background_note(found)


def test_no_background_at_all_ends_a_command_as_the_first_amount_does_where_that_is_open() -> None:
    assert OPEN is answer(_0=MEETS, _8=OPEN, _16=NOT).deciding.verdict
    assert Verdict.INVALID is answer(_0=MEETS, _8=Verdict.INVALID).deciding.verdict
    assert MEETS is answer(_0=MEETS, _8=NOT).deciding.verdict
    assert MEETS is answer(_0=MEETS, _8=MEETS, _16=OPEN).deciding.verdict


def test_the_order_of_decisions_does_not_matter_and_deployments_are_apart() -> None:
    decisions = [decided(8, NOT), decided(0, MEETS), decided(8, MEETS, "b"), decided(0, MEETS, "b")]
    found = most_background(decisions, [beside(0), beside(8)])
    assert [("default", 0), ("b", 8)] == [(each.deployment, each.most) for each in found]


def test_no_shape_beside_a_background_has_no_answer() -> None:
    assert () == most_background([toy_decision(toy_points((32,), shape=CHAT))], [CHAT])
