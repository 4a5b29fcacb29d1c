"""Workloads of a server's counters: differences, restarts, engines whose buckets differ, the values
that fill buckets, and requests above every bucket."""

import random
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytest

from frontier.client.ask.evidence import parse_metrics
from frontier.client.engines.base import Samples
from frontier.config import load_config
from frontier.core.model.errors import MeasurementError
from frontier.extras.workload.bucket_counts import Buckets, bucket_figures, filled, joined, tail_between
from frontier.extras.workload.config_text import config_text
from frontier.extras.workload.counter_watch import base_of
from frontier.extras.workload.observed import Workload
from frontier.extras.workload.server_metrics import (
    MOST_LINES,
    OF_ENGINE,
    WANTED,
    Increases,
    in_flight,
    workload_of,
)
from frontier.simulator.request_times import BOUNDS

VLLM = BOUNDS["request_prompt_tokens"]


def buckets(values: Sequence[float], bounds: Sequence[float] = VLLM) -> Buckets:
    x = np.asarray(values)
    return Buckets(tuple(bounds), tuple(float((x <= bound).sum()) for bound in bounds), float(len(x)), float(x.sum()))


def lengths(seed: int = 1, number: int = 5_000, mu: float = 6.5, sigma: float = 1.1) -> list[int]:
    rng = random.Random(seed)
    return [max(1, round(rng.lognormvariate(mu, sigma))) for _ in range(number)]


def text(series: Mapping[str, Buckets], labels: str = 'model_name="llama"', more: Iterable[str] = ()) -> bytes:
    """Histograms as a server exports them."""
    lines = list(more)
    for name, h in series.items():
        lines.append(f"# TYPE {name} histogram")
        pairs = zip((*map(str, h.bounds), "+Inf"), (*h.at_most, h.count), strict=True)
        lines += [f'{name}_bucket{{{labels},le="{le}"}} {count}' for le, count in pairs]
        lines += [f"{name}_sum{{{labels}}} {h.total}", f"{name}_count{{{labels}}} {h.count}"]
    return "\n".join(lines).encode() + b"\n"


def read(reading: bytes) -> Samples:
    return parse_metrics(reading, wanted=WANTED, most=MOST_LINES)


def workload(*texts: bytes, context: int | None = None) -> Workload:
    """The workload in successive readings."""
    increases = Increases()
    for reading in texts:
        increases.add(read(reading))
    return workload_of("server", increases.grown, 60.0, context)


NAMES = {
    "vllm": ("vllm:request_prompt_tokens", "vllm:request_generation_tokens"),
    "sglang": ("sglang:prompt_tokens_histogram", "sglang:generation_tokens_histogram"),
    "tgi": ("tgi_request_input_length", "tgi_request_generated_tokens"),
}
EMPTY = buckets([])


@pytest.mark.parametrize("engine", NAMES)
def test_the_lengths_between_two_readings_are_those_of_the_requests(engine: str) -> None:
    isl, osl = lengths(1), lengths(2, mu=4.5, sigma=0.7)
    earlier = lengths(9, 800, mu=3)
    before = {name: buckets(earlier) for name in NAMES[engine]}
    after = {name: buckets([*earlier, *new]) for name, new in zip(NAMES[engine], (isl, osl), strict=True)}
    found = workload(text(before), text(after))
    assert found.requests == 5_000
    assert not found.joint
    pairs = np.asarray(found.classes[0].pairs)
    for side, true in enumerate((isl, osl)):
        assert pairs[:, side].mean() == pytest.approx(np.mean(true), rel=0.01)
        for p in (0.5, 0.9, 0.99):
            assert np.quantile(pairs[:, side], p) == pytest.approx(np.quantile(true, p), rel=0.1)
    assert abs(np.corrcoef(np.log(pairs), rowvar=False)[0, 1]) < 0.05
    load_config(config_text(found), "sweep.yaml")


