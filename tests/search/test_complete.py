"""Completion: visits until the claim is final, the settings of the config, the gaps of the
frontier."""

import math

import numpy as np
import pytest

from frontier.core.claim.claim import PROVEN, capital, claim_of, proof_windows
from frontier.core.claim.claimed import claim_points
from frontier.core.claim.proof import WINDOWS, joined
from frontier.core.model.decisions import Limit
from frontier.core.model.loads import Concurrency, Rate
from frontier.core.model.points import Estimate, Point
from frontier.core.model.trials import Phase
from frontier.search import claim_turns, complete, scan
from frontier.search.next_trial import Ask, Done
from frontier.search.scan import SearchPolicy
from frontier.search.series_history import SeriesHistory
from frontier.search.window_size import mean_e2e, window_size
from tests.kit.made import SHAPE, Server, grid, loads, trial

TTFT = (Limit("p99_ttft", 0.5),)
LADDER = loads(1, 4, 16, 64)
POLICY = SearchPolicy(LADDER)


def run(server, history, ask):
    repeat = 1 + sum((t.load, t.phase) == (ask.load, ask.phase) for t, _ in history)
    t = trial(ask.load, ask.phase, repeat, ask.requests)
    history.append((t, server.run(t)))


def sweep(server, limits=TTFT, policy=POLICY):
    """The history of a whole sweep, and the asks that completed it."""
    history, asks, tiers = [], [], [("", limits)]
    while isinstance(ask := scan.next_ask(policy, SHAPE, tiers, history), Ask):
        run(server, history, ask)
    while isinstance(ask := complete.next_ask(policy, SHAPE, tiers, history), Ask):
        run(server, history, ask)
        asks.append(ask)
        assert len(asks) < 120
    return history, asks


@pytest.fixture(scope="module")
def completed():
    return sweep(Server(lambda c: 0.01 * c))


def test_the_operating_point_is_visited_until_its_claim_is_final():
    history, asks = sweep(Server(lambda c: 0.01 * c if c <= 20 else 2.0))  # no late requests below the cliff
    point = SeriesHistory.of(TTFT, history).operating_point
    visits = [a for a in asks if a.phase is Phase.VISIT]
    assert visits
    claim = claim_of(proof_windows(history, point), TTFT)
    assert claim.stage == "final"
    assert claim.turns >= 300


def test_visits_are_spread_between_the_other_trials(completed):
    _, asks = completed
    others = [i for i, a in enumerate(asks) if a.phase not in (Phase.VISIT, Phase.PROVE)]
    assert len(others) > 1
    assert all(asks[i + 1].phase is Phase.VISIT for i in others[:-1] if i + 1 < len(asks))


def test_every_setting_of_the_config_is_measured_those_next_to_the_edge_first(completed):
    history, asks = completed
    measured = {t.load for t, _ in history if t.phase in (Phase.GRID, Phase.PROVE)}
    assert set(LADDER) <= measured
    order = [a.load for a in asks if a.phase is Phase.GRID]
    assert order.index(16) < order.index(1)


def test_a_setting_of_the_config_is_measured_as_long_as_its_bound_takes(completed):
    """Next to the edge: at the lowest settings a p99 would take longer than they are worth."""
    history, asks = completed
    sized = {a.load: a for a in asks if a.phase is Phase.GRID}
    scanned = joined([(t, s) for t, s in history if t.phase is Phase.SCAN], tuple(Phase))
    for c in set(sized) & {16}:
        assert WINDOWS * window_size(scanned, TTFT, c) <= sized[c].requests
    bounded = [p for p in claim_points(history, TTFT) if p.load in sized and p.load > 4]
    assert bounded
    assert all(math.isfinite(p.metrics["p99_ttft"].upper) for p in bounded)


def test_every_prefix_of_a_sweep_asks_for_what_came_next(completed):
    history, asks = completed
    begun = len(history) - len(asks)
    for k, expected in enumerate(asks):
        assert expected == complete.next_ask(POLICY, SHAPE, [("", TTFT)], history[: begun + k])


def test_without_limits_only_the_frontier_is_completed():
    history, asks = sweep(Server(lambda c: 0.01 * c), limits=())
    assert {Phase.GRID, Phase.FRONTIER} >= {a.phase for a in asks}
    assert set(LADDER) <= {t.load for t, _ in history}


def test_a_config_that_allows_no_more_settings_gets_none():
    policy = SearchPolicy(LADDER, 300, refine=0)
    history = grid(Server(lambda c: 0.001 * c), LADDER)
    ask = complete.next_ask(policy, SHAPE, [("", ())], history)
    assert isinstance(ask, Done)


def ahead_of(history, limits=TTFT, policy=POLICY):
    point = SeriesHistory.of(limits, history).operating_point if limits else None
    return complete.trials_left(policy, [("", limits)], history, point)


