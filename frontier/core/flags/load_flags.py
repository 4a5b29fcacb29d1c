"""Flags on the load: a client that keeps up, N requests in flight, no lockstep, no drift. Collected
by `flags`.

They are fatal only where the measured load is not the one asked for, or the client was measured
instead of the server. Otherwise they are warnings, and `widening` has how much they widen the
intervals.
"""

import math
from collections.abc import Iterator

import numpy as np

from frontier.core.model.points import OVERLOADED, Flag
from frontier.core.model.units import format_number, format_seconds, format_share
from frontier.core.stats import stationarity, wander
from frontier.core.window.held import held_alone
from frontier.core.window.window import BLOCKS, Floats, WindowData

ERRORS = 0.01
"""Share of failed requests that is worth a warning."""
LOOP_LAG = (0.005, 0.10)
"""Longest lag of the client's event loop (p99): seconds, or this share of the median TPOT if that
is more."""
SEND_LATE = (0.010, 0.05, 0.005)
"""Longest delay of sends (p99): seconds, or this share of the median E2E if that is less, but at
least the last number. One process answers 64 requests that end in one step over 2 to 5 ms."""
CLIENT_CPU = 0.80
"""Share of a core above which the client may be the bottleneck."""
GC_PAUSE = 0.020
"""Seconds of the longest pause for garbage collection above which the client is flagged."""
CLIENT_FAILURES = 0.005
"""Share of requests that failed in the client above which the client was measured."""
SUSPENDED = 0.5
"""Seconds that this machine slept or stood still; from there on the times of a window mean
nothing."""
PAUSES = 10.0
"""A client that pauses this many times longer than the limit is the bottleneck, whatever the
latencies."""
DISPERSION = 2.0
"""Index of dispersion of sends from which requests run in convoys."""
DRIFT = 0.05
"""Share by which a window may drift before it is worth a warning."""
WANDER = 0.005
"""Standard deviation of a wandering speed, relative, that is worth a warning."""
TRANSIENT = 0.25
"""Share of a window that a transient at its beginning may take."""
OCCUPANCY = 0.02
"""Share by which the mean in flight may miss the concurrency."""
UNSERVED = 3.0
"""Standard deviations of a Poisson count by which the backlog must grow: less may be chance."""
GROSS = 0.10
"""Where requests in flight, or the client's pauses in an E2E, are off by this share, the measured
load is not the one asked for."""
LITTLE = 3.0
"""Little's law may be off by the requests of this many E2E at the edges of each window."""


def median(values: Floats) -> float | None:
    """The median of the finite values; None when there are none."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else None


def windows(sample: WindowData) -> Iterator[tuple[int, slice]]:
    """The number of each window that has a length, and where its blocks are."""
    for w in range(len(sample.starts)):
        if sample.ends[w] > sample.starts[w]:
            yield w, slice(w * BLOCKS, (w + 1) * BLOCKS)


def failing(sample: WindowData) -> bool:
    """Whether more than the share ERRORS of requests fail: the load is then not the one asked for,
    because of the server and not the client.
    """
    return bool((~sample.ok).mean() > ERRORS)


# --- whether the client was in the way


def worst_health(sample: WindowData, name: str) -> float:
    """The largest of a figure of the client's health over the windows; 0 where it was not
    measured.
    """
    return max((value for health in sample.health if (value := getattr(health, name)) is not None), default=0.0)


def _pauses(sample: WindowData) -> list[tuple[str, float, float]]:
    """The client's pauses: the name, the length and the limit of each."""
    tpot, e2e = median(sample.tpot), median(sample.e2e)
    lag_limit = max(LOOP_LAG[0], LOOP_LAG[1] * (tpot or 0.0))
    late_limit = min(SEND_LATE[0], max(SEND_LATE[1] * e2e, SEND_LATE[2])) if e2e is not None else SEND_LATE[0]
    return [
        ("event loop late (p99) {}", worst_health(sample, "loop_lag_p99"), lag_limit),
        ("sends late (p99) {}", worst_health(sample, "send_late_p99"), late_limit),
        ("garbage collection {}", worst_health(sample, "gc_pause_max"), GC_PAUSE),
    ]


def pause(sample: WindowData) -> float:
    """The longest of the client's pauses that are over their limit, in seconds."""
    return max((value for _, value, limit in _pauses(sample) if value > limit), default=0.0)


