"""Share figure: over the share of one class of a mix, the operating point and the lowest setting that breaks a limit,
by the class that breaks.
"""

from collections.abc import Sequence

from frontier.decide.traffic import break_evidence, break_title, lowest_violation, share_breaks, share_of, varied_class
from frontier.decide.wording import clean
from frontier.metrics import metric
from frontier.model import Decision, unnamed
from frontier.plot.data import Line, Panel, Picture, Role, Rule, concurrency_axis, padded_axis

_BREAKING = (Role.SLA, Role.THIRD, Role.FOURTH, Role.OTHER, Role.FLAGGED)
_MARKERS = ("v", "s", "D", "^", "P")


def share_picture(decisions: Sequence[Decision]) -> Picture | None:
    """The figure, a panel per deployment; None where no share of a class was swept, or nothing was decided."""
    panels, notes, told, titles = [], [], [], []
    for deployment in dict.fromkeys(d.deployment for d in decisions):
        mine = [d for d in decisions if d.deployment == deployment]
        varied = varied_class([d.shape for d in mine])
        if varied is None:
            continue
        found = share_breaks(mine)
        told += [break_evidence(one) for one in found]
        titles += [break_title(one) for one in found]
        panels.append(_panel(varied, deployment, mine, tuple(one.concurrency for one in found)))
        notes += [f"{share_of(varied, d.shape) * 100:.4g}% {varied}: nothing is proven"
                  for d in mine if d.concurrency is None]  # fmt: skip
    panels = [panel for panel in panels if not panel.is_empty]
    if not panels:
        return None
    title = titles[0] if len(titles) == 1 else "Operating points by the share of a class, and the settings that break"
    notes = [*told, "Between the shares nothing was measured: the dotted lines only join them.", *notes]
    return Picture("shares", title, tuple(panels), notes=tuple(map(clean, notes)), description=f"{title}.", tall=300.0)


def _panel(varied: str, deployment: str, decisions: Sequence[Decision], at: Sequence[int]) -> Panel:
    proven = tuple((share_of(varied, d.shape) * 100, float(d.concurrency)) for d in decisions if d.concurrency)
    broken: dict[str, list[tuple[float, float]]] = {}
    for d in decisions:
        if (violated := lowest_violation(d)) is not None:
            name = violated.binding and metric(violated.binding).group
            broken.setdefault(name or "all together", []).append(
                (share_of(varied, d.shape) * 100, float(violated.concurrency))
            )
    lines = [Line("highest proven", proven, Role.OPERATING, "measured", "o")] if proven else []
    for (name, points), role, marker in zip(broken.items(), _BREAKING, _MARKERS, strict=False):
        lines.append(Line(f"lowest that breaks a limit of {name}", tuple(points), role, "measured", marker))
    every = [c for line in lines for _, c in line.points] or [1.0]
    shares = [share_of(varied, d.shape) * 100 for d in decisions]
    x = padded_axis(f"share of {varied} in the sessions started (%)", shares, log=False)
    rules = tuple(Rule("y", float(c), (f"c={c}",), Role.QUIET, dashed=True) for c in at)
    title = "" if unnamed(deployment) else clean(deployment)
    return Panel(title, x, concurrency_axis([round(c) for c in every]), tuple(lines), rules=rules)