def test_without_histograms_of_lengths_each_is_the_mean() -> None:
    def reading(requests: int) -> bytes:
        more = (f"trtllm_prompt_tokens_total {900.0 * requests}", f"trtllm_generation_tokens_total {70.0 * requests}")
        return text({"trtllm_time_to_first_token_seconds": buckets([0.2] * requests, (0.1, 0.5))}, more=more)

    found = workload(reading(10), reading(60))
    assert (found.requests, found.mean(0), found.mean(1)) == (50, 900, 70)
    assert len([note for note in found.notes if "no histogram" in note]) == 2


def test_what_a_counter_that_began_anew_grew_by_is_a_lower_bound() -> None:
    readings = [[100] * 40, [100] * 50, [400] * 5, [400] * 25]
    increases = Increases()
    for values in readings:
        increases.add(read(text(dict.fromkeys(NAMES["vllm"], buckets(values)))))
    found = workload_of("server", increases.grown, 60.0, None)
    assert increases.restarted
    assert increases.several is None
    assert found.requests == 10 + 20
    assert found.mean(0) == pytest.approx((10 * 100 + 20 * 400) / 30, rel=0.01)


def test_a_page_without_counters_is_no_restart() -> None:
    increases = Increases()
    for reading in ([100] * 40, None, [100] * 50):
        series = {} if reading is None else dict.fromkeys(NAMES["vllm"], buckets(reading))
        increases.add(read(text(series)))
    assert workload_of("server", increases.grown, 60.0, None).requests == 10
    assert not increases.restarted


def test_a_sum_of_times_that_falls_is_no_restart() -> None:
    name, increases = "vllm:e2e_request_latency_seconds", Increases()
    steps = []
    for total in (1_000.0, 999.998, 1_002.0):
        h = buckets([2.0] * 500, (1.0, 5.0))
        steps.append(increases.add(read(text({name: Buckets(h.bounds, h.at_most, h.count, total)}))))
    assert not increases.restarted
    assert [spent for _, spent in steps] == pytest.approx([0.0, -0.002, 2.002])


def test_engines_with_other_buckets_count_where_their_bounds_are_one() -> None:
    isl = lengths(1)
    other = [100.0, 500.0, 1_000.0, 3_000.0, 10_000.0]
    whole, differ = joined([buckets(isl[:2_000]), buckets(isl[2_000:], other)])
    assert differ
    assert whole.bounds == (100.0, 500.0, 1_000.0, 10_000.0)
    assert whole == buckets(isl, whole.bounds)
    labels = ('engine="0"', 'engine="1"')
    reading = b"".join(
        text({NAMES["vllm"][0]: buckets(part, bounds), NAMES["vllm"][1]: buckets(part)}, label)
        for part, bounds, label in zip((isl[:2_000], isl[2_000:]), (VLLM, other), labels, strict=True)
    )
    found = workload(b"", reading)
    assert found.servers == 2
    assert any("different buckets" in note for note in found.notes)
    assert found.mean(0) == pytest.approx(np.mean(isl), rel=0.01)


def test_engines_without_a_common_bucket_have_the_mean_and_say_so() -> None:
    parts = (("0", [100] * 40, (128.0, 512.0)), ("1", [400] * 20, (100.0, 500.0)))
    reading = b"".join(
        text({NAMES["vllm"][0]: buckets(isl, bounds), NAMES["vllm"][1]: buckets([20] * len(isl))}, f'engine="{name}"')
        for name, isl, bounds in parts
    )
    found = workload(b"", reading)
    assert {isl for isl, _ in found.classes[0].pairs} == {200}
    assert any("mean" in note for note in found.notes)


def test_servers_of_several_engines_are_no_replicas() -> None:
    reading = text(
        {**dict.fromkeys(NAMES["vllm"], buckets([100] * 9)), **dict.fromkeys(NAMES["tgi"], buckets([9] * 9))}
    )
    with pytest.raises(MeasurementError, match="tgi, vllm"):
        workload(b"", reading)


@pytest.mark.parametrize(
    ("metrics", "known"),
    [
        (b"sglang:num_running_reqs 0.0\n", True),
        (b"# TYPE trtllm_e2e_request_latency_seconds histogram\n", True),
        (b'[{"iter": 1, "trtllm_": 2}]', False),
        (b"# HELP up vllm: is it\nup 1\n", False),
    ],
)
def test_an_engine_without_a_request_yet_is_known_by_its_names(metrics: bytes, known: bool) -> None:
    assert bool(OF_ENGINE.search(metrics)) == known