def client(sample: WindowData) -> Iterator[Flag]:
    """The flag that the load generator did not keep up, or that requests failed by its own fault.

    Pauses are fatal above GROSS of an E2E, since requests that wait for the client are missing at
    the server, and above PAUSES times their limit.
    """
    most = GROSS * (median(sample.e2e) or math.inf)
    # What the budget cut off is no fault of the client's.
    own_failures = 0 if "budget" in sample.ended else sample.client_failures / max(1, sample.n + sample.client_failures)
    over = [
        (text.format(format_seconds(value)), format_seconds(limit), value > max(limit, min(most, PAUSES * limit)))
        for text, value, limit in _pauses(sample)
        if value > limit
    ]
    shares = (
        ("CPU {}", worst_health(sample, "cpu_share"), CLIENT_CPU, format_share),
        ("this machine was suspended for {}", worst_health(sample, "suspended"), SUSPENDED, format_seconds),
        ("this process stood still for {}", worst_health(sample, "stood_still"), SUSPENDED, format_seconds),
        ("{} of requests failed or were cut off by the client", own_failures, CLIENT_FAILURES, format_share),
    )
    over += [(text.format(spell(value)), spell(limit), True) for text, value, limit, spell in shares if value > limit]
    if over:
        fatal = any(gross for _, _, gross in over)
        yield Flag(
            "client_bound",
            "; ".join(text for text, _, _ in over),
            ", ".join(limit for _, limit, _ in over),
            ("the load generator is the limit: " if fatal else "") + "run the client on an idle machine or core",
            fatal=fatal,
        )


def resent(sample: WindowData) -> Iterator[Flag]:
    """The flag that requests were sent on a kept connection that the server had closed."""
    count = sum(health.resent for health in sample.health)
    if count:
        yield Flag(
            "resent",
            f"{count:,} requests were sent again on a fresh connection",
            "0",
            "the server closes connections that it said it keeps; this time is in the latencies, as for a user",
            fatal=False,
        )


# --- whether the load was what it should be


def lockstep(sample: WindowData) -> Iterator[Flag]:
    """The flag that requests run in convoys: they are sent together again and again."""
    if sample.open_loop:
        return
    for w, _ in windows(sample):
        here = sample.window == w
        e2e = sample.e2e[here & sample.ok]
        if not len(e2e):
            continue
        sends = stationarity.dispersion(sample.sent[here], sample.starts[w], sample.ends[w], float(e2e.mean()))
        if sends is not None and sends.value - 2 * sends.error > DISPERSION:
            yield Flag(
                "lockstep",
                f"dispersion of sends {sends.value:.1f}",
                f"{DISPERSION:g}",
                "requests run in step and wait for each other: vary the output length a little, or stagger the start",
                fatal=False,
            )
            return


def stationary(sample: WindowData) -> Iterator[Flag]:
    """The flag of a drift from half to half of a window, a transient left in it, or a wander within
    or between windows.
    """
    changes = next((found for w, blocks in windows(sample) if (found := _drifts(sample, w, blocks))), [])
    wandering = {
        name.upper(): moves.deviation
        for name, moves in wander.of_latencies(sample).items()
        if name in wander.BASIC
        and moves.certain
        and moves.deviation > WANDER
        and not any(name.upper() in change for change, _ in changes)
    }
    if wandering:
        most = format_share(max(wandering.values()))
        changes.append((f"{', '.join(wandering)} varied by up to ±{most} over time", f"±{format_share(WANDER)}"))
    if changes:
        yield Flag(
            "non_stationary",
            "; ".join(change for change, _ in changes),
            ", ".join(limit for _, limit in changes),
            "let it warm up longer, and look for throttling, other load on the machine, or a filling cache; a longer "
            "or later window narrows the intervals",
            fatal=False,
        )


def _drifts(sample: WindowData, w: int, blocks: slice) -> list[tuple[str, str]]:
    """What changed from half to half of a window, each with its limit."""
    e2e = sample.e2e[(sample.window == w) & sample.ok]
    count = stationarity.blocks(sample.ends[w] - sample.starts[w], float(e2e.mean()) if len(e2e) else math.inf)
    changes: list[tuple[str, str]] = []
    drift = stationarity.rate_drift(sample.block_output_tokens[blocks], sample.block_seconds[blocks], count)
    if drift is not None and drift.sure and abs(drift.change) > DRIFT:
        changes.append((f"throughput from half to half {math.expm1(drift.change):+.0%}", f"±{format_share(DRIFT)}"))
    for name, values in (("TTFT", sample.ttft), ("TPOT", sample.tpot), ("E2E", sample.e2e)):
        finite = values[(sample.window == w) & np.isfinite(values)]
        shift = stationarity.median_drift(finite, count)
        if shift is not None and shift.sure and abs(shift.change) > DRIFT:
            changes.append((f"{name} from half to half {math.expm1(shift.change):+.0%}", f"±{format_share(DRIFT)}"))
        if name == "TTFT" and (cut := stationarity.transient(finite, count, DRIFT)) > TRANSIENT:
            changes.append((f"TTFT was settling for {format_share(cut)} of the window", format_share(TRANSIENT)))
    return changes


def worst_in_flight(sample: WindowData) -> float:
    """The mean number of requests in flight in the window where it is furthest from the
    concurrency.
    """
    means = [float(sample.in_flight[blocks].mean()) for _, blocks in windows(sample)]
    return max(means, key=lambda mean: abs(mean / sample.load - 1), default=float(sample.load))


