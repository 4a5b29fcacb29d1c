"""The figure `hours`: the limited latencies of a hold, window by window."""

from collections.abc import Sequence

from frontier.core.model.errors import UsageError
from frontier.core.model.loads import NO_LOAD
from frontier.core.model.metrics import metric
from frontier.core.model.text import clean
from frontier.core.model.units import count
from frontier.extras.verify.soak import HOUR, Held, SoakPlan, judge
from frontier.extras.verify.soak_text import growth_texts
from frontier.extras.verify.soak_windows import EVENT, judged_limits, read
from frontier.run import Run
from frontier.show.picture.axes import padded_axis
from frontier.show.picture.data import Axis, Line, Panel, Picture, Role, Rule
from frontier.show.view.axis_units import seconds_axis
from frontier.show.view.series_view import SeriesView
from frontier.show.view.wording import load_words
from frontier.store.run_dir import RunDirectory


def detail_figures(
    run: Run,
    views: Sequence[SeriesView],
    name: str,
    at: int | None = None,  # noqa: ARG001
) -> list[tuple[SeriesView, Picture]]:
    """The figure of the run's last hold. UsageError where it has none."""
    lines = [line for line in RunDirectory.read_checks(run.path).journal_lines() if line["event"] == EVENT]
    for view in views:
        decision = view.decision
        if decision is None or not lines or decision.series.label(keep_shape=True) not in str(lines[-1]["hold"]):
            continue
        hold = str(lines[-1]["hold"])
        plan = SoakPlan(decision, tuple(judged_limits(decision.limits)), 0.0, hold)
        if windows := read(lines, hold):
            return [(view, _figure(judge(plan, windows), name))]
    raise UsageError("no operating point of this run was held", f"hold it:  frontier verify {run.path} --for 8h")


def _figure(held: Held, name: str) -> Picture:
    begun = held.windows[0].begun
    length = held.windows[-1].ended - begun
    unit_of_time, each = ("minutes", 60.0) if length < 2 * HOUR else ("hours", HOUR)
    limits = [limit for limit in held.plan.limits if limit.of.p is not None]
    panels = []
    for limit in limits:
        valid = [(w, v) for w in held.windows if not w.excluded and (v := w.values.get(limit.metric)) is not None]
        scale, unit = (1.0, "tok/s") if limit.of.inverted else seconds_axis([v for _, v in valid] or [limit.promise])
        points = tuple((((w.begun + w.ended) / 2 - begun) / each, v * scale) for w, v in valid)
        y = padded_axis(f"{limit.of.label} ({unit})", [*(v for _, v in points), limit.promise * scale], log=False)
        rules = [Rule("y", limit.promise * scale, (str(limit),))]
        rules += [
            Rule("x", (growth.since - begun) / each, (f"+{growth.times - 1:.0%}",), Role.OPERATING, dashed=True)
            for what, growth in held.growths
            if what == limit.metric
        ]
        x, line = (
            Axis(f"{unit_of_time} since it began", 0.0, max(length / each, 1e-3)),
            Line("window", points, Role.FRONTIER, "cloud"),
        )
        panels.append(Panel(metric(limit.metric).label, x, y, (line,), rules=tuple(rules)))
    decision = held.plan.decision
    title = (
        f"{clean(decision.shape.label, 40)} {load_words(decision.load or NO_LOAD, decision.shape)}, window by window"
    )
    notes = [f"A dot: one of {count(len(held.windows), 'window')}."]
    notes += growth_texts(held)
    return Picture(name, title, tuple(panels), notes=tuple(notes), description=f"{title}.", tall=260)
