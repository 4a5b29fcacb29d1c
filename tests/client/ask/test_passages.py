"""Natural prompts: fresh passages of the corpus, of the asked length by the server's own count."""

import asyncio
import json
import re
import statistics
from pathlib import Path

import pytest

from frontier.client.ask.passages import LEAD
from frontier.client.ask.prompts import Calibration, PromptPlan, calibrate_words, random_prompts, session_prompts
from frontier.client.engines.request import Content
from frontier.config import load_config
from frontier.config.schema import MOST_NATURAL
from frontier.core.model.shapes import Lengths, Shape
from frontier.read_run import load
from tests.core.model.test_shapes_mixes import MIX
from tests.kit.commands import frontier

NATURAL = Calibration(natural=True)
UNIT = re.compile(r"\w+|[^\w\s]")


def text(content: Content) -> str:
    assert isinstance(content, str)
    return content


def units(content: Content) -> list[str]:
    return UNIT.findall(text(content))


def test_no_two_prompts_of_a_sweep_share_their_first_block() -> None:
    shape = Shape.of(200, 4)
    heads = [tuple(units(random_prompts(shape, s, NATURAL)(i).content)[:16]) for s in range(10) for i in range(1000)]
    assert len(heads) == len(set(heads))
    leads = {head[:LEAD] for head in heads}
    assert len(heads) == len(leads)


def test_the_same_seed_and_index_give_the_same_prompt() -> None:
    shape = Shape.of(100, 4)
    assert random_prompts(shape, 3, NATURAL)(17) == random_prompts(shape, 3, NATURAL)(17)
    assert random_prompts(shape, 3, NATURAL)(17) != random_prompts(shape, 4, NATURAL)(17)


@pytest.mark.parametrize("isl", [1, LEAD, LEAD + 1, 5000, MOST_NATURAL])
def test_every_length_is_met_in_words_and_marks(isl: int) -> None:
    for index in range(3):
        assert isl == len(units(random_prompts(Shape.of(isl, 1), 1, NATURAL)(index).content))


def test_the_longest_prompt_holds_no_passage_twice() -> None:
    longest = units(random_prompts(Shape.of(MOST_NATURAL, 1), 2, NATURAL)(0).content)
    start = longest[LEAD : LEAD + 40]
    assert 1 == sum(longest[i : i + 40] == start for i in range(len(longest)) if longest[i] == start[0])


def test_the_prefix_is_shared_and_what_follows_is_not() -> None:
    shape = Shape(Lengths.fixed(400), Lengths.fixed(4), prefix=0.25)
    contents = [units(random_prompts(shape, seed, NATURAL)(i).content) for seed in range(3) for i in range(5)]
    assert {400} == {len(each) for each in contents}
    assert 1 == len({tuple(each[:100]) for each in contents})
    assert 15 == len({tuple(each[100:108]) for each in contents})


def test_sessions_and_mixes_are_of_natural_text() -> None:
    config = load_config("endpoint: http://h\nshapes: [{name: agent, turns: 3, first: 300, per_turn: 100/20}]\n", "t")
    sessions = session_prompts(config.shapes[0], 5, Calibration(ids=(1, 9), natural=True), 0)
    assert 290 < len(units(sessions(0).content)) < 310
    assert text(sessions(0).content) != text(sessions(1).content)
    mixed = PromptPlan(MIX, 5, NATURAL, streams=0).source()
    assert all(isinstance(mixed(i).content, str) for i in range(8))


def tokens_of(unit: str) -> int:
    """A vocabulary that cuts long words."""
    return 1 + len(unit) // 7


@pytest.mark.parametrize("longest", [64, 1024, 8192])
def test_a_calibration_is_right_on_average(longest: int) -> None:
    asked: list[int] = []

    async def count(content: Content) -> int:
        asked.append(9 + sum(map(tokens_of, units(content))))
        return asked[-1]

    calibration = asyncio.run(calibrate_words(count, longest, natural=True))
    assert (9, True) == (calibration.offset, calibration.natural)
    assert sum(asked) < 30_000
    for isl in (256, 2048):
        source = random_prompts(Shape.of(isl, 1), 11, calibration)
        counts = [9 + sum(map(tokens_of, units(source(i).content))) for i in range(200)]
        assert isl == pytest.approx(statistics.mean(counts), rel=0.015)


SIMULATED = """\
simulator: {max_num_seqs: 16, prefix_cache: true, speculation: {tokens: 3, acceptance: 0.6}}
endpoint: simulator
shapes: [256/8]
concurrency: [4]
requests: 60
repeats: 1
warmup: 100ms
max_time: 20s
prompts: PROMPTS
"""


@pytest.mark.process
def test_natural_text_over_http_is_of_the_asked_length_fresh_and_beside_random_words(tmp_path: Path) -> None:
    for prompts in ("natural", "random"):
        (tmp_path / f"{prompts}.yaml").write_text(SIMULATED.replace("PROMPTS", prompts))
        swept = frontier("sweep", f"{prompts}.yaml", "-o", prompts, cwd=tmp_path)
        assert swept.code in (0, 5), swept.err  # 5: this machine was busy, which says nothing about prompts
    run = load(tmp_path / "natural")
    (point,) = run.points()
    assert not {"wrong_input_length", "cache_contaminated"} & {flag.name for flag in point.flags}
    (sample,) = run.samples(point.series).values()
    assert 256 == pytest.approx(sample.prompt_tokens.mean(), rel=0.05), "60 prompts, whose lengths differ by 7%"
    assert not [note for note in point.notes if "drafts" in note]
    (made_up,) = load(tmp_path / "random").points()
    assert [True] == ["prompts: natural" in note for note in made_up.notes if "drafts were accepted" in note]
    compared = frontier("compare", "random", "natural", "--json", cwd=tmp_path)
    (shape,) = json.loads(compared.out)["shapes"]
    (note,) = (note for note in shape["notes"] if note.startswith("The prompts differ"))
    assert re.search(r"tokens a step, speculating: [12]\.\d+, [12]\.\d+; prompt tokens found cached: 0%, 0%", note), (
        note
    )
