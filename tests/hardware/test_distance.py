import dataclasses
import math

import pytest

from frontier.core.model.loads import Rate
from frontier.core.model.points import Estimate, Point
from frontier.core.model.shapes import Lengths, Shape, TrafficClass
from frontier.extras.predict.drawn_roofline import curve
from frontier.hardware.distance import UNEVEN, bounds, decoding, distance
from frontier.hardware.gpus import hardware
from frontier.hardware.models import card
from frontier.hardware.roofline import GivenRoofline, ModelRoofline, common_of
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import closed_loop_arrays
from tests.kit.golden import assert_golden_row

STATED = {"bandwidth": 3.35e12, "weights": 15.01e9, "kv_per_token": 131_072}
H100 = ModelRoofline.of(card("llama-3.1-8b"), hardware("h100"))
CHAT = Shape.of(1024, 1024)


def measured(c: int, rate: float, tpot: float, ttft: float = 0.05, shape: Shape = CHAT) -> Point:
    def known(value: float) -> Estimate:
        return Estimate(value, 0.9 * value, 1.1 * value, 500)

    names = {"output_throughput": rate, "p50_tpot": tpot, "p50_ttft": ttft, "request_throughput": rate / shape.osl.mean}
    return Point("default", shape, c, {name: known(value) for name, value in names.items()}, 500)


def test_stated_figures_give_the_published_step_of_an_8b_model() -> None:
    # Llama-3.1-8B in BF16 on an H100, 1024/1024: 27.89 GB a step at 64 requests, so 8.327 ms.
    assert GivenRoofline(**STATED).limits(CHAT, 64).throughput == pytest.approx(64 / 8.327e-3, rel=0.01)
    assert GivenRoofline(**STATED).token_seconds(CHAT, 64) == pytest.approx(H100.token_seconds(CHAT, 64), rel=0.01)


def test_memory_bounds_how_many_requests_run() -> None:
    shape = Shape.of(8192, 1024)
    roomy, tight = GivenRoofline(**STATED).limits(shape, 512), GivenRoofline(**STATED, memory=80e9).limits(shape, 512)
    assert tight.throughput < roomy.throughput
    assert tight.throughput == GivenRoofline(**STATED, memory=80e9).limits(shape, 1024).throughput
    assert ("decode bandwidth", "KV capacity") == (roomy.binds, tight.binds)


def test_twice_the_gpus_are_twice_the_bandwidth() -> None:
    one, two = (GivenRoofline(**STATED, gpus=g).limits(Shape.of(128, 128), 8).throughput for g in (1, 2))
    assert two == pytest.approx(2 * one)


@pytest.mark.parametrize("load", [Rate.of(4.0), 64])
def test_at_a_rate_and_where_users_think_as_many_are_in_flight_as_were_measured(load: int) -> None:
    closed = measured(4, 64.0, 0.009)
    other = dataclasses.replace(closed, load=load, in_flight=4.0)
    assert decoding(other) == decoding(closed)
    assert bounds(H100, other) == bounds(H100, closed)
    assert distance(H100, other) == distance(H100, closed)
    rare = bounds(H100, dataclasses.replace(other, in_flight=0.2))
    assert 0 < rare["tpot"] < bounds(H100, closed)["tpot"]


def test_the_share_of_light_keeps_the_doubt_of_the_throughput() -> None:
    limits = H100.limits(CHAT, 64)
    found = distance(H100, measured(64, limits.throughput / 2, 0.0166))
    assert found is not None
    assert (0.5, 0.45, 0.55) == pytest.approx((found.share.value, found.share.low, found.share.high))
    assert (limits.throughput, limits.binds) == (found.ceiling, found.binds)


def test_mbu_and_mfu_are_what_a_hand_computes() -> None:
    # 64 decoding: 27.89 GB a step; in 16.7 ms that is half of 3.35 TB/s. A TTFT of zero: all of
    # them decode.
    found = distance(H100, measured(64, 64 / 0.01665, 0.01665, ttft=0.0))
    assert found is not None
    assert found.mbu is not None
    assert found.mbu.value == pytest.approx(27.89e9 / 0.01665 / 3.35e12, rel=1e-3)
    assert found.mbu.low < found.mbu.value < found.mbu.high
    # 14.57 TFLOP a prompt; 2 x (7.5 B + head) and attention over 1536 tokens an output token.
    rate, token = 64 / 0.01665, 2 * (6.98e9 + 0.525e9) + 4 * 32 * 128 * 32 * 1536
    assert found.mfu is not None
    assert found.mfu.value == pytest.approx((rate / 1024 * 14.57e12 + rate * token) / 989e12, rel=2e-3)
    stated = distance(GivenRoofline(**STATED), measured(64, 1000.0, 0.02))
    assert stated is not None
    assert stated.mfu is None


def test_where_nothing_is_known_nothing_is_said() -> None:
    empty = Point("default", CHAT, 8, {}, 0)
    assert distance(H100, empty) is None
    assert decoding(empty) is None
    assert distance(H100, measured(8, 100.0, 0.02, shape=Shape.of(10**6, 10))) is None, "nothing of that length fits"
    assert {} == bounds(H100, measured(8, 100.0, 0.02, shape=Shape.of(10**6, 10)))
    assert curve(H100, Shape.of(10**6, 10), "e2e", 8) == ()


def test_bounds_hold_for_prompts_of_one_length_that_nobody_shares() -> None:
    assert {"output_throughput", "tpot", "ttft"} == set(bounds(H100, measured(64, 3000.0, 0.02)))
    shared = Shape(CHAT.isl, CHAT.osl, prefix=0.5)
    assert "ttft" not in bounds(H100, measured(64, 3000.0, 0.02, shape=shared))
    assert H100.limits(shared, 64).ttft < H100.limits(CHAT, 64).ttft


