"""The proof of a setting: error spending, candidates by their windows and visits, what a claim
stands on."""

import dataclasses
import math

import pytest
from scipy.stats import binom

from frontier.core.claim import proof, solver
from frontier.core.claim.claimed import _with_proof, claim_points, claim_windows
from frontier.core.claim.proof import ALPHA, JUDGED_AFTER, SPEND, Candidate
from frontier.core.claim.verdict import judge
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.metrics import claim_floor
from frontier.core.model.points import FLAG_WORDS, Point
from frontier.core.model.trials import ClientHealth, Phase
from frontier.core.stats import intervals
from frontier.core.window.window import join
from frontier.search import window_size
from frontier.show.view.explain import sentence
from frontier.show.view.rough import roughly
from frontier.show.view.sentences import next_step_words
from frontier.show.view.wording import bound_text
from tests.kit.golden import assert_golden_row
from tests.kit.made import SHAPE, Server, bounds, trial
from tests.kit.made import sample as made_sample

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
    """Each judgement made spends a part of what is left, so that the sum over any number of them
    stays below.
    """
    judged, spent = [], 0.0
    for _ in range(40):
        left = proof.error_left(judged)
        spent += sum(SPEND * left * (1 - SPEND) ** k for k in range(len(JUDGED_AFTER)))
        judged.append(candidate(Verdict.VIOLATES, max(JUDGED_AFTER)))
    assert ALPHA * 0.99 < spent <= ALPHA * (1 + 1e-12)


def test_a_candidate_given_up_before_its_first_judgement_spends_nothing():
    assert ALPHA == proof.error_left([candidate(Verdict.VIOLATES, JUDGED_AFTER[0] - 1)])
    assert ALPHA == proof.error_left(
        [candidate(Verdict.MEETS, JUDGED_AFTER[0])]
    )  # it comes back, as in a fixed sequence
    assert proof.error_left([candidate(Verdict.VIOLATES, JUDGED_AFTER[0])]) == pytest.approx(ALPHA * (1 - SPEND))


def test_a_candidate_is_judged_after_stated_numbers_of_windows_only():
    server = Server(lambda c: 0.1)
    history = history_of(server, 8, *[Phase.PROVE] * 4)
    verdicts = [proof.candidates(history[:k], TTFT)[0].verdict for k in (1, 2, 3, 4)]
    assert [Verdict.UNPROVEN, Verdict.UNPROVEN, Verdict.MEETS, Verdict.MEETS] == verdicts


def test_a_bound_of_a_proof_says_how_sure_it_is():
    """Of the same windows, the bound at a part of the error lies outside the 95% interval: they
    are not of one confidence, and are not said to be.
    """
    limits = (*TTFT, Limit("error_rate", 0.05))
    history = history_of(Server(lambda c: 0.1), 8, *[Phase.PROVE] * 3)
    (point,) = claim_points(history, limits)
    (candidate,) = proof.candidates(history, limits)
    errors = point.metrics["error_rate"]
    assert (errors.upper > errors.high, 1 - candidate.alpha) == (True, errors.confidence)
    assert {errors.confidence} == {point.metrics[limit.metric].confidence for limit in limits}
    usual = point.metrics["p50_tpot"]
    assert (0.95, True) == (usual.confidence, usual.upper <= usual.high)
    assert "98%" in bound_text(errors, limits[1])


def test_without_limits_the_windows_of_a_proof_are_a_point_and_nobody_is_a_candidate():
    """A run with a proof, beside one without an SLA."""
    history = history_of(Server(lambda c: 0.1), 8, *[Phase.PROVE] * 3)
    assert [] == proof.candidates(history, ())
    (point,) = claim_points(history, ())
    assert (8, sum(sample.n for _, sample in history)) == (point.load, point.n)


def test_a_value_over_the_limit_ends_a_candidate_at_once():
    (given_up,) = proof.candidates(history_of(Server(lambda c: 0.6), 8, Phase.PROVE), TTFT)
    assert Verdict.VIOLATES is given_up.verdict
    assert "p99 TTFT" in given_up.reason


