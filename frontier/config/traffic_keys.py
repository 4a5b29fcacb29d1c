"""The `traffic` of a config: a mix of named shapes, each class with its share of the sessions
started and its own SLA.

A class may have several shares: then there is a mix for each, in which the others fill the rest in
proportion.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from frontier.config.sla import read_limits
from frontier.core.decisions import Limit
from frontier.core.metrics import CLASS_NAME, TURN_CLASSES, metric
from frontier.core.shapes import Shape, TrafficClass
from frontier.fields import Problem, Problems, share, shown, without_nulls

MOST_CLASSES, MOST_SHARES = 8, 20
_EXAMPLE = "write {chat: {share: 70%, sla: {p99_ttft: 500ms}}, rag: {share: 30%}}"


@dataclass(frozen=True, slots=True)
class ClassConfig:
    """A class: its shares (several: a mix for each; none: what the others leave) and the limits on
    its requests.
    """

    shares: tuple[float, ...]
    limits: tuple[Limit, ...]


Traffic = Mapping[str, ClassConfig]
"""The classes by the names of their shapes."""


def read_traffic(value: Any) -> Traffic:
    """The `traffic` key: {chat: {share: 70%, sla: {p99_ttft: 500ms}}, rag: {share: [10%, 30%]}}."""
    if not isinstance(value, dict):
        raise Problem("{key} is named shapes with their shares", _EXAMPLE)
    if not 2 <= len(value) <= MOST_CLASSES:
        raise Problem(f"{{key}}: a mix has 2 to {MOST_CLASSES} classes", _EXAMPLE)
    problems = Problems()
    classes = {}
    for name, item in value.items():
        if not isinstance(name, str) or not CLASS_NAME.fullmatch(name) or name in TURN_CLASSES:
            hint = "a class is named by letters, digits, _ and -, and neither first nor later"
            problems.append(Problem(f"{shown(name)} cannot name a class", hint, name, at_key=True))
        elif (one := problems.read(partial(_class, name), item, name)) is not None:
            classes[name] = one
    problems.check()
    _check_shares(classes)
    return classes


def _class(name: str, value: Any) -> ClassConfig:
    if not isinstance(value, dict):
        raise Problem("{key} has a share and may have an sla", _EXAMPLE)
    value = without_nulls(value)
    if unknown := [key for key in value if key not in ("share", "sla")]:
        raise Problem(f"unknown key {shown(unknown[0])}", "a class has the keys share and sla", unknown[0], at_key=True)
    problems = Problems()
    shares = problems.read(_shares, value.get("share", []), "share") or ()
    limits = problems.read(partial(_limits, name), value["sla"], "sla") if "sla" in value else ()
    problems.check()
    return ClassConfig(shares, limits or ())


def _shares(value: Any) -> tuple[float, ...]:
    """70%, or a list of several."""
    shares = tuple(share(item) for item in (value if isinstance(value, list) else [value]))
    if any(not 0 < each < 1 for each in shares):
        raise Problem("{key}: a class has more than 0% and less than 100%", "measure one class alone by its shape")
    if len(set(shares)) < len(shares) or len(shares) > MOST_SHARES:
        raise Problem("{key}: too many shares, or one given twice", f"write at most {MOST_SHARES} different ones")
    return tuple(sorted(shares))


def _limits(name: str, value: Any) -> tuple[Limit, ...]:
    """The limits of a class by their full names, as chat.p99_ttft."""
    if not isinstance(value, dict):
        raise Problem("{key} is metrics with their limits", "write {p99_ttft: 500ms, p99_tpot: 30ms}")
    problems, limits = Problems(), []
    for limit in read_limits(value, problems):
        try:
            limits.append(replace(limit, metric=metric(f"{name}.{limit.metric}").name))
        except ValueError:
            what = f"{limit.metric} is not kept by class"
            problems.append(Problem(what, "a class has limits on ttft, tpot, e2e and interactivity", limit.metric))
    problems.check()
    return tuple(limits)


def _check_shares(classes: Traffic) -> None:
    """A `Problem` unless the shares make mixes."""
    swept = [name for name, each in classes.items() if len(each.shares) > 1]
    rest = [name for name, each in classes.items() if not each.shares]
    given = sum(each.shares[0] for each in classes.values() if len(each.shares) == 1)
    if len(swept) > 1:
        raise Problem("two classes have several shares", "let one vary: the others fill the rest", swept[1], "share")
    if len(rest) > 1 or (rest and swept and given):
        raise Problem(f"{rest[-1]} has no share", "one class may leave it out: it gets the rest", rest[-1])
    if not swept and (given >= 1 if rest else abs(given - 1) > 1e-6):
        raise Problem(f"{{key}}: the shares come to {given * 100:.4g}%", "let them come to 100%, or leave one out")


def mixes(classes: Traffic, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
    """The mixes, one for each share of the class that has several. A `Problem` where classes and
    shapes differ.
    """
    named = {shape.label: shape for shape in shapes}
    for name in classes:
        if name not in named:
            raise Problem(f"traffic: there is no shape named {name}", f"shapes: {', '.join(named)}", "traffic", name)
    if unused := [label for label in named if label not in classes]:
        what = f"{unused[0]} has no place in traffic"
        raise Problem(what, "give it a share there, or remove the shape", "traffic")
    return tuple(
        Shape.of_mix(TrafficClass(name, part, named[name]) for name, part in parts.items()) for parts in _parts(classes)
    )


def _parts(classes: Traffic) -> Iterator[dict[str, float]]:
    """The share of each class in each mix."""
    varied = next((name for name, each in classes.items() if len(each.shares) > 1), None)
    given = {name: each.shares[0] if each.shares else None for name, each in classes.items() if name != varied}
    left = 1 - sum(part for part in given.values() if part is not None)
    others = {name: left if part is None else part for name, part in given.items()}
    if varied is None:
        yield others
        return
    for part in classes[varied].shares:
        scale = (1 - part) / sum(others.values())
        yield {name: part if name == varied else others[name] * scale for name in classes}
