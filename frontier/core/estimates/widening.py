"""Widening of a sample's intervals for its warnings: wander, lockstep, a load or client slightly
off.

A number that means something is kept. The doubt that its flag leaves goes into its bounds, by an
amount measured in the same window. See docs/flags.md for the rule of each flag.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from frontier.core.flags import load_flags
from frontier.core.flags.load_flags import ERRORS
from frontier.core.stats.wander import Wander, of_latencies
from frontier.core.window.held import held_alone
from frontier.core.window.window import WindowData, mean_e2e


@dataclass(frozen=True, slots=True)
class Widening:
    """What widens the intervals of a sample.

    - `waves`: whether its requests run in lockstep
    - `wander`: how its speed wanders, by latency
    - `longer`, `shorter`: seconds by which a request's latency may be longer or shorter at the
      stated load
    - `pause`: seconds to either side for a pause of the client
    - `more`, `less`: the factors by which rates may be higher or lower then
    """

    waves: bool = False
    wander: Mapping[str, Wander] = field(default_factory=dict)
    longer: float = 0.0
    shorter: float = 0.0
    pause: float = 0.0
    more: float = 1.0
    less: float = 1.0


NO_WIDENING = Widening()


@held_alone
def widening(sample: WindowData) -> Widening:
    """What the flags on this sample's load add to its intervals; NO_WIDENING without such flags."""
    raised = {flag.name for flag in load_flags.of_load(sample)}
    if not raised:
        return NO_WIDENING
    e2e = mean_e2e(sample)
    pause = load_flags.pause(sample) if "client_bound" in raised else 0.0
    # Little's law: requests that are missing in flight, or too many, change the time of each by at
    # most their share.
    ratios = [1.0]
    if raised & {"under_concurrency", "over_concurrency"}:
        ratios.append(load_flags.worst_in_flight(sample) / sample.load)
    if "littles_law" in raised:
        ratios.append(load_flags.rate_times_e2e(sample) / sample.load)
    waves = "lockstep" in raised
    fewer, more = max(min(ratios), ERRORS), max(ratios)
    longer = e2e * (1 / fewer - 1)
    return Widening(
        waves=waves,
        wander=of_latencies(sample, waves) if waves or "non_stationary" in raised else {},
        longer=longer,
        shorter=e2e * (1 - 1 / more),
        pause=pause,
        more=1 + (longer + pause) / e2e if e2e > 0 else math.inf,
        less=1 / more,
    )
