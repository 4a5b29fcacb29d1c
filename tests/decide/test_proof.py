"""The proof of a setting: error spending, candidates by their windows and visits, what a claim stands on."""

import dataclasses
import math

import pytest
from scipy.stats import binom

from frontier.decide import proof
from frontier.decide.proof import ALPHA, LOOKS, SPEND, Candidate
from frontier.decide.verdict import judge
from frontier.metrics import claim_floor
from frontier.model import ClientHealth, Limit, Phase, Point, Verdict
from tests.stats.made import SHAPE, Server, bounds, trial

TTFT = (Limit("p99_ttft", 0.5),)
NOTHING = Point("d", SHAPE, 8, {}, 0)


def history_of(server, c, *phases, requests=400):
    """Windows of one setting, in this order."""
    history = []
    for phase in phases:
        repeat = 1 + sum(t.phase is phase for t, _ in history)
        t = trial(c, phase, repeat, requests)
        history.append((t, server.run(t)))
    return history


def candidate(verdict, windows):
    return Candidate(8, verdict, "", 0.01, windows, NOTHING, NOTHING)


def test_the_error_of_all_judgements_together_is_alpha_at_most():
    """Each judgement made spends a part of what is left, so that the sum over any number of them stays below."""
    judged, spent = [], 0.0
    for _ in range(40):
        left = proof.error_left(judged)
        spent += sum(SPEND * left * (1 - SPEND) ** k for k in range(len(LOOKS)))
        judged.append(candidate(Verdict.VIOLATES, max(LOOKS)))
    assert ALPHA * 0.99 < spent <= ALPHA * (1 + 1e-12)


def test_a_candidate_given_up_before_its_first_judgement_spends_nothing():
    assert ALPHA == proof.error_left([candidate(Verdict.VIOLATES, LOOKS[0] - 1)])
    assert ALPHA == proof.error_left([candidate(Verdict.MEETS, LOOKS[0])])  # it comes back, as in a fixed sequence
    assert proof.error_left([candidate(Verdict.VIOLATES, LOOKS[0])]) == pytest.approx(ALPHA * (1 - SPEND))


def test_a_candidate_is_judged_after_stated_numbers_of_windows_only():
    server = Server(lambda c: 0.1)
    history = history_of(server, 8, *[Phase.PROVE] * 4)
    verdicts = [proof.candidates(history[:k], TTFT)[0].verdict for k in (1, 2, 3, 4)]
    assert [Verdict.UNPROVEN, Verdict.UNPROVEN, Verdict.MEETS, Verdict.MEETS] == verdicts


def test_a_value_over_the_limit_ends_a_candidate_at_once():
    (given_up,) = proof.candidates(history_of(Server(lambda c: 0.6), 8, Phase.PROVE), TTFT)
    assert Verdict.VIOLATES is given_up.verdict
    assert "p99_ttft" in given_up.reason


def test_visits_that_contradict_a_proof_end_it():
    history = history_of(Server(lambda c: 0.1), 8, *[Phase.PROVE] * 3)
    assert Verdict.MEETS is proof.candidates(history, TTFT)[0].verdict
    slow = Server(lambda c: 0.6)
    slow.clock = 1e6
    history += history_of(slow, 8, Phase.VISIT)
    (given_up,) = proof.candidates(history, TTFT)
    assert Verdict.VIOLATES is given_up.verdict
    assert "visits" in given_up.reason


def test_a_claim_stands_on_proofs_with_their_visits_and_else_on_the_grid():
    server = Server(lambda c: 0.1)
    history = [
        *history_of(server, 8, Phase.GRID, Phase.SCAN, *[Phase.PROVE] * 3, Phase.VISIT),
        *history_of(server, 4, Phase.GRID, Phase.SCAN),
        *history_of(server, 2, Phase.SCAN, Phase.FRONTIER),
    ]
    windows = proof.claim_windows(history)
    assert {8: 1600, 4: 400} == {c: sample.n for c, sample in windows.items()}


@pytest.mark.parametrize(("p", "effective", "alpha"), [(0.99, 909, 0.0175), (0.99, 3000, 0.01), (0.95, 300, 0.0175)])
def test_the_allowance_is_what_the_binomial_law_allows(p, effective, alpha):
    violations = math.floor(proof.allowance(p, effective, alpha) * effective)
    assert binom.cdf(violations, effective, 1 - p) <= alpha < binom.cdf(violations + 1, effective, 1 - p)


def test_too_few_requests_allow_nothing():
    assert proof.allowance(0.99, 100, 0.01) == 0.0


