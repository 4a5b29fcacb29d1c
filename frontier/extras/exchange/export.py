"""Exports of points: Parquet of their table, and the Prometheus text format.

Prometheus text is for node_exporter's textfile collector or a push
gateway. Parquet needs pyarrow, of the extra [parquet].
"""

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from frontier.core.model.errors import UsageError, install_command
from frontier.core.model.metrics import Unit, metric
from frontier.show.view.answer_view import AnswerView
from frontier.show.view.series_view import SeriesView, SettingView
from frontier.show.view.wording import VERDICT_WORDS

if TYPE_CHECKING:
    import pandas as pd


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
    units = frame.attrs["units"]
    fields = [f.with_metadata({"unit": units[f.name]}) if f.name in units else f for f in content.schema]
    out = io.BytesIO()
    parquet.write_table(content.cast(pa.schema(fields, content.schema.metadata)), out)
    return out.getvalue()


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


def prometheus_text(views: Sequence[SeriesView]) -> str:
    """Gauges by setting, and the operating point of each (deployment, shape) where an SLA decided
    one.
    """
    registry = CollectorRegistry(auto_describe=False)

    def gauge(name: str, about: str, *labels: str) -> Gauge:
        return Gauge(name, about, (*_SERIES, *labels), registry=registry)

    _add_settings([each for view in views for each in view.settings], gauge)
    if answers := [view.answer for view in views if view.answer is not None]:
        _add_answers(answers, gauge)
    return generate_latest(registry).decode()


def _add_settings(settings: Sequence[SettingView], gauge: Callable[..., Gauge]) -> None:
    """The gauges of each setting."""
    requests = gauge("frontier_point_requests", "Requests behind a point.", "concurrency")
    valid = gauge("frontier_point_valid", "1 when no flag excludes it.", "concurrency")
    member = gauge("frontier_point_on_frontier", "1 when it is not dominated.", "concurrency")
    ends = {"": "", "_low": " (lower end of the 95% interval)", "_high": " (upper end of the 95% interval)"}
    figures = {
        (name, end): gauge(family_name(name, end), f"{metric(name).label}{words}.", "concurrency")
        for name in sorted({name for each in settings for name in each.metrics})
        for end, words in ends.items()
    }
    for each in settings:
        of = (each.point.deployment, each.point.shape.label, each.load)
        requests.labels(*of).set(each.point.n)
        valid.labels(*of).set(each.point.valid)
        member.labels(*of).set(each.place == "member")
        for name, e in each.metrics.items():
            for end, value in (("", e.value), ("_low", e.low), ("_high", e.high)):
                figures[name, end].labels(*of).set(value)


def _add_answers(answers: Sequence[AnswerView], gauge: Callable[..., Gauge]) -> None:
    """The gauges of each operating point and its verdict."""
    kinds = dict.fromkeys(answer.chosen.kind for answer in answers if answer.chosen is not None)
    chosen = {
        kind: gauge(f"frontier_operating_point_{kind}", f"The {kind} that keeps the SLA; absent when none does.")
        for kind in kinds or ("concurrency",)
    }
    verdicts = gauge("frontier_verdict", "1 for the verdict about the SLA, 0 for the others.", "verdict")
    for answer in answers:
        series = (answer.series.deployment, answer.series.shape.label)
        if answer.chosen is not None:
            chosen[answer.chosen.kind].labels(*series).set(answer.chosen.amount)
        for verdict in VERDICT_WORDS:
            verdicts.labels(*series, verdict.value).set(answer.decision.verdict is verdict)
