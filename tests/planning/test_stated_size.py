"""Stated sizes in a plan: which trials end before their requests are sent, and which sizes can
prove nothing."""

import dataclasses

import pytest

from frontier.config import load_config
from frontier.planning.budget import TrialTimes
from frontier.planning.plan import make_plan
from frontier.planning.stated_size import cut_note, size_lines
from frontier.store.journal import Amount
from tests.kit import made
from tests.kit.golden import assert_golden_row

BASE = "endpoint: http://h:1\nmodel: m\nshapes: [64/16]\nconcurrency: [1, 2, 4, 8]\n"


def config_of(*more):
    return load_config(BASE + "\n".join(more), "c.yaml")


def taken(config, each, c=1):
    """The times of one measured setting whose requests took `each` seconds."""
    trial = next(t for t in make_plan(config).trials if t.load == c)
    return TrialTimes(((trial, Amount(each * trial.requests, trial.requests, 0.0)),))


def test_before_a_speed_is_known_it_says_that_windows_end():
    config = config_of("requests: 1000")
    assert_golden_row("answers", "\n".join(size_lines(config, TrialTimes())), "left out")
    assert_golden_row("answers", "\n".join(size_lines(config_of("requests: 1000", "max_time: 2min"), TrialTimes())))
    assert [] == size_lines(config_of(), TrialTimes()), "the sweep sizes its trials"


def test_once_a_speed_is_known_it_says_how_many_requests_are_sent_and_what_sends_all():
    config = config_of("requests: 1000")
    (line,) = size_lines(config, taken(config, 1.0345))
    assert_golden_row("answers", line)
    assert "about 290 of 1,000" in line, "300 s hold 290 requests of 1.03 s"
    assert "max_time: 18min" in line, "1,003 requests take 17.3 min"
    assert [] == size_lines(config, taken(config, 0.2)), "200 s hold all of them"
    longer = config_of("requests: 1000", "max_time: 18min")
    assert [] == size_lines(longer, taken(longer, 1.0345)), "what is advised has room for all"


def test_a_rate_is_known_before_anything_is_measured():
    config = load_config("endpoint: http://h:1\nmodel: m\nshapes: [64/16]\nrate: [0.5]\nrequests: 1000\n", "c.yaml")
    (line,) = size_lines(config, TrialTimes())
    assert "about 150 of 1,000" in line, "300 s at 0.5 per second"


@pytest.mark.parametrize(
    ("more", "enough"),
    [
        (("requests: 100", "refine: 0"), "requests: 1000"),
        (("requests: 100", "refine: 0", "repeats: 2"), "requests: 500"),
        (("budget: {requests: 200}",), "budget.requests: 2000"),
        (("budget: {tokens: 4000}",), "budget.tokens: 32000"),
    ],
)
def test_a_size_under_which_no_setting_can_be_proven_is_said_with_one_that_can(more, enough):
    config = config_of("sla: {p99_e2e: 1s}", *more)
    said = size_lines(config, TrialTimes())[-1]
    assert said.startswith("No setting")
    assert f"{enough} can." in said
    key, _, value = enough.partition(": ")
    kept = [line for line in more if line.partition(":")[0] != key.partition(".")[0]]
    text = f"budget: {{{key.partition('.')[2]}: {value}}}" if "." in key else enough
    again = size_lines(config_of("sla: {p99_e2e: 1s}", *kept, text), TrialTimes())
    assert not [line for line in again if line.startswith("No setting")], "what is advised is enough"
    assert not [line for line in size_lines(config_of("sla: {mean_e2e: 1s}", *more), TrialTimes()) if "No " in line]


def test_a_time_is_too_short_by_the_speed_that_was_seen():
    """One request takes a second at every setting: 36 windows of 20 s hold 360, 200 s hold 200."""
    short = config_of("sla: {p99_e2e: 1s}", "max_time: 20s")
    assert_golden_row("answers", "\n".join(size_lines(short, taken(short, 1.0))))
    spent = config_of("sla: {p95_e2e: 1s}", "budget: {time: 150s}")
    assert "p95 E2E needs 200" in size_lines(spent, taken(spent, 1.0))[-1]
    assert [] == size_lines(spent, taken(spent, 0.5)), "300 requests"
    assert [] == size_lines(short, TrialTimes()), "no speed is known"


def test_the_row_of_a_setting_says_that_a_time_cut_its_stated_requests():
    config = config_of("requests: 1000")
    (trial, sample), *_ = made.grid(made.Server(lambda c: 0.5), (1,), requests=290)
    trial = dataclasses.replace(trial, requests=1000)
    length = float((sample.ends - sample.starts).sum())
    sample = dataclasses.replace(sample, ended=("time",))
    from frontier.core.estimates.estimate import point

    note = cut_note(config, point(sample), [(trial, sample)])
    assert note.startswith(f"{sample.n} of 1,000 requests in ")
    assert f"{-(-length * 1003 / sample.n * 1.02 // 60):.0f}min gives all" in note
    whole = dataclasses.replace(sample, ended=("requests",))
    assert cut_note(config, point(whole), [(trial, whole)]) is None
    assert cut_note(config_of(), point(sample), [(trial, sample)]) is None, "the sweep sized it"
