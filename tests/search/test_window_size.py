"""Sizes of windows: where a stream repeats its latency, more of its requests tell nothing."""

import dataclasses
import math

import numpy as np
import pytest

from frontier.core.claim.proof import WINDOWS
from frontier.core.model.decisions import Limit
from frontier.core.model.loads import Concurrency
from frontier.core.model.metrics import claim_floor
from frontier.search.place import State
from frontier.search.series_history import SeriesHistory
from frontier.search.window_size import reach_of_largest, repeats, window_size
from tests.kit.made import sample, trial

LIMIT = Limit("p99_ttft", 0.2)
TURNS = 4


def scan(c, *, in_place, seed=1):
    """A scan whose streams keep their places, or change them at each turn."""
    rng = np.random.default_rng(seed)
    places = 0.1 * np.exp(0.1 * rng.standard_normal(c))
    turns = np.concatenate([places if in_place else rng.permutation(places) for _ in range(TURNS)])
    ttft = turns * np.exp(0.01 * rng.standard_normal(len(turns)))
    made = sample(Concurrency(c), ttft, np.full(len(turns), 0.01))
    return dataclasses.replace(made, stream=np.tile(np.arange(c), TURNS))


def test_a_stream_repeats_its_latency_where_it_keeps_its_place_among_the_others():
    assert repeats({16: scan(16, in_place=True)}, LIMIT, 16)
    assert not repeats({16: scan(16, in_place=False)}, LIMIT, 16)
    one = {1: scan(1, in_place=True)}
    assert not repeats(one, LIMIT, 1), "one stream shows nothing of places"
    assert repeats(one | {4: scan(4, in_place=True)}, LIMIT, 1), "what several show holds for one"


def test_requests_of_streams_that_repeat_are_spread_over_as_many_windows_as_they_take():
    few, many = ({c: scan(c, in_place=True)} for c in (16, 600))
    assert window_size(few, [LIMIT], 16) == math.ceil(claim_floor(0.99, 16) / 12) < 100
    assert window_size({16: scan(16, in_place=False)}, [LIMIT], 16) > 300
    assert window_size(many, [LIMIT], 600) == claim_floor(0.99, 600) / WINDOWS, "the least proof is enough"


def test_a_proof_by_the_largest_of_few_streams_is_forecast_where_ranks_give_none():
    """By ranks 99% of 144 streams are never proven; with the limit far enough above, their largest
    values do it."""
    assert reach_of_largest(0.99, 4, 0.0125) > reach_of_largest(0.99, 40, 0.0125) > 2.33

    def chances(c, promise, **how):
        limits = (Limit("p99_ttft", promise),)
        history = [(trial(Concurrency(c)), scan(c, **how))]
        return State.of(SeriesHistory.of(limits, history)).prospects(c)

    near, far = (chances(Concurrency(12), promise, in_place=True) for promise in (0.115, 0.3))
    assert far[12] > 0.9 > 0.1 > near[12]
    assert far[3] == pytest.approx(0.0), "three windows have too few requests"
