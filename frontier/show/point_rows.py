"""Points as a table for programs: a row each, in SI units, and its CSV. An unknown value is an
empty cell.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from frontier.core.model.loads import Load
from frontier.core.model.metrics import metric
from frontier.show.view.series_view import Estimate, SeriesView, SettingView

if TYPE_CHECKING:
    import pandas as pd

_SETTING = ("deployment", "shape", "isl", "osl", "concurrency", "n", "valid", "on_frontier", "objectives", "flags")
FIRST = (*_SETTING, "verdict", "reason")
_TEXTS = ("deployment", "shape", "objectives", "flags", "power_source", "run", "engine", "device", "model", "load")


_FORMULA = ("=", "+", "-", "@")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def table(views: Sequence[SeriesView]) -> "pd.DataFrame":
    """One row per setting: its load (mean lengths), its verdict and the reason as codes, then NAME,
    NAME_low and NAME_high (95%) of each metric.

    Where a power is known, its watts and its source, measured or stated, come before the metrics.
    An infinite end of an interval is empty: there is no such bound. An infinite value stays
    infinite. `attrs["units"]` has the unit of each metric's columns.
    """
    import pandas as pd

    names = sorted({name for view in views for each in view.settings for name in each.metrics}, key=_order)
    rows = [_row(each, view) for view in views for each in view.settings]
    some = [name for name in ("rate", "power_w", "power_source") if any(name in row for row in rows)]
    units = {name + end: metric(name).unit.value for name in names for end in ("", "_low", "_high")}
    columns = [*FIRST, *some, *units]
    frame = pd.DataFrame(rows, columns=columns)
    whole = {name: "Int64" for name in ("isl", "osl", "concurrency", "n") if all(_is_whole(row[name]) for row in rows)}
    floats = dict.fromkeys(set(columns) - {*FIRST, "power_source"}, "float64")
    typed = frame.astype(floats | whole)
    typed.attrs["units"] = units
    return typed


def _row(each: SettingView, view: SeriesView) -> dict[str, Any]:
    """The row of a setting."""
    p, (deployment, shape) = each.point, view.series
    setting = (
        deployment,
        shape.label,
        shape.isl.mean,
        shape.osl.mean,
        None,
        p.n or None,
        p.valid,
        each.place == "member",
        ",".join(view.frontier.objectives),
        ", ".join(flag.name for flag in p.flags),
        each.verdict,
        each.reason,
    )
    power = {"power_w": p.power.watts, "power_source": p.power.source} if p.power else {}
    return dict(zip(FIRST, setting, strict=True)) | load_columns(each.load) | power | _figures(each.metrics)


def _figures(metrics: Mapping[str, Estimate]) -> dict[str, float]:
    """The columns of the metrics of a point: values, and the ends of intervals that exist."""
    return {
        name + end: x
        for name, e in metrics.items()
        for end, x in (("", e.value), ("_low", e.low), ("_high", e.high))
        if not end or math.isfinite(x)
    }


def _is_whole(value: float | None) -> bool:
    return value is None or isinstance(value, int)


def _order(name: str) -> tuple[bool, str, float, bool, str]:
    """The order of the metrics: rates and shares, then each latency from its mean up, with its
    inverse and its classes.
    """
    of = metric(name)
    return of.quantity is not None, of.quantity or name, of.p or 0.0, of.inverted, name


def load_columns(load: Load) -> dict[str, Any]:
    """A load as columns of a table; a concurrency has no column `rate`."""
    return load.facts if load.is_open else {"concurrency": load}


def guarded(text: str) -> str:
    """Text that no spreadsheet takes for a formula: an apostrophe guards a first character that
    would begin one (OWASP's rule). Control characters, which can end a cell or a line, become
    spaces.
    """
    line = _CONTROL.sub(" ", text)
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
