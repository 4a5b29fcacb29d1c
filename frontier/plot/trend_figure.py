"""Trend figure: each metric of dated runs with its intervals, the levels between change points, and breaks."""

from frontier.decide.trend import Step, Trend, date_text
from frontier.decide.wording import clean
from frontier.metrics import display, metric
from frontier.plot.data import Line, Panel, Picture, Role, Rule, bar_of, padded_axis

MANY = 60
"""More runs than this are drawn as dots without intervals: bars side by side would be a blot."""
_DAY = 86_400.0


def trend_picture(one: Trend, title: str, notes: tuple[str, ...]) -> Picture:
    """The figure of one series, a panel per metric over the same days. ValueError without a run."""
    if not one.runs:
        raise ValueError("a trend without a run has no picture")
    notes = ("Bars: 95% intervals within a run. Dashed: levels between changes.", *notes)
    if len(one.runs) > MANY:
        notes = ("A dot is a run. Dashed: levels between changes.", *notes[1:])
    panels = tuple(_panel(one, name) for name in one.metrics)
    return Picture("trend", title, panels, notes=notes, description=f"{title}.", tall=200.0)


def _panel(one: Trend, name: str) -> Panel:
    days = [(run.at - one.runs[0].at) / _DAY for run in one.runs]
    estimates = [run.mean(name, one.settings) for run in one.runs]
    scale, unit = display(name, [e.value for e in estimates], None)
    values = [e.value * scale for e in estimates]
    x = padded_axis(f"days since {date_text(one.runs[0].at)} UTC", days, log=False)
    many = len(days) > MANY
    ends = [] if many else [end * scale for e in estimates for end in (e.low, e.high)]
    y = padded_axis(f"{metric(name).label} ({unit})", [*values, *ends], log=False)
    bars = () if many else tuple(bar_of(e.scaled(scale), y) for e in estimates)
    dots = tuple(zip(days, values, strict=True))
    lines = [Line("", dots, Role.FRONTIER, "cloud" if many else "measured", "o", bars)]
    for level in one.levels(name):
        mean = sum(values[i] for i in level) / len(level)
        lines.append(Line("", ((days[level[0]], mean), (days[level[-1]], mean)), Role.OPERATING, "fit"))

    def between(at: int) -> float:
        return (days[at - 1] + days[at]) / 2

    rules = [_step_rule(step, between(step.at)) for step in one.steps if step.metric == name]
    rules += [Rule("x", between(at), ("break",), Role.QUIET, dashed=True) for at, _ in one.breaks]
    return Panel(clean(metric(name).label), x, y, tuple(lines), rules=tuple(rules))


def _step_rule(step: Step, at: float) -> Rule:
    return Rule("x", at, (step.text,), Role.OPERATING if step.change > 0 else Role.SLA)