def test_a_limit_is_proposed_where_the_upper_side_is_known() -> None:
    lengths_ = dict.fromkeys(NAMES["vllm"], buckets([100] * 50))
    slow = text({**lengths_, "vllm:time_to_first_token_seconds": buckets([0.2] * 40 + [9.0] * 10, (0.1, 0.5))})
    assert "p99_ttft: 500ms, p99_tpot: 30ms" in config_text(workload(b"", slow))
    known = text({**lengths_, "vllm:time_to_first_token_seconds": buckets([0.2] * 50, (0.1, 0.25))})
    assert "sla: {p99_ttft: 250ms}" in config_text(workload(b"", known))


def test_requests_above_every_bucket_are_bounded_and_not_made_up() -> None:
    isl = [*[500] * 700, *[30_000] * 150, *[50_000] * 150]
    h = buckets(isl, (100.0, 1_000.0, 20_000.0))
    low, high = tail_between(h, None)
    assert low <= 40_000 <= high
    values = filled(h, 1_000)
    assert (values > 20_000).sum() == 300
    assert len(set(values[values > 20_000])) == 1
    assert values.sum() == pytest.approx(sum(isl), rel=0.01)
    assert filled(h, 1_000, 32_768).max() <= 32_768
    found = workload(b"", text(dict.fromkeys(NAMES["vllm"], h)))
    assert any("p99 is not known" in note and "30.0%" in note.replace(" %", "%") for note in found.notes), found.notes
    assert bucket_figures("ttft", h)["p99_ttft"].high is None


def test_a_single_bucket_has_the_mean_that_its_sum_says() -> None:
    values = filled(buckets([256] * 400), 1_000)
    assert values.mean() == pytest.approx(256, rel=1e-3)
    assert 200 <= values.min() < values.max() <= 500


def test_lengths_over_the_context_are_cut_and_said() -> None:
    found = workload(b"", text(dict.fromkeys(NAMES["vllm"], buckets(lengths(1)))), context=2_048)
    assert max(isl + osl for isl, osl in found.classes[0].pairs) <= 2_048
    assert any("2,048" in note for note in found.notes)


def test_percentiles_lie_in_their_buckets() -> None:
    times = [random.Random(i).lognormvariate(-2, 0.7) for i in range(3_000)]
    figures = bucket_figures("ttft", buckets(times, BOUNDS["time_to_first_token_seconds"]))
    for p in (0.5, 0.99):
        figure = figures[f"p{p * 100:g}_ttft"]
        assert figure.low is not None
        assert figure.high is not None
        assert figure.low <= np.quantile(times, p) <= figure.high
        assert figure.low <= figure.value <= figure.high
        assert figure.n == 3_000


@pytest.mark.parametrize("reading", [b"", text(dict.fromkeys(NAMES["vllm"], buckets([10] * 5)))])
def test_a_time_without_requests_is_no_workload(reading: bytes) -> None:
    with pytest.raises(MeasurementError):
        workload(reading, reading)


def test_the_cache_share_is_of_tokens() -> None:
    h = buckets([100] * 50)

    def reading(hits: float) -> bytes:
        more = [f"vllm:prefix_cache_queries_total {10 * hits}", f"vllm:prefix_cache_hits_total {3 * hits}"]
        return text(dict.fromkeys(NAMES["vllm"], h), more=more)

    assert workload(b"\n", reading(500)).cached == pytest.approx(0.3)
    assert "prefix: 30%" in config_text(workload(b"\n", reading(500)))


def test_hostile_texts_are_refused_or_say_nothing() -> None:
    with pytest.raises(ValueError, match="series"):
        read(b'vllm:request_prompt_tokens_sum{a="1"} 1\n' * 30_000)
    for odd in (b"vllm:request_prompt_tokens_sum NaN\n", b"vllm:request_prompt_tokens_sum -5\n", b"{}\n\xff\xfe\n"):
        assert read(odd) == {}
    model = 'model_name="x\\n# injected: yes"'
    found = workload(b"", text(dict.fromkeys(NAMES["vllm"], buckets([100] * 50)), model))
    assert "\n# injected" not in config_text(found)
    load_config(config_text(found), "sweep.yaml")