def test_what_is_to_come_is_what_comes(completed):
    history, asks = completed
    begun = len(history) - len(asks)
    decided = max((i for i, a in enumerate(asks) if a.phase is Phase.PROVE), default=-1) + 1
    assert len(asks) - decided > 10
    for k in range(decided, len(asks), 4):
        rest = asks[k:]
        said = ahead_of(history[: begun + k])
        for phase, within in ((Phase.GRID, 0), (Phase.VISIT, 0.2), (Phase.FRONTIER, 0.1)):
            true = sum(a.phase is phase for a in rest)
            counted = sum(n for a, n in said if a.phase is phase)
            assert abs(counted - true) <= max(10 * within, within * true), (k, phase)
        settings = {(a.load, a.requests) for a in rest if a.phase is Phase.GRID}
        assert settings == {(a.load, a.requests) for a, _ in said if a.phase is Phase.GRID}


def test_nothing_is_to_come_after_the_last_trial(completed):
    assert [] == ahead_of(completed[0])


def test_a_better_candidate_is_decided_before_the_next_visit(completed):
    _, asks = completed
    for c in {a.load for a in asks if a.phase is Phase.PROVE}:
        windows = [i for i, a in enumerate(asks) if (a.phase, a.load) == (Phase.PROVE, c)]
        assert windows == list(range(windows[0], windows[-1] + 1))


def test_the_value_of_a_trial_is_what_it_may_bring_per_second(completed):
    history, asks = completed
    assert {0} == {a.value for a in asks if a.phase in (Phase.GRID, Phase.FRONTIER)}
    visits = [a for a in asks if a.phase is Phase.VISIT]
    assert min(a.value for a in visits) > 0
    assert visits[0].value > visits[-1].value, "each visit teaches less than the one before"
    point = SeriesHistory.of(TTFT, history).operating_point
    assert 0 == pytest.approx(SeriesHistory.of(TTFT, history).gain(point))
    assert SeriesHistory.of(TTFT, history).gain(64) > SeriesHistory.of(TTFT, history).gain(16)


@pytest.mark.parametrize(("late", "turns"), [(0.0, 333), (0.002, 417), (0.02, 600)])
def test_the_turns_a_claim_needs_follow_from_how_many_requests_are_late(late, turns):
    shares = np.full(50, late)
    needed = claim_turns.turns_to_prove(shares, 0.01)
    assert needed == pytest.approx(turns, abs=2)
    if needed < claim_turns.MOST_TURNS:  # the rule of the claim itself says the same
        assert capital(np.full(needed, late), 0.01) >= PROVEN > capital(np.full(needed - 1, late), 0.01)


def test_visits_end_after_the_turns_that_the_proof_let_expect():
    # 0.8% of all requests fail whatever the setting: too many for the bet over turns to be won
    # soon.
    history, _ = sweep(Server(lambda c: 0.001 * c, errors=lambda c: 0.008), policy=SearchPolicy(loads(1, 8, 16)))
    point = SeriesHistory.of(TTFT, history).operating_point
    assert point is not None
    proof = [(t, s) for t, s in history if t.phase is not Phase.VISIT]
    most = claim_turns.turns_expected(TTFT, history, point)
    assert most == claim_turns.turns_expected(TTFT, proof, point), "the visits do not move their own end"
    claim, proven = (claim_of(proof_windows(h, point), TTFT) for h in (history, proof))
    assert "early" == claim.stage, "otherwise this tests nothing"
    assert most <= claim.turns <= max(most, proven.turns) + complete.VISIT_TURNS


def test_a_proof_that_the_time_has_no_room_for_is_not_begun(completed):
    history, asks = completed
    first = next(i for i, a in enumerate(asks) if a.phase is Phase.PROVE)
    before = history[: len(history) - len(asks) + first]
    e2e = mean_e2e(asks[first].load, SeriesHistory.of(TTFT, before).points)
    tiers, proof = [("", TTFT)], WINDOWS * asks[first].requests * e2e / asks[first].load
    short, room = (complete.next_ask(POLICY, SHAPE, tiers, before, within=k * proof) for k in (1.0, 30.0))
    assert short.phase is not Phase.PROVE
    assert (room.phase, room.load) == (Phase.PROVE, asks[first].load)


def test_a_setting_between_those_of_the_config_waits_for_them_unless_it_may_be_better(completed):
    history, asks = completed
    begun = len(history) - len(asks)
    gaps = [(k, asked) for k, asked in enumerate(asks) if asked.phase is Phase.FRONTIER]
    assert gaps, "otherwise this tests nothing"
    for k, asked in gaps:
        before = history[: begun + k]
        early = any(later.phase is Phase.GRID for later in asks[k:])
        assert not early or complete.may_be_better(asked, SeriesHistory.of(TTFT, before))
    known = SeriesHistory.of(TTFT, history)
    assert not complete.may_be_better(Ask(known.operating_point, Phase.PROVE, 300, ""), known), "it gives no more"
    assert not complete.may_be_better(Ask(200, Phase.FRONTIER, 300, ""), known), "its value would be over"
    assert not complete.may_be_better(Ask(64, Phase.FRONTIER, 300, ""), SeriesHistory.of((), history))