def test_visits_that_contradict_a_proof_end_it():
    history = history_of(Server(lambda c: 0.1), 8, *[Phase.PROVE] * 3)
    assert Verdict.MEETS is proof.candidates(history, TTFT)[0].verdict
    slow = Server(lambda c: 0.6)
    slow.clock = 1e6
    history += history_of(slow, 8, Phase.VISIT)
    (given_up,) = proof.candidates(history, TTFT)
    assert Verdict.VIOLATES is given_up.verdict
    assert "contradict" in given_up.reason


def test_visits_that_are_not_valid_end_a_proof_and_contradict_none():
    """What the grid alone proves of another setting is enough as before."""
    server = Server(lambda c: 0.1)
    history = history_of(server, 4, Phase.GRID, requests=2000) + history_of(server, 8, *[Phase.PROVE] * 3)
    ((trial, sample),) = history_of(server, 8, Phase.VISIT)
    history.append((trial, dataclasses.replace(sample, ended=("server_lost",))))
    given_up = next(k for k in proof.candidates(history, TTFT) if k.load == 8)
    assert (Verdict.VIOLATES, True) == (given_up.verdict, FLAG_WORDS["server_lost"] in given_up.reason)
    verdicts = {point.load: judge(point, TTFT).verdict for point in claim_points(history, TTFT)}
    assert {4: Verdict.MEETS, 8: Verdict.INVALID} == verdicts


def test_a_claim_stands_on_the_grid_proofs_and_visits_together_and_on_no_look():
    server = Server(lambda c: 0.1)
    history = [
        *history_of(server, 8, Phase.GRID, Phase.SCAN, *[Phase.PROVE] * 3, Phase.VISIT),
        *history_of(server, 4, Phase.GRID, Phase.SCAN),
        *history_of(server, 2, Phase.SCAN, Phase.FRONTIER),
    ]
    windows = claim_windows(history)
    assert {8: 2000, 4: 400} == {c: sample.n for c, sample in windows.items()}


def by_grid(later, *phases, requests=240):
    """The history of a setting that the grid's own data prove, and of what a server like `later`
    showed then.
    """
    history = history_of(Server(lambda c: 0.1), 8, Phase.GRID, requests=2000)
    assert Verdict.MEETS is judge(claim_points(history, TTFT)[0], TTFT).verdict
    later.clock = 1e6
    return history, history + history_of(later, 8, *phases, requests=requests)


@pytest.mark.parametrize("phases", [[Phase.VISIT], [Phase.VISIT] * 3, [Phase.PROVE], [Phase.PROVE] * 2, [Phase.GRID]])
def test_what_the_grid_proved_stays_proven_with_windows_that_alone_prove_nothing(phases):
    before, after = by_grid(Server(lambda c: 0.1), *phases)
    assert Verdict.MEETS is not judge(claim_points(after[len(before) :], TTFT)[0], TTFT).verdict
    (point,) = claim_points(after, TTFT)
    assert Verdict.MEETS is judge(point, TTFT).verdict
    assert point.n == 2000 + 240 * len(phases)


def test_what_the_grid_left_open_is_judged_again_at_the_error_that_all_judgements_share():
    history = history_of(Server(lambda c: 0.1), 8, Phase.GRID, *[Phase.VISIT] * 3)
    own = proof.claim_point(join([sample for _, sample in history]), TTFT, SPEND * ALPHA)
    assert math.isinf(claim_points(history[:1], TTFT)[0].metrics["p99_ttft"].upper)
    assert own.metrics["p99_ttft"] == claim_points(history, TTFT)[0].metrics["p99_ttft"]


@pytest.mark.parametrize("phase", [Phase.VISIT, Phase.PROVE])
def test_later_windows_that_are_over_the_limit_contradict_the_grid(phase):
    _, after = by_grid(Server(lambda c: 0.6), phase, requests=400)
    assert Verdict.VIOLATES is judge(claim_points(after, TTFT)[0], TTFT).verdict


