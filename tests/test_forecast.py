"""The forecast of a sweep: what is left of it as trials, how long these take, and how the bounds
add up."""

import math
from dataclasses import replace

import pytest

from frontier.budget import Amount, TrialTimes
from frontier.config import load_config
from frontier.decide.search import Ask, Done
from frontier.forecast import Ahead, Expected, Part, TimeEstimator, ahead, assumed_e2e, candidate_windows, outlook
from frontier.model import Limit, Phase, Series
from frontier.plan import make_plan, make_trial, search_policy
from tests.stats.made import Server

TEXT = """\
endpoint: http://localhost:8000/v1
model: m
shapes: [1024/256]
concurrency: [1, 4, 16, 64]
sla: {p99_ttft: 500ms}
"""


def of(text=TEXT):
    config = load_config(text, "s")
    return config, Series(config.deployments[0].name, config.shapes[0])


def counts(left):
    """How many trials of each phase are expected, and how many are the most."""
    found = {}
    for part in left.parts:
        expected, most = found.get(part.trial.phase, (0, 0))
        found[part.trial.phase] = expected + part.expected, most + part.most
    return found


def left_of(config, series, history=(), ask=None, later=None, prove=()):
    return ahead(config, series, make_plan(config).trials, history, search_policy(config, prove), ask, later)


def measured(config, series, *settings):
    """Trials of a server that takes 10 ms per user to its first token."""
    server = Server(lambda c: 0.01 * c)
    trials = [make_trial(config, config.deployments[0], series.shape, c, phase, 1, 300) for c, phase in settings]
    return [(t, replace(server.run(t), shape=series.shape)) for t in trials]


def test_before_the_first_trial_everything_is_to_come():
    config, series = of()
    found = counts(left_of(config, series))
    assert set(found) == {Phase.SCAN, Phase.PROVE, Phase.GRID, Phase.FRONTIER, Phase.VISIT}
    assert (4, 4) == found[Phase.SCAN][:1] * 2
    assert 3 == found[Phase.GRID][0], "the fourth is expected to be proven"
    assert all(expected <= most for expected, most in found.values())


@pytest.mark.parametrize(
    ("more", "phases"),
    [
        ("refine: 0\n", {Phase.GRID}),
        ("refine: 0\nrequests: 200\nrepeats: 2\n", {Phase.GRID}),
        ("requests: 200\nrefine: 2\n", {Phase.GRID, Phase.PROVE, Phase.FRONTIER, Phase.VISIT}),
    ],
)
def test_what_the_config_states_is_what_is_to_come(more, phases):
    config, series = of(TEXT + more)
    found = counts(left_of(config, series))
    assert set(found) == phases
    assert found[Phase.GRID][0] == 4 * (config.repeats or 1)


def test_without_an_sla_only_the_frontier_is_completed():
    config, series = of(TEXT.replace("sla: {p99_ttft: 500ms}\n", ""))
    assert {Phase.GRID, Phase.FRONTIER} == set(counts(left_of(config, series)))


def test_where_the_lowest_setting_breaks_the_sla_there_is_nothing_to_visit():
    config, series = of(TEXT.replace("500ms", "5ms"))
    history = measured(config, series, (1, Phase.SCAN), (4, Phase.SCAN))
    found = counts(left_of(config, series, history, Ask(1, Phase.PROVE, 400, "")))
    assert Phase.VISIT not in found
    assert 1 == found[Phase.PROVE][0]


def test_a_proof_has_fewer_windows_left_the_more_it_has_until_it_is_judged():
    config, series = of()
    history = measured(config, series, (4, Phase.SCAN), (16, Phase.SCAN), (64, Phase.SCAN))
    ask, said = Ask(16, Phase.PROVE, 334, ""), []
    for windows in range(4):
        proof = measured(config, series, *[(16, Phase.PROVE)] * windows)
        said.append(left_of(config, series, [*history, *proof], ask).proofs[0].expected)
    assert said == [6, 5, 4, 6], "the fourth window is the first of the next judgement"
    assert 3 == candidate_windows(config, series, [*history, *proof], ask).expected, "until its second judgement"


def test_proofs_that_the_user_asked_for_are_all_there_is():
    config, series = of()
    left = left_of(config, series, ask=Ask(8, Phase.PROVE, 100, ""), prove=(4, 8, 32))
    assert [8, 32] == [part.trial.concurrency for part in left.proofs]
    assert () == (*left.looks, *left.rest)
    assert Ahead() == left_of(config, series, ask=Done(""), prove=(4, 8, 32))


def test_each_series_of_the_plan_has_its_own():
    config, _ = of(TEXT.replace("[1024/256]", "[1024/256, 64/32]"))
    assert 2 == len(outlook(config, make_plan(config), {}))
    assert 1 == len(outlook(config, make_plan(config, ["64/32"]), {}))


def test_seconds_follow_the_requests_and_what_trials_took_beside_them():
    config, series = of()
    history = measured(config, series, *((c, Phase.PROVE) for c in (1, 4, 16, 64)))
    estimator = TimeEstimator(config)
    wanted = make_trial(config, config.deployments[0], series.shape, 8, Phase.PROVE, 1, 800)
    alone = estimator.seconds(wanted, TrialTimes(), {series: history})
    e2e = 0.08 + 255 * 0.01 * (1 + 8 / 64)  # the medians of the server's law
    assert alone == pytest.approx(800 / 8 * e2e + 4 * e2e, rel=0.05)
    late = tuple((t, Amount(estimator.seconds(t, TrialTimes(), {series: history}) + 9.0, 300.0)) for t, _ in history)
    assert alone + 9 == pytest.approx(estimator.seconds(wanted, TrialTimes(late), {series: history}))


