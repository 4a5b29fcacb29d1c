"""How long trials will take, for whoever waits: nothing is chosen by it, and nothing claimed.

A setting that was measured takes as long again. Others of its shape follow from the engine model fitted to the shape's
points; where there are fewer than three, from the described hardware at its assumed efficiency, by what was found of it
so far. Where nothing is described, neighbours tell. How well is measured by `benchmarks/time_left.py`.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from frontier.analyze.sample import Sample
from frontier.budget import Pace
from frontier.config import Config
from frontier.engine.expect import Assumption, guess_e2e
from frontier.engine.light import Carded
from frontier.engine.predict import Calibrated, Known, calibrate
from frontier.errors import MisaskedError
from frontier.forecast import LEAST, assumption
from frontier.model import Trial
from frontier.plan import estimate
from frontier.results import History, Setting, by_concurrency


class Timing:
    """Estimates for the trials of one config."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._assumed: dict[str, Assumption] = {}
        self._light = {d.name: d.light() for d in config.deployments}
        self._fits: dict[tuple[Setting, int], Calibrated | None] = {}
        for deployment in config.deployments:
            try:
                self._assumed[deployment.name] = assumption(deployment)[0]
            except MisaskedError:  # too little is described: then it is not known before the first trials
                continue

    def left(
        self, trials: Sequence[Trial], pace: Pace, histories: Mapping[Setting, History] | None = None
    ) -> float | None:
        """Seconds these trials will take in all, after what `pace` and `histories` saw; None when that is not known of
        each."""
        found = [self.seconds(trial, pace, histories or {}) for trial in trials]
        return None if None in found else math.fsum(s for s in found if s is not None)

    def seconds(self, trial: Trial, pace: Pace, histories: Mapping[Setting, History]) -> float | None:
        """Seconds one trial will take; None when nothing says so."""
        if same := pace.same(trial):
            return sum(took.seconds for took in same) / len(same)
        setting = trial.deployment, trial.shape
        fit = self._fit(setting, histories.get(setting, []))
        if fit is not None:
            said = fit.at(trial.concurrency)
            return self._cost(trial, said.ttft.value + (trial.shape.osl.mean - 1) * said.tpot.value)
        guess = self._guessed(trial)
        return pace.seconds(trial) if guess is None else guess * self._ratio(trial, pace)

    def _cost(self, trial: Trial, e2e: float) -> float | None:
        return estimate((trial,), self._config, lambda _: e2e)[0].expected

    def _guessed(self, trial: Trial) -> float | None:
        """By the described hardware; None where none is, or a request does not fit it."""
        assumed = self._assumed.get(trial.deployment)
        if assumed is None:
            return None
        e2e = guess_e2e(assumed, trial.shape, trial.concurrency)
        return None if e2e is None else self._cost(trial, e2e)

    def _ratio(self, trial: Trial, pace: Pace) -> float:
        """What trials took over what was guessed of them: those of the shape, else of the deployment."""
        mine = [(other, took.seconds) for other, took in pace.seen if other.deployment == trial.deployment]
        alike = [(other, took) for other, took in mine if other.shape == trial.shape] or mine
        ratios = [math.log(took / guess) for other, took in alike if took > 0 and (guess := self._guessed(other))]
        return math.exp(sum(ratios) / len(ratios)) if ratios else 1.0

    def _fit(self, setting: Setting, history: History) -> Calibrated | None:
        """The engine model fitted to what was measured of a setting's shape so far."""
        key = setting, len(history)
        if key not in self._fits:
            self._fits[key] = self._fitted(setting, history)
        return self._fits[key]

    def _fitted(self, setting: Setting, history: History) -> Calibrated | None:
        known = [point for c, samples in sorted(by_concurrency(history).items()) if (point := _mean(c, samples))]
        if len(known) < LEAST:
            return None
        light, shape = self._light.get(setting[0]), setting[1]
        return calibrate(
            known, shape.isl.mean, shape.osl.mean, light=light.roofline if isinstance(light, Carded) else None
        )


def _mean(concurrency: int, samples: Sequence[Sample]) -> Known | None:
    """The mean latencies of the requests that succeeded; None where they say nothing."""
    ttft, tpot = (np.concatenate([getattr(s, name)[s.ok] for s in samples]) for name in ("ttft", "tpot"))
    tpot = tpot[~np.isnan(tpot)]
    if not len(ttft) or not len(tpot) or not (ttft.mean() > 0 and tpot.mean() > 0):
        return None
    return Known(concurrency, float(ttft.mean()), float(tpot.mean()))
