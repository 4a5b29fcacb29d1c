"""Units of a log's times and the steps of its clocks, against one traffic of known truth in the
forms that gateways write: seconds, milliseconds (as Envoy's DURATION), nanoseconds (as Ollama)."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frontier.core.model.errors import UsageError
from frontier.extras.workload.config_text import config_text
from frontier.extras.workload.log_rows import given_columns, given_units, log_rows
from frontier.extras.workload.log_summary import summary
from frontier.extras.workload.observed import Workload
from frontier.extras.workload.time_units import named_unit
from tests.kit import logs

BEGUN = 1_764_000_000.0
TTFT, E2E, EACH = 0.18, 2.4, 600
"""Of 600 requests in 600 s: 2.4 are in flight."""


def read(path: Path, columns: str | None = None) -> Workload:
    return summary(path.name, log_rows(path, given_columns(columns), given_units(columns)), None)[0]


def written(path: Path, form: Callable[[float, float, float], dict[str, Any]], *, number: int = EACH) -> Path:
    """The truth in a form, of when, TTFT and E2E: each time is up to 10% off, with the mean
    kept.
    """
    rng = random.Random(1)
    rows = []
    for i in range(number):
        factor = 1 + 0.2 * (rng.random() - 0.5)
        lengths = {"prompt_tokens": 400, "completion_tokens": 100}
        rows.append(form(float(i), TTFT * factor, E2E * factor) | lengths)
    return logs.write(path, rows)


FORMS: dict[str, tuple[Callable[[float, float, float], dict[str, Any]], str | None]] = {
    "seconds": (lambda t, f, e: {"time": BEGUN + t, "ttft": f, "latency": e}, None),
    "milliseconds": (lambda t, f, e: {"time": BEGUN + t, "ttft": 1e3 * f, "latency": 1e3 * e}, None),
    "milliseconds, stamps too": (
        lambda t, f, e: {"time": round(1e3 * (BEGUN + t)), "ttft": round(1e3 * f), "latency": round(1e3 * e)},
        None,
    ),
    "TTFT in ms, latency in s": (lambda t, f, e: {"time": BEGUN + t, "ttft": 1e3 * f, "latency": e}, None),
    "TTFT in s, latency in ms": (lambda t, f, e: {"time": BEGUN + t, "ttft": f, "latency": 1e3 * e}, None),
    "microseconds": (lambda t, f, e: {"time": BEGUN + t, "ttft": 1e6 * f, "latency": 1e6 * e}, None),
    "TTFT in us, latency in ms": (lambda t, f, e: {"time": BEGUN + t, "ttft": 1e6 * f, "latency": 1e3 * e}, None),
    "nanoseconds": (lambda t, f, e: {"time": BEGUN + t, "ttft": round(1e9 * f), "duration": round(1e9 * e)}, None),
    "by their names": (
        lambda t, f, e: {"time": BEGUN + t, "ttftMs": 1e3 * f, "took_us": 1e6 * e},
        "ttft=ttftMs,latency=took_us",
    ),
    "asked for": (
        lambda t, f, e: {"time": BEGUN + t, "first": 1e3 * f, "took": 1e6 * e},
        "ttft=first:ms,latency=took:us",
    ),
    "with their units": (lambda t, f, e: {"time": BEGUN + t, "ttft": f"{1e3 * f}ms", "latency": f"{e}s"}, None),
    "ms from the start of the log": (
        lambda t, f, e: {"time": round(1e3 * t), "ttft": 1e3 * f, "latency": 1e3 * e},
        None,
    ),
    "s from the start of the log": (lambda t, f, e: {"time": t, "ttft": 1e3 * f, "latency": 1e3 * e}, None),
    "stamps of ms from the start": (
        lambda t, f, e: {"start_time": 1e3 * t, "first_token_time": 1e3 * (t + f), "end_time": 1e3 * (t + e)},
        None,
    ),
    "ms beside start and end": (
        lambda t, f, e: {"time": BEGUN + t, "end_time": BEGUN + t + e, "ttft": f, "latency": 1e3 * e},
        None,
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_traffic_of_known_truth_is_the_same_in_every_form(name: str, tmp_path: Path) -> None:
    form, columns = FORMS[name]
    found = read(written(tmp_path / "log", form), columns)
    assert found.running is not None
    assert found.running.value == pytest.approx(2.4, rel=0.02)
    assert found.figures["p50_ttft"].value == pytest.approx(TTFT, rel=0.02)
    assert found.figures["p50_e2e"].value == pytest.approx(E2E, rel=0.02)
    assert found.figures["p50_tpot"].value == pytest.approx((E2E - TTFT) / 99, rel=0.02)
    assert found.arrivals is not None
    assert found.arrivals.rate == pytest.approx(1.0, rel=0.01)
    assert "concurrency: [1, 2, 4, 8, 16, 32, 64]" in config_text(found)
    read_otherwise = ("names no unit", "from the start")
    told = [note for note in found.notes if any(words in note for words in read_otherwise)]
    assert bool(told) == (name in {each for each in FORMS if FORMS[each][1] is None} - QUIET)


QUIET = {"seconds", "with their units"}
"""Forms in which nothing is guessed."""


@pytest.mark.parametrize(
    ("column", "unit"),
    [
        *(("latency_ms", 1e-3), ("durationMs", 1e-3), ("TTFT (ms)", 1e-3), ("took.us", 1e-6), ("elapsedNanos", 1e-9)),
        *(("e2e_seconds", 1.0), ("request-time-s", 1.0), ("Elapsed time", 1.0), ("LATENCY_MS", 1e-3)),
        *(("latency", None), ("tokens", None), ("ttfts", None), ("items", None), ("responses", None)),
    ],
)
def test_a_unit_in_the_name_of_a_column(column: str, unit: float | None) -> None:
    assert named_unit(column) == unit


def test_slow_requests_of_a_short_log_stay_seconds(tmp_path: Path) -> None:
    """20 s of a log whose answers of 1,000 tokens take 25 s, which is no odd time."""
    rows = [
        {"time": BEGUN + i / 5, "prompt_tokens": 400, "completion_tokens": 1_000, "latency": 25.0 + i % 3}
        for i in range(100)
    ]
    found = read(logs.write(tmp_path / "log", rows))
    assert found.figures["p50_e2e"].value == 26.0
    assert found.running is not None
    assert found.running.value == pytest.approx(5 * 26, rel=0.03)
    assert not [note for note in found.notes if "unit" in note]


def classified(tmp_path: Path, gap: float) -> Path:
    """Requests of one token that take 15 to 21, in seconds or milliseconds."""
    return logs.write(
        tmp_path / "log",
        [
            {"time": BEGUN + gap * i, "prompt_tokens": 50, "completion_tokens": 1, "latency": 15 + i % 7}
            for i in range(200)
        ],
    )


def test_a_latency_that_may_be_either_is_said(tmp_path: Path) -> None:
    (note,) = [note for note in read(classified(tmp_path, 1.0)).notes if "unit" in note]
    assert "seconds" in note
    assert "--columns latency=latency:ms" in note


def test_a_doubted_latency_that_is_longer_than_the_log_is_asked_for(tmp_path: Path) -> None:
    path = classified(tmp_path, 0.05)
    with pytest.raises(UsageError, match="latency") as caught:
        read(path)
    assert "latency=latency:ms" in (caught.value.hint or "")
    assert read(path, "latency=latency:ms").figures["p50_e2e"].value == pytest.approx(0.018)
    assert read(path, "latency=latency:s").figures["p50_e2e"].value == pytest.approx(18)


def test_a_named_unit_that_cannot_be_is_said(tmp_path: Path) -> None:
    found = read(written(tmp_path / "log", lambda t, f, e: {"time": BEGUN + t, "ttft_ms": f, "latency_ms": 1e3 * e}))
    assert [note for note in found.notes if "ttft=ttft_ms:s" in note]


def vllm_log(path: Path, e2e: float, begun: str = "11-24 08:00:00", number: int = 600) -> Path:
    """vLLM's own log, which stamps whole seconds, of requests at random moments."""
    from datetime import datetime, timedelta

    rng, lines = random.Random(2), []
    start = datetime.fromisoformat(f"2026-{begun}")
    for i in range(number):
        moments = [start + timedelta(seconds=i + rng.random())]
        moments.append(moments[0] + timedelta(seconds=e2e))
        asked, answered = (f"INFO {moment:%m-%d %H:%M:%S}" for moment in moments)
        lines += [
            (moments[0], f"{asked} [logger.py:40] Received request c-{i}: prompt: 'x', prompt_token_ids: [1, 1, 1]\n"),
            (moments[1], f"{answered} [logger.py:70] Generated response c-{i} : output_token_ids: [2, 2, 2, 2]\n"),
        ]
    path.write_text("".join(line for _, line in sorted(lines)))
    return path


