"""Tables and JSON of predictions: frontiers with bands and roofline."""

import math
from collections.abc import Callable, Sequence

from rich.console import RenderableType
from rich.text import Text

from frontier.core.model.points import Estimate
from frontier.core.model.series import Series
from frontier.core.model.text import clean
from frontier.core.model.units import format_number, format_seconds, format_share
from frontier.extras.predict.fit import Forecast, Known, Prediction
from frontier.extras.predict.sla_break import SlaBreak
from frontier.hardware.roofline import Limits
from frontier.show.table import Cell, Column, Table, to_text
from frontier.show.verbosity import Detail
from frontier.show.view.json_out import Tree, estimate_tree, number, tree_of
from frontier.show.view.wording import limits_text

PREDICT_SCHEMA = "frontier.predict/1"
BAND = "The 95% band holds about 93 of 100 such predictions"
BAND_HEAD = "95% band"


def forecast_table(
    forecasts: Sequence[Forecast], *, detail: Detail = Detail.USUAL, width: int = 100, colour: bool = False
) -> str:
    """One table per (deployment, shape, what-if): the measured points, if any, and predictions
    around them. Where all is asked for, also the columns that had no room.
    """
    return "\n\n".join(to_text(*_block(each, detail, width), width=width, colour=colour) for each in forecasts)


def _block(forecast: Forecast, detail: Detail, width: int) -> list[RenderableType]:
    """The table of one forecast with its head and its notes."""
    head = Series(forecast.deployment, forecast.shape).label()
    head = f"{head}   if {clean(forecast.variant, 80)}" if forecast.variant else head
    rows = [
        (p.concurrency, _predicted(p, limits))
        for p, limits in zip(forecast.predictions, forecast.rooflines, strict=True)
    ]
    rows += [(known.concurrency, _measured(known)) for known in forecast.measured]
    cells = zip(*(row for _, row in sorted(rows, key=lambda pair: pair[0])), strict=True)
    columns = [
        Column(name, tuple(column), rank, left=name in _LEFT, interval_head=BAND_HEAD, interval_rank=band)
        for (name, rank, band), column in zip(_COLUMNS, cells, strict=True)
        if any(cell.value.strip("–") for cell in column)
    ]
    table = Table(tuple(columns))
    hidden = table.hidden_intervals(width)
    room = f"; no room for that of {' and '.join(hidden)}: see -v" if hidden else ""
    notes = [f"{clean(forecast.basis, 300)}. {BAND}{room}."]
    unmeasured = any(p.reach == "unmeasured" for p in forecast.predictions)
    if unmeasured:
        notes.append("TTFT is a lower bound: queueing in waves and tokenizing are not modelled.")
    if any(p.reach == "simulated" for p in forecast.predictions):
        notes = [f"{clean(forecast.basis, 300)}."]
    notes.append("TTFT and TPOT are means.")
    waiting = [p for p in forecast.predictions if p.running < p.concurrency]
    if waiting:
        most = f"{math.floor(waiting[0].running):,}"
        notes.append(f"Only about {most} requests run at once; from there on the others wait.")
    kept = [_sla_note(forecast.sla, " at best" if unmeasured else "")] if forecast.sla is not None else []
    rest = table.rest(width)
    return detail.of(
        [Text(head, style="bold"), table.drawn(width), *(Text(note, style="dim") for note in kept)],
        [Text(note, style="dim") for note in notes],
        [] if rest is None else [rest.drawn(width)],
    )


def _sla_note(sla: SlaBreak, best: str) -> str:
    """Where the SLA is expected to break, and what was not looked at."""
    where = f"up to c={sla.inside}{best}" if sla.inside else "nowhere"
    next_one = sla.breaks_at is None or sla.breaks_at == (sla.inside or 0) + 1
    at = f"at c={sla.breaks_at}" if next_one or not sla.inside else f"between c={sla.inside} and c={sla.breaks_at}"
    at = f"; {limits_text(sla.limits)} breaks {at}" if sla.breaks_at else ", the highest predicted"
    without = f" Not predicted: {limits_text(sla.unjudged)}." if sla.unjudged else ""
    return f"Predicted to meet the SLA {where}{at}.{without}"


