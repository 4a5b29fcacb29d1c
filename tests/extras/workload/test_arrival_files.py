"""Arrival traces: the times in the files of others, placed within the step of a coarse clock, and
played at a rate."""

import random
import re
from itertools import accumulate, islice
from pathlib import Path

import numpy as np
import pytest

from frontier.core.model.errors import UsageError
from frontier.core.model.loads import Arrivals, Trace
from frontier.extras.workload.arrival_files import of_column, read_trace
from tests.kit.golden import assert_golden_row

TIMES = [0.0]
_rng = random.Random(5)
while len(TIMES) < 400:
    TIMES.append(round(TIMES[-1] + max(0.002, _rng.gammavariate(0.25, 4.0)), 3))


def trace(times: Arrivals) -> Trace:
    assert times.trace is not None
    return times.trace


def written(path: Path, lines: list[str]) -> str:
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def azure(time: float) -> str:
    minutes, seconds = divmod(time, 60)
    return f"2023-11-16 {18 + int(minutes // 60):02d}:{int(minutes % 60):02d}:{seconds:010.7f},4808,10"


FILES = {
    "azure.csv": ["TIMESTAMP,ContextTokens,GeneratedTokens", *map(azure, TIMES)],
    "burst.csv": [
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
        *(f"{t + 5},x,1.5,GPT-4,472,18,490,Conversation log" for t in TIMES),
    ],
    "mooncake.jsonl": [
        f'{{"timestamp": {round(1000 * t)}, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}}'
        for t in TIMES
    ],
    "bailian.jsonl": [
        f'{{"chat_id": 1, "parent_chat_id": -1, "timestamp": {t}, "input_length": 9, "output_length": 5, "turn": 1}}'
        for t in TIMES
    ],
    "column.txt": ["# seconds", *(f"{t + 100:.3f}" for t in reversed(TIMES))],
    "headed.txt": ["seconds", *map(str, TIMES)],
}


@pytest.mark.parametrize("name", FILES)
def test_each_known_form_gives_its_times_from_zero_on(name: str, tmp_path: Path) -> None:
    arrivals = read_trace(written(tmp_path / name, FILES[name]))
    known = trace(arrivals)
    assert known.times == pytest.approx(TIMES, abs=2e-6)
    assert (known.name, known.count, known.grid) == (name, 400, None)
    assert known.seconds == pytest.approx(TIMES[-1] * 400 / 399)
    assert arrivals.cv == pytest.approx(2.0, abs=0.4)
    assert str(arrivals) == f"{name} ({known.digest[:8]})"


def test_stamps_of_a_coarse_clock_are_placed_within_its_step(tmp_path: Path) -> None:
    rng = random.Random(2)
    exact = sorted(rng.uniform(0, 3_000) for _ in range(3_000))
    coarse = [f'{{"timestamp": {3000 * int(t // 3)}, "input_length": 1, "hash_ids": []}}' for t in exact]
    arrivals = read_trace(written(tmp_path / "mooncake.jsonl", coarse))
    known = trace(arrivals)
    assert known.grid == 3.0
    assert arrivals.cv == pytest.approx(1.0, abs=0.06), "as of the exact times; of the stamps it is 3"
    assert np.abs(np.asarray(known.times) - np.asarray(exact)).max() < 6.0
    again = read_trace(str(tmp_path / "mooncake.jsonl"))
    assert trace(again).digest == known.digest
    assert of_column("mooncake.jsonl", "".join(f"{t:.6f}\n" for t in known.times).encode()) == arrivals


NO_TRACES = {
    "too few": (["1", "2", "3"], "3 arrivals"),
    "all at one time": (["4"] * 200, "200 arrivals"),
    "a word": (["1", "2", "x"], "line 3"),
    "no number": (["1", "nan"], "line 2"),
    "no times": (["a,b", "1,2"], "timestamp"),
    "no date": (["timestamp,b", "soon,2"], "line 2.timestamp"),
    "no unit": (['{"timestamp": 5}', '{"timestamp": 6}'], "timestamps"),
    "empty": ([""], "empty"),
}