RAG = Shape(Lengths.fixed(8192), Lengths.fixed(128), prefix=0.9)


@pytest.mark.parametrize(("isl", "osl", "c"), [(512, 128, 32), (2048, 8, 64), (128, 256, 4)])
@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-120b"])
def test_an_engine_without_any_overhead_stays_below_its_roofline(name: str, isl: int, osl: int, c: int) -> None:
    roofline, point = without_overhead(name, card(name).precision, Shape.of(isl, osl), c)
    found, least = distance(roofline, point), bounds(roofline, point)
    tpot, ttft = (point.metrics[metric].value for metric in ("p50_tpot", "p50_ttft"))
    assert found is not None
    assert 0.25 < found.share.value <= 1.02
    assert tpot >= least["tpot"]
    if found.binds.startswith("decode"):
        assert tpot < 4 * least["tpot"] / UNEVEN, "a bound far below everything would be worth nothing"
    assert ttft >= least["ttft"]


def test_where_the_memory_is_full_a_common_prefix_leaves_room_for_more() -> None:
    roofline, point = without_overhead("llama-3.1-70b", "fp8", RAG, 128)
    found = distance(roofline, point)
    own = distance(roofline, dataclasses.replace(point, shape=dataclasses.replace(RAG, prefix=0.0)))
    assert found is not None
    assert own is not None
    assert found.share.value <= 1.02 < own.share.value, "prompts of their own could not be served as fast"
    assert point.metrics["p50_tpot"].value >= bounds(roofline, point)["tpot"]


def without_overhead(name: str, precision: str, shape: Shape, c: int) -> tuple[ModelRoofline, Point]:
    """The roofline of two H100, and what the simulated engine measures that reaches its costs in
    full.
    """
    spec = EngineSpec.from_mapping(
        {
            "model": name,
            "hardware": "h100",
            "tp": 2,
            "precision": precision,
            "efficiency": 1.0,
            "overhead": 0,
            "ingest": 0,
            "prefix_cache": True,
        }
    )
    roofline = ModelRoofline.of(card(name), hardware("h100"), 2, precision, max_num_seqs=spec.max_num_seqs)
    run = closed_loop_arrays(spec, shape, c, requests=10 * c)
    tpot, ttft = (sorted(values)[len(values) // 2] for values in (run.tpot, run.ttft))
    return roofline, measured(c, run.output_throughput, tpot, ttft, shape)


@pytest.mark.parametrize("roofline", [H100, GivenRoofline(**STATED, memory=80e9)], ids=["model", "figures"])
def test_a_common_prefix_is_kept_once_and_read_once(roofline: ModelRoofline | GivenRoofline) -> None:
    own = dataclasses.replace(RAG, prefix=0.0)
    plain, shared = roofline.limits(own, 1024), roofline.limits(RAG, 1024)
    assert shared.running > 4 * plain.running, "ten times as many prompts fit, as only their ends differ"
    assert roofline.token_seconds(RAG, 1) == roofline.token_seconds(own, 1), "one request reads all of it"
    assert roofline.token_seconds(RAG, 64) < roofline.token_seconds(own, 64) / 2
    assert roofline.read_seconds(RAG, 64) == roofline.read_seconds(own, 64), "most engines read it for each request"
    half = Shape.of_mix([TrafficClass("rag", 0.5, RAG), TrafficClass("chat", 0.5, own)])
    assert common_of(half) == pytest.approx(common_of(RAG) / 2)
    assert plain.running < roofline.limits(half, 1024).running < shared.running


def test_the_curve_of_light_rises_and_ends_at_the_ceiling() -> None:
    for quantity in ("ttft", "tpot", "itl", "e2e", "visible", "second"):
        line = curve(H100, CHAT, quantity, 100)
        assert sorted(line) == list(line)
        assert line[-1][1] == H100.limits(CHAT, 100).throughput
        assert math.isfinite(max(x for x, _ in line))


def test_speculation_raises_the_ceiling_to_that_of_drafts_that_are_all_accepted() -> None:
    drafted = ModelRoofline.of(card("llama-3.1-8b"), hardware("h100"), drafts=4)
    for shape, c in ((CHAT, 1), (CHAT, 64), (Shape.of(128, 2048), 256)):
        plain, high = H100.limits(shape, c), drafted.limits(shape, c)
        assert plain.tpot / 5 <= high.tpot < plain.tpot
        assert plain.throughput < high.throughput <= 5 * plain.throughput
        assert plain.ttft == high.ttft
    assert drafted.limits(CHAT, 1).tpot == pytest.approx(plain_token() / 5, rel=1e-3), "memory binds: five for one"
    stated = GivenRoofline(**STATED, drafts=4)
    assert stated.token_seconds(CHAT, 8) == pytest.approx(GivenRoofline(**STATED).token_seconds(CHAT, 8) / 5)
    # How many tokens a step gave is not known, so neither is how often the weights were read.
    for roofline in (drafted, stated):
        found = distance(roofline, measured(8, 500.0, 0.01))
        assert found is not None
        assert found.mbu is None
    assert "4 drafts" in drafted.assumption
    assert_golden_row("answers", drafted.assumption)


def plain_token() -> float:
    return H100.token_seconds(CHAT, 1)


def test_arithmetic_that_binds_is_not_amortized_by_drafts() -> None:
    roofline = ModelRoofline.of(card("llama-3.1-8b"), hardware("l40s"))
    drafted = ModelRoofline.of(card("llama-3.1-8b"), hardware("l40s"), drafts=7)
    assert "compute" == drafted.decode(512, 512).binds
    assert drafted.decode(512, 512).seconds / 8 == pytest.approx(roofline.decode(512, 512).flops / roofline.flops_rate)
