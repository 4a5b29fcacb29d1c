import dataclasses
import math

import moocore
import numpy as np
import pytest

from frontier import uncertainty
from frontier.core.claim import pareto
from frontier.core.estimates import estimate, sources
from frontier.core.model.decisions import Limit
from frontier.core.window import window
from frontier.core.window.histogram import LogHistogram
from frontier.core.window.window import BLOCKS
from frontier.uncertainty import Replicates
from tests.kit.made import Server, sample, trial

OBJECTIVES = ("output_throughput", "p99_ttft")


def drawn(gain, price, objectives=OBJECTIVES):
    gain, price = np.array(gain, float), np.array(price, float)
    return Replicates(tuple(range(1, gain.shape[1] + 1)), objectives, gain, price)


def server_samples(concurrencies=(1, 8, 32, 64), n=1000, **law):
    server = Server(**({"ttft": lambda c: 0.01 * c} | law))
    return {c: server.run(trial(c, requests=n)) for c in concurrencies}


def blocks_again(s, picks):
    """The sample made of these blocks, the slow and plain way: what a draw stands for."""
    block = np.minimum(((s.sent - s.starts[0]) / (s.ends[0] - s.starts[0]) * BLOCKS).astype(int), BLOCKS - 1)
    requests = np.concatenate([np.flatnonzero(block == b) for b in range(BLOCKS) for _ in range(picks[b])])
    again = np.repeat(np.arange(BLOCKS), picks)
    return requests, again


@pytest.mark.parametrize(
    "name",
    [
        "p99_ttft",
        "p50_tpot",
        "mean_e2e",
        "p90_interactivity",
        "error_rate",
        "attainment",
        "goodput",
        "output_throughput",
        "total_throughput",
        "request_throughput",
        "cost",
        "p95_itl",
        "mean_itl",
    ],
)
def test_a_draw_is_what_the_summary_says_of_the_drawn_blocks(name):
    rng = np.random.default_rng(3)
    s = sample(
        8,
        0.1 * np.exp(0.3 * rng.standard_normal(400)),
        0.01 * np.exp(0.2 * rng.standard_normal(400)),
        ok=np.arange(400) % 150 != 149,
    )
    s = dataclasses.replace(s, block_itl=tuple(LogHistogram.of(rng.exponential(0.01, 50)) for _ in range(BLOCKS)))
    limits = (Limit("p99_ttft", 0.15),)
    found = uncertainty.replicates({8: s}, (name, "p50_ttft"), limits=limits, price=3.0, draws=20, seed=5)
    picks = np.random.default_rng([5, 8]).multinomial(BLOCKS, [1 / BLOCKS] * BLOCKS, size=20)
    for row in range(20):
        requests, again = blocks_again(s, picks[row])
        whole = dataclasses.replace(
            s,
            **{k: getattr(s, k)[requests] for k in ("ttft", "tpot", "e2e", "ok", "sent", "window")},
            **{
                k: getattr(s, k)[again]
                for k in ("block_seconds", "block_output_tokens", "block_input_tokens", "block_finished")
            },
            block_itl=tuple(s.block_itl[b] for b in again),
        )
        if name in ("p95_itl", "mean_itl"):  # the summary also charges failures to the ITL; a draw does not
            whole = dataclasses.replace(whole, ok=np.ones(len(requests), bool))
        expected = estimate.estimate(whole, name, limits=limits, price=3.0).value
        if name == "goodput":  # the summary goes by where the request lies in the window, which drawing has changed
            expected = float(sources.attains(whole, limits).sum() / whole.block_seconds.sum())
        assert expected == pytest.approx(found.gain[row, 0], rel=1e-9)


def test_windows_that_are_alike_narrow_the_interval_and_windows_that_differ_do_not():
    ttft = 0.1 * np.exp(0.2 * np.random.default_rng(9).standard_normal(500))
    alike = [sample(8, ttft, np.full(500, 0.01), start=1e4 * r) for r in (1, 2, 3)]
    differ = []
    for r, speed in ((1, 1.0), (2, 1.1), (3, 0.9)):  # as three nights on one machine may
        other = Server(ttft=lambda c, speed=speed: 0.01 * c * speed, tpot=lambda c, speed=speed: 0.01 * speed, seed=r)
        other.clock = 1e5 * r
        differ.append(other.run(trial(8, repeat=r, requests=500)))

    def spread(parts):
        drawn = uncertainty.replicates({8: window.join(parts)}, OBJECTIVES, draws=300)
        return float(np.std(drawn.gain) / np.mean(drawn.gain))

    # Two of three windows are drawn each time: alike as they are, that is the uncertainty of two.
    assert spread(alike) == pytest.approx(spread(alike[:1]) / np.sqrt(2), rel=0.15)
    assert spread(differ) > 0.03  # a tenth between three runs: about 5% on their mean
    rates = [p.block_output_tokens.sum() / p.block_seconds.sum() for p in differ]
    assert spread(differ) == pytest.approx(np.std(rates, ddof=1) / np.sqrt(3) / np.mean(rates), rel=0.15)