@pytest.mark.parametrize("name", NO_TRACES)
def test_what_is_no_trace_is_refused_with_its_line(name: str, tmp_path: Path) -> None:
    lines, what = NO_TRACES[name]
    with pytest.raises(UsageError) as caught:
        read_trace(written(tmp_path / "t", lines))
    assert re.search(rf"\b{re.escape(what)}\b", caught.value.what)
    assert_golden_row("messages", str(caught.value).replace(str(tmp_path), "HERE"))


def test_a_file_that_is_not_there_or_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.csv") as caught:
        read_trace(str(tmp_path / "none.csv"))
    assert_golden_row("messages", str(caught.value).replace(str(tmp_path), "HERE"))
    with pytest.raises(UsageError):
        read_trace(str(tmp_path))
    for damaged in (b"1\n2\n", b"0\n2\n1\n", b"0\n", b"x\n", b"0\nnan\n"):
        with pytest.raises(ValueError, match=r"column|could not convert"):
            of_column("t", damaged)


# --- played at a rate


@pytest.fixture(scope="module")
def known() -> Arrivals:
    return of_column("t", "".join(f"{t:.6f}\n" for t in TIMES).encode())


@pytest.mark.parametrize("rate", [0.5, 8.0])
def test_a_rate_is_the_mean_of_what_is_played_and_the_bursts_stay(known: Arrivals, rate: float) -> None:
    times = list(islice(known.times(rate, seed=7), 4_000))
    assert 4_000 / times[-1] == pytest.approx(rate, rel=0.01)
    gaps = np.diff(times)
    assert gaps.std() / gaps.mean() == pytest.approx(known.cv, rel=0.02)
    assert gaps.min() >= 0
    # One round later the same again.
    period = 400 / rate
    assert np.asarray(times[400:800]) - period == pytest.approx(times[:400])


def test_the_seed_draws_the_part_and_the_mean_over_parts_is_the_rate(known: Arrivals) -> None:
    assert list(islice(known.times(2.0, seed=1), 9)) == list(islice(known.times(2.0, seed=1), 9))
    begun = [list(islice(known.times(2.0, seed=seed), 200)) for seed in range(400)]
    assert len({times[0] for times in begun}) > 390
    counts = [sum(time < 10.0 for time in times) for times in begun]
    assert np.mean(counts) == pytest.approx(20, rel=0.1)
    # The number in a window varies as the index of dispersion of such windows says.
    assert np.var(counts) / np.mean(counts) == pytest.approx(known.spread(20) ** 2, rel=0.4)


def test_a_window_is_long_enough_when_parts_of_it_are_alike(known: Arrivals) -> None:
    index = trace(known).dispersion
    assert min(found - 0.04 * 2**i for i, found in enumerate(index)) > 0
    assert known.long_enough == 400
    for draw, enough in ((lambda rng: 1.0, 1), (lambda rng: rng.expovariate(1), 32)):
        rng = random.Random(1)
        other = of_column(
            "t", "".join(f"{t:.6f}\n" for t in accumulate([0.0] + [draw(rng) for _ in range(4_000)])).encode()
        )
        first = next(i for i, found in enumerate(trace(other).dispersion) if found <= 0.04 * 2**i)
        assert other.long_enough == 2**first == enough
    heavy = of_column("t", "".join(f"{t:.6f}\n" for t in sorted(TIMES * 30)).encode())
    assert heavy.long_enough == len(TIMES) * 30, "no part of it is like another"
    assert (Arrivals().long_enough, Arrivals(3.0).spread(50)) == (0, 3.0)


def test_a_trace_whose_times_are_not_read_is_no_poisson_process(known: Arrivals) -> None:
    bare = known.without_times
    assert bare == known
    with pytest.raises(ValueError, match="trace t "):
        next(bare.times(1.0, seed=1))
