import dataclasses
from itertools import islice

import numpy as np
import pytest

from frontier.core.model.loads import POISSON, Arrivals, Rate
from frontier.core.model.shapes import Lengths, Shape
from frontier.core.model.trials import Outcome, Phase, Trial
from frontier.core.stats.stationarity import dispersion
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import closed_loop_arrays, virtual_trial
from tests.kit.virtual_truth import closed_loop, truth

QUIET = EngineSpec(
    step_base=5e-3, per_decode=1e-4, per_prefill_token=2e-5, per_context_token=1e-8, ingest=0.0, kv_tokens=10_000_000
)


def trial(concurrency: int, **changes: object) -> Trial:
    base = Trial("d", Shape.of(64, 32), concurrency, 0, Phase.GRID, 200, 7, 0.0, 0.0, 1e9, "f")
    return dataclasses.replace(base, **changes)


def test_one_stream_alone_gets_exactly_the_priced_latency():
    found = closed_loop_arrays(QUIET, Shape.of(512, 11), 1, requests=5)
    prefill = 5e-3 + 512 * 2e-5
    decode = 5e-3 + 1e-4 + 1e-8 * (512 + np.mean(range(1, 11)))
    assert found.ttft == pytest.approx(prefill, rel=1e-9)
    assert found.tpot == pytest.approx(decode, rel=1e-9)
    assert found.e2e == pytest.approx(prefill + 10 * decode, rel=1e-9)


def test_a_request_on_the_way_waits_for_the_step_under_way():
    # With the ingest delay the next request misses the step that begins at once, so it waits for it
    # when others decode.
    alone = truth(dataclasses.replace(QUIET, ingest=1e-3), Shape.of(64, 8), 1, "mean_ttft", requests=10)
    assert alone == pytest.approx(truth(QUIET, Shape.of(64, 8), 1, "mean_ttft", requests=10) + 1e-3)


def test_the_window_counts_what_was_asked_and_every_counted_request_ended_under_load():
    records, window = closed_loop(
        EngineSpec(noise=0.1), Shape(Lengths.uniform(20, 80), Lengths.uniform(5, 40)), 8, requests=300, seed=3
    )
    inside = [r for r in records if window.start <= r.sent <= window.end]
    assert len(inside) >= 300
    assert {Outcome.OK} == {r.outcome for r in inside}
    cancelled = [r for r in records if r.outcome is Outcome.CANCELLED]
    assert len(cancelled) == 7, "the window ends with an answer, and its stream sends no more"
    assert window.end < min(r.sent for r in cancelled)
    assert sorted(r.sent for r in records) == [r.sent for r in records]


def in_flight(records, window):
    """Requests in flight over the window, by integral."""
    return sum(max(0.0, min(r.end, window.end) - max(r.sent, window.start)) for r in records) / window.length


def test_exactly_n_requests_are_in_flight_throughout_the_window():
    spec, shape = EngineSpec(noise=0.1, ingest=0.0), Shape.of(64, 20)
    assert in_flight(*closed_loop(spec, shape, 16, requests=400, stagger=False)) == pytest.approx(16, rel=1e-9)
    assert 16 * 0.98 < in_flight(*closed_loop(spec, shape, 16, requests=400)) < 16


@pytest.mark.parametrize(("isl", "osl"), [(1024, 256), (256, 64), (128, 64)])
def test_of_equal_requests_n_are_in_flight_and_they_do_not_run_in_step(isl, osl):
    for concurrency in (2, 16, 64, 128):
        for spec in (EngineSpec(seed=3), EngineSpec(noise=0.05, max_batched_tokens=512, seed=4)):
            records, window = closed_loop(spec, Shape.of(isl, osl), concurrency, requests=12 * concurrency, seed=5)
            inside = [r for r in records if window.start <= r.sent <= window.end]
            assert {(isl, osl)} == {(r.prompt_tokens, r.completion_tokens) for r in inside}
            assert in_flight(records, window) == pytest.approx(concurrency, rel=0.02)
            e2e = np.mean([r.last - r.sent for r in inside])
            sends = dispersion(np.array([r.sent for r in inside]), window.start, window.end, float(e2e))
            assert sends is not None
            assert sends.value - 2 * sends.error < 2, (concurrency, spec)