def test_draws_are_seeded_and_do_not_depend_on_which_other_settings_there_are():
    samples = server_samples()
    all_of_them = uncertainty.replicates(samples, OBJECTIVES, draws=50, seed=7)
    alone = uncertainty.replicates({32: samples[32]}, OBJECTIVES, draws=50, seed=7)
    other = uncertainty.replicates(samples, OBJECTIVES, draws=50, seed=8)
    assert list(alone.gain[:, 0]) == list(all_of_them.gain[:, 2])
    assert list(other.price[:, 2]) != list(all_of_them.price[:, 2])


def test_a_setting_without_one_of_the_objectives_is_left_out():
    found = uncertainty.replicates(server_samples((1, 8)), ("output_throughput", "p99_itl"), draws=10)
    assert () == found.loads
    assert {} == uncertainty.membership(found)


def test_membership_is_the_share_of_draws_in_which_no_other_beats_the_setting():
    rng = np.random.default_rng(1)
    gain, price = rng.integers(40, 60, (300, 7)), rng.integers(40, 60, (300, 7))
    keep = 1 - uncertainty.INDIFFERENCE
    unbeaten = [
        [not any(j != i and g[j] >= keep * g[i] and p[j] <= keep * p[i] for j in range(7)) for i in range(7)]
        for g, p in zip(gain, price, strict=True)
    ]
    found = uncertainty.membership(drawn(gain, price))
    assert list(np.mean(unbeaten, axis=0)) == pytest.approx(list(found.values()))


def test_the_indifference_zone_removes_a_point_that_only_noise_lifts():
    rng = np.random.default_rng(2)
    noise = 1 + 0.005 * rng.standard_normal((400, 3))
    gain = np.array([500.0, 1000.0, 1000.0]) * noise  # the third pays ten times the latency for nothing
    price = np.array([0.1, 0.2, 2.0]) * (1 + 0.02 * rng.standard_normal((400, 3)))
    exact = np.mean([pareto.nondominated(g, p) for g, p in zip(gain, price, strict=True)], axis=0)
    zoned = uncertainty.membership(drawn(gain, price))
    assert 0.3 < exact[2] < 0.7
    assert zoned[3] < 0.02
    assert zoned[1] > 0.98
    assert zoned[2] > 0.98


def test_a_draw_without_a_finite_value_is_beaten_and_beats_nobody():
    found = uncertainty.membership(drawn([[10, 20]] * 4, [[1, math.inf]] * 4))
    assert {1: 1.0, 2: 0.0} == found


def test_objectives_in_other_directions_are_turned_first():
    speed = [[50.0, 30.0, 25.0]] * 3
    gain = [[100.0, 200.0, 150.0]] * 3
    found = uncertainty.membership(drawn(gain, speed, ("output_throughput", "p50_interactivity")))
    assert {1: 1.0, 2: 1.0, 3: 0.0} == found


@pytest.mark.parametrize(("percentile", "level"), [(5, 0.05), (50, 0.5), (95, 0.95)])
def test_the_attainment_band_equals_moocores_empirical_attainment_function(percentile, level):
    rng = np.random.default_rng(percentile)
    for _ in range(20):
        draws, settings = int(rng.integers(3, 40)), int(rng.integers(1, 8))
        gain, price = rng.integers(0, 9, (draws, settings)), rng.integers(0, 9, (draws, settings))
        table = np.column_stack((-gain.ravel(), price.ravel())).astype(float)
        surface = moocore.eaf(table, np.repeat(np.arange(draws), settings), percentiles=[percentile])
        grid = np.arange(-0.5, 10, 0.5)
        expected = [max((-g for g, p, _ in surface if p <= x), default=-math.inf) for x in grid]
        (found,) = uncertainty.attained(gain.astype(float), price.astype(float), grid, (level,))
        assert expected == list(found)


def test_the_band_brackets_the_measured_staircase_and_says_nothing_left_of_it():
    samples = server_samples()
    reps = uncertainty.replicates(samples, OBJECTIVES, draws=200)
    (_, *left), *band = uncertainty.band(reps, np.array([1e-6, 0.1, 0.4, 5.0]))
    assert np.isnan(left).all()
    assert all(low <= high for _, low, high in band)
    best = max(estimate.estimate(s, "output_throughput").value for s in samples.values())
    _, low, high = band[-1]
    assert low <= best <= high
    assert high / low < 1.02
    upward = uncertainty.band(drawn([[5, 9]], [[30, 20]], ("output_throughput", "p50_interactivity")), [10, 25, 40])
    assert [(10, 9.0, 9.0), (25, 5.0, 5.0)] == upward[:2]  # at a speed of 25 only the first still qualifies
    assert np.isnan(upward[2][1:]).all()


@pytest.mark.parametrize("p", [0.01, 0.3, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0])
def test_a_weighted_percentile_is_that_of_the_values_repeated(p):
    rng = np.random.default_rng(4)
    values = np.sort(np.append(rng.integers(1, 60, 197) / 7, [np.inf] * 3))
    weights = rng.integers(0, 4, (40, 200)) * (rng.random((40, 200)) < 0.3)
    weights[3] = 0
    weights[5, 150:] = 0  # nothing of the tail was drawn
    weights[6, :199] = 0
    found = uncertainty._percentile(values, np.arange(200), np.ones(200, np.int64), weights, p)
    plain = [np.repeat(values, w) for w in weights]
    expected = [np.quantile(x, p, method="inverted_cdf") if len(x) else np.nan for x in plain]
    np.testing.assert_array_equal(expected, found)
