import dataclasses
import random

import pytest

from frontier.decide import operating_point, search
from frontier.decide.confirmation import ASCENTS
from frontier.decide.search import Ask, Done
from frontier.model import Flag, Limit, Phase, Shape, Verdict
from tests.stats.made import SHAPE, Server, grid, trial

TTFT = (Limit("p99_ttft", 0.5),)
SMOOTH = {"ttft": lambda c: 0.01 * c}  # with sigma 0.2 the p99 crosses 500 ms at c=31.4


def next_ask(policy, limits, history):
    return search.next_ask(policy, SHAPE, [("", limits)], history)


def go_on(server, history, policy, limits=TTFT):
    """Run what the search asks for until it is done. Returns the asks and the end."""
    asks = []
    while isinstance(ask := next_ask(policy, limits, history), Ask):
        asks.append(ask)
        assert len(asks) < 60, "the search does not end"
        repeat = 1 + sum((t.concurrency, t.phase) == (ask.concurrency, ask.phase) for t, _ in history)
        t = trial(ask.concurrency, ask.phase, repeat, ask.requests)
        history.append((t, server.run(t)))
    return asks, ask


def settings(asks, *phases):
    return list(dict.fromkeys(a.concurrency for a in asks if a.phase in phases))


@pytest.fixture(scope="module")
def swept():
    """A finished sweep of the smooth server: its history, the asks and the end."""
    server = Server(**SMOOTH)
    history = grid(server)
    asks, done = go_on(server, history, search.SearchPolicy(6, 300, 128))
    return history, asks, done


def test_it_locates_the_crossing_then_ascends_to_it_on_fresh_data(swept):
    history, asks, done = swept
    phases = [a.phase for a in asks]
    assert phases == sorted(phases, key=[Phase.LOCATE, Phase.CONFIRM, Phase.FRONTIER].index)
    assert 27 <= done.located <= 36
    candidates = settings(asks, Phase.CONFIRM)
    beyond = [c for c in candidates if c > done.confirmed]  # what was given up ends an ascent; the next stays below it
    assert [c for c in candidates if c <= done.confirmed] == sorted(set(candidates) - set(beyond))
    assert beyond == sorted(beyond, reverse=True)
    assert candidates[-1] <= done.located
    assert 22 <= done.confirmed <= 31
    decision = operating_point.solve(search.claim_points(history, TTFT), TTFT)
    assert (Verdict.MEETS, done.confirmed) == (decision.verdict, decision.concurrency)


def test_resuming_replays_to_the_same_sweep_whatever_order_the_trials_are_read_in(swept):
    history, asks, done = swept
    for cut, expected in enumerate([*asks, done]):  # every prefix leads to the very next ask, from history alone
        known = random.Random(cut).sample(history[: 8 + cut], 8 + cut)
        assert expected == next_ask(search.SearchPolicy(6, 300, 128), TTFT, known)


def test_a_candidate_is_claimed_from_its_own_trials_only(swept):
    history, _, done = swept
    claimed = search.claim_windows(history)
    fresh = sum(s.n for t, s in history if t.phase is Phase.CONFIRM and t.concurrency == done.confirmed)
    assert fresh == claimed[done.confirmed].n
    located = {t.concurrency for t, _ in history if t.phase in (Phase.LOCATE, Phase.FRONTIER)}
    proven = {t.concurrency for t, _ in history if t.phase in (Phase.GRID, Phase.CONFIRM)}
    assert proven == set(claimed)
    assert located - proven


@pytest.mark.parametrize("refine", [0, 2, 3, 4])
def test_no_more_settings_are_visited_than_allowed(refine):
    server = Server(**SMOOTH)
    asks, _ = go_on(server, grid(server), search.SearchPolicy(refine, 300, 128))
    assert len({(a.phase, a.concurrency) for a in asks}) <= refine
    assert (refine > 0) is bool(asks)
    assert {a.concurrency for a in asks} <= set(range(1, 129))


def test_one_extra_setting_is_spent_on_a_proof():
    server = Server(**SMOOTH)
    history = grid(server)
    asks, done = go_on(server, history, search.SearchPolicy(1, 300, 128))
    assert {Phase.CONFIRM} == {a.phase for a in asks}
    assert done.confirmed is not None
    assert done.confirmed == operating_point.solve(search.claim_points(history, TTFT), TTFT).concurrency


