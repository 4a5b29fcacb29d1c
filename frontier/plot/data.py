"""What a panel is made from, and the words around it: title, key, notes, foot and description."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from frontier.decide.wording import (
    Provenance,
    apart,
    brief_sentence,
    clean,
    clean_name,
    decision_sentence,
    flag_kinds,
    left_out,
    limits_text,
    middle_cut,
    setting,
    value_text,
)
from frontier.metrics import ENERGY, metric
from frontier.model import Decision, Estimate, Frontier, Limit, Point, Verdict
from frontier.plot.picture_model import Role
from frontier.stats import cost_energy

NBSP = "\u00a0"
SEPARATOR = f"{NBSP}· "
TOGETHER = re.compile(r"(?<=[\d∞]) (?=[a-zµ])|(?<=concurrency) (?=\d)|(?<=[≤≥]) |(?<=p99) |(?<=p50) | (?=[≤≥])")
SURE = 0.9
"""A frontier point that is non-dominated in fewer than this share of bootstrap replicates is drawn pale."""


@dataclass(frozen=True, slots=True)
class Light:
    """The speed of light: a ceiling of throughput in the metric's own unit, and the assumption written on it.

    `curve` holds (x, y) pairs in the metrics' own units where the ceiling depends on latency; without it a level line.
    """

    ceiling: float
    assumption: str
    curve: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """What one panel shows. `limits` defaults to the decision's; `x` names the objective drawn horizontally.

    `band` is the attainment band, ascending in x: (x, low, high) in the metrics' own units, each holding from its x to
    the next worse one. `expected` are predictions, (concurrency, x, y) in the metrics' own units: drawn dashed, their
    intervals being the bands of the prediction.
    """

    points: Sequence[Point]
    frontier: Frontier
    decision: Decision | None = None
    limits: Sequence[Limit] = ()
    light: Light | None = None
    gpus: int | None = None
    x: str | None = None
    band: Sequence[tuple[float, float, float]] = ()
    expected: Sequence[tuple[float, Estimate, Estimate]] = ()

    @property
    def mine(self) -> list[Point]:
        """The points of this deployment and shape, by concurrency."""
        of = self.frontier
        chosen = [p for p in self.points if p.deployment == of.deployment and p.shape == of.shape]
        return sorted(chosen, key=lambda p: p.concurrency)

    @property
    def sla(self) -> tuple[Limit, ...]:
        return tuple(self.limits) or (self.decision.limits if self.decision else ())

    @property
    def axes(self) -> tuple[str, str]:
        """(horizontal, vertical): `x` when given, else the objective that is better low, else the second."""
        first, second = self.frontier.objectives
        across = self.x
        if across is None:
            across = first if metric(first).better == "lower" and metric(second).better == "higher" else second
        if across not in (first, second):
            raise ValueError(f"{across} is not an objective of this frontier: it has {first} and {second}")
        return across, second if across == first else first


def panel_name(view: View) -> str:
    """'1024/256', or 'fp8 · 1024/256' when the deployment has a name of its own."""
    shape, deployment = clean_name(view.frontier.shape.label), _deployment(view, 40)
    return f"{deployment} · {shape}" if deployment else shape


def panel_names(views: Sequence[View]) -> list[str]:
    """What each of several panels is called: by what they differ in, the deployment, the shape, or both. What all have
    in common is in the key.
    """
    shapes = [clean_name(view.frontier.shape.label) for view in views]
    if len({view.frontier.deployment for view in views}) == 1:
        return shapes
    names = apart([_deployment(view, 200) or "default" for view in views])
    if len(set(shapes)) == 1:
        return [middle_cut(name, 60) for name in names]
    return [f"{middle_cut(name, 40)} · {shape}" for name, shape in zip(names, shapes, strict=True)]


def _deployment(view: View, longest: int = 60) -> str:
    """The deployment's name; '' where nobody gave it one."""
    name = clean_name(view.frontier.deployment, longest)
    return "" if name == "default" else name


