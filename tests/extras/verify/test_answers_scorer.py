"""A user's scorer: what it reads, what it may print, and how it ends, each with a real process."""

import asyncio
import dataclasses
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from frontier.client.http.http_client import run
from frontier.client.secrets import Secrets
from frontier.core.model.errors import MeasurementError
from frontier.extras.verify.answers import Scorer
from tests.kit.golden import assert_golden_row

pytestmark = pytest.mark.process

ROWS = [
    {"id": "1.1", "prompt": "2 + 2?", "answer": "It is 4.", "reference": "4"},
    {"id": "2.1", "prompt": "A line\nof two lines?", "answer": "no\nidea", "reference": None},
    {"id": "3.1", "prompt": "Größe?", "answer": "\u2028", "reference": ["m", "l"]},
]
EXACT = """\
import json, sys
for line in sys.stdin:
    row = json.loads(line)
    print(1.0 if row["reference"] and str(row["reference"]) in row["answer"] else 0.25)
"""


def scorer(command: str, within: float = 30.0, **environ: str) -> Scorer:
    return Scorer(command, {"PATH": os.environ["PATH"], **environ}, Secrets.of(["hunter2hunter2"]), within)


def scores(one: Scorer, rows: list[dict[str, Any]] = ROWS, stop: float | None = None) -> list[float] | None:
    async def go() -> list[float] | None:
        event = asyncio.Event()
        if stop is not None:
            asyncio.get_running_loop().call_later(stop, event.set)
        return await one.scores(rows, event)

    return run(go())


def test_it_reads_a_json_object_a_line_and_its_numbers_are_the_scores(tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text(EXACT)
    assert [1.0, 0.25, 0.25] == scores(scorer(f"{sys.executable} {tmp_path}/score.py"))
    assert [0.5] * 3 == scores(scorer(f"tee {tmp_path}/read | sed 's/.*/0.5/'"))
    assert ROWS == [json.loads(line) for line in (tmp_path / "read").read_text().split("\n") if line]
    assert [0.0, 1.0, 0.001] == scores(scorer("printf '0\\n 1 \\n1e-3'"))  # the last line may lack its end


WRONG_SCORERS = {
    "none": "true",
    "too few": "echo 1; echo 1",
    "too many": "echo 1; echo; echo 1; echo 1",
    "far too many": "yes 1 | head -c 200000",
    "nan": "echo 1; echo nan; echo 1",
    "empty": "echo 1; echo; echo 1",
    "above 1": "echo 1; echo 1; echo 1.01",
    "below 0": "echo -0.1; echo 1; echo 1",
    "a word": "echo good; echo 1; echo 1",
    "fails": "echo 1; echo 1; echo 1; echo no model >&2; exit 3",
    "a secret": "echo with hunter2hunter2 >&2; exit 1",
    "killed": "kill -9 $$",
    "not there": "/no/such/scorer 2> /dev/null",
}


@pytest.mark.parametrize("case", WRONG_SCORERS)
def test_what_is_no_score_for_each_answer_is_an_error(case: str) -> None:
    with pytest.raises(MeasurementError) as error:
        scores(scorer(WRONG_SCORERS[case]))
    assert error.value.hint
    assert_golden_row("messages", str(error.value))


def test_one_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(MeasurementError) as late:
        scores(scorer(f"(sleep 0.6; touch {tmp_path}/left) & sleep 60", within=0.2))
    assert_golden_row("messages", str(late.value))
    assert time.monotonic() - began < 30
    assert None is scores(scorer("sleep 60"), stop=0.1)
    time.sleep(0.5)
    assert not (tmp_path / "left").exists()


def test_it_gets_the_environment_that_it_is_given_and_is_known_by_its_text(tmp_path: Path) -> None:
    one = scorer("echo $SCORE; echo $SCORE; echo ${KEY:-0}", SCORE="0.75")
    assert [0.75, 0.75, 0.0] == scores(one)
    assert one.mark == dataclasses.replace(one, environ={}).mark != scorer("true").mark
    assert "0.75" not in repr(one)  # the environment may hold secrets
