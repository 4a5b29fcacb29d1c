"""What the detail figures of one series share: their title and notes, which points they show, the operating point."""

from collections.abc import Iterable, Sequence

from frontier.decide.wording import setting
from frontier.model import Point, amount
from frontier.plot.data import Panel, Picture, Role, Rule, View
from frontier.plot.labels import view_name


def series_figure(
    name: str, view: View, title: str, panels: Sequence[Panel], notes: Iterable[str], *, columns: int = 2,
    tall: float = 300.0,
) -> Picture:  # fmt: skip
    """The figure of one series; its notes end with what its lines do not show."""
    title = f"{view_name(view)}: {title}"
    contents = "; ".join(f"{p.title}: {', '.join(li.name for li in p.lines if li.name)}" for p in panels)
    return Picture(
        name, title, tuple(panels), notes=tuple(notes), description=f"{title}. {contents}".rstrip(" :.") + ".",
        columns=columns, tall=tall,
    )  # fmt: skip


def valid_points(view: View) -> list[Point]:
    """By concurrency, without the excluded."""
    return [p for p in view.mine if p.valid]


def excluded_notes(view: View) -> list[str]:
    """The note on what the lines do not show."""
    flagged = [setting(p.concurrency) for p in view.mine if not p.valid]
    return [f"Excluded, and so not in these charts: {', '.join(flagged)}."] if flagged else []


def chosen_rule(view: View) -> tuple[Rule, ...]:
    """The operating point, upright."""
    c = view.decision.concurrency if view.decision else None
    return (Rule("x", amount(c), (setting(c),), Role.OPERATING, dashed=True),) if c is not None else ()
