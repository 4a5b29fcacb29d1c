"""The busiest hour of a log and what was in flight in it, against a count in a loop over requests
whose rate is known: rushes at any hour, bursts, short logs, samples, midnight."""

import random

import pytest

from frontier.extras.workload.log_rows import LogRow
from frontier.extras.workload.log_summary import ArrivalCounts, Sample, summary
from frontier.extras.workload.observed import Workload

HOUR = 3_600.0
DAY = 1_764_028_800.0
"""A midnight, UTC."""
Request = tuple[float, float]


def requests(*rates: tuple[float, float, float], seed: int = 1, took: float = 3.0) -> list[Request]:
    """Poisson arrivals of so many a second between two times, and how long each takes: where they
    are many twice as long.
    """
    rng, found = random.Random(seed), []
    for begun, end, rate in rates:
        time = begun
        while (time := time + rng.expovariate(rate)) < end:
            found.append((time, rng.lognormvariate(0, 0.5) * took * (2 if rate > 1 else 1)))
    return found


def read(listed: list[Request]) -> Workload:
    rows = [LogRow(DAY + time, 400, 100, e2e=took, name=f"r{i}") for i, (time, took) in enumerate(listed)]
    return summary("log", rows, None)[0]


def truth(listed: list[Request]) -> tuple[float, float]:
    """The rate of the busiest of the hours that begin at five minutes, and what is in flight in
    it.
    """
    first = int(listed[0][0] // 300) * 300
    begun = max(range(first, int(listed[-1][0]), 300), key=lambda at: sum(at <= t < at + HOUR for t, _ in listed))
    inside = sum(begun <= time < begun + HOUR for time, _ in listed)
    return inside / HOUR, sum(max(0.0, min(t + e, begun + HOUR) - max(t, begun)) for t, e in listed) / HOUR


RUSHES = {
    "from 8:30 to 9:30": ((7 * HOUR, 8.5 * HOUR, 0.15), (8.5 * HOUR, 9.5 * HOUR, 1.25), (9.5 * HOUR, 11 * HOUR, 0.15)),
    "from 8:32 to 9:32": ((7 * HOUR, 30_720, 0.15), (30_720, 34_320, 1.25), (34_320, 11 * HOUR, 0.15)),
    "of 40 minutes": ((7 * HOUR, 8.5 * HOUR, 0.15), (8.5 * HOUR, 33_000, 1.25), (33_000, 11 * HOUR, 0.15)),
    "over midnight": ((21 * HOUR, 23.5 * HOUR, 0.2), (23.5 * HOUR, 24.5 * HOUR, 1.5), (24.5 * HOUR, 27 * HOUR, 0.2)),
    "at the end": ((7 * HOUR, 9 * HOUR, 0.15), (9 * HOUR, 10.1 * HOUR, 1.25)),
    "after a night without any": ((0, HOUR, 0.3), (8.75 * HOUR, 9.75 * HOUR, 1.25), (9.75 * HOUR, 12 * HOUR, 0.3)),
}


@pytest.mark.parametrize("name", RUSHES)
def test_a_rush_at_any_time_is_the_busiest_hour_and_no_burst(name: str) -> None:
    listed = requests(*RUSHES[name])
    rate, running = truth(listed)
    found = read(listed)
    assert found.arrivals is not None
    assert found.running is not None
    assert found.arrivals.busiest == pytest.approx(rate)
    assert found.running.value == pytest.approx(running)
    assert found.running.low is not None
    assert found.running.high is not None
    assert found.running.low <= running <= found.running.high
    assert found.arrivals.cv == pytest.approx(1.0, abs=0.15)


def test_a_burst_shorter_than_five_minutes_is_a_burst() -> None:
    found = read(requests((7 * HOUR, 8 * HOUR, 0.5), (8 * HOUR, 8.05 * HOUR, 8.0), (8.05 * HOUR, 11 * HOUR, 0.5)))
    assert found.arrivals is not None
    assert (found.arrivals.cv or 0) > 2.5


@pytest.mark.parametrize("length", [120.0, 1_200.0, 3_900.0])
def test_of_a_log_of_less_than_an_hour_all_is_looked_at(length: float) -> None:
    listed = requests((0.0, length, 1.0), took=5.0)
    found = read(listed)
    span = listed[-1][0] - listed[0][0]
    assert found.arrivals is not None
    assert found.running is not None
    assert found.arrivals.busiest == pytest.approx(len(listed) / span)
    assert found.running.value == pytest.approx(sum(took for _, took in listed) / span), "Little's law"
    assert found.running.low is not None
    assert found.running.low < found.running.value


def test_requests_longer_than_the_log_are_in_flight_all_of_it() -> None:
    listed = [(float(i), 130.0) for i in range(60)]
    running = read(listed).running
    assert running is not None
    assert running.value == pytest.approx(60 * 130 / 59)


@pytest.mark.parametrize("seed", range(4))
def test_of_a_sample_what_is_in_flight_is_scaled_to_all(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = requests((0, HOUR, 0.5), (HOUR, 2 * HOUR, 1.9), (2 * HOUR, 8 * HOUR, 0.5), seed=seed)
    monkeypatch.setattr("frontier.extras.workload.log_summary.Sample", lambda: Sample(5_000))
    found = read(listed)
    _, running = truth(listed)
    assert any("by a hash" in note for note in found.notes)
    assert found.running is not None
    assert found.running.value == pytest.approx(running, rel=0.08)
    assert found.running.low is not None
    assert found.running.high is not None
    assert found.running.low <= running <= found.running.high


def test_requests_without_a_time_of_their_own_are_taken_for_the_others() -> None:
    listed = requests((0, 2 * HOUR, 1.0))
    rows = [
        LogRow(DAY + time, 400, 100, e2e=took if i % 3 else None, name=f"r{i}") for i, (time, took) in enumerate(listed)
    ]
    found = summary("log", rows, None)[0]
    assert found.running is not None
    assert found.running.value == pytest.approx(truth(listed)[1], rel=0.05)


def test_hours_that_may_be_the_busiest_keep_their_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rush over two hours of the clock, of which each alone is not the busiest."""
    monkeypatch.setattr("frontier.extras.workload.log_summary.MOST_HOURS", 10)
    counts, rng = ArrivalCounts(), random.Random(1)
    for hour in range(60):
        # 0.5 a second in every fourth hour, and a rush of 0.9 from 30:30 to 31:30.
        time = hour * HOUR
        while (time := time + rng.expovariate(1.0)) < (hour + 1) * HOUR:
            rush = 30.5 * HOUR <= time < 31.5 * HOUR
            if rng.random() < (0.9 if rush else 0.6 if hour % 4 == 0 else 0.02):
                counts.add(time)
    facts = counts.facts()
    assert facts is not None
    assert facts.busiest == pytest.approx(0.9, rel=0.06)
    assert facts.cv == pytest.approx(1.0, abs=0.15)
