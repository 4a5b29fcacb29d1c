"""Causes of jitter: each by hand in a trial of a few streams, and cases of the study with known
truth."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.jitter import KINDS, NEAR, case, table
from frontier.core.model.trials import Outcome, Record, Window
from frontier.extras.diagnose.jitter import GapCause, Jitter, jitter_of, jitter_sentence
from tests.kit.commands import frontier
from tests.kit.sweeps import sweep_in_virtual_time

STEP = 0.010
STREAMS = 4
WINDOW = Window(0.0, 1e6)


def trial(ends: list[float], joins: dict[int, int], streams: int = STREAMS) -> list[Record]:
    """Streams that get a token at each of these times; others, by the step of their first token
    with their prompt's length, get two from then on.
    """
    records = [record(i, ends, prompt=10) for i in range(streams)]
    for number, (step, prompt) in enumerate(joins.items()):
        records.append(record(streams + number, ends[step : step + 2], prompt, sent=ends[step - 5]))
    return records


def record(index: int, ends: list[float], prompt: int, sent: float = 0.0) -> Record:
    gaps = tuple(round((b - a) * 1e6) for a, b in itertools.pairwise(ends))
    return Record(
        index,
        index,
        sent,
        Outcome.OK,
        ends[-1],
        prompt,
        len(ends),
        first=ends[0],
        last=ends[-1],
        prompt_tokens=prompt,
        completion_tokens=len(ends),
        events=len(ends),
        gaps=gaps,
    )


def times(steps: list[float]) -> list[float]:
    return list(itertools.accumulate(steps, initial=1.0))[1:]


def shares(records: list[Record], preemptions: float | None = 0.0) -> dict[GapCause, float]:
    jitter = jitter_of(records, WINDOW, preemptions)
    assert jitter is not None
    assert not jitter.unknown
    return {cause: share for cause, share in jitter.shares.items() if share}


def longer(at: dict[int, float], count: int = 200) -> list[float]:
    return [at.get(i, STEP) for i in range(count)]


def test_steps_that_end_with_a_first_token_are_its_prefill() -> None:
    joins = dict.fromkeys(range(10, 190, 20), 1000)
    assert shares(trial(times(longer(dict.fromkeys(joins, 0.040))), joins)) == {GapCause.PREFILL: 1.0}


def test_a_prompt_read_in_parts_holds_up_several_steps() -> None:
    joins = dict.fromkeys(range(10, 190, 20), 3000)
    steps = dict.fromkeys((step - before for step in joins for before in (0, 1, 2)), 0.040)
    assert shares(trial(times(longer(steps)), joins)) == {GapCause.PREFILL: 1.0}


def test_a_long_step_without_a_prompt_is_a_stall() -> None:
    assert shares(trial(times(longer(dict.fromkeys(range(10, 190, 20), 0.2))), {})) == {GapCause.STALL: 1.0}


def test_a_pause_much_longer_than_the_prompt_in_it_is_a_stall() -> None:
    joins = dict.fromkeys(range(10, 190, 20), 1000)
    found = shares(trial(times(longer(dict.fromkeys(joins, 0.040) | {10: 0.5, 50: 0.5, 90: 0.5})), joins))
    assert found == {GapCause.PREFILL: pytest.approx(2 / 3), GapCause.STALL: pytest.approx(1 / 3)}


def test_tokens_that_come_at_once_after_a_gap_were_held_up_at_the_client() -> None:
    ends = times(longer({}))
    for held in range(10, 190, 20):
        ends[held : held + 4] = [ends[held + 4]] * 4
    assert shares(trial(ends, {})) == {GapCause.CLIENT: 1.0}


def alone() -> list[Record]:
    """A trial in which each of 12 streams pauses twice for five steps, while the others go on."""
    ends = times(longer({}))
    own = [[e for i, e in enumerate(ends) if i // 5 not in (n + 2, n + 20)] for n in range(12)]
    return [record(i, mine, 10) for i, mine in enumerate(own)]


def test_a_gap_of_one_stream_is_a_preemption_where_the_engine_counts_them() -> None:
    assert shares(alone(), preemptions=24.0) == {GapCause.PREEMPTION: 1.0}
    assert shares(alone(), preemptions=0.0) == {GapCause.UNEXPLAINED: 1.0}
    assert shares(alone(), preemptions=None) == {GapCause.UNEXPLAINED: 1.0}
    assert shares(alone(), preemptions=6.0) == {GapCause.PREEMPTION: 0.25, GapCause.UNEXPLAINED: 0.75}


def test_streams_that_share_no_steps_tell_nothing() -> None:
    one, two = (times(longer(dict.fromkeys(range(10, 190, 20), 0.2))) for _ in range(2))
    records = [record(i, one if i < 4 else [t + STEP / 2 for t in two], 10) for i in range(8)]
    found = jitter_of(records, WINDOW, 0.0)
    assert found is not None
    assert not found.shares
    assert "replicas" in found.unknown


@pytest.mark.parametrize("replicas", [8, 16, 64])
def test_streams_without_common_steps_have_no_known_cause(replicas: int) -> None:
    """Arrivals lie so close that all chain into one step: nothing came at once. One replica in
    turn pauses.
    """
    records = []
    for number in range(64):
        of = number % replicas
        steps = [0.15 if i % replicas == of and i > 20 else 0.02 for i in range(200)]
        ends = [end + 0.02 * of / replicas + 1e-4 * number for end in times(steps)]
        records.append(replace(record(number, ends, prompt=10), sent=1e-3 * number))
    found = jitter_of(records, WINDOW, 0.0)
    assert found is not None
    assert "common steps" in found.unknown


def test_few_long_gaps_are_not_shared_out() -> None:
    found = jitter_of(trial(times(longer({20: 0.2})), {}), WINDOW, 0.0)
    assert found is not None
    assert (found.long, found.shares) == (STREAMS, {})
    assert jitter_sentence(found).startswith("not known")


def test_only_gaps_of_the_window_count() -> None:
    ends = times(longer(dict.fromkeys(range(10, 190, 20), 0.2)))
    found = jitter_of(trial(ends, {}), Window(ends[100], ends[-1]), 0.0)
    assert found is not None
    assert found.moments == 4


def test_no_gaps_have_no_jitter() -> None:
    single = replace(record(0, [1.0], 10), gaps=())
    assert jitter_of([single], WINDOW, 0.0) is None
    assert jitter_of([], WINDOW, 0.0) is None


@pytest.mark.parametrize("number", range(1000, 1000 + len(KINDS)))
def test_cases_of_the_study(number: int) -> None:
    row = case(number)
    assert row["error"] <= NEAR, row
    assert f"| {' and '.join(row['planted'])} | 1 | 1 |" in table([row])


CONFIG = """
endpoint: simulator
simulator: {step_base: 8ms, per_prefill_token: 25us, max_batched_tokens: 4096, noise: 0.05}
shapes: [2048/128]
concurrency: [1, 4, 8]
sla: {p99_itl: 60ms}
"""


def test_show_and_the_page_say_why_gaps_are_long(tmp_path: Path) -> None:
    run = tmp_path / "run"
    sweep_in_virtual_time(run, CONFIG)
    (series,) = json.loads(frontier("show", "--json", run, cwd=tmp_path, here=True).out)["jitter"]
    assert all(s["jitter"]["shares"]["prefill"] > 0.9 for s in series["settings"])
    assert all("--max-num-batched-tokens" in s["advice"] for s in series["settings"])
    assert "prefill of other requests" in " ".join(frontier("show", "-v", run, cwd=tmp_path, here=True).out.split())
    page = tmp_path / "page.html"
    frontier("report", run, "-o", page, cwd=tmp_path, here=True)
    text = page.read_text()
    below = text[text.index("p99 gap between chunks is") :]
    assert "prefill of other requests" in below[: below.index("</figure>")]


def test_a_cause_below_the_least_share_is_only_in_json() -> None:
    some = {GapCause.PREFILL: 0.97, GapCause.STALL: 0.03}
    text = jitter_sentence(Jitter(1000, 100, 10, 0.01, 0.1, some))
    assert "97%" in text
    assert "3% stalls" not in text
