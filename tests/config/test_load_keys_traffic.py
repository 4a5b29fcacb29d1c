"""Mixes in a config: what is read, what is refused and with which words, and limits of classes."""

import pytest

from frontier.config import Config, load_config
from frontier.config.load import Setting
from frontier.core.model.decisions import Limit
from frontier.core.model.series import Series
from frontier.planning.next_step import _sla
from frontier.planning.plan import make_plan
from tests.kit.complaints import assert_complaints, refused
from tests.kit.golden import assert_golden_row

SHAPES = "[{name: chat, isl: 512, osl: 256}, {name: rag, isl: 8192, osl: 128}, {name: code, isl: 2048, osl: 64}]"
TWO = SHAPES.replace(", {name: code, isl: 2048, osl: 64}", "")
MIX = "{chat: {share: 70%, sla: {p99_ttft: 500ms}}, rag: {share: 30%, sla: {p99_ttft: 5s}}}"


def text_of(traffic: str = MIX, shapes: str = TWO, more: str = "") -> str:
    return f"endpoint: http://h:8000/v1\nshapes: {shapes}\ntraffic: {traffic}\n{more}\n"


def config(traffic: str = MIX, shapes: str = TWO, more: str = "", settings: tuple[str, ...] = ()) -> Config:
    return load_config(text_of(traffic, shapes, more), "t.yaml", [Setting.of(each) for each in settings])


def test_a_mix_is_one_workload_with_the_limits_of_its_classes() -> None:
    found = config()
    (mix,) = found.shapes
    assert [(each.name, round(each.share, 9), each.shape.label) for each in mix.mix] == [
        ("chat", 0.7, "chat"),
        ("rag", 0.3, "rag"),
    ]
    assert mix.label == "chat70%+rag30%"
    assert found.limits == (Limit("chat.p99_ttft", 0.5), Limit("rag.p99_ttft", 5.0))
    assert {trial.shape for trial in make_plan(found).trials} == {mix}
    assert found.warnings == ()


def test_the_limits_of_classes_are_in_every_tier_beside_those_of_all_requests() -> None:
    of_classes = (Limit("chat.p99_ttft", 0.5), Limit("rag.p99_ttft", 5.0))
    alone = config(more="sla: {p99_tpot: 30ms}")
    assert alone.tiers == (("default", (Limit("p99_tpot", 0.03), *of_classes)),)
    tiers = config(more="sla: {gold: {p99_tpot: 20ms}, iron: {p99_tpot: 40ms, chat.p99_ttft: 9s}}").tiers
    assert tiers[0] == ("gold", (Limit("p99_tpot", 0.02), *of_classes))
    assert tiers[1] == ("iron", (Limit("p99_tpot", 0.04), Limit("chat.p99_ttft", 9.0), Limit("rag.p99_ttft", 5.0)))


def test_shares_may_leave_a_rest_and_one_may_vary() -> None:
    def shares(traffic: str, shapes: str = SHAPES) -> list[list[float]]:
        return [[round(each.share, 6) for each in mix.mix] for mix in config(traffic, shapes).shapes]

    assert shares("{chat: {share: 60%}, rag: {share: 10%}, code: {}}") == [[0.6, 0.1, 0.3]]
    assert shares("{chat: {}, rag: {share: [30%, 10%]}}", TWO) == [[0.9, 0.1], [0.7, 0.3]]
    varied = shares("{chat: {share: 60%}, rag: {share: [10%, 40%]}, code: {share: 20%}}")
    assert varied == [[0.675, 0.1, 0.225], [0.45, 0.4, 0.15]]
    assert [sum(each) for each in varied] == pytest.approx([1, 1])


def test_a_class_may_be_a_session_with_limits_of_its_turns() -> None:
    agent = "{name: agent, turns: 4, first: 600, per_turn: 40/12, think: 1s}"
    found = config(
        "{chat: {share: 50%}, agent: {share: 50%, sla: {p99_tpot: 30ms, later: {p99_ttft: 300ms}}}}",
        f"[{{name: chat, isl: 512, osl: 256}}, {agent}]",
    )
    assert found.shapes[0].classes == ("chat", "agent", "agent.first", "agent.later")
    assert [limit.metric for limit in found.limits] == ["agent.p99_tpot", "agent.later.p99_ttft"]
    assert_golden_row("answers", str(found.limits[1]))


