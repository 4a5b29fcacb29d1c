"""The `traffic` of a config: a mix of named shapes. Each class has its share of the sessions
started and its own SLA.

A class may list several shares. Each makes a mix of its own, in which the other classes fill the
rest in proportion.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, PlainValidator

from frontier.config.sla import read_limits
from frontier.config.uses import PLAIN
from frontier.core.model.decisions import Limit
from frontier.core.model.length_pairs import LengthPairs
from frontier.core.model.metrics import CLASS_NAME, TURN_CLASSES
from frontier.core.model.shapes import Shape, TrafficClass
from frontier.fields import Problem, Strict, read, refuse, share, shown, without_nulls

MOST_CLASSES, MOST_SHARES = 8, 20
_EXAMPLE = "write {chat: {share: 70%, sla: {p99_ttft: 500ms}}, rag: {share: 30%}}"


def _shares(value: Any) -> tuple[float, ...]:
    """70%, or a list of several."""
    shares = tuple(share(item) for item in (value if isinstance(value, list) else [value]))
    if any(not 0 < each < 1 for each in shares):
        raise Problem("{key}: a class has more than 0% and less than 100%", "measure one class alone by its shape")
    if len(set(shares)) < len(shares) or len(shares) > MOST_SHARES:
        raise Problem("{key}: too many shares, or one given twice", f"write at most {MOST_SHARES} different ones")
    return tuple(sorted(shares))


def _limits(value: Any) -> tuple[Limit, ...]:
    if not isinstance(value, dict | str):
        raise Problem("{key} is metrics with their limits", "write {p99_ttft: 500ms, p99_tpot: 30ms}")
    limits = read_limits(value)
    hint = "a class has limits on ttft, tpot, e2e and interactivity"
    refuse(
        Problem(f"{limit.metric} is not kept by class", hint, limit.metric)
        for limit in limits
        if limit.of.quantity in (None, "itl") or limit.of.group not in (None, *TURN_CLASSES)
    )
    return limits


class ClassConfig(Strict):
    """A class of requests: its shares of the sessions (several: a mix for each; none: what the
    others leave) and its limits.
    """

    shares: Annotated[tuple[float, ...], PlainValidator(_shares)] = Field(default=(), alias="share")
    own_limits: Annotated[tuple[Limit, ...], PlainValidator(_limits), PLAIN] = Field(default=(), alias="sla")

    def limits(self, name: str) -> tuple[Limit, ...]:
        """The limits by their full names, as chat.p99_ttft; `name` is the class's."""
        return tuple(replace(limit, metric=f"{name}.{limit.metric}") for limit in self.own_limits)


Traffic = Mapping[str, ClassConfig]
"""The classes by the names of their shapes."""


def read_traffic(value: Any) -> Traffic:
    """The `traffic` key: {chat: {share: 70%, sla: {p99_ttft: 500ms}}, rag: {share: [10%, 30%]}}."""
    if not isinstance(value, dict):
        raise Problem("{key} is named shapes with their shares", _EXAMPLE)
    if not 2 <= len(value) <= MOST_CLASSES:
        raise Problem(f"{{key}}: a mix has 2 to {MOST_CLASSES} classes", _EXAMPLE)
    classes: Traffic = read(dict[_ClassName, _Class], without_nulls(value))
    _check_shares(classes)
    return classes


def _class_name(value: str) -> str:
    if not CLASS_NAME.fullmatch(value) or value in TURN_CLASSES:
        hint = "a class is named by letters, digits, _ and -, and neither first nor later"
        raise Problem(f"{shown(value)} cannot name a class", hint, at_key=True)
    return value


def _class(value: Any) -> ClassConfig:
    if not isinstance(value, dict):
        raise Problem("{key} has a share and may have an sla", _EXAMPLE)
    config: ClassConfig = read(ClassConfig, value)
    return config


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


_ClassName = Annotated[str, PlainValidator(_class_name)]
_Class = Annotated[ClassConfig, PlainValidator(_class)]


def mixes(classes: Traffic, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
    """The mixes, one for each share of the class that has several. A `Problem` where classes and
    shapes differ.
    """
    named = {shape.label: shape for shape in shapes}
    for name in classes:
        if name not in named:
            raise Problem(f"traffic: there is no shape named {name}", f"shapes: {', '.join(named)}", "traffic", name)
    if traces := [name for name in classes if (pairs := named[name].pairs) is not None and _shares_its_own(pairs)]:
        what = f"each request of {traces[0]} has a common part of its own, which no class of a mix has"
        raise Problem(what, "measure it in a config of its own", "traffic", traces[0])
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


def _shares_its_own(pairs: LengthPairs) -> bool:
    """Whether requests already have common parts: blocks of a trace, or stated tokens."""
    return pairs.block > 0 or (pairs.table is not None and any(row.shared is not None for row in pairs.table.rows))
