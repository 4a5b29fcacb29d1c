"""The ten first hours of docs/journeys.md: each command is typed, and its answer has the words that
are on the page."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transcripts import ROOT, Shell, alike, blocks, masked, steps, workplace

PAGE = (ROOT / "docs" / "journeys.md").read_text()
PARTS = dict(re.findall(r"^## (\d+)\. (.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
REAL_TIME = {"1", "7"}
"""These measure, or are killed, on a clock; the other sweeps of simulated engines take no time."""
SLOW = REAL_TIME | {"9"}
ENGINE = "2"
"""A real engine's: tests/engines/test_readme.py."""
NOT_CONCLUSIVE = (4, 5)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A directory as a reader has it, and the address of a server."""
    here = tmp_path_factory.mktemp("reader")
    with workplace(here) as url:
        yield here, url


@pytest.mark.process
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(n, marks=[pytest.mark.slow, pytest.mark.timeout(600)] if n in SLOW else [])
        for n in PARTS
        if n != ENGINE
    ],
)
def test_the_journey_goes_as_written(number: str, reader: tuple[Path, str], tmp_path: Path) -> None:
    workplace, url = reader
    here = tmp_path / "reader"
    shutil.copytree(workplace, here)
    text = PARTS[number]
    for config in blocks(text, "yaml"):
        (here / "sweep.yaml").write_text(config.replace("http://localhost:8000/v1", url))
    shell = Shell(here, url.removesuffix("/v1"), virtual=number not in REAL_TIME)
    assert steps(text)
    for step in steps(text):
        said = shell.type(step.command)
        if number in REAL_TIME and shell.code in NOT_CONCLUSIVE:
            pytest.skip(f"this machine was too busy to measure on: {said.splitlines()[-1]}")
        assert alike(step.shown, said), f"$ {step.command}\n{said}\n\non the page:\n{step.shown}"


def test_ten_journeys_are_there() -> None:
    assert [str(n) for n in range(1, 11)] == list(PARTS)


@pytest.mark.parametrize(
    ("shown", "said", "same"),
    [
        ("c=1 2 4 inside · 12 s", "c=8 16\ninside · 1 min 3 s", True),
        ("p99 TTFT 81.1 ms", "p99 TTFT 7 s", True),
        ("p99 TTFT 81.1 ms", "p99 TPOT 81.1 ms", False),
        ("p99 TTFT", "p99 TPOT", False),
        ("first\n...\nlast", "first\nand\nmore\nlast", True),
        ("first\n...\nlast", "first\nlast", True),
        ("first\n...", "other\nfirst", False),
        ("...\nlast", "first\nlast\nmore", False),
        ("", "something", False),
        ("a [b](c)", "a [b](d)", False),
    ],
)
def test_numbers_may_differ_and_words_may_not(shown: str, said: str, same: bool) -> None:
    assert alike(shown, said) is same, (masked(shown), masked(said))
