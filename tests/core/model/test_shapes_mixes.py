"""Mixes: the class of each session follows from the seed; a mix's own figures are those of what it
sends."""

from collections import Counter

import numpy as np
import pytest

from frontier.client.ask.prompts import Calibration, PromptPlan
from frontier.client.load.session_plans import class_of, plan_session
from frontier.core.model.decisions import Decision, Judgement, Verdict
from frontier.core.model.metrics import metric
from frontier.core.model.points import Estimate
from frontier.core.model.shapes import Lengths, Session, Shape, TrafficClass
from frontier.show.view.mixes import class_shares, class_verdicts, shares_sentence
from tests.kit.golden import assert_golden_row

CHAT = Shape(Lengths.uniform(100, 300), Lengths.fixed(40), "chat", prefix=0.5)
AGENT = Shape.of_session(
    Session(Lengths.uniform(2, 4), Lengths.fixed(600), Lengths.fixed(50), think=2.0), Lengths.fixed(20), "agent", 0.25
)
MIX = Shape.of_mix([TrafficClass("chat", 0.7, CHAT), TrafficClass("agent", 0.3, AGENT)])


def test_figures_of_a_mix_are_those_of_its_requests() -> None:
    """The oracle sends 20,000 sessions."""
    isl, osl, pauses, fresh, classes = [], [], [], [], Counter[str]()
    for number in range(20_000):
        index = class_of(MIX, 7, number)
        part = MIX.mix[index]
        plan = plan_session(part.shape, 7, number, 0)
        for turn, planned in enumerate(plan.turns):
            isl.append(plan.prompt(turn))
            osl.append(planned.out)
            pauses.append(planned.pause)
            fresh.append(planned.new - (0 if turn else part.shape.shared))
            classes[part.name] += 1
            if part.name == "agent":
                classes["agent.first" if turn == 0 else "agent.later"] += 1
    assert MIX.isl.mean == pytest.approx(np.mean(isl), rel=0.01)
    assert MIX.osl.mean == pytest.approx(np.mean(osl), rel=0.01)
    assert (MIX.isl.low, MIX.isl.high) == (min(min(isl), CHAT.isl.low), max(isl))
    assert MIX.pause == pytest.approx(np.mean(pauses), rel=0.03)
    assert MIX.cached == pytest.approx(1 - np.sum(fresh) / np.sum(isl), rel=0.01)
    assert MIX.requests == pytest.approx(len(isl) / 20_000, rel=0.01)
    assert set(classes) == set(MIX.classes)
    for name, count in classes.items():
        assert MIX.class_share(name) == pytest.approx(count / len(isl), rel=0.03), name
    assert MIX.class_share(None) == 1.0


def test_the_class_of_a_session_is_that_of_its_seed_and_number_alone() -> None:
    drawn = [class_of(MIX, 3, number) for number in range(4_000)]
    assert drawn == [class_of(MIX, 3, number) for number in range(4_000)]
    assert drawn != [class_of(MIX, 4, number) for number in range(4_000)]
    assert np.mean(drawn) == pytest.approx(0.3, abs=0.03)
    both = np.corrcoef(drawn[1:], drawn[:-1])[0, 1]
    assert abs(both) < 0.06, "successive sessions are independent"


def test_classes_within_classes() -> None:
    assert (MIX.kind, AGENT.kind, CHAT.kind) == ("mix", "session", "shape")
    assert MIX.classes == ("chat", "agent", "agent.first", "agent.later")
    assert MIX.finest(None) == ("chat", "agent.first", "agent.later")
    assert MIX.finest("agent") == ("agent.first", "agent.later")
    assert MIX.finest("chat") == ("chat",)
    assert (MIX.most_turns, MIX.has_sessions) == (4, True)
    index, turn = np.array([0, 1, 1]), np.array([0, 0, 1])
    members = {name: MIX.in_class(name, index, turn).tolist() for name in MIX.classes}
    assert members == {
        "chat": [True, False, False],
        "agent": [False, True, True],
        "agent.first": [False, True, False],
        "agent.later": [False, False, True],
    }


@pytest.mark.parametrize(
    ("name", "label", "group"),
    [
        ("chat.p99_ttft", "p99 TTFT of chat", "chat"),
        ("agent.later.p50_e2e", "p50 E2E of later turns of agent", "agent.later"),
        ("later.p99.9_tpot", "p99.9 TPOT of later turns", "later"),
        ("my-rag_2.mean_ttft", "mean TTFT of my-rag_2", "my-rag_2"),
    ],
)
def test_metrics_of_classes_have_names(name: str, label: str, group: str) -> None:
    assert (metric(name).label, metric(name).group) == (label, group)


def test_every_prompt_of_a_mix_is_of_its_class_and_the_classes_begin_differently() -> None:
    prompts = PromptPlan(MIX, 5, Calibration(), streams=4).source()
    beginnings: dict[int, set[str]] = {}
    for number in range(60):
        prompt = prompts(number)
        assert prompt.turn is not None
        assert prompt.turn.class_index == class_of(MIX, 5, number)
        if number >= 4:
            shape = MIX.mix[prompt.turn.class_index].shape
            assert prompt.turn.reusable == shape.shared
            assert (prompt.turn.then is None) == (shape.session is None)
            words = str(prompt.content).split()
            assert len(words) == prompt.isl
            beginnings.setdefault(prompt.turn.class_index, set()).add(" ".join(words[:50]))
    assert [len(texts) for texts in beginnings.values()] == [1, 1]
    assert len(set.union(*beginnings.values())) == 2


# --- what is said of classes and shares

SHARES = (0.1, 0.3, 0.5)
SWEPT = [Shape.of_mix([TrafficClass("chat", 1 - s, CHAT), TrafficClass("rag", s, Shape.of(4096, 64))]) for s in SHARES]


def test_shares_of_requests_and_of_time_in_flight() -> None:
    metrics = {"chat.mean_e2e": Estimate(1.0, 1.0, 1.0, 900), "rag.mean_e2e": Estimate(4.0, 4.0, 4.0, 100)}
    shares = class_shares(SWEPT[0], metrics)
    assert shares["chat"].requests == 0.9
    assert shares["rag"].in_flight == pytest.approx(400 / 1300)
    assert_golden_row("answers", shares_sentence(SWEPT[0], metrics))
    failed = metrics | {"rag.mean_e2e": Estimate(float("inf"), 1.0, float("inf"), 100)}
    assert class_shares(SWEPT[0], failed)["rag"].in_flight is None
    assert class_shares(SWEPT[0], {}) == {}
    assert shares_sentence(CHAT, metrics) == ""


def test_the_verdict_of_a_class_is_that_of_its_limits() -> None:
    judged = Judgement(
        8,
        Verdict.VIOLATES,
        {
            "p99_ttft": Verdict.MEETS,
            "chat.p99_ttft": Verdict.MEETS,
            "rag.p99_ttft": Verdict.MEETS,
            "rag.p99_tpot": Verdict.VIOLATES,
            "rag.p50_tpot": Verdict.MEETS,
        },
        "rag.p99_tpot",
    )
    found = Decision("d", SWEPT[0], (), Verdict.VIOLATES, None, None, {}, (judged,), candidate=8)
    assert class_verdicts(found) == {"chat": Verdict.MEETS, "rag": Verdict.VIOLATES}
