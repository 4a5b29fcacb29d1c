"""The figure of a trend: each metric over dated runs."""

from frontier.core.model.metrics import metric
from frontier.core.model.text import clean
from frontier.show.picture.axes import bar_of, padded_axis
from frontier.show.picture.data import Line, Panel, Picture, Role, Rule
from frontier.show.view.axis_units import display
from frontier.show.view.comparison_view import TrendView
from frontier.show.view.rough import date_text
from frontier.show.view.wording import count

MANY = 60
"""The number of runs above which they are drawn as dots without intervals: bars side by side would
be a blot."""
_DAY = 86_400.0


def trend_picture(one: TrendView) -> Picture:
    """The trend of one series, with intervals, the mean between breaks, and breaks; a panel per
    metric over the same days.
    """
    title = f"{one.series.label()}: {count(len(one.rows), 'run')}"
    notes = ("Bars: 95% intervals within a run. Dashed: the mean between breaks.", *one.notes)
    if len(one.rows) > MANY:
        notes = ("A dot is a run. Dashed: the mean between breaks.", *notes[1:])
    panels = tuple(_trend_panel(one, name) for name in one.metrics)
    return Picture("trend", title, panels, notes=notes, description=f"{title}.", tall=200.0)


def _trend_panel(one: TrendView, name: str) -> Panel:
    days = [(row.at - one.rows[0].at) / _DAY for row in one.rows]
    estimates = [row.means[name] for row in one.rows]
    scale, unit = display(name, [e.value for e in estimates], None)
    values = [e.value * scale for e in estimates]
    x = padded_axis(f"days since {date_text(one.rows[0].at)} UTC", days, log=False)
    many = len(days) > MANY
    ends = [] if many else [end * scale for e in estimates for end in (e.low, e.high)]
    y = padded_axis(f"{metric(name).label} ({unit})", [*values, *ends], log=False)
    bars = () if many else tuple(bar_of(e.scaled(scale), y) for e in estimates)
    dots = tuple(zip(days, values, strict=True))
    lines = [Line("", dots, Role.FRONTIER, "cloud" if many else "measured", "o", bars)]
    for first, last, mean in one.levels[name]:
        lines.append(Line("", ((days[first], mean * scale), (days[last], mean * scale)), Role.OPERATING, "fit"))
    rules = tuple(Rule("x", (days[at - 1] + days[at]) / 2, ("break",), Role.QUIET, dashed=True) for at, _ in one.breaks)
    return Panel(clean(metric(name).label), x, y, tuple(lines), rules=rules)
