"""Session files: the turns that each format gives, its units, cut histories, and what is refused
with which words."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from frontier.core.model.errors import UsageError
from frontier.core.model.session_table import SessionFile, SessionTurn
from frontier.core.model.shapes import Shape
from frontier.extras.workload.session_files import read_sessions
from tests.kit.golden import assert_golden_row
from tests.kit.peer_files import without_parser


def shape_of(path: Path, rows: list[dict[str, Any]]) -> Shape:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_sessions(str(path))


def file_of(path: Path, rows: list[dict[str, Any]]) -> SessionFile:
    session = shape_of(path, rows).session
    assert session is not None
    assert session.file is not None
    return session.file


def turns_of(path: Path, rows: list[dict[str, Any]]) -> list[tuple[SessionTurn, ...]]:
    table = file_of(path, rows).table
    return list(table.rows)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.jsonl"


def test_ours_is_read_as_it_is_in_seconds(path: Path) -> None:
    rows = [
        {"turns": [{"new": 100, "out": 20, "pause": 9}, {"new": 7, "out": 5, "pause": 1.5}]},
        {"turns": [{"new": 40, "out": 4}, {"new": 6, "out": 3, "pause": "250ms"}, {"new": 2, "out": 1}]},
    ]
    assert turns_of(path, rows) == [((100, 20, 0.0), (7, 5, 1.5)), ((40, 4, 0.0), (6, 3, 0.25), (2, 1, 0.0))]


def test_a_shape_has_the_figures_of_its_file(path: Path) -> None:
    rows = [
        {"turns": [{"new": 100, "out": 20}, {"new": 10, "out": 20, "pause": 3}]},
        {"turns": [{"new": 300, "out": 40}, {"new": 30, "out": 40, "pause": 2}, {"new": 20, "out": 40, "pause": 1}]},
    ]
    shape = shape_of(path, rows)
    assert shape.session is not None
    prompts = [100, 130, 300, 370, 430]
    assert (shape.isl.low, shape.isl.high, shape.isl.mean) == (100, 430, sum(prompts) / 5)
    assert (shape.requests, shape.session.think, shape.pause) == (2.5, 2.0, pytest.approx(6 / 5))
    assert (shape.session.first.mean, shape.session.added.mean, shape.osl.mean) == (200, 20, 32)
    assert shape.cached == pytest.approx(1 - (100 + 10 + 300 + 30 + 20) / sum(prompts))
    assert shape.session_seconds(2.0) == 3 * 2.0 + 3.0, "the longer session, its pauses and three answers"


def test_of_bailian_a_turn_adds_what_its_prompt_has_beyond_all_that_was_said_in_seconds(path: Path) -> None:
    def row(chat: int, parent: int, at: float, tokens: int, out: int, turn: int) -> dict[str, Any]:
        return {
            "chat_id": chat,
            "parent_chat_id": parent,
            "timestamp": at,
            "input_length": tokens,
            "output_length": out,
            "turn": turn,
            "type": "text",
            "hash_ids": [1, 2],
        }

    rows = [
        row(1, -1, 0.5, 500, 100, 1),
        row(2, -1, 1.0, 50, 10, 1),
        row(3, 1, 20.5, 640, 60, 2),
        row(4, 3, 30.0, 720, 30, 3),
        row(5, 2, 31.0, 90, 10, 2),
        row(6, 5, 40.0, 95, 10, 3),  # 100 tokens were said: its history was cut
        row(7, 999, 41.0, 77, 5, 2),  # began before the trace
        row(8, 3, 42.0, 801, 5, 3),  # another answer to what 4 answered too
        row(9, -1, 43.0, 12, 0, 1),  # no answer
    ]
    file = file_of(path, rows)
    assert turns_of(path, rows) == [
        ((500, 100, 0.0), (40, 60, 20.0), (20, 30, 9.5)),
        ((50, 10, 0.0), (30, 10, 30.0)),
        ((95, 10, 0.0),),
        ((77, 5, 0.0),),
        ((801, 5, 0.0),),
    ]
    assert (file.tool, file.sessions, file.requests) == ("Bailian", 5, 8)
    assert (file.cut, file.begun, file.left_out) == (1, 2, 1)


def test_of_aiperf_a_row_is_what_its_turn_adds_and_its_delay_is_in_milliseconds(path: Path) -> None:
    rows = [
        {"session_id": "a", "input_length": 300, "output_length": 40},
        {"session_id": "b", "input_length": 20, "output_length": 4, "timestamp": 1000},
        {"session_id": "a", "delay": 2500, "input_length": 150, "output_length": 20},
        {"session_id": "b", "input_length": 9, "output_length": 4, "timestamp": 4000},
    ]
    assert turns_of(path, rows) == [((300, 40, 0.0), (150, 20, 2.5)), ((20, 4, 0.0), (9, 4, 3.0))]
    whole = [row | {"context_mode": "message_array_with_responses"} for row in rows]
    whole[2]["input_length"] = 400
    assert turns_of(path, whole)[:1] == [((300, 40, 0.0), (60, 20, 2.5))], "then it is the whole prompt"
    assert file_of(path, whole).cut == 1, "9 tokens are fewer than the 24 that were said"


def test_of_mooncake_a_session_is_told_by_its_blocks_and_times_are_in_milliseconds(path: Path) -> None:
    def row(at: float, tokens: int, out: int, *blocks: int) -> dict[str, Any]:
        return {"timestamp": at, "input_length": tokens, "output_length": out, "hash_ids": list(blocks)}

    # All begin with block 0, a system prompt; the last block of a list is not full.
    rows = [
        row(0, 1100, 30, 0, 1, 2),
        row(0, 600, 30, 0, 50),
        row(3000, 1300, 50, 0, 3, 4),
        row(6000, 1700, 40, 0, 1, 5, 6),
        row(9000, 2100, 20, 0, 3, 7, 8, 9),
        row(9000, 700, 30, 0, 60),
        row(12000, 2300, 10, 0, 1, 5, 11, 12),
    ]
    file = file_of(path, rows)
    assert turns_of(path, rows) == [
        ((1100, 30, 0.0), (570, 40, 6.0), (560, 10, 6.0)),
        ((600, 30, 0.0),),
        ((1300, 50, 0.0), (750, 20, 6.0)),
        ((700, 30, 0.0),),
    ]
    assert (file.tool, file.cut, file.begun) == ("Mooncake", 0, 0)


def test_its_sessions_are_equal_wherever_the_file_lies_and_are_sent_to_workers(path: Path) -> None:
    rows = [{"turns": [{"new": 9, "out": 2}, {"new": 7, "out": 5, "pause": 1}]}]
    one, other = shape_of(path, rows), shape_of(path.with_name("other.jsonl"), rows)
    assert one == other
    assert shape_of(path, [*rows, *rows]) != one
    copy = pickle.loads(pickle.dumps(one))
    assert copy == one
    assert copy.session.file.table.rows == one.session.file.table.rows  # type: ignore[union-attr]


TURN = {"new": 9, "out": 2}


UNUSABLE = {
    "single turns": (2 * '{"turns": [{"new": 9, "out": 2}]}\n', ""),
    "an empty turn": ('{"turns": [{"new": 9, "out": 2}, {"new": 0, "out": 2}]}\n', "turns[1].new"),
    "a turn without an answer": ('{"turns": [{"new": 9, "out": 2}, {"new": 4}]}\n', "turns[1].out"),
    "half a token": ('{"turns": [{"new": 9.5, "out": 2}]}\n', "turns[0].new"),
    "a pause in words": ('{"turns": [{"new": 9, "out": 2, "pause": "soon"}]}\n', "turns[0].pause"),
    "no turns": ('{"turns": []}\n', "turns"),
    "texts of AIPerf": ('{"session_id": "a", "text_input": "hello"}\n', "input_length"),
    "no times": ('{"chat_id": 1, "parent_chat_id": -1, "input_length": 5, "output_length": 5}\n', "timestamp"),
    "no session": ('{"timestamp": 1, "input_length": 5, "output_length": 5}\n', ""),
    "prompts": ('{"prompt": "hello"}\n', ""),
    "nothing": ("", ""),
    "a cut line": ('{"turns": [{"new": 9\n', ""),
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_what_cannot_be_used_is_refused_with_its_place(path: Path, what: str) -> None:
    text, place = UNUSABLE[what]
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_sessions(str(path))
    assert place in caught.value.what
    assert_golden_row("messages", without_parser(str(caught.value)).replace(str(path.parent), "HERE"))


def test_a_file_that_is_not_there_is_named(path: Path) -> None:
    with pytest.raises(UsageError, match=r"sessions\.jsonl: No such file") as caught:
        read_sessions(str(path))
    assert_golden_row("messages", str(caught.value).replace(str(path.parent), "HERE"))