def test_a_candidate_is_judged_with_the_data_of_the_grid_and_sized_without_them():
    server = Server(lambda c: 0.1)
    history = history_of(server, 8, Phase.GRID, *[Phase.PROVE] * 3)
    (candidate,) = proof.candidates(history, (Limit("p99_ttft", 0.17),))
    assert (3, 1200, 1600) == (candidate.windows, candidate.fresh, candidate.point.n)
    assert 1 == pytest.approx(proof.growth(1600, 1200, 3, 3))
    assert 1600 + 33 * 400 == pytest.approx(1600 * proof.growth(1600, 1200, 3, 36))


def test_grid_windows_that_the_client_spoilt_count_only_where_there_are_no_others():
    ((t, sample),) = history_of(Server(lambda c: 2.0), 8, Phase.GRID)
    spoilt = (t, dataclasses.replace(sample, health=(ClientHealth(suspended=30.0),)))
    history = history_of(Server(lambda c: 0.1), 8, *[Phase.PROVE] * 3)
    assert claim_points(history, TTFT) == claim_points([spoilt, *history], TTFT)
    assert 400 == claim_windows([spoilt])[8].n


@pytest.mark.parametrize(("p", "effective", "alpha"), [(0.99, 909, 0.0175), (0.99, 3000, 0.01), (0.95, 300, 0.0175)])
def test_the_allowance_is_what_the_binomial_law_allows(p, effective, alpha):
    violations = math.floor(window_size.allowance(p, effective, alpha) * effective)
    assert binom.cdf(violations, effective, 1 - p) <= alpha < binom.cdf(violations + 1, effective, 1 - p)


def test_too_few_requests_allow_nothing_and_as_many_as_prove_with_none_late_half_a_request():
    assert window_size.allowance(0.99, 100, 0.01) == 0.0
    assert binom.cdf(0, 400, 0.01) <= 0.05 < binom.cdf(1, 400, 0.01)
    assert window_size.allowance(0.99, 400, 0.05) == 0.5 / 400


def visited(server):
    """A point that was proven at about 0.1 s, and the same after three visits of a server like
    this.
    """
    history = history_of(Server(lambda c: 0.1), 8, *[Phase.PROVE] * 3)
    (alone,) = claim_points(history, TTFT)
    server.clock = 1e6
    history += history_of(server, 8, *[Phase.VISIT] * 3)
    (later,) = claim_points(history, TTFT)
    assert Verdict.MEETS is proof.candidates(history, TTFT)[0].verdict is judge(later, TTFT).verdict
    assert later.n > alone.n
    return alone, later


def notes_of_the_proof(point):
    return [note for note in point.notes if "p99 TTFT" in note]


def test_the_bound_of_a_proof_holds_on_where_visits_do_not_tighten_it():
    alone, later = visited(Server(lambda c: 0.1, sigma=0.25))
    before, after = alone.metrics["p99_ttft"], later.metrics["p99_ttft"]
    assert after.value <= before.upper
    assert after.upper <= before.upper
    assert notes_of_the_proof(later) == []


def test_a_value_beyond_the_bound_of_the_proof_has_the_bound_of_all_data_where_that_keeps_the_limit():
    alone, later = visited(Server(lambda c: 0.12))
    before, after = alone.metrics["p99_ttft"], later.metrics["p99_ttft"]
    assert before.value <= before.upper < after.value <= after.upper <= 0.5
    assert notes_of_the_proof(later) == []


def test_else_value_and_bound_are_those_of_the_proof_and_a_note_says_so():
    alone, later = visited(Server(lambda c: 0.1, sigma=0.6))
    assert alone.metrics["p99_ttft"] == later.metrics["p99_ttft"]
    (note,) = notes_of_the_proof(later)
    assert_golden_row("answers", note)


def test_between_two_judgements_nothing_new_is_claimed():
    history = history_of(Server(lambda c: 0.1), 8, *[Phase.PROVE] * 3)
    for count in (1, 2):
        (point,) = claim_points(history[:count], TTFT)
        estimate = point.metrics["p99_ttft"]
        assert math.inf == estimate.upper
        assert estimate.need > estimate.n
        assert Verdict.UNPROVEN is judge(point, TTFT).verdict
    assert Verdict.MEETS is judge(claim_points(history, TTFT)[0], TTFT).verdict


