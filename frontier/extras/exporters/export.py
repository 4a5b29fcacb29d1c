"""Exports of points: CSV and Parquet from one table, and the Prometheus text format.

Values are in SI units; what is not known is an empty cell. Prometheus text is for node_exporter's
textfile collector or a push gateway. Parquet needs pyarrow, of the extra [parquet].
"""

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from frontier.core.decisions import Decision, Verdict
from frontier.core.errors import UsageError, install_command
from frontier.core.loads import amount, kind_of, load_columns
from frontier.core.metrics import Unit, metric
from frontier.core.points import Frontier, Point
from frontier.core.text import one_cell

if TYPE_CHECKING:
    import pandas as pd

FIRST = ("deployment", "shape", "isl", "osl", "concurrency", "n", "valid", "on_frontier", "flags")
_TEXTS = ("deployment", "shape", "flags", "power_source", "run", "engine", "device", "model", "load")
_FORMULA = ("=", "+", "-", "@")


def table(points: Sequence[Point], frontiers: Sequence[Frontier]) -> "pd.DataFrame":
    """One row per point: its setting (mean lengths), then NAME, NAME_low and NAME_high (95 %) of
    each metric.

    Where a power is known, its watts and whether it was measured or stated come before them. An
    infinite end of an interval is empty: there is no such bound. An infinite value stays infinite.
    """
    import pandas as pd

    names = sorted({name for point in points for name in point.metrics}, key=_order)
    members = _members(frontiers)
    powered = ("power_w", "power_source") if any(p.power for p in points) else ()
    rows = []
    for p in points:
        setting = (
            p.deployment,
            p.shape.label,
            p.shape.isl.mean,
            p.shape.osl.mean,
            None,
            p.n or None,
            p.valid,
            (*p.series, p.concurrency) in members,
            ", ".join(flag.name for flag in p.flags),
        )
        row: dict[str, Any] = dict(zip(FIRST, setting, strict=True)) | load_columns(p.concurrency)
        if p.power:
            row |= {"power_w": p.power.watts, "power_source": p.power.source}
        for name, e in p.metrics.items():
            ends = {f"{name}_{end}": x for end, x in (("low", e.low), ("high", e.high)) if math.isfinite(x)}
            row |= {name: e.value, **ends}
        rows.append(row)
    rated = ("rate",) if any("rate" in row for row in rows) else ()
    columns = [*FIRST, *rated, *powered, *(name + end for name in names for end in ("", "_low", "_high"))]
    frame = pd.DataFrame(rows, columns=columns)
    whole = {name: "Int64" for name in ("isl", "osl", "concurrency", "n") if all(_is_whole(row[name]) for row in rows)}
    floats = dict.fromkeys(set(columns) - {*FIRST, "power_source"}, "float64")
    return frame.astype(floats | whole)


def _members(frontiers: Sequence[Frontier]) -> set[tuple[object, ...]]:
    """The settings on a frontier, as (deployment, shape, concurrency)."""
    return {(f.deployment, f.shape, concurrency) for f in frontiers for concurrency in f.members}


def _is_whole(value: float | None) -> bool:
    return value is None or isinstance(value, int)


def _order(name: str) -> tuple[bool, str, float, bool, str]:
    """Rates and shares first, then each latency from its mean up, with its inverse and its classes
    beside it.
    """
    of = metric(name)
    return of.quantity is not None, of.quantity or name, of.p or 0.0, of.inverted, name


def guarded(text: str) -> str:
    """Text that no spreadsheet takes for a formula: an apostrophe before what would begin one
    (OWASP's rule).

    Control characters, which can end a cell or a line, become spaces.
    """
    line = one_cell(text)
    return f"'{line}" if line.lstrip().startswith(_FORMULA) else line


def unguarded(text: str) -> str:
    """The inverse of `guarded`."""
    return text[1:] if text.startswith("'") and text[1:].lstrip().startswith(_FORMULA) else text


def csv_text(frame: "pd.DataFrame") -> str:
    """Comma-separated, with a header. Text that a spreadsheet would take for a formula is
    guarded.
    """
    texts = {name: frame[name].map(guarded, na_action="ignore") for name in _TEXTS if name in frame}
    truths = [name for name in ("valid", "on_frontier") if name in frame]
    words = {name: frame[name].map({True: "true", False: "false"}) for name in truths}
    return str(frame.assign(**texts, **words).to_csv(index=False, lineterminator="\n"))