def test_fixed_lengths_have_the_tail_of_lengths_that_vary_a_little():
    # In step it is several times as long; started evenly, it would be too short.
    fixed, varied = Shape.of(256, 64), Shape(Lengths.fixed(256), Lengths.uniform(58, 70))
    spec = EngineSpec(noise=0.05)

    def p99(shape, **how):
        runs = [closed_loop_arrays(spec, shape, 32, requests=600, seed=seed, **how).ttft for seed in range(4)]
        return np.quantile(np.concatenate(runs), 0.99)

    assert 0.7 < p99(fixed) / p99(varied) < 1.3
    assert p99(fixed, stagger=False) > 2.5 * p99(varied)


def test_a_trial_says_how_long_restarts_waited_and_a_scan_warms_up_for_one_round():
    of = trial(16, shape=Shape.of(64, 64))
    records, measured = virtual_trial(of, EngineSpec(noise=0.05))
    tpot = np.mean([(r.last - r.first) / 63 for r in records if r.completion_tokens == 64])
    assert 0 < measured.health.restart_delay_mean <= tpot
    assert 0 == virtual_trial(trial(1), EngineSpec())[1].health.restart_delay_mean
    scan = virtual_trial(dataclasses.replace(of, phase=Phase.SCAN), EngineSpec(noise=0.05))[1]
    assert scan.window.start < 0.7 * measured.window.start


def test_records_and_arrays_say_the_same():
    spec, shape = EngineSpec(noise=0.2, seed=5, kv_tokens=3000), Shape(Lengths.uniform(20, 200), Lengths.uniform(1, 60))
    arrays = closed_loop_arrays(spec, shape, 24, requests=400, seed=9)
    records, window = closed_loop(spec, shape, 24, requests=400, seed=9)
    inside = [r for r in records if window.start <= r.sent <= window.end]
    assert arrays.window == window
    assert [r.first - r.sent for r in inside] == pytest.approx(arrays.ttft)
    assert [r.last - r.sent for r in inside] == pytest.approx(arrays.e2e)
    assert [r.completion_tokens for r in inside] == list(arrays.tokens)
    for r in inside:
        assert r.events == r.completion_tokens == len(r.gaps) + 1
        assert sum(r.gaps) * 1e-6 == pytest.approx(r.last - r.first, abs=1e-6 * len(r.gaps) + 1e-9)
    arrived = sum(
        window.start <= t <= window.end for r in records if r.first for t in r.first + np.cumsum((0, *r.gaps)) * 1e-6
    )
    assert arrays.output_tokens == pytest.approx(arrived, abs=3)


def test_a_seed_decides_everything():
    spec, shape = EngineSpec(noise=0.2), Shape(Lengths.normal(64, 10), Lengths.uniform(5, 30))
    once, again = (closed_loop(spec, shape, 4, requests=50, seed=1) for _ in range(2))
    other = closed_loop(spec, shape, 4, requests=50, seed=2)
    assert once == again
    assert once != other


def test_past_the_kv_capacity_requests_are_preempted_and_the_tail_explodes():
    shape = Shape.of(256, 256)
    spec = EngineSpec(kv_tokens=20_000, watermark=0.0, per_context_token=0.0)
    below, above = (virtual_trial(trial(c, shape=shape, requests=300), spec)[1].server for c in (32, 64))
    assert 0 == below["num_preemptions_total"]
    assert 0 < above["num_preemptions_total"]
    assert above["kv_cache_usage_perc"] > 0.9
    assert above["num_requests_running"] < 60
    slow = truth(spec, shape, 64, "p99_ttft", requests=300)
    assert slow > 5 * truth(spec, shape, 32, "p99_ttft", requests=300)


def test_throughput_and_concurrency_obey_littles_law():
    found = closed_loop_arrays(EngineSpec(noise=0.1), Shape.of(256, 64), 32, requests=4000)
    rate = len(found.sent) / found.window.length
    assert rate * found.e2e.mean() == pytest.approx(32, rel=0.01)
    assert found.output_throughput == pytest.approx(rate * 64, rel=0.01)


def test_a_burst_of_equal_requests_stays_in_lockstep_and_a_staggered_start_does_not():
    spec, shape = EngineSpec(per_prefill_token=1e-4), Shape.of(512, 64)
    burst = closed_loop_arrays(spec, shape, 32, requests=500, stagger=False)
    calm = closed_loop_arrays(spec, shape, 32, requests=500)
    assert np.quantile(burst.ttft, 0.99) > 2 * np.quantile(calm.ttft, 0.99)


