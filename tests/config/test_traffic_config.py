"""Mixes in a config: what is read, what is refused and with which words, and limits of classes."""

import pytest

from frontier.config import Config, load_config
from frontier.config.load import Setting
from frontier.errors import ConfigError
from frontier.model import Limit, Series
from frontier.next_step import _sla
from frontier.plan import make_plan

SHAPES = "[{name: chat, isl: 512, osl: 256}, {name: rag, isl: 8192, osl: 128}, {name: code, isl: 2048, osl: 64}]"
TWO = SHAPES.replace(", {name: code, isl: 2048, osl: 64}", "")
MIX = "{chat: {share: 70%, sla: {p99_ttft: 500ms}}, rag: {share: 30%, sla: {p99_ttft: 5s}}}"


def config(traffic: str = MIX, shapes: str = TWO, more: str = "", settings: tuple[str, ...] = ()) -> Config:
    text = f"endpoint: http://h:8000/v1\nshapes: {shapes}\ntraffic: {traffic}\n{more}\n"
    return load_config(text, "t.yaml", [Setting.of(each) for each in settings])


def complaint(traffic: str = MIX, shapes: str = TWO, more: str = "") -> str:
    with pytest.raises(ConfigError) as caught:
        config(traffic, shapes, more)
    return "\n".join(f"{c.line}: {c.what}; {c.hint}" for c in caught.value.complaints)


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
    assert all(sum(each) == pytest.approx(1) for each in varied)


def test_a_class_may_be_a_session_with_limits_of_its_turns() -> None:
    agent = "{name: agent, turns: 4, first: 600, per_turn: 40/12, think: 1s}"
    found = config(
        "{chat: {share: 50%}, agent: {share: 50%, sla: {p99_tpot: 30ms, later: {p99_ttft: 300ms}}}}",
        f"[{{name: chat, isl: 512, osl: 256}}, {agent}]",
    )
    assert found.shapes[0].classes == ("chat", "agent", "agent.first", "agent.later")
    assert [limit.metric for limit in found.limits] == ["agent.p99_tpot", "agent.later.p99_ttft"]
    assert str(found.limits[1]) == "p99 TTFT of later turns of agent ≤ 300 ms"


@pytest.mark.parametrize(
    ("traffic", "words"),
    [
        ("[chat, rag]", "traffic is named shapes with their shares; write {chat:"),
        ("{chat: {share: 70%}}", "traffic: a mix has 2 to 8 classes"),
        ("{chat: {share: 70%}, rag: {share: 20%}}", "traffic: the shares come to 90%; let them come to 100%"),
        ("{chat: {share: 100%}, rag: {}}", "share: a class has more than 0% and less than 100%"),
        ("{chat: {share: 70}, rag: {}}", "share: 70 is not a share; write 70%"),
        ("{chat: {share: [10%, 10%]}, rag: {}}", "share: too many shares, or one given twice"),
        ("{chat: {}, rag: {}}", "rag has no share; one class may leave it out"),
        ("{chat: {share: [10%, 20%]}, rag: {share: [10%, 20%]}}", "two classes have several shares; let one vary"),
        ("{chat: {share: 70%}, bag: {share: 30%}}", "traffic: there is no shape named bag; shapes: chat, rag"),
        ("{chat: 70%, rag: 30%}", "chat has a share and may have an sla"),
        ("{chat: {shape: 1/1}, rag: {share: 30%}}", "unknown key 'shape'; a class has the keys share and sla"),
        (MIX.replace("chat:", "first:"), "'first' cannot name a class"),
        (MIX.replace("chat:", "a b:"), "'a b' cannot name a class; a class is named by letters"),
        (MIX.replace("p99_ttft: 500ms", "p99_ttft: 500"), "p99_ttft needs a unit"),
        (MIX.replace("p99_ttft: 500ms", "error_rate: 1%"), "error_rate is not kept by class; a class has limits on"),
        (MIX.replace("p99_ttft: 500ms", "p99_itl: 50ms"), "p99_itl is not kept by class"),
        (MIX.replace("{p99_ttft: 500ms}", "fast"), "sla is metrics with their limits"),
        (MIX.replace("{p99_ttft: 500ms}", "{later: {p99_ttft: 1s}}"), "no shape has requests of the class chat.later"),
    ],
)
def test_what_cannot_be_a_mix_is_refused_with_its_cause(traffic: str, words: str) -> None:
    said = complaint(traffic)
    assert words in said
    assert said.startswith("3:")


def test_shapes_and_classes_have_to_fit() -> None:
    assert "code has no place in traffic; give it a share there, or remove the shape" in complaint(shapes=SHAPES)
    assert "mix, which makes its own prompts" in complaint(more="prompts: p.jsonl")
    assert "no shape has requests of the class bag; there are chat, rag" in complaint(more="sla: {bag.p99_ttft: 1s}")


def test_warnings_about_limits_of_classes_point_into_the_traffic() -> None:
    (warning,) = config(MIX.replace("p99_ttft: 500ms", "mean_ttft: 500ms")).warnings
    assert "chat.mean_ttft limits a mean" in warning.what
    assert warning.line == 3
    one = TWO.replace("osl: 256", "osl: 1")
    (warning,) = config(MIX.replace("p99_ttft: 500ms", "p99_tpot: 50ms"), one).warnings
    assert "chat.p99_tpot is not defined" in warning.what


def test_a_limit_of_a_class_can_be_set_by_its_place() -> None:
    found = config(settings=("traffic.chat.sla.p99_ttft=300ms",))
    assert found.limits[0] == Limit("chat.p99_ttft", 0.3)
    asked = (Limit("chat.p99_ttft", 0.2), Limit("rag.p99_ttft", 5.0))
    words = _sla(config(), asked)
    assert words == ["--set", "traffic.chat.sla.p99_ttft=200ms"]
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
    assert "two shapes are called chat" in complaint("{chat: {share: 50%}, api: {}}", EQUAL.replace("bot", "chat"))
    without_names = "[{name: chat, isl: 512, osl: 256}, 8/8, 8/8]"
    assert "two shapes are called 8/8" in complaint("{chat: {share: 50%}, api: {}}", without_names)


def test_shapes_of_equal_lengths_are_refused_without_traffic_alone() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(f"endpoint: http://h:8000/v1\nshapes: {EQUAL}\n", "t.yaml")
    assert ["512/256 is given twice"] * 2 == [c.what for c in caught.value.complaints]
    assert "given twice" not in complaint("{chat: {share: 200%}, api: {}}", EQUAL)
