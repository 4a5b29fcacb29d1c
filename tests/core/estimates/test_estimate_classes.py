"""Metrics of turn classes, and what the turns of one session have in common, against oracles."""

import dataclasses
import math

import numpy as np
import pytest

from frontier.core.claim.levels import latencies
from frontier.core.claim.proof import violation
from frontier.core.claim.verdict import judge
from frontier.core.estimates.estimate import estimate, point
from frontier.core.estimates.sources import attains
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.metrics import claim_floor, metric
from frontier.core.model.points import Estimate, Point
from frontier.core.model.shapes import Lengths, Session, Shape
from frontier.core.window.window import WindowData, join, narrowed
from frontier.search.window_size import fewest_requests, window_size
from tests.kit import made
from tests.kit.golden import assert_golden_row

TURNS = 5
SHAPE = Shape.of_session(
    Session(Lengths.fixed(TURNS), Lengths.fixed(512), Lengths.fixed(10)), Lengths.fixed(100), "agent"
)
FIRST, LATER = Limit("first.p99_ttft", 0.5), Limit("later.p99_ttft", 0.2)


def sample(ttft, turn, session, *, concurrency=4, ok=None, start=0.0) -> WindowData:
    """Requests in the order of sending, each a turn of a session."""
    found = made.sample(concurrency, ttft, np.full(len(ttft), 0.01), ok=ok, start=start)
    reusable = np.zeros(len(ttft))
    turn, session = (np.asarray(x, np.int64) for x in (turn, session))
    return dataclasses.replace(found, shape=SHAPE, turn=turn, session=session, reusable=reusable)