@pytest.mark.parametrize("e2e", [0.4, 1.0, 2.4, 5.5])
def test_an_interval_contains_the_step_of_a_clock_of_whole_seconds(e2e: float, tmp_path: Path) -> None:
    found = read(vllm_log(tmp_path / "log", e2e))
    for name in ("p50_e2e", "p99_e2e"):
        figure = found.figures[name]
        assert figure.low is not None
        assert figure.high is not None
        assert figure.low <= e2e <= figure.high
        assert 0 < figure.value <= figure.high
        assert figure.high - figure.low <= 3.0
    assert found.running is not None
    assert found.running.low is not None
    assert found.running.high is not None
    assert found.running.low <= e2e <= found.running.high
    assert found.running.value == pytest.approx(e2e, rel=0.15)
    assert [note for note in found.notes if "1 s" in note]


def test_the_step_of_a_column_of_whole_seconds_is_in_its_interval(tmp_path: Path) -> None:
    found = read(written(tmp_path / "log", lambda t, _, e: {"time": BEGUN + t, "latency": int(e)}))
    figure = found.figures["p50_e2e"]
    assert figure.low is not None
    assert figure.high is not None
    assert figure.low <= E2E <= figure.high


def test_a_clock_without_years_runs_on_over_new_year(tmp_path: Path) -> None:
    found = read(vllm_log(tmp_path / "log", 2.4, begun="12-31 23:55:00"))
    assert found.seconds == pytest.approx(600, abs=3)
    assert found.figures["p50_e2e"].value in (2.0, 3.0)
    assert not [note for note in found.notes if "backwards" in note]


@pytest.mark.parametrize("columns", ["latency=took:min", "latency=:ms", "input=tokens:ms"])
def test_a_colon_without_a_unit_of_time_is_part_of_the_name(columns: str) -> None:
    assert given_units(columns) == {}
    what, _, name = columns.partition("=")
    assert given_columns(columns)[what] == (name,)