def visited(server):
    """A point that was proven at about 0.1 s, and the same after three visits of a server like this."""
    history = history_of(Server(lambda c: 0.1), 8, *[Phase.PROVE] * 3)
    (alone,) = proof.claim_points(history, TTFT)
    server.clock = 1e6
    history += history_of(server, 8, *[Phase.VISIT] * 3)
    (later,) = proof.claim_points(history, TTFT)
    assert Verdict.MEETS is proof.candidates(history, TTFT)[0].verdict is judge(later, TTFT).verdict
    assert later.n > alone.n
    return alone, later


def test_the_bound_of_a_proof_holds_on_where_visits_do_not_tighten_it():
    alone, later = visited(Server(lambda c: 0.1, sigma=0.25))
    before, after = alone.metrics["p99_ttft"], later.metrics["p99_ttft"]
    assert after.value <= before.upper
    assert after.upper <= before.upper
    assert "that of the proof" not in " ".join(later.notes)


def test_a_value_beyond_the_bound_of_the_proof_has_the_bound_of_all_data_where_that_keeps_the_limit():
    alone, later = visited(Server(lambda c: 0.12))
    before, after = alone.metrics["p99_ttft"], later.metrics["p99_ttft"]
    assert before.value <= before.upper < after.value <= after.upper <= 0.5
    assert "that of the proof" not in " ".join(later.notes)


def test_else_value_and_bound_are_those_of_the_proof_and_a_note_says_so():
    alone, later = visited(Server(lambda c: 0.1, sigma=0.6))
    assert alone.metrics["p99_ttft"] == later.metrics["p99_ttft"]
    assert "p99 TTFT is that of the proof; with all later trials it was" in " ".join(later.notes)


def test_between_two_judgements_nothing_new_is_claimed():
    history = history_of(Server(lambda c: 0.1), 8, *[Phase.PROVE] * 3)
    for count in (1, 2):
        (point,) = proof.claim_points(history[:count], TTFT)
        estimate = point.metrics["p99_ttft"]
        assert math.inf == estimate.upper
        assert estimate.need > estimate.n
        assert Verdict.UNPROVEN is judge(point, TTFT).verdict
    assert Verdict.MEETS is judge(proof.claim_points(history, TTFT)[0], TTFT).verdict


@pytest.mark.parametrize("phase", [Phase.PROVE, Phase.VISIT])
def test_a_window_that_the_client_spoilt_takes_no_part(phase):
    history = history_of(Server(lambda c: 0.1), 8, *[Phase.PROVE] * 3)
    asleep = ClientHealth(suspended=30.0)
    trial_, sample = history_of(Server(lambda c: 2.0), 8, phase)[0]
    spoilt = [*history, (trial_, dataclasses.replace(sample, health=(asleep,)))]
    assert proof.claim_points(history, TTFT) == proof.claim_points(spoilt, TTFT)
    assert Verdict.MEETS is proof.candidates(spoilt, TTFT)[0].verdict


def test_a_candidate_that_the_client_spoils_again_and_again_is_given_up():
    history = history_of(Server(lambda c: 0.1), 8, *[Phase.PROVE] * proof.MOST_SPOILT)
    history = [(t, dataclasses.replace(s, health=(ClientHealth(suspended=30.0),))) for t, s in history]
    assert Verdict.UNPROVEN is proof.candidates(history[:-1], TTFT)[0].verdict
    assert Verdict.VIOLATES is proof.candidates(history, TTFT)[0].verdict


def test_before_its_first_judgement_a_candidate_needs_no_less_than_its_bounds_lack():
    history = history_of(Server(lambda c: 0.01 * c), 16, Phase.PROVE, requests=40)
    (point,) = proof.claim_points(history, TTFT)
    own = proof.claim_point(history[0][1], TTFT, SPEND * ALPHA).metrics["p99_ttft"]
    assert own.need > 3 * own.n, "otherwise this tests nothing"
    assert point.metrics["p99_ttft"].need == own.need
    assert math.isinf(point.metrics["p99_ttft"].upper)


def test_a_candidate_of_windows_that_mean_nothing_is_given_up_with_the_flag():
    (t, sample), *_ = history_of(Server(lambda c: 0.1), 8, Phase.PROVE)
    (given_up,) = proof.candidates([(t, dataclasses.replace(sample, ended=("server_lost",)))], TTFT)
    assert Verdict.VIOLATES is given_up.verdict
    assert given_up.reason == "its measurement is not valid: server_lost"
    assert proof.violation(given_up.point, TTFT) is None


