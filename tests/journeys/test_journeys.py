"""What a new user tries first, as the documents show it: each command is typed, and its answer has
the words that are on the page."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.transcripts import JOURNEYS, ROOT, Shell, alike, blocks, masked, section, steps, workplace

REAL_TIME = {"quickstart", "killed"}
"""These measure, or are killed, on a clock; the other sweeps of simulated engines take no time."""
SLOW = [pytest.mark.slow, pytest.mark.timeout(600)]
MARKS = {"gate": SLOW, "killed": SLOW, "quickstart": [*SLOW, pytest.mark.nightly]}  # the gate types the README's
NOT_CONCLUSIVE = (4, 5)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A directory as a reader has it, and the address of a server."""
    here = tmp_path_factory.mktemp("reader")
    with workplace(here) as url:
        yield here, url


@pytest.mark.process
@pytest.mark.parametrize(
    "journey",
    [pytest.param(name, marks=MARKS.get(name, [])) for name in JOURNEYS],
)
def test_the_journey_goes_as_written(journey: str, reader: tuple[Path, str], tmp_path: Path) -> None:
    workplace, url = reader
    here = tmp_path / "reader"
    shutil.copytree(workplace, here)
    page, heading = JOURNEYS[journey]
    text = section((ROOT / "docs" / page).read_text(), heading)
    for config in blocks(text, "yaml"):
        (here / "sweep.yaml").write_text(config.replace("http://localhost:8000/v1", url))
    shell = Shell(here, url.removesuffix("/v1"), virtual=journey not in REAL_TIME)
    assert steps(text)
    for step in steps(text):
        said = shell.type(step.command)
        if journey in REAL_TIME and shell.code in NOT_CONCLUSIVE:
            pytest.skip(f"this machine was too busy to measure on: {said.splitlines()[-1]}")
        assert alike(step.shown, said), f"$ {step.command}\n{said}\n\non the page:\n{step.shown}"


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
