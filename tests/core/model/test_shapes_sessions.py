"""Session plans: what each session of a trial sends follows from the seed; a shape's own figures
are their means."""

import random
import statistics

import pytest

from frontier.client.load.session_plans import left_out, plan_session
from frontier.core.model.length_pairs import LengthTable
from frontier.core.model.session_table import SessionFile, SessionTurn
from frontier.core.model.shapes import Lengths, Session, Shape
from frontier.extras.workload.session_files import shape_of

AGENT = Shape.of_session(
    Session(Lengths.fixed(8), Lengths.fixed(8192), Lengths.fixed(400), think=10.0), Lengths.fixed(300), "agent", 0.25
)
VARIED = Shape.of_session(
    Session(Lengths.uniform(2, 9), Lengths.uniform(500, 1500), Lengths.normal(200, 40), think=4.0),
    Lengths.uniform(50, 350),
    "varied",
    0.2,
)
PLANS = 4_000


def test_a_plan_is_a_function_of_shape_seed_and_number() -> None:
    assert plan_session(VARIED, 3, 17, 8) == plan_session(VARIED, 3, 17, 64 - 56)
    plans = {plan_session(VARIED, seed, number, 0) for seed in (1, 2) for number in range(20)}
    assert len(plans) == 40


@pytest.mark.parametrize("shape", [AGENT, VARIED], ids=["fixed", "varied"])
def test_what_a_shape_says_of_its_prompts_is_what_its_sessions_send(shape: Shape) -> None:
    prompts, known, pauses = [], [], []
    for number in range(PLANS):
        plan = plan_session(shape, 1, number, 0)
        for i, turn in enumerate(plan.turns):
            prompts.append(plan.prompt(i))
            known.append(plan.prompt(i) - turn.new if i else shape.shared)
            pauses.append(turn.pause)
    assert statistics.fmean(prompts) == pytest.approx(shape.isl.mean, rel=0.01)
    assert shape.isl.low <= min(prompts) <= max(prompts) <= shape.isl.high
    assert sum(known) / sum(prompts) == pytest.approx(shape.cached, abs=0.01)
    assert statistics.fmean(pauses) == pytest.approx(shape.pause, rel=0.03)
    firsts = PLANS / len(prompts)
    assert shape.class_share("first") == pytest.approx(firsts, rel=0.02)
    assert shape.class_share("first") + shape.class_share("later") == 1.0
    assert shape.class_share(None) == 1.0


def test_fixed_sessions_grow_by_their_turns() -> None:
    plan = plan_session(AGENT, 1, 99, 0)
    assert [plan.prompt(i) for i in range(8)] == [8192 + i * 700 for i in range(8)]
    assert plan.start == 0
    assert plan.turns[0].pause == 0
    assert (AGENT.isl.low, AGENT.isl.high, AGENT.shared) == (8192, 8192 + 7 * 700, 2048)


def test_think_times_are_exponential_unless_uniform() -> None:
    pauses = [t.pause for n in range(600) for t in plan_session(AGENT, 5, n, 0).turns[1:]]
    assert statistics.fmean(pauses) == pytest.approx(10, rel=0.05)
    assert statistics.stdev(pauses) == pytest.approx(10, rel=0.05)
    uniform = Session(Lengths.fixed(3), Lengths.fixed(10), Lengths.fixed(10), 2.0, 0.5)
    pauses = [uniform.pause(random.Random(i)) for i in range(500)]
    assert 1.5 <= min(pauses) < 1.6
    assert 2.4 < max(pauses) <= 2.5
    none = Session(Lengths.fixed(3), Lengths.fixed(10), Lengths.fixed(10))
    assert none.pause(random.Random(1)) == 0.0


def test_the_first_sessions_begin_at_every_turn_alike() -> None:
    starts = [plan_session(AGENT, 1, number, PLANS) for number in range(PLANS)]
    counts = [sum(p.start == turn for p in starts) for turn in range(8)]
    assert min(counts) > 0.8 * PLANS / 8
    first = [p.turns[p.start].pause for p in starts]
    assert max(first) <= 10
    assert statistics.fmean(first) == pytest.approx(5, rel=0.05)
    # Otherwise they are the sessions that they would be.
    usual = [plan_session(AGENT, 1, number, 0) for number in range(PLANS)]
    assert all(a.turns[b.start + 1 :] == b.turns[b.start + 1 :] for a, b in zip(usual, starts, strict=True))


def test_what_a_shortened_answer_left_out_is_made_up_for() -> None:
    turn = plan_session(AGENT, 1, 0, 0).turns[0]
    assert left_out(turn, 120) == 180
    assert left_out(turn, 0) == 0, "a length that is not forced is what it is"


def test_a_plain_shape_has_no_sessions() -> None:
    plain = Shape.of(1024, 256)
    assert (plain.classes, plain.pause, plain.cached, plain.class_share("first")) == ((), 0.0, 0.0, 1.0)
    plan = plan_session(plain, 1, 0, 8)
    assert (plan.start, [(turn.new, turn.out, turn.pause) for turn in plan.turns]) == (0, [(1024, 256, 0.0)])


def test_the_sessions_of_a_file_come_each_once_in_an_order_drawn_by_the_seed() -> None:
    turns = [[SessionTurn(100 + i, 5, 0.0), SessionTurn(10, 5, 2.0)] for i in range(7)]
    file = SessionFile("a.jsonl", "ours", "0", 7, 14, 2, 2.0, table=LengthTable(map(tuple, turns)))
    shape = shape_of(file, "a")

    def firsts(seed: int, numbers: range) -> list[int]:
        return [plan_session(shape, seed, number, 0).turns[0].new for number in numbers]

    assert sorted(firsts(1, range(7))) == sorted(firsts(1, range(7, 14))) == [turn[0].new for turn in turns]
    assert firsts(1, range(7)) != firsts(1, range(7, 14))
    assert firsts(1, range(14)) != firsts(2, range(14))
    plan = plan_session(shape, 3, 0, 0)
    assert [(t.out, t.pause) for t in plan.turns] == [(5, 0.0), (5, 2.0)]
    begun = {plan_session(shape, 3, number, 40).start for number in range(40)}
    assert begun == {0, 1}, "the first sessions begin part of the way in"