IN_A_CLASS = {
    "first:": (MIX.replace("chat:", "first:"), 11),
    "a b:": (MIX.replace("chat:", "a b:"), 11),
    "p99_ttft: 500": (MIX.replace("p99_ttft: 500ms", "p99_ttft: 500"), 46),
    "error_rate: 1%": (MIX.replace("p99_ttft: 500ms", "error_rate: 1%"), 48),
    "p99_itl: 50ms": (MIX.replace("p99_ttft: 500ms", "p99_itl: 50ms"), 45),
    "rag.p99_ttft": (MIX.replace("p99_ttft: 500ms", "rag.p99_ttft: 500ms"), 50),
    "sla: fast": (MIX.replace("{p99_ttft: 500ms}", "fast"), 35),
    "later.p99_ttft of plain requests": (MIX.replace("{p99_ttft: 500ms}", "{later: {p99_ttft: 1s}}"), 54),
}
WRONG = {
    traffic: (traffic, column)
    for traffic, column in (
        ("[chat, rag]", 10),
        ("{chat: {share: 70%}}", 10),
        ("{chat: {share: 70%}, rag: {share: 20%}}", 10),
        ("{chat: {share: 100%}, rag: {}}", 25),
        ("{chat: {share: 70}, rag: {}}", 25),
        ("{chat: {share: [10%, 10%]}, rag: {}}", 25),
        ("{chat: {}, rag: {}}", 26),
        ("{chat: {share: [10%, 20%]}, rag: {share: [10%, 20%]}}", 51),
        ("{chat: {share: 70%}, bag: {share: 30%}}", 36),
        ("{chat: {shape: 1/1}, rag: {share: 30%}}", 18),
    )
} | IN_A_CLASS


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_a_mix_is_refused_with_its_cause(what: str) -> None:
    traffic, column = WRONG[what]
    assert_complaints(refused(text_of(traffic)), (3, column))


def test_classes_that_are_no_mappings_are_refused_each() -> None:
    assert_complaints(refused(text_of("{chat: 70%, rag: 30%}")), (3, 17), (3, 27))


def test_shapes_and_classes_have_to_fit() -> None:
    assert_complaints(refused(text_of(shapes=SHAPES)), (3, 10), part="a shape too many")
    assert_complaints(refused(text_of(more="prompts: p.jsonl")), (4, 10), part="prompts")
    assert_complaints(refused(text_of(more="sla: {bag.p99_ttft: 1s}")), (4, 6), part="another class")


def test_warnings_about_limits_of_classes_point_into_the_traffic() -> None:
    assert_complaints(config(MIX.replace("p99_ttft: 500ms", "mean_ttft: 500ms")).warnings, (3, 47), part="mean")
    one = TWO.replace("osl: 256", "osl: 1")
    warnings = config(MIX.replace("p99_ttft: 500ms", "p99_tpot: 50ms"), one).warnings
    assert_complaints(warnings, (3, 46), part="one token")


def test_a_limit_of_a_class_can_be_set_by_its_place() -> None:
    found = config(settings=("traffic.chat.sla.p99_ttft=300ms",))
    assert found.limits[0] == Limit("chat.p99_ttft", 0.3)
    asked = (Limit("chat.p99_ttft", 0.2), Limit("rag.p99_ttft", 5.0))
    words = _sla(config(), asked)
    assert config(settings=(words[1],)).limits == asked


def test_mixes_differ_in_their_seeds_and_files() -> None:
    found = config("{chat: {}, rag: {share: [10%, 30%]}}")
    trials = make_plan(found).trials
    assert len({t.seed for t in trials}) == len(trials) == len({t.key for t in trials})
    assert Series("default", found.shapes[0]).label() == "chat90%+rag10%"
    assert found.identity() != config().identity() == config(MIX.replace("500ms", "1s")).identity()


EQUAL = "[{name: chat, isl: 512, osl: 256}, {name: api, isl: 512, osl: 256}, {name: bot, isl: 512, osl: 256}]"


def test_classes_of_equal_lengths_are_told_apart_by_their_names() -> None:
    (mix,) = config("{chat: {share: 50%}, api: {share: 20%}, bot: {}}", EQUAL).shapes
    assert ("chat", "api", "bot") == mix.classes
    for shapes in (EQUAL.replace("bot", "chat"), "[{name: chat, isl: 512, osl: 256}, 8/8, 8/8]"):
        complaints = refused(text_of("{chat: {share: 50%}, api: {}}", shapes))
        assert_golden_row("complaints", "\n".join(c.what for c in complaints), shapes)


def test_shapes_of_equal_lengths_are_refused_without_traffic_alone() -> None:
    complaints = refused(f"endpoint: http://h:8000/v1\nshapes: {EQUAL}\n")
    twice = ["512/256 is given twice"]
    assert twice * 2 == [c.what for c in complaints]
    assert not set(twice) & {c.what for c in refused(text_of("{chat: {share: 200%}, api: {}}", EQUAL))}
