"""Connections as clusters: the requests of one TCP connection share its luck.

Behind a balancer a connection leads to one replica. Where records name no connection (those of
earlier versions, imports), nothing is known of it, and claims are made as if each request had a
connection of its own.
"""

import math

import numpy as np

from frontier.core.model.decisions import Limit
from frontier.core.model.metrics import claim_floor
from frontier.core.model.units import format_share
from frontier.core.stats import intervals
from frontier.core.window.held import held_alone
from frontier.core.window.window import Bools, Floats, Ints, WindowData

CONFIDENCE = 0.95
"""Confidence of the bounds that count connections as clusters."""


@held_alone
def clusters(sample: WindowData) -> Ints | None:
    """A number for each request, the same for those of one connection; a request without one is
    alone. None where no connection is known.
    """
    if not sample.n or len(sample.connection) != sample.n:
        return None
    most = int(sample.connection.max()) + 1
    own = np.where(sample.connection < 0, most + np.arange(sample.n), sample.connection)
    _, numbers = np.unique(sample.window * (most + sample.n) + own, return_inverse=True)
    return numbers.reshape(-1).astype(np.int64)


def _shared(sample: WindowData) -> Ints | None:
    """The `clusters` where some connection carried more than one request, else None."""
    numbers = clusters(sample)
    return None if numbers is None or int(numbers.max()) + 1 == sample.n else numbers


@held_alone
def count(sample: WindowData) -> int | None:
    """How many connections the requests are spread over, as Kish's effective number: a connection
    with one request does not count as much as one with a hundred. None where that is not known.
    """
    numbers = clusters(sample)
    if numbers is None:
        return None
    sizes = np.bincount(numbers[sample.connection >= 0]).astype(np.float64)
    return math.floor(float(sizes.sum()) ** 2 / float(sizes @ sizes) + 1e-9) if sizes.any() else 0


def needed(sample: WindowData, p: float, confidence: float = CONFIDENCE) -> int:
    """How many connections a bound of the percentile p needs: as many as it would need requests.

    If none of that many connections is slow, fewer than 1 - p of all connections are. Fewer are
    needed where the sample could not have more. The turns of a session stay on one connection, so
    there are about as many as sessions. No number is needed where a server or proxy lets no
    connection be renewed. `unseen` then says how many may be slow.
    """
    most = intervals.needed(p, confidence)
    if len(sample.session):
        sessions = np.unique(np.stack([sample.window, sample.session]), axis=1).shape[1]
        most = min(most, sessions // 2) if sessions < sample.n else most
    return 0 if _prevented(sample) else most


def _prevented(sample: WindowData) -> bool:
    """Whether more of the connections that were opened ahead failed than could be used."""
    failed, renewed = (
        sum(getattr(health, name) or 0 for health in sample.health)
        for name in ("renewals_failed", "connections_renewed")
    )
    return failed > renewed


def least_requests(sample: WindowData, p: float, confidence: float = CONFIDENCE) -> int:
    """The fewest requests of a claim about the percentile p: by `claim_floor`, and until they are
    on enough connections.
    """
    floor, seen = claim_floor(p, sample.streams), count(sample)
    if seen is None or seen >= (least := needed(sample, p, confidence)):
        return floor
    return max(floor, sample.n + 1, math.ceil(sample.n * least / max(1, seen)))


def worth(sample: WindowData, x: Floats, has: Bools, p: float) -> float:
    """The most independent values that x is worth for the percentile p, by how much connections
    differ in their share beyond it. `has` marks the requests of x.

    Higher percentiles are looked at too: where a few connections are slow, their requests lie there
    and not at the percentile itself.
    """
    numbers = _shared(sample)
    if numbers is None:
        return math.inf
    mine, tail = numbers[has], 1 - p

    def vif(q: float) -> float:
        value = intervals.quantile(x, q)
        return _vif(mine, np.isinf(x) if math.isinf(value) else x > value)

    return len(x) / intervals.inflation(max(vif(1 - tail / k) for k in (1, 2, 4)), vif(intervals.steadier(p)))


def share_worth(sample: WindowData, hits: Bools) -> float:
    """As `worth`, for the share of all requests that are `hits`."""
    numbers = _shared(sample)
    return math.inf if numbers is None else sample.n / max(1.0, _vif(numbers, hits))


def _vif(numbers: Ints, hits: Bools) -> float:
    sizes = np.bincount(numbers)
    tails: Floats = np.bincount(numbers, hits, len(sizes)).astype(np.float64)
    return intervals.vif_of_blocks(tails, sizes.astype(np.float64))


def unseen(connections: int) -> float:
    """The share of all connections that may be slow although none of `connections` was, at
    CONFIDENCE.

    >>> round(unseen(59), 3)
    0.05
    """
    return float(1 - (1 - CONFIDENCE) ** (1 / connections)) if connections else 1.0


def notes(sample: WindowData, limits: tuple[Limit, ...]) -> tuple[str, ...]:
    """Notes on slow replicas that claims about percentiles may have missed; none where enough
    connections were seen.
    """
    ps = [limit.of.p for limit in limits if limit.of.p is not None]
    if not ps or not sample.n:
        return ()
    seen = count(sample)
    if seen is None:
        return ("the records name no connections: slow replicas behind a balancer may not have been seen",)
    if seen >= intervals.needed(max(ps), CONFIDENCE) or seen < needed(sample, max(ps)):
        return ()
    why = "the server or a proxy lets none be renewed" if _prevented(sample) else "a session holds one"
    share = format_share(unseen(seen))
    return (f"on {seen:,} connections ({why}) up to {share} of replicas behind a balancer may be slow, unseen (95%)",)
