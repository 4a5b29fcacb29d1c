"""The `workers` key in its forms: a number, auto, a Ray of our own, a cluster."""

import pytest

from frontier.config import Config, load_config
from tests.kit.complaints import assert_complaints, printed, refused
from tests.kit.golden import assert_golden_row

BASE = "endpoint: http://127.0.0.1:1/v1\nshapes: [32/16]\n"


def text_of(workers: str) -> str:
    return f"{BASE}workers: {workers}\n"


def load(workers: str) -> Config:
    return load_config(text_of(workers), "sweep.yaml")


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


WRONG = {
    "rays": 10,
    "http://head:10001": 10,
    "ray://head": 10,
    "{ray: ray://me:secret@head:1}": 16,
    "{ray: 7}": 16,
    "{ray: local, count: 0}": 30,
    "{ray: local, cuont: 2}": 23,
    "{count: 2}": 10,
}


@pytest.mark.parametrize(("text", "column"), WRONG.items(), ids=WRONG)
def test_what_is_no_place_for_client_processes_is_said(text: str, column: int) -> None:
    complaints = refused(text_of(text))
    assert_complaints(complaints, (3, column))
    assert "secret" not in printed(complaints)


def test_a_cluster_that_gets_the_keys_is_shown_and_a_ray_of_our_own_is_not() -> None:
    (sent,) = (use for use in load("ray://head:10001").effects if "ray://head:10001" in use.text)
    assert_golden_row("messages", sent.text)
    assert not [use for use in load("ray").effects if "Ray" in use.text]