def test_confirmed_settings_carry_bounds_at_the_error_of_one_batch_and_shown_intervals_at_95():
    server = Server(**SMOOTH)
    history = [*grid(server, (8,), requests=2000)]
    t = trial(8, Phase.CONFIRM, requests=2000)
    history.append((t, history[0][1]))
    (strict,) = search.claim_points(history, TTFT)
    (plain,) = search.claim_points(history[:1], TTFT)
    assert strict.metrics["p99_ttft"].upper > plain.metrics["p99_ttft"].upper
    assert strict.metrics["p99_ttft"].high == plain.metrics["p99_ttft"].high
    assert strict.metrics["p99_tpot"] == plain.metrics["p99_tpot"]  # not limited, so not looked at


def test_a_cliff_is_found_without_stepping_over_it():
    server = Server(lambda c: 0.05 if c <= 50 else 3.0)
    history = grid(server)
    _, done = go_on(server, history, search.SearchPolicy(8, 300, 128))
    assert 40 <= done.confirmed <= 50
    assert done.located <= 50


def test_when_one_user_already_waits_too_long_nothing_is_asked():
    server = Server(lambda c: 0.9 + c / 50)
    assert Done("no measured setting is inside the SLA: there is nothing to confirm") == next_ask(
        search.SearchPolicy(0, 300, 128), TTFT, grid(server)
    )


def test_a_grid_that_starts_too_high_is_searched_below():
    server = Server(**SMOOTH)
    history = grid(server, (48, 64, 128))
    asks, done = go_on(server, history, search.SearchPolicy(6, 300, 128))
    assert (12, Phase.LOCATE) == (asks[0].concurrency, asks[0].phase)
    assert 20 <= done.confirmed <= 31


def test_a_grid_that_meets_everywhere_is_confirmed_at_its_top():
    server = Server(lambda c: 0.001 * c)
    asks, done = go_on(server, grid(server), search.SearchPolicy(3, 300, 128))
    assert [128] == settings(asks, Phase.CONFIRM)
    assert 128 == done.confirmed


def test_a_grid_that_proves_its_answer_is_not_confirmed_again():
    server = Server(lambda c: 0.1 if c <= 64 else 5.0)
    history = grid(server, (8, 16, 32, 62, 64, 66), requests=1500)
    asks, _ = go_on(server, history, search.SearchPolicy(3, 300, 128))
    assert [] == settings(asks, Phase.CONFIRM)


def test_leftover_settings_refine_the_frontier_where_it_is_widest():
    server = Server(lambda c: 0.1 if c <= 60 else 5.0)
    history = grid(server, (1, 8, 60, 62), requests=2000)
    asks, _ = go_on(server, history, search.SearchPolicy(3, 300, 128))
    assert {Phase.FRONTIER} == {a.phase for a in asks}
    assert all(1 < a.concurrency < 60 for a in asks)


def test_without_limits_only_the_frontier_is_refined():
    server = Server(**SMOOTH)
    asks, _ = go_on(server, grid(server, (1, 16, 128)), search.SearchPolicy(2, 300, 128), limits=())
    assert [Phase.FRONTIER] * 2 == [a.phase for a in asks]


def test_a_batch_is_as_large_as_its_proof_needs_at_that_concurrency():
    server = Server(lambda c: 0.001 * c)
    history = grid(server)
    ask = next_ask(search.SearchPolicy(3, 300, 128), TTFT, history)
    assert (128, 20 * 128) == (ask.concurrency, ask.requests)
    loose = (Limit("p90_ttft", 0.5),)
    assert 300 == next_ask(search.SearchPolicy(3, 300, 128), loose, history).requests


def test_nothing_is_tried_at_or_above_a_candidate_that_was_given_up():
    class Turns(Server):
        def run(self, t):
            """Slower than the pilot said, from c=24 on."""
            slow = t.phase is Phase.CONFIRM and t.concurrency >= 24
            self.ttft = (lambda c: 0.6) if slow else SMOOTH["ttft"]
            return super().run(t)

    server = Turns(**SMOOTH)
    history = grid(server)
    asks, done = go_on(server, history, search.SearchPolicy(6, 300, 128))
    tried = settings(asks, Phase.CONFIRM)
    failed = [c for c in tried if c >= 24]
    assert failed
    assert failed == sorted(failed, reverse=True)  # each ascent after the first starts below what was given up
    assert len(failed) <= ASCENTS
    assert done.confirmed is not None
    assert done.confirmed < 24


