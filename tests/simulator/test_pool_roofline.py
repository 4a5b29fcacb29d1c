"""The bounds of disaggregated serving: nothing simulated passes them, and at each pool's own limit it comes close."""

import dataclasses

import pytest

from frontier.hardware.roofline import ModelRoofline, bounds, distance
from frontier.model import Estimate, Point, Shape
from frontier.simulator.pools import PoolsRoofline, light_of
from frontier.simulator.spec import Disaggregation, EngineSpec
from frontier.simulator.virtual import closed_loop_arrays

PERFECT = EngineSpec.from_mapping(
    {"model": "llama-3.1-8b", "hardware": "h100", "efficiency": 1.0, "overhead": 0, "disaggregation": {}}
)
CHAT = Shape.of(512, 64)


def pools(**given: float) -> EngineSpec:
    return dataclasses.replace(PERFECT, disaggregation=Disaggregation(**given))


@pytest.mark.parametrize("c", [1, 3, 32])
@pytest.mark.parametrize(
    "spec", [pools(), pools(prefill=2, decode=3), pools(link=1e9), pools(decode=2, latency=0.1)],
    ids=["one and one", "two and three", "slow link", "late"],
)  # fmt: skip
def test_a_perfect_engine_is_no_faster_than_light(spec: EngineSpec, c: int) -> None:
    run, limits = closed_loop_arrays(spec, CHAT, c, requests=4 * c), light_of(spec).limits(CHAT, c)
    assert run.output_throughput <= limits.throughput * 1.005, "a window's edge cuts through some requests"
    assert run.ttft.min() >= limits.ttft * (1 - 1e-9)
    assert run.tpot.min() >= light_of(spec).token_seconds(CHAT, 1) * (1 - 0.04), (
        "the context of the first tokens is shorter"
    )


@pytest.mark.parametrize(
    ("spec", "shape", "c", "binds", "reached"),
    [
        (pools(decode=4), Shape.of(2048, 16), 32, "prefill compute", 0.9),
        (pools(link=2e9), Shape.of(2048, 16), 32, "KV transfer", 0.9),
        (pools(prefill=4), Shape.of(64, 256), 16, "decode bandwidth", 0.9),
        (dataclasses.replace(pools(prefill=4), max_num_seqs=4), Shape.of(64, 256), 16, "batch cap", 0.9),
        (pools(prefill=4), Shape.of(6000, 4000), 512, "KV capacity", None),
    ],
)  # fmt: skip
def test_what_binds_is_named_and_nearly_reached(
    spec: EngineSpec, shape: Shape, c: int, binds: str, reached: float | None
) -> None:
    limits = light_of(spec).limits(shape, c)
    assert binds == limits.binds
    if reached is not None:
        run = closed_loop_arrays(spec, shape, c, requests=4 * c)
        assert run.output_throughput >= reached * limits.throughput


def test_twice_the_pools_and_the_load_are_twice_the_ceiling() -> None:
    one, two = light_of(pools()), light_of(pools(prefill=2, decode=2))
    for shape, c in ((CHAT, 16), (Shape.of(4096, 8), 64)):
        assert two.limits(shape, 2 * c).throughput == pytest.approx(2 * one.limits(shape, c).throughput)


def test_without_a_pool_it_is_the_plain_bound_and_with_free_transfer_it_needs_no_less() -> None:
    assert isinstance(light_of(dataclasses.replace(PERFECT, disaggregation=None)), ModelRoofline)
    fast, slow = (light_of(pools(link=link)).limits(CHAT, 4) for link in (1e15, 1e9))
    assert fast.throughput > slow.throughput
    assert slow.ttft - fast.ttft == pytest.approx(512 * 131_072 / 1e9, rel=1e-3)


def test_a_point_is_set_beside_its_pools() -> None:
    roofline = light_of(pools(prefill=1, decode=3))
    assert isinstance(roofline, PoolsRoofline)
    alone = roofline.roofline

    def of(value: float) -> Estimate:
        return Estimate(value, value, value, 500)

    names = {"output_throughput": 600.0, "request_throughput": 600 / 64, "p50_ttft": 0.05, "p50_tpot": 0.01}
    point = Point("default", CHAT, 8, {name: of(value) for name, value in names.items()}, 500)
    here, there = distance(roofline, point), distance(alone, point)
    assert here is not None
    assert there is not None
    mfu, mbu = ([part.value for part in pair if part] for pair in ((here.mfu, there.mfu), (here.mbu, there.mbu)))
    assert mfu[0] == pytest.approx(mfu[1] / 4), "of all four GPUs"
    assert mbu[0] < mbu[1], "a third of the requests is read by each decode instance"
    assert {"output_throughput", "tpot", "ttft"} == set(bounds(roofline, point))
    assert "1 prefill and 3 decode instances, each Llama-3.1-8B in bf16 on 1 x h100" == roofline.assumption
    with pytest.raises(ValueError, match="not one request"):
        roofline.limits(Shape.of(10_000_000, 1000), 1)
