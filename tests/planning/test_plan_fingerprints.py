"""Fingerprints and seeds of trials are those of version 1.0.0, so that its runs go on.

`tests/data/fingerprints.json` holds the trials that version 1.0.0 measured on its embedded engine:
sweeps of a shape, a rate, a mix and sessions, and `verify --find`. (A plain `verify` is measured
anew each time.)
"""

import json
from pathlib import Path
from typing import Any

import pytest

from frontier.config import Config, load_config
from frontier.core.model.decisions import Decision, Verdict
from frontier.core.model.loads import Concurrency, Rate
from frontier.core.model.trials import Phase
from frontier.extras.verify.found_rates import rate_trial
from frontier.extras.verify.open_loop_check import Search
from frontier.planning.plan import make_trial
from frontier.search.next_trial import Ask
from frontier.search.rate_policy import RatePolicy

MADE: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "fingerprints.json").read_text())


def config_of(name: str) -> Config:
    return load_config(MADE[name]["config"], f"{name}.yaml")


@pytest.mark.parametrize("name", ["closed", "rate", "mix", "session"])
def test_a_trial_of_a_sweep_is_the_same(name: str) -> None:
    config = config_of(name)
    shapes = {shape.label: shape for shape in config.shapes}
    assert MADE[name]["trials"]
    for label, load, phase, repeat, requests, seconds, warmup, seed, fingerprint in MADE[name]["trials"]:
        at = Phase(phase), repeat, requests, seconds, warmup if name == "rate" else 0.0
        trial = make_trial(config, config.deployments[0], shapes[label], load, *at)
        assert (seed, fingerprint, load) == (trial.seed, trial.fingerprint, int(trial.load))


def test_a_trial_of_the_search_for_a_rate_is_the_same() -> None:
    config = config_of("closed")
    for cap, rate, phase, repeat, requests, warmup, seed, fingerprint in MADE["find"]:
        decision = Decision("default", config.shapes[0], config.limits, Verdict.MEETS, Concurrency(cap), None, {}, ())
        search = Search(decision, RatePolicy(0.0, 2 * rate, cap, 1.0))
        ask = Ask(Rate.of(rate), Phase(phase), requests, "", warmup=warmup)
        trial = rate_trial(config, search, ask, repeat)
        assert (seed, fingerprint, rate) == (trial.seed, trial.fingerprint, trial.load.per_second)
