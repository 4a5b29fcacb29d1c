"""What makes the steps of a simulated engine longer than they cost: noise, drift and pauses."""

import math
from collections.abc import Iterator

import numpy as np

from frontier.engine.spec import EngineSpec


class Disturbance:
    """Factors and pauses of successive steps, all from the spec's seed."""

    def __init__(self, spec: EngineSpec) -> None:
        self._rng = np.random.default_rng(spec.seed)
        self._cv, self._kind = spec.noise, spec.noise_kind
        self._drift = spec.drift / 60.0 / spec.time_scale
        self._pause = 0.0 if spec.stalls is None else spec.stalls.duration * spec.time_scale
        self._every = math.inf if spec.stalls is None else spec.stalls.every * spec.time_scale
        self._stalls = np.random.default_rng([spec.seed, 1])
        self._next = self._stalls.exponential(self._every) if spec.stalls is not None else math.inf
        self._factors = self._draw()
        self.quiet = not self._cv and not self._drift and self._next == math.inf

    def _draw(self) -> Iterator[float]:
        """Factors with mean 1 and the spec's coefficient of variation, for ever."""
        cv = self._cv
        sigma = math.sqrt(math.log1p(cv * cv))
        while True:
            if self._kind == "gamma":
                yield from self._rng.gamma(1 / cv**2, cv**2, 1024).tolist()
            else:
                yield from self._rng.lognormal(-sigma * sigma / 2, sigma, 1024).tolist()

    def apply(self, start: float, duration: float) -> float:
        """The step's real duration: times noise and drift, plus the pauses that fall into it."""
        if self._cv:
            duration *= next(self._factors)
        if self._drift:
            duration *= max(0.0, 1.0 + self._drift * start)
        while self._next < start + duration:
            if self._next >= start:  # a pause while the engine was idle hurts nobody
                duration += self._pause
            self._next += self._stalls.exponential(self._every)
        return duration