def headline(views: Sequence[View]) -> str:
    """The title: the decision of one view, or how many of several keep their SLA."""
    if len(views) == 1:
        return view_sentence(views[0])
    decided = [v.decision for v in views if v.decision is not None]
    shapes, deployments = ({getattr(v.frontier, of) for v in views} for of in ("shape", "deployment"))
    what = "deployments" if len(shapes) == 1 and len(deployments) == len(views) else "workloads"
    if not decided:
        return f"The frontiers of {len(views)} {what}"
    met = sum(d.verdict is Verdict.MEETS for d in decided)
    promises = {limits_text(d.limits) for d in decided}
    promise = promises.pop() if len(promises) == 1 else "its SLA"
    if met == len(views):
        return f"{'Both' if met == 2 else f'All {met}'} {what} keep {promise}"
    some = (
        f"None of the {len(views)} {what} is"
        if met == 0
        else f"{met} of {len(views)} {what} {'is' if met == 1 else 'are'}"
    )
    return f"{some} proven to keep {promise}"


def view_sentence(view: View, *, brief: bool = False) -> str:
    """The decision, or without an SLA the top of the frontier."""
    across, up = view.axes
    if view.decision is not None:
        say = brief_sentence if brief else decision_sentence
        return say(view.decision, throughput=up, gpus=view.gpus)
    by_concurrency = {p.concurrency: p for p in view.mine}
    ends = [by_concurrency[c] for c in view.frontier.members if c in by_concurrency]
    if not ends:
        return "No setting gave a valid measurement"
    best = max(ends, key=lambda p: p.metrics[up].value if metric(up).better == "higher" else -p.metrics[up].value)
    tail = value_text(across, best.metrics[across].value)
    most = value_text(up, best.metrics[up].value, view.gpus)
    said = f"Up to {most} at {metric(across).label} {tail}"
    return said if brief else f"{said} ({setting(best.concurrency)})"


def key_line(views: Sequence[View]) -> str:
    """The subtitle: what the signs mean, only those that occur."""
    roles = {role_of(p, v.frontier) for v in views for p in v.mine if all(name in p.metrics for name in v.axes)}
    estimates = [p.metrics[a] for v in views for p in v.mine for a in v.axes if a in p.metrics]
    parts = list(filter(None, [_deployment(views[0])])) if len({v.frontier.deployment for v in views}) == 1 else []
    parts += [_shape_words(views[0])] if len({v.frontier.shape for v in views}) == 1 else []
    if Role.FRONTIER in roles:
        parts.append("staircase = measured frontier")
    if any(v.band for v in views):
        parts.append("shade = 90% of resamples")
    parts.append("number = concurrency")
    if len(views) > 1:
        parts.append("each panel has its own axes")
    known = [e for e in estimates if not (math.isinf(e.low) and math.isinf(e.high))]
    parts.append(doubt_words(views))
    if any(math.isinf(e.high) or math.isinf(e.low) for e in known):
        parts.append("arrow = no bound")
    if any(v.frontier.probability.get(c, 1.0) < SURE for v in views for c in v.frontier.members):
        parts.append("pale = may be dominated")
    if Role.DOMINATED in roles:
        parts.append("✕ = dominated")
    if any(breaks(p, limit) for v in views for p in v.mine for limit in hidden_limits(v)):
        parts.append("struck = breaks a limit not on these axes")
    if Role.FLAGGED in roles:
        parts.append("○ = flagged, never chosen")
    if any(v.expected for v in views):
        parts.append("◇ dashed = predicted, not measured")
        parts.append("thin bars hold 95 of 100 predictions")
    return SEPARATOR.join(part.replace(" ", NBSP) for part in parts)


def doubt_words(views: Sequence[View]) -> str:
    """What the bars are, or that there are none."""
    estimates = (p.metrics[a] for v in views for p in v.mine for a in v.axes if a in p.metrics)
    known = any(not (math.isinf(e.low) and math.isinf(e.high)) for e in estimates)
    return "bars = 95% CI" if known else "intervals not known"


def _shape_words(view: View) -> str:
    shape = view.frontier.shape
    lengths = f"ISL {shape.isl} / OSL {shape.osl}"
    return f"{clean_name(shape.name, 60)} · {lengths}" if shape.name else lengths


