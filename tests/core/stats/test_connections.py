"""Connections as clusters: how many a bound needs, what they make requests worth, and how often it
is false."""

import math
from dataclasses import replace

import numpy as np
import pytest

from frontier.core.claim.proof import ALPHA, WINDOWS
from frontier.core.claim.verdict import judge
from frontier.core.estimates.estimate import estimate, point
from frontier.core.flags.flags import flags
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.metrics import claim_floor, fewest_to_bound
from frontier.core.model.trials import Phase
from frontier.core.stats import connections, intervals
from frontier.core.window.window import join
from frontier.search.window_size import connections_wanted
from tests.kit.made import sample, trial

pytestmark = pytest.mark.chance
P90 = Limit("p90_ttft", 0.2)


def on(numbers, ttft=None, start=0.0):
    """A window whose requests went out on these connections."""
    numbers = np.asarray(numbers)
    ttft = np.full(len(numbers), 0.1) + 1e-4 * np.sin(np.arange(len(numbers))) if ttft is None else ttft
    return replace(sample(4, ttft, np.full(len(numbers), 0.01), start=start), connection=numbers)


def spread(requests, over):
    """So many requests evenly on so many connections."""
    return np.arange(requests) * over // requests


@pytest.mark.parametrize(("p", "least"), [(0.9, 29), (0.95, 59), (0.99, 299)])
def test_a_bound_needs_as_many_connections_as_it_would_need_requests(p, least):
    limit = Limit(f"p{p * 100:g}_ttft", 0.2)
    enough, few = (on(spread(2000 - 2000 % over, over)) for over in (least, least - 1))
    assert least == connections.needed(enough, p) == intervals.needed(p) == fewest_to_bound(p)
    assert math.isfinite(estimate(enough, limit.metric).upper)
    assert math.isinf(estimate(few, limit.metric).upper)
    assert judge(point(enough, limits=(limit,)), (limit,)).verdict is Verdict.MEETS
    judged = judge(point(few, limits=(limit,)), (limit,))
    assert judged.verdict is Verdict.UNPROVEN
    # As many more requests as connections are missing, at as many requests on each.
    assert judged.need == math.ceil(few.n * least / (least - 1))
    (flag,) = [flag for flag in flags(few, (limit,)) if flag.name == "too_few_connections"]
    assert not flag.fatal
    assert flag.measured.startswith(f"{least - 1} ")
    assert flag.limit.startswith(f"{least} ")


def test_a_stricter_bound_needs_more():
    window = on(spread(600, 40))
    assert 42 == connections.needed(window, 0.9, 0.9875)
    assert math.isfinite(estimate(window, "p90_ttft").upper)
    assert math.isinf(estimate(window, "p90_ttft", confidence=0.9875).upper)


def test_one_request_on_a_connection_counts_less_than_a_hundred_on_another():
    uneven = np.concatenate([np.repeat(np.arange(4), 100), np.arange(4, 44)])
    sizes = np.array([100] * 4 + [1] * 40)
    assert connections.count(on(uneven)) == math.floor(sizes.sum() ** 2 / (sizes**2).sum()) == 4
    assert connections.count(on(spread(440, 44))) == 44


def test_the_same_number_in_another_window_is_another_connection():
    windows = [on(spread(200, 12), start=100.0 * i) for i in range(3)]
    assert connections.count(join(windows)) >= 35


def test_requests_without_a_connection_are_none_and_alone():
    numbers = spread(300, 30).copy()
    numbers[::10] = -1
    window = on(numbers)
    assert 29 <= connections.count(window) <= 30
    assert len(np.unique(connections.clusters(window))) == 30 + 30


@pytest.mark.parametrize("named", [0, 1])
def test_where_records_name_no_connection_the_claim_stands_as_before_with_a_note(named):
    """Also where only some windows name them, as in a run that an earlier version began."""
    windows = [on(spread(200, 4), start=100.0 * i) for i in range(3)]
    unknown = join([*windows[:named], *(replace(w, connection=np.empty(0, np.int64)) for w in windows[named:])])
    assert connections.count(unknown) is None
    assert connections.least_requests(unknown, 0.9) == claim_floor(0.9, 4)
    found = point(unknown, limits=(P90,))
    assert judge(found, (P90,)).verdict is Verdict.MEETS
    assert ["too_few_connections"] != [flag.name for flag in found.flags]
    assert len(found.notes) == 1 + len(point(unknown).notes)


def test_of_sessions_as_many_are_needed_as_there_can_be():
    """The turns of a session stay on one connection."""
    session = spread(400, 20)
    window = replace(on(session), session=session, turn=np.arange(400) % 20, reusable=np.zeros(400))
    assert connections.needed(window, 0.9) == 10
    (note,) = connections.notes(window, (P90,))
    assert "20 connections" in note
    alone = replace(window, session=np.arange(400))
    assert connections.needed(alone, 0.9) == 29


