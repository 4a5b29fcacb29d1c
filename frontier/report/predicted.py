"""Predicted frontiers as tables and JSON: what is expected, how sure, and what the silicon allows at most."""

import math
from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from frontier.decide.wording import clean
from frontier.hardware.predict import Forecast, Known, Prediction
from frontier.hardware.roofline import Limits
from frontier.model import Estimate
from frontier.report.json_out import Tree, estimate_tree, number
from frontier.report.tables import to_text
from frontier.units import format_number, format_seconds, format_share

SCHEMA = "frontier.predict/1"
BAND = "the band holds 95 of 100 such predictions"
BAND_HEAD = "95% band"


def forecast_table(forecasts: Sequence[Forecast], *, width: int = 100, colour: bool = False) -> str:
    """One table per (deployment, shape, what-if): measured points where there are any, and predictions around them."""
    blocks: list[RenderableType] = []
    for forecast in forecasts:
        blocks += [Text("")] if blocks else []
        blocks += _block(forecast, width)
    return to_text(Group(*blocks), width=width, colour=colour)


def _block(forecast: Forecast, width: int) -> list[RenderableType]:
    shape, deployment = clean(forecast.shape.label, 60), clean(forecast.deployment, 60)
    head = shape if deployment in ("", "default") else f"{deployment} · {shape}"
    head = f"{head}   if {clean(forecast.variant, 80)}" if forecast.variant else head
    lights: list[Limits | None] = list(forecast.lights) or [None] * len(forecast.predictions)
    rows = [(p.concurrency, _row(p, at)) for p, at in zip(forecast.predictions, lights, strict=True)]
    rows += [(k.concurrency, _measured(k, forecast)) for k in forecast.measured]
    table, bands = _table([row for _, row in sorted(rows, key=lambda pair: pair[0])], width)
    notes = [f"{clean(forecast.basis, 300)}; {bands}"]
    if any(p.reach == "unmeasured" for p in forecast.predictions):
        notes.append("TTFT is the least to expect: real requests come in waves, and wait for more than the engine")
    if any(p.reach == "simulated" for p in forecast.predictions):
        notes = [clean(forecast.basis, 300)]
    notes.append("TTFT and TPOT are means")
    waiting = [p for p in forecast.predictions if p.running < p.concurrency]
    if waiting:
        most = format_number(math.floor(waiting[0].running))
        notes.append(f"only about {most} requests run at once; from there on the others wait")
    return [Text(head, style="bold"), table, *(Text(note, style="dim") for note in notes)]


# Head, rank (the highest is given up first where there is no room), and whether it stands left.
_COLUMNS = (
    ("c", 0, False), ("tok/s", 0, False), (BAND_HEAD, 2, True), ("TTFT", 0, False), (BAND_HEAD, 1, True),
    ("TPOT", 0, False), (BAND_HEAD, 3, True), ("basis", 4, True), ("light tok/s", 7, False), ("of light", 5, False),
    ("light bound by", 6, True),
)  # fmt: skip
_GAP = 2


def _table(rows: Sequence[Sequence[Text]], width: int) -> tuple[Table, str]:
    """The columns that say anything, as many as fit; and what the bands hold, or which of them found no room."""
    widths = [max(len(head), *(row[i].cell_len for row in rows)) + _GAP for i, (head, _, _) in enumerate(_COLUMNS)]
    said = [i for i in range(len(_COLUMNS)) if any(row[i].plain.strip("–") for row in rows)]
    kept: list[int] = []
    for i in sorted(said, key=lambda i: _COLUMNS[i][1]):
        if sum(widths[k] for k in kept) + widths[i] <= width + _GAP:
            kept.append(i)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), show_edge=False, header_style="dim")
    for i in sorted(kept):
        table.add_column(_COLUMNS[i][0], justify="left" if _COLUMNS[i][2] else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(row[i] for i in sorted(kept)))
    hidden = [_COLUMNS[i - 1][0] for i in said if _COLUMNS[i][0] == BAND_HEAD and i not in kept]
    room = f"; no room for that of {' and '.join(hidden)}: see --json" if hidden else ""
    return table, f"{BAND}{room}"


def _row(said: Prediction, at: Limits | None) -> list[Text]:
    rate = said.throughput
    ttft = format_seconds(said.ttft.value)
    light = ("–",) * 3 if at is None else (
        format_number(at.throughput), format_share(rate.value / at.throughput), at.binds
    )  # fmt: skip
    cells = (
        f"{said.concurrency:g}", format_number(rate.value), _band(rate, format_number),
        *((f"≥ {ttft}", "") if math.isinf(said.ttft.high) else (ttft, _band(said.ttft, format_seconds))),
        format_seconds(said.tpot.value), _band(said.tpot, format_seconds), said.reach, *light,
    )  # fmt: skip
    return [Text(cell) for cell in cells]


def _measured(known: Known, forecast: Forecast) -> list[Text]:
    """A measured point among the predictions; its rate by Little's law, as theirs."""
    osl = forecast.shape.osl.mean
    rate = known.concurrency * osl / (known.ttft + (osl - 1) * known.tpot)
    ttft, tpot = format_seconds(known.ttft), format_seconds(known.tpot)
    cells = (f"{known.concurrency:g}", format_number(rate), "", ttft, "", tpot, "", "measured", "", "", "")  # fmt: skip
    return [Text(cell, style="bold") for cell in cells]


def _band(estimate: Estimate, words: Callable[[float], str]) -> str:
    if estimate.low == estimate.high:
        return ""
    return f"[{words(estimate.low)}, {words(estimate.high)}]"


def forecast_json(forecasts: Sequence[Forecast]) -> Tree:
    """The answer of `frontier predict --json`. A prediction is never an operating point; `reach` says how far it is
    from measured ground. An open end of an interval is null."""
    return {"schema": SCHEMA, "shapes": [_tree(forecast) for forecast in forecasts]}


def _tree(forecast: Forecast) -> Tree:
    lights: list[Limits | None] = list(forecast.lights) or [None] * len(forecast.predictions)
    return {
        "deployment": forecast.deployment,
        "shape": forecast.shape.label,
        "what_if": forecast.variant or None,
        "basis": forecast.basis,
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
                },
                "light": at and _light(at, p),
            }
            for p, at in zip(forecast.predictions, lights, strict=True)
        ],
    }


def _light(at: Limits, said: Prediction) -> Tree:
    return {
        "ceiling": number(at.throughput), "ttft": number(at.ttft), "tpot": number(at.tpot), "e2e": number(at.e2e),
        "running": at.running, "binds": at.binds, "share": number(said.throughput.value / at.throughput),
    }  # fmt: skip