def parquet_bytes(frame: "pd.DataFrame") -> bytes:
    """One Parquet file; the units are in the columns' metadata. UsageError where pyarrow is not
    installed.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError("this export needs pyarrow, which is not installed", install_command("pyarrow")) from error
    content = pa.Table.from_pandas(frame, preserve_index=False)
    fields = [f.with_metadata({"unit": unit}) if (unit := _unit(f.name)) else f for f in content.schema]
    out = io.BytesIO()
    parquet.write_table(content.cast(pa.schema(fields, content.schema.metadata)), out)
    return out.getvalue()


def _unit(name: str) -> str:
    """The unit of a metric's column, '' of any other."""
    try:
        return metric(name.removesuffix("_low").removesuffix("_high")).unit.value
    except ValueError:
        return ""


# --- Prometheus

_SUFFIX = {
    Unit.SECONDS: "_seconds",
    Unit.TOKENS_PER_SECOND: "_tokens_per_second",
    Unit.REQUESTS_PER_SECOND: "_requests_per_second",
    Unit.SHARE: "_ratio",
    Unit.TOKENS_PER_SECOND_PER_USER: "_tokens_per_second",
    Unit.DOLLARS_PER_MILLION_TOKENS: "_dollars_per_million_tokens",
    Unit.JOULES_PER_TOKEN: "_joules_per_token",
}
_SERIES = ("deployment", "shape")


def family_name(name: str, end: str = "") -> str:
    """The Prometheus name of a metric: 'p99_ttft' is 'frontier_p99_ttft_seconds'."""
    return f"frontier_{name.replace('.', '_')}{end}{_SUFFIX[metric(name).unit]}"


def prometheus_text(points: Sequence[Point], frontiers: Sequence[Frontier], decisions: Sequence[Decision] = ()) -> str:
    """Gauges by setting, and the operating point of each (deployment, shape) where an SLA decided
    one.
    """
    registry = CollectorRegistry(auto_describe=False)

    def gauge(name: str, about: str, *labels: str) -> Gauge:
        return Gauge(name, about, (*_SERIES, *labels), registry=registry)

    requests = gauge("frontier_point_requests", "Requests behind a point.", "concurrency")
    valid = gauge("frontier_point_valid", "1 when no flag excludes it.", "concurrency")
    member = gauge("frontier_point_on_frontier", "1 when it is not dominated.", "concurrency")
    members = _members(frontiers)
    ends = {"": "", "_low": " (lower end of the 95 % interval)", "_high": " (upper end of the 95 % interval)"}
    figures = {
        (name, end): gauge(family_name(name, end), f"{metric(name).label}{words}.", "concurrency")
        for name in sorted({name for p in points for name in p.metrics})
        for end, words in ends.items()
    }
    for p in points:
        setting = (p.deployment, p.shape.label, p.concurrency)
        requests.labels(*setting).set(p.n)
        valid.labels(*setting).set(p.valid)
        member.labels(*setting).set((*p.series, p.concurrency) in members)
        for name, e in p.metrics.items():
            for end, value in (("", e.value), ("_low", e.low), ("_high", e.high)):
                figures[name, end].labels(*setting).set(value)
    if decisions:
        kinds = dict.fromkeys(kind_of(d.concurrency) for d in decisions if d.concurrency is not None)
        chosen = {
            kind: gauge(f"frontier_operating_point_{kind}", f"The {kind} that keeps the SLA; absent when none does.")
            for kind in kinds or ("concurrency",)
        }
        verdicts = gauge("frontier_verdict", "1 for the verdict about the SLA, 0 for the others.", "verdict")
        for d in decisions:
            if d.concurrency is not None:
                chosen[kind_of(d.concurrency)].labels(d.deployment, d.shape.label).set(amount(d.concurrency))
            for each in Verdict:
                verdicts.labels(d.deployment, d.shape.label, each.value).set(d.verdict is each)
    return generate_latest(registry).decode()
