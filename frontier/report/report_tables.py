"""Tables of the page that stand beside the points: why this point and not its neighbours, and what was watched."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from frontier.decide.wording import (
    clean,
    interval_text,
    limit_value_text,
    proven_words,
    setting,
    unproven_words,
    value_text,
)
from frontier.metrics import metric
from frontier.model import Decision, Estimate, Judgement, Point, Verdict
from frontier.stats.window import Sample
from frontier.units import format_bytes, format_number, format_seconds, format_share, roughly

WORDS = {
    Verdict.MEETS: "meets", Verdict.VIOLATES: "violates", Verdict.MARGINAL: "marginal: its interval crosses the limit",
    Verdict.UNPROVEN: "unproven", Verdict.INVALID: "invalid: flagged",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of plain text: a caption, heads, and rows whose first cell names the row."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def neighbours_grid(decision: Decision, points: Sequence[Point]) -> Grid | None:
    """The settings around the operating point (or the candidate) and why each was not taken; None without any."""
    at = decision.concurrency if decision.concurrency is not None else decision.candidate
    judged = sorted(decision.judgements, key=lambda j: j.concurrency)
    if at is None or len(judged) < 2:
        return None
    of = {p.concurrency: p for p in points}
    by_setting = {j.concurrency: j for j in judged}
    if at not in by_setting:
        return None
    settings = sorted(by_setting | of)
    place = settings.index(at)
    rows = tuple(
        _neighbour(decision, by_setting[c], of.get(c)) if c in by_setting
        else (setting(c), "not judged", "–", "–", "–", "–", "run only to refine the frontier: nothing is claimed of it")
        for c in settings[max(0, place - 2) : place + 4]
    )  # fmt: skip
    heads = ("concurrency", "verdict", "deciding metric", "value", "95% interval", "limit", "why or why not")
    return Grid("Why this point: the settings around it", heads, rows)


def _neighbour(decision: Decision, judged: Judgement, point: Point | None) -> tuple[str, ...]:
    name = judged.binding
    estimate = point.metrics.get(name) if point and name else None
    limit = next((li for li in decision.limits if li.metric == name), None)
    unproven = judged.verdict is Verdict.UNPROVEN
    return (
        setting(judged.concurrency),
        WORDS[judged.verdict] + (f": {unproven_words(estimate, judged.need)}" if unproven else ""),
        metric(name).label if name else "–",
        value_text(name, estimate.value) if name and estimate else "–",
        (interval_text(name, estimate) or "not known") if name and estimate else "–",
        limit_value_text(limit.metric, limit.promise) + proven_words(estimate, limit) if limit else "–",
        _why_not(decision, judged, estimate),
    )


def _why_not(decision: Decision, judged: Judgement, estimate: Estimate | None) -> str:
    chosen, step = decision.concurrency, decision.rejected
    if judged.concurrency == chosen:
        return "chosen"
    if step is not None and step.concurrency == judged.concurrency:
        gain = f"{step.gain * 100:+.0f}% throughput"
        return f"{gain} is within the noise" if step.tie else f"{gain} for {step.cost:.2g}× {metric(step.metric).label}"
    if judged.verdict is not Verdict.MEETS:
        need = f"; about {roughly(judged.need)} requests would decide" if judged.need else ""
        words = {
            Verdict.INVALID: "its measurement does not count", Verdict.VIOLATES: "not inside the limits",
            Verdict.MARGINAL: "neither inside nor outside is proven", Verdict.UNPROVEN: _unproven_why(estimate),
        }  # fmt: skip
        return words[judged.verdict] + need
    if chosen is not None and judged.concurrency < chosen:
        return "less throughput"
    if decision.first_fail is not None and judged.concurrency > decision.first_fail:
        return f"above {setting(decision.first_fail)}, which violates"
    return "not worth the step"


def _unproven_why(estimate: Estimate | None) -> str:
    """An interval inside the limit beside 'unproven' asks for the reason."""
    if estimate is None or (math.isinf(estimate.low) and math.isinf(estimate.high)):
        return "nothing is claimed of it"
    if math.isfinite(estimate.high):
        return "too few requests for a claim, however good these are"
    return "too few requests to bound it"


# --- what the client and the server showed during the windows

Watched = tuple[str, Callable[[Sample], float | None], Callable[[float | None], str]]


def _worst(name: str) -> Callable[[Sample], float | None]:
    def of(sample: Sample) -> float | None:
        found = [v for h in sample.health if (v := getattr(h, name)) is not None]
        return max(found, default=None)

    return of


def _server(name: str, join: Callable[[Sequence[float]], float]) -> Callable[[Sample], float | None]:
    def of(sample: Sample) -> float | None:
        found = [s[name] for s in sample.server if name in s]
        return join(found) if found else None

    return of


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _in_flight(sample: Sample) -> float | None:
    found = [float(v) for v in sample.in_flight if math.isfinite(v)]
    return _mean(found) if found else None


def _cached(sample: Sample) -> float | None:
    hits, asked = (
        _server(f"prefix_cache_{kind}_total", sum)(sample) for kind in ("hits", "queries")
    )  # fmt: skip
    return hits / asked if hits is not None and asked else None


def _per_step(sample: Sample) -> float | None:
    """Tokens a step yields of a request under speculative decoding: the accepted drafts and one."""
    accepted, drafts = (_server(f"spec_decode_num_{kind}_total", sum)(sample) for kind in ("accepted_tokens", "drafts"))
    return 1 + accepted / drafts if accepted is not None and drafts else None


CLIENT: tuple[Watched, ...] = (
    ("in flight, mean", _in_flight, format_number),
    ("event loop late, p99", _worst("loop_lag_p99"), format_seconds),
    ("sends late, p99", _worst("send_late_p99"), format_seconds),
    ("share of a core", _worst("cpu_share"), format_share),
    ("longest garbage collection", _worst("gc_pause_max"), format_seconds),
    ("requests sent again", _worst("resent"), format_number),
)
SERVER: tuple[Watched, ...] = (
    ("running, mean", _server("num_requests_running", _mean), format_number),
    ("waiting, mean", _server("num_requests_waiting", _mean), format_number),
    ("KV cache in use, mean", _server("kv_cache_usage_perc", _mean), format_share),
    ("KV cache in use, most", _server("kv_cache_usage_perc_max", max), format_share),
    ("preemptions", _server("num_preemptions_total", sum), format_number),
    ("prompt tokens found cached", _cached, format_share),
    ("tokens a step, speculating", _per_step, format_number),
)


GPUS: tuple[Watched, ...] = (
    ("GPUs", _server("gpu_count", max), format_number),
    ("power of all, mean", _server("gpu_power", _mean), lambda v: "–" if v is None else f"{format_number(v)} W"),
    ("busy, mean", _server("gpu_utilization", _mean), format_share),
    ("memory of all, mean", _server("gpu_memory_used", _mean), lambda v: "–" if v is None else format_bytes(v)),
    ("SM clock, lowest", _server("gpu_sm_clock_min", min), lambda v: "–" if v is None else f"{v / 1e6:,.0f} MHz"),
    ("hottest", _server("gpu_temperature_max", max), lambda v: "–" if v is None else f"{v:.0f} °C"),
)


def evidence_grids(samples: Mapping[int, Sample]) -> list[Grid]:
    """What the client knew of itself, and what the server said of itself, per setting; nothing that nobody measured."""
    found = []
    for caption, watched in (
        ("The load generator during the windows (the worst of the repeats)", CLIENT),
        ("The server's own metrics during the windows", SERVER),
        ("What nvidia-smi said of this machine's GPUs during the windows", GPUS),
    ):
        values = {c: [of(sample) for _, of, _ in watched] for c, sample in sorted(samples.items())}
        kept = [i for i in range(len(watched)) if any(row[i] is not None for row in values.values())]
        if kept:
            heads = ("concurrency", *(watched[i][0] for i in kept))
            rows = tuple((setting(c), *(watched[i][2](row[i]) for i in kept)) for c, row in values.items())
            found.append(Grid(caption, heads, rows))
    return found


def identities_of(samples: Mapping[int, Sample]) -> list[str]:
    """The servers that answered, by what they say of themselves."""
    return sorted({clean(who, 200) for s in samples.values() for who in s.server_identities if who})
