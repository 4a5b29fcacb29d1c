"""The winner among several frontiers inside an SLA: who is proven, who carries the most, who takes no part and why."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from frontier.decide.wording import limits_text, named_value
from frontier.metrics import metric, per_gpu
from frontier.model import Estimate, Verdict
from frontier.plot.data import View, breaks, view_sentence

LONGEST = 110
"""Characters of a title that names all."""


@dataclass(frozen=True, slots=True)
class Group:
    """What shares a panel: views of one shape, and what each is called."""

    names: tuple[str, ...]
    views: tuple[View, ...]


@dataclass(frozen=True, slots=True)
class _Proven:
    """An operating point proven inside the SLA, and its throughput, per GPU where that is drawn."""

    name: str
    view: View
    concurrency: int
    whole: float
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Contest:
    """The frontiers of one panel: those that are proven, the most throughput first, and all others."""

    proven: tuple[_Proven, ...]
    others: tuple[tuple[str, View], ...]

    @property
    def sure(self) -> bool:
        """The interval of the first lies above that of every other one proven."""
        return bool(self.proven) and all(self.proven[0].low > other.high for other in self.proven[1:])


def contest(group: Group) -> Contest | None:
    """Who is proven in this panel; None without an SLA, or where more is not better."""
    up = group.views[0].axes[1]
    if metric(up).better != "higher" or all(view.decision is None for view in group.views):
        return None
    proven: list[_Proven] = []
    others: list[tuple[str, View]] = []
    for name, view in zip(group.names, group.views, strict=True):
        found = view.decision
        if found is None or found.verdict is not Verdict.MEETS or found.concurrency is None or up not in found.metrics:
            others.append((name, view))
            continue
        of: Estimate = found.metrics[up]
        by = per_gpu(up, view.gpus)
        proven.append(_Proven(name, view, found.concurrency, of.value, of.value / by, of.low / by, of.high / by))
    return Contest(tuple(sorted(proven, key=lambda p: -p.value)), tuple(others))


def title_of(groups: Sequence[Group]) -> str:
    """The title of a picture of several frontiers. It names a winner only over all that are drawn."""
    if len(groups) > 1:
        return _workloads_sentence(groups)
    (group,) = groups
    if len(group.names) == 1:
        return f"{group.names[0]}: {view_sentence(group.views[0])}"
    found = contest(group)
    return _names_sentence(groups) if found is None else _panel_sentence(group, found)


def _panel_sentence(group: Group, found: Contest) -> str:
    promise = _promise([group])
    if not found.proven:
        names = _listed(group.names, "nor" if len(group.names) == 2 else "and")
        head = f"Neither {names}" if len(group.names) == 2 else f"None of {names}"
        return f"{head} is proven inside {promise}{_clauses(found, head=False)}"
    best = found.proven[0]
    up = best.view.axes[1]
    value = named_value(up, best.whole, best.view.gpus)
    said = f"{value} at concurrency {best.concurrency}"
    if len(found.proven) == 1:
        return f"Only {best.name} is proven inside {promise} ({value}){_clauses(found)}"
    if found.sure:
        of = "" if not found.others else " of those proven"
        return f"{best.name} carries the most{of} inside {promise}: {said}{_clauses(found)}"
    known = all(math.isfinite(p.low) and math.isfinite(p.high) for p in found.proven)
    apart = "within the interval of the next" if known else "but intervals are not known"
    return f"No clear winner inside {promise}: {best.name} carries {said}, {apart}{_clauses(found)}"


def _clauses(found: Contest, *, head: bool = True) -> str:
    """Why each of the others takes no part; without `head` only what that does not say already."""
    kinds: dict[str, list[str]] = {}
    for name, view in found.others:
        kinds.setdefault(_kind(view, found.proven[0].value if found.proven else math.inf), []).append(name)
    said = []
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
        said += [words[kind]] if words[kind] else []
    return "".join(f"; {words}" for words in said)


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
        if p.valid and up in p.metrics and all(li.metric in p.metrics and not breaks(p, li) for li in view.sla)
    ]  # fmt: skip
    return max((value for value in inside if math.isfinite(value)), default=-math.inf)


def _workloads_sentence(groups: Sequence[Group]) -> str:
    """Who carries the most in how many workloads, and in how many there is no such contest."""
    names = list(dict.fromkeys(name for group in groups for name in group.names))
    found = [contest(group) for group in groups]
    if len(names) < 2 or any(one is None for one in found):
        return _names_sentence(groups)
    if all(len(group.names) == 1 for group in groups):
        return f"{_names_sentence(groups)} share no workload"
    parts: dict[str, int] = {}
    won: dict[str, int] = {}
    for group, one in zip(groups, found, strict=True):
        assert one is not None
        absent = [name for name in names if name not in group.names]
        if absent:
            said = f"{_listed(absent)} {'was' if len(absent) == 1 else 'were'} not measured"
        elif not one.proven:
            said = "nothing is proven"
        elif one.others:
            said = f"only {_listed([p.name for p in one.proven])} {'is' if len(one.proven) == 1 else 'are'} proven"
        elif one.sure:
            won[one.proven[0].name] = won.get(one.proven[0].name, 0) + 1
            continue
        else:
            said = "no clear winner"
        parts[said] = parts.get(said, 0) + 1
    promise = _promise(groups)
    if len(won) == 1 and not parts:
        every = "both" if len(groups) == 2 else f"all {len(groups)}"
        return f"{next(iter(won))} carries the most inside {promise} in {every} workloads"
    carried = [f"{name} in {won[name]}" for name in names if name in won]
    rest = sorted(parts.items(), key=lambda item: -item[1])
    head = f"Inside {promise}, of {len(groups)} workloads"
    if not carried:
        return f"{head}: {', '.join(f'in {number} {said}' for said, number in rest)}"
    return f"{head} the most is carried by {', '.join([*carried, *(f'{said} in {number}' for said, number in rest)])}"


def _promise(groups: Sequence[Group]) -> str:
    inside = {limits_text(view.sla) for group in groups for view in group.views}
    return inside.pop() if len(inside) == 1 else "its SLA"


def _names_sentence(groups: Sequence[Group]) -> str:
    names = list(dict.fromkeys(name for group in groups for name in group.names))
    if len(names) == 1:
        return f"The frontier of {names[0]}"
    said = f"The frontiers of {_listed(names)}"
    return said if len(said) <= LONGEST else f"The frontiers of {len(names)} deployments"


def _listed(names: Sequence[str], last: str = "and") -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


def _owned(names: Sequence[str]) -> str:
    return _listed([f"{name}'s" for name in names])
