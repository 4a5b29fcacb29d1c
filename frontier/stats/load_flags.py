"""Flags on the load: a client that keeps up, N requests in flight, no lockstep, no drift. Collected by `flags`."""

import math
from collections.abc import Callable, Iterator

import numpy as np

from frontier.model import Flag
from frontier.stats import stationarity
from frontier.stats.window import BLOCKS, Floats, WindowData
from frontier.units import format_number, format_seconds, format_share

ERRORS = 0.01
LOOP_LAG = (0.005, 0.10)
"""Seconds, or this share of the median TPOT if that is more."""
SEND_LATE = (0.010, 0.05, 0.005)
"""Seconds, or this share of the median E2E if that is less, but no less than the last."""
CLIENT_CPU = 0.80
GC_PAUSE = 0.020
CLIENT_FAILURES = 0.005
SUSPENDED = 0.5
DISPERSION = 2.0
DRIFT = 0.05
TRANSIENT = 0.25
OCCUPANCY = 0.02
LITTLE = 3.0


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
    """Whether so many requests fail that the load is not what was asked: the server causes that, not the client."""
    return bool((~sample.ok).mean() > ERRORS)


# --- whether the client was in the way


def client(sample: WindowData) -> Iterator[Flag]:
    """The load generator did not keep up, or requests failed by its own fault."""
    tpot, e2e = median(sample.tpot), median(sample.e2e)
    lag_limit = max(LOOP_LAG[0], LOOP_LAG[1] * (tpot or 0.0))
    late_limit = min(SEND_LATE[0], max(SEND_LATE[1] * e2e, SEND_LATE[2])) if e2e is not None else SEND_LATE[0]
    own_failures = sample.client_failures / (sample.n + sample.client_failures)

    def worst(name: str) -> float:
        return max((value for health in sample.health if (value := getattr(health, name)) is not None), default=0.0)

    checks: tuple[tuple[str, float, float, Callable[[float], str]], ...] = (
        ("event loop late (p99) {}", worst("loop_lag_p99"), lag_limit, format_seconds),
        ("sends late (p99) {}", worst("send_late_p99"), late_limit, format_seconds),
        ("CPU {}", worst("cpu_share"), CLIENT_CPU, format_share),
        ("garbage collection {}", worst("gc_pause_max"), GC_PAUSE, format_seconds),
        ("this machine was suspended for {}", worst("suspended"), SUSPENDED, format_seconds),
        ("this process stood still for {}", worst("stood_still"), SUSPENDED, format_seconds),
        ("{} of requests failed or were cut off by the client", own_failures, CLIENT_FAILURES, format_share),
    )
    over = [(text.format(spell(value)), spell(limit)) for text, value, limit, spell in checks if value > limit]
    if over:
        yield Flag(
            "client_bound", "; ".join(text for text, _ in over), ", ".join(limit for _, limit in over),
            "the load generator is the limit: run the client on an idle machine or core",
        )  # fmt: skip


def resent(sample: WindowData) -> Iterator[Flag]:
    """Requests were sent on a kept connection that the server had closed."""
    count = sum(health.resent for health in sample.health)
    if count:
        yield Flag(
            "resent", f"{count} requests were sent again on a fresh connection", "0",
            "the server closes connections that it said it keeps; this time is in the latencies, as for a user",
            fatal=False,
        )  # fmt: skip


# --- whether the load was what it should be


def lockstep(sample: WindowData) -> Iterator[Flag]:
    """Requests run in convoys: they are sent together again and again."""
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
                "lockstep", f"dispersion of sends {sends.value:.1f}", f"{DISPERSION:g}",
                "requests run in step and wait for each other: vary the output length a little, or stagger the start",
                fatal=not failing(sample),
            )  # fmt: skip
            return


def stationary(sample: WindowData) -> Iterator[Flag]:
    """A drift from half to half of a window, or a transient left in it."""
    for w, blocks in windows(sample):
        e2e = sample.e2e[(sample.window == w) & sample.ok]
        count = stationarity.blocks(sample.ends[w] - sample.starts[w], float(e2e.mean()) if len(e2e) else math.inf)
        changes: list[str] = []
        drift = stationarity.rate_drift(sample.block_output_tokens[blocks], sample.block_seconds[blocks], count)
        if drift is not None and drift.sure and abs(drift.change) > DRIFT:
            changes.append(f"throughput from half to half {math.expm1(drift.change):+.0%}")
        for name, values in (("TTFT", sample.ttft), ("TPOT", sample.tpot), ("E2E", sample.e2e)):
            finite = values[(sample.window == w) & np.isfinite(values)]
            shift = stationarity.median_drift(finite, count)
            if shift is not None and shift.sure and abs(shift.change) > DRIFT:
                changes.append(f"{name} from half to half {math.expm1(shift.change):+.0%}")
            if name == "TTFT" and (cut := stationarity.transient(finite, count, DRIFT)) > TRANSIENT:
                changes.append(f"TTFT was settling for {format_share(cut)} of the window")
        if changes:
            yield Flag(
                "non_stationary", ", ".join(changes),
                f"±{format_share(DRIFT)}, {format_share(TRANSIENT)}",
                "let it warm up longer, and look for throttling, other load on the machine, or a filling cache",
            )  # fmt: skip
            return


def occupancy(sample: WindowData) -> Iterator[Flag]:
    """More or fewer requests in flight than asked, by integral over each window."""
    if sample.open_loop:
        return
    means = [float(sample.in_flight[blocks].mean()) for _, blocks in windows(sample)]
    worst = max(means, key=lambda mean: abs(mean / sample.concurrency - 1), default=float(sample.concurrency))
    if abs(worst / sample.concurrency - 1) > OCCUPANCY:
        thinned = failing(sample)
        yield Flag(
            "under_concurrency" if worst < sample.concurrency else "over_concurrency",
            f"{format_number(worst)} in flight on average", f"{sample.concurrency} ±{format_share(OCCUPANCY)}",
            "failing requests end early and pause their stream" if thinned
            else "the client does not keep its streams busy: it is too slow, or requests are too short for it",
            fatal=not thinned,
        )  # fmt: skip


def littles_law(sample: WindowData) -> Iterator[Flag]:
    """Requests in flight, their rate and their time in the system contradict each other (Little's law)."""
    if sample.open_loop or not sample.ok.all():
        return
    seconds = float(sample.block_seconds.sum())
    e2e = float(sample.e2e.mean())
    product = float(sample.block_finished.sum()) / seconds * e2e if seconds > 0 else math.nan
    room = max(OCCUPANCY, LITTLE * len(sample.starts) * e2e / seconds) if seconds > 0 else math.inf
    if abs(product / sample.concurrency - 1) > room:
        yield Flag(
            "littles_law", f"rate x E2E is {format_number(product)}", f"{sample.concurrency} ±{format_share(room)}",
            "requests in flight, their rate and their time do not fit together: the window is short or unsteady, the "
            "client pauses, or the server holds streams open after their last token",
            fatal=False,
        )  # fmt: skip