def hidden_limits(view: View) -> tuple[Limit, ...]:
    """The limits on metrics that are on neither axis: the shaded region knows nothing of them."""
    return tuple(limit for limit in view.sla if limit.metric not in view.axes)


def breaks(point: Point, limit: Limit) -> bool:
    """Whether the measured value is beyond the limit; False where the metric is not known."""
    if (estimate := point.metrics.get(limit.metric)) is None:
        return False
    if metric(limit.metric).better == "lower":
        return estimate.value > limit.promise
    return estimate.value < limit.promise


def role_of(point: Point, frontier: Frontier) -> Role:
    if not point.valid or point.concurrency in frontier.excluded:
        return Role.FLAGGED
    return Role.FRONTIER if point.concurrency in frontier.members else Role.DOMINATED


def notes_of(view: View, head: str) -> list[str]:
    """Under the panel: why points are flagged, and which could not be drawn. `head` says of which panel."""
    across = view.axes[0]
    told = [kind.text(most=6) for kind in flag_kinds(view.mine) if kind.fatal]
    found = [f"{head}○  " + f"{NBSP}{SEPARATOR}{NBSP}".join(told)] if told else []
    infinite = [p for p in view.mine if across in p.metrics and math.isinf(p.metrics[across].value)]
    if infinite:
        names = ", ".join(setting(p.concurrency) for p in infinite)
        found.append(f"{head}▷  at the edge: too many requests failed for a {metric(across).label} to exist: {names}")
    rest = [p for p in view.mine if p not in infinite]
    drawn, absent = (
        [p for p in rest if all(name in p.metrics for name in view.axes) is known] for known in (True, False)
    )
    found += [f"{head}○  {line}" for line in left_out(drawn, view.frontier)]
    found += [f"{head}not drawn, {line}" for line in left_out(absent, view.frontier)]
    return [*found, *(f"{head}{line}" for line in unstarred(view))]


def unstarred(view: View) -> list[str]:
    """The note where the operating point cannot be drawn on these axes."""
    chosen = view.decision.concurrency if view.decision else None
    point = next((p for p in view.mine if p.concurrency == chosen), None)
    missing = [metric(name).label for name in view.axes if point is not None and name not in point.metrics]
    if chosen is None or not (point is None or missing):
        return []
    why = f"it has no {' and no '.join(missing)}" if missing else "it is not among these points"
    return [f"★  the operating point {setting(chosen)} is not on these axes: {why}"]


def foot_line(views: Sequence[View], provenance: Provenance | None) -> str:
    """Model, server, hardware, loop, repeats, n, errors, run."""
    known = provenance or Provenance(loop=None)
    points = [p for v in views for p in v.mine]
    parts = [known.remark, known.model, f"server {known.server}" if known.server else None, known.hardware, known.loop]
    if points:
        repeats, n = sorted({p.repeats for p in points}), sorted(p.n for p in points if p.n) or [0]
        parts.append(f"{_span(repeats[0], repeats[-1])} repeat{'' if repeats[-1] == 1 else 's'}")
        parts.append(f"n = {_span(n[0], n[-1])} per point" if n[0] else "n not known")
    rates = [(p.metrics["error_rate"].value, p.n) for p in points if "error_rate" in p.metrics]
    if rates and (total := sum(n for _, n in rates)):
        parts.append(f"{sum(r * n for r, n in rates) / total * 100:.2g}% errors")
    if any(name in ENERGY for v in views for name in (*v.axes, *(limit.metric for limit in v.sla))):
        parts.append(cost_energy.power_text(p.power for p in points if p.power))
    parts.append(f"run {known.run}" if known.run else None)
    return SEPARATOR.join(clean(part).replace(" ", NBSP) for part in parts if part)


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def describe(views: Sequence[View], title: str) -> str:
    """For a reader who cannot see the picture."""
    said = [title + "."]
    for view in views:
        across, up = view.axes
        on = ", ".join(str(c) for c in sorted(view.frontier.members)) or "none"
        axes = f"{metric(up).label} against {metric(across).label}"
        said.append(f"{panel_name(view)}: {axes}; concurrencies on the frontier: {on}.")
    return " ".join(said)
