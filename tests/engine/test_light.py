import pytest

from frontier.engine.light import decode_ceiling
from frontier.model import Shape

H100 = {"bandwidth": 3.35e12, "weights": 15.01e9, "kv_per_token": 131_072}


def test_the_ceiling_is_the_published_step_of_an_8b_model() -> None:
    # Llama-3.1-8B in BF16 on an H100, 1024/1024: 27.89 GB a step at 64 requests, so 8.327 ms.
    assert decode_ceiling(Shape.of(1024, 1024), 64, **H100) == pytest.approx(64 / 8.327e-3, rel=0.01)


def test_memory_bounds_how_many_requests_run() -> None:
    roomy = decode_ceiling(Shape.of(8192, 1024), 512, **H100)
    tight = decode_ceiling(Shape.of(8192, 1024), 512, memory=80e9, **H100)
    assert tight < roomy
    assert tight == decode_ceiling(Shape.of(8192, 1024), 1024, memory=80e9, **H100)


def test_twice_the_gpus_are_twice_the_bandwidth() -> None:
    one, two = (decode_ceiling(Shape.of(128, 128), 8, gpus=g, **H100) for g in (1, 2))
    assert two == pytest.approx(2 * one)