TIMES = {
    "vllm": ("vllm:time_to_first_token_seconds", "vllm:e2e_request_latency_seconds"),
    "sglang": ("sglang:time_to_first_token_seconds", "sglang:e2e_request_latency_seconds"),
    "tgi": ("tgi_request_input_length", "tgi_request_duration"),
    "trtllm": ("trtllm_time_to_first_token_seconds", "trtllm_e2e_request_latency_seconds"),
}
"""The counter of requests, and the histogram of their time in the server."""


@pytest.mark.parametrize("engine", TIMES)
def test_in_flight_is_the_rate_of_ended_requests_times_their_mean_time(engine: str) -> None:
    rng, came, spent, increases = random.Random(1), 0, 0.0, Increases()
    steps, each = [], []
    for _ in range(201):
        each += [rng.expovariate(1 / 0.25) for _ in range(rng.randrange(17))]  # 8 of 0.25 s in every 2 s
        series = dict.fromkeys(TIMES[engine], buckets(each, (0.1, 1.0)))
        steps.append(increases.add(read(text(series, more=("vllm:num_requests_running 40",)))))
    came, spent = (sum(values) for values in zip(*steps, strict=True))
    figure = in_flight(np.array([seconds for _, seconds in steps[1:]]), np.full(200, 2.0))
    assert figure is not None
    assert figure.value == pytest.approx(spent / 400)
    assert figure.value == pytest.approx(1.0, rel=0.15)
    assert figure.low is not None
    assert figure.high is not None
    assert 0.8 < figure.low < 1.0 < figure.high < 1.2
    assert came == pytest.approx(1_600, rel=0.1)


def test_in_flight_is_not_known_where_nothing_says_how_long_requests_take() -> None:
    assert in_flight(np.zeros(20), np.ones(20)) is None
    assert in_flight(np.empty(0), np.empty(0)) is None
    alone = in_flight(np.array([6.0]), np.array([2.0]))
    assert alone is not None
    assert (alone.value, alone.low, alone.high) == (3.0, None, None)


@pytest.mark.parametrize(
    ("address", "base"),
    [
        ("http://h:8000/metrics", "http://h:8000/v1"),
        ("http://h:8000/v1", "http://h:8000/v1"),
        ("http://h:8000", "http://h:8000/v1"),
        ("http://h/llm/prometheus/metrics", "http://h/llm/v1"),
    ],
)
def test_the_api_stands_beside_the_metrics(address: str, base: str) -> None:
    assert base_of(address) == base


@pytest.mark.parametrize(
    ("bounds", "isl"),
    [((100.0, 200.0), [900] * 50), ((0.0, 1_000.0), [*[0] * 5, *[1_000] * 45]), ((-5.0, 0.0), [900] * 50)],
    ids=["all above the last bucket", "a bound of 0", "no bound above 0"],
)
def test_buckets_that_hold_nothing_leave_the_mean_that_the_sum_says(bounds: tuple[float, ...], isl: list[int]) -> None:
    series = dict.fromkeys((*NAMES["vllm"], "vllm:time_to_first_token_seconds"), buckets(isl, bounds))
    found = workload(b"", text(series))
    assert (found.mean(0), found.mean(1)) == (pytest.approx(900, rel=0.01), pytest.approx(900, rel=0.01))
    load_config(config_text(found), "sweep.yaml")


def test_odd_bounds_and_absurd_sums_make_a_config_that_loads() -> None:
    odd = text(dict.fromkeys(NAMES["vllm"], buckets([100] * 50))).replace(b'le="2.0"', b'le="x"')
    assert workload(b"", odd).mean(0) == pytest.approx(100, rel=0.01)
    h = buckets([100] * 50, (10.0,))
    absurd = workload(b"", text(dict.fromkeys(NAMES["vllm"], Buckets(h.bounds, h.at_most, h.count, 1e14))))
    load_config(config_text(absurd), "sweep.yaml")
