"""Completion: visits until the claim is final, the settings of the config, the gaps of the frontier."""

import math

import pytest

from frontier.decide import completion, search
from frontier.decide.claim import claim_of, proof_windows
from frontier.decide.proof import WINDOWS, claim_points, joined, nearest, window_size
from frontier.decide.search import Ask, Done, SearchPolicy
from frontier.model import Limit, Phase
from tests.stats.made import SHAPE, Server, grid, trial

TTFT = (Limit("p99_ttft", 0.5),)
LADDER = (1, 4, 16, 64)
POLICY = SearchPolicy(LADDER)


def run(server, history, ask):
    repeat = 1 + sum((t.concurrency, t.phase) == (ask.concurrency, ask.phase) for t, _ in history)
    t = trial(ask.concurrency, ask.phase, repeat, ask.requests)
    history.append((t, server.run(t)))


def sweep(server, limits=TTFT, policy=POLICY):
    """The history of a whole sweep, and the asks that completed it."""
    history, asks, tiers = [], [], [("", limits)]
    while isinstance(ask := search.next_ask(policy, SHAPE, tiers, history), Ask):
        run(server, history, ask)
    while isinstance(ask := completion.next_ask(policy, SHAPE, tiers, history), Ask):
        run(server, history, ask)
        asks.append(ask)
        assert len(asks) < 120
    return history, asks


@pytest.fixture(scope="module")
def completed():
    return sweep(Server(lambda c: 0.01 * c))


def test_the_operating_point_is_visited_until_its_claim_is_final(completed):
    history, asks = completed
    point = completion.operating_concurrency(TTFT, history)
    visits = [a for a in asks if a.phase is Phase.VISIT]
    assert visits
    claim = claim_of(proof_windows(history, point), TTFT)
    assert claim.stage == "final"
    assert claim.turns >= 300


def test_visits_are_spread_between_the_other_trials(completed):
    _, asks = completed
    others = [i for i, a in enumerate(asks) if a.phase is not Phase.VISIT]
    assert all(asks[i + 1].phase is Phase.VISIT for i in others[:-1] if i + 1 < len(asks))


def test_every_setting_of_the_config_is_measured_those_next_to_the_edge_first(completed):
    history, asks = completed
    measured = {t.concurrency for t, _ in history if t.phase in (Phase.GRID, Phase.PROVE)}
    assert set(LADDER) <= measured
    order = [a.concurrency for a in asks if a.phase is Phase.GRID]
    assert order.index(16) < order.index(1)


def test_a_setting_of_the_config_is_measured_as_long_as_its_bound_takes(completed):
    """Next to the edge: at the lowest settings a p99 would take longer than they are worth."""
    history, asks = completed
    sized = {a.concurrency: a for a in asks if a.phase is Phase.GRID}
    scanned = joined([(t, s) for t, s in history if t.phase is Phase.SCAN], tuple(Phase))
    for c in set(sized) & {16}:
        assert WINDOWS * window_size(nearest(scanned, c), TTFT, c) <= sized[c].requests
    bounded = [p for p in claim_points(history, TTFT) if p.concurrency in sized and p.concurrency > 4]
    assert bounded
    assert all(math.isfinite(p.metrics["p99_ttft"].upper) for p in bounded)


def test_every_prefix_of_a_sweep_asks_for_what_came_next(completed):
    history, asks = completed
    begun = len(history) - len(asks)
    for k, expected in enumerate(asks):
        assert expected == completion.next_ask(POLICY, SHAPE, [("", TTFT)], history[: begun + k])


def test_without_limits_only_the_frontier_is_completed():
    history, asks = sweep(Server(lambda c: 0.01 * c), limits=())
    assert {Phase.GRID, Phase.FRONTIER} >= {a.phase for a in asks}
    assert set(LADDER) <= {t.concurrency for t, _ in history}


def test_a_config_that_allows_no_more_settings_gets_none():
    policy = SearchPolicy(LADDER, 300, refine=0)
    history = grid(Server(lambda c: 0.001 * c), LADDER)
    ask = completion.next_ask(policy, SHAPE, [("", ())], history)
    assert isinstance(ask, Done)
