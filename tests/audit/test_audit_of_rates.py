"""An audit of trials at a rate: what was due follows from the seed, of a trace too, and an edit
contradicts it."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from frontier.audit.check import audit
from frontier.audit.contradictions import contradictions
from frontier.run import load
from tests.audit.packs import Files, contents, hashed_again, packed, written, zipped
from tests.golden import assert_golden_row
from tests.sweeps import swept

TEXT = """\
endpoint: simulator
simulator: {{step_base: 4ms, per_decode: 200us, noise: 0.1, max_num_seqs: 8}}
shapes: [64/8]
rate: [20, 60]
arrivals: {arrivals}
requests: 120
repeats: 1
refine: 0
sla: {{p50_ttft: 1s}}
"""
KEY = "default-64x8-q20-grid-r1"


@pytest.fixture(scope="module", params=["poisson", "trace"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Files:
    here = tmp_path_factory.mktemp("rates")
    rng, now = random.Random(1), 0.0
    stamps = [now := now + rng.gammavariate(0.5, 2.0) for _ in range(300)]
    (here / "t.txt").write_text("".join(f"{t}\n" for t in stamps))
    arrivals = "poisson" if request.param == "poisson" else f"{{trace: {here / 't.txt'}}}"
    swept(here / "run", TEXT.format(arrivals=arrivals))
    assert list(contradictions(load(here / "run"))) == []
    files = contents(packed(here / "run", here / "claim.zip"))
    assert audit(here / "claim.zip").found == ()
    assert ("run/arrivals.txt" in files) == (request.param == "trace")
    return files


def in_records(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Callable[[Files], None]:
    def edit(files: Files) -> None:
        file = f"run/trials/{KEY}.jsonl"
        records = change([orjson.loads(line) for line in files[file].splitlines()])
        files[file] = b"".join(orjson.dumps(record) + b"\n" for record in records)

    return edit


def field(name: str, by: float) -> Callable[[Files], None]:
    def change(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        records[60][name] += by
        return records

    return in_records(change)


def window(name: str, change: Callable[[float], float]) -> Callable[[Files], None]:
    def edit(files: Files) -> None:
        file = f"run/evidence/{KEY}.json"
        tree = orjson.loads(files[file])
        tree["window"][name] = change(tree["window"][name])
        files[file] = orjson.dumps(tree)

    return edit


def all_later(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As if every request had arrived when it was sent, so that no wait counts."""
    return [{**record, "scheduled": record["scheduled"] + 0.001} for record in records]


EDITS = {
    "due later": field("scheduled", 0.004),
    "all due later": in_records(all_later),
    "sent before it was due": field("sent", -0.004),
    "one taken out": in_records(lambda r: r[:60] + r[61:]),
    "one twice": in_records(lambda r: [*r, r[60]]),
    "another number": field("index", 10_000),
    "a window cut": window("end", lambda t: t * 0.6),
    "a window drawn out": window("end", lambda t: t + 3.0),
    "a window opened late": window("start", lambda t: t + 2.5),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_of_a_trial_at_a_rate_is_contradicted(what: str, whole: Files, tmp_path: Path) -> None:
    files = dict(whole)
    EDITS[what](files)
    again = list(contradictions(load(written(files, tmp_path))))
    assert {line.startswith(f"trial {KEY}: ") for line in again} == {True}
    assert_golden_row("answers", "\n".join(again).replace(f"trial {KEY}: ", ""))


def test_other_times_of_a_trace_are_another_config(whole: Files, tmp_path: Path) -> None:
    if "run/arrivals.txt" not in whole:
        pytest.skip("there is no trace")
    lines = whole["run/arrivals.txt"].splitlines(keepends=True)
    other = audit(zipped(hashed_again(whole | {"run/arrivals.txt": b"".join(lines[:-1])}), tmp_path / "e.zip")).found
    assert [line for line in other if line.startswith("manifest.json")]
    assert_golden_row("answers", "\n".join(other))