@pytest.mark.parametrize("phase", [Phase.PROVE, Phase.VISIT])
def test_a_window_that_the_client_spoilt_takes_no_part(phase):
    history = history_of(Server(lambda c: 0.1), 8, *[Phase.PROVE] * 3)
    asleep = ClientHealth(suspended=30.0)
    trial_, sample = history_of(Server(lambda c: 2.0), 8, phase)[0]
    spoilt = [*history, (trial_, dataclasses.replace(sample, health=(asleep,)))]
    assert claim_points(history, TTFT) == claim_points(spoilt, TTFT)
    assert Verdict.MEETS is proof.candidates(spoilt, TTFT)[0].verdict


def test_a_candidate_that_the_client_spoils_again_and_again_is_given_up():
    history = history_of(Server(lambda c: 0.1), 8, *[Phase.PROVE] * proof.MOST_SPOILT)
    history = [(t, dataclasses.replace(s, health=(ClientHealth(suspended=30.0),))) for t, s in history]
    assert Verdict.UNPROVEN is proof.candidates(history[:-1], TTFT)[0].verdict
    assert Verdict.VIOLATES is proof.candidates(history, TTFT)[0].verdict


def test_before_its_first_judgement_a_candidate_needs_no_less_than_its_bounds_lack():
    history = history_of(Server(lambda c: 0.01 * c), 16, Phase.PROVE, requests=40)
    (point,) = claim_points(history, TTFT)
    own = proof.claim_point(history[0][1], TTFT, SPEND * ALPHA).metrics["p99_ttft"]
    assert own.need > 3 * own.n, "otherwise this tests nothing"
    assert point.metrics["p99_ttft"].need == own.need
    assert math.isinf(point.metrics["p99_ttft"].upper)


def test_between_two_judgements_a_candidate_needs_the_requests_of_the_next():
    """Its requests were too much alike for a bound at the last judgement. Since then there are more
    than seemed to be lacking.
    """
    limits = (Limit("p90_ttft", 0.5),)
    history = history_of(Server(lambda c: 0.1), 8, *[Phase.PROVE] * 4, requests=100)
    (candidate,) = proof.candidates(history, limits)
    too_few = dataclasses.replace(candidate.proof.metrics["p90_ttft"], upper=math.inf, need=320)
    unproven = dataclasses.replace(
        candidate,
        verdict=Verdict.UNPROVEN,
        windows=4,
        fresh=400,
        proof=dataclasses.replace(candidate.proof, metrics={"p90_ttft": too_few}),
    )
    (now,) = claim_points(history, limits)
    judged = judge(_with_proof(now, unproven, limits), limits)
    assert (Verdict.UNPROVEN, now.n) == (judged.verdict, 400)
    assert judged.need == 100 * JUDGED_AFTER[1]


def test_a_candidate_of_windows_that_mean_nothing_is_given_up_with_the_flag():
    (t, sample), *_ = history_of(Server(lambda c: 0.1), 8, Phase.PROVE)
    (given_up,) = proof.candidates([(t, dataclasses.replace(sample, ended=("server_lost",)))], TTFT)
    assert Verdict.VIOLATES is given_up.verdict
    assert ["server_lost"] == [flag.name for flag in given_up.point.fatal]
    assert FLAG_WORDS["server_lost"] in given_up.reason
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
    assert claim_points(history, TTFT)[0].metrics == {
        **claim_points([(dataclasses.replace(t, phase=Phase.GRID), sample)], TTFT)[0].metrics,
        "p99_ttft": proof.claim_point(sample, TTFT, SPEND * ALPHA).metrics["p99_ttft"],
    }


def test_where_all_windows_are_spoilt_the_point_is_made_of_them():
    history = history_of(Server(lambda c: 0.1), 8, *[Phase.PROVE] * 2)
    history = [(t, dataclasses.replace(s, health=(ClientHealth(suspended=30.0),))) for t, s in history]
    (candidate,) = proof.candidates(history, TTFT)
    assert (800, 0, None) == (candidate.point.n, candidate.windows, candidate.proof)


