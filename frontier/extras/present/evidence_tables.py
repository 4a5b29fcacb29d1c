"""Evidence tables of a report: cost, where the time goes, and what client, server and GPUs reported
in the windows."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from frontier.core.flags.load_flags import worst_in_flight
from frontier.core.model.decisions import Decision
from frontier.core.model.loads import Load
from frontier.core.model.metrics import metric
from frontier.core.model.points import Estimate, Point
from frontier.core.model.units import format_bytes, format_number, format_seconds, format_share
from frontier.core.window.window import WindowData
from frontier.show.table import Table
from frontier.show.view.cached_and_drafted import FOUND_CACHED, SPECULATED, Watched
from frontier.show.view.costs import token_prices
from frontier.show.view.wording import PART_WORDS, unexplained_text

# --- what it costs

UTILISATIONS = (1.0, 0.5, 0.25)
"""Shares of the time that a deployment is busy, for which the page gives token prices: always, half
of it, and as in traffic that falls to nothing at night."""


def cost_tables(decision: Decision | None) -> list[Table]:
    """Token prices at the operating point if it is busy always, half of the time, or less; empty
    without a price.
    """
    if decision is None or decision.load is None or token_prices(decision.metrics) is None:
        return []

    def text(price: Estimate | None) -> str:
        return "–" if price is None else metric("cost").format(price.value)

    rows = tuple(
        (
            format_share(u),
            text(p.output),
            text(p.input),
            text(p.cached),
            f"${p.per_month:,.0f}",
            f"{format_number(p.output_tokens_per_month / 1e6)} M",
        )
        for u in UTILISATIONS
        if (p := token_prices(decision.metrics, u)) is not None
    )
    heads = ("busy", "output tokens", "input tokens", "cached tokens", "a month costs", "output tokens a month")
    caption = (
        f"Break-even token prices at {decision.load.label}, by the mix measured "
        "(an input token priced at 1/4, a cached one at 1/40 of an output token)"
    )
    return [Table.of(heads, rows, caption)]


# --- where the time goes


def time_tables(points: Sequence[Point]) -> list[Table]:
    """The time breakdown of each setting that has one, as a table; empty where none has."""
    known = [(p.load, p.time) for p in points if p.time is not None]
    if not known:
        return []
    remarks = any(time.refused for _, time in known)
    heads = ("concurrency", "mean TTFT", "mean E2E", *PART_WORDS.values(), "unexplained", "requests")
    rows = tuple(
        (
            c.label,
            format_seconds(time.ttft),
            format_seconds(time.e2e),
            *(format_seconds(time.parts[name]) if name in time.parts else "–" for name in PART_WORDS),
            "–" if time.refused else unexplained_text(time),
            _whole(time.requests),
            *([time.refused] if remarks else []),
        )
        for c, time in known
    )
    caption = "Where the time goes, as means over the windows (– the server's metrics do not tell)"
    return [Table.of((*heads, "remark") if remarks else heads, rows, caption)]


# --- what the client and the server showed during the windows


def _worst(name: str) -> Callable[[WindowData], float | None]:
    """The worst value of a client's health over the repeats."""

    def read(sample: WindowData) -> float | None:
        values = [v for health in sample.health if (v := getattr(health, name)) is not None]
        return max(values, default=None)

    return read


def _server(name: str, join: Callable[[Sequence[float]], float]) -> Callable[[WindowData], float | None]:
    """A server's metric, joined over the repeats."""

    def read(sample: WindowData) -> float | None:
        values = [metrics[name] for metrics in sample.server if name in metrics]
        return join(values) if values else None

    return read


def _whole(value: float) -> str:
    """A count: '1,024', not '3.00'."""
    return f"{value:,.0f}"


def _in_flight(sample: WindowData) -> float | None:
    """Mean number of requests in flight; where that many are asked for, in the worst window."""
    if sample.holds_in_flight and len(sample.in_flight):
        return worst_in_flight(sample)
    values = [float(v) for v in sample.in_flight if math.isfinite(v)]
    return fmean(values) if values else None


CLIENT: tuple[Watched, ...] = (
    ("in flight, mean", _in_flight, format_number),
    ("event loop late, p99", _worst("loop_lag_p99"), format_seconds),
    ("sends late, p99", _worst("send_late_p99"), format_seconds),
    ("client CPU, share of a core", _worst("cpu_share"), format_share),
    ("longest garbage collection", _worst("gc_pause_max"), format_seconds),
    ("requests retried", _worst("resent"), _whole),
    ("client processes", _worst("processes"), _whole),
    ("their clocks known within", _worst("clock_bound"), format_seconds),
)
SERVER: tuple[Watched, ...] = (
    ("running, mean", _server("num_requests_running", fmean), format_number),
    ("waiting, mean", _server("num_requests_waiting", fmean), format_number),
    ("KV cache in use, mean", _server("kv_cache_usage_perc", fmean), format_share),
    ("KV cache in use, most", _server("kv_cache_usage_perc_max", max), format_share),
    ("preemptions", _server("num_preemptions_total", sum), _whole),
    FOUND_CACHED,
    SPECULATED,
)
GPUS: tuple[Watched, ...] = (
    ("GPUs", _server("gpu_count", max), _whole),
    ("power of all, mean", _server("gpu_power", fmean), lambda v: f"{format_number(v)} W"),
    ("clocks held down", _server("gpu_clocks_held", max), format_share),
    ("busy, mean", _server("gpu_utilization", fmean), format_share),
    ("memory of all, mean", _server("gpu_memory_used", fmean), format_bytes),
    ("SM clock, lowest", _server("gpu_sm_clock_min", min), lambda v: f"{v / 1e6:,.0f} MHz"),
    ("hottest", _server("gpu_temperature_max", max), lambda v: f"{v:.0f} °C"),
    ("CPU packages, power", _server("cpu_power", fmean), lambda v: f"{format_number(v)} W"),
)


def evidence_tables(samples: Mapping[Load, WindowData]) -> list[Table]:
    """The reports of client, server and GPUs per setting; columns without a measurement are left
    out.
    """
    made = []
    for caption, watched in (
        ("The load generator during the windows (the worst of the repeats)", CLIENT),
        ("The server's own metrics during the windows", SERVER),
        ("GPUs and this machine's CPU during the windows (nvidia-smi, NVML, an exporter, RAPL)", GPUS),
    ):
        values = {c: [read(sample) for _, read, _ in watched] for c, sample in sorted(samples.items())}
        kept = [i for i in range(len(watched)) if any(row[i] is not None for row in values.values())]
        if kept:
            heads = ("concurrency", *(watched[i][0] for i in kept))
            rows = tuple(
                (c.label, *("–" if (v := row[i]) is None else watched[i][2](v) for i in kept))
                for c, row in values.items()
            )
            made.append(Table.of(heads, rows, caption))
    return made
