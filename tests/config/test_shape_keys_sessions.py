"""Sessions in a config: what is read, what is refused and with which words, and limits of turn
classes."""

import json
from pathlib import Path

import pytest

from frontier.config import Config, load_config, parse_sla
from frontier.core.model.decisions import Limit
from frontier.core.model.errors import UsageError
from frontier.core.model.shapes import Lengths, Shape
from frontier.extras.workload.session_files import read_sessions
from frontier.planning.plan import make_plan
from tests.kit.complaints import assert_complaints, refused
from tests.kit.golden import assert_golden_row

AGENT = "{name: agent, turns: 8, first: 8192, per_turn: 400/300, think: 10s, system: 2048}"


def text_of(shape: str = AGENT, more: str = "sla: {p99_ttft: 2s}") -> str:
    return f"endpoint: http://h:8000/v1\nshapes: [{shape}]\n{more}\n"


def config(shape: str = AGENT, more: str = "sla: {p99_ttft: 2s}") -> Config:
    return load_config(text_of(shape, more), "t.yaml")


def test_a_session_is_read_in_full() -> None:
    (shape,) = config().shapes
    assert shape.session is not None
    assert (shape.session.turns, shape.session.first) == (Lengths.fixed(8), Lengths.fixed(8192))
    assert (shape.session.added, shape.osl) == (Lengths.fixed(400), Lengths.fixed(300))
    assert (shape.session.think, shape.session.spread, shape.shared) == (10.0, None, 2048)
    assert (shape.label, str(shape.isl)) == ("agent", "8192-13092")


def test_a_list_of_prefixes_makes_one_series_for_each_share() -> None:
    rag = "{isl: {uniform: [512, 1024]}, osl: 64, name: rag, prefix: [0%, 25%, 62.5%]}"
    plain, *several = config(f"1024/256, {rag}, {{isl: 100, osl: 5, prefix: [50%]}}").shapes
    assert (plain.label, plain.prefix) == ("1024/256", 0.0)
    assert [(shape.label, shape.prefix) for shape in several] == [
        ("rag prefix 0%", 0.0),
        ("rag prefix 25%", 0.25),
        ("rag prefix 62.5%", 0.625),
        ("100/5 prefix 50%", 0.5),
    ]
    assert {shape.isl for shape in several[:3]} == {Lengths.uniform(512, 1024)}
    assert len({trial.key for trial in make_plan(config(rag)).trials}) == len(make_plan(config(rag)).trials)
    sessions = config(AGENT.replace("system: 2048", "prefix: [0%, 25%]")).shapes
    assert [(shape.label, shape.shared) for shape in sessions] == [("agent prefix 0%", 0), ("agent prefix 25%", 2048)]


def test_lengths_turns_and_think_times_may_be_drawn() -> None:
    text = "{name: a, turns: {uniform: [2, 6]}, first: {normal: [900, 50]}, per_turn: 100-300/64, "
    text += "think: {uniform: [1s, 3s]}}"
    (shape,) = config(text).shapes
    assert shape.session is not None
    assert shape.session.turns == Lengths.uniform(2, 6)
    assert shape.session.added == Lengths.uniform(100, 300)
    assert (shape.session.think, shape.session.spread) == (2.0, 1.0)
    assert config("{name: a, turns: 2, first: 9, per_turn: 9/9}").shapes[0].session.think == 0.0


def test_system_and_prefix_are_one_mechanism() -> None:
    in_tokens, as_share = (config(AGENT.replace("system: 2048", text)) for text in ("system: 2048", "prefix: 25%"))
    assert in_tokens.shapes == as_share.shapes
    assert in_tokens.identity() == as_share.identity()
    (plain,) = config("{isl: 1024, osl: 256, system: 256}").shapes
    assert plain == Shape(Lengths.fixed(1024), Lengths.fixed(256), prefix=0.25)