def test_an_invalid_setting_neither_locates_nor_confirms(monkeypatch):
    broken = Flag("client_limited", "1", "0", "use a faster client")
    real = search.pilot_point

    def flagged(sample, limits):
        point = real(sample, limits)
        return dataclasses.replace(point, flags=(broken,)) if sample.concurrency == 32 else point

    monkeypatch.setattr(search, "pilot_point", flagged)
    server = Server(**SMOOTH)
    asks, done = go_on(server, grid(server), search.SearchPolicy(6, 300, 128))
    located = [a.concurrency for a in asks if a.phase is Phase.LOCATE]
    assert len(set(located)) == len(located)  # a setting that is measured and invalid is not asked for again
    assert 32 not in located
    assert done.confirmed != 32


TIERS = [("fast", (Limit("p99_ttft", 0.3),)), ("slow", (Limit("p99_ttft", 0.9),))]  # crossed at c=18.8 and c=56.5


@pytest.mark.parametrize("tiers", [TIERS, TIERS[::-1]])
def test_each_tier_is_searched_inside_the_one_budget_the_lowest_limit_first(tiers):
    server, history, asks = Server(**SMOOTH), grid(Server(**SMOOTH)), []
    while isinstance(ask := search.next_ask(search.SearchPolicy(8, 300, 128), SHAPE, tiers, history), Ask):
        asks.append(ask)
        t = trial(ask.concurrency, ask.phase, 1 + sum(ask.concurrency == a.concurrency for a in asks), ask.requests)
        history.append((t, server.run(t)))
    phases = [a.phase for a in asks]
    assert phases == sorted(phases, key=[Phase.LOCATE, Phase.CONFIRM, Phase.FRONTIER].index)
    assert 8 >= len({(a.phase, a.concurrency) for a in asks})
    probes, candidates = settings(asks, Phase.LOCATE), settings(asks, Phase.CONFIRM)
    assert 16 < probes[0] < 32 < probes[1] < 64
    assert [c < 24 for c in candidates] == sorted(
        (c < 24 for c in candidates), reverse=True
    )  # the strict tier's come first
    points = [(search.claim_points(history, limits), limits) for _, limits in sorted(tiers)]
    answers = [operating_point.solve(*pair).concurrency for pair in points]
    assert 13 <= answers[0] <= 18 < 39 <= answers[1] <= 56
    assert ask.reason.startswith(f"{tiers[0][0]}: c=")
    assert f"; {tiers[1][0]}: c=" in ask.reason


def test_one_tier_is_searched_as_it_was_without_tiers(swept):
    history, _, _ = swept
    for cut in (0, 8, 9, 11, len(history)):
        policy, known = search.SearchPolicy(6, 300, 128), history[:cut]
        alone = next_ask(policy, TTFT, known)
        assert alone == search.next_ask(policy, SHAPE, [("gold", TTFT)], known)


def test_a_history_of_another_shape_is_a_mistake():
    with pytest.raises(ValueError, match="another shape"):
        search.next_ask(search.SearchPolicy(1, 300, 128), Shape.of(8, 8), [("", TTFT)], grid(Server(**SMOOTH), (1,)))


def test_an_empty_history_asks_for_nothing():
    assert isinstance(next_ask(search.SearchPolicy(3, 300, 128), TTFT, []), Done)


# --- what need not be run


def test_a_setting_above_a_pointless_one_is_skipped_with_the_reason():
    far = grid(Server(lambda c: 0.5 * c), (1, 16))
    assert "over ten times its limit" in search.skip_reason(trial(32), far, TTFT)
    assert search.skip_reason(trial(8), far, TTFT) is None  # only higher settings are pointless
    failing = grid(Server(lambda c: 0.01, errors=lambda c: 0.2 if c > 8 else 0), (1, 16))
    assert "of its requests" in search.skip_reason(trial(32), failing, TTFT)
    folding = grid(Server(lambda c: 0.01, lambda c: 0.01 if c <= 16 else 0.01 * (c / 16) ** 1.3), (1, 16, 32, 64))
    assert "throughput has fallen" in search.skip_reason(trial(128), folding, ())
    assert search.skip_reason(trial(64), folding[:3], ()) is None  # one fall may be noise


def test_nothing_is_skipped_before_anything_was_measured_or_while_it_goes_well():
    assert search.skip_reason(trial(1), [], TTFT) is None
    assert search.skip_reason(trial(128), grid(Server(**SMOOTH), (1, 8, 64)), TTFT) is None
