"""Gauges of a server's running and waiting requests, compared with the requests in flight.

Series of one name are added up, as for data-parallel ranks. But ranks that each tell the whole, a
total beside its parts, and joined exporters repeat one number. The sum then shows more requests
than were sent.
"""

from collections.abc import Sequence

import numpy as np

from frontier.core.model.trials import SourceReadings
from frontier.core.window.time_breakdown import WindowFacts
from frontier.core.window.window import Floats

RUNNING, WAITING = "num_requests_running", "num_requests_waiting"
SAID, HELD = "gauges_said", "gauges_held"
"""The requests by the gauges and the requests in flight, for a window whose gauges are not used."""
KV, FULL = "kv_cache_usage_perc", 1.05
"""The share of the KV cache in use, and the most that it can be."""
MORE, FEW = 0.10, 0.5
"""Share of the requests in flight, and number of requests, by which gauges may be higher: they lag
a step."""
DEVIATIONS = 3.0
"""Standard errors of the requests in flight at the readings that are allowed for: gauges may be
older than the reading."""


def held_against(facts: WindowFacts, readings: Sequence[SourceReadings], sent: Floats, end: Floats) -> dict[str, float]:
    """The facts of a window. Where its gauges count more requests than were in flight at the
    readings, both numbers replace the gauges and the preemptions, which are added up in the same
    way. A share of the KV cache that is none, as in percent, is left out.
    """
    full = max(facts.get(KV, 0.0), facts.get(f"{KV}_max", 0.0))
    kept = {name: fact for name, fact in facts.items() if full <= FULL or not name.startswith(KV)}
    times = [float(t) for s in readings if s.source == "metrics" for t in s.times.split()]
    counted = kept.get(RUNNING, 0.0) + kept.get(WAITING, 0.0)
    if not counted or not times:
        return kept
    began, ended = np.sort(sent), np.sort(end)
    in_flight = np.searchsorted(began, times, side="right") - np.searchsorted(ended, times, side="left")
    mean, standard_error = float(in_flight.mean()), float(in_flight.std()) / len(times) ** 0.5
    if counted <= (1 + MORE) * mean + FEW + DEVIATIONS * standard_error:
        return kept
    left_out = {*(f"{name}{most}" for name in (RUNNING, WAITING) for most in ("", "_max")), "num_preemptions_total"}
    return {name: fact for name, fact in kept.items() if name not in left_out} | {SAID: counted, HELD: mean}
