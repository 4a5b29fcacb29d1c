"""The `workers` key in its forms: a number, auto, a Ray of our own, a cluster."""

import pytest

from frontier.config import Config, load_config
from frontier.errors import ConfigError

BASE = "endpoint: http://127.0.0.1:1/v1\nshapes: [32/16]\n"


def load(workers: str) -> Config:
    return load_config(f"{BASE}workers: {workers}\n", "sweep.yaml")


@pytest.mark.parametrize(
    ("text", "count", "address"),
    [
        ("ray", None, None),
        ("{ray: local}", None, None),
        ("{ray: local, count: 4}", 4, None),
        ("ray://head:10001", None, "ray://head:10001"),
        ("{ray: ray://head:10001, count: 8}", 8, "ray://head:10001"),
        ("{ray: 10.0.0.1:6379}", None, "10.0.0.1:6379"),
    ],
)
def test_the_forms_of_client_processes_on_ray(text: str, count: int | None, address: str | None) -> None:
    config = load(text)
    assert config.ray is not None
    assert (count, address) == (config.workers, config.ray.address)
    assert load("auto").identity() == config.identity()


@pytest.mark.parametrize(("text", "count"), [("auto", None), ("3", 3)])
def test_without_ray_there_is_none(text: str, count: int | None) -> None:
    assert (None, count) == (load(text).ray, load(text).workers)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rays", "workers is auto, a whole number, or on Ray; this is 'rays'"),
        ("http://head:10001", "does not start with ray://"),
        ("ray://head", "ray://head' is no HOST:PORT"),
        ("{ray: ray://me:secret@head:1}", "holds credentials"),
        ("{ray: 7}", "ray is the address of a Ray cluster; this is 7"),
        ("{ray: local, count: 0}", "count"),
        ("{ray: local, cuont: 2}", "did you mean 'count'"),
        ("{count: 2}", "ray"),
    ],
)
def test_what_is_no_place_for_client_processes_is_said(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load(text)
    assert "secret" not in str(caught.value)


def test_a_cluster_that_gets_the_keys_is_shown_and_a_ray_of_our_own_is_not() -> None:
    sent = "send  the load for http://127.0.0.1:1/v1, with its keys, from the Ray cluster ray://head:10001"
    assert sent in [use.text for use in load("ray://head:10001").effects]
    assert not [use for use in load("ray").effects if "Ray" in use.text]