def test_with_one_setting_measured_the_others_are_neither_as_fast_nor_as_slow_as_can_be():
    config, series = of()
    history = measured(config, series, (1, Phase.SCAN))
    e2e = float(history[0][1].e2e.mean())
    estimator = TimeEstimator(config)
    trial = make_trial(config, config.deployments[0], series.shape, 64, Phase.PROVE, 1, 6400)
    assert 104 * e2e < estimator.seconds(trial, TrialTimes(), {series: history}) < 64 * 104 * e2e


def test_what_series_may_take_more_adds_up_as_independent_errors_do():
    one, other = Expected(60.0, 30.0, 100.0, 40.0), Expected(10.0, 40.0, 20.0, 0.0)
    both = one + other
    assert (190.0, 120.0) == (both.seconds, both.answer_longest)
    assert 160 + 50 == one.longest
    assert both.longest < one.longest + other.longest


def test_a_trial_is_never_bounded_by_more_than_it_may_last():
    config, series = of(TEXT + "max_time: 30s\n")
    trial = make_trial(config, config.deployments[0], series.shape, 4, Phase.PROVE, 1, 60)
    expected = TimeEstimator(config).expected(Ahead(proofs=(Part(trial),)), TrialTimes(), {})
    assert expected.answer <= expected.answer_longest <= max(30.0, expected.answer)


def planned(tmp_seconds=20.0):
    """A config with its estimator, a history whose scan is over, and what its trials took."""
    config, series = of()
    scan = measured(config, series, *((c, Phase.SCAN) for c in (1, 4, 16, 64)))
    proof = measured(config, series, (16, Phase.PROVE))
    times = TrialTimes(tuple((t, Amount(tmp_seconds, 300.0)) for t, _ in (*scan, *proof)))
    return config, series, scan, proof, times


def test_the_end_of_a_series_is_planned_when_its_scan_is_over_and_stays():
    config, series, scan, proof, times = planned()
    plan, policy, estimator = make_plan(config), search_policy(config), TimeEstimator(config)
    assert math.inf == estimator.room(plan, series, scan, TrialTimes(times.taken[:4]), policy)
    room = estimator.room(plan, series, [*scan, *proof], times, policy)
    first = Ask(16, Phase.PROVE, proof[0][0].requests, "")
    then = ahead(config, series, plan.trials, scan, policy, first)
    expected = TimeEstimator(config).expected(then, TrialTimes(times.taken[:4]), {series: scan}).seconds
    assert room == pytest.approx(expected - 20.0), "less what the first window took"
    later = (*times.taken, (proof[0][0], Amount(500.0, 300.0)))
    assert room - 500 == pytest.approx(
        TimeEstimator(config).room(plan, series, [*scan, *proof], TrialTimes(later), policy)
    )
    assert math.inf == estimator.room(plan, series, [*scan, *proof], times, search_policy(config, (16,)))


def test_what_is_optional_takes_what_room_there_is_and_what_is_owed_all_it_needs():
    config, series = of()
    trial = make_trial(config, config.deployments[0], series.shape, 4, Phase.PROVE, 1, 60)
    estimator = TimeEstimator(config)
    one = estimator.seconds(trial, TrialTimes(), {})

    def rest(room, *fill):
        left = Ahead(rest=(Part(trial, 2.0, 2.0), Part(trial, 3.0, 3.0, optional=True)), fill=fill)
        return estimator.expected(left, TrialTimes(), {}, room).rest / one

    assert [rest(k * one) for k in (1, 4, 9, math.inf)] == pytest.approx([2, 4, 5, 5])
    visits = Part(trial, 6.0, 6.0, optional=True)
    assert [rest(k * one, visits) for k in (1, 4, 9, 20, math.inf)] == pytest.approx([2, 4, 9, 11, 5])


def test_before_anything_is_known_a_request_takes_as_long_as_the_sla_lets_it():
    _, series = of()
    assert 0.2 + 255 * 0.015 == pytest.approx(assumed_e2e((), series.shape))
    assert 0.25 + 255 * 0.02 == pytest.approx(
        assumed_e2e((Limit("p99_ttft", 0.5), Limit("p95_tpot", 0.026), Limit("error_rate", 0.01)), series.shape)
    )
    assert 4.0 == pytest.approx(assumed_e2e((Limit("p99_e2e", 6.0),), series.shape))


def test_of_proofs_after_the_answer_the_search_takes_what_it_needs_and_the_completion_what_room_is_left():
    config, series = of()
    scan = measured(config, series, (4, Phase.SCAN), (16, Phase.SCAN), (64, Phase.SCAN))
    answered = [*scan, *measured(config, series, *[(4, Phase.PROVE)] * 6)]
    ask = Ask(16, Phase.PROVE, 334, "")

    def later(history, *asks):
        rest = left_of(config, series, history, *asks).rest
        return [(part.optional, part.expected) for part in rest if part.trial.phase is Phase.PROVE]

    assert later(scan, Ask(16, Phase.PROVE, 334, "")) == [(True, 13.0)], "none of them has begun"
    assert later(answered, ask) == [(False, 12.0)], "the search goes on whatever time the plan has left"
    assert later(answered, Done(""), ask) == [(False, 6.0)], "it may give much more"
    assert later(answered, Done(""), Ask(3, Phase.PROVE, 334, "")) == [(True, 6.0)], "it gives less"
