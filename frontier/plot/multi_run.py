"""Several frontiers on the same axes: two that are compared, or up to four runs or deployments in one panel per shape.

The title names a winner only where intervals separate it from all others that are drawn: who is proven inside the SLA,
who carries the most, who takes no part and why. Also the words of a comparison, which its table and JSON share.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from frontier.decide.compare import Comparison
from frontier.decide.wording import (
    Names,
    Provenance,
    apart,
    comparison_sentence,
    count,
    flag_kinds,
    gpus_note,
    left_out,
    limits_text,
    named_value,
    names_of,
)
from frontier.metrics import RATES, metric, per_gpu
from frontier.model import Estimate, Limit, Point, Verdict
from frontier.plot.data import Axis, Line, Mark, Panel, Picture, Role, View, breaks
from frontier.plot.labels import answer_cells, foot_line, joined, panel_words, sign_words, unstarred, view_sentence
from frontier.plot.picture import axes_of, mark_of, region_of, rules_of, shared_axes, staircase, telling
from frontier.text import clean, clean_name

ROLES = (Role.FRONTIER, Role.OTHER, Role.THIRD, Role.FOURTH)
"""By colour and by the shape of the mark; more than four in a panel cannot be told apart."""
SIGNS = dict(zip(ROLES, "●■▲◆", strict=True))
LONGEST = 110
"""Characters of a title that names all."""


@dataclass(frozen=True, slots=True)
class Group:
    """What shares a panel: views of one shape, and what each is called."""

    names: tuple[str, ...]
    views: tuple[View, ...]


def overlay(
    a: View, b: View, comparison: Comparison, *, names: Names | None = None, footer: Provenance | None = None,
    more: Sequence[str] = (),
) -> Picture:  # fmt: skip
    """The picture of a comparison: A in blue with dots, B in orange with squares. The title is the verdict, with the
    interval it stands on. ValueError when the objectives differ.
    """
    if a.gpus != b.gpus and not comparison.per_gpu:  # then whole deployments were compared
        a, b = dataclasses.replace(a, gpus=None), dataclasses.replace(b, gpus=None)
    group = Group(names_of(comparison, names), (a, b))
    note = gpus_note(comparison, names)
    notes = [*([note] if note else []), *([f"{title_of([group])}."] if contest(group) is not None else [])]
    return _picture([group], comparison_sentence(comparison, names), footer, [*notes, *more])


def together(groups: Sequence[Group], *, footer: Provenance | None = None, more: Sequence[str] = ()) -> Picture:
    """Up to four frontiers in one panel per shape. Only what intervals separate is called the most. `more` are notes.

    ValueError without a group, with more than four in one, or when objectives differ.
    """
    if not groups:
        raise ValueError("a picture needs at least one frontier")
    notes = _undivided(groups)
    if notes:
        groups = [
            Group(group.names, tuple(dataclasses.replace(view, gpus=None) for view in group.views)) for group in groups
        ]
    return _picture(groups, title_of(groups), footer, [*notes, *more])


def _undivided(groups: Sequence[Group]) -> list[str]:
    """Why no rate is per GPU, where some but not all say how many GPUs they have; empty where all do, or none."""
    counts = list(dict.fromkeys((n, v.gpus) for group in groups for n, v in zip(group.names, group.views, strict=True)))
    unknown = [name for name, gpus in counts if gpus is None]
    if not unknown or len(unknown) == len(counts) or not any(metric(n).unit in RATES for n in groups[0].views[0].axes):
        return []
    return [f"whole deployments, not per GPU: the number of GPUs is not known of {', '.join(unknown)}"]


def _picture(groups: Sequence[Group], title: str, footer: Provenance | None, more: Sequence[str]) -> Picture:
    one = len(groups) == 1
    views = [view for group in groups for view in group.views]
    drawn = [dataclasses.replace(v, light=None, points=_drawn(v)) for v in map(_per_gpu, views)]
    shared = None if one else shared_axes(drawn)
    panels = tuple(_panel(group, shared, alone=one) for group in groups)
    shape = views[0].frontier.shape
    stars = any(mark.star for panel in panels for mark in panel.marks)
    legend = [f"ISL {shape.isl} / OSL {shape.osl}"] if one else []
    legend += ["staircases = measured frontiers", *(["★ = operating point"] if stars else [])]
    whole = [limit for limit in _whole(views[0]) if limit.metric in views[0].axes]
    notes = [*more, *([f"not drawn, being of a whole deployment: {limits_text(whole)}"] if whole else [])]
    return Picture(
        "together",
        title,
        panels,
        legend=joined([clean(part, 400) for part in (*legend, *sign_words(views, panels))]),
        rows=_answer_rows(groups),
        notes=(*_absences(groups), *notes),
        foot=foot_line(views, footer),
        description=f"{title}.",
        columns=1 if one else 2,
        tall=505.0 if one else 300.0,
    )


def _answer_rows(groups: Sequence[Group]) -> tuple[tuple[tuple[str, ...], Role], ...]:
    """What each frontier says, with its mark and in its colour; where their GPUs differ, so is their number."""
    rows = []
    differ = len({view.gpus for group in groups for view in group.views}) > 1
    for group in groups:
        for name, view, role in zip(group.names, group.views, ROLES, strict=False):
            shape = (clean_name(view.frontier.shape.label),) if len(groups) > 1 else ()
            size = f" ({count(view.gpus, 'GPU')})" if differ and view.gpus else ""
            rows.append(((f"{SIGNS[role]} {name}{size}", *shape, *answer_cells(view)), role))
    return tuple(rows)


def _absences(groups: Sequence[Group]) -> list[str]:
    """What of each frontier is not drawn: excluded points, those without an axis, an operating point off the axes."""
    notes = []
    for group in groups:
        for name, view, role in zip(group.names, group.views, ROLES, strict=False):
            shape = f" ({clean_name(view.frontier.shape.label)})" if len(groups) > 1 else ""
            flagged = [kind.text(most=6) for kind in flag_kinds(view.mine) if kind.fatal]
            lines = [f"excluded and not drawn: {'; '.join(flagged)}"] if flagged else []
            lines += [*(f"not drawn, {line}" for line in left_out(view.mine, view.frontier)), *unstarred(view)]
            notes += [f"{SIGNS[role]} {name}{shape}, {line}" for line in lines]
    return notes


def _panel(group: Group, shared: tuple[Axis, Axis] | None, *, alone: bool) -> Panel:
    """The staircases of one shape on one pair of axes: of each the points on its frontier, and its operating point."""
    views = [_per_gpu(view) for view in group.views]
    first = views[0]
    for view in views[1:]:
        if view.axes != first.axes:
            raise ValueError(f"the frontiers have different axes: {first.axes} and {view.axes}")
    if len(views) > len(ROLES):
        raise ValueError(f"{len(views)} frontiers in one panel cannot be told apart; at most {len(ROLES)} can")
    drawn = [_drawn(view) for view in views]
    shown = [dataclasses.replace(view, light=None) for view in views]
    x, y = shared or axes_of(shown, 505.0 if alone else 300.0, only=[p for points in drawn for p in points])
    marks: list[Mark] = []
    lines: list[Line] = []
    for whole, view, points, name, role in zip(group.views, views, drawn, apart(group.names), ROLES, strict=False):
        # A limit on a rate is of the whole deployment, so that the points as they were measured are judged by it.
        measured = {p.concurrency: p for p in whole.mine}
        chosen = view.decision.concurrency if view.decision else None
        mine = [
            dataclasses.replace(
                mark, role=role, star=role if point.concurrency == chosen else None,
                struck=breaks(measured[point.concurrency], whole.hidden_limits),
            )
            for point in points if (mark := mark_of(point, view, x, y)) is not None
        ]  # fmt: skip
        marks += telling(mine)
        members = [mark for mark in mine if mark.concurrency in view.frontier.members]
        lines += staircase(members, view, x, y, role, name)
    title = "" if alone else clean(first.frontier.shape.label, 60)
    panel = Panel(
        title, x, y, tuple(lines), tuple(marks), rules_of(first, x, y), region=region_of(first, x, y), compass=True
    )
    return dataclasses.replace(panel, callouts=tuple(panel_words(shown[0], panel)))


def _drawn(view: View) -> list[Point]:
    """The points on the frontier, and the operating point: what of several frontiers is drawn."""
    chosen = view.decision.concurrency if view.decision else None
    return [p for p in view.drawable if p.concurrency == chosen or p.concurrency in view.frontier.members]


def _per_gpu(view: View) -> View:
    """The view with its rates divided by its own GPUs: one axis cannot divide by the different counts of several."""
    gpus = view.gpus
    if not gpus:
        return view
    across, up = (per_gpu(name, gpus) for name in view.axes)
    points = [
        dataclasses.replace(p, metrics={name: e.scaled(1, per_gpu(name, gpus)) for name, e in p.metrics.items()})
        for p in view.points
    ]
    limits = [limit for limit in view.sla if limit not in _whole(view)]
    band = [(x / across, low / up, high / up) for x, low, high in view.band]
    decision = view.decision and dataclasses.replace(view.decision, limits=tuple(limits))
    return dataclasses.replace(view, points=points, decision=decision, limits=limits, band=band, gpus=1)


def _whole(view: View) -> list[Limit]:
    """Limits on a rate of the whole deployment, which on an axis per GPU would be elsewhere for each."""
    return [limit for limit in view.sla if view.gpus and metric(limit.metric).unit in RATES]


# --- the winner


@dataclass(frozen=True, slots=True)
class _Proven:
    """An operating point proven inside the SLA, and its throughput, per GPU where that is drawn."""

    name: str
    view: View
    concurrency: int
    whole: float
    speed: Estimate


@dataclass(frozen=True, slots=True)
class Contest:
    """The frontiers of one panel: those that are proven, the most throughput first, and all others. `may_give` are the
    names of those proven of which a setting that is not proven lies above the first.
    """

    proven: tuple[_Proven, ...]
    others: tuple[tuple[str, View], ...]
    may_give: tuple[str, ...] = ()

    @property
    def sure(self) -> bool:
        """The interval of the first lies above that of every other one proven."""
        return bool(self.proven) and all(self.proven[0].speed.low > other.speed.high for other in self.proven[1:])


def contest(group: Group) -> Contest | None:
    """Who is proven in this panel; None without an SLA, or where more is not better."""
    up = group.views[0].axes[1]
    if metric(up).better != "higher" or all(view.decision is None for view in group.views):
        return None
    proven: list[_Proven] = []
    others: list[tuple[str, View]] = []
    for name, view in zip(group.names, group.views, strict=True):
        decision = view.decision
        is_met = decision is not None and decision.verdict is Verdict.MEETS
        if decision is None or decision.concurrency is None or not is_met or up not in decision.metrics:
            others.append((name, view))
            continue
        speed = decision.metrics[up]
        per = speed.scaled(1, per_gpu(up, view.gpus))
        proven.append(_Proven(name, view, decision.concurrency, speed.value, per))
    proven.sort(key=lambda p: -p.speed.value)
    may_give = tuple(p.name for p in proven[1:] if _undecided(p.view) > proven[0].speed.value)
    return Contest(tuple(proven), tuple(others), may_give)


def _undecided(view: View) -> float:
    """The throughput of the setting that may be better than the operating point; -inf where there is none."""
    up, step = view.axes[1], view.decision.next_step if view.decision is not None else None
    point = next((p for p in view.mine if step is not None and p.concurrency == step.concurrency), None)
    estimate = point.metrics.get(up) if point is not None else None
    return -math.inf if estimate is None else estimate.value / per_gpu(up, view.gpus)


def title_of(groups: Sequence[Group]) -> str:
    """The title of a picture of several frontiers. It names a winner only over all that are drawn."""
    if len(groups) > 1:
        return _workloads_sentence(groups)
    (group,) = groups
    if len(group.names) == 1:
        return f"{group.names[0]}: {view_sentence(group.views[0])}"
    result = contest(group)
    return _names_sentence(groups) if result is None else _panel_sentence(group, result)


def _panel_sentence(group: Group, result: Contest) -> str:
    promise = _promise([group])
    if not result.proven:
        names = _listed(group.names, "nor" if len(group.names) == 2 else "and")
        head = f"Neither {names}" if len(group.names) == 2 else f"None of {names}"
        return f"{head} is proven inside {promise}{_clauses(result, head=False)}"
    best = result.proven[0]
    up = best.view.axes[1]
    value = named_value(up, best.whole, best.view.gpus)
    words = f"{value} at concurrency {best.concurrency}"
    if len(result.proven) == 1:
        return f"Only {best.name} is proven inside {promise} ({value}){_clauses(result)}"
    if result.sure:
        of = " of those proven" if result.others else " that is proven" if result.may_give else ""
        return f"{best.name} carries the most{of} inside {promise}: {words}{_clauses(result)}"
    known = all(math.isfinite(p.speed.low) and math.isfinite(p.speed.high) for p in result.proven)
    reason = "within the interval of the next" if known else "but intervals are not known"
    return f"No clear winner inside {promise}: {best.name} carries {words}, {reason}{_clauses(result)}"


def _clauses(result: Contest, *, head: bool = True) -> str:
    """Why each of the others takes no part; without `head` only what that does not say already."""
    kinds: dict[str, list[str]] = {}
    for name, view in result.others:
        kinds.setdefault(_kind(view, result.proven[0].speed.value if result.proven else math.inf), []).append(name)
    clauses = []
    for kind, names in kinds.items():
        one = len(names) == 1
        its = "its" if one else "their"
        words = {
            "higher": f"{_owned(names)} {'frontier is' if one else 'frontiers are'} higher, but none of {its} settings "
            "is proven",
            "open": f"none of {_owned(names)} settings is proven" if head else "",
            "violates": f"nothing measured of {_listed(names)} keeps it",
            "invalid": f"{_listed(names)} {'has' if one else 'have'} no valid measurement",
            "unknown": f"{_owned(names)} throughput is not known",
            "no SLA": f"{_listed(names)} {'was' if one else 'were'} not judged",
        }
        clauses += [words[kind]] if words[kind] else []
    clauses += [f"{name} may give more, which is not proven" for name in result.may_give]
    return "".join(f"; {clause}" for clause in clauses)


def _kind(view: View, best: float) -> str:
    if view.decision is None:
        return "no SLA"
    verdict = view.decision.verdict
    if verdict is Verdict.MEETS:
        return "unknown"
    if verdict in (Verdict.VIOLATES, Verdict.INVALID):
        return verdict.value
    return "higher" if _highest_inside(view) > best else "open"


def _highest_inside(view: View) -> float:
    """The most throughput of a setting whose measured values keep every limit, proven or not."""
    up = view.axes[1]
    inside = [
        p.metrics[up].value / per_gpu(up, view.gpus) for p in view.mine
        if p.valid and up in p.metrics and all(li.metric in p.metrics for li in view.sla) and not breaks(p, view.sla)
    ]  # fmt: skip
    return max((value for value in inside if math.isfinite(value)), default=-math.inf)


def _workloads_sentence(groups: Sequence[Group]) -> str:
    """Who carries the most in how many workloads, and in how many there is no such contest."""
    names = list(dict.fromkeys(name for group in groups for name in group.names))
    results = [contest(group) for group in groups]
    if len(names) < 2 or any(result is None for result in results):
        return _names_sentence(groups)
    if all(len(group.names) == 1 for group in groups):
        return f"{_names_sentence(groups)} share no workload"
    outcomes: Counter[str] = Counter()
    won: Counter[str] = Counter()
    for group, result in zip(groups, results, strict=True):
        assert result is not None
        absent = [name for name in names if name not in group.names]
        if absent:
            outcome = f"{_listed(absent)} {'was' if len(absent) == 1 else 'were'} not measured"
        elif not result.proven:
            outcome = "nothing is proven"
        elif result.others:
            winners = [p.name for p in result.proven]
            best = result.proven[0].speed.value
            higher = [name for name, view in result.others if _kind(view, best) == "higher"]
            above = f", though {_owned(higher)} frontier is higher" if higher else ""
            outcome = f"only {_listed(winners)} {'is' if len(winners) == 1 else 'are'} proven{above}"
        elif result.may_give:
            outcome = f"{_listed(result.may_give)} may give more than is proven"
        elif result.sure:
            won[result.proven[0].name] += 1
            continue
        else:
            outcome = "no clear winner"
        outcomes[outcome] += 1
    promise = _promise(groups)
    if len(won) == 1 and not outcomes:
        every = "both" if len(groups) == 2 else f"all {len(groups)}"
        return f"{next(iter(won))} carries the most inside {promise} in {every} workloads"
    carried = [f"{name} in {won[name]}" for name in names if name in won]
    rest = outcomes.most_common()
    head = f"Inside {promise}, of {len(groups)} workloads"
    if not carried:
        return f"{head}: {', '.join(f'in {number} {outcome}' for outcome, number in rest)}"
    carried += [f"{outcome} in {number}" for outcome, number in rest]
    return f"{head} the most is carried by {', '.join(carried)}"


def _promise(groups: Sequence[Group]) -> str:
    inside = {limits_text(view.sla) for group in groups for view in group.views}
    return inside.pop() if len(inside) == 1 else "its SLA"


def _names_sentence(groups: Sequence[Group]) -> str:
    names = list(dict.fromkeys(name for group in groups for name in group.names))
    if len(names) == 1:
        return f"The frontier of {names[0]}"
    sentence = f"The frontiers of {_listed(names)}"
    return sentence if len(sentence) <= LONGEST else f"The frontiers of {len(names)} deployments"


def _listed(names: Sequence[str], last: str = "and") -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


def _owned(names: Sequence[str]) -> str:
    return _listed([f"{name}'s" for name in names])
