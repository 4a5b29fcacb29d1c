"""The claim of an operating point: turns, the judgement over turns, and corrections by later
visits."""

import dataclasses
import math

import numpy as np
import pytest

from frontier.core.claim import claim, solver
from frontier.core.claim.claimed import claim_points
from frontier.core.claim.proof import EARLIER_ALPHA, claim_point
from frontier.core.estimates import estimate as summarize
from frontier.core.model.decisions import Cause, Claim, EndedEarly, Limit, SweepEnding, Verdict
from frontier.core.model.errors import ExitCode
from frontier.core.model.metrics import fewest_to_bound
from frontier.core.model.trials import Phase
from frontier.show.view.explain import sentence, with_notes
from frontier.show.view.sentences import claim_sentence, headline
from tests.kit import made
from tests.kit.golden import assert_golden_row

TTFT = Limit("p99_ttft", 0.5)
TPOT = 0.004
RNG = np.random.default_rng


def window(turns, c=8, *, ttft=0.1, late=None, start=0.0):
    """A window in which each of `turns` turns holds `c` requests, those of the turns `late` waiting
    a second; the mean E2E of an ordinary request is half a second.
    """
    waits = np.full(turns * c, ttft)
    if late is not None:
        waits = np.where(np.repeat(late, c), 1.0, waits)
    sample = made.sample(c, waits, np.full(turns * c, TPOT), start=start)
    # The turns are those of an undisturbed server: a stall that lengthens the window is not what is
    # tested here.
    length = turns * float(sample.e2e.mean())
    sent = start + (np.arange(turns * c) + 0.5) * length / (turns * c)
    return dataclasses.replace(sample, ends=np.array([start + length]), sent=sent)


def slow_capital(shares, m):
    """The capital by the definition, one turn after the other."""
    total = 0.0
    for stake, part in claim.STAKES:
        for share in shares:
            part *= 1 + stake / (1 - m) * (m - share)
        total += part
    return total


def slow_shares(sample, late):
    """The share of late requests per turn, request by request."""
    shares = []
    for i, (start, end) in enumerate(zip(sample.starts, sample.ends, strict=True)):
        mine = [r for r in range(sample.n) if sample.window[r] == i]
        lengths = [sample.e2e[r] for r in mine if sample.ok[r]]
        turns = max(1, int((end - start) / (sum(lengths) / len(lengths)) + 1e-9)) if lengths else 1
        parts = [[] for _ in range(turns)]
        for r in mine:
            parts[min(turns - 1, int((sample.sent[r] - start) / (end - start) * turns))].append(bool(late[r]))
        shares += [sum(part) / len(part) for part in parts if part]
    return shares


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("m", [0.01, 0.05, 0.5])
def test_the_capital_is_the_product_of_its_bets(seed, m):
    shares = RNG(seed).choice([0.0, 0.0, 0.25, 1.0], 60, p=[0.5, 0.4, 0.08, 0.02])
    assert slow_capital(shares, m) == pytest.approx(claim.capital(shares, m), rel=1e-9, abs=1e-12)


def test_the_capital_of_a_long_proof_is_finite():
    assert math.isfinite(claim.capital(np.zeros(1_000_000), 0.5))
    assert 0 == claim.capital(np.ones(3000), 0.01)


@pytest.mark.parametrize("seed", range(4))
def test_each_request_is_in_the_turn_it_was_sent_in(seed):
    rng = RNG(seed)
    parts = [made.sample(4, 0.1 + 0.05 * rng.random(n), np.full(n, TPOT), start=s) for n, s in ((90, 0.0), (37, 500.0))]
    ok = rng.random(90) > 0.1
    parts[0] = made.sample(4, parts[0].ttft, np.full(90, TPOT), ok=ok)
    for sample in parts:
        late = rng.random(sample.n) < 0.2
        assert slow_shares(sample, late) == pytest.approx(claim.turn_shares(sample, late).tolist())