_COLUMNS = (
    ("c", 0, None),
    ("tok/s", 0, 2),
    ("TTFT", 0, 1),
    ("TPOT", 0, 3),
    ("basis", 4, None),
    ("roofline tok/s", 7, None),
    ("of roofline", 5, None),
    ("roofline bound by", 6, None),
)
"""The head of each column, its rank and its band's rank: the highest rank is left out first where
there is no room."""
_LEFT = ("basis", "roofline bound by")


def _predicted(prediction: Prediction, limits: Limits | None) -> list[Cell]:
    """A predicted setting. A TTFT without an upper end is a lower bound."""
    rate, ttft = prediction.throughput, format_seconds(prediction.ttft.value)
    open_above = math.isinf(prediction.ttft.high)
    roofline = (
        ("–",) * 3
        if limits is None
        else (format_number(limits.throughput), format_share(rate.value / limits.throughput), limits.binds)
    )
    return [
        Cell(f"{prediction.concurrency:g}"),
        Cell(format_number(rate.value), _band(rate, format_number)),
        Cell(f"≥ {ttft}") if open_above else Cell(ttft, _band(prediction.ttft, format_seconds)),
        Cell(format_seconds(prediction.tpot.value), _band(prediction.tpot, format_seconds)),
        Cell(prediction.reach),
        *map(Cell, roofline),
    ]


def _measured(known: Known) -> list[Cell]:
    """A measured point among the predictions."""
    rate = "–" if math.isnan(known.rate) else format_number(known.rate)
    values = (f"{known.concurrency:g}", rate, format_seconds(known.ttft), format_seconds(known.tpot))
    return [Cell(value, style="bold") for value in (*values, "measured", "", "", "")]


def _band(estimate: Estimate, words: Callable[[float], str]) -> str:
    """'[1.2, 1.4]'; '' where the value is exact."""
    return "" if estimate.low == estimate.high else f"[{words(estimate.low)}, {words(estimate.high)}]"


def forecast_json(forecasts: Sequence[Forecast]) -> Tree:
    """The answer of `frontier predict --json`. A prediction is never an operating point; `reach` is
    how far it is from measured ground. An open end of an interval is null.
    """
    return {"schema": PREDICT_SCHEMA, "shapes": [_tree(forecast) for forecast in forecasts]}


def _tree(forecast: Forecast) -> Tree:
    return {
        "deployment": forecast.deployment,
        "shape": forecast.shape.label,
        "what_if": forecast.variant or None,
        "basis": forecast.basis,
        "sla": tree_of(forecast.sla),
        "fitted_to": [
            {"concurrency": k.concurrency, "mean_ttft": k.ttft, "mean_tpot": k.tpot} for k in forecast.measured
        ],
        "predictions": [
            {
                "concurrency": p.concurrency,
                "reach": p.reach,
                "running": number(p.running),
                "metrics": {
                    "mean_ttft": estimate_tree(p.ttft),
                    "mean_tpot": estimate_tree(p.tpot),
                    "output_throughput": estimate_tree(p.throughput),
                    "request_throughput": estimate_tree(p.throughput.scaled(1 / forecast.shape.osl.mean)),
                },
                "light": limits and _roofline_tree(limits, p),
            }
            for p, limits in zip(forecast.predictions, forecast.rooflines, strict=True)
        ],
    }


def _roofline_tree(limits: Limits, prediction: Prediction) -> Tree:
    latencies = {name: number(getattr(limits, name)) for name in ("ttft", "tpot", "e2e")}
    share = number(prediction.throughput.value / limits.throughput)
    ceiling = number(limits.throughput)
    return {"ceiling": ceiling, **latencies, "running": limits.running, "binds": limits.binds, "share": share}