def test_visits_end_when_the_claim_has_its_turns(completed):
    history, asks = completed
    visits = [k for k, asked in enumerate(asks) if asked.phase is Phase.VISIT]
    before = history[: len(history) - len(asks) + visits[0]]
    visit = complete.next_visit(SeriesHistory.of(TTFT, before))
    assert (visit.phase, visit.load) == (Phase.VISIT, SeriesHistory.of(TTFT, before).operating_point)
    assert visit.value > 0
    assert complete.next_visit(SeriesHistory.of(TTFT, history)) is None


@pytest.mark.parametrize(("within", "begins"), [(0.0, False), (1e9, True)])
def test_a_candidate_is_begun_where_its_proof_fits_the_budget_and_gone_on_with_whatever_is_left(
    completed, within, begins
):
    history, asks = completed
    first = next(i for i, a in enumerate(asks) if a.phase is Phase.PROVE)
    start = len(history) - len(asks) + first
    asked = complete.next_ask(POLICY, SHAPE, [("", TTFT)], history[:start], within=within)
    assert begins is (asked.phase is Phase.PROVE)
    onward = complete.next_ask(POLICY, SHAPE, [("", TTFT)], history[: start + 1], within=0.0)
    assert (onward.phase, onward.load) == (Phase.PROVE, asks[first].load)


def test_what_a_visit_takes_is_so_many_turns_or_the_time_that_it_has():
    points = {8: Point("d", SHAPE, 8, {"mean_e2e": Estimate(2.0, 2.0, 2.0, 100)}, 100)}
    for seconds, turns in ((None, 30), (120.0, 30), (12.0, 6)):
        assert turns == complete._turns_of(Ask(8, Phase.VISIT, 240, "", seconds), points)
    assert 30 == complete._turns_of(Ask(8, Phase.VISIT, 240, "", 12.0), {}), "nothing is known of a turn"


def test_the_point_to_expect_in_a_gap_is_half_way_in_the_logarithm():
    def point(c, throughput, ttft, errors):
        figures = {"output_throughput": throughput, "p99_ttft": ttft, "error_rate": errors}
        return Point("d", SHAPE, c, {k: Estimate(x, x, x, 100) for k, x in figures.items()}, 100)

    c, middle = complete._midpoint((4, 16), {4: point(4, 100.0, 0.5, 0.0), 16: point(16, 400.0, math.inf, 0.1)})
    assert (8, 8) == (c, middle.load)
    values = {name: e.value for name, e in middle.metrics.items()}
    assert values == {"output_throughput": pytest.approx(200.0), "p99_ttft": math.inf, "error_rate": 0.1}


def test_a_setting_of_which_nothing_is_to_be_proven_has_so_many_requests_of_each_stream_or_so_much_time():
    assert 160 == complete._usual(Concurrency(8), {})
    assert 113 == complete._usual(Rate.of(2.5), {})


@pytest.mark.parametrize(("refine", "left"), [(3, 1), (2, 0), (0, 0), (None, 3)])
def test_settings_between_those_of_the_config_are_counted(refine, left):
    """Two were measured beyond the grid, one of them for the frontier; where the config does not
    say four may be.
    """
    server = Server(lambda c: 0.01 * c)
    trials = [trial(4), trial(8, Phase.FRONTIER), trial(9, Phase.SCAN)]
    history = [(t, server.run(t)) for t in trials]
    assert left == complete._gaps_allowed(SearchPolicy(LADDER, refine=refine), history)


def disturbed(completed, lasts):
    """The same sweep on a machine that other work disturbs from its last frontier trial on, for so
    many trials.
    """
    history, _ = completed
    history = list(history)
    at = max(i for i, (t, _) in enumerate(history) if t.phase is Phase.FRONTIER and t.load < 16)
    setting, busy, calm = history[at][0], Server(lambda c: 0.8), Server(lambda c: 0.01 * c)
    busy.clock = calm.clock = 1e6
    history[at] = (setting, busy.run(setting))
    asks = []
    while isinstance(ask := complete.next_ask(POLICY, SHAPE, [("", TTFT)], history), Ask):
        calm.clock = max(calm.clock, busy.clock)
        run(busy if len(asks) < lasts else calm, history, ask)
        asks.append(ask)
        assert len(asks) < 10
    return setting.load, history, asks


def test_a_setting_disturbed_once_below_the_proven_one_is_measured_again(completed):
    point = SeriesHistory.of(TTFT, completed[0]).operating_point
    c, history, asks = disturbed(completed, lasts=0)
    assert [(c, Phase.FRONTIER), (c, Phase.VISIT), (point, Phase.VISIT)] == [(a.load, a.phase) for a in asks]
    assert c < point == SeriesHistory.of(TTFT, history).operating_point
    assert () == SeriesHistory.of(TTFT, history).unconfirmed


def test_a_setting_that_is_over_the_limit_twice_is_not_measured_a_third_time(completed):
    c, history, asks = disturbed(completed, lasts=1)
    assert [(c, Phase.FRONTIER)] == [(a.load, a.phase) for a in asks if a.load == c]
    assert () == SeriesHistory.of(TTFT, history).unconfirmed