def test_windows_of_one_sample_are_cut_each_for_itself():
    from frontier.core.window.window import join

    both = join((window(10), window(20, start=1000.0)))
    late = RNG(1).random(both.n) < 0.3
    assert [10, 20] == claim.turns_per_window(both).round().tolist()
    assert slow_shares(both, late) == pytest.approx(claim.turn_shares(both, late).tolist())


def test_the_turns_are_the_length_in_requests_times_and_say_how_rare_a_stall_was_not_seen():
    found = claim.claim_of([window(12), window(9, start=100.0)], [TTFT])
    assert ("early", 21) == (found.stage, found.turns)
    assert 0.05 == pytest.approx((1 - found.unseen_share) ** 21), "a stall of that share is missed once in twenty"


@pytest.mark.parametrize(("limit", "final_from"), [(TTFT, 333), (Limit("p95_ttft", 0.5), 66)])
def test_a_claim_is_final_after_the_turns_that_its_percentile_takes(limit, final_from):
    assert fewest_to_bound(limit.of.p) <= final_from <= 1.15 * fewest_to_bound(limit.of.p)
    stages = [claim.claim_of([window(n)], [limit]).stage for n in (final_from - 1, final_from)]
    assert ["early", "final"] == stages


def test_a_mean_or_an_error_rate_does_not_hold_back_the_stage():
    others = [Limit("mean_ttft", 0.5), Limit("error_rate", 0.01), Limit("output_throughput", 10)]
    assert "final" == claim.claim_of([window(2)], others).stage
    assert "early" == claim.claim_of([window(2)], [*others, TTFT]).stage