def occupancy(sample: WindowData) -> Iterator[Flag]:
    """The flag of more or fewer requests in flight than asked, by the integral over each window."""
    if not sample.holds_in_flight:
        return
    worst = worst_in_flight(sample)
    if abs(worst / sample.load - 1) > OCCUPANCY:
        thinned = failing(sample)
        paused = len(np.unique(sample.stream[~sample.ok[: len(sample.stream)]])) >= sample.load - worst > 0
        yield Flag(
            "under_concurrency" if worst < sample.load else "over_concurrency",
            f"{format_number(worst)} in flight on average",
            f"{sample.load} ±{format_share(OCCUPANCY)}",
            f"failing requests end early and pause their stream: {next(iter(sample.failures), 'see the records')}"
            if thinned or paused
            else "streams stood idle: requests are too short for this client, or it is too slow (client_bound)",
            fatal=not thinned and abs(worst / sample.load - 1) > GROSS,
        )


def overloaded(sample: WindowData) -> Iterator[Flag]:
    """The flag, at a rate, that the backlog grows through the windows: more requests arrive than
    are served.

    From the first to the last quarter of a window, the requests in the system must grow by more
    than chance varies the arrivals between. A stable queue, however long, does not grow so.
    """
    rate = sample.load.per_second
    if rate is None:
        return
    quarter = BLOCKS // 4
    grown = arrived = 0.0
    for _, blocks in windows(sample):
        levels = sample.in_flight[blocks]
        grown += float(levels[-quarter:].mean() - levels[:quarter].mean())
        arrived += 0.75 * rate * sample.shape.requests * float(sample.block_seconds[blocks].sum())
    spread = 1.0
    if sample.shape.arrivals is not None:
        spread = sample.shape.arrivals.spread(arrived / sample.shape.requests)
    if grown > UNSERVED * max(1.0, spread) * math.sqrt(arrived):
        yield Flag(
            OVERLOADED,
            f"the backlog grew by {format_share(grown / arrived)} of what arrived",
            "0%",
            "the backlog grows for as long as this rate lasts, so no SLA holds: send less, or serve it by more",
            fatal=False,
        )


def background(sample: WindowData) -> Iterator[Flag]:
    """The flag of a background that was not beside the shape through every window, or that was
    never served in one.
    """
    beside = sample.shape.background
    if beside is None or not beside.streams:
        return
    held = [float(sample.background_in_flight[blocks].mean()) for _, blocks in windows(sample)]
    worst = max(held, key=lambda mean: abs(mean / beside.streams - 1), default=0.0)
    starved = any(not sample.background_tokens[blocks].any() for _, blocks in windows(sample))
    if starved or abs(worst / beside.streams - 1) > GROSS:
        why = next((words[:100] for words in sample.background_failures), "")
        advice = (
            "it never got a slot: measure less of it, or let the server serve it"
            if starved
            else "the client is too slow: see the records marked background"
        )
        fails = f"its requests fail ({why}): see the server's log, and the background's  extra_body"
        yield Flag(
            "background_missing",
            f"{worst:.1f} of the background in flight" + (", and none of it got a token" if starved else ""),
            f"{beside.streams} ±{format_share(GROSS)}",
            fails if why else advice,
            fatal=True,
        )


def rate_times_e2e(sample: WindowData) -> float:
    """Requests in flight by Little's law; NaN for a window without length."""
    seconds = sample.seconds
    return float(sample.block_finished.sum()) / seconds * float(sample.e2e.mean()) if seconds > 0 else math.nan


def littles_law(sample: WindowData) -> Iterator[Flag]:
    """The flag that requests in flight, their rate and their time in the system contradict each
    other (Little's law).
    """
    if not sample.holds_in_flight or not sample.ok.all():
        return
    seconds, e2e, product = sample.seconds, float(sample.e2e.mean()), rate_times_e2e(sample)
    room = max(OCCUPANCY, LITTLE * len(sample.starts) * e2e / seconds) if seconds > 0 else math.inf
    if abs(product / sample.load - 1) > room:
        gap = e2e * (sample.load / product - 1) if product > 0 else math.inf
        what = f"{format_seconds(gap)} from a last token to the next request" if gap > 0 else "requests overlap"
        yield Flag(
            "littles_law",
            f"{what}: rate x E2E is {format_number(product)}",
            f"{sample.load} ±{format_share(room)}",
            "requests in flight, their rate and their time do not fit together: the window is short or unsteady, the "
            "client pauses, or the server holds streams open after their last token",
            fatal=False,
        )


@held_alone
def of_load(sample: WindowData) -> tuple[Flag, ...]:
    """Every flag on the load; remembered, since each estimate of a sample asks for them."""
    checks = (client, occupancy, background, overloaded, lockstep, stationary, littles_law)
    return tuple(flag for check in checks for flag in check(sample))