def test_a_candidate_too_close_to_its_limit_is_given_up_at_a_judgement_and_not_before():
    history = history_of(Server(lambda c: 0.1, sigma=0.02), 8, *[Phase.PROVE] * 3)
    value = claim_points(history, TTFT)[0].metrics["p99_ttft"].value
    close = (Limit("p99_ttft", value * 1.0001),)
    before, then = (proof.candidates(history[:k], close)[0] for k in (2, 3))
    assert Verdict.UNPROVEN is before.verdict
    assert Verdict.VIOLATES is then.verdict
    assert judge(then.point, close).need is None, "nothing reasonable would decide"
    assert_golden_row("progress", then.reason)


def test_a_setting_that_was_given_up_needs_one_number_of_requests_wherever_it_is_said():
    """Its proof would take more than it is worth; how much that is stays in the answer."""
    history = history_of(Server(lambda c: 0.1, sigma=0.02), 8, *[Phase.PROVE] * 3)
    value = claim_points(history, TTFT)[0].metrics["p99_ttft"].value
    close = (Limit("p99_ttft", value * 1.002),)
    (given_up,), points = proof.candidates(history, close), claim_points(history, close)
    decision = solver.solve(points, close, history=history)
    need = judge(points[0], close).need
    assert (Verdict.VIOLATES, 8, None) == (
        given_up.verdict,
        decision.next_step.load,
        decision.next_step.requests,
    )
    told = (next_step_words(decision), sentence(decision.explanation.settings[0]))
    assert [True, True] == [f"about {roughly(need)} requests" in text for text in told]
    assert not any("would decide" in text for text in told), "no command of ours would go on with it"
    assert_golden_row("answers", "\n".join(told))


def test_a_claim_of_all_requests_has_the_floor_of_its_percentile_and_a_mean_has_none():
    assert claim_floor(0.99, 128) == window_size.fewest_requests(SHAPE, TTFT[0], 128)
    assert window_size.fewest_requests(SHAPE, Limit("mean_ttft", 0.5), 128) == 0


def test_independent_requests_stand_for_themselves():
    ((_, sample),) = history_of(Server(lambda c: 0.1), 8, Phase.SCAN, requests=4000)
    assert 1.0 <= window_size.dependence(sample, TTFT[0]) < 1.5
    assert window_size.dependence(sample, Limit("mean_ttft", 0.5)) == 1.0


def test_before_its_first_judgement_nothing_is_claimed_even_of_enough_requests():
    history = history_of(Server(lambda c: 0.1), 8, Phase.PROVE, requests=3000)
    own = proof.claim_point(history[0][1], TTFT, SPEND * ALPHA).metrics["p99_ttft"]
    assert own.upper < 0.5, "otherwise this tests nothing"
    (point,) = claim_points(history, TTFT)
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


def test_each_judgement_of_a_candidate_spends_its_part_of_the_error_and_is_claimed_at_it():
    history = history_of(Server(lambda c: 0.1), 8, *[Phase.PROVE] * 6)
    limits = (Limit("p99_ttft", 0.17),)  # the third window leaves it open, the sixth proves it
    ends = {k: proof.candidates(history[:k], limits)[0] for k in (2, 3, 5, 6)}
    assert [Verdict.UNPROVEN] * 3 + [Verdict.MEETS] == [end.verdict for end in ends.values()]
    alphas = [SPEND * ALPHA] * 3 + [SPEND * ALPHA * (1 - SPEND)]
    assert [end.alpha for end in ends.values()] == pytest.approx(alphas)
    own = proof.claim_point(join([s for _, s in history]), limits, alphas[-1]).metrics["p99_ttft"]
    assert own == claim_points(history, limits)[0].metrics["p99_ttft"]
    at_three = claim_points(history[:3], limits)[0].metrics["p99_ttft"].upper
    assert at_three == claim_points(history[:5], limits)[0].metrics["p99_ttft"].upper > 0.17