def test_failed_requests_count_as_late():
    n = 400 * 8
    ok = np.ones(n, bool)
    ok[: n // 20] = False  # twenty turns in which every request fails
    failed = made.sample(8, np.full(n, 0.1), np.full(n, TPOT), ok=ok)
    assert "early" == claim.claim_of([failed], [TTFT]).stage
    assert "final" == claim.claim_of([window(400)], [TTFT]).stage


def test_without_any_success_there_is_no_turn():
    none = made.sample(2, np.full(20, 0.1), np.full(20, TPOT), ok=np.zeros(20, bool))
    assert Claim("early", 0, 1.0, until=float(none.ends[-1])) == claim.claim_of([none], [TTFT])
    assert claim.claim_of([], [TTFT]) is None


def test_an_interactivity_limit_is_judged_by_the_time_per_token():
    slow = Limit("p99_interactivity", 1.1 / TPOT)
    fast = Limit("p99_interactivity", 0.9 / TPOT)
    assert ["early", "final"] == [claim.claim_of([window(400)], [limit]).stage for limit in (slow, fast)]


def finals(share, *, seeds, looks, turns):
    """Per seed after how many turns a claim was first final where the whole server stalls in a
    share of its turns.
    """
    first = []
    for seed in range(seeds):
        rng, windows = RNG(seed), []
        for look in range(looks):
            windows.append(window(turns, 4, late=rng.random(turns) < share, start=1e4 * look))
            if claim.claim_of(windows, [TTFT]).stage == "final":
                first.append(turns * (look + 1))
                break
        else:
            first.append(math.inf)
    return np.array(first)


@pytest.mark.parametrize("seeds", [40, pytest.param(400, marks=[pytest.mark.slow, pytest.mark.nightly])])
def test_a_server_that_stalls_twice_as_often_as_allowed_is_called_final_in_one_of_twenty_at_most(seeds):
    first = finals(0.02, seeds=seeds, looks=12, turns=60)  # looked at twelve times, over 720 turns
    assert np.isfinite(first).mean() <= 0.05


@pytest.mark.parametrize("seeds", [20, pytest.param(60, marks=pytest.mark.slow)])
def test_a_server_that_stalls_rarely_is_final_after_some_hundreds_of_turns(seeds):
    first = finals(0.002, seeds=seeds, looks=30, turns=60)
    assert 360 <= np.median(first) <= 900
    assert np.isfinite(first).mean() >= 0.9


def test_at_exactly_the_share_that_is_allowed_the_capital_reaches_20_in_one_of_twenty_at_most():
    reached = 0
    for seed in range(400):
        shares = (RNG(seed).random(2000) < 0.01).astype(float)
        logs = [np.log1p(np.maximum(-1 + 1e-15, s / 0.99 * (0.01 - shares))).cumsum() for s, _ in claim.STAKES]
        capital = sum(part * np.exp(log) for log, (_, part) in zip(logs, claim.STAKES, strict=True))
        assert claim.capital(shares, 0.01) == pytest.approx(capital[-1], rel=1e-6, abs=1e-9)
        reached += bool((capital >= claim.PROVEN).any())
    assert reached / 400 <= 0.05 + 0.02


# --- from a history to a decision


def decided(parts, limits=(TTFT,)):
    """The decision on windows of c=8: (phase, window) each."""
    from frontier.core.window.window import join

    history = [(made.trial(8, phase, i), sample) for i, (phase, sample) in enumerate(parts, 1)]
    point = claim_point(join(tuple(sample for _, sample in parts)), tuple(limits), EARLIER_ALPHA)
    return solver.solve([point], limits, history=history)


def test_a_proven_point_carries_its_claim_and_says_so():
    d = decided([(Phase.PROVE, window(100)), (Phase.VISIT, window(50, start=900.0))])
    assert (Verdict.MEETS, ("early", 150, False)) == (
        d.verdict,
        (d.claim.stage, d.claim.turns, d.claim.corrected),
    )
    assert 1 - 0.05 ** (1 / 150) == pytest.approx(d.claim.unseen_share)
    assert any(claim_sentence(d) in note for note in with_notes(d).notes)
    assert_golden_row("answers", claim_sentence(d))
    final = decided([(Phase.PROVE, window(400))])
    assert ("final", 400) == (final.claim.stage, final.claim.turns)
    assert_golden_row("answers", claim_sentence(final), "final")


def test_scans_support_no_claim_and_grid_trials_do_together_with_proofs():
    assert 130 == decided([(Phase.GRID, window(130)), (Phase.SCAN, window(20))]).claim.turns
    proven = [(Phase.GRID, window(20)), (Phase.SCAN, window(10)), (Phase.CONFIRM, window(130, start=90.0))]
    history = [(made.trial(8, phase), sample) for phase, sample in proven]
    assert [20, 130] == [round(claim.turns_per_window(s)[0]) for s in claim.proof_windows(history, 8)]


def test_values_alone_and_unproven_settings_have_no_claim():
    point = summarize.point(window(20), limits=(TTFT,))
    history = [(made.trial(8), window(20))]
    assert solver.solve([point], [TTFT], history=history).claim is None, "160 requests prove no p99"
    met = solver.solve([point], [TTFT], history=history, point_estimates=True)
    assert (8, None) == (met.load, met.claim)


def test_a_visit_that_contradicts_the_proof_corrects_it():
    stalls = np.arange(200) % 20 == 0
    d = decided([(Phase.CONFIRM, window(200)), (Phase.VISIT, window(200, late=stalls, start=900.0))])
    assert d.verdict is not Verdict.MEETS
    assert (None, True, "early") == (d.load, d.claim.corrected, d.claim.stage)
    assert ExitCode.NO is solver.exit_code([d])
    (corrected,) = (r for r in d.explanation.reasons if r.cause is Cause.CORRECTED)
    assert (8,) == corrected.settings
    assert_golden_row("answers", f"{headline(d)}\n{sentence(corrected)}")


def test_a_visit_that_agrees_corrects_nothing():
    d = decided([(Phase.CONFIRM, window(200)), (Phase.VISIT, window(200, start=900.0))])
    assert (Verdict.MEETS, "final", False) == (d.verdict, d.claim.stage, d.claim.corrected)


def test_a_setting_that_is_excluded_is_not_called_corrected():
    history = [(made.trial(8, Phase.CONFIRM), window(200)), (made.trial(8, Phase.VISIT), window(200, start=900.0))]
    excluded = {8: Verdict.INVALID}
    assert () == claim.corrected_settings(history, [TTFT], excluded)
    assert (8,) == claim.corrected_settings(history, [TTFT], {8: Verdict.UNPROVEN})


def test_late_requests_that_come_together_are_said_to_hold_the_claim_back():
    stalled = window(700, late=np.arange(700) == 300)
    d = solver.solve([summarize.point(stalled, limits=(TTFT,))], [TTFT], history=[(made.trial(8), stalled)])
    assert (Verdict.MEETS, "early") == (d.verdict, d.claim.stage)
    assert d.claim.turns >= fewest_to_bound(0.99), "turns enough, were the late ones apart"
    assert_golden_row("answers", claim_sentence(d))


def test_a_proof_that_max_time_cut_short_says_so():
    cut = dataclasses.replace(window(100), ended=("time",))
    trial = dataclasses.replace(made.trial(8, Phase.CONFIRM), requests=5000)
    whole = dataclasses.replace(made.trial(8, Phase.CONFIRM, 2), requests=800)
    assert {8: EndedEarly("max_time", 5800)} == claim.ended_early([(trial, cut), (whole, window(100, start=900.0))])
    assert {} == claim.ended_early([(whole, window(100))])
    as_planned = dataclasses.replace(trial, seconds=float(cut.ends[0]))
    assert {} == claim.ended_early([(as_planned, cut)]), "it lasted as long as it was to"
    point = summarize.point(cut, limits=(TTFT,))
    d = solver.solve([point], [TTFT], history=[(trial, cut)])
    (open_one,) = (r for r in d.explanation.reasons if r.cut)
    assert ((8,), EndedEarly("max_time", 5000), 800) == (open_one.settings, open_one.cut, open_one.estimate.n)
    assert_golden_row("answers", sentence(open_one))


@pytest.mark.parametrize("end", ["budget", "interrupted", "killed", "server_lost", "running", "finished"])
def test_a_proof_that_the_end_of_the_sweep_cut_short_says_so(end):
    history = [(made.trial(8, Phase.PROVE), window(100))]
    cut = None if end == "finished" else EndedEarly(end)
    ended = SweepEnding(end, [(TTFT,)], [made.trial(8).key.rsplit("-", 2)[0]])
    assert ({8: cut} if cut else {}) == claim.ended_early(history, (TTFT,), ended)
    points = claim_points(history, (TTFT,))
    d = solver.solve(points, [TTFT], history=history, end=ended)
    assert d.verdict is Verdict.UNPROVEN
    (open_one,) = (r for r in d.explanation.settings if r.settings == (8,))
    assert (cut, 800) == (open_one.cut, open_one.estimate.n)
    assert_golden_row("answers", sentence(open_one))


def test_a_budget_is_named_only_where_it_had_no_room_for_the_proof():
    history = [(made.trial(8, Phase.PROVE), window(100))]
    others = (made.trial(9).key.rsplit("-", 2)[0],)
    assert {} == claim.ended_early(history, (TTFT,), SweepEnding("budget", [(TTFT,)], others))


@pytest.mark.parametrize("end", ["budget", "interrupted"])
def test_a_proof_that_was_enough_for_the_limits_of_the_sweep_says_so(end):
    history = [(made.trial(8, Phase.PROVE, k), window(100, start=100.0 * k)) for k in (1, 2, 3)]
    asked = (dataclasses.replace(TTFT, promise=10 * TTFT.promise),)
    hard = (dataclasses.replace(TTFT, metric="p99.9_ttft"),)
    assert claim.ended_early(history, asked, SweepEnding(end, [asked])) == {}
    assert {8: EndedEarly("proven")} == claim.ended_early(history, hard, SweepEnding(end, [asked]))
    d = solver.solve(claim_points(history, hard), hard, history=history, end=SweepEnding(end, [asked]))
    (open_one,) = (r for r in d.explanation.settings if r.settings == (8,))
    assert_golden_row("answers", sentence(open_one))
