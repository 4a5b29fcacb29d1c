"""Pacing: how the streams of a closed loop are kept out of step (lockstep), over HTTP and in
virtual time.

Requests of equal length that end in one step of the engine are sent again together and stay
together for good. So the streams begin at random points of a request's life, as if the load had
been on for long: the first request of each, which is never counted, asks for a random share of the
output length (docs/decisions/0010-lockstep.md). What joins requests later, a long step or a pause
of the machine, is undone slowly: a send that follows another closely waits for a moment, never
longer than one decode step.
"""

import math
import random

_GAP = 0.5
"""Of the mean gap between sends: less than all of it, so that sends keep the irregular distances
they came with."""
_MOST = 0.015
"""Of a request's E2E: with short answers a decode step is a large share of it, and N must be in
flight within 2 %."""


def first_length(osl: int, seed: int, stream: int) -> int:
    """Output tokens of a stream's first request, uniform in 1..`osl`."""
    return max(1, math.ceil(osl * random.Random(f"{seed}/first/{stream}").random()))


class Pacing:
    """When the streams of one trial may send again."""

    def __init__(self, streams: int) -> None:
        self._streams = streams
        self._last = -math.inf

    def delay(self, now: float, tpot: float | None, e2e: float | None) -> float:
        """Seconds that a stream which is free `now` waits before it sends.

        At most `tpot`, the mean time per output token so far, which is one decode step; `e2e` is
        the mean of whole requests. While they are not known, for answers of one token and for a
        single stream there is no delay.
        """
        if tpot is None or e2e is None or self._streams == 1:
            return 0.0
        wait = min(max(0.0, self._last + _GAP * e2e / self._streams - now), tpot, _MOST * e2e)
        self._last = max(self._last, now + wait)
        return wait