def test_a_second_candidate_has_what_the_first_left_of_the_error():
    slow = Server(lambda c: 0.1, sigma=0.02)
    history = history_of(slow, 16, *[Phase.PROVE] * 3) + history_of(Server(lambda c: 0.05), 8, *[Phase.PROVE] * 3)
    value = claim_points(history[:3], TTFT)[0].metrics["p99_ttft"].value
    first, second = proof.candidates(history, (Limit("p99_ttft", value * 1.0001),))
    assert (Verdict.VIOLATES, Verdict.MEETS) == (first.verdict, second.verdict)
    assert second.alpha == pytest.approx(SPEND * ALPHA * (1 - SPEND))
    assert 1 == proof.attempts_over([first, second])
    assert 0 == proof.attempts_over([candidate(Verdict.VIOLATES, proof.WINDOWS - 1)]), "not judged"


@pytest.mark.parametrize(("over", "goes_on"), [(0.03, True), (0.08, False)])
def test_before_its_first_judgement_a_candidate_may_be_a_little_over_its_limit(over, goes_on):
    history = history_of(Server(lambda c: 0.1), 8, *[Phase.PROVE] * 3)
    value = [claim_points(history[:k], TTFT)[0].metrics["p99_ttft"].value for k in (2, 3)]
    limits = (Limit("p99_ttft", min(value) / math.exp(over)),)
    assert (proof.candidates(history[:2], limits)[0].verdict is Verdict.UNPROVEN) is goes_on
    assert proof.candidates(history, limits)[0].verdict is Verdict.VIOLATES, "at a judgement it may not"


def test_a_window_is_a_third_of_what_two_late_requests_leave_provable():
    ((_, sample),) = history_of(Server(lambda c: 0.1), 8, Phase.SCAN, requests=4000)
    independent = intervals.needed(0.99, 1 - SPEND * ALPHA, violations=2)
    whole = max(math.ceil(window_size.dependence(sample, TTFT[0]) * independent), claim_floor(0.99, 8))
    assert window_size.window_size({sample.load: sample}, TTFT, 8) == math.ceil(whole / proof.WINDOWS)
    assert window_size.window_size({sample.load: sample}, (Limit("mean_ttft", 0.5),), 8) == window_size.PER_STREAM * 8
    assert window_size.window_size({sample.load: sample}, (), 1) == 30


def test_a_scan_counts_no_more_requests_for_one_than_its_noise_allows():
    waves = made_sample(8, [0.1] * 380 + [0.5] * 20, [0.01] * 400)  # all that are late come together
    assert window_size.dependence(waves, Limit("p95_ttft", 0.3)) == window_size.DEPENDENCE_CAP


@pytest.mark.parametrize(
    ("sizes", "windows"),
    [
        ((300,), 1),
        ((300, 900), 2),  # a proof has three windows at least, however long they are
        ((300, 900, 900), 7),
        ((300, 250, 300, 590), 4),  # a shorter one counts as one
        ((300, 0, 300), 3),
        ((0, 300, 300), 601),
    ],
)
def test_a_longer_window_counts_as_several_of_the_first(sizes, windows):
    assert windows == proof.units(sizes)


def test_a_longer_window_brings_the_next_judgement():
    server, history = Server(lambda c: 0.01 * c), []
    for repeat, requests in enumerate((340, 340, 340, 1100), 1):
        t = trial(8, Phase.PROVE, repeat, requests)
        history.append((t, server.run(t)))
    (found,) = proof.candidates(history[:2], TTFT)
    assert (found.verdict, found.windows, found.proof) == (Verdict.UNPROVEN, 2, None)
    tight = (Limit("p99_ttft", 1.05 * proof.candidates(history, TTFT)[0].point.value("p99_ttft")),)
    (third,), (fourth,) = proof.candidates(history[:3], tight), proof.candidates(history, tight)
    assert (third.windows, fourth.windows) == (3, 6)
    assert fourth.alpha == pytest.approx(third.alpha * (1 - proof.SPEND)), "it was judged twice"
