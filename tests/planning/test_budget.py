"""Budgets as pure functions: when a deadline is, what a trial will take, what fits, and what is
dropped."""

import math
import time
from dataclasses import replace

import pytest

from frontier.config import BudgetConfig, Config, load_config
from frontier.config.complaints import ConfigError
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Phase, Trial
from frontier.planning.budget import Caps, TrialTimes, described_trials
from frontier.planning.plan import halving, make_plan, make_trial
from frontier.store.journal import Amount
from frontier.sweep.ledger import Ledger, deadline
from tests.kit.golden import assert_golden_row

TEXT = """\
endpoint: http://h:8000
shapes: [1024/256]
concurrency: [1, 2, 4, 8]
requests: 100
repeats: 3
max_time: 2min
sla: {p99_ttft: 1s}
"""


def config(more: str = "") -> Config:
    return load_config(TEXT + more, "s.yaml")


def trial(concurrency: int, repeat: int = 1, requests: int = 100, phase: Phase = Phase.GRID) -> Trial:
    c = config()
    return make_trial(c, c.deployments[0], c.shapes[0], concurrency, phase, repeat, requests)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("now", "until", "expected"),
    [
        ("2026-11-21 19:00", "07:00", "2026-11-22 07:00"),
        ("2026-11-21 06:59", "7:00", "2026-11-21 07:00"),
        ("2026-11-21 07:00", "07:00", "2026-11-22 07:00"),
        ("2026-12-31 23:00", "06:30", "2027-01-01 06:30"),
        ("2026-11-21 19:00", "2026-11-23 07:00", "2026-11-23 07:00"),
        ("2026-10-24 20:00", "07:00", "2026-10-25 07:00"),  # the clock is set back this night: 12 hours, not 11
    ],
)
def test_a_deadline_is_the_next_time_the_clock_shows_it(now: str, until: str, expected: str, berlin: None) -> None:
    def unix(text: str) -> float:
        return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M"))

    assert time.ctime(unix(expected)) == time.ctime(deadline(until, unix(now)))


def test_the_night_the_clock_is_set_back_is_an_hour_longer(berlin: None) -> None:
    evening = time.mktime((2026, 10, 24, 20, 0, 0, 0, 0, -1))
    assert 12 * 3600 == deadline("07:00", evening) - evening


@pytest.mark.parametrize("text", ["7", "07.00", "noon", "2026-11-22", ""])
def test_what_is_no_time_of_day_is_no_deadline(text: str) -> None:
    with pytest.raises(ConfigError, match="time of day"):
        config(f"budget: {{until: '{text}'}}\n")


def test_each_limit_refuses_what_would_go_over_it_and_is_named_as_the_config_does() -> None:
    budget = config("price: $1/h\nbudget: {time: 1h, requests: 50000, tokens: 1000000, cost: $20}\n").budget
    caps = Caps.of(budget, None)
    spent = Amount(3500.0, 49_900.0, 990_000.0, 19.0)
    assert caps.refuses(spent, Amount(100.0, 100.0, 10_000.0, 1.0), 0.0) is None
    assert "time 1 h" == caps.refuses(spent, Amount(101.0), 0.0)
    assert "requests 50,000" == caps.refuses(spent, Amount(requests=101.0), 0.0)
    assert "tokens 1,000,000" == caps.refuses(spent, Amount(tokens=10_001.0), 0.0)
    assert "cost $20" == caps.refuses(spent, Amount(dollars=1.01), 0.0)


def test_a_deadline_refuses_by_the_wall_clock_whatever_was_spent() -> None:
    caps = Caps.of(BudgetConfig(until="07:00"), 1000.0)
    assert caps.refuses(Amount(9e9), Amount(seconds=100.0), 900.0) is None
    assert "until 07:00" == caps.refuses(Amount(), Amount(seconds=101.0), 900.0)
    assert 100.0 == caps.seconds_left(Amount(), 900.0)


def test_a_share_is_an_equal_part_of_what_is_left() -> None:
    caps = Caps.of(BudgetConfig(time="100s", requests=1000), 500.0)
    third = caps.share(Amount(seconds=40.0, requests=100.0), 200.0, 3)
    assert [60.0, 400.0, math.inf] == pytest.approx([third.most.seconds, third.most.requests, third.most.tokens])
    assert 300.0 == third.until
    assert 20.0 == third.seconds_left(Amount(seconds=40.0), 200.0)