def mixed(n=4000, seed=1, first=0.3, later=0.05) -> WindowData:
    """Sessions one after another in four streams; first turns are slower."""
    rng = np.random.default_rng(seed)
    stream = np.arange(n) % 4
    place = np.arange(n) // 4
    turn, session = place % TURNS, 4 * (place // TURNS) + stream
    ttft = np.where(turn == 0, first, later) * np.exp(0.2 * rng.standard_normal(n))
    return sample(ttft, turn, session)


def test_a_class_has_the_percentile_of_its_own_requests() -> None:
    found = mixed()
    for name, mine in (("first", found.turn == 0), ("later", found.turn > 0)):
        ordered = np.sort(found.ttft[mine])
        of_class = estimate(found, f"{name}.p99_ttft")
        assert of_class is not None
        assert of_class.n == mine.sum()
        assert of_class.value == ordered[math.ceil(0.99 * len(ordered)) - 1]
    names = point(found).metrics
    assert {"first.p50_ttft", "later.p99_e2e", "later.mean_tpot"} <= set(names)
    plain = made.sample(4, np.full(300, 0.1), np.full(300, 0.01))
    assert not [name for name in point(plain).metrics if metric(name).group]


def test_a_class_that_was_not_seen_has_no_metrics() -> None:
    found = sample(np.full(60, 0.1), np.ones(60), np.zeros(60))
    assert estimate(found, "first.p99_ttft") is None
    assert violation(point(found, limits=(FIRST, LATER)), (FIRST, LATER)) == pytest.approx(math.log(0.1 / 0.2))
    assert violation(point(found, limits=(FIRST,)), (FIRST,)) is None


def test_goodput_holds_each_request_to_the_limits_of_its_class() -> None:
    found = sample([0.4, 0.1, 0.4, 0.6, 0.1], [0, 1, 2, 0, 3], [0, 0, 0, 1, 1], ok=[True, True, True, True, False])
    assert attains(found, (FIRST, LATER)).tolist() == [True, True, False, False, False]
    assert attains(found, (Limit("p99_ttft", 0.45), LATER)).tolist() == [True, True, False, False, False]


def test_windows_joined_keep_their_sessions_apart() -> None:
    a, b = mixed(400, 1), dataclasses.replace(mixed(400, 2), starts=np.array([999.0]), ends=np.array([1999.0]))
    both = join([a, b])
    assert len(both.session) == len(both.turn) == len(both.reusable) == 800
    assert narrowed(both, "first").n == 160
    assert narrowed(both, None) is both


def test_the_bounds_hold_where_the_requests_of_a_session_are_alike() -> None:
    """Each session has a level of its own, over many time blocks: the requests are worth far fewer
    independent ones.
    """
    level, streams, sessions = 0.35, 40, 3
    n = streams * sessions * TURNS
    truth = math.exp(2.3263 * math.hypot(level, 0.1))  # the p99 over all sessions
    p90 = math.exp(1.2816 * math.hypot(level, 0.1))
    covered = {True: 0, False: 0}
    runs = 150
    rng = np.random.default_rng(3)
    place = np.arange(n) // streams
    turn, session = place % TURNS, streams * (place // TURNS) + np.arange(n) % streams
    for _ in range(runs):
        levels = level * rng.standard_normal(streams * sessions)
        ttft = np.exp(levels[session] + 0.1 * rng.standard_normal(n))
        found = sample(ttft, turn, session, concurrency=streams)
        blind = dataclasses.replace(found, session=np.empty(0, np.int64))
        for knows, data in ((True, found), (False, blind)):
            bound = estimate(data, "p90_ttft")
            assert bound is not None
            covered[knows] += bound.lower <= p90
    assert truth > p90
    assert covered[True] / runs >= 0.93
    assert covered[False] / runs < 0.90, "the test shows nothing if time blocks alone were enough"


def test_the_mean_and_a_share_are_as_wide_as_sessions_differ() -> None:
    rng = np.random.default_rng(5)
    n, streams = 2000, 40
    stream = np.arange(n) % streams
    place = np.arange(n) // streams + stream % TURNS  # each stream in a turn of its own
    turn, session = place % TURNS, streams * (place // TURNS) + stream
    levels = np.exp(0.5 * rng.standard_normal(session.max() + 1))
    found = sample(0.1 * levels[session], turn, session, concurrency=streams)
    blind = dataclasses.replace(found, session=np.empty(0, np.int64))
    wide, narrow = (estimate(data, "mean_ttft") for data in (found, blind))
    sums = np.bincount(session, found.ttft - found.ttft.mean())
    error = math.sqrt(float(sums @ sums)) / n  # by whole sessions, which are independent
    assert wide.value == pytest.approx(narrow.value)
    assert wide.high - wide.low >= max(2 * 1.96 * error, narrow.high - narrow.low)
    limit = Limit("p99_ttft", 0.2)
    wide, narrow = (estimate(data, "attainment", limits=(limit,)) for data in (found, blind))
    assert wide.lower < narrow.lower


def test_a_class_needs_as_many_of_all_requests_as_bring_enough_of_its_own() -> None:
    assert SHAPE.class_share("first") == 0.2
    assert fewest_requests(SHAPE, FIRST, 8) >= claim_floor(0.99) / 0.2
    assert fewest_requests(SHAPE, Limit("p99_ttft", 1.0), 100) == claim_floor(0.99, 100)
    found = mixed()
    assert window_size({found.load: found}, [FIRST], 4) > 3 * window_size(
        {found.load: found}, [Limit("p99_ttft", 1.0)], 4
    )
    assert len(latencies(found, FIRST)) == 800


def test_what_would_decide_is_said_in_requests_of_all_classes() -> None:
    few = Estimate(0.1, 0.09, math.inf, 100, 0.09, math.inf, need=1000)
    found = Point("d", SHAPE, 4, {"first.p99_ttft": few}, 500)
    judged = judge(found, (FIRST,))
    assert (judged.verdict, judged.need) == (Verdict.UNPROVEN, 5000)


def test_the_names_of_class_metrics() -> None:
    m = metric("later.p99.9_ttft")
    assert (m.group, m.p, m.quantity) == ("later", 0.999, "ttft")
    assert_golden_row("answers", m.label)
    assert metric("first.p50_interactivity").inverted
    for name in ("later.p99_itl", "later.goodput", ".p99_ttft", "later.p101_ttft", "later.later.p99_ttft"):
        with pytest.raises(ValueError, match="known"):
            metric(name)