def test_a_metric_that_was_not_measured_says_nothing_of_the_limits_and_one_of_a_class_may_be_missing():
    ((_, sample),) = history_of(Server(lambda c: 0.1), 8, Phase.SCAN)
    point = proof.pilot_point(sample, TTFT)
    over = math.log(point.metrics["p99_ttft"].value / 0.5)
    assert proof.violation(point, TTFT) == pytest.approx(over)
    assert proof.violation(point, (*TTFT, Limit("first.p99_ttft", 0.01))) == pytest.approx(over)
    assert proof.violation(point, (*TTFT, Limit("p99_tpot", 0.01))) is None
    assert proof.violation(point, ()) is None


def test_a_candidate_that_is_given_up_keeps_the_bounds_of_all_its_data():
    ((t, sample),) = history = history_of(Server(lambda c: 0.6), 8, Phase.PROVE)
    assert Verdict.VIOLATES is proof.candidates(history, TTFT)[0].verdict
    assert proof.claim_points(history, TTFT)[0].metrics == {
        **proof.claim_points([(dataclasses.replace(t, phase=Phase.GRID), sample)], TTFT)[0].metrics,
        "p99_ttft": proof.claim_point(sample, TTFT, SPEND * ALPHA).metrics["p99_ttft"],
    }


def test_where_all_windows_are_spoilt_the_point_is_made_of_them():
    history = history_of(Server(lambda c: 0.1), 8, *[Phase.PROVE] * 2)
    history = [(t, dataclasses.replace(s, health=(ClientHealth(suspended=30.0),))) for t, s in history]
    (candidate,) = proof.candidates(history, TTFT)
    assert (800, 0, None) == (candidate.point.n, candidate.windows, candidate.proof)


def test_a_candidate_too_close_to_its_limit_is_given_up_at_a_judgement_and_not_before():
    history = history_of(Server(lambda c: 0.1, sigma=0.02), 8, *[Phase.PROVE] * 3)
    value = proof.claim_points(history, TTFT)[0].metrics["p99_ttft"].value
    close = (Limit("p99_ttft", value * 1.0001),)
    before, then = (proof.candidates(history[:k], close)[0] for k in (2, 3))
    assert Verdict.UNPROVEN is before.verdict
    assert Verdict.VIOLATES is then.verdict
    assert then.reason == f"p99_ttft is too close to its limit for {400 * max(LOOKS):,} requests to decide"


def test_a_claim_of_all_requests_has_the_floor_of_its_percentile_and_a_mean_has_none():
    assert claim_floor(0.99, 128) == proof.fewest_requests(SHAPE, TTFT[0], 128)
    assert proof.fewest_requests(SHAPE, Limit("mean_ttft", 0.5), 128) == 0


def test_independent_requests_stand_for_themselves():
    ((_, sample),) = history_of(Server(lambda c: 0.1), 8, Phase.SCAN, requests=4000)
    assert 1.0 <= proof.dependence(sample, TTFT[0]) < 1.5
    assert proof.dependence(sample, Limit("mean_ttft", 0.5)) == 1.0


def test_before_its_first_judgement_nothing_is_claimed_even_of_enough_requests():
    history = history_of(Server(lambda c: 0.1), 8, Phase.PROVE, requests=3000)
    own = proof.claim_point(history[0][1], TTFT, SPEND * ALPHA).metrics["p99_ttft"]
    assert own.upper < 0.5, "otherwise this tests nothing"
    (point,) = proof.claim_points(history, TTFT)
    assert math.inf == point.metrics["p99_ttft"].upper
    assert point.metrics["p99_ttft"].need == 3000 * proof.WINDOWS


@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.001])
def test_a_claim_has_the_bounds_of_its_own_error(alpha):
    ((_, sample),) = history_of(Server(lambda c: 0.1), 8, Phase.GRID, requests=3000)
    estimate = proof.claim_point(sample, TTFT, alpha, names=("p99_tpot",)).metrics
    assert estimate["p99_ttft"].upper == bounds(sample.ttft, 0.99, 1 - alpha)[1]
    assert estimate["p99_tpot"].upper == bounds(sample.tpot, 0.99)[1], "not limited: as it is shown"


def test_the_reach_of_a_bound_is_its_distance_from_the_value_and_unknown_for_what_was_not_measured():
    (one,) = proof.candidates(history_of(Server(lambda c: 0.1), 8, *[Phase.PROVE] * 3), TTFT)
    estimate = one.point.metrics["p99_ttft"]
    assert one.reach(TTFT[0]) == pytest.approx(math.log(estimate.upper / estimate.value))
    assert one.reach(Limit("p99_tpot", 1.0)) is None
