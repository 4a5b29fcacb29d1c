"""A sample: what the windows of a setting's trials say, as arrays, in the order the requests were sent.

Everything above (estimates, flags, judgements, the search) works on samples; they are what `derived/` caches.
"""

import functools
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from frontier.model import ClientHealth, Power, Shape
from frontier.stats.histogram import LogHistogram

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

BLOCKS = 20
"""Time blocks per window: enough for a variance, few enough that each outlasts a request."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One trial's window, or several of one setting joined in time order. Index i is the i-th request sent.

    Latencies are seconds; a failed, truncated, empty or timed-out request is +inf in `ttft`, `tpot` and `e2e`.
    `tpot` is NaN where it is not defined (a success of one token) and where the server's count cannot be used
    (`untimed`). `silence` is how long after the first token the first visible character came, on any channel; `hollow`
    marks where the answer's own pace of tokens does not explain it. `irregular` is how often ordinary gaps are as long:
    a share, or of other answers whether their first gap is, or NaN. Token counts are NaN where the server gave none,
    `text_chars` is how much text came.

    Requests cut off by us (CANCELLED) or failed by us (CLIENT) are not in the arrays but counted in `client_failures`.
    `odd_finishes` counts the finish reasons that are not known to be good.

    `power` is known only to who looks at a whole run: it may be stated in the config.

    `starts`, `ends` and `sent` are unix time. In open loop latencies count from the scheduled send, and nothing may be
    expected of how many requests are in flight.

    Block arrays have BLOCKS entries per window: the block's length, the output and prompt tokens of successful requests
    that arrived in it (prompt tokens at the first token), the successful requests that finished in it, and its ITLs.
    """

    deployment: str
    shape: Shape
    concurrency: int
    starts: Floats
    ends: Floats
    sent: Floats
    window: Ints
    ttft: Floats
    tpot: Floats
    e2e: Floats
    ok: Bools
    asked_isl: Floats
    asked_osl: Floats
    silence: Floats
    hollow: Bools
    irregular: Floats
    prompt_tokens: Floats
    completion_tokens: Floats
    cached_tokens: Floats
    events: Ints
    reads: Ints
    text_chars: Ints
    block_seconds: Floats
    block_output_tokens: Floats
    block_input_tokens: Floats
    block_finished: Floats
    block_itl: tuple[LogHistogram, ...]
    in_flight: Floats
    health: tuple[ClientHealth, ...]
    server_identities: tuple[str | None, ...]
    server: tuple[dict[str, float], ...]
    ended: tuple[str, ...]
    client_failures: int
    outcomes: dict[str, int]
    whole_run: dict[str, float]
    odd_finishes: dict[str, int] = field(default_factory=dict)
    open_loop: bool = False
    power: Power | None = None

    @property
    def n(self) -> int:
        """Requests that count for latency."""
        return len(self.sent)

    @property
    def uncounted(self) -> Bools:
        """Successes without a usable token count of the server."""
        return self.ok & np.isnan(self.completion_tokens)

    @property
    def untimed(self) -> Bools:
        """Successes whose TPOT exists and is not known: no usable count, or one that several chunks contradict."""
        return self.ok & np.isnan(self.tpot) & (np.isnan(self.completion_tokens) | (self.events > 1))


@functools.lru_cache(maxsize=2)
def gaps(sample: Sample) -> LogHistogram:
    """All gaps between chunks of the sample; remembered, since each of their percentiles asks for it."""
    return LogHistogram.merged(sample.block_itl)
