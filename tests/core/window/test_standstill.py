"""Streams that stand still while metrics are read: told, with the right numbers, where they do, and
not where they do not."""

import numpy as np
import pytest

from frontier.client.ask.metrics_notes import notes
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Measurement, MetricSeries, Outcome, Phase, Record, SourceReadings, Trial, Window
from frontier.core.window.from_records import window_data
from frontier.core.window.standstill import DURING, ELSE, LASTED, SHARE
from frontier.core.window.window import WindowData

TPOT, TOKENS, STREAMS, UNTIL = 0.012, 40, 3, 30.0


def records(stalls: np.ndarray, lasted: float, noise: float, seed: int = 1) -> list[Record]:
    """Streams whose tokens are due at a pace, and come at the end of a standstill where they were
    due in one.
    """
    rng = np.random.default_rng(seed)

    def comes(due: np.ndarray) -> np.ndarray:
        for stall in stalls:
            due = np.where((due > stall) & (due < stall + lasted), stall + lasted, due)
        return due

    made: list[Record] = []
    for stream in range(STREAMS):
        sent = 0.02 * stream
        while sent < UNTIL:
            paces = TPOT * rng.gamma(1 / noise**2, noise**2, TOKENS - 1) if noise else np.full(TOKENS - 1, TPOT)
            at = np.round(comes(sent + 0.03 + np.concatenate([[0.0], paces.cumsum()])), 6)
            gaps = tuple(round(gap * 1e6) for gap in np.diff(at))
            first, last = float(at[0]), float(at[-1])
            made.append(
                Record(
                    len(made), stream, sent, Outcome.OK, last, 64, TOKENS, first=first, last=last, prompt_tokens=64,
                    completion_tokens=TOKENS, events=TOKENS, gaps=gaps,
                )
            )  # fmt: skip
            sent = last + 0.001
    return made


def window(
    lasted: float, *, still: bool, every: float = 2.4, noise: float = 0.3, seed: int = 1, kept: bool = True
) -> WindowData:
    begun = np.arange(2.0, 27.0, every)
    series = (MetricSeries(LASTED, {}, " ".join(f"{lasted}" for _ in begun)),) if kept else ()
    readings = SourceReadings("metrics", " ".join(f"{at + lasted / 2:.3f}" for at in begun), series)
    trial = Trial("d", Shape.of(64, TOKENS), STREAMS, 1, Phase.GRID, 100, 1, 0.0, 0.0, 60.0, "f")
    measured = Measurement(trial, 1.7e9, Window(2.0, 27.0), "requests", readings=(readings,))
    return window_data(measured, records(begun if still else begun[:0], lasted, noise, seed))


@pytest.mark.parametrize("lasted", [0.03, 0.12, 0.5])
def test_a_standstill_is_told_with_both_gaps_and_the_share_of_time(lasted: float) -> None:
    sample = window(lasted, still=True, every=max(1.0, 20 * lasted) if lasted < 0.3 else 4.0)
    (facts,) = sample.server
    assert lasted <= facts[DURING] <= lasted + 3 * TPOT
    assert pytest.approx(TPOT * (1 + 0.3**2), rel=0.35) == facts[ELSE]  # a gap around a moment is a long one
    begun = np.arange(2.0, 27.0, max(1.0, 20 * lasted) if lasted < 0.3 else 4.0)
    assert pytest.approx(lasted * len(begun) / (begun[-1] - begun[0])) == facts[SHARE]
    (note,) = notes(sample.server)
    assert "metrics: none" in note


@pytest.mark.parametrize("lasted", [0.03, 0.12])
def test_readings_that_hold_up_nothing_are_not_complained_of(lasted: float) -> None:
    for seed in range(20):
        for noise in (0.0, 0.3, 1.0):
            assert () == notes(window(lasted, still=False, every=1.0, noise=noise, seed=seed).server)


def test_nothing_is_told_of_short_readings_few_or_runs_that_did_not_keep_how_long_they_took() -> None:
    assert () == notes(window(0.004, still=True).server)
    assert () == notes(window(0.12, still=True, every=10.0).server)
    assert () == notes(window(0.12, still=True, kept=False).server)
