"""Prompts: fresh, different from their first block on, of the asked length, and cheap."""

import asyncio
import json
from pathlib import Path

import pytest

from frontier.client.ask.prompt_text import HEAD
from frontier.client.ask.prompts import (
    WORDS,
    Calibration,
    calibrate_words,
    file_prompts,
    random_prompts,
)
from frontier.client.engines.request import Content
from frontier.core.model.errors import UsageError
from frontier.core.model.shapes import Lengths, Shape
from frontier.sweep.given_files import read_prompts
from tests.kit.golden import assert_golden_row
from tests.kit.neutral import neutral

IDS = Calibration(ids=(1000, 30000))


def text(content: Content) -> str:
    assert isinstance(content, str)
    return content


def ids(content: Content) -> list[int]:
    assert isinstance(content, list)
    return content


def test_no_two_prompts_of_a_sweep_share_their_first_block() -> None:
    shape = Shape.of(200, 4)
    heads = [tuple(text(random_prompts(shape, seed)(i).content).split()[:8]) for seed in range(10) for i in range(100)]
    assert len(heads) == len(set(heads))
    blocks = [tuple(ids(random_prompts(shape, seed, IDS)(i).content)[:8]) for seed in range(10) for i in range(100)]
    assert len(blocks) == len(set(blocks))


def test_the_same_seed_and_index_give_the_same_prompt() -> None:
    shape = Shape.of(100, 4)
    assert random_prompts(shape, 3)(17) == random_prompts(shape, 3)(17)
    assert random_prompts(shape, 3)(17) != random_prompts(shape, 4)(17)


@pytest.mark.parametrize("isl", [1, 2, HEAD - 1, HEAD, HEAD + 1, 5000])
def test_every_length_is_met_in_words_and_in_ids(isl: int) -> None:
    assert isl == len(text(random_prompts(Shape.of(isl, 1), 1)(0).content).split())
    content = ids(random_prompts(Shape.of(isl, 1), 1, IDS)(0).content)
    assert isl == len(content)
    assert 1000 <= min(content) <= max(content) <= 30000


@pytest.mark.parametrize("calibration", [Calibration(), IDS])
def test_the_prefix_is_shared_by_all_seeds_and_what_follows_is_not(calibration: Calibration) -> None:
    shape = Shape(Lengths.fixed(400), Lengths.fixed(4), prefix=0.25)
    contents = [random_prompts(shape, seed, calibration)(i).content for seed in range(3) for i in range(5)]
    units = [c.split() if isinstance(c, str) else c for c in contents]
    assert {400} == {len(u) for u in units}
    assert 1 == len({tuple(u[:100]) for u in units})
    assert 15 == len({tuple(u[100:108]) for u in units})
    assert random_prompts(shape, 1, calibration)(0).shares
    assert not random_prompts(Shape.of(400, 4), 1, calibration)(0).shares


def test_the_words_are_plain_and_different() -> None:
    assert len(WORDS) == len(set(WORDS)) > 500
    assert all(word.isascii() and word.isalpha() and word.islower() for word in WORDS)


def test_a_calibration_is_a_line_and_asks_for_a_word_at_least() -> None:
    calibration = Calibration(offset=9, per_word=1.25)
    assert [1, 81, 881] == [calibration.words(isl) for isl in (10, 110, 1110)]
    assert 1 == calibration.words(3)


def tokens_of(word: str) -> int:
    """A vocabulary too small for many of the words, as real ones of 8,192 tokens are."""
    return 1 + len(word) // 5 + (word[0] in "aeiou")


@pytest.mark.parametrize(("longest", "asks"), [(64, 17), (1024, 4), (8192, 3)])
def test_a_calibration_is_right_on_average_where_words_make_different_numbers_of_tokens(
    longest: int, asks: int
) -> None:
    asked: list[int] = []

    async def count(content: Content) -> int:
        asked.append(9 + sum(map(tokens_of, text(content).split())))
        return asked[-1]

    calibration = asyncio.run(calibrate_words(count, longest))
    assert 9 == calibration.offset
    assert sum(map(tokens_of, WORDS)) / len(WORDS) == pytest.approx(calibration.per_word, rel=1e-12)
    assert asks == len(asked)
    assert max(asked) <= 9 + 3 * max(64, longest // 2)
    for isl in (64, 512):
        source = random_prompts(Shape.of(isl, 1), 11, calibration)
        counts = [9 + sum(map(tokens_of, text(source(i).content).split())) for i in range(200)]
        assert isl == pytest.approx(sum(counts) / 200, rel=0.02)


def test_a_calibration_bears_a_server_that_counts_at_random() -> None:
    counts = iter([30, 100, 500, 10, 700, 20, 800, 30, 900])

    async def count(_: Content) -> int:
        return next(counts)

    calibration = asyncio.run(calibrate_words(count, 1024))
    assert not calibration.counted
    assert calibration.words(300) == 300


def test_prompts_come_from_json_lines_in_an_order_of_the_seed(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"p{i}", "output_tokens": i or None}) + "\n" for i in range(20)))
    source = file_prompts(read_prompts(path), Shape.of(1, 99), 1)
    first = [source(i) for i in range(20)]
    assert {f"p{i}" for i in range(20)} == {p.content for p in first}
    assert {99, *range(1, 20)} == {p.osl for p in first}
    assert first[0].content == source(20).content
    assert [p.content for p in first] != [
        file_prompts(read_prompts(path), Shape.of(1, 99), 2)(i).content for i in range(20)
    ]


def test_each_pass_through_a_file_has_its_own_salt(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": "b\u2028c"}\n')
    source = file_prompts(read_prompts(path), Shape.of(1, 9), 1, "x")
    salts = [source(i).salt for i in range(6)]
    assert [salts[0], salts[0], salts[2], salts[2], salts[4], salts[4]] == salts
    assert 3 == len(set(salts))
    assert file_prompts(read_prompts(path), Shape.of(1, 9), 1, "y")(0).salt not in salts
    assert {"a", "b\u2028c"} == {source(0).content, source(1).content}


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "a"}\n\n{"prompt":\n')
    with pytest.raises(UsageError, match=r"p\.jsonl:3: not JSON"):
        file_prompts(read_prompts(path), Shape.of(1, 1), 1)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("none.jsonl", "binary"):
        with pytest.raises(UsageError) as refused:
            read_prompts(tmp_path / name)
        assert_golden_row("messages", neutral(str(refused.value), tmp_path), name)


def test_prompts_come_from_sharegpt(tmp_path: Path) -> None:
    path = tmp_path / "share.json"
    turns = [{"from": "system", "value": "s"}, {"from": "human", "value": "question"}, {"from": "gpt", "value": "a"}]
    path.write_text(json.dumps([{"id": 1, "conversations": turns}, {"id": 2, "conversations": []}]))
    assert "question" == file_prompts(read_prompts(path), Shape.of(1, 9), 1)(0).content


@pytest.mark.parametrize("content", ["", "[]", "{oops", '{"no": "prompt"}\n', "[1, 2]"])
def test_a_file_without_prompts_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(content)
    with pytest.raises(UsageError):
        file_prompts(read_prompts(path), Shape.of(1, 1), 1)