WRONG = {
    "system beside prefix": (AGENT.replace("system", "prefix: 25%, system"), 91),
    "system as long as the prompt": (AGENT.replace("2048", "8192"), 86),
    "no turns": (AGENT.replace("turns: 8, ", ""), 10),
    "no name": (AGENT.replace("name: agent, ", ""), 10),
    "per_turn: 400": (AGENT.replace("400/300", "400"), 57),
    "per_turn: many": (AGENT.replace("400/300", "many"), 57),
    "think: 10": (AGENT.replace("10s", "10"), 73),
    "think: {normal: 3s}": (AGENT.replace("10s", "{normal: 3s}"), 73),
    "think: {uniform: [3s, 3s]}": (AGENT.replace("10s", "{uniform: [3s, 3s]}"), 73),
    "turns: 2000": (AGENT.replace("turns: 8", "turns: 2000"), 31),
    "isl: 5": (AGENT.replace("turns: 8", "turns: 8, isl: 5"), 34),
    "a prompt beyond any context": (AGENT.replace("400/300", "400000/30000").replace("turns: 8", "turns: 90"), 31),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_at_its_place(what: str) -> None:
    shape, column = WRONG[what]
    assert_complaints(refused(text_of(shape)), (2, column))


def test_a_session_makes_its_own_prompts() -> None:
    assert_complaints(refused(text_of(more="prompts: p.jsonl")), (3, 10))


def test_limits_of_a_class_stand_under_its_name() -> None:
    limits = config(more="sla: {p99_ttft: 2s, later: {p99_ttft: [200ms, 500ms], p50_tpot: 30ms}}").limits
    assert limits == (
        Limit("p99_ttft", 2.0),
        Limit("later.p99_ttft", 0.5, 0.2),
        Limit("later.p50_tpot", 0.03),
    )
    assert_golden_row("answers", str(limits[1]))
    assert parse_sla("p99_ttft<=2s, later.p99_ttft<=200ms..500ms, later.p50_tpot<=30ms") == limits
    tiers = config(more="sla: {gold: {later: {p99.9_ttft: 1s}}, silver: {p99_ttft: 9s}}").tiers
    assert tiers == (("gold", (Limit("later.p99.9_ttft", 1.0),)), ("silver", (Limit("p99_ttft", 9.0),)))
    assert config(more="sla: {first: {p99_ttft: 1s}}").limits == (Limit("first.p99_ttft", 1.0),)
    # Tiers may still be called so, beside others.
    assert [name for name, _ in config(more="sla: {first: {p99_ttft: 1s}, second: {p99_ttft: 2s}}").tiers] == [
        "first",
        "second",
    ]


WRONG_LIMITS = {
    "sla: {later: {p99_itl: 50ms}}": 15,
    "sla: {later: {error_rate: 1%}}": 15,
    "sla: {later: {p99_ttft: 500}}": 25,
    "sla: {p99_ttft: 1s, later: {}}": 28,
}


@pytest.mark.parametrize(("more", "column"), WRONG_LIMITS.items(), ids=WRONG_LIMITS)
def test_wrong_limits_of_classes_are_refused(more: str, column: int) -> None:
    assert_complaints(refused(text_of(more=more)), (3, column))


def test_classes_need_sessions() -> None:
    assert_complaints(refused(text_of("1024/256", "sla: {later: {p99_ttft: 1s}}")), (3, 25), part="sla")
    axes = "objectives: [output_throughput, first.p99_ttft]"
    assert_complaints(refused(text_of("1024/256", axes)), (3, 13), part="objectives")
    assert config(more=axes).objectives[1] == "first.p99_ttft"
    with pytest.raises(UsageError, match=r"'later\.goodput'"):
        parse_sla("later.goodput>=3")


def test_another_session_is_another_measurement_and_plain_shapes_are_what_they_were() -> None:
    texts = [
        AGENT,
        AGENT.replace("10s", "9s"),
        AGENT.replace("10s", "{uniform: [5s, 15s]}"),
        AGENT.replace("turns: 8", "turns: 9"),
    ]
    prints = {make_plan(config(text)).trials[0].fingerprint for text in texts}
    assert len(prints) == len(texts)
    # As version 0.1.0 wrote it.
    assert config("1024/256").canonical()["shapes"] == ["1024/256"]


FILE = '{"turns": [{"new": 800, "out": 20}, {"new": 30, "out": 10, "pause": 2}]}\n'


def of_file(path: Path, more: str = "", keys: str = "") -> Config:
    text = f"endpoint: http://h:8000/v1\nshapes: [{{name: agent, sessions: {path}{keys}}}]\n{more}\n"
    return load_config(text, "t.yaml", read_sessions=read_sessions)


def test_sessions_of_a_file_are_a_shape_whose_content_decides_what_a_trial_is(tmp_path: Path) -> None:
    path = tmp_path / "agent.jsonl"
    path.write_text(2 * FILE)
    config = of_file(path, keys=", system: 200")
    (shape,) = config.shapes
    assert shape.session is not None
    assert (shape.label, shape.kind, shape.requests, shape.shared) == ("agent", "session", 2.0, 200)
    first = make_plan(config).trials[0]
    path.write_text(2 * FILE.replace("800", "801"))
    other = make_plan(of_file(path, keys=", system: 200")).trials[0]
    assert first.fingerprint != other.fingerprint
    assert first.seed != other.seed
    moved = path.rename(tmp_path / "moved.jsonl")
    assert make_plan(of_file(moved, keys=", system: 200")).trials[0].fingerprint == other.fingerprint
    (effect,) = config.effects
    assert str(path) in effect.text
    assert_golden_row("messages", effect.text.replace(str(tmp_path), "DIR"))


def test_a_run_is_read_without_the_file_of_its_sessions_and_a_sweep_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("agent.jsonl")
    path.write_text(FILE)
    config, text = of_file(path), text_of("{name: agent, sessions: agent.jsonl}", "")
    manifest = {"canonical": json.loads(json.dumps(config.canonical())), "defaults": {"concurrency": None}}
    path.unlink()
    kept = load_config(text, "t.yaml", begun=manifest)
    assert kept.shapes == config.shapes
    assert kept.identity() == config.identity()
    assert_complaints(refused(text, read_sessions=read_sessions), (2, 34), part="without the file")
    for begun in (None, {"canonical": {"sessions": {"agent.jsonl": {"isl": 3}}}}):
        assert_complaints(refused(text, begun=begun), (2, 34))


NOT_WITH_A_FILE = {"turns: 8": 47, "system: 800": 55}


@pytest.mark.parametrize(("keys", "column"), NOT_WITH_A_FILE.items(), ids=NOT_WITH_A_FILE)
def test_what_does_not_go_with_a_file_of_sessions_is_said(
    keys: str, column: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("agent.jsonl").write_text(FILE)
    text = text_of(f"{{name: agent, sessions: agent.jsonl, {keys}}}", "")
    assert_complaints(refused(text, read_sessions=read_sessions), (2, column))


def test_a_session_of_too_many_turns_is_refused_with_the_name_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("agent.jsonl").write_text('{"turns": [' + ", ".join(['{"new": 1, "out": 1}'] * 1_001) + "]}\n")
    text = text_of("{name: agent, sessions: agent.jsonl}", "")
    assert_complaints(refused(text, read_sessions=read_sessions), (2, 34))
