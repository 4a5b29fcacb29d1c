"""Renewal of connections within a trial: the number of each, and how many requests go out on it.

Behind a balancer a connection is a replica, so that a window on few connections may have met few
replicas. A window's requests are therefore spread over as many connections as its claim needs. The
next connection is opened while the last request of the one before is under way, so that no request
waits for a handshake; where it is not open in time, the old connection goes on.
"""

import itertools
import math
from collections.abc import Iterator

_TRIES = 8
_GOLDEN = (math.sqrt(5) - 1) / 2


class Renewal:
    """The connections of a trial's requests. `numbers` gives each its number, `requests_each` is
    how many requests each carries (None: it is kept as long as it lives). Of a closed loop each of
    the `streams` has one of its own, which its session holds while its user thinks.

    `ahead` counts the connections that were opened ahead, `renewed` those that were replaced by
    one, and `failed` the new ones that could not be opened, or that the other side closed before
    they were used.
    """

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        self.numbers = itertools.count() if numbers is None else numbers
        self.requests_each: float | None = None
        self.streams = 0
        self.ahead = self.renewed = self.failed = 0
        self._owed = 0.0
        self._begun = 0

    @property
    def possible(self) -> bool:
        """Whether to go on opening connections ahead: not where hardly any can be used."""
        return self.failed <= self.renewed + _TRIES

    def allowance(self) -> int:
        """How many requests the next connection carries, `requests_each` on average."""
        self._owed += self.requests_each or 1.0
        whole = max(1, int(self._owed))
        self._owed -= whole
        return whole

    def rest(self) -> int:
        """How many requests one of the connections that were open before carries on: evenly from
        none to all of an allowance, so that not all of them are replaced at once.
        """
        self._begun += 1
        return max(1, math.ceil((self.requests_each or 1.0) * (self._begun * _GOLDEN % 1)))


def requests_each(connections: int, streams: int, requests: float, *, open_loop: bool) -> float | None:
    """How many requests each connection of a window carries, so that `requests` are spread over so
    many connections; None where the streams of a closed loop, each on one of its own, are as many.
    """
    if not connections or (connections <= streams and not open_loop):
        return None
    return max(1.0, requests / connections)