@pytest.mark.parametrize(("renewed", "failed", "needed"), [(3, 4, 0), (4, 3, 29), (0, 0, 29), (None, None, 29)])
def test_where_none_can_be_renewed_none_are_needed(renewed, failed, needed):
    window = on(spread(400, 4))
    health = replace(window.health[0], connections_renewed=renewed, renewals_failed=failed)
    assert connections.needed(replace(window, health=(health,)), 0.9) == needed


def test_what_is_not_seen_is_what_the_binomial_law_leaves():
    for seen in (1, 12, 59, 299):
        assert (1 - connections.unseen(seen)) ** seen == pytest.approx(0.05)
    assert connections.unseen(0) == 1.0


def test_requests_are_worth_less_where_connections_differ():
    """The design effect of equal clusters that are all or nothing is their size."""
    rng = np.random.default_rng(3)
    numbers = rng.permutation(spread(1200, 120))
    slow = np.where(numbers % 15 == 0, 0.3, 0.1)
    ttft = slow + 1e-3 * rng.random(1200)
    window, alike = on(numbers, ttft), on(numbers, rng.permutation(ttft))
    everything = np.ones(1200, bool)
    # By hand: ten requests on each, a fifteenth of the connections slow.
    at_p = connections.share_worth(window, slow > 0.2)
    assert at_p == pytest.approx(1200 / (10 * 120 / 119), rel=1e-6)
    assert connections.worth(window, ttft, everything, 0.9) < 0.2 * connections.worth(
        alike, alike.ttft, everything, 0.9
    )
    assert estimate(window, "p90_ttft").upper > 0.2 > estimate(alike, "p90_ttft").upper


def replicas(rng, share, of_each, requests, over):
    """A window of requests on so many connections, each to a replica that is slow with a chance;
    slow ones are late with the chance `of_each`.
    """
    slow = rng.random(over) < share
    numbers = spread(requests, over)
    late = slow[numbers] & (rng.random(requests) < of_each)
    return numbers, np.where(late, 0.3, 0.1) * np.exp(0.05 * rng.standard_normal(requests))


@pytest.mark.parametrize(("share", "of_each", "over"), [(0.105, 1.0, 40), (0.2, 0.55, 40), (0.35, 0.31, 60)])
def test_claims_are_false_no_more_often_than_their_error(share, of_each, over):
    """Somewhat more than a tenth of all requests are late, as a few replicas are slow."""
    rng = np.random.default_rng(7)
    false = blind = 0
    for _ in range(400):
        numbers, ttft = replicas(rng, share, of_each, 240, over)
        window = on(numbers, ttft)
        false += estimate(window, "p90_ttft").upper < 0.2
        blind += estimate(replace(window, connection=np.empty(0, np.int64)), "p90_ttft").upper < 0.2
    assert false <= 0.05 * 400 + 2 * math.sqrt(400 * 0.05 * 0.95)
    assert blind > false


def test_on_as_few_connections_as_streams_claims_would_be_false_often():
    """What the rule is for: twelve good connections are likely."""
    rng = np.random.default_rng(8)
    blind = refused = 0
    for _ in range(200):
        numbers, ttft = replicas(rng, 0.15, 1.0, 240, 12)
        window = on(numbers, ttft)
        blind += estimate(replace(window, connection=np.empty(0, np.int64)), "p90_ttft").upper < 0.2
        refused += math.isinf(estimate(window, "p90_ttft").upper)
    assert blind > 0.05 * 200
    assert refused == 200


@pytest.mark.parametrize(("metric", "first"), [("p90_ttft", 42), ("p95_ttft", 86), ("p99_ttft", 437)])
def test_the_windows_of_a_proof_have_enough_connections_for_every_judgement(metric, first):
    limits = (Limit(metric, 1.0), Limit("error_rate", 0.01))
    wanted = connections_wanted(limits, trial(4, Phase.PROVE))
    assert first == intervals.needed(limits[0].of.p, 1 - 0.25 * ALPHA)
    assert WINDOWS * wanted >= 1.4 * first
    assert connections_wanted(limits, trial(4, Phase.SCAN)) == 0
    assert connections_wanted(limits[1:], trial(4, Phase.PROVE)) == 0
    assert connections_wanted((), trial(4, Phase.GRID)) == connections_wanted((Limit("p99_ttft", 1.0),), trial(4))
    once, thrice = (connections_wanted(limits, trial(4, Phase.GRID), windows) for windows in (1, 3))
    assert once > fewest_to_bound(limits[0].of.p)
    assert 3 * thrice >= once