def test_the_time_of_a_trial_is_interpolated_between_what_was_measured() -> None:
    times = TrialTimes(((trial(1), Amount(103.0, 103.0)), (trial(4), Amount(28.0, 112.0))))
    assert 103.0 == times.seconds(trial(1, 2))
    assert times.seconds(trial(2)) == pytest.approx(53.0)  # a straight line on logarithmic axes
    assert 31.0 == times.seconds(trial(8)), "above what was measured no gain is counted on"
    assert 53.0 == times.seconds(trial(4, 1, 200, Phase.PROVE)), "twice the requests, and as much around them"
    assert 120.0 == times.seconds(trial(1, 1, 900, Phase.PROVE)), "max_time ends a trial"
    assert TrialTimes(((trial(4), Amount(28.0, 112.0)),)).seconds(trial(1)) == pytest.approx(103.0)


def test_a_scan_above_what_was_measured_needs_room_for_the_least_it_may_take() -> None:
    """On an H200 a budget of 4 min ended after 104 s: 16 streams were expected to take four times
    as long as 4.
    """
    times = TrialTimes(((replace(trial(4, 1, 40), seconds=17.5), Amount(41.0, 19.0)),))
    scan = replace(trial(16, 1, 64, Phase.SCAN), seconds=18.6)
    assert times.seconds(scan) == pytest.approx(120.0), "max_time: no gain is counted on"
    assert times.seconds(scan, growing=True) == pytest.approx(18.6 + 3 * 4 * 41 / 19)
    assert times.seconds(trial(1, 1, 10, Phase.SCAN), growing=True) == times.seconds(trial(1, 1, 10)), (
        "below, both are one"
    )
    now = [0.0]
    ledger = Ledger(config("budget: {time: 4min}\n").budget, lambda: now[0], lambda: 0.0)
    ledger.times = times
    now[0] = 104.0
    assert ledger.refuses(scan) is None
    assert ledger.refuses(replace(scan, phase=Phase.PROVE)) == "time 4 min"


def test_a_window_that_is_bounded_by_time_counts_as_long_and_by_what_was_really_sent() -> None:
    cut = replace(trial(1, 1, 1000), seconds=30.0)
    times = TrialTimes(((cut, Amount(36.0, 12.0)),))
    assert 36.0 < (times.seconds(replace(trial(1, 2, 2000), seconds=30.0)) or 0.0) <= 39.0
    assert times.seconds(trial(1, 1, 10)) == pytest.approx(39.0), "three seconds a request"
    assert 60.0 == times.need(replace(trial(8), shape=Shape.of(9, 9), seconds=30.0)).seconds, "nothing is known of it"


def test_nothing_is_expected_of_a_shape_nobody_measured() -> None:
    times = TrialTimes(((trial(1), Amount(100.0, 100.0)),))
    other = load_config(TEXT.replace("1024/256", "64/16"), "s.yaml")
    unknown = make_trial(other, other.deployments[0], other.shapes[0], 1, Phase.GRID, 1, 100)
    assert times.seconds(unknown) is None
    assert Amount(120.0, 103.0, 103 * 16, 12.0) == times.need(unknown, 0.1), "then its longest"


def test_trials_that_are_left_out_are_named_by_what_they_are() -> None:
    trials = make_plan(config("budget: {time: 10min}\n")).trials
    assert_golden_row("progress", described_trials(trials[5:]))


def test_with_a_budget_the_first_repeat_is_even_wherever_it_is_cut() -> None:
    ladder = (1, 2, 4, 8, 16, 32, 64, 128)
    assert [1, 16, 4, 64, 2, 8, 32, 128] == halving(ladder)
    text = TEXT.replace("[1, 2, 4, 8]", str(list(ladder))) + "budget: {until: '07:00'}\n"
    trials = make_plan(load_config(text, "s.yaml")).trials
    assert [1, 16, 4, 64, 2, 8, 32, 128] == [t.load for t in trials if t.repeat == 1]
    assert sorted(ladder) == sorted(t.load for t in trials if t.repeat == 2)
    for n in range(1, 20):
        assert sorted(halving(tuple(range(n)))) == list(range(n))
