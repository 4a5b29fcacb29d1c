"""What a running trial looks like so far, for the eyes of whoever waits: nothing here is stored or decided on.

Fed when a request's record is written, which is off the hot path, and read twice a second: counts in buckets of 3 %,
so that neither takes longer the longer the trial runs.
"""

import math
from dataclasses import dataclass, field

from frontier.model import Outcome, Record

_STEPS = 1 / math.log(1.03)


@dataclass(slots=True)
class SoFar:
    """Requests that ended since `start` (seconds on the trial's clock; None: not yet counting)."""

    start: float | None = None
    tokens: int = 0
    _ttft: dict[int, int] = field(default_factory=dict)
    _n: int = 0

    def add(self, record: Record) -> None:
        """Take one record into account. A failed request is an infinite time to first token, as everywhere."""
        if self.start is None or record.end < self.start or record.outcome in (Outcome.CANCELLED, Outcome.CLIENT):
            return
        self._n += 1
        if record.outcome is Outcome.OK and record.first is not None:
            self.tokens += record.completion_tokens or 0
            step = math.ceil(math.log(max(1e-6, record.first - record.sent)) * _STEPS)
            self._ttft[step] = self._ttft.get(step, 0) + 1

    def rate(self, now: float) -> float | None:
        """Output tokens per second of the requests that ended, whose first tokens may lie before the start; or None."""
        if self.start is None or now <= self.start or not self.tokens:
            return None
        return self.tokens / (now - self.start)

    def ttft(self, p: float) -> float | None:
        """The percentile `p` (0..1) of the time to first token in seconds, within 3 %; None before a first request."""
        if not self._n:
            return None
        wanted, seen = max(1, math.ceil(p * self._n)), 0
        for step in sorted(self._ttft):
            seen += self._ttft[step]
            if seen >= wanted:
                return math.exp(step / _STEPS)
        return math.inf
