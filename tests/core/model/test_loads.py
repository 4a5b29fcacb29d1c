"""Loads keep their kind from the config to the answer."""

from dataclasses import replace

import numpy as np

from frontier.config import load_config
from frontier.core.model.loads import CappedRate, Concurrency, Load, as_load, load_of
from frontier.core.model.trials import Phase
from frontier.core.window.window import narrowed
from frontier.planning.plan import make_trial
from tests.core.window.test_window import window_of

TEXT = "endpoint: simulator\nshapes: 64/16\nconcurrency: [4, 8]\nrefine: 0\n"


class Growing(Concurrency):
    """A kind that no shape has."""

    __slots__ = ()

    @property
    def stored(self) -> int:
        return -int(self)


def test_a_trial_and_a_class_of_its_requests_keep_the_kind_of_their_load() -> None:
    config = load_config(TEXT, "s.yaml")
    plain, growing = (
        make_trial(config, config.deployments[0], config.shapes[0], load, Phase.GRID, 1, 100)
        for load in (Concurrency(8), Growing(8))
    )
    assert (type(plain.load), type(growing.load)) == (Concurrency, Growing)
    assert plain.seed != growing.seed
    assert plain.fingerprint != growing.fingerprint
    window = replace(window_of(1.0, 1), load=Growing(8))
    halved = narrowed(replace(window, shape=window.shape, turn=np.arange(window.n) % 2), "first")
    assert type(halved.load) is Growing


def test_a_plain_number_is_a_load_of_the_shape() -> None:
    config = load_config(TEXT, "s.yaml")
    at = Phase.GRID, 1, 100
    assert make_trial(config, config.deployments[0], config.shapes[0], 8, *at).load.label == "c=8"
    assert type(as_load(8)) is Concurrency


def test_the_facts_of_a_load_name_it() -> None:
    loads: list[Load] = [
        Concurrency(8),
        *load_config(TEXT.replace("concurrency: [4, 8]", "rate: [2.5]"), "r.yaml").loads,
    ]
    assert [load_of(load.facts) for load in loads] == loads
    assert load_of({"concurrency": 8}) == 8


def test_a_check_sends_its_exact_rate() -> None:
    load = CappedRate.at(135.0625, 49)
    assert (load.per_second, load.streams, load.is_open, load.label) == (135.0625, 49, True, "c=49")