def test_truth_knows_percentiles_means_gaps_rates_and_speed():
    spec, shape = EngineSpec(noise=0.1), Shape.of(64, 32)
    assert truth(spec, shape, 4, "p50_tpot", 400) < truth(spec, shape, 4, "p99_tpot", 400)
    assert truth(spec, shape, 4, "mean_itl", 400) == pytest.approx(truth(spec, shape, 4, "mean_tpot", 400), rel=0.01)
    speed = truth(spec, shape, 4, "p99_interactivity", 400)
    assert speed == pytest.approx(1 / truth(spec, shape, 4, "p99_tpot", 400))
    rate = truth(spec, shape, 4, "request_throughput", 400)
    assert truth(spec, shape, 4, "output_throughput", 400) == pytest.approx(32 * rate, rel=0.01)
    with pytest.raises(ValueError, match="goodput"):
        truth(spec, shape, 4, "goodput", 10)


def test_a_trial_obeys_its_times_and_has_its_own_noise():
    spec = EngineSpec(noise=0.2)
    records, measured = virtual_trial(trial(4, warmup=3.0, min_time=20.0, requests=5), spec)
    assert measured.window.start >= 3.0 - 0.1
    assert measured.window.length >= 20.0 - 0.1
    assert "requests" == measured.ended
    cut = virtual_trial(trial(4, max_time=10.0, requests=10**6), spec)[1]
    assert "time" == cut.ended
    assert cut.window.end == pytest.approx(10.0, abs=0.1)
    short = virtual_trial(trial(4, seconds=5.0, requests=10**6), spec)[1]
    assert "time" == short.ended
    assert short.window.length == pytest.approx(5.0, abs=0.1)
    other = virtual_trial(trial(4, warmup=3.0, min_time=20.0, requests=5, seed=8), spec)[0]
    assert [r.gaps for r in records[:5]] != [r.gaps for r in other[:5]]


def test_a_window_shorter_than_a_request_lasts_until_one_was_sent():
    alone = trial(1, shape=Shape.of(64, 200), seconds=0.1, requests=10**6)
    records, measured = virtual_trial(alone, EngineSpec())
    assert "time" == measured.ended
    assert any(measured.window.start <= r.sent <= measured.window.end and r.outcome is Outcome.OK for r in records)


def test_a_shared_prefix_is_served_from_the_cache():
    spec = EngineSpec(prefix_cache=True)
    shape = Shape(Lengths.fixed(512), Lengths.fixed(16), prefix=0.5)
    records, measured = virtual_trial(trial(4, shape=shape, requests=50), spec)
    assert {0, 256} == {r.cached_tokens for r in records if r.outcome is Outcome.OK}
    server = measured.server
    assert server["prefix_cache_hits_total"] == pytest.approx(server["prefix_cache_queries_total"] / 2)


def test_arrivals_at_a_server_of_one_place_wait_as_queueing_theory_says() -> None:
    """M/D/1: the mean wait is rho s / (2 (1 - rho)) (Pollaczek and Khinchine)."""
    free = dict.fromkeys(("per_decode", "per_prefill_token", "per_context_token", "ingest"), 0.0)
    spec = EngineSpec(step_base=0.009, max_num_seqs=1, **free)
    shape = dataclasses.replace(Shape.of(10, 1), arrivals=POISSON)
    for rho in (0.3, 0.6):
        mean = truth(spec, shape, Rate.of(rho / 0.009), "mean_e2e", requests=8_000)
        assert mean == pytest.approx(0.009 + rho * 0.009 / (2 * (1 - rho)), rel=0.06)


@pytest.mark.parametrize("cv", [0.5, 1.0, 2.0])
def test_gaps_between_arrivals_have_their_rate_and_their_spread(cv: float) -> None:
    times = np.array(list(islice(Arrivals(cv).times(4.0, seed=3), 20_000)))
    gaps = np.diff(times)
    assert gaps.mean() == pytest.approx(0.25, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)
    assert list(islice(Arrivals(cv).times(4.0, seed=3), 5)) == times[:5].tolist()
