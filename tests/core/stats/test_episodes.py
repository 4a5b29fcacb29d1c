"""Episodes: a span at a lower speed is seen in the windows of any load; other things are not."""

import dataclasses
import math

import numpy as np
import pytest

from benchmarks.calibration.servers import Episodes, Process, draw_law, make_trial
from frontier.core.claim.changes import unchanged
from frontier.core.estimates import estimate
from frontier.core.model.decisions import Limit
from frontier.core.model.trials import Phase, Trial
from frontier.core.stats import episodes
from frontier.core.window import window
from frontier.core.window.window import WindowData

LIMIT = Limit("p95_tpot", 1.0)


def server(seed: int, family: str = "smooth", every: float | None = 60.0) -> Process:
    law = draw_law(np.random.default_rng([seed, 7]), family)
    slow = None if every is None else Episodes(every, 5.0, 20.0)
    return Process(dataclasses.replace(law, episodes=slow), family, (LIMIT,), seed)


def history(of: Process, loads: tuple[int, ...] = (1, 4, 16, 48), windows: int = 4) -> list[tuple[Trial, WindowData]]:
    clock, trials = 0.0, []
    for c in loads:
        for repeat in range(1, windows + 1):
            trial = make_trial(of, c, Phase.PROVE, repeat, max(100, 8 * c))
            sample = of.trial(trial, 100_000 + len(trials), clock)
            trials.append((trial, sample))
            clock += float(sample.ends[-1] - sample.starts[0]) + 12
    return trials


def joined(trials: list[tuple[Trial, WindowData]]) -> list[WindowData]:
    loads = dict.fromkeys(trial.load for trial, _ in trials)
    return [window.join([sample for trial, sample in trials if trial.load == c]) for c in loads]


def test_half_the_speed_now_and_then_is_seen_with_its_share_and_its_slowdown() -> None:
    found = [episodes.seen(joined(history(server(seed)))) for seed in range(6)]
    seen = [each for each in found if each is not None]
    assert len(seen) >= 5
    assert float(np.median([dict(each.shifts)["tpot"] for each in seen])) == pytest.approx(math.log(2), abs=0.2)
    assert all(each.share > 6.25 / 66.25 for each in seen)


@pytest.mark.parametrize("family", ["smooth", "drifting", "stalling", "fixed_lengths", "no_noise", "rare_stalls"])
def test_noise_drift_stalls_and_places_of_streams_are_no_episodes(family: str) -> None:
    found = [episodes.seen(joined(history(server(seed, family, None)))) for seed in range(4)]
    assert sum(each is not None for each in found) <= 1


def test_episodes_at_one_load_widen_the_bounds_of_all_others() -> None:
    trials = history(server(1))
    quiet = [ts for ts in trials if not episodes.slow_blocks(ts[1])[1].any()]
    slow = [ts for ts in trials if episodes.slow_blocks(ts[1])[1].any()]
    assert slow
    trial, sample = quiet[-1]
    with_others = next(s for t, s in unchanged([*slow, (trial, sample)], (LIMIT,)) if t is trial)
    alone, among = (estimate.estimate(s, "p95_tpot") for s in (sample, with_others))
    assert alone is not None
    assert among is not None
    assert among.value == alone.value
    assert among.upper > 1.3 * alone.value
    assert among.upper < 3 * alone.value


def test_a_window_in_an_episode_proves_no_less_than_a_quiet_one() -> None:
    """A server that is slow for all loads alike is measured longer, not lower."""
    trials = history(server(2))
    for_one = [s for t, s in unchanged(trials, (LIMIT,)) if t.load == 16]
    found = estimate.estimate(window.join(for_one), "p95_tpot")
    assert found is not None
    assert found.upper < 3 * found.value
